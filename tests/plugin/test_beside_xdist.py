"""Workers of pytest-xdist that are not a kernel's: nothing is measured there, and a gate says so beforehand."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

pytest.importorskip("xdist", reason="needs pytest-xdist: pip install pytest-fsstack[kernel]")

pytestmark = pytest.mark.plugins("xdist")

TEST = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.benchmark
def test_step(fsstack, timed, log):
    log("measured")
    with timed(cold=False):
        pass

@pytest.mark.fsstack("plain")
def test_that_measures_nothing(fsstack):
    assert fsstack.path.is_dir()
"""


def test_benchmarks_are_skipped_with_the_reason(project: Project) -> None:
    project.write(TEST)
    result = project.run("--fsstack-rounds=1", "-n", "1", "-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED * -n 0 *"])
    assert not (project.pytester.path / "log").exists()


@pytest.mark.parametrize(
    ("gate", "workers"),
    [
        ("--fsstack-strict", ["-n", "1"]),
        ("--fsstack-strict", ["--dist=load", "--tx=popen"]),
        ("--fsstack-if-unavailable=fail", ["-n2"]),
        ("--fsstack-budget=5%", ["-n2"]),
    ],
)
def test_a_gate_is_refused_before_anything_starts(project: Project, gate: str, workers: list[str]) -> None:
    project.write(TEST)
    result = project.run(gate, *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [*result.outlines, *result.errlines]
    assert sum(f"{gate.partition('=')[0]}: " in line and " -n 0 " in line for line in lines) == 1
    assert not any("passed" in line or "skipped" in line for line in lines)


def test_budgets_of_marks_are_skipped_with_a_warning(project: Project) -> None:
    project.write(TEST.replace("benchmark", "fsstack_budget(0.3)"))
    result = project.run("-n", "1")
    result.assert_outcomes(passed=1, skipped=2, warnings=1)
    result.stdout.fnmatch_lines(["*PytestWarning: no budget is judged: * -n 0 *"])
    result = project.run("-n", "1", "-W", "error")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: no budget is judged: *"])


# Without an option of the plugin, the controller has no session of its own.
@pytest.mark.parametrize("options", [["--fsstack-seed=1"], []])
def test_a_mistake_that_a_worker_finds_is_one_message_and_exit_code_4(project: Project, options: list[str]) -> None:
    project.write(TEST.replace('("plain", "crypt")', '("ext4", baseline="xfs", on="nothing")'))
    result = project.pytester.runpytest_subprocess("-n", "1", "-p", "no:cacheprovider", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *::test_step: *nothing*"])
    assert not any("INTERNALERROR" in line for line in result.outlines)


def test_none_at_all_is_no_worker(project: Project) -> None:
    project.write(TEST)
    project.pytester.makeini("[pytest]\naddopts = -n 2")
    project.run("--fsstack-rounds=1", "-n", "0").assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("look", "line"), [("--fsstack-doctor", "  absent: *"), ("--fsstack-dry-run", "  stacks: plain *, absent")]
)
def test_what_only_looks_starts_no_workers(project: Project, look: str, line: str) -> None:
    project.write(TEST.replace('"crypt"', '"absent"'))
    project.run(look, "-n", "1").stdout.fnmatch_lines([line])


def test_steps_that_measure_nothing_are_skipped_with_their_chain(project: Project) -> None:
    project.write("""
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestChain:
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            (fsstack.path / "file").touch()

    def test_check(self, fsstack):
        assert (fsstack.path / "file").exists()
""")
    result = project.run("--fsstack-rounds=1", "-n", "1", "-rs")
    result.assert_outcomes(skipped=4)
    result.stdout.fnmatch_lines(["SKIPPED * -n 0 *"])


INIS = [
    *("fsstack_strict = true", "fsstack_if_unavailable = fail", "fsstack_budget = 30%", "fsstack_max_regression = 5%"),
    *("fsstack_governor = performance", "fsstack_rounds = 8", "fsstack_stacks = plain"),
]


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_an_ini_says_nothing_to_a_project_without_stacks(project: Project, workers: list[str]) -> None:
    project.write("def test_one(): pass\n\ndef test_two(benchmark): benchmark.pedantic(len, ([],), rounds=1)\n")
    project.pytester.makeini("\n".join(["[pytest]", *INIS]))
    result = project.pytester.runpytest_subprocess(*workers)
    result.assert_outcomes(passed=2)
    result.stdout.no_re_match_line(".*fsstack: ")


OF_OTHER_MACHINES = [
    *(
        "fsstack_device = /dev/no-such-disk",
        "fsstack_device = dir:no-such-directory",
        "fsstack_dir = no-such-directory",
    ),
    *("fsstack_corpus = no-such-directory", "fsstack_rounds = many"),
    # Names that no ini can have.
    *("fsstack_report = html=no-such-directory/x", "fsstack_rouns = no-such-number"),
]


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
@pytest.mark.parametrize("ini", OF_OTHER_MACHINES)
def test_what_an_ini_says_of_another_machine_is_refused_only_for_tests_with_stacks(
    project: Project, ini: str, workers: list[str]
) -> None:
    project.write(TEST + "\n\ndef test_plain(): pass\n")
    project.pytester.makeini(f"[pytest]\n{ini}\n")
    plain = project.pytester.runpytest_subprocess(*workers, "-k", "plain")
    plain.assert_outcomes(passed=1, deselected=0 if workers else 2)
    assert "no-such" not in plain.stdout.str() + plain.stderr.str()
    result = project.pytester.runpytest_subprocess(*workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert ini.partition(" ")[0] in result.stdout.str() + result.stderr.str()


def test_a_gate_in_an_ini_is_refused_with_its_name_if_a_test_would_measure(project: Project) -> None:
    project.write(TEST)
    project.pytester.makeini("[pytest]\nfsstack_max_regression = 5%\n")
    result = project.run("-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: fsstack_max_regression in tox.ini: * -n 0 *"])
    result = project.run("-n2", "-k", "measures_nothing")
    result.assert_outcomes(passed=1)
