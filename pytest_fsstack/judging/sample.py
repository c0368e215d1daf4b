"""Metrics, and the figures of one timed block in one round."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

Better = Literal["lower", "higher"]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
#: From 0. Small enough to be the place of a point in a picture.
RoundNumber = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


#: No figure is larger, nor smaller than its reciprocal unless it is 0: their squares and sums are still numbers.
LARGEST = 1e100


def saturated(figure: float) -> float:
    """Return the figure, or the nearest one that can be reckoned with."""
    return float(figure if figure <= 0 else min(max(figure, 1 / LARGEST), LARGEST))


class Metric(msgspec.Struct, frozen=True):
    """The properties of a figure: its unit, the better direction, and the size below which it is noise of the clock."""

    name: str
    unit: str = ""
    better: Better = "lower"
    resolution: float = 0.0

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "resolution", saturated(self.resolution))


#: What every timed block measures; throughput, amplification and file_rate only if `bytes=` and `files=` say of how
#: much.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("seconds", "s", resolution=1e-6),
        Metric("user_seconds", "s", resolution=1e-3),
        Metric("system_seconds", "s", resolution=1e-3),
        Metric("cpu_seconds", "s", resolution=1e-3),
        Metric("machine_seconds", "s", resolution=1e-2),
        Metric("read_bytes", "B", resolution=4096),
        Metric("written_bytes", "B", resolution=4096),
        Metric("used_bytes", "B", resolution=4096),
        Metric("throughput", "B/s", "higher"),
        Metric("file_rate", "1/s", "higher"),
        # Bytes at the device for each byte of payload.
        Metric("write_amplification", "x", resolution=1e-3),
        Metric("read_amplification", "x", resolution=1e-3),
    )
}


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """The figures of one timed block in one round, one for each metric."""

    #: A figure by the name of its metric, in the unit of the metric.
    values: Mapping[str, NotNegative]
    #: The metrics that are not in `METRICS`. A chain keeps them once for each step.
    metrics: Mapping[str, Metric] = {}
    #: What the workload keeps beside its figures, by name, as JSON takes it: a tool's output, a curve.
    kept: Mapping[str, Any] = {}
    #: Why the stack did not do the work, if it did not: its figures are shown, and compared with nothing.
    incomplete: str = ""
    #: Of how many repetitions in the round its figures are the medians.
    repetitions: int = 1
    #: What the block was asked to do. A chain keeps it once for each step.
    work: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "values", {name: saturated(figure) for name, figure in self.values.items()})

    def __getitem__(self, name: str) -> float:
        return self.values[name]
