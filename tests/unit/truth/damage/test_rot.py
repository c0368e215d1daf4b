"""Where bytes are flipped, and what is made of what follows; on a layer that notices and one that does not."""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings, strategies as st

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import Built, build
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext, CheckResult, Directory, Place
from pytest_fsstack.truth.damage import medium, rot, snapshot
from pytest_fsstack.truth.damage.medium import SECTOR, UNIT, Image
from pytest_fsstack.truth.damage.rot import Rotting
from pytest_fsstack.truth.damage.snapshot import Effect, Shape

SHAPE = Shape(large=2, size=16 * UNIT, small=4)
KNOWN = rot.sectors(SHAPE, 1)
CONTENTS = snapshot.files(SHAPE, 1)
MIB = 1 << 20


# -- where -------------------------------------------------------------------------------------------------------------


def image(content: bytes, start: int = 0) -> Image:
    return Image(dict(medium._units("", start, content)))


def drawn(strata: list[rot.Stratum], now: Image, count: int = 40) -> list[rot.Flip]:
    draw = random.Random(1)
    return [rot.draw_flip(draw, draw.choice(strata), now) for _ in range(count)]


@settings(max_examples=15)
@given(st.integers(0, 3 * UNIT // SECTOR), st.integers(0, 20))
def test_contents_are_found_wherever_they_begin_and_all_else_is_metadata(sector: int, unit: int) -> None:
    """As on ZFS, whose blocks begin at any sector."""
    start = sector * SECTOR + unit * UNIT
    device = bytearray(2 * MIB)
    device[start : start + SHAPE.size] = CONTENTS["large-0"]
    end = -(-(start + SHAPE.size) // UNIT) * UNIT
    device[end + UNIT : end + UNIT + 100] = b"m" * 100
    now = image(bytes(device))
    strata = rot.strata_of_device(Image(), now, now, KNOWN, [range(len(device))])
    places = [flip.unit.offset + flip.byte for flip in drawn(strata["contents"], now)]
    assert all(start <= place < start + SHAPE.size for place in places)
    places = [flip.unit.offset + flip.byte for flip in drawn(strata["metadata"], now)]
    assert all(end + UNIT <= place < end + UNIT + 100 for place in places)


def test_encrypted_contents_are_what_changes_in_one_piece() -> None:
    empty, before, now = bytearray(8 * MIB), bytearray(8 * MIB), bytearray(8 * MIB)
    for device in before, now:
        device[2 * MIB : 2 * MIB + SHAPE.size] = random.Random(id(device)).randbytes(SHAPE.size)
        device[3 * MIB : 3 * MIB + UNIT] = random.Random(id(device)).randbytes(UNIT)
        device[5 * MIB : 5 * MIB + UNIT] = b"k" * UNIT
    for device in empty, before, now:
        device[4 * MIB : 4 * MIB + SHAPE.size] = CONTENTS["large-1"]  # of another stack, which was given the same
        device[0:100] = b"h" * 100
    last = image(bytes(now))
    strata = rot.strata_of_device(image(bytes(empty)), image(bytes(before)), last, KNOWN, [range(8 * MIB)])
    assert {flip.unit.offset // MIB for flip in drawn(strata["contents"], last)} == {2}
    assert {flip.unit.offset // MIB for flip in drawn(strata["metadata"], last)} == {0, 3, 5}


@settings(max_examples=30)
@given(st.from_regex(r"[A-Z]{1,3}(/[a-z]{1,2}){0,2}", fullmatch=True), st.integers())
def test_a_name_is_one_letter_off_and_not_that_of_another_file(name: str, seed: int) -> None:
    parent, _, last = name.rpartition("/")
    taken = {name, *(f"{parent}/{letter}{last[1:]}".lstrip("/") for letter in "ABCDEFGH")}
    name_of_copy = rot.misnamed(random.Random(seed), name, taken)
    assert name_of_copy not in taken
    assert len(name_of_copy) == len(name)
    assert sum(one != other for one, other in zip(name_of_copy, name)) == 1
    assert name_of_copy.rpartition("/")[0] == parent


@given(st.binary(max_size=20), st.integers(0, 40))
def test_a_header_is_what_other_contents_leave_as_it_was(header: bytes, size: int) -> None:
    before, now = header + b"ab" * size, header + b"cb" * (size > 0) + b"xy" * (size - 1)
    assert rot.head(before, now) == len(header) + (2 if size > 1 else 2 * size)
    assert rot.head(header, header) == len(header)


# -- what follows ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keeping(Layer):
    """Keeps files as they are, in a directory of its own."""

    name: ClassVar = "keeping"
    stores: ClassVar = "in/here"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def create(self, below: Place, context: BuildContext) -> None:
        self._kept(below).mkdir(parents=True)
        (self._kept(below) / "configuration").write_text("of the layer")

    def _kept(self, below: Place) -> Path:
        return below.path / self.stores

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        yield Directory(self._kept(below))


@dataclass(frozen=True)
class Showing(Layer):
    """Keeps nothing of its own."""

    name: ClassVar = "showing"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        yield Directory(below.path)


@dataclass(frozen=True)
class Noticing(Keeping):
    """Refuses to open if anything is not as it was when it was closed, and has a checker that says so."""

    name: ClassVar = "noticing"

    def _sum(self, below: Place) -> str:
        units = medium.read(Directory(self._kept(below))).units
        return hashlib.sha256(repr(sorted(units.items())).encode()).hexdigest()

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        if (known := below.path / "sum").exists() and known.read_text() != self._sum(below):
            raise OSError("it is not as it was")
        yield Directory(self._kept(below))
        known.write_text(self._sum(below))

    def fsck(self, below: Place, context: BuildContext) -> CheckResult | None:
        clean = (below.path / "sum").read_text() == self._sum(below)
        return CheckResult(clean, "compared")


@dataclass(frozen=True)
class Mending(Keeping):
    """Its scrub puts everything back."""

    name: ClassVar = "mending"

    def scrub(self, place: Place, below: Place, context: BuildContext) -> CheckResult | None:
        if not (known := COPIES.get(place.path)):
            COPIES[place.path] = medium.read(place)
            return CheckResult(True, "copied")
        is_restored = medium.restore(place, known)
        return CheckResult(not is_restored.changed(known), "compared")


COPIES: dict[Path, Image] = {}


@dataclass(frozen=True)
class Checking(Showing):
    """Keeps nothing of its own. Its checker finds something from the second time on."""

    name: ClassVar = "checking"

    def fsck(self, below: Place, context: BuildContext) -> CheckResult | None:
        CHECKS[below.path] += 1
        return CheckResult(CHECKS[below.path] == 1, "counted")


CHECKS: Counter[Path] = Counter()


@contextlib.contextmanager
def standing(directory: Path, spec: str) -> Iterator[Built]:
    (directory / "device").mkdir()
    known = {layer.name: layer for layer in (Keeping, Showing, Noticing, Mending, Checking, Mistaken)}
    context = BuildContext(directory, Journal(directory / "journal", RealMachine()))
    with build(Stack.parse(spec, known), DirectoryDevice(directory / "device"), context) as built:
        yield built


@contextlib.contextmanager
def begun(directory: Path, spec: str, seed: int = 3) -> Iterator[Rotting]:
    with standing(directory, spec) as stack:
        rotting = Rotting(stack, SHAPE)
        rotting.begin(seed)
        yield rotting


@pytest.mark.parametrize("spec", ["showing", "keeping | showing"])
def test_a_layer_that_declares_no_files_of_its_own_leaves_them_to_what_is_below(tmp_path: Path, spec: str) -> None:
    with begun(tmp_path, spec) as rotting:
        tally = rotting.flips("contents", 4)
        assert (tally.flips, tally.wrong) == (4, 4)


@pytest.mark.parametrize("kind", ["contents", "metadata"])
def test_what_nobody_notices_is_wrong_or_missing(tmp_path: Path, kind: rot.Kind) -> None:
    with begun(tmp_path, "keeping") as rotting:
        tally = rotting.flips(kind, 8)
        names = 0 if kind == "contents" else 2
        assert (tally.flips, tally.wrong, tally.effects[Effect.MISSING]) == (8, 8 - names, names)
        assert (tally.checked, tally.corrected) == (0, 0)
        assert not tally.can_check
        assert len(tally.stories) == 8
        assert {story.partition(":")[0] for story in tally.stories} == (
            {"contents"} if kind == "contents" else {"header", "file of the empty stack", "other file", "name"}
        )


def test_what_a_layer_refuses_is_reported_and_its_checker_is_heard(tmp_path: Path) -> None:
    with begun(tmp_path, "noticing") as rotting:
        tally = rotting.flips("contents", 3)
        assert tally.effects == {Effect.REPORTED: 3}
        assert tally.checked == 3
        assert re.search(r"\bnoticing: it is not as it was; .*\bnoticing$", tally.stories[0])


def test_only_checkers_above_the_flipped_bytes_are_heard(tmp_path: Path) -> None:
    with begun(tmp_path, "checking | keeping | checking") as rotting:
        (story,) = rotting.flips("contents", 1).stories
        assert story.endswith("; found by a check of 3-checking")


def test_what_a_scrub_puts_back_is_corrected(tmp_path: Path) -> None:
    with begun(tmp_path, "mending") as rotting:
        tally = rotting.flips("contents", 3)
        assert (tally.wrong, tally.checked, tally.corrected) == (3, 3, 3)


def test_flips_are_those_of_the_seed(tmp_path: Path) -> None:
    messages = []
    for number, seed in enumerate((3, 3, 4)):
        (tmp_path / str(number)).mkdir()
        with begun(tmp_path / str(number), "keeping", seed) as rotting:
            messages.append(rotting.flips("contents", 4).stories)
    assert messages[0] == messages[1] != messages[2]


@dataclass(frozen=True)
class Mistaken(Keeping):
    """Declares a directory in which it stores nothing."""

    name: ClassVar = "mistaken"
    stores: ClassVar = "elsewhere"

    def _kept(self, below: Place) -> Path:
        return below.path / "here"


@pytest.mark.parametrize(
    ("spec", "digest", "words"),
    [
        ("keeping", "of other contents", r"^keeping: .*\blarge-0\b"),
        ("mistaken", "", r"^mistaken: .*\bcontents\b.*'elsewhere' \(Layer\.stores\)"),
    ],
)
def test_what_is_wrong_before_any_flip_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, digest: str, words: str
) -> None:
    if digest:
        monkeypatch.setattr(snapshot, "digest_of", lambda content: digest)
    with pytest.raises(AssertionError, match=words), begun(tmp_path, spec):
        pass


def test_what_cannot_be_undone_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with begun(tmp_path, "keeping") as rotting:
        monkeypatch.setattr(medium, "restore", lambda place, image: image)
        with pytest.raises(AssertionError, match=r"^keeping: .*: large-"):
            rotting.flips("contents", 2)


def test_findings_are_taken_from_effects_and_not_from_names_of_files() -> None:
    flip = rot.Flip("contents", medium.Unit("a: wrong: b", 0))
    tally = rot.Tally([rot.FlipResult(flip, Effect.REPORTED, "it failed"), rot.FlipResult(flip, Effect.WRONG, "as 1")])
    (finding,) = tally.findings(Stack.parse("noticing", {"noticing": Noticing}), "contents")
    assert finding.text.endswith(": wrong: as 1")
    assert (tally.flips, tally.wrong, tally.effects[Effect.REPORTED]) == (2, 1, 1)
