"""The checks of the guard one by one, and a device that is held for a single use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pytest_fsstack.machine.guard import Held, identify, users
from pytest_fsstack.machine.guard.contents import refuse_contents
from pytest_fsstack.machine.guard.holding import Record, held
from pytest_fsstack.machine.guard.label import write_label_on


def check_idle(path: Path) -> None:
    """Raise `Refused` if anything uses a device."""
    users.check_unused(identify(path), frozenset(), users.PATIENCE)


def check_contents(path: Path) -> None:
    """Raise `Refused` if a device holds anything but a scratch label."""
    refuse_contents(identify(path))


def write_label(path: Path) -> None:
    """Erase a device, and make it scratch."""
    write_label_on(identify(path))


@contextlib.contextmanager
def claimed(path: Path, *, overwrite: bool, record: Record | None = None) -> Iterator[Held]:
    """Hold a device for a single use, and label it afterwards."""
    with held(identify(path), overwrite=overwrite) as device:
        with device.claimed(record=record) if record else device.claimed():
            yield device
