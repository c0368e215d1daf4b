"""Drawings of a series in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.over_time.sparkline import ASCII, BLOCKS, sparkline


@pytest.mark.parametrize(
    ("values", "drawn"),
    [([1.0], "▅"), ([2.0, 2.0], "▅▅"), ([0.0, 7.0, 3.0], "▁█▄"), ([-1.0, 1.0], "▁█")],
)
def test_heights_are_between_the_lowest_and_the_highest(values: list[float], drawn: str) -> None:
    assert sparkline(values) == drawn


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([BLOCKS, ASCII]))
def test_a_drawing_is_as_long_as_the_runs_or_the_line(values: list[float], ramp: str) -> None:
    drawn = sparkline(values, ramp)
    assert len(drawn) == min(len(values), 80)
    assert set(drawn) <= set(ramp)
