"""The step of a test: work on a recorded device, and check what each power cut would have left of it."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_fsstack.layers.recorded import RecordedBlock
from pytest_fsstack.machine.needs import Tool, require
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.records.findings import Finding
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.layer import Layer, Limit
from pytest_fsstack.stack.places import CheckResult
from pytest_fsstack.truth.damage import perform
from pytest_fsstack.truth.damage.databases import NEEDS, Database
from pytest_fsstack.truth.damage.plan import Operation, plan
from pytest_fsstack.truth.damage.promises import EMPTY_DIRECTORY, Found, History, Kind, Unreadable
from pytest_fsstack.truth.damage.writelog import (
    Cut,
    Entry,
    Image,
    Kind as EntryKind,
    LogReader,
    cuts_between,
    left_by,
)
from pytest_fsstack.workloads.base import workload

#: Runs a program with an fsync that does nothing.
EATMYDATA = Tool("eatmydata", "eatmydata")
_DIRECTORY = "power"
#: Broken promises that are kept as text for each round, at most.
_SHOWN = 12


@dataclass
class _StateAfterCut:
    """The state after a cut: errors of mounting and checking, and the contents of the directory."""

    wrong: list[Finding]
    mounted: bool = True
    contents: Found = field(default_factory=dict)
    #: Whether a checker ran.
    checked: bool = False
    #: Writes to the device since then: by the recovery, the checker and the next mount.
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Damage:
    """The numbers of cuts and of kept promises. `broken_promises` describes the first broken ones.

    `findings` has the first broken promise of each kind.
    """

    cuts: int = 0
    mounted: int = 0
    checked: int = 0
    clean: int = 0
    synced_there: int = 0
    nothing_invented: int = 0
    all_readable: int = 0
    survived: int = 0
    broken_promises: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def count(self, state: _StateAfterCut, work: Work, count: int) -> list[Finding]:
        """Add a cut, after which `count` steps were complete. Return the broken promises and errors."""
        broken = [*work.broken(state.contents, count)] if state.mounted else []
        kinds = Counter(promise.kind for promise in broken)
        self.cuts += 1
        self.mounted += state.mounted
        self.checked += state.checked
        self.clean += state.checked and not state.wrong
        self.synced_there += state.mounted and not kinds[Kind.LOST]
        self.nothing_invented += state.mounted and not kinds[Kind.INVENTED]
        self.all_readable += state.mounted and not kinds[Kind.UNREADABLE]
        self.survived += not broken and not state.wrong
        return [*(Finding(promise.finding, promise.text) for promise in broken), *state.wrong]

    def describe(self, findings: Sequence[Finding], where: str) -> None:
        """Add the broken promises of a cut, and where that was."""
        for finding in findings:
            located = Finding(finding.kind, f"{where}: {finding.text}")
            if len(self.broken_promises) < _SHOWN:
                self.broken_promises.append(located.text)
            if finding.kind not in {other.kind for other in self.findings}:
                self.findings.append(located)


class Files(History):
    """The work with files: they are written, renamed, removed and synced."""

    def make(self, directory: Path) -> None:
        """Leave the directory empty."""

    def words(self, directory: Path, recorded: Path) -> list[str]:
        """Return the command that does the work. It marks the beginning of each step in the log of the device."""
        return [sys.executable, "-I", "-S", perform.__file__, str(directory), str(recorded), str(self.seed)]

    def stdin(self, directory: Path) -> str:
        return json.dumps([step.words for step in self.steps])

    def found(self, directory: Path) -> Found:
        """Return the contents of the directory, none if it is gone."""
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
        """Return when a cut was, by the step that had begun."""
        return f"during operation {begun} ({self.steps[begun]})" if begun < len(self.steps) else "after all operations"


Work = Files | Database


@workload()
def power_cuts(
    timed: Timed,
    fsstack: Built,
    *,
    seed: int,
    operations: int,
    cuts: int,
    without_fsync: bool = False,
    of_all: bool = False,
    database: str = "",
) -> Damage:
    """Do operations that are drawn from the seed, cut the power at `cuts` moments, and count the damage.

    The operations are on files, or they are transactions of a `database`: sqlite-wal, sqlite-delete, rocksdb or
    postgres. Each committed transaction must be there, and the one that had begun must be there as a whole or not at
    all. The stack must have a layer `recorded`. A third of the cuts hit the recovery from the cut before: the mount,
    the check or the next mount. `without_fsync` is for a control: fsync then does nothing (eatmydata).

    Every second cut follows a sync that has just returned, and keeps no unflushed write. With `of_all`, all files are
    synced at once now and then, and most cuts follow such a sync.

    The timed block has the operations alone. Recorded are the numbers of `cuts`, and of those after which the stack
    was `mounted`, had all synced data (`synced_there`), had no data that was never written (`nothing_invented`), was
    `all_readable`, and kept all of these promises (`survived`). `checked` counts the cuts after which a checker ran,
    and `clean` those of them without an error.
    """
    require(*([EATMYDATA] if without_fsync else []), *(NEEDS[database] if database else []))
    above = _layer_above_the_recorded(fsstack)
    # A checker that cannot read the filesystem would find each cut unclean, also those of a control.
    if unclean := _unclean(fsstack.fsck()):
        raise BuildError(f"`{fsstack.spec}` cannot be judged by its checkers: before any power cut, {unclean[0].text}")
    # Taking the layers down writes all earlier data to the device.
    with fsstack.taken_down(above.name) as place:
        assert isinstance(place, RecordedBlock)
        device = place
    work: Work
    if database:
        work, syncs = Database(database, seed, operations), set(range(operations))
    else:
        work, syncs = _on_files(fsstack, seed, operations, of_all)
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
    recoveries = cuts // 3
    # The next step has begun, and has not written yet.
    moments = [mark + 1 for index, mark in enumerate(marks[1:]) if index in syncs]
    every = 1 if of_all else 2
    points = cuts_between(marks[0] + 1, marks[-1] + 1, cuts - recoveries, f"cuts/{seed}", moments, every)
    device_now, damage = Image(), Damage()
    device_now.apply(entries)
    states: list[tuple[Image, _StateAfterCut]] = []

    def look(image: Image, begun: int, where: str) -> _StateAfterCut:
        # Cuts without a write in between leave the same image. Only the promises differ.
        state = next((state for before, state in states if before == image), None)
        if state is None:
            state = _state_after(fsstack, above.name, log, device_now, image, work)
            states.append((image, state))
        damage.describe(damage.count(state, work, begun), where)
        return state

    for number, (cut, image) in enumerate(left_by(points, entries, log.sector, untorn=above.superblock)):
        begun = _begun(entries, cut)
        where = f"cut after request {cut.entries} of {len(entries)} to the disk, {work.shown(begun)}"
        state = look(image, begun, where)
        if number % 2 and number < 2 * recoveries:
            behind = random.Random(cut.seed).randint(0, len(state.entries))
            second = [replace(cut, entries=behind, seed=f"{cut.seed}/again")]
            ((_, image),) = left_by(second, state.entries, log.sector, image, above.superblock)
            look(image, begun, f"{where}; and again after request {behind} of {len(state.entries)} that followed")
    for name, value in vars(damage).items():
        if isinstance(value, int):
            timed.record(name, value, better="higher", exact=True)
    timed.keep("broken promises", damage.broken_promises)
    return damage


def _on_files(fsstack: Built, seed: int, operations: int, of_all: bool) -> tuple[Work, set[int]]:
    """Return operations on files, and those that sync, by index."""
    steps = plan(seed, operations, _not_passed_on(fsstack), of_all=of_all)
    syncs = {index for index, step in enumerate(steps) if (_is_late(steps, index) if of_all else step.syncs)}
    return Files(seed, steps), syncs


def _is_late(steps: Sequence[Operation], index: int) -> bool:
    """Whether a step syncs all files directly after the sync of one, while the write before that is not synced."""
    written, synced, step = steps[index - 2], steps[index - 1], steps[index]
    return step.kind == "sync all" and bool(synced.how) and written.kind == "write" and not written.syncs


def _layer_above_the_recorded(fsstack: Built) -> Layer:
    names = [layer.name for layer in fsstack.stack.layers]
    if "recorded" not in names[:-1]:
        raise BuildError(f"no power can be cut: `{fsstack.spec}` has no layer recorded with others on it")
    return fsstack.stack.layers[names.index("recorded") + 1]


def _not_passed_on(fsstack: Built) -> list[str]:
    """Return the calls that do not sync the stack. The kernel does not pass syncfs on to FUSE daemons."""
    mount = fsstack.machine.mount_at(fsstack.path)
    calls = ["syncfs"] if mount and mount.kind.startswith("fuse") else []
    return [*calls, *(["msync"] if Limit.MAPPED_WRITES in fsstack.stack.limits else [])]


def _begun(entries: list[Entry], cut: Cut) -> int:
    """Return the number of the last operation that had begun before a cut."""
    texts = (entry.mark for entry in reversed(entries[: cut.entries]) if entry.kind is EntryKind.MARK)
    return int(next(texts))


def _state_after(fsstack: Built, above: str, log: LogReader, now: Image, image: Image, work: Work) -> _StateAfterCut:
    """Open the stack on an image, read and check it. `now` is the current image of the device, and is updated."""
    refusal = _stands_on(image, fsstack, above, log, now)
    if refusal:
        state = _StateAfterCut([Finding("not mounted", f"it cannot be mounted: {refusal}")], mounted=False)
    else:
        state = _read_and_checked(fsstack, work)
    state.entries = log.new()
    now.apply(state.entries)
    return state


def _read_and_checked(fsstack: Built, work: Work) -> _StateAfterCut:
    contents = work.found(fsstack.path / _DIRECTORY)
    try:
        checked = fsstack.fsck()
    except BuildError as error:
        finding = Finding("not checked", f"it cannot be checked: {_first_line(error)}")
        return _StateAfterCut([finding], contents=contents, checked=True)
    return _StateAfterCut(_unclean(checked), contents=contents, checked=bool(checked))


def _unclean(checked: Mapping[str, CheckResult]) -> list[Finding]:
    """Return what checkers found, by the end of their output."""
    return [
        Finding(
            f"not clean: {name}", f"{name} is not clean: {' / '.join(filter(None, check.output.splitlines()[-3:]))}"
        )
        for name, check in checked.items()
        if not check.clean
    ]


def _stands_on(image: Image, fsstack: Built, above: str, log: LogReader, now: Image) -> str:
    """Write an image to the device and open the stack on it. Return the error of opening, empty without one.

    Raises `BuildError` if the stack cannot be taken down.
    """
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
            # The damage of the last cut may have ended a daemon. Only the first teardown reports that.
            stand()
    except BuildError as error:
        if not changed:
            raise
        return _first_line(error)
    return ""


def _content(path: Path) -> bytes:
    """Return the bytes of a file or the names in a directory. Raises OSError."""
    return ("/".join(os.listdir(path)).encode() or EMPTY_DIRECTORY) if path.is_dir() else path.read_bytes()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
