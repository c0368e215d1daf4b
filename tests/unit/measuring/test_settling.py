"""The rest between two stacks: how long it takes, and what keeps it from ending."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from pytest_fsstack.measuring import settling
from pytest_fsstack.measuring.settling import Settle, disks_of, wait_until_quiet


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk whose statistics the test writes, on a machine that holds nothing back in memory."""
    disk = tmp_path / "sdx"
    disk.mkdir()
    write(disk, reads=5)
    monkeypatch.setattr(settling, "disks_of", lambda place: [disk])
    monkeypatch.setattr(settling, "unwritten", lambda: 0)
    return disk


def write(disk: Path, *, reads: int, in_flight: int = 0, discards: int = 0) -> None:
    (disk / "stat").write_text(f"{reads} 0 8 1 7 0 8 1 {in_flight} 5 5 {discards} 0 0 0 2 0\n")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "busy", "1e9"])
def test_what_is_neither_a_pause_nor_a_word_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="discard, idle"):
        Settle.parse(text)


@pytest.mark.parametrize("text", ["2.5 s", "discard", "idle"])
def test_a_choice_shows_as_it_was_written(text: str) -> None:
    assert str(Settle.parse(text.removesuffix(" s"))) == text


def test_a_pause_is_as_long_as_it_says() -> None:
    start = time.monotonic()
    assert not Settle(0.05).rest(Path("/"))
    assert time.monotonic() - start >= 0.05


def test_a_quiet_disk_is_waited_for_once(disk: Path) -> None:
    start = time.monotonic()
    assert not wait_until_quiet(Path("/"), patience=600, window=0.02)
    assert time.monotonic() - start < 300


def test_a_disk_that_works_is_waited_for(disk: Path) -> None:
    write(disk, reads=5, in_flight=1)
    threading.Timer(0.3, write, [disk], {"reads": 6}).start()
    start = time.monotonic()
    assert not wait_until_quiet(Path("/"), patience=600, window=0.1)
    assert time.monotonic() - start > 0.3


def test_a_disk_that_discards_all_the_time_is_named(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(range(1, 1000))
    monkeypatch.setattr(time, "sleep", lambda seconds: write(disk, reads=5, discards=next(counts)))
    assert "sdx" in wait_until_quiet(Path("/"), patience=0.01, window=0.01)


def test_a_disk_that_never_rests_is_named(disk: Path) -> None:
    write(disk, reads=5, in_flight=2)
    assert "sdx" in wait_until_quiet(Path("/"), patience=0.05, window=0.01)


def test_memory_that_is_written_is_waited_for(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter(range(10**9, 0, -(10**6)))
    monkeypatch.setattr(settling, "unwritten", lambda: next(sizes))
    assert "KiB" in wait_until_quiet(Path("/"), patience=0.05, window=0.01)


def test_the_disks_of_a_directory_are_those_of_its_filesystem(tmp_path: Path) -> None:
    assert all((disk / "stat").exists() for disk in disks_of(tmp_path))
    assert not disks_of(Path("/proc"))
