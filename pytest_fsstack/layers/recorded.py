"""A layer that writes down what the layers above it write, with their flushes: for power cuts that never happened."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import loopback, recorder
from pytest_fsstack.layers.stacked import served
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.needs import FUSE, LOOP_DEVICES, Need, Root
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.stack.model import Block, Layer, OptionError, Place, PlaceType, Site, option


@dataclass(frozen=True)
class RecordedBlock(Block):
    """A device of which everything that is written to it is written down."""

    #: In the format of dm-log-writes, since the layer was made.
    log: Path = Path()
    #: The file that the device stands on; `mark` goes by it.
    file: Path = Path()

    def mark(self, text: str) -> None:
        """Write a mark into the log, behind all that was written before. Raises OSError."""
        os.setxattr(self.file, recorder.MARK, text.encode())


@dataclass(frozen=True)
class Recorded(Layer):
    """The device below, of which a FUSE server writes down each write and each flush, in their order.

    From that log, the scenario `power_cut` makes the device as a power cut would have left it. The server shows the
    device as one file, a loop device stands on that, and so what the layers above send down arrives: writes, zeroed
    ranges and flushes (a write with FUA is a write and a flush). It is for tests of what is there after a power cut; as
    a part of what is measured, it is slow.
    """

    leaves: ClassVar = (mounts.MOUNT, DAEMON)
    name: ClassVar = "recorded"
    takes: ClassVar[tuple[PlaceType, ...]] = (Block,)
    gives: ClassVar = Block

    sector: int = option(4096, "the device's logical block size, 512 or 4096: bytes that it writes whole or not at all")

    def needs(self) -> list[Need]:
        return [Root("mounting"), FUSE, LOOP_DEVICES]

    def check_options(self) -> None:
        if self.sector not in (512, 4096):
            raise OptionError("sector", f"must be 512 or 4096 (got {self.sector})")

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.wipe()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[RecordedBlock]:
        assert isinstance(below, Block)
        target = site.directory / f"{depth}-{self.name}"
        # What is mounted is one file, and so is what it is mounted on.
        target.touch(mode=0o600)
        log = site.directory / f"{depth}-{self.name}.log"
        # The server needs nothing but Python's own library, and starts faster without looking for more.
        command = [
            sys.executable,
            "-I",
            "-S",
            recorder.__file__,
            str(below.path),
            str(log),
            str(target),
            str(self.sector),
        ]
        with (
            served(target, site, *command, on_block=True),
            open(target, "r+b") as file,
            loopback.attached(file.fileno(), direct_io=False, sector=self.sector) as block,
        ):
            shown = {field.name: getattr(block, field.name) for field in dataclasses.fields(Block)}
            yield RecordedBlock(**{**shown, "blank": below.blank, "written": below.written}, log=log, file=target)
