"""The step of a test: work on a recorded device, then what each power cut would have left of it."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pytest_fsstack.damage.power import worker
from pytest_fsstack.damage.power.databases import NEEDS, Database
from pytest_fsstack.damage.power.plan import plan
from pytest_fsstack.damage.power.promises import EMPTY_DIRECTORY, Broken, Found, History, Kind, Unreadable
from pytest_fsstack.damage.power.writelog import (
    Cut,
    Entry,
    Image,
    Kind as EntryKind,
    LogReader,
    cuts_between,
    left_by,
)
from pytest_fsstack.layers.recorded import RecordedBlock
from pytest_fsstack.machine.needs import Tool, require
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.model import Limit
from pytest_fsstack.workloads.base import workload

#: Runs a program whose fsync does nothing.
EATMYDATA = Tool("eatmydata", "eatmydata")
_DIRECTORY = "power"
#: How many broken promises are kept in words for each round.
_SHOWN = 12


@dataclass
class _Left:
    """The state after a cut: errors of the filesystems, and contents of the directory."""

    wrong: list[str]
    mounted: bool = True
    found: Found = field(default_factory=dict)
    #: Whether a checker has looked.
    checked: bool = False
    #: What was written to the device meanwhile: by recovery, by the checker, by the next mount.
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Damage:
    """Counts of cuts and of kept promises. `said` describes the first broken promises."""

    cuts: int = 0
    mounted: int = 0
    checked: int = 0
    clean: int = 0
    synced_there: int = 0
    nothing_invented: int = 0
    all_readable: int = 0
    survived: int = 0
    said: list[str] = field(default_factory=list)

    def count(self, state: _Left, work: Work, count: int) -> list[str]:
        """Add a cut; what is wrong after it, in words."""
        broken = [*work.broken(state.found, count)] if state.mounted else []
        kinds = Counter(promise.kind for promise in broken)
        self.cuts += 1
        self.mounted += state.mounted
        self.checked += state.checked
        self.clean += state.checked and not state.wrong
        self.synced_there += state.mounted and not kinds[Kind.LOST]
        self.nothing_invented += state.mounted and not kinds[Kind.INVENTED]
        self.all_readable += state.mounted and not kinds[Kind.UNREADABLE]
        self.survived += not broken and not state.wrong
        return [*(promise.text for promise in broken), *state.wrong]


class Work(Protocol):
    """The work on the stack before a cut, and the check after it."""

    def make(self, directory: Path) -> None:
        """Prepare the directory on the stack."""

    def words(self, directory: Path, recorded: Path) -> list[str]:
        """Return the command that does the work, and marks the beginning of each step in the log of the device."""

    def stdin(self, directory: Path) -> str:
        """Return what that command reads."""

    def found(self, directory: Path) -> Found:
        """Return what is there after a cut."""

    def broken(self, found: Found, count: int) -> Iterable[Broken]:
        """Return the broken promises if so many steps were done, and one more had begun."""

    def shown(self, begun: int) -> str:
        """Return the step that had begun, in words."""


class Files(History):
    """Files that are written, renamed, removed and synced."""

    def make(self, directory: Path) -> None:
        """Leave the directory empty."""

    def words(self, directory: Path, recorded: Path) -> list[str]:
        return [sys.executable, "-I", "-S", worker.__file__, str(directory), str(recorded), str(self.seed)]

    def stdin(self, directory: Path) -> str:
        return json.dumps([step.words for step in self.steps])

    def found(self, directory: Path) -> Found:
        """Return the contents of the directory. One that is gone is empty."""
        contents: dict[str, bytes | Unreadable] = {}
        try:
            names = os.listdir(directory)
        except OSError:
            return contents
        for name in names:
            try:
                contents[name] = _content(directory / name)
            except OSError as error:
                contents[name] = Unreadable(error.strerror or str(error))
        return contents

    def shown(self, begun: int) -> str:
        return f"operation {begun}: {self.steps[begun]}" if begun < len(self.steps) else "after all operations"


@workload()
def power_cuts(
    timed: Timed,
    fsstack: Built,
    *,
    seed: int,
    operations: int,
    cuts: int,
    without_fsync: bool = False,
    database: str = "",
) -> Damage:
    """Do as many operations on the stack as the seed says, then cut the power at as many places, and count the damage.

    They are operations on files, or transactions of a `database`: sqlite-wal, sqlite-delete, rocksdb or postgres. Each
    transaction that was committed must be there, whole, and of the one that had begun all or nothing.
    The stack must have a layer `recorded`. Each second cut is followed by another one while the stack recovers from it,
    is checked or is mounted again. `without_fsync` is for a control: fsync does nothing then (eatmydata). The block
    times the operations alone. Figures: `cuts`, and of these `mounted`, `synced_there`, `nothing_invented`,
    `all_readable` and `survived` (all of it); `clean` of `checked`, the cuts after which a checker of the stack ran.
    """
    require(*([EATMYDATA] if without_fsync else []), *(NEEDS[database] if database else []))
    above = _layer_above_the_recorded(fsstack)
    # Everything that was written so far is on the device, and nothing in a cache.
    with fsstack.taken_down(above) as place:
        assert isinstance(place, RecordedBlock)
        device = place
    work: Work
    if database:
        work = Database(database, seed, operations)
    else:
        work = Files(seed, plan(seed, operations, _not_passed_on(fsstack)))
    directory = fsstack.path / _DIRECTORY
    directory.mkdir()
    work.make(directory)
    fsstack.sync()
    words = work.words(directory, device.file)
    with open(os.memfd_create("operations"), "w+b") as text:
        text.write(work.stdin(directory).encode())
        text.seek(0)
        with timed(cold=False):
            timed.run(*([EATMYDATA.command] if without_fsync else []), *words, stdin=text.fileno())
    log = LogReader(device.log)
    entries = log.new()
    marks = [index for index, entry in enumerate(entries) if entry.kind is EntryKind.MARK]
    again = cuts // 3
    points = cuts_between(marks[0] + 1, marks[-1] + 1, cuts - again, f"cuts/{seed}")
    device_now, damage = Image(), Damage()
    device_now.apply(entries)
    states: list[tuple[Image, _Left]] = []

    def look(image: Image, begun: int, where: str) -> _Left:
        # Where nothing was written between two cuts, what they leave differs in what was promised by then.
        state = next((state for before, state in states if before == image), None)
        if state is None:
            state = _left(fsstack, above, log, device_now, image, work)
            states.append((image, state))
        broken = damage.count(state, work, begun)
        damage.said += [f"{where}: {text}" for text in broken][: max(0, _SHOWN - len(damage.said))]
        return state

    for number, (cut, image) in enumerate(left_by(points, entries, log.sector)):
        begun = _begun(entries, cut)
        where = f"seed {seed}, cut behind entry {cut.entries} of {len(entries)} ({work.shown(begun)})"
        state = look(image, begun, where)
        if number % 2 and number < 2 * again:
            behind = random.Random(cut.seed).randint(0, len(state.entries))
            second = [replace(cut, entries=behind, seed=f"{cut.seed}/again")]
            ((_, image),) = left_by(second, state.entries, log.sector, image)
            look(image, begun, f"{where}, and again behind entry {behind} of {len(state.entries)} of what followed")
    for name, value in vars(damage).items():
        if isinstance(value, int):
            timed.record(name, value, better="higher")
    timed.keep("broken promises", damage.said)
    return damage


def _layer_above_the_recorded(fsstack: Built) -> str:
    names = [layer.name for layer in fsstack.stack.layers]
    if "recorded" not in names[:-1]:
        raise BuildError(f"no power can be cut: `{fsstack.spec}` has no layer recorded with others on it")
    return names[names.index("recorded") + 1]


def _not_passed_on(fsstack: Built) -> list[str]:
    """Return the calls to sync that do not reach the stack: no kernel passes syncfs to a FUSE daemon."""
    mount = fsstack.machine.mount_at(fsstack.path)
    calls = ["syncfs"] if mount and mount.kind.startswith("fuse") else []
    return [*calls, *(["msync"] if Limit.MAPPED_WRITES in fsstack.stack.limits else [])]


def _begun(entries: list[Entry], cut: Cut) -> int:
    """The number of the last operation that had begun."""
    texts = (entry.mark for entry in reversed(entries[: cut.entries]) if entry.kind is EntryKind.MARK)
    return int(next(texts))


def _left(fsstack: Built, above: str, log: LogReader, now: Image, image: Image, work: Work) -> _Left:
    """Open the stack on this image, and look; `now` is the device as it is, and follows it."""
    refusal = _stands_on(image, fsstack, above, log, now)
    state = _Left([f"it cannot be mounted: {refusal}"], mounted=False) if refusal else _looked_at(fsstack, work)
    state.entries = log.new()
    now.apply(state.entries)
    return state


def _looked_at(fsstack: Built, work: Work) -> _Left:
    contents = work.found(fsstack.path / _DIRECTORY)
    try:
        checked = fsstack.fsck()
    except BuildError as error:
        return _Left([f"it cannot be checked: {_first_line(error)}"], found=contents, checked=True)
    unclean = [
        f"{name} is not clean: {' / '.join(filter(None, check.said.splitlines()[-3:]))}"
        for name, check in checked.items()
        if not check.clean
    ]
    return _Left(unclean, found=contents, checked=bool(checked))


def _stands_on(image: Image, fsstack: Built, above: str, log: LogReader, now: Image) -> str:
    """Why the stack does not open on this image; empty if it does. Raises `BuildError` if it cannot be taken down."""
    changed = False

    def stand() -> None:
        nonlocal changed
        with fsstack.taken_down(above) as device:
            assert isinstance(device, RecordedBlock)
            now.apply(log.new())
            device.write(now.towards(image))
            now.apply(log.new())
            changed = True

    try:
        try:
            stand()
        except BuildError:
            if changed:
                raise
            # The damage of the cut before may have ended a daemon. That is told when it is taken down, and then it is.
            stand()
    except BuildError as error:
        if not changed:
            raise
        return _first_line(error)
    return ""


def _content(path: Path) -> bytes:
    """Raises OSError."""
    return ("/".join(os.listdir(path)).encode() or EMPTY_DIRECTORY) if path.is_dir() else path.read_bytes()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
