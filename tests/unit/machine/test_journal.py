"""What journals prove, and what is left alone: without root, on directories, processes and fakes."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

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
    said = journal.cleanup(directory, machine or RealMachine(), lambda: KINDS)
    return [*said.undone, *said.left]


def undone(directory: Path, machine: Machine | None = None) -> str:
    """Clean up what is one thing, and return its line."""
    said = journal.cleanup(directory, machine or RealMachine(), lambda: KINDS)
    assert said.left == []
    (line,) = said.undone
    return line


def left_alone(directory: Path, machine: Machine | None = None) -> str:
    """Clean up where one thing is left alone, and return its line."""
    said = journal.cleanup(directory, machine or RealMachine(), lambda: KINDS)
    assert said.undone == []
    (line,) = said.left
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


def test_an_entry_is_on_file_before_its_block_runs_and_struck_out_after_it(journals: Path, tmp_path: Path) -> None:
    book = Journal(journals, RealMachine())
    with book.entry(KINDS["directory"], path=str(tmp_path / "new")):
        assert lines(journals)[1] == {
            "entry": 1,
            "kind": "directory",
            "module": "pytest_fsstack.machine.directories",
            "facts": {"path": str(tmp_path / "new")},
        }
    assert lines(journals)[2] == {"done": 1}
    book.close()
    assert list(journals.iterdir()) == []


def test_it_begins_with_what_tells_the_session_from_a_later_process(journals: Path, tmp_path: Path) -> None:
    with Journal(journals, RealMachine()).entry(KINDS["directory"], path=str(tmp_path / "new")):
        session = lines(journals)[0]["session"]
    assert session == {
        "pid": os.getpid(),
        "start": int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "pid_namespace": os.readlink("/proc/self/ns/pid"),
    }


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


def kind(undo: Callable[[Machine, journal.Facts], str], **more: Any) -> journal.Kind:
    """Of things that are files."""
    return journal.Kind("file", lambda machine, facts: Path(journal.text(facts, "path")).exists(), undo, **more)


def killed_once_it_was_made(path: Path) -> None:
    path.touch()
    raise KeyboardInterrupt


def removed(machine: Machine, facts: journal.Facts) -> str:
    Path(journal.text(facts, "path")).unlink()
    return "removed"


def refused(machine: Machine, facts: journal.Facts) -> str:
    raise commands.CommandError(["umount"], 32, "busy")


def test_what_an_error_leaves_is_undone_also_if_its_own_undo_was_never_reached(journals: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    book = Journal(journals, RealMachine())
    with pytest.raises(KeyboardInterrupt), book.entry(kind(removed), path=str(made)):
        killed_once_it_was_made(made)
    assert not made.exists()
    assert lines(journals)[-1] == {"done": 1}
    assert book.close() == []
    assert list(journals.iterdir()) == []


@pytest.mark.parametrize(
    "left", [kind(refused), kind(removed, only_asked=lambda facts: True), kind(lambda machine, facts: "so it says")]
)
def test_an_undo_that_failed_keeps_the_entry_and_the_journal(
    journals: Path, tmp_path: Path, left: journal.Kind
) -> None:
    made = tmp_path / "made"
    book = Journal(journals, RealMachine())
    with pytest.raises(KeyboardInterrupt), book.entry(left, path=str(made)):
        killed_once_it_was_made(made)
    assert book.close() == [f"file {made}"]
    assert len(lines(journals)) == 2


@pytest.mark.parametrize("fails", [True, False])
def test_what_comes_first_stays_in_the_journal_for_what_else_is_left(
    journals: Path, tmp_path: Path, fails: bool
) -> None:
    processes = dataclasses.replace(kind(removed), first=True)
    book = Journal(journals, RealMachine())
    made = tmp_path / "made"
    with book.entry(processes, path=str(tmp_path / "mark")):
        if fails:
            with pytest.raises(KeyboardInterrupt), book.entry(kind(refused), path=str(made)):
                killed_once_it_was_made(made)
    assert book.close() == ([f"file {made}"] if fails else [])
    kept = [line["entry"] for line in lines(journals)[1:]] if fails else []
    assert kept == ([1, 2] if fails else [])
    assert bool(list(journals.iterdir())) is fails


def test_an_entry_that_ends_after_the_journal_makes_no_other_one(journals: Path, tmp_path: Path) -> None:
    book = Journal(journals, RealMachine())
    with book.entry(kind(removed), path=str(tmp_path / "made")):
        assert book.close() == [f"file {tmp_path / 'made'}"]
    assert len(list(journals.iterdir())) == 1


def test_an_error_after_which_nothing_is_left_strikes_the_entry_out(journals: Path, tmp_path: Path) -> None:
    book = Journal(journals, RealMachine())
    with pytest.raises(RuntimeError), book.entry(KINDS["directory"], path=str(tmp_path / "never made")):
        raise RuntimeError
    book.close()
    assert list(journals.iterdir()) == []


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


def test_a_living_session_is_left_alone(journals: Path, tmp_path: Path) -> None:
    book = Journal(journals, RealMachine())
    with book.entry(KINDS["directory"], path=str(tmp_path)):
        before = lines(journals)
        assert leftovers(journals) == []
        assert cleanup(journals) == []
        assert lines(journals) == before
    assert tmp_path.exists()


def test_nothing_is_left_where_nothing_was(journals: Path) -> None:
    assert leftovers(journals) == []
    assert cleanup(journals) == []


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


def test_a_process_of_the_same_number_that_started_later_is_not_the_session(journals: Path, tmp_path: Path) -> None:
    dead(journals, ("directory", {"path": str(tmp_path / "gone")}))
    (left,) = leftovers(journals)
    assert left.session.pid == os.getpid()
    assert [str(entry) for entry in left.entries] == [f"directory {tmp_path / 'gone'}"]


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


def test_a_session_in_another_pid_namespace_may_be_alive(journals: Path, tmp_path: Path) -> None:
    path = dead(journals, ("directory", {"path": str(tmp_path)}), pid_namespace="pid:[1]")
    assert leftovers(journals) == []
    assert re.search(rf"\b{os.getpid()}\b.*\bnamespace\b", left_alone(journals))
    assert path.exists()


def test_the_line_that_was_being_written_is_ignored(journals: Path, tmp_path: Path) -> None:
    path = dead(journals, ("directory", {"path": str(tmp_path / "gone")}))
    with path.open("a") as file:
        file.write('{"entry": 2, "kind": "mou')
    (left,) = leftovers(journals)
    assert len(left.entries) == 1


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


# -- undoing -----------------------------------------------------------------------------------------------------------


def test_a_directory_is_removed(journals: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    (new / "below").mkdir(parents=True)
    dead(journals, ("directory", {"path": str(new)}))
    assert re.search(rf"{new} .*\b{os.getpid()}\b", undone(journals))
    assert not new.exists()
    assert list(journals.iterdir()) == []
    assert cleanup(journals) == []


def test_a_directory_is_removed_after_a_reboot_too(journals: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    dead(journals, ("directory", {"path": str(new)}), boot="another")
    assert re.search(rf"{new} .*\b{os.getpid()}\b.*\bboot\b", undone(journals))
    assert not new.exists()


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


def test_a_name_that_a_living_session_has_as_well_is_left_alone(journals: Path, tmp_path: Path) -> None:
    machine = Mappings(tmp_path, "fsstack-1-luks")
    path = dead(journals, ("dm", {"name": "fsstack-1-luks"}))
    with Journal(journals, machine).entry(KINDS["dm"], name="fsstack-1-luks"):
        assert "dm fsstack-1-luks " in left_alone(journals, machine)
    assert machine.commands == []
    assert path.exists()
    # Once that session has none, it is removed.
    assert "fsstack-1-luks" in undone(journals, machine)


def test_what_cannot_be_undone_keeps_nothing_else_from_it(journals: Path, tmp_path: Path) -> None:
    busy = commands.CommandError(["dmsetup"], 1, "Device or resource busy")
    machine = Mappings(tmp_path, "fsstack-1-luks", error=busy)
    first, last = tmp_path / "first", tmp_path / "last"
    first.mkdir()
    last.mkdir()
    path = dead(
        journals,
        ("directory", {"path": str(first)}),
        ("dm", {"name": "fsstack-1-luks"}),
        ("directory", {"path": str(last)}),
    )
    said = journal.cleanup(journals, machine, lambda: KINDS)
    assert [str(path) in line for path, line in zip((last, first), said.undone, strict=True)] == [True, True]
    (line,) = said.left
    assert re.search("dm fsstack-1-luks .*Device or resource busy", line)
    assert path.exists()
    assert cleanup(journals, Mappings(tmp_path)) == []
    assert not path.exists()


def test_a_thing_of_a_plugin_that_is_not_loaded_is_left_alone_with_its_name(journals: Path, tmp_path: Path) -> None:
    path = dead(journals, ("directory", {"path": str(tmp_path / "gone")}))
    path.write_text(path.read_text().replace('"directory"', '"castle"'))
    assert re.search(rf"castle {tmp_path}/gone .*pytest_fsstack\.machine\.directories\b", left_alone(journals))
    assert path.exists()


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
