"""The guard decides whether a device may be overwritten: only if all checks ran, and none found an objection.

The checks of mkfs tools are not enough: some format mounted devices, and most format devices with data. `users` looks
for users of a device, and `contents` for data. `held` resolves a device's name once per session. If the
name later refers to another device, all writes are refused permanently.
"""

from pytest_fsstack.machine.guard.disk import Disk, InUse, Refused, identify
from pytest_fsstack.machine.guard.holding import Held, held
from pytest_fsstack.machine.guard.label import RecordProof, is_half_emptied, labelled
from pytest_fsstack.machine.guard.reading import signature

__all__ = [
    "Disk",
    "Held",
    "InUse",
    "RecordProof",
    "Refused",
    "held",
    "identify",
    "is_half_emptied",
    "labelled",
    "signature",
]
