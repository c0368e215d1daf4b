"""Whole media: read, and restored exactly."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.places import Block, Directory, Pool
from pytest_fsstack.truth.damage import medium
from pytest_fsstack.truth.damage.medium import UNIT, Image, Unit

NAMES = st.sampled_from(["a", "b", "sub/c", "sub/d", "sub/deep/e"])
CONTENTS = st.integers(0, 3 * UNIT).map(lambda size: bytes(number % 251 for number in range(size)))
TREES = st.dictionaries(NAMES, CONTENTS, max_size=4)


def write(top: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
        os.utime(top / name, ns=(len(content), 1000 + len(content)))


@settings(max_examples=40)
@given(TREES, TREES, st.sets(NAMES))
def test_a_directory_is_put_back_whatever_was_done_to_it(
    before: dict[str, bytes], written: dict[str, bytes], removed: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as made:
        top, place = Path(made), Directory(Path(made))
        write(top, before)
        (top / "link").symlink_to("a")
        image = medium.read(place)
        write(top, written)
        for name in removed:
            (top / name).unlink(missing_ok=True)
        (top / "link").unlink()
        altered = medium.read(place)
        assert medium.restore(place, image).units == altered.units
        again = medium.read(place)
        assert (again.units, again.links) == (image.units, image.links)
        assert {name: times[1] for name, times in again.times.items()} == {
            name: times[1] for name, times in image.times.items()
        }


@given(st.lists(st.tuples(st.integers(0, 15), st.binary(min_size=1, max_size=9)), max_size=6))
def test_the_units_of_a_device_are_all_that_is_not_zero(pieces: list[tuple[int, bytes]]) -> None:
    content = bytearray(16 * UNIT)
    for number, piece in pieces:
        content[number * UNIT : number * UNIT + len(piece)] = piece
    units = dict(medium._units("", 1 << 20, bytes(content)))
    again = bytearray(16 * UNIT)
    for unit, held in units.items():
        assert any(held)
        again[unit.offset - (1 << 20) : unit.offset - (1 << 20) + UNIT] = held
    assert again == content


def test_several_devices_are_one_after_the_other(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "ab"]
    contents = [bytes(UNIT) + b"a" * UNIT, b"b" * UNIT + bytes(UNIT)]
    for path, content in zip(paths, contents):
        path.write_bytes(content)
    pool = Pool.of([Block(path, lambda: None, RealMachine()) for path in paths])
    image = medium.read(pool)
    assert image.units == {Unit("", UNIT): b"a" * UNIT, Unit("", 2 * UNIT): b"b" * UNIT}
    medium.put(pool, {Unit("", 3 * UNIT): b"c" * UNIT})
    assert [path.read_bytes() for path in paths] == [contents[0], b"b" * UNIT + b"c" * UNIT]
    medium.restore(pool, image)
    assert [path.read_bytes() for path in paths] == contents


def test_what_is_gone_has_changed_too() -> None:
    one, other = Unit("", 0), Unit("", UNIT)
    before, now = Image({one: b"a", other: b"b"}), Image({one: b"a"})
    assert now.changed(before) == {other}
    assert before.changed(now) == {other}


@given(st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 12))))
def test_runs_are_what_lies_together(places: set[tuple[str, int]]) -> None:
    units = {Unit(file, number * UNIT) for file, number in places}
    runs = medium.runs(units)
    assert [unit for run in runs for unit in run] == sorted(units)
    for run in runs:
        assert {later.offset - unit.offset for unit, later in itertools.pairwise(run)} <= {UNIT}
        assert len({unit.file for unit in run}) == 1
    for run, following in itertools.pairwise(runs):
        assert (run[-1].file, run[-1].offset + UNIT) != (following[0].file, following[0].offset)
