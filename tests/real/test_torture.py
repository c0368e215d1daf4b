"""A little of the torture; ``python -m tests.torture`` goes on for as long as one likes."""

from __future__ import annotations

import random

import pytest

from tests.torture import __main__ as torture

pytestmark = pytest.mark.root


def test_a_little_torture_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.randrange(2**32)
    totals, complaints = torture.torture(15.0, seed, list(torture.SCENARIOS))
    print(f"seed {seed}", *complaints, torture.table(totals), sep="\n")
    assert torture.wrong(totals) == 0
    assert sum(figures["tries"] for figures in totals.values()) > 0
