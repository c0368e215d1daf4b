"""What a session has set up on this machine, so that another can undo it after SIGKILL.

Each thing is written down before it is made, and struck out once it is gone. What is not proved by a journal to have
been made by a dead session, and to be still the same thing, is left alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack import guard, host, settings

_PROC, _SYS, _DEV = Path("/proc"), Path("/sys"), Path("/dev")
_LOOP_GET_STATUS64 = 0x4C05  # linux/loop.h

Fact = str | int | None
Facts = Mapping[str, Fact]


def default_directory() -> Path:
    """Where this user's journals are."""
    if os.geteuid() == 0:
        return Path("/run/pytest-fsstack")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "pytest-fsstack"
    import tempfile

    return Path(tempfile.gettempdir()) / f"pytest-fsstack-{os.geteuid()}"


# -- writing -----------------------------------------------------------------------------------------------------------


class Journal:
    """The journal of this session: a file of JSON lines, there from the first entry until `close`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path: Path | None = None
        self._fd = -1
        self._entries = 0
        self._open: set[int] = set()

    @contextlib.contextmanager
    def entry(self, kind: str, **facts: Fact) -> Iterator[Note]:
        """Write down what is about to be made; around its making and its undoing.

        What can be known of the thing already is added: when a process started, which directory or disk it is. The
        entry is struck out at the end, unless an error passes and the thing is still there. Raises OSError where the
        journal cannot be written, KeyError for an unknown kind.
        """
        known = _KINDS[kind]
        facts = {**facts, **known.identify(facts)}
        self._entries += 1
        number = self._entries
        self._write({"entry": number, "kind": kind, "facts": facts})
        self._open.add(number)
        note = Note(self, number, known, facts)
        try:
            yield note
        except BaseException:
            # The error may be anybody's, and the undo may have worked all the same.
            if not _still_there(known, note.facts):
                self._done(number)
            raise
        self._done(number)

    def close(self) -> None:
        """Delete the journal, if all that it holds was undone."""
        if self._path is None:
            return
        os.close(self._fd)
        if not self._open:
            self._path.unlink()
        self._path = None
        self._open.clear()

    def _done(self, number: int) -> None:
        self._write({"done": number})
        self._open.discard(number)

    def _write(self, line: Mapping[str, object]) -> None:
        if self._path is None:
            self._path, self._fd = _create(self._directory)
        # One write is there whole or not at all after SIGKILL. A power cut undoes all that matters here by itself.
        _append(self._fd, line)


class Note:
    """An entry that stands, for the facts that are known only once the thing is made."""

    def __init__(self, journal: Journal, number: int, kind: _Kind, facts: dict[str, Fact]) -> None:
        self._journal, self._number, self._identify, self.facts = journal, number, kind.identify, facts

    def note(self, **facts: Fact) -> None:
        """Add facts to the entry, and what follows from them. Raises OSError."""
        # What was told apart once stays what it was, whatever has its name now.
        known = self._identify({**self.facts, **facts})
        facts = {**facts, **{name: value for name, value in known.items() if name not in self.facts}}
        self.facts.update(facts)
        self._journal._write({"note": self._number, "facts": facts})


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where it has ended. A zombie has."""
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
    session = Session(os.getpid(), start_time(os.getpid()), _boot(), _pid_namespace())
    _append(fd, {"session": vars(session)})
    unfinished.rename(path)
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
class Session:
    """Who wrote a journal."""

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

    def __str__(self) -> str:
        what = self.facts.get("target") or self.facts.get("path") or self.facts.get("name")
        return f"{self.kind} {what or dict(self.facts)}"


@dataclass(frozen=True)
class Leftover:
    """The journal of a dead session, and what of it was not struck out."""

    path: Path
    session: Session
    entries: tuple[Entry, ...]


def leftovers(directory: Path) -> list[Leftover]:
    """The journals of sessions that have ended without closing them.

    Journals that cannot be read are not among them. Raises PermissionError where others can write to the directory.
    """
    return [found for found in _journals(directory) if isinstance(found, Leftover) and found.session.alive is False]


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
        except (OSError, ValueError, LookupError, TypeError) as error:
            yield f"left alone: {path} is not a journal of this version ({error})"


def _parse(path: Path) -> Leftover:
    *lines, torn = path.read_bytes().split(b"\n")
    del torn  # what it announces was not begun
    session = Session(**json.loads(lines[0])["session"])
    entries: dict[int, Entry] = {}
    for line in map(json.loads, lines[1:]):
        if "entry" in line:
            entries[line["entry"]] = Entry(line["entry"], line["kind"], line["facts"])
        elif "note" in line:
            old = entries[line["note"]]
            entries[old.number] = Entry(old.number, old.kind, {**old.facts, **line["facts"]})
        else:
            del entries[line["done"]]
    return Leftover(path, session, tuple(entries.values()))


# -- undoing -----------------------------------------------------------------------------------------------------------


def cleanup(directory: Path) -> list[str]:
    """Undo what dead sessions have left, newest first; one line for each thing undone, or left alone and why.

    A journal is deleted once nothing of it is left. Raises PermissionError where others can write to the directory.
    """
    said: list[str] = []
    journals = list(_journals(directory))
    alive = [found for found in journals if isinstance(found, Leftover) and found.session.alive is not False]
    in_use = {str(entry) for found in alive for entry in found.entries}
    for found in journals:
        if isinstance(found, str):
            said.append(found)
        elif found.session.alive is None:
            said.append(f"left alone: {found.session} may be alive in another pid namespace; run the cleanup in that")
        elif found.session.alive is False:
            said += _clean(found, in_use)
    return said


def _clean(journal: Leftover, in_use: set[str]) -> list[str]:
    said, kept = [], False
    for entry in reversed(journal.entries):
        try:
            if str(entry) in in_use:
                raise _Unproved("a session that is alive has one of that name")
            if done := _undo(entry, journal.session.this_boot):
                said.append(f"{done} (of {journal.session})")
        except _Gone as gone:
            said.append(f"left alone: {entry} of {journal.session}: {gone}")
        except (_Unproved, guard.Refused, host.CommandError, OSError, KeyError, TypeError, ValueError) as error:
            kept = True
            said.append(f"left alone: {entry} of {journal.session}: {error}")
    if not kept:
        journal.path.unlink(missing_ok=True)
    return said


def _undo(entry: Entry, this_boot: bool) -> str | None:
    kind = _KINDS.get(entry.kind)
    if kind is None:
        raise _Unproved("another version of this plugin wrote it")
    if not this_boot and not kind.outlives_boot:
        if kind.afterwards:
            raise _Gone(kind.afterwards)
        return None
    return kind.undo(entry.facts) if kind.present(entry.facts) else None


class _Unproved(Exception):  # noqa: N818 - a finding
    """Something is there, but nothing proves that it is what the entry speaks of."""


class _Gone(Exception):  # noqa: N818 - a finding
    """What is there now is not what the entry speaks of, which nobody can find any more."""


@dataclass(frozen=True)
class _Kind:
    """How one kind of thing is found again, and undone."""

    #: The facts that follow from those given, by which it is told from another thing of its name later.
    identify: Callable[[Facts], dict[str, Fact]]
    #: Whether it is still there. Raises `_Unproved`, `_Gone`.
    present: Callable[[Facts], bool]
    #: Undo it, and say what was done. Called only where it is present.
    undo: Callable[[Facts], str]
    outlives_boot: bool = False
    #: Why it is left alone after a reboot, where it is not simply gone.
    afterwards: str = ""


def _still_there(kind: _Kind, facts: Facts) -> bool:
    try:
        return kind.present(facts)
    except _Gone:
        return False
    except (_Unproved, guard.Refused, host.CommandError, OSError):
        return True


def _text(facts: Facts, name: str) -> str:
    value = facts.get(name)
    if not isinstance(value, str):
        raise _Unproved(f"the journal does not say its {name}")
    return value


def _whole_number(facts: Facts, name: str) -> int:
    value = facts.get(name)
    if not isinstance(value, int):
        raise _Unproved(f"the journal does not say its {name}")
    return value


def _name_is_enough(facts: Facts) -> dict[str, Fact]:
    return {}


def _real_target(facts: Facts) -> dict[str, Fact]:
    return {"target": os.path.realpath(_text(facts, "target"))}


def _mounted(facts: Facts) -> bool:
    return host.mount_options(_text(facts, "target")) is not None


def _unmount(facts: Facts) -> str:
    target = Path(_text(facts, "target"))
    try:
        while _mounted(facts):
            host.run("umount", target)
    except host.CommandError as error:
        holders = ", ".join(host.users(target))
        raise _Unproved(f"{error.stderr}{f'; in use by: {holders}' if holders else ''}") from error
    return f"unmounted {target}"


def _encryption_key_added(facts: Facts) -> bool:
    # Its identifier is a hash of the random key, so wherever it is known it is that session's.
    target, key = _text(facts, "target"), _text(facts, "key")
    if not Path(target).is_dir():
        return False
    try:
        return "Absent" not in host.run("xfs_io", "-c", f"enckey_status {key}", target)
    except host.CommandError:
        return False  # the filesystem that had it is not mounted there any more


def _remove_encryption_key(facts: Facts) -> str:
    target = _text(facts, "target")
    if "busy" in host.run("xfs_io", "-c", f"rm_enckey {_text(facts, 'key')}", target):
        holders = ", ".join(host.users(Path(target)))
        raise _Unproved(f"its files are still open{f'; in use by: {holders}' if holders else ''}")
    return f"removed the encryption key of {target}"


def _imported(facts: Facts) -> bool:
    name = _text(facts, "name")
    if not name.startswith("fsstack-"):
        raise _Unproved("that is no name that this plugin gives to a pool")
    try:
        return name in host.run("zpool", "list", "-H", "-o", "name").split()
    except host.CommandError:
        return False  # without ZFS, or with a daemon of its own that died with the session


def _export(facts: Facts) -> str:
    name = _text(facts, "name")
    host.run("zpool", "export", "-f", name)
    return f"exported the ZFS pool {name}"


def _started(facts: Facts) -> dict[str, Fact]:
    return {"start": start_time(_whole_number(facts, "pid"))} if "pid" in facts else {}


def _running(facts: Facts) -> bool:
    # Without its number it was never seen to run; the parent-death signal has ended it if it did.
    if facts.get("start") is None:
        return False
    return start_time(_whole_number(facts, "pid")) == facts["start"]


def _kill(facts: Facts) -> str:
    pid = _whole_number(facts, "pid")
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return f"process {pid} has just ended"
    try:
        # From here on the number cannot be given to another process unnoticed.
        for number, milliseconds in (signal.SIGTERM, 2000), (signal.SIGKILL, 2000):
            if not _running(facts):
                break
            signal.pidfd_send_signal(fd, number)
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if poll.poll(milliseconds):
                break
        else:
            raise _Unproved("it survived SIGKILL")
    except ProcessLookupError:
        pass  # it ended in between, as it should
    finally:
        os.close(fd)
    return f"ended process {pid}"


def _mapped(facts: Facts) -> bool:
    name = _text(facts, "name")
    for file in (_SYS / "block").glob("dm-*/dm/name"):
        # One that the kernel is just taking apart has no name any more.
        with contextlib.suppress(OSError):
            if file.read_text().strip() == name:
                return True
    return False


def _unmap(facts: Facts) -> str:
    name = _text(facts, "name")
    host.run("dmsetup", "remove", name, env=host.mapper_environment())
    return f"removed the device-mapper device {name}"


def _active_volumes(facts: Facts) -> list[str]:
    """The mappings of a volume group, hidden ones as well; LVM doubles the hyphens of its name."""
    prefix = f"{_text(facts, 'name').replace('-', '--')}-"
    if not prefix.startswith("fsstack--"):
        raise _Unproved("that is no name that this plugin gives to a volume group")
    found = []
    for file in (_SYS / "block").glob("dm-*/dm/name"):
        with contextlib.suppress(OSError):
            if (name := file.read_text().strip()).startswith(prefix):
                found.append(name)
    return sorted(found)


def _active(facts: Facts) -> bool:
    return bool(_active_volumes(facts)) or _links(facts).is_dir()


def _links(facts: Facts) -> Path:
    """LVM's links to the volumes, which only udevd removes by itself."""
    return _DEV / _text(facts, "name")


def _deactivate(facts: Facts) -> str:
    if volumes := _active_volumes(facts):
        # Those on which others stand go after them.
        host.run("dmsetup", "remove", "--deferred", *volumes, env=host.mapper_environment())
    if not host.wait_until(lambda: not _active_volumes(facts), 2.0):
        raise _Unproved("it goes once nothing uses it any more")
    shutil.rmtree(_links(facts), ignore_errors=True)
    return f"removed the logical volumes of {_text(facts, 'name')}"


def _backed(facts: Facts) -> dict[str, Fact]:
    if "path" not in facts:
        return {}
    dev, ino = _backing(Path(_text(facts, "path")))
    return {"dev": dev, "ino": ino}


def _attached(facts: Facts) -> bool:
    # Without its path it was never seen; a loop device made to vanish with its last user has vanished.
    if "path" not in facts:
        return False
    path = Path(_text(facts, "path"))
    if not (_SYS / "block" / path.name / "loop/backing_file").exists():
        return False
    if _backing(path) != (_whole_number(facts, "dev"), _whole_number(facts, "ino")):
        raise _Gone("it stands on another file now")
    return True


def _backing(loop: Path) -> tuple[int, int]:
    fd = os.open(loop, os.O_RDONLY | os.O_CLOEXEC)
    try:
        info = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(232))
    finally:
        os.close(fd)
    device, inode = struct.unpack_from("=QQ", info)
    return device, inode


def _detach(facts: Facts) -> str:
    path = _text(facts, "path")
    host.run("losetup", "-d", path)
    if not host.wait_until(lambda: not _attached(facts), 1.0):
        return f"told {path} to detach once nothing uses it any more"
    return f"detached {path}"


def _inode(facts: Facts) -> dict[str, Fact]:
    try:
        status = os.lstat(_text(facts, "path"))
    except FileNotFoundError:
        return {}
    return {"dev": status.st_dev, "ino": status.st_ino}


def _exists(facts: Facts) -> bool:
    now = _inode(facts)
    if not now:
        return False
    if not stat.S_ISDIR(os.lstat(_text(facts, "path")).st_mode):
        raise _Gone("it is no directory any more")
    if "ino" not in facts:
        raise _Unproved("the session did not live to see it made, so nothing proves that it made it")
    if now != {name: facts.get(name) for name in now}:
        raise _Gone("it is another one now")
    return True


def _remove(facts: Facts) -> str:
    path = _text(facts, "path")
    if below := _mounts_below(path):
        raise _Unproved(f"something is mounted on {below[0]}")
    shutil.rmtree(path)
    return f"removed {path}"


def _mounts_below(path: str) -> list[str]:
    lines = (_PROC / "self/mountinfo").read_text(errors="surrogateescape").splitlines()
    targets = (guard.unescape(line.split(" ")[4]) for line in lines)
    return [target for target in targets if target == path or target.startswith(path + "/")]


def _which_disk(facts: Facts) -> dict[str, Fact]:
    return guard.identify(Path(_text(facts, "path"))).facts()


def _unlabelled(facts: Facts) -> bool:
    path = Path(_text(facts, "path"))
    if facts.get("diskseq") is None:
        raise _Unproved("this kernel does not number disks, so nothing proves that this is the one")
    if not path.exists():
        raise _Unproved("it is not plugged in")
    now = _which_disk(facts)
    if now != {name: facts.get(name) for name in now}:
        raise _Gone("it is another disk now, or was plugged in again")
    return not guard.labelled(path)


def _relabel(facts: Facts) -> str:
    path = Path(_text(facts, "path"))
    signature = facts.get("signature")
    if not signature or guard.signature(path) != signature:
        # A device without the very signature that we wrote may be in somebody's use, as one with plain dm-crypt on it.
        raise _Unproved(
            "nothing proves that it holds what the session left and no other data; "
            f"`--fsstack-overwrite={path}` gives it over to testing if nobody needs it"
        )
    with guard.claimed(path, overwrite=True):
        pass
    return f"emptied {path} but for its scratch label"


def _still_set(facts: Facts) -> bool:
    path, old, value = Path(_text(facts, "path")), _text(facts, "old"), _text(facts, "value")
    if not settings.is_setting(path):
        raise _Unproved("that is nothing that this plugin sets")
    now = settings.current(path)
    if now not in (None, old, value):
        raise _Gone(f"it is {now} now, and not {value} as the session left it")
    return now == value != old


def _set_back(facts: Facts) -> str:
    path, old = Path(_text(facts, "path")), _text(facts, "old")
    path.write_text(old)
    return f"set {path} back to {old}"


_KINDS: Mapping[str, _Kind] = {
    "mount": _Kind(_real_target, _mounted, _unmount),
    "fscrypt key": _Kind(_real_target, _encryption_key_added, _remove_encryption_key),
    "daemon": _Kind(_started, _running, _kill),
    "dm": _Kind(_name_is_enough, _mapped, _unmap),
    "vg": _Kind(_name_is_enough, _active, _deactivate),
    "zpool": _Kind(_name_is_enough, _imported, _export),
    "setting": _Kind(_name_is_enough, _still_set, _set_back),
    "loop": _Kind(_backed, _attached, _detach),
    "directory": _Kind(_inode, _exists, _remove, outlives_boot=True),
    "disk": _Kind(
        _which_disk,
        _unlabelled,
        _relabel,
        afterwards="disks are numbered anew with each boot, so nothing proves that it is the one",
    ),
}
