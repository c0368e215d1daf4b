"""Texts of failures, with the figures in the first line, because some pages show no more."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack.judging.describe import describe_failure, describe_shortly, describe_undecided, judgement_in_words
from pytest_fsstack.judging.judge import judge, judge_all
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Confirmation, StackInfo, Unjudged
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import Looks
from tests.chains import Series, a_chain

BOTH = ("ext4", "xfs")


def chain(factor: float, *budgets: Budget, rounds: int = 10) -> ChainResults:
    def figures(seconds: float) -> dict[str, float]:
        return {"seconds": seconds, "throughput": 2**20 / seconds}

    costs: dict[str, Series] = {"ext4": lambda number: figures(1 + number % 3 / 100), "xfs": figures(factor)}
    return a_chain({"read": costs}, rounds).with_budget("read", "xfs", *budgets).built


@pytest.mark.parametrize(
    ("factor", "budget", "first"),
    [
        (2.34, Budget(overhead=0.3), r"xfs: seconds \+132 % \(13\d to 13\d %\) .*\bext4, budget 30 %"),
        (1.5, Budget(overhead=0.3), r"xfs: seconds \+48\.5 % \(4\d\.\d to \d\d\.\d %\) .*\bext4, budget 30 %"),
        (7.0, Budget(overhead=3.5), r"xfs: seconds x6\.93 \(x6\.[89]\d to x[67]\.\d\d\) .*\bext4, budget x4\.5"),
        (1.5, Budget(limit=1.2), r"xfs: seconds 1\.5 s, budget .*\bmost 1\.2 s"),
        (2.0, Budget("throughput", limit=2.0**20), r"xfs: throughput 512\.0 KiB/s, budget .*\bleast 1\.0 MiB/s"),
    ],
)
def test_the_first_line_has_the_figures(factor: float, budget: Budget, first: str) -> None:
    found = describe_failure(Readings(chain(factor, budget)), "read", "xfs", "pytest t.py")
    assert re.fullmatch(first, found.splitlines()[0])
    assert len(found.splitlines()[0]) <= 80
    assert found.splitlines()[2] == "  again:   pytest t.py"


def test_the_first_line_is_that_of_the_broken_budget() -> None:
    found = describe_failure(Readings(chain(1.5, Budget(overhead=0.9), Budget(limit=1.2))), "read", "xfs")
    assert re.match(r"xfs: seconds 1\.5 s, budget .*1\.2 s\n", found)
    assert "again" not in found


def test_a_broken_limit_is_described_by_the_rounds_that_were_judged() -> None:
    made = chain(1.0)
    made.looks, made.confirmation, made.budgets_sharing = Looks.fixed(5), Confirmation(5, 0.01), 3
    for (_, number), was in made.of("read", "xfs").items():
        made.add("read", "xfs", Sample({**was.values, "seconds": 2.0 if number < 5 else 1.0}), number)
    judge_all(made, "read", "xfs", Budget(limit=1.2))
    found = describe_failure(Readings(made), "read", "xfs")
    assert re.match(r"xfs: seconds 2 s, ", found)
    assert re.search(r"^  fail: .* median of 5 rounds 2 s", found, re.MULTILINE)
    assert re.search(r"^A limit .* no error rate", found, re.MULTILINE)


def test_too_few_rounds_for_a_limit_are_the_reason() -> None:
    found = describe_undecided(chain(1.0, Budget(limit=60), rounds=3), "read", "xfs")
    assert re.search(r"3 rounds cannot decide .*\b5 rounds", found)


@pytest.mark.parametrize("length", [10, 30, 60, 200])
def test_long_names_leave_room_for_the_figures(length: int) -> None:
    found = chain(2.34, Budget(overhead=0.3))
    stack, reference = "s" + "x" * length + "tack", "r" + "y" * length + "eference"
    renamed = {"xfs": stack, "ext4": reference}
    found.stacks = {renamed[name]: StackInfo(renamed[name], name) for name in found.stacks}
    found.samples = {
        step: {renamed[name]: samples for name, samples in by_stack.items()} for step, by_stack in found.samples.items()
    }
    found.baseline = reference
    found.judgements = {}
    judge_all(found, "read", stack, Budget(overhead=0.3))
    first = describe_failure(Readings(found), "read", stack).splitlines()[0]
    assert len(f"Failed: {first}") <= 80
    assert re.fullmatch(r"s.*(k|\w): seconds \+132 % \(13\d to 13\d %\) .*\br.*e, budget 30 %", first)
    # As much of the names as there is room for.
    assert len(first) >= min(70, 45 + len(stack) + len(reference))
    assert describe_shortly(Readings(found), "read", stack).startswith("seconds +132 % (13")


def test_nothing_is_said_shortly_without_a_budget() -> None:
    assert describe_shortly(Readings(chain(1.0)), "read", "xfs") == ""
    assert describe_shortly(Readings(chain(1.0)), "read", "ext4") == ""


@pytest.mark.parametrize("zero", BOTH)
def test_a_figure_of_0_is_not_called_one_that_was_not_measured(zero: str) -> None:
    stalls = {name: {"stalls": 0.0 if name == zero else 3.0} for name in BOTH}
    made = a_chain({"read": stalls}, 5).with_metrics(Metric("stalls")).built
    judged = judge(made, "read", "xfs", Budget("stalls", overhead=0.3))
    assert judged.verdict is None
    assert re.match(r"stalls: .*\b0 .*\btimed\.record\(.*resolution=", judgement_in_words(made, "read", "xfs", judged))
    assert judged.unjudged is Unjudged.UNFIT


@pytest.mark.parametrize(
    ("lacking", "reason"), [("ext4", Unjudged.NO_BASELINE), ("xfs", Unjudged.NO_METRIC)], ids=["reference", "stack"]
)
def test_the_stack_without_a_metric_that_the_other_records_is_named(lacking: str, reason: Unjudged) -> None:
    figures = {name: {"seconds" if name == lacking else "stalls": 3.0} for name in BOTH}
    made = a_chain({"read": figures}, 5).with_metrics(Metric("stalls")).built
    judged = judge(made, "read", "xfs", Budget("stalls", overhead=0.3))
    assert judged.unjudged is reason
    assert re.search(
        rf"(?s)(?=.*\b{lacking}\b)(?=.*'stalls').*\bnot\b", judgement_in_words(made, "read", "xfs", judged)
    )
    assert "it has" not in judgement_in_words(made, "read", "xfs", judged)
