"""Messages of the step of power cuts that cannot do its work, and the scenario's use of its counts."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from pytest_fsstack import BuildError, Built
from pytest_fsstack.layers import BUILT_IN, recorder
from pytest_fsstack.layers.recorded import RecordedBlock
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.records.findings import Finding
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import CheckResult, Directory
from pytest_fsstack.truth.damage import power
from pytest_fsstack.truth.damage.perform import act, content
from pytest_fsstack.truth.damage.plan import Operation
from pytest_fsstack.truth.damage.power import Damage, power_cuts
from pytest_fsstack.truth.damage.promises import Found, Unreadable
from pytest_fsstack.truth.damage.writelog import Entry, Image, Kind as EntryKind, LogReader
from scenarios.test_power_cut import MUST_LOSE, broken
from tests.toolkit import NotedStack, NotedTimed


def test_without_a_log_there_is_nothing_to_cut(tmp_path: Path) -> None:
    stack = NotedStack(tmp_path)
    timed = NotedTimed(stack)
    with pytest.raises(BuildError, match=r"`directory` .*\brecorded\b"):
        power_cuts(timed, stack, seed=1, operations=10, cuts=1)
    assert timed.blocks == []


def test_a_checker_that_is_never_clean_judges_no_cut(stack: NotedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.stack = Stack.parse("recorded | ext4", BUILT_IN)
    monkeypatch.setattr(stack, "fsck", lambda: {"ext4": CheckResult(False, "unsupported feature(s): X")})
    with pytest.raises(BuildError, match=r"`recorded \| ext4` .*: before .*\bext4 is not clean: unsupported"):
        power_cuts(NotedTimed(stack), stack, seed=1, operations=10, cuts=1)


HISTORY = power.Files(3, [Operation("write", "a", "", 0, 8), Operation("sync", "a"), Operation("sync directory")])
WHOLE = {"a": content(3, 0, 8)}


def counted(found: Found, wrong: str = "", mounted: bool = True, checked: bool = True) -> set[str]:
    """What holds after one cut."""
    damage = Damage()
    state = power._StateAfterCut([Finding(wrong, wrong)] if wrong else [], mounted, found, checked)
    broken = damage.count(state, HISTORY, 3)
    figures = {name: value for name, value in vars(damage).items() if isinstance(value, int)}
    assert set(figures.values()) <= {0, 1}
    assert bool(broken) is not figures["survived"]
    return {name for name, value in figures.items() if value}


def test_each_thing_that_is_wrong_counts_where_it_belongs() -> None:
    every = {"cuts", "mounted", "checked", "clean", "synced_there", "nothing_invented", "all_readable", "survived"}
    assert counted(WHOLE) == every
    assert counted(WHOLE, checked=False) == every - {"checked", "clean"}
    assert counted(WHOLE, "not clean") == every - {"clean", "survived"}
    assert counted({}, "refused", mounted=False, checked=False) == {"cuts"}
    assert counted({}) == every - {"synced_there", "survived"}
    assert counted({**WHOLE, "b": b""}) == every - {"nothing_invented", "survived"}
    assert counted({"a": Unreadable("EIO")}) == every - {"synced_there", "all_readable", "survived"}


class Refusing:
    """A stack that raises what it is told to when it is taken down, and when it is opened."""

    def __init__(self, directory: Path, closing: list[str], opening: list[str]) -> None:
        self.closing, self.opening, self.taken = closing, opening, 0
        device = directory / "device"
        device.write_bytes(bytes(8192))
        self.log = directory / "log"
        recorder.Log(str(self.log), 512)
        self.device = RecordedBlock(device, lambda: None, RealMachine(), log=self.log)

    @contextlib.contextmanager
    def taken_down(self, layer: str) -> Iterator[RecordedBlock]:
        assert layer == "ext4"
        self.taken += 1
        if self.closing:
            raise BuildError(self.closing.pop(0))
        yield self.device
        if self.opening:
            raise BuildError(self.opening.pop(0))

    def stands_on(self, image: Image) -> str:
        return power._stands_on(image, cast(Built, self), "ext4", LogReader(self.log), Image())


def test_a_daemon_that_died_of_the_cut_before_is_not_held_against_the_next_one(tmp_path: Path) -> None:
    image = Image()
    image.write(4096, b"new")
    stack = Refusing(tmp_path, ["it is not mounted any more"], [])
    assert stack.stands_on(image) == ""
    assert stack.taken == 2
    assert stack.device.path.read_bytes()[4096:4100] == b"new\0"
    with pytest.raises(BuildError, match="still in use"):
        Refusing(tmp_path, ["not mounted", "still in use"], []).stands_on(image)
    assert Refusing(tmp_path, [], ["refused\nand what the kernel said"]).stands_on(image) == "refused"


def test_a_loss_breaks_a_promise_unless_it_is_declared_and_a_control_must_lose(tmp_path: Path) -> None:
    whole = Damage(cuts=4, survived=4)
    damaged = Damage(cuts=4, survived=3, findings=[Finding("lost: bytes (fsync)", "what is gone")])

    def judged(text: str, damage: Damage) -> list[Finding]:
        stack = NotedStack(Path(tempfile.mkdtemp(dir=tmp_path)))
        stack.stack = Stack.parse(text, BUILT_IN)
        return broken(stack, damage)

    for text in ("ext4", "ext4 | gocryptfs", "own = xfs"):
        assert judged(text, whole) == []
        assert judged(text, damaged) == damaged.findings
    for text in ("ext2", "vfat", "ext4(mount='noatime,data=writeback')"):
        assert judged(text, whole) == judged(text, damaged) == []
    for name in MUST_LOSE:
        (finding,) = judged(f"{name} = ext4", whole)
        assert re.search(r"\b4 power cuts\b", finding.text)
        assert judged(f"{name} = ext4", damaged) == []


def test_a_cut_during_the_recovery_is_one_of_the_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three looks, the last is at what is left of the writes that the second one saw."""
    stack, images = NotedStack(tmp_path), []
    log = recorder.Log(str(tmp_path / "log"), 512)
    device = RecordedBlock(tmp_path / "device", lambda: None, RealMachine(), log=tmp_path / "log", file=tmp_path)
    stack.stack = Stack.parse("recorded | ext4", BUILT_IN)
    stack._places.append(Directory(tmp_path))
    monkeypatch.setattr(stack, "taken_down", lambda layer: contextlib.nullcontext(device))
    monkeypatch.setattr(stack, "fsck", dict)
    monkeypatch.setattr(power, "_begun", lambda entries, cut: 0)

    def work(*words: str, **options: object) -> None:
        for entry in range(9):
            log.add(recorder.IS_MARK, mark=b"0")
            log.add(0, 512 * entry, 512, bytes([entry + 1]) * 512)
        log.add(recorder.IS_MARK, mark=b"0")

    def left(
        stack: Built, above: str, reader: LogReader, now: Image, image: Image, work: object
    ) -> power._StateAfterCut:
        images.append(image)
        written = Entry(EntryKind.WRITE, 512 * 100, 512, b"r" * 512)
        return power._StateAfterCut([], entries=[written, Entry(EntryKind.FLUSH)] * 4)

    timed = NotedTimed(stack)
    monkeypatch.setattr(timed, "run", work)
    monkeypatch.setattr(power, "_state_after", left)
    damage = power_cuts(timed, stack, seed=3, operations=10, cuts=4)
    assert damage.cuts == 4
    recovered = [b"r" in image.read(512 * 100, 512) for image in images]
    assert any(recovered)
    assert not recovered[0]
    ((first, second),) = [(images[index - 1], images[index]) for index in range(1, len(images)) if recovered[index]]
    assert second.read(0, 512 * 100) == first.read(0, 512 * 100)


def test_a_short_write_is_not_called_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: len(data) - 1)
    with pytest.raises(OSError, match=r"\b3 .*\b4 bytes") as error:
        act("write", str(tmp_path / "file"), "", 0, b"data")
    assert error.value.errno == errno.EIO


@pytest.mark.parametrize("how", ["", "O_SYNC", "O_DSYNC", "msync"])
def test_a_write_is_made_by_each_call(tmp_path: Path, how: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10))
    act("write", str(path), "", 3, b"data", how)
    assert path.read_bytes() == bytes(3) + b"data" + bytes(3)


@pytest.mark.parametrize(("kind", "how"), [("sync", "fsync"), ("sync", "fdatasync"), ("sync all", "syncfs")])
def test_each_call_that_syncs_is_made(tmp_path: Path, kind: str, how: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    act(kind, str(path if kind == "sync" else tmp_path), "", 0, b"", how)
    with pytest.raises(FileNotFoundError):
        act(kind, str(tmp_path / "none"), "", 0, b"", how)
