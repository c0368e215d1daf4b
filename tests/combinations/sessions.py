"""Run the sessions of a drawn project, and keep what they print and write."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec

from tests.combinations.projects import BEHAVIOUR, Project
from tests.conftest import OF_CI
from tests.real.conftest import left_of
from tests.warm import WARM

#: How the terminal calls an outcome, and how the oracle does.
TERMINAL = {
    **{"PASSED": "passed", "FAILED": "failed", "ERROR": "error"},
    **{"SKIPPED": "skipped", "XFAIL": "xfailed", "XPASS": "xpassed"},
}
#: An outcome at the end of a line with -v, or behind the name of a worker.
_LINE = re.compile(
    r"^(?:\[gw\d+\] \[ *\d+%\] (?P<first>[A-Z]+) )?(?P<test>test_\S+?\.py::\S+)"
    rf"(?: (?P<last>{'|'.join(TERMINAL)})\b.*)?$"
)
_ROOT = Path(__file__).parents[2]
_REPORTS = ("json", "markdown", "html", "csv", "tables", "ktap")


@dataclass(frozen=True)
class Ran:
    """A session that ended: its exit code, its output, and the texts of its files."""

    code: int
    stdout: str
    stderr: str
    files: Mapping[str, str]
    #: What the tests logged: round, stack and test.
    log: tuple[tuple[int, str, str], ...]
    #: What is left in the device's directory, below the base temp, and in journals.
    left: tuple[str, ...]
    #: The modules whose fixture was set up or torn down, in order.
    scopes: tuple[str, ...] = ()

    @cached_property
    def terminal(self) -> dict[str, list[str]]:
        """Return the outcomes of each test in the terminal, in order."""
        outcomes: dict[str, list[str]] = {}
        for line in self.stdout.splitlines():
            if (match := _LINE.match(line.rstrip())) and (word := match["first"] or match["last"]) in TERMINAL:
                outcomes.setdefault(match["test"], []).append(TERMINAL[word])
        return outcomes

    @cached_property
    def junit(self) -> dict[str, list[str]]:
        """Return the outcomes of each test in JUnit's file."""
        outcomes: dict[str, list[str]] = {}
        for case in ElementTree.fromstring(self.files["junit"]).iter("testcase"):
            module, *classes = case.attrib["classname"].split(".")
            name = "::".join([f"{module}.py", *classes, case.attrib["name"]])
            kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            outcomes.setdefault(name, []).extend(kinds or ["passed"])
        return outcomes

    @property
    def answer(self) -> list[str]:
        """Return the sentences at the top of JUnit's file."""
        properties = ElementTree.fromstring(self.files["junit"]).iter("property")
        return [one.attrib["value"] for one in properties if one.attrib["name"] == "fsstack_answer"]

    @cached_property
    def results(self) -> Any:
        """Return the results in the file of --fsstack-json, None if there is none."""
        return msgspec.json.decode(self.files["json"]) if "json" in self.files else None

    @cached_property
    def tests(self) -> dict[str, dict[str, str]]:
        """Return the tests on stacks of the file of --fsstack-json."""
        return self.results["tests"] if self.results else {}


@dataclass(frozen=True)
class Place:
    """A directory for projects, and their device: a directory, or ``loop``."""

    directory: Path
    device: str

    @property
    def below(self) -> str:
        """Return the layer below all stacks, which start in a directory."""
        return "ext4" if self.device == "loop" else ""

    @property
    def _words(self) -> list[str]:
        return [f"--fsstack-device={self.device}", "--fsstack-seed=1", "--fsstack-size=32M"]

    @contextmanager
    def project(self, project: Project) -> Iterator[Path]:
        """Write a project into a fresh directory."""
        path = self.directory / "project"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        for name, text in project.files(self.below).items():
            (path / name).write_text(text)
        (path / "conftest.py").write_text(BEHAVIOUR.read_text())
        yield path

    def standin(self, project: Project, path: Path) -> Ran:
        """Run the tests with the stand-in, to their end."""
        stacks = {"STANDIN_STACKS": ",".join(project.replaced_stacks)}
        # The real session must not see what failed in this one.
        words = [*project.common_words, "-p", "no:cacheprovider"]
        return self._run(path, "tests.combinations.standin", words, stacks)

    def real(self, project: Project, path: Path) -> Ran:
        """Run the first session of a project with all reports."""
        reports = [f"--fsstack-report={name}={path}/results.{name}" for name in _REPORTS if project.uses_stacks]
        device = self._words if project.uses_stacks else []
        return self._run(
            path, "pytest_fsstack.plugin", [*project.common_words, *device, *reports, *project.words(self.below)]
        )

    def again(self, project: Project, path: Path) -> Ran:
        """Run the second session of a project."""
        device = self._words if project.uses_stacks else []
        return self._run(path, "pytest_fsstack.plugin", [*project.common_words, *device, *project.words(self.below)])

    def _run(self, path: Path, plugin: str, words: list[str], environment: Mapping[str, str] = {}) -> Ran:
        for name in *(f"results.{report}" for report in (*_REPORTS, "junit")), "log", "scopes", "summary":
            (path / name).unlink(missing_ok=True)
        base = self.directory / "tmp"
        summary = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(path / "summary")}
        plugins = f"xdist.plugin,{plugin}" if "-n2" in words else plugin
        words = [*words, f"--basetemp={base}", f"--junitxml={path}/results.junit"]
        with _environment({"PYTEST_PLUGINS": plugins, **summary, **environment}):
            result = WARM.session(*words, cwd=path)
        files = {file.suffix[1:]: file.read_text() for file in path.glob("results.*")}
        files |= {"summary": (path / "summary").read_text()} if (path / "summary").exists() else {}
        log, scopes = (_lines_of(path / name) for name in ("log", "scopes"))
        entries = [tuple(line.split(" ", 2)) for line in log]
        return Ran(
            result.returncode,
            result.stdout,
            result.stderr,
            files,
            tuple((int(number), stack, test) for number, stack, test in entries),
            tuple(self._left(base)),
            tuple(scopes),
        )

    def _left(self, base: Path) -> Iterator[str]:
        yield from map(str, base.rglob("fsstack-*"))
        if self.device == "loop":
            yield from (thing for things in left_of(self.directory).values() for thing in things)
        else:
            yield from map(str, Path(self.device.removeprefix("dir:")).iterdir())
        for journal in Path("/run/pytest-fsstack").glob("*"):
            with suppress(FileNotFoundError):  # another session has closed it
                if os.fsencode(self.directory) in journal.read_bytes():
                    yield str(journal)


def _lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, without those of a CI system and of pytest around this one."""
    before = dict(os.environ)
    for name in before:
        if name == "CI" or name.startswith((*OF_CI, "PYTEST_")):
            del os.environ[name]
    os.environ.update({"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(_ROOT), **values})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
