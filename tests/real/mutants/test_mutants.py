"""The list of bugs. ``python -m tests.real.mutants`` runs the scenarios against them."""

from __future__ import annotations

from tests.real.mutants.layer import bugs


def test_each_bug_has_a_name_of_its_own() -> None:
    names = [bug.name for bug in bugs()]
    assert len(names) == len({*names}) >= 60
    assert len({bug.kind for bug in bugs()}) == 15
