"""A device whose session was killed while it emptied it: proved to be as it was left, or not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_fsstack.machine import guard
from pytest_fsstack.machine.descriptors import write_all
from pytest_fsstack.machine.guard import label
from pytest_fsstack.machine.real import RealMachine
from tests.real.conftest import Loop, LoopDevice

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

MIB = 1 << 20
SIZE = 64 * MIB


class Killed(BaseException):
    """As SIGKILL would, it ends the writing of a label."""


def killed_after(steps: int, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    """What was told, if the session dies before the next write: there is one at each end, then the label's."""
    told: dict[str, str] = {}
    offsets = list[int]()

    def write(fd: int, data: bytes, offset: int) -> None:
        if len(offsets) == steps:
            raise Killed
        offsets.append(offset)
        write_all(fd, data, offset)

    with monkeypatch.context() as context:
        context.setattr("pytest_fsstack.machine.guard.label.write_all", write)
        with pytest.raises(Killed):
            label.write_label_on(guard.identify(loop.path), told.update)
    return told


@pytest.fixture
def full(loop_device: LoopDevice) -> Loop:
    loop = loop_device(size=SIZE)
    loop.path.write_bytes(os.urandom(SIZE))
    return loop


def test_every_byte_that_is_looked_at_counts(full: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    told = killed_after(2, full, monkeypatch)
    assert guard.is_half_emptied(full.path, told)
    assert not guard.labelled(full.path)
    for where in 0, 4095, 4096, MIB - 1, MIB, 20 * MIB, SIZE - MIB - 1, SIZE - MIB, SIZE - 1:
        with full.path.open("rb") as device:
            device.seek(where)
            (before,) = device.read(1)
        full.write(bytes([before ^ 1]), where)
        assert not guard.is_half_emptied(full.path, told), where
        full.write(bytes([before]), where)
    assert guard.is_half_emptied(full.path, told)


@pytest.mark.parametrize("steps", [0, 1])
def test_before_both_ends_are_empty_nothing_is_proved(full: Loop, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not guard.is_half_emptied(full.path, killed_after(steps, full, monkeypatch))


def test_what_is_told_is_of_that_device(full: Loop, loop_device: LoopDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    told = killed_after(2, full, monkeypatch)
    other = loop_device(size=SIZE)
    assert not guard.is_half_emptied(other.path, told)
    assert not guard.is_half_emptied(full.path, {})
    assert not guard.is_half_emptied(full.path, {**told, "digest": ""})


@pytest.mark.parametrize("size", [16 * MIB, 33 * MIB + 4096, 304 * MIB])
def test_the_digest_is_that_of_the_label(loop_device: LoopDevice, size: int) -> None:
    loop = loop_device(size=size)
    with loop.path.open("r+b") as device:
        for offset in range(0, size - 8192, 3 * MIB + 512):
            device.seek(offset)
            device.write(os.urandom(4096))
    told: dict[str, str] = {}
    label.write_label_on(guard.identify(loop.path), told.update)
    assert guard.labelled(loop.path)
    with loop.path.open("rb") as device:
        assert told["digest"].encode() in device.read(4096)


def test_a_journal_that_cannot_be_written_costs_no_label(
    loop_device: LoopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_fsstack.devices import DiskDevice
    from pytest_fsstack.machine.journal import Journal, OpenEntry
    from pytest_fsstack.stack.places import BuildContext

    def fail(note: OpenEntry, **facts: object) -> None:
        raise OSError(28, "the journal cannot be written")

    loop = loop_device()
    book = Journal(tmp_path / "journal", RealMachine())
    with DiskDevice(loop.path, overwrite=True).opened(BuildContext(tmp_path, book)):
        loop.write(b"data", MIB)
        monkeypatch.setattr(OpenEntry, "update", fail)
    book.close()
    assert guard.labelled(loop.path)
