"""Each gate is tried both ways: with the smallest change that it must fail, and with the largest that it must not.

The figures here have no noise, so that little decides. `SCENARIOS` names tests of scenarios
in other modules. The last tests compare the gates with those that the plugin has.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machines import course_of, run as run_course
from pytest_fsstack import command
from pytest_fsstack.judging.cells import Cell, Policy
from pytest_fsstack.options import scenarios
from pytest_fsstack.over_time.history import append, file_of
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import METRICS
from tests.plugin.conftest import Project
from tests.plugin.test_over_time import needs_machine_id
from tests.unit.command.test_trend import night
from tests.unit.over_time.test_comparison import run

ROOT = Path(__file__).parents[2]
#: By so much a figure is above or below its limit, as a share.
STEP = 1e-3
KEPT, BROKEN = 1 - STEP, 1 + STEP

# -- budgets of tests --------------------------------------------------------------------------------------------------

FIGURES = """
import msgspec
import pytest

from pytest_fsstack.records.sample import METRICS, Metric

METRICS = {{**METRICS, "coins": Metric("coins"), "marks": Metric("marks", better="higher")}}
CHANGES = {{"plain": 1.0, "kept": 1.3 * {kept}, "broken": 1.3 * {broken}}}

def figure(metric, change):
    # So much that one per thousand is more than the resolution.
    unit = 1e4 * max(metric.resolution, 1)
    return unit * change if metric.better == "lower" else unit / change

def mark(metric):
    budget = {{"overhead": "30%"}} if {relative} else {{"limit": figure(metric, 1.3)}}
    return pytest.mark.fsstack_budget(metric=metric.name, **budget)

@pytest.mark.fsstack("plain", "kept = crypt", "broken = crypt(cost=2)")
class TestMetrics:
    @pytest.mark.parametrize("metric", [pytest.param(name, marks=mark(METRICS[name])) for name in METRICS])
    def test_step(self, fsstack, timed, metric):
        with timed(cold=False):
            pass
        value = figure(METRICS[metric], CHANGES[fsstack.stack.id])
        if metric in ("coins", "marks"):
            timed.record(metric, value, better=METRICS[metric].better)
        values = {{**timed._sample.values, **({{metric: value}} if timed._extra == {{}} else {{}})}}
        timed._sample = msgspec.structs.replace(timed._sample, values=values)
"""


@pytest.mark.parametrize("relative", [True, False], ids=["overhead", "limit"])
def test_a_budget_on_each_metric(project: Project, relative: bool) -> None:
    project.write(FIGURES.format(kept=KEPT, broken=BROKEN, relative=relative))
    result = project.run("-v", "--fsstack-rounds=5")
    outcomes = outcomes_of(result)
    expected = {"plain": "PASSED", "kept": "PASSED", "broken": "FAILED"}
    assert outcomes == {
        f"{stack}-{metric}": outcome for metric in (*METRICS, "coins", "marks") for stack, outcome in expected.items()
    }


def outcomes_of(result: pytest.RunResult) -> dict[str, str]:
    """Return the outcome of each test by its parameters."""
    lines = [line.split() for line in result.outlines if "::test_step[" in line]
    return {line[0].partition("[")[2].rstrip("]"): line[1] for line in lines if line[1].isupper()}


COST = """
import pytest

@pytest.mark.fsstack("plain", "kept = crypt(cost=12999)", "broken = crypt(cost=13001)")
{of_class}
class TestCost:
    {of_test}
    def test_step(self, fsstack, timed):
        with timed(cold=False):
            pass
        coins = {{"plain": 10000, "kept": 12999, "broken": 13001}}[fsstack.stack.id]
        timed.record("coins", coins)
"""
BUDGET = "@pytest.mark.fsstack_budget"
#: Where a budget of 30 %, or of 13000 coins, is written: in a mark of the test or its class, or as an option.
SOURCES: dict[str, dict[str, Any]] = {
    "mark of a test": {"of_test": f"{BUDGET}('30%', metric='coins')"},
    "fraction": {"of_test": f"{BUDGET}(0.3, metric='coins')"},
    "by pattern": {"of_test": f"{BUDGET}({{'*': '1%', '*ke*': '30%'}}, metric='coins')"},
    "the last of a pattern": {"of_test": f"{BUDGET}({{'*e*': '1%', 'kept': '30%', 'bro*': '30%'}}, metric='coins')"},
    "limit": {"of_test": f"{BUDGET}(limit=13000, metric='coins')"},
    "sanity limit": {"of_test": f"{BUDGET}('30%', metric='coins', sanity=True)"},
    "mark of a class": {"of_class": f"{BUDGET}('30%', metric='coins')"},
    "mark of a test before that of its class": {
        "of_class": f"{BUDGET}('1%', metric='coins')",
        "of_test": f"{BUDGET}('30%', metric='coins')",
    },
    "ini": {"ini": "coins 30%"},
    "limit in the ini": {"ini": "coins <= 13000"},
    "ini before a mark": {"ini": "coins 30%", "of_test": f"{BUDGET}('1%', metric='coins')"},
    "command line": {"words": ["--fsstack-budget=coins 30%"]},
    "limit on the command line": {"words": ["--fsstack-budget=coins <= 13000"]},
    "command line before the ini": {"ini": "coins 1%", "words": ["--fsstack-budget=coins 30%"]},
    "pattern on the command line": {"words": ["--fsstack-budget=coins 1%", "--fsstack-budget=*e*: coins 30%"]},
    "one error rate for the session": {
        "of_test": f"{BUDGET}('30%', metric='coins')",
        "words": ["--fsstack-error-rate-per=session", "--fsstack-rounds=8"],
    },
    "strict": {"of_test": f"{BUDGET}('30%', metric='coins')", "words": ["--fsstack-strict", "--fsstack-rounds=8"]},
    "exit code of git bisect": {
        "of_test": f"{BUDGET}('30%', metric='coins')",
        "words": ["--fsstack-exit=bisect"],
    },
    "expected": {"of_test": f"{BUDGET}('30%', metric='coins', xfail={{'*': 'BUG-1'}})"},
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_budget_from_each_source(project: Project, source: str) -> None:
    words = SOURCES[source]
    project.write(COST.format(of_class=words.get("of_class", ""), of_test=words.get("of_test", "")))
    project.pytester.makeini(f"[pytest]\nfsstack_budget = {words['ini']}" if "ini" in words else "[pytest]")
    expected = source == "expected"
    kept, broken = ("XPASS", "XFAIL") if expected else ("PASSED", "FAILED")
    options = ["-v", "--fsstack-rounds=5", *words.get("words", [])]
    result = project.run(*options, "-k", "kept or broken")
    assert outcomes_of(result) == {"kept": kept, "broken": broken}
    assert result.ret == (0 if expected else 1)
    if source in ("strict", "exit code of git bisect"):
        assert project.run(*options, "-k", "kept").ret == 0


# -- comparisons -------------------------------------------------------------------------------------------------------


def _compare(change: float, directory: Path) -> int:
    """Compare runs with a limit of 10 %."""
    for side, overhead, count in (("then", 0.2, 5), ("now", 1.2 * 1.1 * change - 1, 3)):
        (directory / side).mkdir()
        for number in range(count):
            (directory / side / f"{number}.json").write_text(saved.dumps(run(overhead)))
    return command.main(["compare", f"{directory}/then", f"{directory}/now", "--limit=10%"])


def _pool(change: float, directory: Path) -> int:
    """Pool hosts with a limit of 10 %."""
    for number in range(8):
        results = run(1.1 * change - 1, machine=f"{number:032x}", rounds=8)
        results.start = f"2026-01-01T00:00:{number:02}+00:00"
        (directory / f"host{number}.json").write_text(saved.dumps(results))
    return command.main(["pool", str(directory), "--limit=10%"])


def _kernels(boots: int) -> Callable[[float, Path], int]:
    def compare(change: float, directory: Path) -> int:
        """Compare a stack on two kernels with a limit of 10 %."""
        budgets: dict[str, list[Budget]] = {"ext4": [], "luks": []}
        policy = Policy(limit=0.1, judges_one_boot=boots == 1)
        course = course_of(random.Random(1), budgets, policy, kernels=("old", "new"), boots=boots)

        def cost(cell: Cell) -> float:
            return log(1.1 * change if (cell.stack, cell.kernel) == ("luks", "new") else 1.0)

        run_course(course, cost)
        course.conclude()
        outcomes = {nodeid: decision.outcome for nodeid, decision in course.decisions_between()}
        assert {outcome for nodeid, outcome in outcomes.items() if "ext4" in nodeid} == {"passed"}
        (outcome,) = (outcome for nodeid, outcome in outcomes.items() if "luks:new" in nodeid)
        return {"passed": 0, "failed": 1}[outcome]

    return compare


COMPARISONS = {
    "compare --limit": _compare,
    "pool --limit": _pool,
    "--fsstack-judge-one-boot": _kernels(1),
    "--fsstack-max-regression between kernels": _kernels(3),
}


@pytest.mark.parametrize("comparison", COMPARISONS)
def test_a_limit_on_a_comparison(comparison: str, tmp_path: Path) -> None:
    for name, change, code in (("kept", KEPT, 0), ("broken", BROKEN, 1)):
        (tmp_path / name).mkdir()
        assert COMPARISONS[comparison](change, tmp_path / name) == code


EARLIER = """
import msgspec
import pytest

@pytest.mark.fsstack("plain", "crypt")
def test_step(fsstack, timed):
    with timed(cold=False):
        pass
    seconds = 1.0 if fsstack.stack.id == "plain" else {seconds}
    timed._sample = msgspec.structs.replace(timed._sample, values={{**timed._sample.values, "seconds": seconds}})
"""


@needs_machine_id
def test_a_limit_on_the_change_since_earlier_runs(project: Project) -> None:
    """The earlier runs are sessions too, so that their work and their machine are the same."""
    words = ["--fsstack-rounds=2", "--fsstack-compare=earlier", "--fsstack-max-regression=10%"]
    project.pytester.mkdir("earlier")
    project.write(EARLIER.format(seconds=1.2))
    for number in range(6):
        # Sessions of the same second and seed would count as one run.
        words_of_run = ["--fsstack-rounds=2", f"--fsstack-json=earlier/{number}.json", f"--fsstack-seed={number}"]
        assert project.run(*words_of_run).ret == 0
    for change, code in ((KEPT, 0), (BROKEN, 1)):
        project.write(EARLIER.format(seconds=1.2 * 1.1 * change))
        assert project.run(*words).ret == code


@pytest.mark.parametrize(("change", "shown"), [(KEPT, False), (BROKEN, True)])
def test_the_smallest_change_of_a_history(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], change: float, shown: bool
) -> None:
    """The cost grows by about 2 % after half of the nights, and only changes of 2 % and more are asked for."""
    after = 1.3 * (1 + 0.02 * change) - 1
    path = file_of(tmp_path, "a" * 32)
    for number in range(24):
        append(path, saved.line(night(number, {"luks": 0.3 if number < 12 else after})))
    assert command.main(["trend", str(tmp_path), "--smallest", "2%"]) == 0
    assert ("commit 12" in capfd.readouterr().out) == shown


# -- scenarios, and gates that are tried elsewhere ---------------------------------------------------------------------

WORKLOADS = "unit/workloads/test_workloads.py"
#: For each scenario a test in which a stack does one thing wrong and fails, and one in which it does all and passes.
SCENARIOS = {
    "encryption_overhead": (f"{WORKLOADS}::TestExtract::test_notices", f"{WORKLOADS}::TestExtract::test_extracts"),
    "ssd_encryption": ("real/workloads/test_workloads.py::test_fio_notices_a_block_that_changed",) * 2,
    "stacked_encryption": ("unit/workloads/test_copy.py::test_what_is_no_copy_is_noticed",) * 2,
    "dmcrypt_block_size": ("unit/workloads/test_block.py::test_what_is_spoilt_differs",) * 2,
    "filesystems": (
        f"{WORKLOADS}::TestStreamWrite::test_notices",
        f"{WORKLOADS}::TestStreamWrite::test_writes_the_payload",
    ),
    "hardlink_backup": (
        "real/workloads/test_on_loops.py::test_a_filesystem_without_hard_links_is_one_that_did_not_do_the_work",
        "real/workloads/test_on_loops.py::test_a_backup_is_unpacked_and_removed",
    ),
    "images": (f"{WORKLOADS}::TestExtract::test_notices", f"{WORKLOADS}::TestExtract::test_extracts"),
    "databases": ("unit/workloads/test_database.py::test_notices", "unit/workloads/test_database.py::test_commits"),
    "degraded": (f"{WORKLOADS}::TestExtract::test_notices", f"{WORKLOADS}::TestExtract::test_extracts"),
    "power_cut": ("real/truth/damage/test_power_cut.py::test_the_controls_lose_and_a_journal_does_not",) * 2,
    "bit_rot": ("real/truth/damage/test_bit_rot.py::test_flips_in_contents_are_wrong_reported_or_corrected",) * 2,
    "contents": ("real/truth/correctness/test_contents.py::test_a_changed_byte_is_found_and_nothing_else_is",) * 2,
    "posix": ("real/truth/correctness/test_posix.py::test_a_control_is_found_out_and_the_others_are_counted",) * 2,
    "xfstests": ("unit/truth/correctness/test_xfstests.py::test_each_test_of_a_report_passed_failed_or_was_not_run",)
    * 2,
}


def test_each_scenario_has_a_pair() -> None:
    names = {path.stem.removeprefix("test_") for path in scenarios.directory().glob("test_*.py")}
    assert names == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_pair_of_a_scenario_exists(scenario: str) -> None:
    for test in SCENARIOS[scenario]:
        file, *names = test.split("::")
        nodes: list[ast.stmt] = ast.parse((ROOT / "tests" / file).read_text()).body
        for name in names:
            (node,) = (
                node for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name
            )
            nodes = node.body


def test_each_subcommand_with_a_limit_has_a_pair() -> None:
    parsers = command.subcommands(command.parser())
    limited = {name for name, parser in parsers.items() if "--limit" in parser._option_string_actions}
    assert limited
    assert {f"{name} --limit" for name in limited} <= set(COMPARISONS)
