"""Bit rot: alter one stored byte of a stack at a time, and see which layer notices.

    rotting = Rotting(fsstack, Shape(large=4, size=1 << 20, small=20))
    rotting.begin(seed)                         write files and find out where they are stored
    tally = rotting.flips("contents", 20)       flip 20 bytes, each alone: mount, read all, scrub, check, undo

The altered bytes are on the device. If a layer `stores` files of its own (`ext4 | gocryptfs`), they are in these files
or in their names.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pytest_fsstack.layers import images
from pytest_fsstack.machine import signals
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.records.findings import Finding
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, CheckResult, Place
from pytest_fsstack.truth.damage import medium, snapshot
from pytest_fsstack.truth.damage.medium import SECTOR, UNIT, Image, Unit
from pytest_fsstack.truth.damage.snapshot import Effect, Shape as Shape, Snapshot

#: The target of a flip: contents of files, or all other bytes that the stack has stored.
Kind = Literal["contents", "metadata"]

#: Units of the shortest run that is taken for encrypted contents. Only contents are stored in such long runs.
_RUN = 16
#: Bytes at both ends of a device in which layers keep headers and labels.
_ENDS = 1 << 20
#: Seconds that reading all files may take.
_PATIENCE = 120.0
#: The letters of encrypted names.
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Stratum:
    """Similar units, in groups. Each group is equally likely to be drawn. `among` has the bytes of a unit to draw."""

    what: str
    groups: Sequence[Sequence[Unit]]
    among: Callable[[Unit], Sequence[int]]


@dataclass(frozen=True)
class Flip:
    """A byte of a unit and the mask for its exclusive or, or a file that is `renamed`."""

    what: str
    unit: Unit
    byte: int = 0
    mask: int = 0
    renamed: str = ""

    def __str__(self) -> str:
        if self.renamed:
            return f"{self.what}: {self.unit.file} renamed to {self.renamed}"
        return f"{self.what}: byte {self.byte} of {self.unit}, ^ {self.mask:#04x}"


@dataclass(frozen=True)
class FlipResult:
    """A flip with its effect and the reason, and the layers whose scrub or checker reported it."""

    flip: Flip
    effect: Effect
    why: str
    layers: Sequence[str] = ()

    def __str__(self) -> str:
        detection = f"; found by a check of {', '.join(self.layers)}" if self.layers else ""
        return f"{self.flip}: {self.effect.value}: {self.why}{detection}"


@dataclass
class Tally:
    """The results of flips."""

    results: list[FlipResult] = field(default_factory=list)
    #: Flips whose byte was right again after the scrub and the check.
    corrected: int = 0
    #: Whether the stack has a scrub or a checker.
    can_check: bool = False

    @property
    def flips(self) -> int:
        return len(self.results)

    @property
    def effects(self) -> Counter[Effect]:
        return Counter(result.effect for result in self.results)

    @property
    def checked(self) -> int:
        """Return the number of flips that a scrub or a checker reported."""
        return sum(bool(result.layers) for result in self.results)

    @property
    def stories(self) -> list[str]:
        """Return a line for each flip."""
        return list(map(str, self.results))

    @property
    def wrong(self) -> int:
        return self.effects[Effect.WRONG]

    def findings(self, stack: Stack, kind: Kind) -> list[Finding]:
        """Return the broken promises of the stack, each with the flip that breaks it. The kind is of all flips.

        Checksums promise that wrong data are reported. If a layer also protects names, files that are missing or have
        wrong names must be reported.
        """
        effects = [] if stack.lacks(Limit.CHECKSUMS) else [Effect.WRONG]
        effects += [Effect.MISSING] if effects and not stack.lacks(Limit.NAME_CHECKSUMS) else []
        return [
            Finding(f"{kind}: {effect.value}", str(result))
            for effect in effects
            for result in self.results
            if result.effect is effect
        ]

    def record(self, timed: Timed) -> None:
        """Add the figures to the sample, and keep the line of each flip."""
        timed.record("flips", self.flips, better="higher", exact=True)
        timed.record("reported", self.effects[Effect.REPORTED], better="higher", exact=True)
        timed.record("wrong", self.wrong, exact=True)
        timed.record("missing", self.effects[Effect.MISSING], exact=True)
        timed.record("unnoticed", self.effects[Effect.UNNOTICED], exact=True)
        if self.can_check:
            timed.record("checked", self.checked, better="higher", exact=True)
        timed.record("corrected", self.corrected, better="higher", exact=True)
        timed.keep("flips", self.stories)


class Rotting:
    """A stack whose bytes are flipped."""

    def __init__(self, stack: Built, shape: Shape) -> None:
        self.stack, self.shape = stack, shape
        #: The name of the lowest layer that stores files of its own. None if the bytes of the device are flipped.
        storing = next((layer for layer in stack.stack.layers if layer.stores), None)
        self._layer = storing.name if storing else None
        self._stores = storing.stores if storing else ""
        self._seed: int | None = None
        self._strata: dict[Kind, list[Stratum]] = {}
        self._image = Image()
        self._written = Snapshot()
        #: The layers whose checker or scrub reports nothing before the first flip.
        self._checkers: set[str] = set()
        self._scrubs: set[str] = set()
        #: The last flip, until it is undone.
        self._last: tuple[Flip, Tally] | None = None

    # -- before the first flip -----------------------------------------------------------------------------------------

    def begin(self, seed: int) -> None:
        """Write files and find out where they are stored. Further calls do nothing.

        Raises `BuildError`, and AssertionError if nothing was found to flip.
        """
        if self._seed is not None:
            return
        stack, shape = self.stack, self.shape
        if not stack.path.is_dir():
            raise AssertionError(f"{stack.spec}: nothing of its files was found that could be flipped")
        with stack.taken_down(self._layer) as place:
            empty = medium.read(place)
        # The device may still hold the files of another stack. With other contents, they are not found here.
        contents = f"{seed} {stack.spec}"
        images.fill(stack, lambda top: snapshot.plant(top, shape, contents))
        stack.sync()
        with stack.taken_down(self._layer) as place:
            before = medium.read(place)
        if not find_sectors(before.since(empty), sectors(shape, contents).whole):
            contents += " again"
            images.fill(stack, lambda top: snapshot.overwrite(top, shape, contents))
            stack.sync()
        sound = stack.fsck()
        self._checkers = {name for name, checked in sound.items() if checked.clean}
        if self._layer is not None:
            names = stack.stack.layer_names
            self._checkers &= set(names[names.index(self._layer) :])
        self._written = self._look()
        self._check_written(contents)
        self._scrubs = {name for name, checked in stack.scrub().items() if checked.clean}
        with stack.taken_down(self._layer) as place:
            self._image = medium.read(place)
        known_sectors = sectors(shape, contents)
        if isinstance(place, Block):
            self._strata = strata_of_device(
                empty, before, self._image, known_sectors, [span for _, span in medium.spans(place)]
            )
        else:
            self._strata = strata_of_files(empty, before, self._image, self._stores)
        for kind, strata in self._strata.items():
            if not strata:
                where = f" in {self._layer}'s directory {self._stores!r} (Layer.stores)" if self._layer else ""
                raise AssertionError(f"{stack.spec}: nothing of its {kind} was found{where} that could be flipped")
        self._seed = seed

    def _check_written(self, seed: str) -> None:
        for name, content in list(snapshot.files(self.shape, seed).items())[: self.shape.large]:
            entry = self._written.entries.get(name)
            if entry is None or entry.contents != snapshot.digest_of(content):
                raise AssertionError(f"{self.stack.spec}: before any flip, {name} is not as it was written")

    # -- flips ---------------------------------------------------------------------------------------------------------

    def flips(self, kind: Kind, count: int) -> Tally:
        """Flip bytes, one at a time. Raises `BuildError` if the stack does not open after all flips are undone."""
        draw, tally = random.Random(f"{self._seed} {kind}"), Tally(can_check=bool(self._scrubs | self._checkers))
        strata = draw.sample(self._strata[kind], len(self._strata[kind]))
        for number in range(count):
            flip = draw_flip(draw, strata[number % len(strata)], self._image)
            effect, why = self._flip(flip, tally)
            tally.results.append(FlipResult(flip, effect, why, sorted(set(self._found()))))
        with self.stack.taken_down(self._layer) as place:
            self._undo(place)
        effect, why = snapshot.judge(self._written.entries, self._look())
        if effect is not Effect.UNNOTICED:
            raise AssertionError(f"{self.stack.spec}: with all flips undone, it is not as it was written: {why}")
        return tally

    def _flip(self, flip: Flip, tally: Tally) -> tuple[Effect, str]:
        flipped = False
        try:
            with self.stack.taken_down(self._layer) as place:
                self._undo(place)
                self._last = flip, tally
                apply(place, flip, self._image)
                flipped = True
        except BuildError as error:
            if not flipped:
                raise
            # The story begins at the layer, without the text of the stack and the device.
            return Effect.REPORTED, f"layer {str(error).partition(': layer ')[2]}".partition("\n")[0]
        try:
            return snapshot.judge(self._written.entries, self._look())
        except TimeoutError as error:
            return Effect.REPORTED, str(error)

    def _found(self) -> list[str]:
        """Scrub the stack if it is open, and check it. Return the layers that report an error."""
        wrong: list[str] = []
        checks: dict[str, CheckResult] = {}
        if self._scrubs and self.stack.is_open:
            try:
                checks = self.stack.scrub()
            except BuildError as error:
                wrong.append(str(error))
            wrong += [name for name, checked in checks.items() if name in self._scrubs and not checked.clean]
        if self._checkers:
            try:
                checks = self.stack.fsck()
            except BuildError as error:
                checks = error.checked
            wrong += [name for name, checked in checks.items() if name in self._checkers and not checked.clean]
        return wrong

    def _undo(self, place: Place) -> None:
        """Undo the last flip, and everything that the stack wrote after it."""
        flip, tally = self._last or (None, None)
        if flip and flip.renamed and (place.path / flip.renamed).exists():
            (place.path / flip.renamed).rename(place.path / flip.unit.file)
        now = medium.restore(place, self._image)
        if flip and tally and not flip.renamed:
            healed = now.units.get(flip.unit, bytes(UNIT))[flip.byte : flip.byte + 1]
            tally.corrected += healed == self._image.units[flip.unit][flip.byte : flip.byte + 1]
        self._last = None

    def _look(self) -> Snapshot:
        limit = 4 * (self.shape.large + self.shape.small) + 1000
        with signals.limited("reading all files", _PATIENCE):
            return snapshot.look(self.stack.path, most=limit, longest=self.shape.size + 4096)


# -- where to flip -----------------------------------------------------------------------------------------------------


class Sectors(NamedTuple):
    """The sectors of files: those that contents fill, and the last ones, which are padded with zeros."""

    whole: set[bytes]
    last: set[bytes]


def sectors(shape: Shape, seed: int | str) -> Sectors:
    whole, last = set(), set()
    for content in snapshot.files(shape, seed).values():
        end = len(content) // SECTOR * SECTOR
        whole |= {content[start : start + SECTOR] for start in range(0, end, SECTOR)}
        last.add(content[end:].ljust(SECTOR, b"\0"))
    return Sectors(whole, last - {bytes(SECTOR)})


def find_sectors(units: Mapping[Unit, bytes], contents: set[bytes]) -> dict[Unit, list[int]]:
    """Return the units of a device that hold known sectors, each with the offsets of these. Copies are found too."""
    starts_by_unit: dict[Unit, list[int]] = {}
    for unit, content in units.items():
        starts = [start for start in range(0, len(content), SECTOR) if content[start : start + SECTOR] in contents]
        if starts and not unit.file:
            starts_by_unit[unit] = starts
    return starts_by_unit


def strata_of_device(
    empty: Image, before: Image, now: Image, file_sectors: Sectors, spans: Sequence[range]
) -> dict[Kind, list[Stratum]]:
    """Return the strata of devices with these spans.

    `empty` is the image without files, `before` the one with them. For `now`, their contents may be overwritten.

    Plain contents are found by their sectors. Encrypted contents are long runs that changed between `before` and `now`.
    All other units that writing the files changed are metadata, and so are the units at both ends of each device.
    """
    units = now.since(empty)
    starts = find_sectors(units, file_sectors.whole)
    together = medium.runs(now.since(before)) if not starts else []
    whole = [unit for run in together if len(run) >= _RUN for unit in run]
    of_files = starts.keys() | find_sectors(units, file_sectors.last).keys() | set(whole)
    changed = sorted(units.keys() - of_files)
    inner = [range(span.start + _ENDS, span.stop - _ENDS) for span in spans]
    ends = [unit for unit in now.units if not any(unit.offset in span for span in inner)]
    fixed = sorted(set(ends) - of_files - set(changed))

    def in_sectors(unit: Unit) -> Sequence[int]:
        return [start + byte for start in starts[unit] for byte in range(SECTOR)]

    return {
        "contents": _filled(
            Stratum("contents", [sorted(starts)], in_sectors), Stratum("contents", [whole], lambda unit: range(UNIT))
        ),
        "metadata": _filled(
            # Runs are equally likely, so a large journal does not attract most flips.
            Stratum("metadata", medium.runs(changed), _not_zero(now)),
            Stratum("an end of the device", medium.runs(fixed), _not_zero(now)),
        ),
    }


def strata_of_files(empty: Image, before: Image, now: Image, stores: str = "") -> dict[Kind, list[Stratum]]:
    """Return the strata of the files in the directory `stores`, or of all files.

    Units that changed between `before` and `now` are contents, except the first unit of a file. That may begin with a
    header, which is metadata up to the first change. All other files and all names are metadata too.
    """
    inside = {name for name in now.times if not stores or name.startswith(f"{stores}/")}
    changed = {unit for unit in now.since(before) if unit.file in inside}
    whole = sorted(unit for unit in changed if unit.offset)
    files = {unit.file for unit in whole}
    first = {unit.file for unit in empty.units}
    headers = [unit for unit in now.units if unit.file in files and not unit.offset]
    remaining = sorted(unit for unit in now.units if unit.file in inside - files and now.units[unit])

    def kept(unit: Unit) -> Sequence[int]:
        content = now.units[unit]
        return [byte for byte in range(head(before.units.get(unit, b""), content)) if content[byte]] or [0]

    return {
        "contents": _filled(Stratum("contents", [whole], lambda unit: range(len(now.units[unit])))),
        "metadata": _filled(
            Stratum("header", [[unit] for unit in sorted(headers)], kept),
            Stratum(
                "file of the empty stack", medium.runs(unit for unit in remaining if unit.file in first), _not_zero(now)
            ),
            Stratum("other file", medium.runs(unit for unit in remaining if unit.file not in first), _not_zero(now)),
            Stratum("name", [[Unit(name, -1)] for name in sorted(inside)], lambda unit: [-1]),
        ),
    }


def head(before: bytes, now: bytes) -> int:
    """Return the length of the common beginning of two texts. It ends before the first two differing bytes in a row.

    In different contents, one byte may be equal by chance.
    """
    differ = [one != other for one, other in zip(before, now)]
    return next((byte for byte, pair in enumerate(itertools.pairwise(differ)) if all(pair)), len(differ))


def _filled(*strata: Stratum) -> list[Stratum]:
    return [stratum for stratum in strata if any(stratum.groups)]


def _not_zero(image: Image) -> Callable[[Unit], Sequence[int]]:
    """Return a function that lists the bytes of a unit that are not zero. Zeros are mostly reserved, and never read."""
    return lambda unit: [number for number, byte in enumerate(image.units[unit]) if byte] or [0]


def draw_flip(draw: random.Random, stratum: Stratum, image: Image) -> Flip:
    """Draw a flip: first a group of the stratum, then a unit of it, then a byte."""
    unit = draw.choice(draw.choice(stratum.groups))
    if unit.offset < 0:
        return Flip(stratum.what, unit, renamed=misnamed(draw, unit.file, image.times.keys()))
    return Flip(stratum.what, unit, draw.choice(stratum.among(unit)), draw.randrange(1, 256))


def misnamed(draw: random.Random, name: str, names: Iterable[str]) -> str:
    """Return an unused path that differs from `name` in one letter of its last part."""
    parent, _, last = name.rpartition("/")
    used = set(names)
    while True:
        number = draw.randrange(len(last))
        other = last[:number] + draw.choice(_LETTERS) + last[number + 1 :]
        path = f"{parent}/{other}" if parent else other
        if path not in used:
            return path


def apply(place: Place, flip: Flip, image: Image) -> None:
    """Write a flip to the place. Files keep their times. Raises OSError."""
    if flip.renamed:
        (place.path / flip.unit.file).rename(place.path / flip.renamed)
        medium.put(place, {}, image.times)
        return
    content = bytearray(image.units[flip.unit])
    content[flip.byte] ^= flip.mask
    medium.put(place, {flip.unit: bytes(content)}, image.times)
