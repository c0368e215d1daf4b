"""Conditions of the machine around a round, and discarded rounds."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pytest_fsstack.records.sample import Sample

#: The names of conditions, as in docs/results.md, with their values.
Conditions = Mapping[str, float]


class Discarded(msgspec.Struct, frozen=True):
    """A round that a rule discarded: recorded, but never judged. `replaced_by` is the number (from 0) of the round that
    replaced it.
    """

    replaced_by: int
    rule: str
    order: list[str]
    conditions: Conditions
    #: By step, then by stack.
    samples: Mapping[str, Mapping[str, Sample]] = {}
