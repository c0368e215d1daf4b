"""The journal of a session's changes to the machine. Another session uses it to undo them after SIGKILL.

Each thing has an entry before it is created, which is struck out once it is removed. The cleanup only removes things if
a journal proves that a dead session created them and that they are still the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_fsstack.machine import descriptors, owners, signals
from pytest_fsstack.machine.commands import stat_fields, wait_until
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.units import reason_of

_PROC = Path("/proc")

Fact = str | int | None
Facts = Mapping[str, Fact]


def default_directory() -> Path:
    """Return the directory of this user's journals."""
    if os.geteuid() == 0:
        return Path("/run/pytest-fsstack")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "pytest-fsstack"
    import tempfile

    return Path(tempfile.gettempdir()) / f"pytest-fsstack-{os.geteuid()}"


# -- kinds of things ---------------------------------------------------------------------------------------------------


class UndoError(Exception):
    """A thing that cannot be undone now: it is still used, or nothing proves that it is the one in the entry."""


class OutdatedEntryError(Exception):
    """An entry whose thing is gone or was changed. Another thing may have its name, so it is never undone."""


@dataclass(frozen=True)
class Kind:
    """A kind of thing, with functions to find and undo it. It is defined beside the code that creates such things.

    Layers list the kinds that they may leave (`Layer.leaves`), so that the cleanup knows them.
    """

    #: A unique name in a word or two.
    name: str
    #: Whether the thing still exists. Raises `UndoError`, `OutdatedEntryError`.
    present: Callable[[Machine, Facts], bool]
    #: Undo it, and describe that. Called only if it exists. Raises `UndoError`, or errors of its tools.
    undo: Callable[[Machine, Facts], str]
    #: Derive facts that later distinguish it from another thing with its name. Things with unique names need none.
    identify: Callable[[Facts], dict[str, Fact]] = lambda facts: {}
    #: Whether it survives a reboot.
    outlives_boot: bool = False
    #: Why it is left alone after a reboot, if it survives that.
    afterwards: str = ""
    #: Whether it is undone before all others, which it may be using.
    first: bool = False
    #: Whether only a requested cleanup undoes it, because it may hold files of others by now. Raises OSError.
    only_asked: Callable[[Facts], bool] = lambda facts: False

    @property
    def module(self) -> str:
        """Return the module that defines it."""
        return self.undo.__module__


def text(facts: Facts, name: str) -> str:
    """Return a text among the facts. Raises `UndoError` if the journal does not have it."""
    value = facts.get(name)
    if not isinstance(value, str):
        raise UndoError(f"the journal does not say its {name}")
    return value


def whole_number(facts: Facts, name: str) -> int:
    """Return a number among the facts. Raises `UndoError` if the journal does not have it."""
    value = facts.get(name)
    if not isinstance(value, int):
        raise UndoError(f"the journal does not say its {name}")
    return value


# -- writing -----------------------------------------------------------------------------------------------------------


class Journal:
    """The journal of this session: a file of JSON lines, which exists from the first entry to `close`."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        self._directory = directory
        #: The machine of the entries.
        self.machine = machine
        self._path: Path | None = None
        self._fd = self._place = -1
        #: The process that owns the journal. A forked child has a copy.
        self._process = os.getpid()
        self._entries = 0
        self._open: dict[int, OpenEntry] = {}

    @contextlib.contextmanager
    def entry(self, kind: Kind, **facts: Fact) -> Iterator[OpenEntry]:
        """Record a thing while it exists. The block creates and removes it.

        Facts that identify the thing are added: the start time of a process, or the identity of a directory or disk.
        The entry is struck out at the end. If the block raises an error and the thing still exists, it is undone as
        after a kill. If that fails too, the entry stays. Raises OSError if the journal cannot be written.
        """
        facts = {**facts, **kind.identify(facts)}
        self._entries += 1
        number = self._entries
        self._write({"entry": number, "kind": kind.name, "module": kind.module, "facts": facts})
        note = self._open[number] = OpenEntry(self, number, kind, facts)
        try:
            yield note
        except BaseException:
            # The undo may have worked in spite of the error. But a tool that was killed (by a signal or a time limit)
            # may have created the thing just before that.
            if not _still_there(self.machine, kind, note.facts) or _undone(self.machine, kind, note.facts):
                self._done(number)
            raise
        # Things of other entries may be in use by the ones that must be undone first.
        if not kind.first or len(self._open) == 1:
            self._done(number)

    def close(self) -> list[str]:
        """Delete the journal if all of its entries were undone. Return those that were not."""
        if self._path is None or os.getpid() != self._process:
            return []
        os.close(self._fd)
        leftovers = [str(note) for note in self._open.values() if not note._kind.first]
        if not leftovers:
            # Through its descriptor, because a test may have mounted something over it.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path.name, dir_fd=self._place)
        os.close(self._place)
        self._path = None
        self._open.clear()
        return leftovers

    def _done(self, number: int) -> None:
        # A generator may end after `close`, which has already reported its entry.
        if number in self._open:
            self._write({"done": number})
            del self._open[number]

    def _write(self, line: Mapping[str, object]) -> None:
        if self._path is None:
            self._process = os.getpid()
            self._path, self._fd = _create(self._directory)
            self._place = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if os.getpid() != self._process:
            raise OSError(errno.EPERM, f"a forked child cannot change the stacks of process {self._process}")
        # After SIGKILL, a single write is complete or missing. After a power cut, all things with entries are gone
        # anyway.
        _append(self._fd, line)


class OpenEntry:
    """An open entry, which can get further facts once the thing exists."""

    def __init__(self, journal: Journal, number: int, kind: Kind, facts: dict[str, Fact]) -> None:
        self._journal, self._number, self._kind, self.facts = journal, number, kind, facts

    def __str__(self) -> str:
        return _named(self._kind.name, self.facts)

    def update(self, **facts: Fact) -> None:
        """Add facts, and facts derived from them. Raises OSError."""
        # The identity never changes, whatever has the name now.
        identity = self._kind.identify({**self.facts, **facts})
        facts = {**facts, **{name: value for name, value in identity.items() if name not in self.facts}}
        self.facts.update(facts)
        self._journal._write({"note": self._number, "facts": facts})


def start_time(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot. None if it has ended, is a zombie, or is hidden."""
    try:
        fields = stat_fields(_PROC / str(pid))
    except PermissionError:  # another user's, if /proc is mounted with hidepid
        return None
    return int(fields[19]) if fields and fields[0] not in {"Z", "X"} else None


def _is_hidden(pid: int) -> bool:
    """Whether /proc hides a process of this user (hidepid), such as a session while it holds keys."""
    try:
        os.kill(pid, 0)
    except OSError:  # it has ended, or is another user's
        return False
    try:
        return not stat_fields(_PROC / str(pid))
    except PermissionError:
        return True


def _create(directory: Path) -> tuple[Path, int]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(directory)
    path = directory / f"{os.getpid()}-{os.urandom(4).hex()}.jsonl"
    # It is renamed once it has its first line, because a journal without a session would look like one of a dead
    # session.
    unfinished = path.with_suffix(".new")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        session = Owner(os.getpid(), start_time(os.getpid()), _boot(), _pid_namespace())
        _append(fd, {"session": vars(session)})
        unfinished.rename(path)
    except BaseException:
        os.close(fd)
        unfinished.unlink(missing_ok=True)
        raise
    return path, fd


def _append(fd: int, content: Mapping[str, object]) -> None:
    line, end = json.dumps(content).encode() + b"\n", os.fstat(fd).st_size
    if os.write(fd, line) != len(line):
        # The next line would be unreadable behind a part of this one, and so would the whole journal.
        os.ftruncate(fd, end)
        raise OSError(errno.ENOSPC, "the journal cannot be written")


def _check_own(directory: Path) -> None:
    """Raise an error if others can write to the directory: a journal can have anything unmounted and removed."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{directory} must be a directory that only its owner, this user, can write to")
    if reason := owners.untrusted(directory):
        raise PermissionError(f"{directory} is not used for the journal: {reason}")


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    link = _PROC / "self/ns/pid"
    return os.readlink(link) if os.path.lexists(link) else ""


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """The process that wrote a journal."""

    pid: int
    #: From /proc/pid/stat, because a later process may have the same number.
    start: int | None
    boot: str
    #: Process numbers are only meaningful in the same namespace.
    pid_namespace: str

    @property
    def this_boot(self) -> bool:
        return self.boot == _boot()

    @property
    def alive(self) -> bool | None:
        """Whether it still runs. None if that cannot be determined from here."""
        if not self.this_boot:
            return False
        if self.pid_namespace != _pid_namespace():
            return None
        return start_time(self.pid) == self.start or _is_hidden(self.pid)

    def __str__(self) -> str:
        return f"the session of process {self.pid}{'' if self.this_boot else ', before the last boot'}"


@dataclass(frozen=True)
class Entry:
    """A thing that a session created, or was about to create."""

    number: int
    kind: str
    facts: Facts
    #: The module that defines its kind.
    module: str = ""

    def __str__(self) -> str:
        return _named(self.kind, self.facts)


def _named(kind: str, facts: Facts) -> str:
    what = facts.get("target") or facts.get("path") or facts.get("name")
    return f"{kind} {what or dict(facts)}"


@dataclass(frozen=True)
class Leftover:
    """A dead session's journal, with its open entries."""

    path: Path
    session: Owner
    entries: tuple[Entry, ...]


def _journals(directory: Path) -> Iterator[Leftover | str]:
    """Yield each journal, or why it cannot be read."""
    if not directory.exists():
        return
    _check_own(directory)
    for path in sorted(directory.glob("*.jsonl")):
        try:
            yield _parse(path)
        except FileNotFoundError:  # closed meanwhile
            continue
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            why = reason_of(error)
            yield f"left alone: {path} is not a journal of this version ({why}); delete it if none is in use"


class _Line(msgspec.Struct):
    """A line of a journal: its session, a new entry, more facts of an entry, or the end of one."""

    session: Owner | None = None
    entry: int | None = None
    note: int | None = None
    done: int | None = None
    kind: str = ""
    module: str = ""
    facts: dict[str, Fact] = {}


def _parse(path: Path) -> Leftover:
    *complete, torn = path.read_bytes().split(b"\n")
    del torn  # the thing it announces was not created
    # Paths may be any bytes, which the JSON decoder of msgspec refuses.
    first, *lines = (msgspec.convert(json.loads(line), _Line) for line in complete)
    if first.session is None:
        raise ValueError("it names no session")
    entries: dict[int | None, Entry] = {}
    for line in lines:
        if line.entry is not None:
            entries[line.entry] = Entry(line.entry, line.kind, line.facts, line.module)
        elif line.note is not None:
            old = entries[line.note]
            entries[old.number] = dataclasses.replace(old, facts={**old.facts, **line.facts})
        else:
            del entries[line.done]
    return Leftover(path, first.session, tuple(entries.values()))


# -- undoing -----------------------------------------------------------------------------------------------------------


@dataclass
class CleanupReport:
    """The actions of a cleanup, and the things that it left alone with the reasons, as lines."""

    undone: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    #: Whether another process was cleaning up, so nothing was done.
    busy: bool = False


def cleanup(
    directory: Path, machine: Machine, kinds: Callable[[], Mapping[str, Kind]], *, asked: bool = True
) -> CleanupReport:
    """Undo the changes of dead sessions, newest first.

    `kinds` returns the known kinds by name. It is called only for journals of dead sessions, because it loads all
    layers. Things of other kinds are left alone. `asked` means that the user requested this cleanup and reads its
    report. Then a journal is also deleted if its remaining things can never be undone. Otherwise such a journal stays,
    and nothing is done if another process takes longer than a few seconds to clean up. Raises PermissionError if others
    can write to the directory.
    """
    report = CleanupReport()
    if not directory.exists():
        return report
    with _cleanup_lock(directory, math.inf if asked else _PATIENCE) as alone:
        if not alone:
            report.busy = True
            return report
        _remove_unfinished(directory)
        for journal in _journals(directory):
            if isinstance(journal, str):
                report.left.append(journal)
            elif journal.session.alive is None:
                report.left.append(
                    f"left alone: {journal.session} may be alive in another pid namespace; run the cleanup in that"
                )
            elif journal.session.alive is False:
                _clean(machine, journal, kinds(), report, asked)
    return report


#: Seconds to wait for another session's cleanup, because the same leftovers block both sessions.
_PATIENCE = 5.0


@contextlib.contextmanager
def _cleanup_lock(directory: Path, seconds: float) -> Iterator[bool]:
    """Lock out other cleanups, and yield whether that worked. It locks the directory, so no lock file remains."""
    _check_own(directory)
    with descriptors.opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        yield wait_until(lambda: _locked(fd), seconds)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


#: A journal without its final name is dead after this many seconds. It normally gets the name within a millisecond.
_UNFINISHED = 60.0
#: The names of journals: the process, and eight random digits.
_JOURNAL = re.compile(r"\d+-[0-9a-f]{8}")


def _remove_unfinished(directory: Path) -> None:
    """Remove unfinished journals of sessions that were killed before they created anything."""
    for path in directory.glob("*.new"):
        with contextlib.suppress(FileNotFoundError):
            if _JOURNAL.fullmatch(path.stem) and time.time() - path.lstat().st_mtime > _UNFINISHED:
                path.unlink()


def _in_use(directory: Path) -> set[str]:
    """Return the things of sessions that may be alive."""
    journals = [journal for journal in _journals(directory) if isinstance(journal, Leftover)]
    return {str(entry) for journal in journals if journal.session.alive is not False for entry in journal.entries}


def _clean(machine: Machine, journal: Leftover, kinds: Mapping[str, Kind], report: CleanupReport, asked: bool) -> None:
    remains = False
    for entry in sorted(journal.entries, key=lambda entry: (not _is_first(entry, kinds), -entry.number)):
        try:
            # Checked for each entry, because a session may have begun meanwhile.
            if str(entry) in _in_use(journal.path.parent):
                raise UndoError("a running session has one with that name")
            if action := _undo(machine, entry, journal.session.this_boot, kinds, asked):
                report.undone.append(f"{action} (of {journal.session})")
        except OutdatedEntryError as error:
            remains = remains or not asked
            report.left.append(f"left alone: {entry} of {journal.session}: {error}")
        except Exception as error:  # any error of a tool or a third party's kind; continue with the others
            remains = True
            report.left.append(f"left alone: {entry} of {journal.session}: {reason_of(error)}")
    if not remains:
        journal.path.unlink(missing_ok=True)


def _is_first(entry: Entry, kinds: Mapping[str, Kind]) -> bool:
    return entry.kind in kinds and kinds[entry.kind].first


def _undo(machine: Machine, entry: Entry, this_boot: bool, kinds: Mapping[str, Kind], asked: bool) -> str | None:
    kind = kinds.get(entry.kind)
    if kind is None:
        raise UndoError(
            f"nothing here knows this kind of thing; it was made by {entry.module}, so run the clean-up where the "
            "plugin or conftest is loaded that has the layer"
        )
    if not this_boot and not kind.outlives_boot:
        if kind.afterwards:
            raise OutdatedEntryError(kind.afterwards)
        return None
    if not kind.present(machine, entry.facts):
        return None
    if not asked and kind.only_asked(entry.facts):
        raise UndoError("it may hold files of others by now; --fsstack-cleanup undoes it if it can")
    return kind.undo(machine, entry.facts)


def _still_there(machine: Machine, kind: Kind, facts: Facts) -> bool:
    try:
        return kind.present(machine, facts)
    except OutdatedEntryError:
        return False
    except Exception:  # after any error, nothing proves that the thing is gone
        return True


def _undone(machine: Machine, kind: Kind, facts: Facts) -> bool:
    """Try to undo a thing after an error. If that fails, it stays in the journal, and the next session reports it."""
    with signals.during(signals.State.UNDOING):
        try:
            if kind.only_asked(facts):
                return False
            kind.undo(machine, facts)
        except Exception:  # any error; the original one is the cause
            return False
        return not _still_there(machine, kind, facts)
