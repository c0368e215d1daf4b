"""Messages of the kernel from /dev/kmsg: a failed mount often has its reason only there."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

DEVICE = "/dev/kmsg"
#: How many of its last lines are shown.
LINES = 8

#: The least important level that may be a reason. What is below, such as "loop0: detected capacity change", is news.
_NOTICE = 5
_LARGEST_RECORD = 8192


@dataclass(frozen=True)
class Record:
    """A message: its syslog facility (0 is the kernel's own), its level (0 is the worst, 7 debugging), its text."""

    facility: int
    level: int
    text: str
    #: Whether it is another piece of the message before it.
    goes_on: bool = False


def parse(record: bytes) -> Record:
    """Read a record (Documentation/ABI/testing/dev-kmsg): ``priority,sequence,time,flags[,...];text``.

    The lines after the first, which start with a blank, say in pairs of name and value which device is meant. Raises
    ValueError for what is no record.
    """
    prefix, separator, rest = record.decode(errors="replace").partition(";")
    fields = prefix.split(",")
    if not separator or len(fields) < 4:
        raise ValueError(f"not a record of {DEVICE}: {record!r}")
    priority = int(fields[0])
    text = re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), rest.split("\n")[0].encode())
    return Record(priority >> 3, priority & 7, text.decode(errors="replace"), fields[3] in ("c", "+"))


def reasons(records: Iterable[Record]) -> list[str]:
    """The texts, put together from their pieces, of what the kernel itself calls at least a notice; the last ones."""
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
    """The records from the moment on in which it was made; none where this process may not read them."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def heard(self) -> str:
        """Return the kernel's reasons for an error message, on lines of their own, or an empty text."""
        lines = reasons(self._records())
        return "\n".join(["\nthe kernel said:", *(f"  {line}" for line in lines)]) if lines else ""

    def _records(self) -> Iterator[Record]:
        while self._fd is not None:
            try:
                yield parse(os.read(self._fd, _LARGEST_RECORD))
            except BrokenPipeError:
                continue  # the oldest were overwritten meanwhile; the next read goes on with what is left
            except (OSError, ValueError):
                return  # no more, or not permitted; in containers it may be something else altogether


@contextlib.contextmanager
def listening(device: str = DEVICE) -> Iterator[Listener]:
    """Remember where the kernel's messages end now; that is all that it costs where nothing fails."""
    with contextlib.ExitStack() as undo:
        listener = Listener(None)
        with contextlib.suppress(OSError):  # not permitted, or not there
            fd = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            undo.callback(os.close, fd)
            os.lseek(fd, 0, os.SEEK_END)
            listener = Listener(fd)
        yield listener
