"""The expected duration of a run of a stack, by earlier sessions."""

from __future__ import annotations

import pytest

from pytest_fsstack.records.results import Results
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.session.duration import seconds_of_run, timed_share
from tests.chains import a_chain

TEST = "test_it.py::TestA"


def session(xfs: float = 3.0, start: str = "2026-01-02T10:00:00+00:00", scale: str = "small") -> Results:
    """Return ten rounds of two stacks, of which each is timed for one second or more, in a minute and 40 seconds."""
    chain = a_chain({"read": {"ext4": 1.0, "xfs": xfs}}, 10, id=TEST, steps=["fill", "read"])
    return chain.results(start=start, stop=start.replace("10:00:00", "10:01:40"), scale=scale)


def seconds(earlier: list[Results], stack: str = "xfs", test: str = TEST, device: str = "loop") -> float | None:
    return seconds_of_run(earlier, test, device, ["fill", "read"], stack, scale="small")


def test_what_is_not_timed_is_shared_by_all_stacks() -> None:
    # 100 seconds, of which 40 are timed, in 20 runs.
    assert seconds([session()], "ext4") == pytest.approx(1.0 + 3.0)
    assert seconds([session()], "xfs") == pytest.approx(3.0 + 3.0)


def test_the_last_session_that_knows_it_counts() -> None:
    assert seconds([session(), session(xfs=5.0)]) == pytest.approx(5.0 + 2.0)
    assert seconds([session(), session(xfs=5.0, scale="paper"), Results()]) == pytest.approx(6.0)


def test_what_no_session_has_measured_is_not_known() -> None:
    assert seconds([]) is None
    assert seconds([session()], "btrfs") is None
    assert seconds([session()], test="test_it.py::TestB") is None
    assert seconds([session()], device="/dev/sdb") is None
    assert seconds([session(start="")]) is None


def test_repetitions_count_for_the_share_of_timed_blocks() -> None:
    results = session()
    assert timed_share(results) == pytest.approx(0.4)
    results.chains[0].add("read", "xfs", Sample({"seconds": 5.0}, repetitions=3))
    assert timed_share(results) == pytest.approx((40 - 3 + 3 * 5) / 100)
    assert timed_share(Results(chains=results.chains)) is None
