"""Budgets: what passes, fails or stays undecided, and what that looks like."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.plugin.conftest import Project
from tests.toolkit import chains_of

# The cost is a metric of the workload's own, with a seeded noise of a few percent, so that no clock is involved.
NOISY = """
import random
import pytest

rng = random.Random(7)

@pytest.mark.fsstack("plain", "same = plain", "dear = crypt(cost=150)", "near = crypt(cost=110)")
class TestCost:
    @pytest.mark.benchmark(group="g")
    @pytest.mark.fsstack_budget(overhead=0.10, metric="cost")
    def test_step(self, fsstack, timed, cost, log):
        log("ran")
        with timed(cold=False):
            pass
        timed.record("cost", cost * rng.gauss(1, 0.02), unit="coins")
"""


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    return {
        line.partition("[")[2].partition("]")[0]: line.split()[1]
        for line in result.stdout.lines
        if line.startswith("test_it.py::TestCost::test_step[") and len(line.split()) > 1
    }


def test_pass_fail_and_inconclusive(project: Project) -> None:
    project.write(NOISY)
    result = project.run("-v", "-rfs")
    assert outcomes(result) == {"plain": "PASSED", "same": "PASSED", "dear": "FAILED", "near": "SKIPPED"}
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # The one that stays undecided is given up in the middle of the plan, or runs to its end, and its baseline with it.
    assert project.log.count("ran dear") == 6
    assert project.log.count("ran near") == project.log.count("ran plain") in range(38, 79, 8)
    result.stdout.fnmatch_lines(
        [
            "dear: cost +??.? % (*%) * plain, * 10 %",
            "  again:   pytest 'test_it.py::TestCost::test_step[[]dear[]]' -p no:cacheprovider * --fsstack-seed=1",
            "  step:    step, * rounds; * --fsstack-seed=1",
            "*fail:*cost: * ??.? % (90.0 % *), * 10 %, *rounds*",
            "*cost (coins)*",
            "*plain *",
            "*dear *",
            "* FAIL * 5 % *",
            "FAILED * - Failed: dear: *",
            "SKIPPED*inconclusive: cost: * 10 %, * rounds*; *",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    result.stdout.no_fnmatch_line("*rounds.py*")


def test_strict_fails_what_is_undecided(project: Project) -> None:
    project.write(NOISY)
    result = project.run("--fsstack-strict", "-k", "near", "--fsstack-rounds=8")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(
        ["*step on near: inconclusive: *(--fsstack-strict)*", "", "  again: *test_step?near?*--fsstack-strict*"]
    )


def test_few_rounds_say_so_and_give_no_verdict(project: Project) -> None:
    project.write(NOISY)
    result = project.run("--fsstack-rounds=4", "-rs")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["fsstack: 4 rounds * 5 *--fsstack-alpha=*"])
    project.run("--fsstack-rounds=6", "-k", "dear").assert_outcomes(failed=1, deselected=3)


def test_few_rounds_are_not_mentioned_without_a_budget(project: Project) -> None:
    project.write(NOISY.replace("@pytest.mark.fsstack_budget", "# "))
    result = project.run("--fsstack-rounds=4")
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*--fsstack-alpha=*")


def test_budgets_on_the_command_line_replace_the_markers(project: Project) -> None:
    project.write(NOISY)
    project.run("--fsstack-budget=cost 70%", "-k", "dear").assert_outcomes(passed=1, deselected=3)
    project.run("--fsstack-budget=cost 1%", "--fsstack-budget=de*: cost 70%", "-k", "dear or near").assert_outcomes(
        passed=1, failed=1, deselected=2
    )


def test_budgets_in_the_ini(project: Project) -> None:
    project.write(NOISY)
    project.pytester.makeini("[pytest]\nfsstack_budget =\n    cost 70%\n")
    project.run("-k", "dear").assert_outcomes(passed=1, deselected=3)


def test_absolute_limits_hold_for_the_baseline_too(project: Project) -> None:
    project.write(NOISY)
    result = project.run("--fsstack-budget=cost <= 90", "--fsstack-budget=cost 90%", "-k", "plain or dear")
    result.assert_outcomes(failed=2, deselected=2)
    result.stdout.fnmatch_lines(["*fail:*cost: * 6 rounds * coins, * 90 coins*"])


def test_a_metric_that_more_of_is_better_is_judged_the_other_way_round(project: Project) -> None:
    project.write(
        NOISY.replace('unit="coins"', 'unit="coins", better="higher"').replace(
            "dear = crypt(cost=150)", "dear = crypt(cost=50)"
        )
    )
    project.run("-k", "dear").assert_outcomes(failed=1, deselected=3)


@pytest.mark.parametrize("expected", ["", ", xfail={'same': 'BUG-1'}"])
def test_an_unknown_metric_fails_and_names_those_there_are(project: Project, expected: str) -> None:
    project.write(NOISY.replace('metric="cost"', f'metric="price"{expected}'))
    result = project.run("-k", "same")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["*step *'price' *: seconds, *cost*"])


def test_a_limit_in_the_wrong_direction_fails(project: Project) -> None:
    project.write(NOISY)
    result = project.run("--fsstack-budget=same: cost >= 90", "-k", "same", "--fsstack-rounds=1")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["*same: *'cost <= 90'*"])


def test_a_failing_baseline_leaves_nothing_to_compare_with(project: Project) -> None:
    project.write(NOISY.replace("with timed", "assert fsstack.stack.id != 'plain'\n        with timed"))
    result = project.run("-k", "plain or same")
    result.assert_outcomes(failed=2, deselected=2)
    result.stdout.fnmatch_lines(["*same: cost: *baseline plain: *round 1*"])


@pytest.mark.parametrize(
    ("breaks", "options", "expected"),
    [
        ("plain", (), {"failed": 4}),
        ("near", ("-x", "--fsstack-strict"), {"passed": 1, "skipped": 2, "failed": 1}),
        ("near", ("-x", "--fsstack-baseline=near"), {"skipped": 3, "failed": 1}),
    ],
)
def test_a_test_that_breaks_in_a_later_round_is_the_cause_of_what_is_undecided(
    project: Project, breaks: str, options: tuple[str, ...], expected: dict[str, int]
) -> None:
    broken = f"assert fsstack.stack.id != {breaks!r} or next(runs) < 2, 'in round 3'\n        with timed"
    project.write(NOISY.replace("rng =", "runs = iter(range(9))\nrng =").replace("with timed", broken))
    result = project.run("-rs", *options)
    assert {name: count for name, count in result.parseoutcomes().items() if name != "warning"} == expected
    result.stdout.fnmatch_lines(["*AssertionError: in round 3*"])
    result.stdout.fnmatch_lines(["*--maxfail*"] if options else ["*cost: *2 rounds*baseline plain: failed in round 3*"])


@pytest.mark.parametrize("options", [("--fsstack-strict",), (), ("--runxfail",)])
def test_an_undecided_budget_that_is_expected_to_be_broken_counts_as_expected(
    project: Project, options: tuple[str, ...]
) -> None:
    project.write(NOISY.replace('metric="cost")', 'metric="cost", xfail={"near": "BUG-1"})'))
    result = project.run("-k", "near", "--fsstack-rounds=8", "--fsstack-json=all.json", *options)
    result.assert_outcomes(deselected=3, **{"skipped" if "--runxfail" in options else "xfailed": 1})
    assert result.ret == pytest.ExitCode.OK
    (test,) = json.loads((project.pytester.path / "all.json").read_text())["tests"].values()
    assert re.search("inconclusive: cost: .* 10 %, 8 rounds", test["text"])
    # It names no option that is off.
    assert ("--fsstack-strict" in test["text"]) == ("--fsstack-strict" in options)


def test_pytest_benchmark_and_junit_get_all_metrics_and_the_verdict(project: Project) -> None:
    project.write(NOISY)
    stores = ("--benchmark-json=bench.json", "--benchmark-save=it", "--benchmark-storage=store")
    junit = ("--junitxml=junit.xml", "--fsstack-junit=full")
    project.run("-k", "dear", *stores, *junit, "--fsstack-json=out.json", "--fsstack-seed=5")
    data = json.loads((project.pytester.path / "out.json").read_text())
    assert data["chains"][0]["seed"] == 5
    assert data["environment"]["kernel"]
    (record,) = json.loads((project.pytester.path / "bench.json").read_text())["benchmarks"]
    assert record["group"] == "g"
    assert record["fullname"] == "test_it.py::TestCost::test_step[dear]"
    assert record["stats"]["rounds"] == 6
    assert record["extra_info"]["derived"]["verdict"] == "fail"
    assert len(record["extra_info"]["samples"]["cost"]) == 6
    program = Path(sys.executable).with_name("pytest-benchmark")
    compare = project.pytester.run(program, "--storage=store", "compare")
    compare.stdout.fnmatch_lines(["*test_step?dear?*"])
    case = ElementTree.parse(project.pytester.path / "junit.xml").find(".//testcase")
    assert case is not None
    found = {each.get("name"): each.get("value") for each in case.iter("property")}
    assert found["fsstack_verdict"] == "fail"
    assert found["fsstack_stack"] == "crypt(cost=150)"
    assert 0.4 < float(found["fsstack_cost_estimate"] or 0) < 0.6
    assert "fsstack_used_bytes" in found
    failure = case.find("failure")
    assert failure is not None
    assert ": cost +" in (failure.get("message") or "")


def test_a_stack_that_did_not_do_the_work_is_shown_but_never_compared(project: Project) -> None:
    project.write(
        NOISY.replace(
            'unit="coins")\n',
            'unit="coins")\n'
            '        timed.keep("curve", [[0, 0], [1, cost]])\n'
            "        if cost == 110:\n"
            '            timed.incomplete("3 of 7 links failed")\n\n'
            "    @pytest.mark.benchmark\n"
            "    def test_later(self, fsstack, timed):\n"
            "        with timed(cold=False):\n"
            "            pass\n",
        )
    )
    result = project.run("-v", "--fsstack-rounds=10", "--fsstack-json=out.json")
    assert outcomes(result)["near"] == "FAILED"
    result.stdout.fnmatch_lines(
        [
            "*test_later?near? PASSED*",
            "*step on near *: 3 of 7 links failed",
            "*[[]1[]] near: *: 3 of 7 links failed",
        ]
    )
    (chain,) = chains_of(project.pytester.path / "out.json")
    near = chain.derived["step"]["near"]
    assert near.incomplete == "3 of 7 links failed"
    assert near.readings["cost"].estimate is None
    assert len(chain.series("step", "near", "cost")) == 10
    assert [sample.kept for sample in chain.of("step", "near").values()] == [{"curve": [[0, 0], [1, 110]]}] * 10


@pytest.mark.parametrize("option", ["--fsstack-rounds=1", "--fsstack-rounds=3", "--benchmark-disable"])
@pytest.mark.parametrize(
    ("mark", "body"),
    [
        ("", "pass"),
        ("@pytest.mark.fsstack_repeat(3)", "pass"),
        ("", "benchmark(int)"),
        ("", "with timed(cold=False): pass"),
    ],
    ids=["nothing measured", "repeated", "pytest-benchmark", "measured"],
)
def test_a_step_that_is_incomplete_before_its_timed_block_fails(
    project: Project, mark: str, body: str, option: str
) -> None:
    project.write(
        f"""
        import pytest

        ROUNDS = []

        @pytest.mark.fsstack("directory")
        class TestIt:
            @pytest.mark.benchmark
            {mark}
            def test_it(self, fsstack, timed, benchmark):
                ROUNDS.append(1)
                if len(ROUNDS) == 1:
                    timed.incomplete("it was gone")
                    {body}
                else:
                    with timed(cold=False):
                        pass
        """
    )
    result = project.run(option, "--benchmark-json=out.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*it on directory failed: it was gone*"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


#: What Jenkins' junit-10.xsd allows inside a test.
IN_TESTCASE = {"skipped", "error", "failure", "system-out", "system-err"}


@pytest.mark.parametrize("detail", [None, "none"])
def test_junit_has_few_properties_or_none(project: Project, detail: str | None) -> None:
    project.write(NOISY)
    options = [f"--fsstack-junit={detail}"] if detail else []
    project.run("-k", "dear", "--junitxml=junit.xml", *options)
    cases = list(ElementTree.parse(project.pytester.path / "junit.xml").iter("testcase"))
    assert cases
    for case in cases:
        if detail == "none":
            assert {child.tag for child in case} <= IN_TESTCASE
        else:
            names = {each.get("name", "").removeprefix("fsstack_") for each in case.iter("property")}
            cost = {"cost", "cost_estimate", "cost_low", "cost_high", "cost_budget"}
            assert names == {"summary", "verdict", "rounds", "seconds"} | cost


# A timeout leaves no figure of the slow rounds, and in the second test no timed block at all.
MISSING = """
import pytest

number = dict.fromkeys(("plain", "same"), 0)

@pytest.mark.fsstack("plain", "same = plain")
class TestCost:
    @pytest.mark.fsstack_budget(overhead=0.5, metric="cost")
    def test_metric(self, fsstack, timed):
        number[fsstack.stack.id] += 1
        with timed(cold=False):
            pass
        if fsstack.stack.id == "plain" or number["same"] % 3:
            timed.record("cost", 1)

    @pytest.mark.fsstack_budget(overhead=90)
    def test_block(self, fsstack, timed):
        if fsstack.stack.id == "plain" or number["same"] % 3:
            with timed(cold=False):
                pass
"""


def test_rounds_without_a_figure_on_one_side_are_named_and_do_not_pass(project: Project) -> None:
    project.write(MISSING)
    result = project.run("-v", "-rs", "--fsstack-rounds=12", "--fsstack-report=json=r.json")
    result.assert_outcomes(passed=2, skipped=2)
    text = result.stdout.str()
    assert text.count("4 of 12 rounds") >= 3
    chain = chains_of(project.pytester.path / "r.json")[0]
    assert [len(samples) for samples in chain.samples["block"]["same"].values()] == [12]
    assert project.run("--fsstack-rounds=12", "--fsstack-strict").ret == pytest.ExitCode.TESTS_FAILED
