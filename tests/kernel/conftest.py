"""Tests that run in a guest with another kernel, each shown as a test of the host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal
from xml.etree import ElementTree

import pytest

from pytest_fsstack.kernels import vm
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack.model import Stack
from tests.kernel import boot
from tests.sessions import FEW_PLUGINS

#: Each file of a plugin is read over 9p.
ENVIRONMENT = {**FEW_PLUGINS, "PYTHONDONTWRITEBYTECODE": "1"}

DISK_SIZE = 384 << 20  # enough for the smallest xfs with a LUKS header below it; tests read all of it
TIMEOUT = 2400.0


@dataclass(frozen=True)
class GuestTest:
    """What became of a test in the guest."""

    result: Literal["passed", "skipped", "failed"]
    text: str = ""


@dataclass(frozen=True)
class Guest:
    """A pytest session that has run in a guest."""

    outcomes: Mapping[str, GuestTest]
    said: str

    def check(self, name: str) -> None:
        """Pass, skip or fail as the test of this name did."""
        if name not in self.outcomes:
            pytest.fail(f"the guest did not run {name}; its session said:\n{self.said}", pytrace=False)
        outcome = self.outcomes[name]
        if outcome.result == "skipped":
            pytest.skip(f"in the guest: {outcome.text}")
        if outcome.result == "failed":
            pytest.fail(f"in the guest:\n{outcome.text}", pytrace=False)


@pytest.fixture(scope="session")
def run_in_guest(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Guest]:
    """Run a file of tests in a guest."""

    def run(file: Path, *arguments: str, vmlinuz: Path, disks: int = 1) -> Guest:
        here = tmp_path_factory.mktemp("guest")
        results = here / "results/results.xml"
        # Neither the project's conftest files nor its ini: they are about tests on the host.
        alone = ("-c", "/dev/null", f"--rootdir={file.parent}", "--noconftest", "-p", "no:cacheprovider")
        argv = [sys.executable, "-m", "pytest", *alone, f"--junitxml={vm.RESULTS}/results.xml", "--durations=0", "-vv"]
        result = boot.run(
            vmlinuz,
            [*argv, *arguments, str(file)],
            disk_size=DISK_SIZE,
            disks=disks,
            timeout=TIMEOUT,
            directory=here,
            env=ENVIRONMENT,
        )
        said = result.stdout + result.stderr
        (here / "said").write_text(said)
        return Guest(outcomes(results) if results.exists() else {}, said)

    return run


def names_in(module: ModuleType) -> list[str]:
    """The tests of a file of the guest's as pytest names them there."""
    names = []
    for name, function in vars(module).items():
        if name.startswith("test_"):
            marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "fsstack"]
            names += [f"{name}[{Stack.parse(text, BUILT_IN).id}]" for mark in marks for text in mark.args] or [name]
    return names


def outcomes(junit: Path) -> dict[str, GuestTest]:
    """What became of each test, by name; one whose teardown failed too is there twice."""
    tests: dict[str, GuestTest] = {}
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name = case.attrib["name"]
        troubles = [*case.findall("failure"), *case.findall("error")]
        skipped = case.find("skipped")
        if troubles or (name in tests and tests[name].result == "failed"):
            text = "\n".join([tests[name].text if name in tests else "", *(trouble.text or "" for trouble in troubles)])
            tests[name] = GuestTest("failed", text.strip())
        elif skipped is not None:
            tests[name] = GuestTest("skipped", skipped.attrib.get("message", ""))
        else:
            tests[name] = GuestTest("passed")
    return tests
