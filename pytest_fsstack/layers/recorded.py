"""A layer that records the writes and flushes of the layers above, to simulate power cuts."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import recorder
from pytest_fsstack.layers.stacked import served
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.needs import FUSE, LOOP_DEVICES, Root
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.stack.layer import BlockLayer, option
from pytest_fsstack.stack.places import Block, BuildContext


@dataclass(frozen=True)
class RecordedBlock(Block):
    """A device whose writes are logged."""

    #: The log since the layer was created, in the format of dm-log-writes.
    log: Path = Path()
    #: The file behind the device, used by `mark`.
    file: Path = Path()

    def mark(self, text: str) -> None:
        """Append a mark to the log after all earlier writes. Raises OSError."""
        self.machine.set_attribute(self.file, recorder.MARK, text.encode())


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
    requires: ClassVar = (Root("mounting"), FUSE, LOOP_DEVICES)
    gives: ClassVar = Block

    sector: int = option(
        4096, "bytes of the device's logical blocks. It never writes parts of one", choices=(512, 4096)
    )

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[RecordedBlock]:
        machine, depth = context.machine, context.depth
        target = context.directory / f"{depth}-{self.name}"
        # The mount is a single file, so the mount point is a file too.
        if not target.exists():
            machine.make_file(target)
        log = context.directory / f"{depth}-{self.name}.log"
        # The server only needs the standard library, and starts faster without site packages.
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
