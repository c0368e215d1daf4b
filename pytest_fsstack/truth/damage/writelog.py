"""The log of a recorded device, and the image of the device that a power cut at some place of the log leaves.

The model of a cut:

- Writes before the last completed flush are complete.
- Each later write may be complete, missing or torn, in any order. A torn write has some of its sectors, of 512 or 4096
  bytes. Each sector is complete or missing.
- A disk without a cache loses only writes in its queue. So some cuts lose only some of the last writes.
- Of two writes to one sector, the later one wins if both are there. An older state is only seen if the later write is
  missing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from pytest_fsstack.layers import recorder

#: Bytes of a page of an image. No device's sectors are larger.
PAGE = 4096
_ZEROS = bytes(PAGE)
#: The probability that a write that is not missing is torn.
_TORN = 0.25
#: Writes in the queue of a disk (NCQ).
_QUEUE = 32
#: The probability that a write is there, and the number of last writes that can be missing (0: all since the flush).
_FATES = ((0.0, 0), (0.5, 0), (1.0, 0), (0.9, 0), (0.0, _QUEUE), (0.5, _QUEUE))


class Kind(Enum):
    """The kind of an entry of a log."""

    WRITE = "write"
    ZERO = "zero"
    FLUSH = "flush"
    MARK = "mark"


@dataclass(frozen=True)
class Entry:
    """An entry of a log. A write has `data`, a mark has `mark`. `offset` and `length` are in bytes."""

    kind: Kind
    offset: int = 0
    length: int = 0
    data: bytes = field(default=b"", repr=False)
    mark: str = ""


class LogReader:
    """A reader of the log of a device that is still being recorded. Raises `ValueError` if the file is not a log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb") as file:
            head = file.read(recorder.SUPER.size)
        if len(head) < recorder.SUPER.size or recorder.SUPER.unpack(head)[:2] != (recorder.MAGIC, recorder.VERSION):
            raise ValueError(f"{path} is not a log of writes")
        #: Bytes of a sector of the device. A sector is never torn.
        self.sector: int = recorder.SUPER.unpack(head)[3]
        self._entries, self._position = 0, self.sector

    def new(self) -> list[Entry]:
        """Return the entries since the last call. Raises `ValueError` if the log is truncated."""
        entries: list[Entry] = []
        with self._path.open("rb") as file:
            count = recorder.SUPER.unpack(file.read(recorder.SUPER.size))[2]
            file.seek(self._position)
            while self._entries + len(entries) < count:
                head = file.read(self.sector)
                if len(head) < self.sector:
                    raise ValueError(f"{self._path} ends after {self._entries + len(entries)} of {count} entries")
                first, sectors, flags, marked = recorder.ENTRY.unpack_from(head)
                offset, length = first * self.sector, sectors * self.sector
                if flags & recorder.IS_MARK:
                    text = head[recorder.ENTRY.size : recorder.ENTRY.size + marked]
                    entries.append(Entry(Kind.MARK, mark=text.decode(errors="replace")))
                elif flags & recorder.FLUSH:
                    entries.append(Entry(Kind.FLUSH))
                elif flags & recorder.DISCARD:
                    entries.append(Entry(Kind.ZERO, offset, length))
                else:
                    entries.append(Entry(Kind.WRITE, offset, length, file.read(length)))
                    if len(entries[-1].data) < length:
                        raise ValueError(
                            f"{self._path} ends after {self._entries + len(entries) - 1} of {count} entries"
                        )
            self._position = file.tell()
        self._entries += len(entries)
        return entries


class Image:
    """The contents of a device, in memory. Pages that are not stored are zero."""

    def __init__(self, pages: dict[int, bytes] | None = None) -> None:
        self._pages = {} if pages is None else pages

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Image) and self._pages == other._pages

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Image:
        return Image(dict(self._pages))

    def write(self, offset: int, data: bytes) -> None:
        position = 0
        while position < len(data):
            page, start = divmod(offset + position, PAGE)
            part = data[position : position + PAGE - start]
            if len(part) < PAGE:
                old = self._pages.get(page, _ZEROS)
                new = old[:start] + part + old[start + len(part) :]
            else:
                new = part
            self._set(page, new)
            position += len(part)

    def zero(self, offset: int, length: int) -> None:
        end = offset + length
        for page in self._within(-(-offset // PAGE), end // PAGE):
            del self._pages[page]
        for page in {offset // PAGE, end // PAGE}:
            start, stop = max(offset, page * PAGE), min(end, (page + 1) * PAGE)
            if 0 < stop - start < PAGE:
                self.write(start, bytes(stop - start))

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply all writes and zeroed ranges."""
        for entry in entries:
            if entry.kind is Kind.WRITE:
                self.write(entry.offset, entry.data)
            elif entry.kind is Kind.ZERO:
                self.zero(entry.offset, entry.length)

    def read(self, offset: int, length: int) -> bytes:
        first, last = offset // PAGE, -(-(offset + length) // PAGE)
        whole = b"".join(self._pages.get(page, _ZEROS) for page in range(first, last))
        return whole[offset - first * PAGE :][:length]

    def towards(self, other: Image) -> Iterator[tuple[int, bytes]]:
        """Yield the writes (offset, bytes) that turn this image into the other one."""
        differing = sorted(
            page
            for page in self._pages.keys() | other._pages.keys()
            if self._pages.get(page, _ZEROS) != other._pages.get(page, _ZEROS)
        )
        run: list[int] = []
        for page in differing:
            if run and (page != run[-1] + 1 or len(run) * PAGE >= 1 << 20):
                yield other._extent(run)
                run = []
            run.append(page)
        if run:
            yield other._extent(run)

    def _extent(self, run: Sequence[int]) -> tuple[int, bytes]:
        return run[0] * PAGE, b"".join(self._pages.get(page, _ZEROS) for page in run)

    def _within(self, first: int, end: int) -> list[int]:
        if end - first < len(self._pages):
            return [page for page in range(first, end) if page in self._pages]
        return [page for page in self._pages if first <= page < end]

    def _set(self, page: int, content: bytes) -> None:
        if content == _ZEROS:
            self._pages.pop(page, None)
        else:
            self._pages[page] = content


@dataclass(frozen=True)
class Cut:
    """A power cut after the first `entries` entries of a log.

    `keep_probability` applies to each write after the last flush: 0 loses all, 1 keeps all of them untorn. With a
    `queue`, only that many of the last writes can be missing. Writes are torn at `tear` bytes, or at the sectors of the
    device if these are larger. The seed decides the rest.
    """

    entries: int
    keep_probability: float
    seed: str
    queue: int = 0
    tear: int = 512


def cuts_between(
    first: int, last: int, count: int, seed: str, moments: Sequence[int] = (), every: int = 2
) -> list[Cut]:
    """Draw `count` cuts, spread in order over the entries `first` to `last` of a log.

    Of six cuts, one keeps no unflushed write, one keeps all, two keep some, and two lose writes of the queue only. Of
    `every` cuts, one is at one of the `moments`, numbers of entries after which a sync has returned. It keeps no
    unflushed write. The last cut is at the end.
    """
    draw = random.Random(seed)
    fates = [*_FATES]
    cuts = []
    for number in range(count):
        if number % len(fates) == 0:
            draw.shuffle(fates)
        start, end = (first + (last - first) * edge // count for edge in (number, number + 1))
        probability, queue = fates[number % len(fates)]
        place = draw.randint(start, max(start, end - 1)) if number < count - 1 else end
        near = [moment for moment in moments if start <= moment < end]
        if near and number % every == 0 and number < count - 1:
            place, probability, queue = draw.choice(near), 0.0, 0
        cuts.append(Cut(place, probability, f"{seed}/{number}", queue, draw.choice((512, PAGE))))
    return cuts


def left_by(
    cuts: Iterable[Cut],
    entries: Sequence[Entry],
    sector: int,
    before: Image | None = None,
    untorn: range = range(0),
) -> Iterator[tuple[Cut, Image]]:
    """Yield the image after each cut, in order. The device was `before` when the log began, by default zero.

    A write to the bytes `untorn` is not torn between them.
    """
    durable, since = before.copy() if before else Image(), 0
    position = 0
    for cut in cuts:
        for index in range(position, cut.entries):
            if entries[index].kind is Kind.FLUSH:
                durable.apply(entries[since:index])
                since = index
        position = cut.entries
        image = durable.copy()
        image.apply(_there(entries[since : cut.entries], cut, sector, untorn))
        yield cut, image


def _there(unflushed: Sequence[Entry], cut: Cut, sector: int, untorn: range) -> Iterator[Entry]:
    """Yield the writes that are there after the cut, some of them torn."""
    draw, tear = random.Random(cut.seed), max(cut.tear, sector)
    writes = [entry for entry in unflushed if entry.kind in (Kind.WRITE, Kind.ZERO)]
    arrived = max(0, len(writes) - cut.queue) if cut.queue else 0
    yield from writes[:arrived]
    for entry in writes[arrived:]:
        if draw.random() >= cut.keep_probability:
            continue
        if cut.keep_probability < 1 and entry.length > tear and draw.random() < _TORN:
            yield from _torn(entry, tear, draw, untorn)
        else:
            yield entry


def _torn(entry: Entry, sector: int, draw: random.Random, untorn: range) -> Iterator[Entry]:
    """Yield some sectors of a write: a beginning of it, or any. It may begin and end within a sector."""
    begin, end = entry.offset, entry.offset + entry.length
    sectors = range(begin // sector * sector + sector, end, sector)
    edges = [begin, *(edge for edge in sectors if edge not in untorn[1:]), end]
    parts = [
        Entry(entry.kind, start, stop - start, entry.data[start - begin : stop - begin])
        for start, stop in itertools.pairwise(edges)
    ]
    if entry.kind is Kind.ZERO or draw.random() < 0.5:
        yield from parts[: draw.randrange(len(parts))]
    else:
        yield from (part for part in parts if draw.random() < 0.5)
