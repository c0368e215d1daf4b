"""Exact counts: none against none is equal, and some against none is above any budget."""

from __future__ import annotations

import pytest

from pytest_fsstack.judging.describe import describe_undecided, judgement_in_words
from pytest_fsstack.judging.judge import judge
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.over_time.comparison import compare
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results, Unjudged
from pytest_fsstack.records.sample import Metric
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
