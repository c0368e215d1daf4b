"""Exact counts: none against none is equal, and some against none is above any budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_fsstack.judging.describe import describe_undecided, judgement_in_words
from pytest_fsstack.judging.judge import judge
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.over_time.comparison import compare, outlook
from pytest_fsstack.over_time.text import plan_in_short, plan_lines
from pytest_fsstack.over_time.trend import change_points, trends
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results, Unjudged
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.report import html, markdown, openmetrics
from tests.chains import a_chain

Counts = int | list[int]
LOST = Metric("lost", exact=True)


def chain(base: Counts, stack: Counts, metric: Metric = LOST) -> ChainResults:
    def figures(series: Counts) -> list[dict[str, float]]:
        counts = series if isinstance(series, list) else [series] * 8
        return [{"seconds": 1.0, "lost": float(count)} for count in counts]

    built = a_chain({"write": {"base": figures(base), "stack": figures(stack)}}, 8).with_metrics(metric)
    return built.with_budget("write", "stack", Budget("lost", 0.1)).results().chains[0]


@pytest.mark.parametrize(
    ("base", "stack", "outcome", "overhead"),
    [
        (0, 0, "pass", 0.0),
        (10, 10, "pass", 0.0),
        (10, 11, "pass", 0.1),
        (10, 12, "fail", 0.2),
        (0, 1, "fail", 1e15),
        (5, 0, "pass", -1.0),
        # A stack that sometimes loses files where the baseline loses none.
        (0, [0, 0, 0, 0, 5, 5, 5, 5], "inconclusive", 1e15),
        (0, [0, 5, 5, 5, 5, 5, 5, 5], "fail", 1e15),
        (0, [0, 0, 0, 0, 0, 0, 0, 5], "inconclusive", 0.0),
    ],
)
def test_counts_are_judged_as_they_are(base: Counts, stack: Counts, outcome: str, overhead: float) -> None:
    of_counts = chain(base, stack)
    (judgement,) = of_counts.judgements_of("write", "stack")
    assert judgement.verdict is not None
    assert (judgement.outcome, judgement.verdict.coarse) == (outcome, False)
    assert judgement.verdict.estimate.overhead == pytest.approx(overhead, abs=1e-6, rel=1e-6)
    results = settle(Results(chains=[of_counts]))
    assert saved.dumps(saved.loads(saved.dumps(results))) == saved.dumps(results)
    shown = "\N{INFINITY}" in markdown.report(results)
    # The end of an interval may be without bounds too.
    assert shown == (judgement.verdict.estimate.high > 1e14)
    assert html.report(results)
    assert openmetrics.report(results)


@pytest.mark.parametrize("count", [0, 10])
@pytest.mark.parametrize("overhead", [0.0, 0.1, 1.0])
def test_equal_counts_are_no_difference_whatever_the_budget_is(count: int, overhead: float) -> None:
    of_counts = chain(count, count)
    verdict = judge(of_counts, "write", "stack", Budget("lost", overhead)).verdict
    assert verdict is not None
    assert verdict.outcome == "pass"
    assert verdict.estimate.ratios == (1, 1, 1)
    assert not verdict.estimate.differs


@pytest.mark.parametrize(("base", "stack", "outcome"), [(0, 0, "pass"), (10, 12, "fail"), (0, 5, "fail")])
def test_counts_of_boots_are_judged_alike(base: int, stack: int, outcome: str) -> None:
    figures = {"base": {"lost": float(base)}, "stack": {"lost": float(stack)}}
    of_boots = a_chain({"write": {}}, 0, boots=3).with_metrics(LOST).with_stack("base").with_stack("stack").built
    for boot in range(3):
        for name, values in figures.items():
            for number in range(4):
                of_boots.add("write", name, Sample(values, {"lost": LOST}), number, boot)
    of_boots.paired = False
    judgement = judge(of_boots, "write", "stack", Budget("lost", 0.1))
    assert judgement.outcome == outcome
    assert judgement.verdict is not None
    assert judgement.verdict.runs == (3, 3)


@pytest.mark.parametrize(
    ("stack", "outcome"),
    [
        ([None, *[0] * 15], "pass"),
        ([None, *[5] * 15], "fail"),
        ([0] * 16, "pass"),
    ],
)
def test_a_round_without_a_count_counts_against_both_verdicts(stack: list[int | None], outcome: str) -> None:
    def figures(series: Sequence[int | None]) -> list[dict[str, float]]:
        return [{"seconds": 1.0} | ({} if count is None else {"lost": float(count)}) for count in series]

    built = a_chain({"write": {"base": figures([0] * 16), "stack": figures(stack)}}).with_metrics(LOST)
    for rounds, expected in ((8, outcome if stack[0] is not None else "inconclusive"), (16, outcome)):
        of_counts = replace(built, rounds=rounds).built
        judgement = judge(of_counts, "write", "stack", Budget("lost", 0.1))
        assert judgement.verdict is not None
        assert (judgement.outcome, judgement.verdict.estimate.missing) == (expected, int(stack[0] is None))


@pytest.mark.parametrize("resolution", [0.0, 1.0])
def test_without_the_flag_a_small_count_is_refused_or_coarse(resolution: float) -> None:
    of_counts = chain(0, 0, Metric("lost", resolution=resolution))
    (judgement,) = of_counts.judgements_of("write", "stack")
    assert judgement.outcome == "inconclusive"
    if not resolution:
        assert judgement.unjudged is Unjudged.UNFIT
        assert "exact=True" in describe_undecided(of_counts, "write", "stack")


def test_a_limit_on_a_count_may_be_none() -> None:
    for lost, outcome in ((0, "pass"), (1, "fail")):
        assert judge(chain(0, lost), "write", "stack", Budget("lost", limit=0.0)).outcome == outcome
    unfit = chain(1, 1, Metric("lost", resolution=1.0))
    judgement = judge(unfit, "write", "stack", Budget("lost", limit=0.0))
    assert judgement.unjudged is Unjudged.UNFIT
    assert "exact=True" in judgement_in_words(unfit, "write", "stack", judgement)


def test_a_count_that_grows_from_none_fails_over_time() -> None:
    none, some = (Results({"machine_id": "1"}, [chain(0, lost)]) for lost in (0, 5))
    for now, outcome in ((none, "pass"), (some, "fail")):
        (change,) = compare([now] * 3, [none] * 3, limit=0.05).judged
        assert change.outcome == outcome


@pytest.mark.parametrize(
    ("now", "then", "outcome"),
    [
        ((0, 0), [(0, 0)] * 6, "pass"),
        ((0, 5), [(0, 0)] * 6, "fail"),
        ((10, 10), [(10, 10)] * 20, "pass"),
        ((10, 11), [(10, 10)] * 6, "fail"),
        # Nights that lose files now and then say nothing about the next one.
        ((0, 1), [(0, 0), (0, 1)] * 4, "inconclusive"),
    ],
)
def test_one_run_of_counts_is_judged_against_its_history(
    now: tuple[int, int], then: list[tuple[int, int]], outcome: str
) -> None:
    runs = [Results({"machine_id": "1"}, [chain(*counts)]) for counts in (*then, now)]
    (change,) = compare(runs[-1:], runs[:-1], limit=0.05).judged
    assert change.outcome == outcome
    plan = outlook(runs[:-1], 0.05)
    assert [series.decides for series in plan] == [outcome != "inconclusive"]
    assert bool(plan_in_short(plan, 0.05)) == (outcome == "inconclusive")
    assert len(plan_lines(plan, 0.05)) > 1
    assert change_points(trends(runs)[-1], 0.01) == []
