"""Devices whose contents udev starts by itself when it finds them free: those of software RAID and of bcache."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from pytest_fsstack.machine.guard import Refused
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.places import Block, Pool

#: Where udev recognizes such a device, in bytes from its start: metadata 1.2 of md, and struct cache_sb of bcache.
_SUPERBLOCK = 4096


@contextlib.contextmanager
def kept_free(device: Block, stop: Callable[[], None]) -> Iterator[Pool]:
    """Yield the devices of a layer. Before each write to one, `stop` ends what udev started on it.

    At the end they are stopped again, and their superblocks are erased.
    """

    def freed(part: Block) -> Block:
        def check() -> None:
            # At any time after a write, udev may examine the device again, and start what it finds.
            for _ in range(3):
                with contextlib.suppress(Refused):
                    return part.check()
                stop()
            return part.check()

        return dataclasses.replace(part, check=check)

    pool = Pool.of([freed(part) for part in device.parts])
    try:
        yield pool
    finally:
        stop()
        # When a device is closed, udev examines it again.
        for part in pool.parts:
            part.write([(_SUPERBLOCK, bytes(4096))])


def settle(machine: Machine) -> None:
    """Wait until udev has examined all devices, if it runs."""
    if not machine.mapper_environment():
        machine.run("udevadm", "settle")
