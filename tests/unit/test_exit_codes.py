"""Exit codes for `git bisect run`: a commit is bad only if a budget is broken, and good only if all are kept."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack.plugin.bisecting import exit_code, in_words
from pytest_fsstack.records.results import Results
from pytest_fsstack.records.verdicts import Outcome
from tests.chains import a_chain


def made(*overheads: float, budget: float = 0.3, rounds: int = 8, xfail: str | None = None) -> Results:
    """Return a stack for each overhead, with a budget for each."""
    costs = {f"stack{number}": 1 + overhead for number, overhead in enumerate(overheads)}
    # As in a session: the baseline has been looked at, and has no budget.
    chain = a_chain({"step": {"base": 1.0, **costs}}, rounds).with_budget("step", "base")
    for name in costs:
        chain = chain.with_budget("step", name, overhead=budget, xfail=xfail)
    return chain.results()


@pytest.mark.parametrize(
    ("results", "unjudged", "status", "code"),
    [
        (made(0.1), 0, 0, 0),
        (made(0.1, 0.2), 0, 0, 0),
        (made(0.9), 0, 1, 1),
        # One that is broken is broken, whatever else is wrong.
        (made(0.1, 0.9), 1, 1, 1),
        (made(0.9), 0, 2, 1),
        # Too few rounds: not decided.
        (made(0.1, rounds=2), 0, 0, 125),
        # One was never judged.
        (made(0.1), 1, 0, 125),
        # Another test failed by itself; collecting, options, an internal error; nothing there.
        (made(0.1), 0, 1, 125),
        (made(0.1), 0, 2, 125),
        (Results(), 0, 0, 125),
        (Results(), 0, 1, 125),
        (Results(), 0, 4, 125),
        (Results(), 0, 5, 125),
        (made(), 0, 0, 125),
        # As expected, it is broken: nobody learns from it, and it does not hide what is kept.
        (made(0.9, xfail="BUG-1"), 0, 0, 0),
        # Signals.
        (made(0.9), 0, 130, 130),
    ],
)
def test_the_exit_code(results: Results, unjudged: int, status: int, code: int) -> None:
    assert exit_code(results, unjudged, status) == code
    assert re.search(rf"\b{code}\b", in_words(code))


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [(["pass", "pass"], 0, 0), (["pass", "fail"], 1, 1), (["pass", "inconclusive"], 0, 125), ([None], 0, 125)],
)
def test_a_regression_since_earlier_runs_is_as_bad(changes: list[Outcome | None], status: int, code: int) -> None:
    assert exit_code(made(0.1), 0, status, changes) == code
    without_budgets = made(0.1)
    without_budgets.chains[0].judgements.clear()
    assert exit_code(without_budgets, 0, status, changes) == code
