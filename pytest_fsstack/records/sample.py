"""Metrics, and the figures of one timed block in one round."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

Better = Literal["lower", "higher"]
#: What is done to a layer of a stack.
Action = Literal["make", "open", "close", "check"]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
#: From 0. The upper bound keeps charts drawable.
RoundNumber = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
#: The number of a boot of a kernel, from 0.
BootNumber = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
#: Figures are at most this large, and at least its reciprocal unless 0, so that squares and sums stay finite.
MAX_FIGURE = 1e100
#: The ratio of two figures minus 1, with room for rounding.
OverheadNumber = Annotated[float, msgspec.Meta(ge=-1, le=10 * MAX_FIGURE**2)]
#: The standard error of logarithms of such ratios.
LogError = Annotated[float, msgspec.Meta(ge=0, le=1000)]
#: The logarithm of such a ratio.
LogRatio = Annotated[float, msgspec.Meta(ge=-1000, le=1000)]
#: A figure of several rounds.
Typical = Annotated[float, msgspec.Meta(ge=0, le=MAX_FIGURE)]


def saturated(figure: float) -> float:
    """Clamp a figure to the range in which calculations stay finite."""
    return float(figure if figure <= 0 else min(max(figure, 1 / MAX_FIGURE), MAX_FIGURE))


class Metric(msgspec.Struct, frozen=True, gc=False):
    """A kind of figure: its unit, the better direction, and its resolution, below which differences are noise of the
    clock. An exact count is not cut off, and may be 0.

    The time of an action on a layer of the stack names both, that of an action on all layers only the action.
    """

    name: str
    unit: str = ""
    better: Better = "lower"
    resolution: float = 0.0
    exact: bool = False
    #: ``make``, ``open``, ``close`` or ``check``.
    action: Action | None = None
    #: The name of the layer as in `Stack.layer_names`: ``luks``, ``3-ext4``.
    layer: str = ""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "resolution", saturated(self.resolution))

    @property
    def is_recorded(self) -> bool:
        """Whether a workload recorded it, so not every timed block has it."""
        return self.action is None and self.name not in METRICS

    @property
    def is_of_time(self) -> bool:
        """Whether figures depend on the speed of the machine."""
        return is_of_time(self.unit)

    @property
    def takes_zero(self) -> bool:
        """Whether 0 has a ratio."""
        return self.exact or self.resolution > 0


#: Units of time, in which durations are or which rates are per, and units of rates without a slash.
_TIMES = {"s", "ms", "us", "\N{MICRO SIGN}s", "\N{GREEK SMALL LETTER MU}s", "ns", "min", "h", "d"} | {
    word + plural
    for word in ("sec", "second", "millisecond", "microsecond", "nanosecond", "minute", "hour", "day")
    for plural in ("", "s")
}
_RATES = {"IOPS", "iops", "Hz", "kHz", "MHz", "GHz", "bps", "Bps", "ops", "tps", "qps"}


def is_of_time(unit: str) -> bool:
    """Whether figures in a unit depend on the speed of the machine: times, and rates such as ``B/s`` or ``IOPS``."""
    _, slash, per = unit.rpartition("/")
    return per.strip() in _TIMES or (not slash and unit.strip() in _RATES)


def metric_of_action(action: Action, layer: str = "") -> Metric:
    """Return the metric of an action on a layer of a stack, or on all of them: ``luks_open_seconds``."""
    number, _, name = layer.rpartition("-")
    words = filter(None, [re.sub(r"\W", "_", name) or "stack", number, action, "seconds"])
    # An action that does nothing takes a few microseconds.
    return Metric("_".join(words), "s", resolution=1e-5, action=action, layer=layer)


#: Metrics of every timed block, and the times of actions on its stack. Throughput, amplification and file_rate need
#: `bytes=` or `files=`.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("seconds", "s", resolution=1e-6),
        # The parts of `seconds`: before and during the final sync.
        Metric("work_seconds", "s", resolution=1e-6),
        Metric("sync_seconds", "s", resolution=1e-6),
        Metric("user_seconds", "s", resolution=1e-3),
        Metric("system_seconds", "s", resolution=1e-3),
        Metric("cpu_seconds", "s", resolution=1e-3),
        Metric("machine_seconds", "s", resolution=1e-2),
        Metric("read_bytes", "B", resolution=4096),
        Metric("written_bytes", "B", resolution=4096),
        Metric("used_bytes", "B", resolution=4096),
        Metric("throughput", "B/s", "higher"),
        Metric("file_rate", "1/s", "higher"),
        # Bytes written to the device per byte of payload.
        Metric("write_amplification", "x", resolution=1e-3),
        Metric("read_amplification", "x", resolution=1e-3),
        *map(metric_of_action, get_args(Action)),
    )
}


class Sample(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The figures of one timed block in one round, by metric."""

    #: In the unit of the metric. Empty if the step ran without a timed block, but has figures in other rounds.
    values: Mapping[str, NotNegative]
    #: Metrics that are not in `METRICS`. A chain stores them once per step.
    metrics: Mapping[str, Metric] = {}
    #: Additional JSON data from the workload, by name: a tool's output, a curve.
    kept: Mapping[str, Any] = {}
    #: Why the stack did not do its work, or empty. Such figures are shown, but not compared.
    incomplete: str = ""
    #: The number of repetitions in the round. Figures are their medians.
    repetitions: int = 1
    #: Parameters of the work. A chain stores them once per step.
    work: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "values", {name: saturated(figure) for name, figure in self.values.items()})

    def __getitem__(self, name: str) -> float:
        return self.values[name]
