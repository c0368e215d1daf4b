"""The history of a machine: added runs survive concurrent writers and power cuts."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.over_time import history
from pytest_fsstack.over_time.history import append, aside_of, file_of, read
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from tests.unit.over_time.test_comparison import run


def named(name: str, interrupted: str = "") -> Results:
    results = run()
    results.labels, results.interrupted = {"run": name}, interrupted
    return results


def names(path: Path) -> list[str]:
    return [results.labels["run"] for results in read(path).runs]


LINES = [saved.line(named(name)) for name in ("first", "second", "third")]


def test_what_was_added_is_read_in_its_order(tmp_path: Path) -> None:
    path = file_of(tmp_path, "0" * 32)
    assert path.name == f"{'0' * 32}.jsonl"
    assert file_of(tmp_path, None).name == "unknown-machine.jsonl"
    odd = named("caf\udce9\u2028\n", "Ctrl-C")
    for results in (named("first"), odd):
        assert append(path, saved.line(results)) == 0
    assert path.read_bytes().count(b"\n") == 2
    assert read(path).problems == []
    assert [saved.dumps(each) for each in read(path).runs] == [saved.dumps(each) for each in (named("first"), odd)]


@given(st.integers(0, len(LINES[1])), st.sampled_from([b"", b"\0" * 5, b"\0" * 4096 + b"\n"]), st.integers(1, 200))
def test_a_power_cut_anywhere_costs_no_other_line_and_no_byte(kept: int, zeros: bytes, block: int) -> None:
    """Cut the second line after `kept` bytes, and append bytes that a filesystem may leave there."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "_BLOCK", block)
        path = Path(directory, "x.jsonl")
        append(path, LINES[0])
        torn = LINES[1].encode()[:kept] + zeros
        with path.open("ab") as file:
            file.write(torn)
        whole = torn == LINES[1].encode()
        expected = ["first", "second"] if whole else ["first"]
        # A reader tells it, and changes nothing.
        for _ in range(2):
            assert names(path) == expected
            assert len(read(path).problems) == (0 if whole or not torn else 1)
        moved = append(path, LINES[2])
        assert moved == (0 if whole else len(torn))
        if moved:
            assert aside_of(path).read_bytes().removesuffix(b"\n") == torn.removesuffix(b"\n")
        assert aside_of(path).exists() == bool(moved)
        # It was told, and is told no more.
        assert (names(path), read(path).problems) == ([*expected, "third"], [])
        assert append(path, LINES[0]) == 0
        assert path.read_bytes().count(b"\n") == len(expected) + 2


def test_the_only_line_may_be_torn(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"format": 3')
    (problem,) = read(path).problems
    assert re.match(r"x\.jsonl: .*\b1\b", problem)
    # It is no whole line, so nothing is said of its content.
    assert "JSON" not in problem
    assert append(path, LINES[0]) == 12
    assert names(path) == ["first"]


def test_what_is_no_run_in_the_middle_is_told_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xff\n{}\n" + LINES[0].encode() + b'\n{"format": 99}\n' + LINES[1].encode() + b"\n")
    assert names(path) == ["first", "second"]
    first, second, third = read(path).problems
    assert re.match(r"x\.jsonl: .*\b1 .*\b0xff\b", first)
    assert re.match(r"x\.jsonl: .*\b2 .*missing required field `format`", second)
    assert re.match(r"x\.jsonl: .*\b4 .*\b99\b", third)


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"torn')

    def add(writer: int) -> int:
        return sum(append(path, saved.line(named(f"{writer}/{number}"))) for number in range(8))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(add, range(4))) == len('{"torn')
    assert sorted(names(path)) == sorted(f"{writer}/{number}" for writer in range(4) for number in range(8))
    assert read(path).problems == []


def test_a_writer_that_waited_for_a_file_that_was_replaced_writes_to_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    locks: list[int] = []
    append(path, LINES[0])
    locked = fcntl.flock

    def replace_first(descriptor: int, how: int) -> None:
        if not locks:
            (tmp_path / "new").write_text(f"{LINES[1]}\n")
            (tmp_path / "new").rename(path)
        locks.append(how)
        locked(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    append(path, LINES[2])
    assert names(path) == ["second", "third"]


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_what_cannot_be_written_leaves_the_file_as_it_was(
    tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    append(path, LINES[0])
    before, write = path.read_bytes(), os.write

    def half(descriptor: int, content: bytes) -> int:
        return write(descriptor, content[: len(content) // 2])

    def no_sync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, {"write": half, "fsync": no_sync}[fails])
        with pytest.raises(OSError, match=r"No space left|Input/output error"):
            append(path, LINES[1])
    assert path.read_bytes() == before
    assert append(path, LINES[1]) == 0
    assert names(path) == ["first", "second"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\nsecond\nlast line without an end")
    path = tmp_path / "x.jsonl"
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        append(path, LINES[0])
    path.unlink()
    append(path, LINES[0])
    aside_of(path).symlink_to(secret)
    with path.open("a") as file:
        file.write('{"torn')
    with pytest.raises(OSError, match="symbolic links"):
        append(path, LINES[0])
    assert secret.read_text() == "first\nsecond\nlast line without an end"


@pytest.mark.parametrize("content", ["root:x:0:0\nlast", "one line", "key\n", '{"token": 1}\n', "\n\nx"])
def test_a_file_that_holds_no_run_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(OSError, match=re.escape(str(path))) as refused:
        append(path, LINES[0])
    assert refused.value.errno == errno.EINVAL
    assert path.read_text() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_was_cut_off_is_as_readable_as_the_history(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    append(path, LINES[0])
    path.chmod(0o640)
    with path.open("a") as file:
        file.write('{"torn')
    assert append(path, LINES[1]) == len('{"torn')
    assert aside_of(path).stat().st_mode & 0o777 == 0o640
