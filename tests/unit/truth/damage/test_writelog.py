"""The log of a recorded device: what is written into it is read from it, and a cut leaves what it may."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pytest_fsstack.layers.recorder import DISCARD, FLUSH, IS_MARK, Log
from pytest_fsstack.truth.damage.writelog import Cut, Entry, Image, Kind, LogReader, cuts_between, left_by

SECTOR = 512
#: Sectors of the devices here: more than a page, so that writes cross its border.
SECTORS = 20

sizes = st.integers(0, SECTORS - 1).flatmap(
    lambda first: st.tuples(st.just(first), st.integers(1, min(10, SECTORS - first)))
)


def write(first: int, count: int, text: bytes) -> Entry:
    """Each sector holds which write it is of, and which of its sectors."""
    data = b"".join((text + b"%d;" % number).ljust(SECTOR, b".") for number in range(count))
    return Entry(Kind.WRITE, first * SECTOR, count * SECTOR, data)


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    entries: list[Entry] = []
    for number in range(draw(st.integers(0, 12))):
        first, count = draw(sizes)
        kind = draw(st.sampled_from(Kind))
        if kind is Kind.WRITE:
            entries.append(write(first, count, b"write %d " % number))
        elif kind is Kind.ZERO:
            entries.append(Entry(kind, first * SECTOR, count * SECTOR))
        else:
            entries.append(Entry(kind, mark=str(number)) if kind is Kind.MARK else Entry(kind))
    return entries


def logged(log: Log, entries: Sequence[Entry]) -> None:
    flags = {Kind.WRITE: 0, Kind.ZERO: DISCARD, Kind.FLUSH: FLUSH, Kind.MARK: IS_MARK}
    for entry in entries:
        log.add(flags[entry.kind], entry.offset, entry.length, entry.data, entry.mark.encode())


def played(entries: Sequence[Entry]) -> bytes:
    """The device after all of them, by the simplest means."""
    device = bytearray(SECTORS * SECTOR)
    for entry in entries:
        if entry.kind in (Kind.WRITE, Kind.ZERO):
            device[entry.offset : entry.offset + entry.length] = entry.data or bytes(entry.length)
    return bytes(device)


def contents(image: Image) -> bytes:
    return image.read(0, SECTORS * SECTOR)


@settings(max_examples=50)
@given(logs(), logs(), st.sampled_from([512, 4096]))
def test_what_is_logged_is_read_again_also_what_is_added_later(
    before: list[Entry], after: list[Entry], sector: int
) -> None:
    def whole(entries: list[Entry]) -> list[Entry]:
        if sector == SECTOR:
            return entries
        times = sector // SECTOR
        return [
            Entry(entry.kind, entry.offset * times, entry.length * times, entry.data * times, entry.mark)
            for entry in entries
        ]

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "log"
        logged(Log(str(path), sector), whole(before))
        reader = LogReader(path)
        assert reader.sector == sector
        assert reader.new() == whole(before)
        assert reader.new() == []
        logged(Log(str(path), 512), whole(after))
        assert reader.new() == whole(after)


def test_a_log_is_in_the_format_of_dm_log_writes(tmp_path: Path) -> None:
    logged(Log(str(tmp_path / "log"), 512), [write(3, 1, b"x"), Entry(Kind.MARK, mark="here"), Entry(Kind.FLUSH)])
    log = (tmp_path / "log").read_bytes()
    numbers = [int.from_bytes(log[at : at + 8], "little") for at in range(0, 24, 8)]
    assert numbers == [0x6A736677736872, 1, 3]
    assert int.from_bytes(log[24:28], "little") == 512
    entries = [
        [int.from_bytes(log[at + offset : at + offset + 8], "little") for offset in range(0, 32, 8)]
        for at in (512, 1536, 2048)
    ]
    assert entries == [[3, 1, 0, 0], [0, 0, 8, 4], [0, 0, 1, 0]]
    assert log[1024:1026] == b"x0"
    assert log[1536 + 32 : 1536 + 40] == b"here\0\0\0\0"
    assert len(log) == 2560


def test_what_is_no_log_and_a_log_that_is_cut_off_are_told(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no log")
    with pytest.raises(ValueError, match=f"{tmp_path}/text"):
        LogReader(tmp_path / "text")
    path = tmp_path / "log"
    logged(Log(str(path), 512), [Entry(Kind.FLUSH), write(0, 2, b"")])
    for length in (512 * 4, 512 * 2):
        with path.open("r+b") as file:
            file.truncate(length)
        with pytest.raises(ValueError, match=rf"{path} .*\b1 .*\b2 entries"):
            LogReader(path).new()


def test_what_are_no_whole_sectors_is_refused(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "log"), 512)
    for wrong in ({"offset": 1}, {"length": 511}, {"mark": bytes(500)}):
        with pytest.raises(OSError, match="Invalid argument"):
            log.add(0, **wrong)
    assert LogReader(tmp_path / "log").new() == []


@settings(max_examples=50)
@given(logs())
def test_an_image_is_the_device_after_all_that_was_written(entries: list[Entry]) -> None:
    image = Image()
    image.apply(entries)
    assert contents(image) == played(entries)


@settings(max_examples=50)
@given(logs(), logs())
def test_what_differs_leads_from_one_image_to_the_other_and_is_no_more_than_that(
    some: list[Entry], others: list[Entry]
) -> None:
    one, other = Image(), Image()
    one.apply(some)
    other.apply(others)
    device = bytearray(contents(one).ljust(1 << 14, b"\0"))
    for offset, data in one.towards(other):
        assert offset % 4096 == len(data) % 4096 == 0
        assert device[offset : offset + len(data)] != data
        device[offset : offset + len(data)] = data
    assert bytes(device[: SECTORS * SECTOR]) == contents(other)
    assert list(other.towards(other.copy())) == []
    assert other == other.copy()
    assert (one == other) is (contents(one) == contents(other))
    assert contents(one) == played(some)


def allowed(entries: Sequence[Entry], cut: int) -> Iterator[set[bytes]]:
    """For each sector, all that a cut may leave in it, by brute force."""
    flushed = max((number for number, entry in enumerate(entries[:cut]) if entry.kind is Kind.FLUSH), default=0)
    before = played(entries[:flushed])
    for start in range(0, SECTORS * SECTOR, SECTOR):
        contents_of_sector = {before[start : start + SECTOR]}
        for entry in entries[flushed:cut]:
            if entry.kind in (Kind.WRITE, Kind.ZERO) and entry.offset <= start < entry.offset + entry.length:
                data = entry.data or bytes(entry.length)
                contents_of_sector.add(data[start - entry.offset :][:SECTOR])
        yield contents_of_sector


@settings(max_examples=50)
@given(logs(), st.data(), st.integers())
def test_a_cut_leaves_in_each_sector_what_was_flushed_or_was_written_to_it_since(
    entries: list[Entry], data: st.DataObject, seed: int
) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(entries)), min_size=1, max_size=4)))
    cuts = [Cut(place, data.draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])), f"{seed}/{place}") for place in places]
    for (cut, image), meant in zip(left_by(cuts, entries, SECTOR), cuts, strict=True):
        assert cut == meant
        content = contents(image)
        sectors = [content[start : start + SECTOR] for start in range(0, len(content), SECTOR)]
        assert all(sector in states for sector, states in zip(sectors, allowed(entries, cut.entries), strict=True))
        if cut.keep_probability == 1:
            assert content == played(entries[: cut.entries])
        if cut.keep_probability == 0:
            flushed = max(
                (index for index, entry in enumerate(entries[: cut.entries]) if entry.kind is Kind.FLUSH), default=0
            )
            assert content == played(entries[:flushed])


def test_all_that_may_happen_to_two_writes_does() -> None:
    entries = [write(0, 1, b"old"), Entry(Kind.FLUSH), write(0, 2, b"a"), write(1, 2, b"b")]
    seen = {
        contents(image)[: 3 * SECTOR]
        for seed in range(8000)
        for _, image in left_by([Cut(4, 0.5, str(seed))], entries, SECTOR)
    }
    texts = itertools.product([b"old0;", b"a0;"], [b"", b"a1;", b"b0;"], [b"", b"b1;"])
    # Also those in which a write is there in part, and the later one is not where both wrote.
    assert seen == {b"".join(text.ljust(SECTOR, b"." if text else b"\0") for text in sectors) for sectors in texts}


@settings(max_examples=50)
@given(logs(), st.integers(1, 8), st.integers())
def test_a_disk_without_a_cache_loses_no_more_than_its_queue(entries: list[Entry], queue: int, seed: int) -> None:
    ((_, image),) = left_by([Cut(len(entries), 0.0, str(seed), queue)], entries, SECTOR)
    flushed = max((index for index, each in enumerate(entries) if each.kind is Kind.FLUSH), default=0)
    unflushed = [entry for entry in entries[flushed:] if entry.kind in (Kind.WRITE, Kind.ZERO)]
    there = unflushed[: max(0, len(unflushed) - queue)]
    assert contents(image) == played([*entries[:flushed], *there])


def test_a_write_tears_at_the_sectors_of_the_disk() -> None:
    entries = [write(4, 16, b"w")]
    for tear, pieces in ((512, 16), (4096, 3)):
        contents_after = {
            contents(image)
            for seed in range(400)
            for _, image in left_by([Cut(1, 0.9, str(seed), tear=tear)], entries, SECTOR)
        }
        borders = {at for image in contents_after for at in range(5, 20) if sector(image, at - 1) != sector(image, at)}
        assert len(contents_after) > pieces
        assert all((at * SECTOR) % tear == 0 for at in borders)


def test_a_write_is_not_torn_within_the_superblock() -> None:
    entries = [write(0, 8, b"w")]
    untorn = range(2 * SECTOR, 4 * SECTOR)
    contents_after = {
        tuple(sector(contents(image), at) for at in range(8))
        for seed in range(400)
        for _, image in left_by([Cut(1, 0.9, str(seed))], entries, SECTOR, untorn=untorn)
    }
    assert {sectors[2] for sectors in contents_after} == {True, False}
    assert all(sectors[2] == sectors[3] for sectors in contents_after)
    assert {sectors[1:3] for sectors in contents_after} > {(True, False), (False, True)}
    assert {sectors[3:5] for sectors in contents_after} > {(True, False), (False, True)}


def sector(image: bytes, number: int) -> bool:
    """Whether a sector is there."""
    return any(image[number * SECTOR :][:SECTOR])


@settings(max_examples=50)
@given(logs(), logs())
def test_a_cut_of_what_follows_begins_with_the_device_as_it_was(before: list[Entry], after: list[Entry]) -> None:
    start = Image()
    start.apply(before)
    ((_, image),) = left_by([Cut(len(after), 1.0, "")], after, SECTOR, start)
    assert contents(image) == played([*before, *after])
    assert contents(start) == played(before)


@settings(max_examples=50)
@given(st.integers(0, 50), st.integers(1, 200), st.integers(1, 40), st.integers())
def test_cuts_are_spread_in_order_with_one_at_the_end(first: int, length: int, count: int, seed: int) -> None:
    cuts = cuts_between(first, first + length, count, str(seed))
    assert cuts == cuts_between(first, first + length, count, str(seed))
    places = [cut.entries for cut in cuts]
    assert places == sorted(places)
    assert first <= places[0]
    assert places[-1] == first + length
    assert len({cut.seed for cut in cuts}) == count
    if count % 6 == 0:
        assert [(cut.keep_probability, cut.queue > 0) for cut in cuts].count((0.0, False)) == count // 6
        assert [cut.keep_probability for cut in cuts].count(1.0) == count // 6
        assert sum(cut.queue > 0 for cut in cuts) == count // 3


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(2, 40), st.sets(st.integers(0, 199)), st.integers(1, 3), st.integers())
def test_some_cuts_follow_a_sync_and_keep_nothing_else(
    length: int, count: int, moments: set[int], every: int, seed: int
) -> None:
    cuts = cuts_between(0, length, count, str(seed), sorted(moments), every)
    assert [cut.entries for cut in cuts] == sorted(cut.entries for cut in cuts)
    assert cuts[-1].entries == length
    for number, cut in enumerate(cuts[:-1]):
        near = moments & set(range(length * number // count, length * (number + 1) // count))
        if near and number % every == 0:
            assert (cut.entries in near, cut.keep_probability, cut.queue) == (True, 0.0, 0)
