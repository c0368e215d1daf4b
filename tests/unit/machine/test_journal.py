"""Proofs of journals, and things that they leave alone: without root, on directories, processes and fakes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.volumes import lvm
from pytest_fsstack.machine import commands, guard, journal, mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.port import Machine, Word
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.preflight.recording import RecordingMachine
from pytest_fsstack.session.cleanup import kinds
from tests.toolkit import leftovers

KINDS = kinds(BUILT_IN.values())


def cleanup(directory: Path, machine: Machine | None = None) -> list[str]:
    report = journal.cleanup(directory, machine or RealMachine(), lambda: KINDS)
    return [*report.undone, *report.left]


def undone(directory: Path, machine: Machine | None = None) -> str:
    """Clean up what is one thing, and return its line."""
    report = journal.cleanup(directory, machine or RealMachine(), lambda: KINDS)
    assert report.left == []
    (line,) = report.undone
    return line


def left_alone(directory: Path, machine: Machine | None = None) -> str:
    """Clean up where one thing is left alone, and return its line."""
    report = journal.cleanup(directory, machine or RealMachine(), lambda: KINDS)
    assert report.undone == []
    (line,) = report.left
    return line


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def lines(directory: Path) -> list[dict[str, Any]]:
    (file,) = directory.glob("*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def dead(directory: Path, *entries: tuple[str, dict[str, journal.Fact]], **session: object) -> Path:
    """The journal of a session that is no more: of a process with this one's number, but another start."""
    book = Journal(directory, RealMachine())
    with ExitStack() as stack:
        for kind, facts in entries:
            stack.enter_context(book.entry(KINDS[kind], **facts))
        header, *rest = lines(directory)
    book.close()
    header["session"].update({"start": 1, **session})
    path = directory / "1-0.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [header, *rest]))
    return path


# -- writing -----------------------------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_first_entry(journals: Path) -> None:
    Journal(journals, RealMachine()).close()
    assert not journals.exists()


def test_the_lines_name_the_session_each_thing_and_its_end(journals: Path, tmp_path: Path) -> None:
    book, facts = Journal(journals, RealMachine()), {"path": str(tmp_path / "new")}
    with book.entry(KINDS["directory"], **facts):
        session, entry = lines(journals)
    assert session["session"] == {
        "pid": os.getpid(),
        "start": int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }
    assert entry == {"entry": 1, "kind": "directory", "module": "pytest_fsstack.machine.directories", "facts": facts}
    assert lines(journals)[2] == {"done": 1}
    book.close()


def test_only_its_owner_can_read_it(journals: Path, tmp_path: Path) -> None:
    with Journal(journals, RealMachine()).entry(KINDS["directory"], path=str(tmp_path / "new")):
        (file,) = journals.iterdir()
        assert file.stat().st_mode & 0o777 == 0o600
        assert journals.stat().st_mode & 0o777 == 0o700


def test_what_identified_a_thing_once_is_not_replaced(journals: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    inode = new.stat().st_ino
    with Journal(journals, RealMachine()).entry(KINDS["directory"], path=str(new)) as entry:
        (tmp_path / "other").mkdir()
        new.rmdir()
        (tmp_path / "other").rename(new)
        entry.update(remark="seen again")
        assert entry.facts["ino"] == inode
        assert lines(journals)[2] == {"note": 1, "facts": {"remark": "seen again"}}


def test_a_line_that_did_not_fit_makes_no_other_one_unreadable(journals: Path, tmp_path: Path) -> None:
    book, directory = Journal(journals, RealMachine()), KINDS["directory"]
    with book.entry(directory, path=str(tmp_path / "first")):
        (file,) = journals.iterdir()
        limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, hard))
        try:
            with pytest.raises(OSError, match="journal"), book.entry(directory, path=str(tmp_path / "second")):
                pytest.fail("it was begun")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        with book.entry(directory, path=str(tmp_path / "third")):
            assert [line.get("facts") for line in lines(journals)[1:]] == [
                {"path": str(tmp_path / name)} for name in ("first", "third")
            ]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720])
def test_a_directory_that_others_can_write_to_is_not_used(journals: Path, tmp_path: Path, mode: int) -> None:
    journals.mkdir()
    journals.chmod(mode)
    with (
        pytest.raises(PermissionError, match=f"^{journals} "),
        Journal(journals, RealMachine()).entry(KINDS["directory"], path=str(tmp_path)),
    ):
        pytest.fail("it was written")
    with pytest.raises(PermissionError, match=f"^{journals} "):
        cleanup(journals)


def test_a_symbolic_link_is_not_used_as_the_directory(journals: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    journals.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match=f"^{journals} "):
        leftovers(journals)


def test_where_journals_are(monkeypatch: pytest.MonkeyPatch, become: Callable[[int], None]) -> None:
    become(0)
    assert journal.default_directory() == Path("/run/pytest-fsstack")
    become(1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert journal.default_directory() == Path("/run/user/1000/pytest-fsstack")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert journal.default_directory().name == "pytest-fsstack-1000"


# -- whose it is -------------------------------------------------------------------------------------------------------


@pytest.fixture
def held(journals: Path) -> Iterator[Callable[[], None]]:
    """The lock of a clean-up, as another process has it; what gives it back."""
    journals.mkdir(mode=0o700)
    fd = os.open(journals, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with ExitStack() as stack:
        stack.callback(os.close, fd)
        yield stack.close


def test_a_session_waits_for_one_that_cleans_up(journals: Path, held: Callable[[], None]) -> None:
    threading.Timer(0.05, held).start()
    assert not journal.cleanup(journals, RealMachine(), lambda: KINDS, asked=False).busy


def test_it_does_not_wait_for_long(journals: Path, held: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_PATIENCE", 0.05)
    assert journal.cleanup(journals, RealMachine(), lambda: KINDS, asked=False).busy


def test_a_session_that_is_hidden_while_it_holds_keys_is_alive(
    journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /proc hides a process that leaves no core dump from its own user (hidepid=1)."""

    def hidden(process: Path) -> list[str]:
        raise PermissionError(errno.EPERM, "", str(process))

    dead(journals, ("directory", {"path": str(tmp_path / "kept")}))
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr(journal, "stat_fields", hidden)
    assert leftovers(journals) == []
    # A process of another user has the number now.
    monkeypatch.setattr(os, "kill", lambda pid, number: hidden(Path(f"/proc/{pid}")))
    assert len(leftovers(journals)) == 1


_ENTRY = '{"entry": 1, "kind": "directory", "module": "m", "facts": {"path": "/nowhere/of/this/name"}}'
_OWNER = '{"session": {"pid": 1, "start": 1, "boot": "b", "pid_namespace": "pid:[1]"}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish\n",
        '{"session": {}}\n',
        '{"session": {"pid": 1}}\n',
        "[]\n",
        f"{_OWNER}\n[]\n",
        f'{_OWNER}\n{_ENTRY[:-1]}, "facts": []}}\n',
    ],
)
def test_a_journal_that_cannot_be_read_is_left_alone(journals: Path, text: str) -> None:
    journals.mkdir(mode=0o700)
    (journals / "1-0.jsonl").write_text(text)
    assert leftovers(journals) == []
    for _ in range(3):  # said each time, for as long as it is there
        assert str(journals / "1-0.jsonl") in left_alone(journals)
        assert len(journal.cleanup(journals, RealMachine(), lambda: KINDS, asked=False).left) == 1
    assert (journals / "1-0.jsonl").read_text() == text


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_became_of_a_journal_it_is_read_or_reported(tmp_path: Path, data: st.DataObject) -> None:
    whole = f'{_OWNER}\n{_ENTRY}\n{{"note": 1, "facts": {{"ino": 7}}}}\n'.encode()
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    junk = st.sampled_from([b"[]", b"{}", b"null", b"1e999", b"[" * 10**5, b"\n", b'"facts": []', b'"pid": "x"', b"-1"])
    content = whole[:start] + data.draw(st.binary(max_size=20) | junk) + whole[end:]
    # Not where the others are: a session that may be alive is none of these tests' business.
    directory = tmp_path / "journals"
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / "1-0.jsonl").write_bytes(content)
    (found,) = journal._journals(directory)
    if isinstance(found, str):
        assert str(directory / "1-0.jsonl") in found
        return
    assert isinstance(found.session.pid, int)
    # It can be told of, and asked for.
    assert str(found.session) + repr(found.session.alive)
    for entry in found.entries:
        assert str(entry)
        assert all(isinstance(fact, str | int | None) for fact in entry.facts.values())


# -- sessions, their ends, and the clean-ups after them ----------------------------------------------------------------

#: Kinds of things, as far as they differ for the journal. `foreign` is one of a plugin that is not loaded.
FLAGS: dict[str, dict[str, Any]] = {
    "plain": {"outlives_boot": True},
    "first": {"first": True, "outlives_boot": True},
    "changed": {"afterwards": "it may be another one"},
    "kept": {"only_asked": lambda facts: True},
    "foreign": {},
}
#: What becomes of the owner of a journal, as its first line shows it.
OWNERS: dict[str, dict[str, object]] = {
    "killed": {"start": 1},
    "rebooted": {"boot": "another"},
    "elsewhere": {"pid_namespace": "pid:[1]"},
}


class Thing(NamedTuple):
    kind: str
    path: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path}"


THINGS = st.builds(Thing, st.sampled_from(sorted(FLAGS)), st.sampled_from(["a", "a", "busy", "stuck"]))


@dataclass
class Session:
    """A session, and what its journal should hold."""

    book: Journal
    owner: str = "alive"
    path: Path | None = None
    on_file: dict[int, Thing] = field(default_factory=dict)
    #: Entries whose blocks still run.
    blocks: dict[int, contextlib.AbstractContextManager[journal.OpenEntry]] = field(default_factory=dict)


class Sessions(RuleBasedStateMachine):
    """Sessions of which each makes and removes things, fails, ends or is killed, and clean-ups."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = Path(self.temporary.name, "journals")
        self.sessions: list[Session] = []
        self.things = set[Thing]()
        #: Whether things at `busy` are in use. Those at `stuck` stay, although undoing them reports no error.
        self.is_busy = True
        self.undone: list[Thing] = []
        self.kinds = {name: self._kind(name) for name in FLAGS}

    def _kind(self, name: str) -> journal.Kind:
        def undo(machine: Machine, facts: journal.Facts) -> str:
            thing = Thing(name, str(facts["path"]))
            if self.in_use(thing):
                raise commands.CommandError(["umount"], 32, "busy")
            self.undone.append(thing)
            if thing.path != "stuck":
                self.things.remove(thing)
            return f"removed {thing}"

        def present(machine: Machine, facts: journal.Facts) -> bool:
            return Thing(name, str(facts["path"])) in self.things

        return journal.Kind(name, present, undo, **FLAGS[name])

    def in_use(self, thing: Thing) -> bool:
        return self.is_busy and thing.path == "busy"

    @property
    def living(self) -> list[Session]:
        return [session for session in self.sessions if session.owner == "alive"]

    @initialize(thing=THINGS)
    def begin(self, thing: Thing) -> None:
        self.make(0, thing, True)

    @rule(which=st.integers(0, 1), thing=THINGS, made=st.sampled_from([True, True, False]))
    def make(self, which: int, thing: Thing, made: bool) -> None:
        if which >= len(self.living):
            self.sessions.append(Session(Journal(self.directory, RealMachine())))
        session = self.living[-1] if which else self.living[0]
        block = session.book.entry(self.kinds[thing.kind], path=thing.path)
        number = block.__enter__()._number
        session.path = session.book._path
        session.on_file[number], session.blocks[number] = thing, block
        if made:
            self.things.add(thing)

    @precondition(lambda self: any(session.blocks for session in self.living))
    @rule(data=st.data(), removed=st.booleans(), fails=st.booleans())
    def end_block(self, data: st.DataObject, removed: bool, fails: bool) -> None:
        session = data.draw(st.sampled_from([session for session in self.living if session.blocks]))
        number = data.draw(st.sampled_from(sorted(session.blocks)))
        thing, block = session.on_file[number], session.blocks.pop(number)
        if removed:
            self.things.discard(thing)
        error = KeyboardInterrupt() if fails else None
        can_undo = not self.in_use(thing) and thing.kind != "kept" and thing.path != "stuck"
        is_gone = thing not in self.things or can_undo if fails else thing.kind != "first" or len(session.on_file) == 1
        assert not block.__exit__(type(error) if error else None, error, None)
        assert not (fails and can_undo and thing in self.things), "what an error leaves is undone"
        if is_gone:
            del session.on_file[number]

    @precondition(lambda self: self.living)
    @rule(data=st.data(), owner=st.sampled_from(["closed", *OWNERS]), torn=st.sampled_from(["", '{"entry": 99, "ki']))
    def end_session(self, data: st.DataObject, owner: str, torn: str) -> None:
        session = data.draw(st.sampled_from(self.living))
        if owner == "closed":
            remaining = [str(thing) for thing in session.on_file.values() if thing.kind != "first"]
            assert session.book.close() == remaining
            for block in session.blocks.values():
                block.__exit__(None, None, None)
            if not remaining:
                session.path = None
        session.book._open.clear()  # of what is no more, nothing is written
        session.owner = owner = "killed" if owner == "closed" else owner
        if session.path:
            header, *rest = session.path.read_text().splitlines(keepends=True)
            content = json.loads(header)
            content["session"].update(OWNERS[owner])
            session.path.write_text("".join([json.dumps(content) + "\n", *rest, torn]))

    @rule(asked=st.booleans(), is_busy=st.booleans())
    def clean_up(self, asked: bool, is_busy: bool) -> None:
        self.is_busy = is_busy
        loaded = {name: kind for name, kind in self.kinds.items() if name != "foreign"}
        undone, left = self._expected(asked)
        self.undone.clear()
        report = journal.cleanup(self.directory, RealMachine(), lambda: loaded, asked=asked)
        assert self.undone == undone
        assert all(str(thing) in line for thing, line in zip(undone, report.undone, strict=True))
        assert all(re.search(text, line) for text, line in zip(left, report.left, strict=True))

    def _expected(self, asked: bool) -> tuple[list[Thing], list[str]]:
        """Return what a clean-up undoes, in its order, and what its lines on the rest contain. Forget what it does."""
        owners = [(session, thing) for session in self.sessions for thing in session.on_file.values()]
        in_use = {thing for session, thing in owners if session.owner in ("alive", "elsewhere")}
        things, undone, left = set(self.things), list[Thing](), list[str]()
        for session in sorted((session for session in self.sessions if session.path), key=lambda one: str(one.path)):
            if session.owner == "elsewhere":
                left.append("namespace")
            if session.owner in ("alive", "elsewhere"):
                continue
            remains = False
            for _, thing in sorted(session.on_file.items(), key=lambda item: (item[1].kind != "first", -item[0])):
                is_protected = thing in in_use or thing.kind == "foreign"
                is_lost = session.owner == "rebooted" and thing.kind not in ("plain", "first")
                if not is_protected and not (is_lost and thing.kind == "changed"):
                    if is_lost or thing not in things:
                        continue
                    if not self.in_use(thing) and (asked or thing.kind != "kept"):
                        undone.append(thing)
                        things -= {thing} if thing.path != "stuck" else set()
                        continue
                left.append(rf"{thing}\b.*{__name__}" if is_protected and thing not in in_use else str(thing))
                remains |= is_protected or not is_lost or not asked
            if not remains:
                session.path = None
        return undone, left

    @invariant()
    def the_files_hold_what_is_open(self) -> None:
        books = [book for book in journal._journals(self.directory) if isinstance(book, journal.Leftover)]
        assert {book.path: {entry.number: str(entry) for entry in book.entries} for book in books} == {
            session.path: {number: str(thing) for number, thing in session.on_file.items()}
            for session in self.sessions
            if session.path
        }

    def teardown(self) -> None:
        for session in self.sessions:
            session.book._open.clear()
            session.book.close()
        self.temporary.cleanup()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=200, stateful_step_count=20, deadline=None)


# -- undoing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("session", "words"), [({}, ""), ({"boot": "another"}, r".*\bboot\b")])
def test_a_directory_is_removed(journals: Path, tmp_path: Path, session: dict[str, object], words: str) -> None:
    new = tmp_path / "new"
    (new / "below").mkdir(parents=True)
    dead(journals, ("directory", {"path": str(new)}), **session)
    assert re.search(rf"{new} .*\b{os.getpid()}\b{words}", undone(journals))
    assert not new.exists()
    assert list(journals.iterdir()) == []
    assert cleanup(journals) == []


def exchanged(new: Path, precious: Path) -> None:
    new.rmdir()
    precious.rename(new)


def linked(new: Path, precious: Path) -> None:
    new.rmdir()
    new.symlink_to(precious)


@pytest.mark.parametrize("change", [exchanged, linked])
def test_what_is_in_place_of_a_directory_is_left_alone(
    journals: Path, tmp_path: Path, change: Callable[[Path, Path], None]
) -> None:
    new, precious = tmp_path / "new", tmp_path / "precious"
    new.mkdir()
    precious.mkdir()
    inode = precious.stat().st_ino
    dead(journals, ("directory", {"path": str(new)}))
    change(new, precious)
    assert re.search(rf"directory {new} .*\b{os.getpid()}\b", left_alone(journals))
    assert new.stat().st_ino == inode
    assert list(journals.iterdir()) == []


def test_a_directory_that_the_session_did_not_see_made_is_left_alone(journals: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    path = dead(journals, ("directory", {"path": str(new)}))
    new.mkdir()
    assert f"directory {new} " in left_alone(journals)
    assert new.exists()
    assert not path.exists()


def test_a_directory_with_something_mounted_in_it_is_left_alone(
    journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    new.mkdir()
    dead(journals, ("directory", {"path": str(new)}))
    monkeypatch.setattr(mounts, "below", lambda path: [f"{path}/mounted"])
    assert re.search(f"directory {new} .*{new}/mounted", left_alone(journals))
    assert new.exists()


def test_a_daemon_is_ended(journals: Path, sleeper: subprocess.Popen[bytes]) -> None:
    dead(journals, ("daemon", {"pid": sleeper.pid}))
    assert re.search(rf"\b{sleeper.pid}\b", undone(journals))
    assert sleeper.wait() == -15


def test_a_daemon_that_will_not_end_is_killed(journals: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        dead(journals, ("daemon", {"pid": process.pid}))
        assert len(cleanup(journals)) == 1
        assert process.wait() == -9


def test_a_later_process_of_that_number_is_left_alone(journals: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = dead(journals, ("daemon", {"pid": sleeper.pid}))
    path.write_text(path.read_text().replace(f'"start": {journal.start_time(sleeper.pid)}', '"start": 3'))
    assert cleanup(journals) == []
    assert sleeper.poll() is None
    assert not path.exists()


def test_after_a_reboot_processes_and_mounts_are_other_ones(journals: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = dead(journals, ("mount", {"target": "/"}), ("daemon", {"pid": sleeper.pid}), boot="another")
    assert cleanup(journals) == []
    assert sleeper.poll() is None
    assert not path.exists()


def test_a_zombie_has_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        assert commands.wait_until(lambda: journal.start_time(process.pid) is None, 60)
        assert Path(f"/proc/{process.pid}").exists()


class Mappings(RecordingMachine):
    """A machine with these mappings, which a command removes unless it fails."""

    def __init__(self, directory: Path, *names: str, error: commands.CommandError | None = None) -> None:
        super().__init__(directory)
        self.names, self.error = list(names), error

    def mappings(self, ours: Callable[[str], bool]) -> dict[str, Path]:
        return {name: Path(name) for name in self.names if ours(name)}

    def run(self, *argv: Word, **keywords: Any) -> str:
        if self.error:
            raise self.error
        self.names = [name for name in self.names if name not in argv]
        return super().run(*argv, **keywords)


def test_a_device_mapper_device_is_removed_by_its_name(journals: Path, tmp_path: Path) -> None:
    machine = Mappings(tmp_path, "fsstack-1-luks")
    dead(journals, ("dm", {"name": "fsstack-1-luks"}), ("dm", {"name": "fsstack-1-gone"}))
    assert "fsstack-1-luks" in undone(journals, machine)
    assert machine.commands == ["dmsetup remove fsstack-1-luks"]


def test_the_volumes_of_a_group_are_removed_whatever_they_are_called(
    journals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lvm, "DEV", tmp_path / "dev")
    (tmp_path / "dev/fsstack-1-2-lvm").mkdir(parents=True)
    ours = "fsstack--1--2--lvm-lv", "fsstack--1--2--lvm-pool_tdata"
    others = "fsstack--1--2--lvm2-lv", "fsstack--1--2--lvm--copy-lv", "system-lv"
    machine = Mappings(tmp_path, *reversed(ours), *others)
    dead(journals, ("vg", {"name": "fsstack-1-2-lvm"}), ("vg", {"name": "fsstack-1-gone"}))
    assert "fsstack-1-2-lvm" in undone(journals, machine)
    assert machine.commands == [f"dmsetup remove --deferred {' '.join(ours)}"]
    assert list((tmp_path / "dev").iterdir()) == []


def test_a_group_with_a_name_of_the_systems_is_left_alone(journals: Path, tmp_path: Path) -> None:
    machine = Mappings(tmp_path, "system-lv")
    dead(journals, ("vg", {"name": "system"}))
    assert "vg system " in left_alone(journals, machine)
    assert machine.commands == []


# -- disks -------------------------------------------------------------------------------------------------------------


DISK = {"path": "/dev/null", "number": "8:16", "size": 1 << 30, "diskseq": 5}


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the guard says of a labelled disk, to be changed by a test."""
    facts: dict[str, object] = dict(DISK)
    monkeypatch.setattr(guard, "identify", lambda path: SimpleNamespace(facts=lambda: facts))
    monkeypatch.setattr(guard, "labelled", lambda path: True)
    return facts


@pytest.mark.parametrize(
    ("facts", "session", "why"),
    [
        ({"path": "/dev/no/sdb"}, {}, "disk /dev/no/sdb .*: .*plugged"),
        ({"diskseq": None}, {}, "disk /dev/null .*: .*kernel"),
        ({}, {"boot": "another"}, "disk /dev/null .*: .*boot"),
    ],
    ids=["not there", "without a number", "after a reboot"],
)
def test_a_disk_that_may_be_another_one_is_left_alone_and_its_journal_goes(
    journals: Path, disk: dict[str, object], facts: dict[str, object], session: dict[str, str], why: str
) -> None:
    disk |= facts
    path = dead(journals, ("disk", {"path": "/dev/null"}), **session)
    assert re.search(why, left_alone(journals))
    assert not path.exists()


@pytest.mark.usefixtures("disk")
def test_a_disk_with_its_label_needs_nothing(journals: Path) -> None:
    path = dead(journals, ("disk", {"path": "/dev/null"}))
    assert cleanup(journals) == []
    assert not path.exists()


def test_where_there_is_no_room_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    thing = journal.Kind("thing", lambda machine, facts: True, lambda machine, facts: "undone")
    monkeypatch.setattr(os, "write", full)
    with (
        pytest.raises(OSError, match="No space left"),
        Journal(tmp_path / "journal", RealMachine()).entry(thing, name="x"),
    ):
        pytest.fail("it was begun")
    assert list((tmp_path / "journal").iterdir()) == []
