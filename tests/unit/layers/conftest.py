"""Fixtures for tests of layers: a machine that records the commands of a layer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.preflight.recording import RecordingJournal, RecordingMachine
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import SESSION, Block, BuildContext, Pool

#: Of the device `/dev/fake`: 384 MiB.
SECTORS = 786432


class LayerMachine(RecordingMachine):
    """Gives its lines without what differs from run to run, and the devices that layers write to by themselves."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.written: list[Path] = []

    def write(self, device: Path, extents: Iterable[tuple[int, bytes]]) -> None:
        self.written.append(device)
        super().write(device, extents)

    def taken(self) -> list[str]:
        """Return the commands since the last call, but for those that make mount points and hold mappings."""
        names = {str(self.directory): "DIR", SESSION: "ID", str(os.getpid()): "PID"}
        lines = [line for line in self.commands if not line.startswith(("mkdir", "dmsetup remove --deferred"))]
        for old, new in names.items():
            lines = [line.replace(old, new) for line in lines]
        self.lines.clear()
        # The directory has another name each time.
        return [re.sub(r"LVM_\w+=\S+ ", "", re.sub("--config=[^ ]+", "--config=FILE", line)) for line in lines]


@pytest.fixture
def machine(tmp_path: Path) -> LayerMachine:
    machine = LayerMachine(tmp_path)
    machine.sizes[Path("/dev/fake")] = SECTORS
    return machine


@pytest.fixture
def journal(machine: LayerMachine) -> RecordingJournal:
    return RecordingJournal(machine)


@pytest.fixture
def context(tmp_path: Path, journal: RecordingJournal) -> BuildContext:
    return BuildContext(tmp_path, journal, depth=1)


@pytest.fixture
def device(machine: LayerMachine) -> Block:
    return Block(Path("/dev/fake"), lambda: None, machine)


@pytest.fixture
def pool(machine: LayerMachine) -> Pool:
    """Four devices `/dev/a` to `/dev/d`."""
    paths = [Path("/dev", letter) for letter in "abcd"]
    machine.sizes |= dict.fromkeys(paths, SECTORS)
    return Pool.of([Block(path, lambda: None, machine) for path in paths])


def only(text: str) -> Any:
    """Return the one layer of a stack, which may be on a pool. What it can do depends on its class."""
    (layer,) = (layer for layer in Stack.parse(text, BUILT_IN).layers if layer.name != "pool")
    return layer


def first(pool: Pool, count: int) -> Pool:
    """Return a pool of the first devices."""
    return Pool.of(pool.devices[:count])
