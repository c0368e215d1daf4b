"""A layer that writes down what the layers above it write, with their flushes: for power cuts that never happened."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import recorder
from pytest_fsstack.layers.stacked import served
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.needs import FUSE, LOOP_DEVICES, Need, Root
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.stack.model import Block, BlockLayer, BuildContext, option


@dataclass(frozen=True)
class RecordedBlock(Block):
    """A device whose writes are logged."""

    #: In the format of dm-log-writes, since the layer was made.
    log: Path = Path()
    #: The file that the device stands on; `mark` goes by it.
    file: Path = Path()

    def mark(self, text: str) -> None:
        """Write a mark into the log, behind all that was written before. Raises OSError."""
        os.setxattr(self.file, recorder.MARK, text.encode())


@dataclass(frozen=True)
class Recorded(BlockLayer):
    """The device below, with a FUSE server that logs each write and each flush, in their order.

    From that log, the scenario `power_cut` rebuilds the device in its state after a power cut. The server shows the
    device as one file, and a loop device stands on that. So it logs everything from the layers above: writes, zeroed
    ranges and flushes. A write with FUA is a write and a flush. Use it for tests of power cuts, not for measurements,
    because it is slow.
    """

    leaves: ClassVar = (mounts.MOUNT, DAEMON)
    name: ClassVar = "recorded"
    gives: ClassVar = Block

    sector: int = option(
        4096, "bytes of the device's logical blocks. It never writes parts of one", choices=(512, 4096)
    )

    def needs(self) -> list[Need]:
        return [Root("mounting"), FUSE, LOOP_DEVICES]

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[RecordedBlock]:
        machine, depth = context.machine, context.depth
        target = context.directory / f"{depth}-{self.name}"
        # What is mounted is one file, and so is what it is mounted on.
        target.touch(mode=0o600)
        log = context.directory / f"{depth}-{self.name}.log"
        # The server needs nothing but Python's own library, and starts faster without looking for more.
        command = [sys.executable, "-I", "-S", recorder.__file__]
        with (
            served(target, context, *command, below.path, log, target, str(self.sector), on_block=True),
            open(target, "r+b") as file,
            machine.attached(file.fileno(), direct_io=False, sector=self.sector) as loop,
        ):
            yield RecordedBlock(
                loop.path,
                loop.check,
                machine,
                blank=below.blank,
                written=below.written,
                verify=loop.verify,
                log=log,
                file=target,
            )
