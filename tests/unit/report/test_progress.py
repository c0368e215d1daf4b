"""What the progress line says of the time that is left."""

from __future__ import annotations

import pytest

from pytest_fsstack.judging.plan import Left
from pytest_fsstack.report.progress import Pace, in_round


@pytest.mark.parametrize(
    ("left", "said"),
    [
        ([], ""),
        ([Left(1, 2)], ""),
        ([Left(None, 12), Left(4, 12)], "at most 8 min left"),
        ([Left(4, 12), Left(4, 12)], "about 3 min left, at most 8"),
        ([Left(12, 12)], "about 4 min left"),
    ],
)
def test_the_time_left_is_said_at_most_and_as_expected(left: list[Left], said: str) -> None:
    now = [100.0]
    pace = Pace(lambda: now[0])
    assert pace.left([Left(4, 12)]) == ""
    pace.add(3)
    now[0] += 60
    assert pace.left(left) == said


def test_a_round_is_said_with_what_runs_in_it() -> None:
    assert in_round("test_it.py::TestA", "loop", 0, 80, "xfs") == "TestA on loop: round 1 of at most 80: xfs"
    assert in_round("test_it.py::TestA", "loop", 8, 80, "") == "TestA on loop: round 8 of at most 80 done"
    fresh = in_round("test_it.py::TestA", "loop", 19, 80, "", 16)
    assert fresh == "TestA on loop: fresh round 3 of at most 80 (to confirm) done"
