"""Each scenario of the torture once; ``python -m tests.torture`` goes on for as long as one likes."""

from __future__ import annotations

import pytest

from tests.torture import __main__ as torture, inputs

pytestmark = pytest.mark.root

#: What is drawn is the same each time, so that who changes something else is not stopped by what that has not changed.
SEED = 1


def test_a_little_torture_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "CASES", 100)
    # Settings of the machine slow the other workers down: `tox -e torture` has them.
    scenarios = [name for name in torture.SCENARIOS if name != "settings"]
    totals, complaints = torture.torture(0.0, SEED, scenarios)
    print(*complaints, torture.table(totals), sep="\n")
    assert torture.wrong(totals) == 0
    assert [name for name, figures in totals.items() if not figures["tries"]] == []
