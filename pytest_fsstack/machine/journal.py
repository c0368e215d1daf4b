"""The journal of a session's changes to this machine, from which another session undoes them after SIGKILL.

Each thing is written down before it is made, and struck out once it is gone. What is not proved by a journal to have
been made by a dead session, and to be still the same thing, is left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pytest_fsstack.machine import descriptors, signals
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


class Unproved(Exception):  # noqa: N818 - a finding
    """Something is there, but nothing proves that it is what the entry speaks of."""


class Gone(Exception):  # noqa: N818 - a finding
    """The thing of an entry is gone, and another may be in its place."""


def no_facts(facts: Facts) -> dict[str, Fact]:
    """Return no facts, for things with a unique name."""
    return {}


@dataclass(frozen=True)
class Kind:
    """The way to find and undo one kind of thing, defined beside the code that makes it.

    A layer names those that it may leave (`Layer.leaves`), by which the clean-up knows them.
    """

    #: What it is, in a word or two. No other kind may have the name.
    name: str
    #: Whether it is still there. Raises `Unproved`, `Gone`.
    present: Callable[[Machine, Facts], bool]
    #: Undo it, and say what was done. Called only if it is present. Raises `Unproved`, or what its tools raise.
    undo: Callable[[Machine, Facts], str]
    #: The facts that follow from those given, by which it is told from another thing of its name later.
    identify: Callable[[Facts], dict[str, Fact]] = no_facts
    #: Whether it is still there after a reboot.
    outlives_boot: bool = False
    #: Why it is left alone after a reboot, if it is not simply gone.
    afterwards: str = ""
    #: Whether it is undone before all others, because they may be in use by it.
    first: bool = False
    #: Whether it is left for a clean-up that the user asks for: what can hold the user's data by now.
    only_asked: bool = False

    @property
    def module(self) -> str:
        """The module that defines it."""
        return self.undo.__module__


def text(facts: Facts, name: str) -> str:
    """A fact that is text. Raises `Unproved` if the journal does not have it."""
    value = facts.get(name)
    if not isinstance(value, str):
        raise Unproved(f"the journal does not say its {name}")
    return value


def whole_number(facts: Facts, name: str) -> int:
    """A fact that is a number. Raises `Unproved` if the journal does not have it."""
    value = facts.get(name)
    if not isinstance(value, int):
        raise Unproved(f"the journal does not say its {name}")
    return value


# -- writing -----------------------------------------------------------------------------------------------------------


class Journal:
    """The journal of this session: a file of JSON lines, there from the first entry until `close`."""

    def __init__(self, directory: Path, machine: Machine) -> None:
        self._directory = directory
        #: On which the things are made.
        self.machine = machine
        self._path: Path | None = None
        self._fd = self._place = -1
        #: The process whose journal it is: a child that it forks has a copy.
        self._process = os.getpid()
        self._entries = 0
        self._open: dict[int, OpenEntry] = {}

    @contextlib.contextmanager
    def entry(self, kind: Kind, **facts: Fact) -> Iterator[OpenEntry]:
        """Write down what is about to be made; around its making and its undoing.

        What can be known of the thing already is added: when a process started, which directory or disk it is. The
        entry is struck out at the end. If an error passes and the thing is still there, it is undone as after a kill;
        if that fails as well, the entry stays. Raises OSError if the journal cannot be written.
        """
        facts = {**facts, **kind.identify(facts)}
        self._entries += 1
        number = self._entries
        self._write({"entry": number, "kind": kind.name, "module": kind.module, "facts": facts})
        note = self._open[number] = OpenEntry(self, number, kind, facts)
        try:
            yield note
        except BaseException:
            # The error may be anybody's, and the undo may have worked all the same. But a tool that was killed, by a
            # signal or a time limit, may have made the thing just before, and then nobody has undone it.
            if not _still_there(self.machine, kind, note.facts) or _undone(self.machine, kind, note.facts):
                self._done(number)
            raise
        # What is left of other entries may be in use by what must be undone first.
        if not kind.first or len(self._open) == 1:
            self._done(number)

    def close(self) -> list[str]:
        """Delete the journal, if all that it holds was undone; else, what was not."""
        if self._path is None or os.getpid() != self._process:
            return []
        os.close(self._fd)
        leftovers = [str(note) for note in self._open.values() if not note._kind.first]
        if not leftovers:
            # By its descriptor: a test may have mounted something else there.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path.name, dir_fd=self._place)
        os.close(self._place)
        self._path = None
        self._open.clear()
        return leftovers

    def _done(self, number: int) -> None:
        # A generator may end after `close`, which has reported its entry as left.
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
        # One write is there whole or not at all after SIGKILL. A power cut undoes all that matters here by itself.
        _append(self._fd, line)


class OpenEntry:
    """An entry that stands, for the facts that are known only once the thing is made."""

    def __init__(self, journal: Journal, number: int, kind: Kind, facts: dict[str, Fact]) -> None:
        self._journal, self._number, self._kind, self.facts = journal, number, kind, facts

    def __str__(self) -> str:
        return _named(self._kind.name, self.facts)

    def update(self, **facts: Fact) -> None:
        """Add facts to the entry, and what follows from them. Raises OSError."""
        # What was told apart once stays what it was, whatever has its name now.
        identity = self._kind.identify({**self.facts, **facts})
        facts = {**facts, **{name: value for name, value in identity.items() if name not in self.facts}}
        self.facts.update(facts)
        self._journal._write({"note": self._number, "facts": facts})


def start_time(pid: int) -> int | None:
    """Return the start of a process in clock ticks since boot. None if it has ended, as a zombie has."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the command may hold blanks and parentheses
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _create(directory: Path) -> tuple[Path, int]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(directory)
    path = directory / f"{os.getpid()}-{os.urandom(4).hex()}.jsonl"
    # It gets its name with its first line in it: a journal without a session would look like a dead one's.
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
    line = json.dumps(content).encode() + b"\n"
    if os.write(fd, line) != len(line):
        raise OSError(errno.ENOSPC, "the journal cannot be written")


def _check_own(directory: Path) -> None:
    """Whoever can write a journal can have anything unmounted and removed."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{directory} must be a directory that only its owner, this user, can write to")


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    link = _PROC / "self/ns/pid"
    return os.readlink(link) if os.path.lexists(link) else ""


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """The writer of a journal."""

    pid: int
    #: As /proc/pid/stat has it: a later process may have the same number.
    start: int | None
    boot: str
    #: Process numbers mean something only within one.
    pid_namespace: str

    @property
    def this_boot(self) -> bool:
        return self.boot == _boot()

    @property
    def alive(self) -> bool | None:
        """None where that cannot be told from here."""
        if not self.this_boot:
            return False
        if self.pid_namespace != _pid_namespace():
            return None
        return start_time(self.pid) == self.start

    def __str__(self) -> str:
        return f"the session of process {self.pid}{'' if self.this_boot else ', before the last boot'}"


@dataclass(frozen=True)
class Entry:
    """One thing that a session made, or was about to make."""

    number: int
    kind: str
    facts: Facts
    #: What knows the kind.
    module: str = ""

    def __str__(self) -> str:
        return _named(self.kind, self.facts)


def _named(kind: str, facts: Facts) -> str:
    what = facts.get("target") or facts.get("path") or facts.get("name")
    return f"{kind} {what or dict(facts)}"


@dataclass(frozen=True)
class Leftover:
    """The journal of a dead session, and what of it was not struck out."""

    path: Path
    session: Owner
    entries: tuple[Entry, ...]


def leftovers(directory: Path) -> list[Leftover]:
    """The journals of sessions that have ended without closing them.

    Journals that cannot be read are not among them. Raises PermissionError where others can write to the directory.
    """
    return [
        journal for journal in _journals(directory) if isinstance(journal, Leftover) and journal.session.alive is False
    ]


def _journals(directory: Path) -> Iterator[Leftover | str]:
    """Each journal, or why it cannot be read."""
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


def _parse(path: Path) -> Leftover:
    *lines, torn = path.read_bytes().split(b"\n")
    del torn  # what it announces was not begun
    session = _session(json.loads(lines[0])["session"])
    entries: dict[int, Entry] = {}
    for line in map(json.loads, lines[1:]):
        if "entry" in line:
            entries[line["entry"]] = Entry(
                _typed(line["entry"], int),
                _typed(line["kind"], str),
                _facts(line["facts"]),
                _typed(line["module"], str),
            )
        elif "note" in line:
            old = entries[line["note"]]
            entries[old.number] = dataclasses.replace(old, facts={**old.facts, **_facts(line["facts"])})
        else:
            del entries[line["done"]]
    return Leftover(path, session, tuple(entries.values()))


def _session(record: Mapping[str, object]) -> Owner:
    start = record["start"]
    return Owner(
        pid=_typed(record["pid"], int),
        start=None if start is None else _typed(start, int),
        boot=_typed(record["boot"], str),
        pid_namespace=_typed(record["pid_namespace"], str),
    )


def _facts(record: object) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    for name, fact in _typed(record, dict).items():
        if fact is not None and not isinstance(fact, (str, int)):
            raise TypeError(f"{name} is {fact!r}")
        facts[name] = fact
    return facts


_T = TypeVar("_T")


def _typed(value: object, kind: type[_T]) -> _T:
    """Check the type of a value before it is trusted. Raises TypeError."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} where {kind.__name__} belongs")
    return value


# -- undoing -----------------------------------------------------------------------------------------------------------


@dataclass
class CleanupReport:
    """The actions of a clean-up, and the things that it left alone with the reasons: a line each."""

    undone: list[str] = dataclasses.field(default_factory=list)
    left: list[str] = dataclasses.field(default_factory=list)
    #: Nothing was done, because another process cleans up.
    busy: bool = False


def cleanup(directory: Path, machine: Machine, kinds: Mapping[str, Kind], *, asked: bool = True) -> CleanupReport:
    """Undo what dead sessions have left, newest first.

    `kinds` are those that are known, by name: what is of another is left alone. A journal is deleted once nothing of it
    is left that a later clean-up could undo, if the user has `asked` for this one and so reads why. Else a journal with
    such a reason stays, and nothing is done if another process cleans up for longer than a few seconds. Raises
    PermissionError if others can write to the directory.
    """
    report = CleanupReport()
    if not directory.exists():
        return report
    with _alone(directory, _FOREVER if asked else _PATIENCE) as alone:
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
                _clean(machine, journal, kinds, report, asked)
    return report


#: Seconds that a session which begins waits for another that cleans up: what that one leaves is in both their way.
_PATIENCE = 5.0
_FOREVER = math.inf


@contextlib.contextmanager
def _alone(directory: Path, seconds: float) -> Iterator[bool]:
    """Keep other clean-ups out; whether that could be done. No file that would stay: the directory is locked."""
    _check_own(directory)
    with descriptors.opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        yield _locked(fd, time.monotonic() + seconds)


def _locked(fd: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


#: Seconds after which a journal that still has no name will never have one: it gets it within a millisecond.
_UNFINISHED = 60.0


def _remove_unfinished(directory: Path) -> None:
    """Remove journals of sessions that were killed before they had written the first line, and so made nothing."""
    for path in directory.glob("*.new"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > _UNFINISHED:
                path.unlink()


def _in_use(directory: Path) -> set[str]:
    """The things of sessions that may be alive."""
    journals = [journal for journal in _journals(directory) if isinstance(journal, Leftover)]
    return {str(entry) for journal in journals if journal.session.alive is not False for entry in journal.entries}


def _clean(machine: Machine, journal: Leftover, kinds: Mapping[str, Kind], report: CleanupReport, asked: bool) -> None:
    remains = False
    for entry in sorted(journal.entries, key=lambda entry: (not _is_first(entry, kinds), -entry.number)):
        try:
            # Looked up for each, because a session may have begun meanwhile.
            if str(entry) in _in_use(journal.path.parent):
                raise Unproved("a session that is alive has one of that name")
            if action := _undo(machine, entry, journal.session.this_boot, kinds, asked):
                report.undone.append(f"{action} (of {journal.session})")
        except Gone as gone:
            remains = remains or not asked
            report.left.append(f"left alone: {entry} of {journal.session}: {gone}")
        except Exception as error:  # whatever a tool or a third party's kind raises, the rest is to be undone
            remains = True
            report.left.append(f"left alone: {entry} of {journal.session}: {reason_of(error)}")
    if not remains:
        journal.path.unlink(missing_ok=True)


def _is_first(entry: Entry, kinds: Mapping[str, Kind]) -> bool:
    return entry.kind in kinds and kinds[entry.kind].first


def _undo(machine: Machine, entry: Entry, this_boot: bool, kinds: Mapping[str, Kind], asked: bool) -> str | None:
    kind = kinds.get(entry.kind)
    if kind is None:
        raise Unproved(
            f"nothing here knows this kind of thing; it was made by {entry.module}, so run the clean-up where the "
            "plugin or conftest is loaded that has the layer"
        )
    if not this_boot and not kind.outlives_boot:
        if kind.afterwards:
            raise Gone(kind.afterwards)
        return None
    if not kind.present(machine, entry.facts):
        return None
    if kind.only_asked and not asked:
        raise Unproved("somebody may have put files there since; --fsstack-cleanup empties it if nobody has")
    return kind.undo(machine, entry.facts)


def _still_there(machine: Machine, kind: Kind, facts: Facts) -> bool:
    try:
        return kind.present(machine, facts)
    except Gone:
        return False
    except Exception:  # whatever it was, nothing proves that the thing is gone
        return True


def _undone(machine: Machine, kind: Kind, facts: Facts) -> bool:
    """Try to undo what an error has left. What cannot be undone stays in the journal, for the next session to tell."""
    if kind.only_asked:
        return False
    with signals.during(signals.State.UNDOING):
        try:
            kind.undo(machine, facts)
        except Exception:  # whatever it was: the error that passes was first, and is the cause
            return False
        return not _still_there(machine, kind, facts)
