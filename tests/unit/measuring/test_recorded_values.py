"""Checks of values that a test records or keeps, at the call, where the test's author sees them."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.measuring.timed import MeasureError, Timed
from tests.toolkit import NotedStack


@pytest.fixture
def timed(tmp_path: Path) -> Timed:
    return Timed(NotedStack(tmp_path))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -2, -1e-300, "1.5", None, [1], 1j])
def test_a_figure_that_is_negative_or_no_finite_number_is_refused_at_the_call(timed: Timed, value: Any) -> None:
    with pytest.raises(MeasureError, match=rf"^timed\.record\('cost', .*{re.escape(repr(value))}\)$"):
        timed.record("cost", value)


@pytest.mark.parametrize("name", ["bytes", "files"])
@pytest.mark.parametrize("value", [-10, math.nan, math.inf, "1M"])
def test_an_amount_of_work_that_gives_no_rate_is_refused_at_the_call(timed: Timed, name: str, value: Any) -> None:
    with (
        pytest.raises(MeasureError, match=rf"^timed\({name}=\.\.\.\) .*{re.escape(repr(value))}"),
        timed(**{name: value}),
    ):
        pass


@pytest.mark.parametrize(("name", "value"), [("direction", "reads"), ("preload", "a.tar"), ("preload", Path("a.tar"))])
def test_another_wrong_argument_is_refused_at_the_call(timed: Timed, name: str, value: Any) -> None:
    with (
        pytest.raises(MeasureError, match=rf"^timed\({name}=\.\.\.\) .*{re.escape(repr(value))}"),
        timed(**{name: value}),
    ):
        pass


@pytest.mark.parametrize("value", [3, 1.5, 0, Fraction(1, 2)])
def test_any_finite_number_is_taken(timed: Timed, value: Any) -> None:
    timed.record("cost", value)
    assert timed._extra["cost"][1] == float(value)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"unit": 7}, "unit=7"),
        ({"better": "more"}, "better='more'"),
        ({"resolution": -1.0}, "-1.0"),
        ({"resolution": math.nan}, "nan"),
    ],
)
def test_what_a_metric_cannot_be_is_refused(timed: Timed, wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(MeasureError, match=text):
        timed.record("cost", 1.0, **wrong)


@pytest.mark.parametrize("name", [5, None])
def test_a_name_that_is_no_text_is_refused(timed: Timed, name: Any) -> None:
    with pytest.raises(MeasureError, match=rf"\b{name}\b"):
        timed.record(name, 1.0)


@pytest.mark.parametrize("reason", ["", 5, "half of it"])
def test_work_that_was_not_done_has_a_reason(timed: Timed, reason: Any) -> None:
    timed.incomplete(reason)
    assert timed.sample is not None
    assert str(reason) in timed.sample.incomplete
    assert timed.sample.incomplete != ""


@pytest.mark.parametrize("value", [Path("/tmp/x"), {"at": Path("x")}, [1.0, math.nan], {1, 2}, b"bytes", object()])
def test_what_json_cannot_hold_is_refused_at_the_call(timed: Timed, value: Any) -> None:
    with pytest.raises(MeasureError, match=r"^timed\.keep\('output', .*JSON"):
        timed.keep("output", value)


def test_a_list_that_contains_itself_is_refused(timed: Timed) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MeasureError, match="Circular reference"):
        timed.keep("output", endless)


def test_what_is_kept_is_what_json_gives_back(timed: Timed) -> None:
    curve = [(0, 1.5), (1, 2.5)]
    timed.keep("curve", curve)
    curve.append((2, 0.0))
    assert timed._kept["curve"] == [[0, 1.5], [1, 2.5]] == json.loads(json.dumps(timed._kept["curve"]))
