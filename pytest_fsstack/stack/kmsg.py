"""Kernel messages from /dev/kmsg. They often have the only reason for a failed mount."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

DEVICE = "/dev/kmsg"
#: The number of lines shown.
LINES = 8

#: The least important level that can explain an error. Lower ones, such as "loop0: detected capacity change", cannot.
_NOTICE = 5
_LARGEST_RECORD = 8192


@dataclass(frozen=True)
class Record:
    """A message: its syslog facility (0 is the kernel), its level (0 is the most severe, 7 is debug), and its text."""

    facility: int
    level: int
    text: str
    #: Whether it continues the message before it.
    goes_on: bool = False


def parse(record: bytes) -> Record:
    """Parse a record (Documentation/ABI/testing/dev-kmsg): ``priority,sequence,time,flags[,...];text``.

    Later lines start with a blank and are key-value pairs about the device. They are ignored. Raises ValueError if it
    is no record.
    """
    prefix, separator, rest = record.decode(errors="replace").partition(";")
    fields = prefix.split(",")
    if not separator or len(fields) < 4:
        raise ValueError(f"not a record of {DEVICE}: {record!r}")
    priority = int(fields[0])
    text = re.sub(rb"\\x([0-9a-f]{2})", lambda match: bytes([int(match[1], 16)]), rest.split("\n")[0].encode())
    return Record(priority >> 3, priority & 7, text.decode(errors="replace"), fields[3] in ("c", "+"))


def reasons(records: Iterable[Record]) -> list[str]:
    """Return the last messages of the kernel with at least the level notice, joined from their parts."""
    whole: list[Record] = []
    for record in records:
        if record.goes_on and whole:
            first = whole.pop()
            record = Record(first.facility, first.level, first.text + record.text)
        whole.append(record)
    return [record.text for record in whole if record.facility == 0 and record.level <= _NOTICE and record.text][
        -LINES:
    ]


class Listener:
    """A reader of the records since its creation. Empty if this process may not read them."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def heard(self) -> str:
        """Return the kernel's messages as lines for an error message, or an empty text."""
        lines = reasons(self._records())
        return "\n".join(["\nthe kernel said:", *(f"  {line}" for line in lines)]) if lines else ""

    def _records(self) -> Iterator[Record]:
        while self._fd is not None:
            try:
                yield parse(os.read(self._fd, _LARGEST_RECORD))
            except BrokenPipeError:
                continue  # the oldest records were overwritten; continue with the next
            except (OSError, ValueError):
                return  # no more records or no permission; in containers it may be another kind of file


SILENT = Listener(None)


@contextlib.contextmanager
def listening(device: str = DEVICE) -> Iterator[Listener]:
    """Remember the current end of the kernel's messages. Without an error, that is the only cost."""
    with contextlib.ExitStack() as undo:
        listener = SILENT
        with contextlib.suppress(OSError):  # no permission, or not there
            fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, fd)
            os.lseek(fd, 0, os.SEEK_END)
            listener = Listener(fd)
        yield listener
