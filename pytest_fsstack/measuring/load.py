"""The load of the machine as the kernel reports it: load, pressure, stolen time, throttling and CPU frequency."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: Seconds to watch the pressure before a round. The kernel counts it in microseconds.
WINDOW = 1.0

RESOURCES = ("cpu", "io", "memory")


@dataclass(frozen=True)
class Reading:
    """Counters at one moment. Unavailable ones are None or missing."""

    #: A monotonic clock, in seconds.
    time: float
    #: Mean number of running or waiting tasks over the last minute.
    load: float | None = None
    #: The time of all CPUs, and the part stolen by a hypervisor, in clock ticks.
    ticks: int = 0
    stolen: int | None = None
    #: How long any task waited for a resource, in microseconds.
    pressure: Mapping[str, int] = field(default_factory=dict)
    #: How often CPUs were throttled because of heat.
    throttled: int | None = None
    #: The mean of all CPUs, in MHz.
    frequency: float | None = None


def read(root: Path = Path("/"), clock: float | None = None) -> Reading:
    """Read all available counters. Unreadable ones are skipped without an error."""
    stat = re.search(r"^cpu +([\d ]+)$", _text(root / "proc/stat"), re.MULTILINE)
    # Guest time, the last two fields, is already part of user time.
    ticks = [int(word) for word in stat[1].split()[:8]] if stat else []
    load = re.match(r"[\d.]+", _text(root / "proc/loadavg"))
    pressure = {name: re.search(r"^some .*total=(\d+)", _text(root / "proc/pressure" / name)) for name in RESOURCES}
    cpus = root / "sys/devices/system/cpu"
    counts = _numbers(cpus, "cpu[0-9]*/thermal_throttle/*_throttle_count")
    kilohertz = _numbers(cpus, "cpu[0-9]*/cpufreq/scaling_cur_freq")
    return Reading(
        time.monotonic() if clock is None else clock,
        load=float(load[0]) if load else None,
        ticks=sum(ticks),
        stolen=ticks[7] if len(ticks) == 8 else None,
        pressure={name: int(match[1]) for name, match in pressure.items() if match},
        throttled=sum(counts) if counts else None,
        frequency=sum(kilohertz) / len(kilohertz) / 1000 if kilohertz else None,
    )


def conditions(first: Reading, start: Reading, end: Reading) -> dict[str, float]:
    """Return the conditions of a round, by the names of `judging.conditions`.

    The machine was watched from `first` to `start`, and the round ran from `start` to `end`. Pressure is that before
    the round, because during it the stacks cause pressure themselves, which has its own name. Stolen time and
    throttling are totals of both periods.
    """
    figures: dict[str, float] = {"cpus": float(os.cpu_count() or 1)}
    if first.load is not None:
        figures["load"] = first.load
    if first.stolen is not None and end.stolen is not None and end.ticks > first.ticks:
        figures["steal"] = (end.stolen - first.stolen) / (end.ticks - first.ticks)
    if first.throttled is not None and end.throttled is not None:
        figures["throttled"] = end.throttled - first.throttled
    if start.frequency is not None and end.frequency is not None:
        figures["frequency"] = (start.frequency + end.frequency) / 2
    for name, before in first.pressure.items() if start.time - first.time >= WINDOW / 2 else ():
        if name in start.pressure:
            figures[f"psi_{name}"] = (start.pressure[name] - before) / 1e6 / (start.time - first.time)
    for name, before in start.pressure.items() if end.time > start.time else ():
        if name in end.pressure:
            figures[f"psi_{name}_during"] = (end.pressure[name] - before) / 1e6 / (end.time - start.time)
    return figures


def watch(before: bool) -> tuple[Reading, Reading]:
    """Read the counters before a round. With `before`, pause the session, and read them at both ends."""
    first = read()
    if not before:
        return first, first
    time.sleep(WINDOW)
    return first, read()


def lacking(names: Iterable[str], reading: Reading) -> str:
    """Return the first of these condition names that the machine does not provide, or an empty text."""
    available = {f"psi_{name}" for name in reading.pressure}
    available |= {name for name, value in (("load", reading.load), ("steal", reading.stolen)) if value is not None}
    available |= {"throttled"} if reading.throttled is not None else set()
    return next((name for name in names if name not in available), "")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _numbers(directory: Path, pattern: str) -> list[int]:
    texts: list[str] = []
    with contextlib.suppress(OSError):
        texts += (_text(path).strip() for path in directory.glob(pattern))
    return [int(text) for text in texts if text.isdecimal()]
