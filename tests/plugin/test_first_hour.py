"""The first steps of a new user. Each was a stumble once."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

ROOT = Path(__file__).parents[2]


def only_installed(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in the checkout, as if only `pip install -e .` had run."""
    (tmp_path / "hypothesis.py").write_text("raise ModuleNotFoundError('only the tests have it')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_in_a_checkout_the_scenarios_need_nothing_that_only_the_tests_have(tmp_path: Path) -> None:
    done = only_installed(tmp_path, "--fsstack-size=4G", "-k", "btrfs", "--collect-only", "-q")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "scenarios/test_encryption_overhead.py::TestEncryptionOverhead::test_extract[btrfs]" in done.stdout


def test_the_first_command_of_the_readme_needs_nothing_that_only_the_tests_have(tmp_path: Path) -> None:
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    section = tox["testenv:compare"]
    (line,) = section["commands_pre"].strip().splitlines()
    words = shlex.split(line.replace("{[testenv:compare]scenario}", section["scenario"]))
    assert words[:4] == ["-", "python", "-m", "pytest"]
    # It looks only: what the machine lacks is installed elsewhere.
    arguments = [word.replace("--fsstack-doctor=install", "--fsstack-doctor") for word in words[4:]]
    done = only_installed(tmp_path, *arguments)
    assert "gocryptfs" in done.stdout
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), done.stdout + done.stderr


def test_a_budget_that_may_have_been_meant_in_percent_is_doubted(project: Project) -> None:
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('plain')\n@pytest.mark.fsstack_budget(30)\n@pytest.mark.benchmark\n"
        "def test_it(timed):\n    with timed(cold=False):\n        pass\n"
    )
    result = project.run("--fsstack-rounds=1")
    result.stdout.fnmatch_lines(["*fsstack_budget: overhead=30 *3000 %*'30%'*'3000%'*"])


def test_a_governor_is_refused_before_anything_runs_if_there_is_none(project: Project) -> None:
    conftest = project.pytester.path / "conftest.py"
    none = "\nfrom pytest_fsstack.stack import tuning\ntuning._governors = lambda machine: []\n"
    conftest.write_text(conftest.read_text() + none)
    project.write("import pytest\n\n@pytest.mark.fsstack('plain')\ndef test_it(fsstack):\n    pass\n")
    result = project.run("--fsstack-governor=performance")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-governor: *CPU*--fsstack-governor*"])


def test_below_the_table_stands_how_to_get_what_another_kernel_can(project: Project) -> None:
    conftest = project.pytester.path / "conftest.py"
    layer = """

@dataclass(frozen=True)
class Magic(Plain):
    name: ClassVar = "magic"

    def needs(self):
        from pytest_fsstack import KernelFilesystem

        return [KernelFilesystem("nosuchfs")]
"""
    hook = "\n\ndef pytest_fsstack_layers"
    text = conftest.read_text().replace(hook, layer + hook).replace("[Plain, ", "[Magic, Plain, ")
    conftest.write_text(text)
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('plain', 'magic')\n@pytest.mark.benchmark\n"
        "def test_it(timed):\n    with timed(cold=False):\n        pass\n"
    )
    result = project.run("--fsstack-rounds=1")
    result.stdout.fnmatch_lines(["fsstack: magic: *VM*", "*--fsstack-kernel=*"])


def test_a_plain_directory_is_a_baseline_without_root(project: Project) -> None:
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('directory', 'copy = directory')\n@pytest.mark.benchmark\n"
        "def test_it(fsstack, timed):\n    with timed(cold=False):\n        (fsstack.path / 'file').write_text('x')\n"
    )
    result = project.run("--fsstack-rounds=1")
    result.assert_outcomes(passed=2)
    # On a busy machine one round may take many times as long.
    result.stdout.re_match_lines([r"copy +\S+ \S?s +~?(x\d|[+-]\d.*%)"])


def test_nothing_is_measured_if_the_baseline_cannot_run(project: Project) -> None:
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('absent', 'plain')\n@pytest.mark.benchmark\n"
        "def test_it(timed, log):\n    log('ran')\n    with timed(cold=False):\n        pass\n"
    )
    result = project.run("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*absent *no-such-tool: *--fsstack-baseline*"])
    assert not (project.pytester.path / "log").exists()
    assert project.run("--fsstack-if-unavailable=fail").ret == pytest.ExitCode.TESTS_FAILED
    project.run("--fsstack-baseline=plain", "--fsstack-rounds=1").assert_outcomes(passed=1, skipped=1)


def test_a_command_of_a_test_that_fails_is_shown_by_the_line_of_the_test_alone(project: Project) -> None:
    project.write(
        """
        import pytest


        @pytest.mark.fsstack("plain")
        def test_read(fsstack, timed):
            with timed():
                timed.run("cat", fsstack.path / "nothing")
        """
    )
    result = project.run("--fsstack-rounds=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(['>*timed.run("cat", fsstack.path / "nothing")', "E *`cat */nothing`*exit code 1*"])
    assert "measuring/timed.py" not in str(result.stdout)


def test_a_second_timed_block_is_shown_by_the_line_of_the_test_alone(project: Project) -> None:
    project.write(
        """
        import pytest


        @pytest.mark.fsstack("plain")
        def test_read(fsstack, timed):
            with timed():
                pass
            with timed(cold=False):
                pass
        """
    )
    result = project.run("--fsstack-rounds=1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([">*with timed(cold=False):", "E *MeasureError: *one timed block*"])
    assert not re.search(r"measuring/timed\.py|contextlib", str(result.stdout))


def test_tests_that_never_enter_their_timed_block_are_explained(project: Project) -> None:
    project.write(
        "import pytest\n\n@pytest.mark.fsstack('plain', 'crypt')\n"
        "def test_it(fsstack, timed):\n    assert fsstack.path\n"
    )
    project.run("--fsstack-rounds=1").stdout.fnmatch_lines(["Nothing was measured*crypt*no timed block*"])


@pytest.mark.parametrize("strict", [[], ["--fsstack-strict"]], ids=["lenient", "strict"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--fsstack-budgets=*: 30%", "--fsstack-budgets; * --fsstack-budget?"),
        ("--fsstack-budget=crypd: 30%", "--fsstack-budget: *'crypd'*'crypt'*"),
    ],
)
def test_a_mistake_on_the_command_line_has_one_message(
    project: Project, option: str, message: str, strict: list[str]
) -> None:
    project.write(
        """
        import pytest


        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.fsstack_budget("30%")
        def test_it(fsstack, timed):
            with timed():
                pass
        """
    )
    result = project.run(option, "--fsstack-rounds=5", *strict)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{message}"])
    assert "judged" not in str(result.stdout)
