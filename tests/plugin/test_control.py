"""The baseline a second time, as a control: how long it runs, and what is said if it differs from itself."""

from __future__ import annotations

import html
import json
from collections import Counter
from fnmatch import fnmatch

import pytest

from tests.plugin.conftest import Project

TEST = """
import random
import pytest

rng = random.Random(7)

@pytest.mark.fsstack("crypt", "plain", "dear = crypt(cost=150)", baseline="plain")
class TestCost:
    def test_before(self, fsstack):
        pass

    @pytest.mark.fsstack_budget("10%", metric="cost")
    def test_step(self, fsstack, timed, cost, log):
        log("ran")
        with timed(cold=False):
            pass
        if fsstack.stack.id == "control":
            cost *= {control}
        timed.record("cost", cost * rng.gauss(1, 0.02), unit="coins")

@pytest.mark.fsstack("plain", "crypt")
def test_function(fsstack, log):
    log("function")
"""
DIFFERS = "*plain*control*step (cost) +??.? % (*%)*10 %*"


def test_a_control_that_is_like_its_baseline_is_a_stack_of_the_tables_and_nothing_else(project: Project) -> None:
    project.write(TEST.format(control=1))
    result = project.run("--fsstack-control", "--fsstack-json=all.json")
    # The test that only runs on stacks has no control.
    result.assert_outcomes(passed=7, failed=1, deselected=3)
    counts = Counter(project.log)
    assert counts["ran control"] == counts["ran plain"] == max(counts.values()) >= 6
    assert counts["function plain"] == counts["function crypt"] == 1
    assert counts["function control"] == 0
    result.stdout.fnmatch_lines(["control *"])
    result.stdout.no_fnmatch_line("*plain*control*step (cost)*")
    (chain,) = json.loads((project.pytester.path / "all.json").read_text())["chains"]
    assert chain["controls"] == ["control"]
    assert chain["judgements"][chain["steps"][1]].get("control", []) == []
    # In each of its rounds it ran beside its baseline, in an order drawn with the others.
    assert all("control" in order for order in chain["orders"])
    assert len({order.index("control") - order.index("plain") > 0 for order in chain["orders"]}) == 2


def test_a_control_that_differs_marks_the_verdicts_in_every_report(project: Project) -> None:
    project.write(TEST.format(control=1.4))
    reports = [f"--fsstack-report={name}={name}" for name in ("markdown", "html", "json")]
    result = project.run("--fsstack-control", *reports)
    # Their outcomes are what they are: it may be chance.
    result.assert_outcomes(passed=7, failed=1, deselected=3)
    result.stdout.fnmatch_lines([DIFFERS, f"[*] {DIFFERS}"])
    (chain,) = json.loads((project.pytester.path / "json").read_text())["chains"]
    (notice,) = (notice for notice in chain["notices"] if notice["kind"] == "ControlDiffers")
    assert (notice["control"], notice["baseline"]) == ("control", "plain")
    assert [(one["step"], one["metric"]) for one in notice["differences"]] == [("step", "cost")]
    for name in ("markdown", "html"):
        lines = html.unescape((project.pytester.path / name).read_text()).splitlines()
        assert any(fnmatch(line, DIFFERS) for line in lines), name


def test_a_control_that_differs_does_not_fail_a_strict_session(project: Project) -> None:
    project.write(TEST.format(control=1.4))
    result = project.run("--fsstack-control", "--fsstack-strict", "-k", "step and crypt")
    result.assert_outcomes(passed=1, deselected=10)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([f"[*] {DIFFERS}"])


def test_without_budgets_it_runs_for_a_block_like_the_others(project: Project) -> None:
    project.write(TEST.format(control=1).replace("@pytest.mark.fsstack_budget", "# "))
    project.pytester.makeini("[pytest]\nfsstack_control = true")
    project.run("test_it.py::TestCost::test_step[crypt]").assert_outcomes(passed=1)
    assert Counter(project.log) == {"ran plain": 6, "ran crypt": 6, "ran control": 6}


def test_a_control_is_no_comparison_that_opens_a_gate(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain")
        def test_alone(fsstack, timed):
            with timed(cold=False):
                pass
    """)
    result = project.run("--fsstack-control", "--fsstack-strict", "--fsstack-rounds=5")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*0 comparisons*"])


def test_a_control_that_breaks_is_said_and_breaks_nothing_else(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        def test_it(fsstack, timed):
            with timed(cold=False):
                assert fsstack.stack.id != "control"
    """)
    result = project.run("--fsstack-control", "--fsstack-rounds=5", "-x")
    result.assert_outcomes(passed=2, deselected=1)
    result.stdout.fnmatch_lines(["[*] *control*plain*failed*round 1*"])


def test_its_name_is_taken(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "control = crypt")
        def test_it(fsstack, timed):
            pass
    """)
    result = project.run("--fsstack-control")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *: --fsstack-control: *'control'*"])


def test_a_budget_for_the_control_is_one_for_no_stack(project: Project) -> None:
    project.write(TEST.format(control=1))
    result = project.run("--fsstack-control", "--fsstack-budget=contr*: 10%")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-budget: *contr*"])
