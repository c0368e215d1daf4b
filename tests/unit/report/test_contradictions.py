"""Where two medians and the overhead beside them tell different things, the table says so and why."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack.records.results import Results
from pytest_fsstack.records.sample import METRICS, Metric
from pytest_fsstack.report import html, markdown, terminal
from tests.chains import a_chain

MARK = "\N{NOT EQUAL TO}"


def drifting(rounds_of_crypt: int, metric: Metric = METRICS["seconds"]) -> Results:
    """Return a machine that becomes slower round by round. crypt always costs 20 % more, but may end early."""
    base = [1 + number / 4 for number in range(16)]
    more = [1.2 + number % 3 / 1000 for number in range(rounds_of_crypt)]
    worse = [cost * factor if metric.better == "lower" else cost / factor for cost, factor in zip(base, more)]
    series = {name: [{metric.name: cost} for cost in costs] for name, costs in (("ext4", base), ("crypt", worse))}
    return a_chain({"write": series}).with_metrics(metric).results()


def told(results: Results) -> list[str]:
    lines = terminal.lines(results, results.chains[0], width=200)
    return [line for line in lines if line.startswith(f"{MARK} ")]


def test_where_they_agree_nothing_is_said() -> None:
    assert told(drifting(16)) == []


def test_a_stack_that_ended_before_the_machine_became_slower_is_marked() -> None:
    results = drifting(8)
    (line,) = told(results)
    # Its median is of the fast half: (1 + 3.5 / 4) x 1.2 against 1 + 7.5 / 4.
    assert re.search(r": write on crypt \(-21\.7 %\)", line)
    assert any(f"+20.1 % {MARK}" in text for text in terminal.lines(results, results.chains[0], width=200))
    for text in html.report(results), markdown.report(results):
        assert re.search(rf"{MARK} [^<]*: write on crypt \(-21\.7 %\)", text)
    assert f"x1.20 {MARK}</b>" in html.report(results)


def test_of_what_is_better_if_it_is_higher_the_sign_is_that_of_the_overhead() -> None:
    rate = Metric("rate", "B/s", "higher")
    (line,) = told(drifting(8, rate))
    assert "write on crypt (+84.1 %)" in line


@pytest.mark.parametrize("rounds", [1, 2])
def test_without_an_interval_nothing_is_said(rounds: int) -> None:
    assert told(drifting(rounds)) == []
