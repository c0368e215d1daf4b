"""What one timed block measures: metrics, and the figures of one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Better = Literal["lower", "higher"]


#: No figure is larger, nor smaller than its reciprocal unless it is 0: their squares and sums are still numbers.
LARGEST = 1e100


def saturated(figure: float) -> float:
    """Return the figure, or the nearest one that can be reckoned with."""
    return figure if figure <= 0 else min(max(figure, 1 / LARGEST), LARGEST)


@dataclass(frozen=True)
class Metric:
    """What a figure is: its unit, which direction is better, and the size below which it is only noise of the clock."""

    name: str
    unit: str = ""
    better: Better = "lower"
    resolution: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "resolution", saturated(self.resolution))


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


@dataclass(frozen=True)
class Sample:
    """What one timed block measured in one round: a figure per metric, and what the metrics are."""

    #: A figure by the name of its metric, in the unit of the metric.
    values: Mapping[str, float]
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)
    #: What the workload keeps beside its figures, by name, as JSON takes it: a tool's output, a curve.
    kept: Mapping[str, Any] = field(default_factory=dict)
    #: Why the stack did not do the work, if it did not: its figures are shown, and compared with nothing.
    incomplete: str = ""
    #: Of how many repetitions in the round its figures are the medians.
    repetitions: int = 1
    #: What the block was asked to do: the same in every round, so a chain keeps it once.
    work: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", {name: saturated(figure) for name, figure in self.values.items()})

    def __getitem__(self, name: str) -> float:
        return self.values[name]
