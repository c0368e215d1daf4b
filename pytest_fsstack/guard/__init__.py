"""The guard decides whether a device may be overwritten: only if all checks ran, and none found an objection.

The checks of mkfs tools are not enough: some format mounted devices, and most format devices with data. `check_idle`
looks for users of a device, and `check_contents` for data. `held` resolves a device's name once per session. If the
name later refers to another device, all writes are refused permanently.
"""

from pytest_fsstack.guard.contents import check_contents
from pytest_fsstack.guard.disk import Disk, InUse, Refused, identify
from pytest_fsstack.guard.holding import Held, Record, claimed, held
from pytest_fsstack.guard.label import RecordProof, is_half_emptied, labelled, write_label
from pytest_fsstack.guard.reading import signature
from pytest_fsstack.guard.users import check_idle

__all__ = [
    "Disk",
    "Held",
    "InUse",
    "Record",
    "RecordProof",
    "Refused",
    "check_contents",
    "check_idle",
    "claimed",
    "held",
    "identify",
    "is_half_emptied",
    "labelled",
    "signature",
    "write_label",
]
