"""Verdicts and reports of any finite figures that a workload records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.describe import describe_failure, describe_shortly, describe_undecided
from pytest_fsstack.judging.judge import judge
from pytest_fsstack.judging.notices import notices
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import Better, Metric, Sample
from pytest_fsstack.records.verdicts import Looks
from pytest_fsstack.report import BUILT_IN as REPORTS, terminal
from pytest_fsstack.report.layouts import BUILT_IN as TABLES
from tests.chains import a_chain

LARGEST = 1.7976931348623157e308
figures = st.floats(0, LARGEST)


def judged(pairs: list[tuple[float, float]], better: Better, resolution: float) -> ChainResults:
    base, other = ([dict.fromkeys(("seconds", "throughput", "m"), figure) for figure in side] for side in zip(*pairs))
    tables: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in TABLES]
    chain = a_chain({"s": {"a": base, "b": other, "c": base}}, looks=Looks(), controls=["c"], tables=tables)
    budgets = [Budget("m", overhead=0.3), Budget(overhead=0.05), Budget("throughput", overhead=0.1), Budget(limit=2.0)]
    return chain.with_metrics(Metric("m", "B", better, resolution)).with_budget("s", "b", *budgets).built


EXTREMES = [
    ([(1e200, 1e-200)] * 8, 0.0),
    ([(1e-200, 1e200)] * 8, 0.0),
    ([(5e-324, LARGEST)] * 9, 5e-324),
    ([(LARGEST, LARGEST)] * 9, LARGEST),
]


@given(
    st.lists(st.tuples(figures, figures), min_size=1, max_size=10),
    st.sampled_from(["lower", "higher"]),
    st.sampled_from([0.0, 5e-324, 1.0, 1e300]),
)
@settings(max_examples=25, deadline=None)
def test_any_finite_figures_are_judged_saved_and_shown(
    pairs: list[tuple[float, float]], better: Better, resolution: float
) -> None:
    chain = judged(pairs, better, resolution)
    results = Results({}, [chain])
    results.table_layouts = TABLES
    text = saved.dumps(results)
    assert saved.dumps(saved.loads(text)) == text
    chain.notices = [*notices(Readings(chain)), *doubts(Readings(chain))]
    assert "nan" not in "".join(terminal.lines(results, chain, verbosity=1))
    for describe in (describe_failure, describe_shortly):
        assert describe(Readings(chain), "s", "b")
    assert describe_undecided(chain, "s", "b")


@pytest.mark.parametrize(("unit", "outcome"), [("B", "pass"), ("s", "inconclusive")])
def test_no_bytes_are_equal_but_times_of_no_tick_are_not(unit: str, outcome: str) -> None:
    metric = Metric("m", unit, resolution=512.0)
    chain = a_chain({"s": {stack: {"m": 0.0} for stack in "ab"}}).with_metrics(metric).built
    assert judge(chain, "s", "b", Budget("m", overhead=0.5)).outcome == outcome


@pytest.mark.parametrize(("pairs", "resolution"), EXTREMES)
@pytest.mark.parametrize("name", REPORTS)
def test_figures_that_are_worlds_apart_are_in_every_report(
    name: str, pairs: list[tuple[float, float]], resolution: float
) -> None:
    results = Results({}, [judged(pairs, "lower", resolution)])
    results.table_layouts = TABLES
    assert REPORTS[name](results)


def test_a_limit_is_judged_by_all_rounds_of_all_boots() -> None:
    chain = a_chain({"s": {"a": 1.0}}, 4, Looks.fixed(2), boots=2).built
    for number in range(4):
        chain.add("s", "a", Sample({"seconds": 1.0}), number, boot=1)
    verdict = judge(chain, "s", "a", Budget(limit=2.0)).verdict
    assert verdict
    assert verdict.estimate.rounds == 8
