"""Sizes of the steps of a scenario: one set for each scale, checked against the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pytest_fsstack.stack.model import Device
from pytest_fsstack.units import format_size

#: The scales. *smoke* tests the scenario itself, with seconds a step. *small* takes minutes, with the published
#: proportions. *paper* has the published sizes.
SCALES = ("smoke", "small", "paper")
DEFAULT = "small"
#: The shortest and the longest usual time of one run of a scenario on a stack, in seconds.
USUAL_SECONDS = {"smoke": (0.5, 20.0), "small": (2.0, 60.0), "paper": (20.0, 1800.0)}
#: Files and bytes of the generated corpus. Those of *paper* are linux-3.0's.
CORPUS = {"smoke": (150, 1_500_000), "small": (2_500, 40_000_000), "paper": (36_700, 400_000_000)}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a scenario at one scale. A scenario adds fields of its own in a subclass.

    `space` is the required size of the device in bytes. It includes the overhead of filesystems. `most` is the largest
    size for steps that read the whole device.
    """

    space: int
    most: int | None = field(default=None, kw_only=True)


_Sizes = TypeVar("_Sizes", bound=Sizes)


def sizes_at(scales: Mapping[str, _Sizes], scale: str) -> _Sizes:
    """Return the sizes at a scale. Raises `ValueError` unless the marker has sizes for exactly `SCALES`."""
    if set(scales) != set(SCALES) or not all(isinstance(sizes, Sizes) for sizes in scales.values()):
        raise ValueError(f"it takes sizes for each of {', '.join(SCALES)}, such as smoke=Sizes(space=1 << 30)")
    return scales[scale]


def why_unfit(sizes: Sizes, scale: str, device: Device, directory: Path) -> str | None:
    """Return why these sizes do not fit the device and what to do about it, or None if they do.

    The files of loop devices are in `directory`. Raises OSError.
    """
    room = device.room(directory)
    size = max((size for member in device.members for size in member.sizes(1)), default=0)
    if sizes.most is not None and size > sizes.most:
        what = f"it reads the whole device many times, and {device.spec} has {format_size(size)}"
        return f"{what}: take a device or partition of at most {format_size(sizes.most)}"
    if room >= sizes.space:
        return None
    return (
        f"at --fsstack-scale={scale} it needs a device of {format_size(sizes.space)}, and {device.spec} offers "
        f"{format_size(room)}: {device.advice(sizes.space)}, or take a smaller --fsstack-scale"
    )
