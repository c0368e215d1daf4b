"""Notices: doubts about the measurements of a chain, as facts. `judging.describe` makes their text."""

from __future__ import annotations

import msgspec

from pytest_fsstack.records.sample import OverheadNumber, Typical
from pytest_fsstack.records.verdicts import Estimate


class _Notice(msgspec.Struct, frozen=True, tag_field="kind", tag=True):
    pass


class GaveUp(_Notice, frozen=True):
    """An early end, because as many rounds were discarded as were planned. `rules` are those that did it."""

    rules: list[str]


class Difference(msgspec.Struct, frozen=True):
    """The overhead of a control over its baseline, in a step by a metric."""

    step: str
    metric: str
    estimate: Estimate


class ControlDiffers(_Notice, frozen=True):
    """A control, a second copy of its baseline, that differs from it in some of its comparisons.

    By chance, each comparison does so in at most 1 - `confidence` of sessions.
    """

    control: str
    baseline: str
    comparisons: int
    confidence: float
    differences: list[Difference]


class ControlNotCompared(_Notice, frozen=True):
    """A control that cannot be compared with its baseline."""

    control: str
    baseline: str
    reason: str


class OverheadChanged(_Notice, frozen=True):
    """Stacks whose overhead seems to have changed during the session, by step."""

    stacks: dict[str, list[str]]


class OddTimes(_Notice, frozen=True):
    """Stacks whose times have outliers or two clusters, by step."""

    stacks: dict[str, list[str]]


class Unrest(_Notice, frozen=True):
    """Other load on the machine: the numbers of rounds that it concerns, and its highest value."""

    #: Rounds in which a hypervisor took CPU time, and the largest share in one.
    stolen_rounds: int = 0
    stolen: float = 0.0
    throttled_rounds: int = 0
    #: Rounds before which the load was high, and the highest load.
    loaded_rounds: int = 0
    load: float = 0.0
    #: The lowest and the highest frequency of the CPUs in MHz, if they are far apart.
    frequencies: tuple[float, float] | None = None


class Noise(_Notice, frozen=True):
    """The variation of the baseline's time, and the smallest excess over a budget that so many rounds rarely miss."""

    variation: OverheadNumber
    rounds: int
    visible: OverheadNumber


class ReferenceMoved(_Notice, frozen=True):
    """A reference whose own time changed since earlier runs, which no limit judges. `then` and `now` are medians."""

    step: str
    stack: str
    unit: str
    then: Typical
    now: Typical
    change: Estimate | None


class RunsCorrelated(_Notice, frozen=True):
    """A series whose earlier runs follow each other, with their lag-1 correlation."""

    series: str
    correlation: float


Notice = (
    GaveUp
    | ControlDiffers
    | ControlNotCompared
    | OverheadChanged
    | OddTimes
    | Unrest
    | Noise
    | ReferenceMoved
    | RunsCorrelated
)
