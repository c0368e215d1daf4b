"""The first lines that anybody types: what a device cannot hold is skipped, and the header says what runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

ROOT = Path(__file__).parents[2]

CHAIN = """
import pytest
from pytest_fsstack.workloads.data.scale import Sizes

@pytest.mark.fsstack("plain", "mirror = pool(2) | btrfs(data='raid1')", "xfs", "absent")
class TestIt:
    def test_step(self, fsstack, timed):
        with timed(cold=False):
            pass
"""


def test_stacks_that_no_device_can_hold_are_skipped_with_the_reason(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=1", "-rs")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines_random(
        [
            "*4 tests* 3 *1 run of 1 stack*",
            "SKIPPED*mirror*pool needs a block device*",
            "SKIPPED*xfs needs a block device*",
            "SKIPPED*no-such-tool*",
        ]
    )


def test_a_missing_device_fails_where_all_must_run(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=1", "--fsstack-if-unavailable=fail")
    result.assert_outcomes(passed=1, errors=3)


@pytest.mark.parametrize("device", ["loop", "ram"])
def test_a_device_that_is_too_small_is_found_before_anything_is_built(project: Project, device: str) -> None:
    project.write("import pytest\n\n@pytest.mark.fsstack('ext4', 'xfs')\ndef test_it(fsstack):\n    pass\n")
    words = [f"--fsstack-device={device}", "--fsstack-size=200M"]
    # The first device is the project's own.
    dry = project.run("--fsstack-dry-run", *words, "-k", f"xfs and {device}")
    dry.stdout.fnmatch_lines(["  missing here: *xfs needs 300.0 MiB*200.0 MiB*--fsstack-size=300M* (xfs)*"])
    doctor = project.run("--fsstack-doctor", *words, "-k", f"xfs and {device}")
    assert doctor.ret == 1
    doctor.stdout.fnmatch_lines(["*xfs needs 300.0 MiB*--fsstack-size=300M*"])


def test_the_doctor_knows_it_of_the_stacks_of_the_command_line(project: Project) -> None:
    words = ["--fsstack-doctor", "--fsstack-stacks=xfs", "--fsstack-device=loop"]
    for size, refused in ("64M", True), ("300M", False):
        result = project.run(*words, f"--fsstack-size={size}")
        assert ("xfs needs 300.0 MiB" in result.stdout.str()) == refused


def test_stacks_of_the_command_line_are_refused_where_they_do_not_fit(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-stacks=xfs", "--fsstack-stacks=pool(2) | btrfs")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR:*xfs needs a block device*"])


SIZED = """
import pytest
from pytest_fsstack import Sizes

@pytest.mark.fsstack("plain")
class Base:
    @pytest.mark.benchmark
    def test_step(self, fsstack, timed, sizes):
        with timed(cold=False):
            pass

@pytest.mark.fsstack_sizes(smoke=Sizes(1 << 60), small=Sizes(1 << 60), paper=Sizes(1 << 60))
class TestLarge(Base):
    pass
"""
SMALL = """
@pytest.mark.fsstack_sizes(smoke=Sizes(1), small=Sizes(1), paper=Sizes(1))
class TestSmall(Base):
    pass
"""


def test_at_a_given_scale_only_what_does_not_fit_is_skipped(project: Project) -> None:
    project.write(SIZED + SMALL)
    project.run("--fsstack-scale=smoke", "--fsstack-rounds=1").assert_outcomes(passed=1, skipped=1)
    project.write(SIZED)
    assert project.run("--fsstack-scale=smoke", "--fsstack-rounds=1").ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("expression", "near", "selected"),
    [("plai_n", "plain", 0), ("plain or cryp_t", "crypt", 1), ("plain and not stpe", "step", 1)],
)
def test_a_misspelt_word_of_k_is_named_with_the_nearest(
    project: Project, expression: str, near: str, selected: int
) -> None:
    project.write("import pytest\n\n@pytest.mark.fsstack('plain', 'crypt')\ndef test_step(fsstack):\n    pass\n")
    result = project.run("-k", expression)
    result.stdout.fnmatch_lines([f"*-k: nothing is called *did you mean {near}[?]*"])
    if selected:
        result.assert_outcomes(passed=selected, deselected=1)
    else:
        assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
        result.stdout.fnmatch_lines(["*selects none of 2 tests*plain, crypt*"])


def test_words_of_k_without_stacks_are_not_looked_at(project: Project) -> None:
    project.write("def test_it():\n    pass\n")
    result = project.run("-k", "nothing-like-this")
    result.stdout.no_fnmatch_line("*nothing is called*")


def collected(cwd: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, "--collect-only"]
    environment = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_in_a_checkout_the_header_says_that_the_scenarios_run() -> None:
    output = collected(ROOT, "--fsstack-size=4G", "-k", "btrfs and filesystems")
    assert re.search(r"scenarios/.* run", output)
    assert "testpaths" not in output
    assert "<Class TestFilesystems>" in output


def test_without_tests_a_device_is_for_the_scenarios(tmp_path: Path) -> None:
    directory = tmp_path / "device"
    directory.mkdir()
    words = [f"--fsstack-device=dir:{directory}", "-k", "stacked_encryption"]
    output = collected(tmp_path, *words)
    assert re.search(r"no tests in .*stacked_encryption", output)
    assert "<Class TestStackedEncryption>" in output
    (tmp_path / "test_own.py").write_text("def test_stacked_encryption():\n    pass\n")
    output = collected(tmp_path, *words)
    assert "no tests in" not in output
    assert "<Function test_stacked_encryption>" in output
    assert "TestStackedEncryption" not in output
