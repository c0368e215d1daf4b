"""Emulated CPUs: no verdicts on time unless asked for, and verdicts on all else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pytest_fsstack.judging.cells import (
    Cell,
    CellRun,
    ChainPlan,
    KernelBoot,
    PlannedStack,
    PlannedTest,
    Policy,
    StepRun,
)
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.describe import judgement_in_words
from pytest_fsstack.judging.judge import judge
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import Unjudged
from pytest_fsstack.records.sample import METRICS, Metric, Sample
from pytest_fsstack.records.verdicts import Looks
from tests.unit.report.results import emulated, measured, on_kernels

TIME, BYTES = Budget(overhead=9.0), Budget("written_bytes", overhead=9.0)


@pytest.mark.parametrize(
    ("unit", "of_time"),
    [
        *((unit, True) for unit in ("s", "ms", "us", "seconds", "B/s", "1/s", "MiB/s", "files/second", "IOPS", "ops")),
        *((unit, False) for unit in ("", "B", "x", "files", "%", "KiB", "B/file")),
    ],
)
def test_times_and_rates_depend_on_the_speed_of_the_machine(unit: str, of_time: bool) -> None:
    assert Metric("own", unit).is_of_time == of_time


def test_of_the_metrics_of_each_block_times_and_rates_are_of_time() -> None:
    times = {name for name, metric in METRICS.items() if metric.is_of_time}
    assert times == {name for name in METRICS if "seconds" in name} | {"throughput", "file_rate"}


def test_time_is_not_judged_there_and_the_option_is_named() -> None:
    (chain,) = emulated(measured()).chains
    for budget in (TIME, Budget(limit=100.0)):
        judgement = judge(chain, "write", "xfs", budget)
        assert (judgement.verdict, judgement.unjudged) == (None, Unjudged.EMULATED)
        assert "--fsstack-judge-emulated" in judgement_in_words(chain, "write", "xfs", judgement)
    chain.judges_emulated = True
    assert judge(chain, "write", "xfs", TIME).outcome == "pass"


def test_only_what_ran_on_an_emulated_kernel_is_not_judged() -> None:
    (within,) = emulated(on_kernels("within").results(), "ext4:6.12", "luks:6.12").chains
    outcomes = [judge(within, "write", stack, TIME).unjudged for stack in ("luks:6.1", "luks:6.12")]
    assert outcomes == [None, Unjudged.EMULATED]
    # Between kernels, one emulated side is enough.
    (between,) = emulated(on_kernels().results(), "ext4:6.1", "luks:6.1").chains
    assert judge(between, "write", "luks:6.12", TIME).unjudged is Unjudged.EMULATED


def course_of(*budgets: Budget, strict: bool = False, anyway: bool = False) -> Course:
    """Run a course with the budgets on an emulated CPU, in which both stacks are equal."""
    stacks = {name: PlannedStack(name, ("write",)) for name in ("ext4", "xfs")}
    tests = (PlannedTest("write", "ext4"), PlannedTest("write", "xfs", budgets))
    plan = ChainPlan("t.py::TestIt", "loop", "ext4", ("write",), stacks, tests, emulated=True)
    course = Course({KernelBoot(): plan}, Policy(Looks(), strict=strict, judges_emulated=anyway), "key")
    while tasks := course.next_tasks():
        for task in tasks:
            values = {"seconds": 1.0 + task.number % 3 / 100, "written_bytes": 1e6, "files": 5.0}
            metrics = {**METRICS, "files": Metric("files", "")}
            course.add(task, CellRun((StepRun("write", (Sample(values, metrics),)),)))
        course.end_tasks({})
    course.conclude()
    return course


def outcome_of(course: Course) -> tuple[str, str]:
    outcome = course.decision("write", Cell("xfs"))
    return outcome.outcome, outcome.text


def test_a_budget_on_time_skips_its_test_and_fails_a_strict_one() -> None:
    ended, text = outcome_of(course_of(TIME))
    assert (ended, "--fsstack-judge-emulated" in text) == ("skipped", True)
    ended, text = outcome_of(course_of(TIME, strict=True))
    assert (ended, "--fsstack-judge-emulated" in text) == ("failed", True)
    assert outcome_of(course_of(TIME, strict=True, anyway=True))[0] == "passed"


def test_budgets_on_bytes_and_counts_are_judged() -> None:
    assert outcome_of(course_of(BYTES, strict=True))[0] == "passed"
    assert outcome_of(course_of(Budget("files", limit=7.0), strict=True))[0] == "passed"
    for strict in (False, True):
        ended, text = outcome_of(course_of(TIME, Budget("written_bytes", limit=10.0), strict=strict))
        assert (ended, "written_bytes" in text) == ("failed", True)


def test_an_expected_failure_on_time_does_not_count_as_met() -> None:
    course = course_of(replace(TIME, overhead=0.0001, xfail="known to be slow"))
    outcome = course.decision("write", Cell("xfs"))
    assert (outcome.outcome, outcome.expected) == ("skipped", "")


def test_a_sanity_limit_asks_for_a_verdict_only_with_strict() -> None:
    sanity = replace(TIME, sanity=True)
    assert outcome_of(course_of(sanity))[0] == "passed"
    assert outcome_of(course_of(sanity, strict=True))[0] == "failed"


def test_budgets_without_a_verdict_take_no_rounds_beyond_the_first_block() -> None:
    assert course_of(TIME).chain.rounds == course_of().chain.rounds < Looks().max_rounds
