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
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from pytest_fsstack.over_time import history
from pytest_fsstack.over_time.history import History, append, aside_of, file_of, prune, read
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


STARTS = ["", "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]
RUNS = st.tuples(st.sampled_from(["first", "caf\u2028\n"]), st.sampled_from(STARTS))


def line_of(name: str, start: str) -> str:
    return saved.line(replace(named(name), start=start))


class AnyHistory(RuleBasedStateMachine):
    """A history with power cuts, disks that are full, lines of other versions, and pruning."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary, self.patch = tempfile.TemporaryDirectory(), pytest.MonkeyPatch()
        self.path = Path(self.temporary.name, "x.jsonl")
        #: The runs in their order (name and start), the bytes after the last line, and all that was moved aside.
        self.runs: list[tuple[str, str]] = []
        self.torn = self.aside = b""

    @initialize(block=st.integers(1, 200))
    def search_in_blocks(self, block: int) -> None:
        self.patch.setattr(history, "_BLOCK", block)

    @rule(run=RUNS)
    def add(self, run: tuple[str, str]) -> None:
        assert append(self.path, line_of(*run)) == len(self.torn)
        self.runs.append(run)
        self.aside, self.torn = self.aside + self.torn, b""

    @precondition(lambda self: self.runs and not self.torn)
    @rule(run=RUNS, data=st.data(), zeros=st.sampled_from([b"", b"\0" * 5, b"\0" * 4096 + b"\n"]))
    def cut_the_power(self, run: tuple[str, str], data: st.DataObject, zeros: bytes) -> None:
        """Write a part of a line, and bytes that a filesystem may leave there."""
        line = line_of(*run).encode()
        torn = line[: data.draw(st.integers(0, len(line)) | st.just(len(line)))] + zeros
        with self.path.open("ab") as file:
            file.write(torn)
        if torn == line:
            # Only its end is missing, which the next line adds.
            self.runs.append(run)
            self.add(run)
        else:
            self.torn = torn

    @precondition(lambda self: not self.torn)
    @rule(fails=st.sampled_from(["write", "fsync"]))
    def fail_to_write(self, fails: str) -> None:
        write = os.write

        def half(descriptor: int, content: bytes) -> int:
            return write(descriptor, content[: len(content) // 2])

        def no_sync(descriptor: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, fails, {"write": half, "fsync": no_sync}[fails])
            with pytest.raises(OSError, match=r"No space left|Input/output error"):
                append(self.path, LINES[1])

    @precondition(lambda self: self.path.exists())
    @rule(before=st.sampled_from(STARTS))
    def prune(self, before: str) -> None:
        kept = [run for run in self.runs if (run[1] or before) >= before]
        assert prune(self.path, before) == (len(kept), len(self.runs) - len(kept), len(self.torn.rstrip(b"\n")))
        self.runs, self.aside, self.torn = kept, self.aside + self.torn, b""

    @invariant()
    def all_runs_are_read(self) -> None:
        content = read(self.path) if self.path.exists() else History([], [])
        assert [(run.labels["run"], run.start) for run in content.runs] == self.runs
        assert len(content.problems) == bool(self.torn)
        aside = aside_of(self.path)
        assert (aside.read_bytes() if aside.exists() else b"").replace(b"\n", b"") == self.aside.replace(b"\n", b"")

    def teardown(self) -> None:
        self.patch.undo()
        self.temporary.cleanup()


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=50, stateful_step_count=15, deadline=None)


def test_each_machine_has_a_file(tmp_path: Path) -> None:
    assert file_of(tmp_path, "0" * 32).name == f"{'0' * 32}.jsonl"
    assert file_of(tmp_path, None).name == "unknown-machine.jsonl"


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
