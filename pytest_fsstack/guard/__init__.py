"""May this device be overwritten? Only if every check was made, and none found a reason against it.

The tools' own checks are not enough: some format what is mounted, most what merely holds data. `check_idle` looks for
users of a device, `check_contents` for data on it. `held` says once a session which device a name means, and every
write is refused for good if the name means another one later.
"""

from pytest_fsstack.guard.contents import check_contents
from pytest_fsstack.guard.disk import Disk, InUse, Refused, identify
from pytest_fsstack.guard.holding import Held, Record, claimed, held
from pytest_fsstack.guard.label import Tell, half_emptied, labelled, write_label
from pytest_fsstack.guard.reading import signature
from pytest_fsstack.guard.users import check_idle

__all__ = [
    "Disk",
    "Held",
    "InUse",
    "Record",
    "Refused",
    "Tell",
    "check_contents",
    "check_idle",
    "claimed",
    "half_emptied",
    "held",
    "identify",
    "labelled",
    "signature",
    "write_label",
]
