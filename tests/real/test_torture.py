"""A little of the torture, with each scenario; ``python -m tests.torture`` goes on for as long as one likes."""

from __future__ import annotations

import random

import pytest

from tests.torture import __main__ as torture
from tests.torture import inputs

pytestmark = pytest.mark.root


def test_a_little_torture_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CASES", 300)
    seed = random.randrange(2**32)
    totals, complaints = torture.torture(15.0, seed, list(torture.SCENARIOS))
    print(f"seed {seed}", *complaints, torture.table(totals), sep="\n")
    assert torture.wrong(totals) == 0
    assert [name for name, figures in totals.items() if not figures["tries"]] == []
