"""The output of fsx, as recorded from fsx 0.3.2."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from pathlib import Path

import pytest

from pytest_fsstack.measuring.timed import Completed
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.truth.correctness import exploring, fsxfile
from pytest_fsstack.truth.correctness.fsxfile import FsxError, difference, done_before, settings_for
from tests.toolkit import NotedStack, NotedTimed

WRONG = """\
[\x1b[31mERROR\x1b[0m fsx] miscompare: offset= 0x5087, size = 0x13ea
[ERROR fsx] OFFSET  GOOD  BAD  RANGE
[ERROR fsx]  0x5ccd 0xe5 0xab     0x1
[ERROR fsx] Step# (mod 256) for a misdirected write may be 163
[ERROR fsx] Using seed 5
[ERROR fsx]  424 MAPREAD  0x1eae8 => 0x20602 ( 0x1b1a bytes)
[ERROR fsx]  425 READ      0x5087 =>  0x6471 ( 0x13ea bytes)
"""


def done(code: int, said: str) -> Completed:
    return Completed(("fsx",), code, "", said)


def test_what_is_wrong_and_when_it_was_seen() -> None:
    assert difference(done(0, "")) == ""
    assert difference(done(1, WRONG)) == "miscompare: offset= 0x5087, size = 0x13ea"
    assert done_before(done(1, WRONG)) == 425
    assert done_before(done(1, "")) == 0


@pytest.mark.parametrize(
    ("code", "output", "shown"),
    [
        (1, "Error reading config file\n", r"exit code 1: Error reading config file"),
        (1, "", r"exit code 1: \S"),
        (1, "unwrap() on an `Err` value: EOPNOTSUPP\n", r"exit code 1: .* EOPNOTSUPP\b.*\bLimit\.ALLOCATION\b"),
        (-signal.SIGBUS, "", r"\bSIGBUS\b"),
        (-signal.SIGSEGV, "", r"\bSIGSEGV\b"),
        # The cause stands before the last operations.
        (1, "short write: 0x35c9 bytes\nUsing seed 5\nLOG DUMP\n8 WRITE\n9 WRITE", "short write: 0x35c9 bytes$"),
    ],
)
def test_what_says_nothing_of_the_file_is_an_error(code: int, output: str, shown: str) -> None:
    with pytest.raises(FsxError, match=f"^fsx: .*{shown}"):
        difference(done(code, output))


def test_what_a_stack_lacks_is_left_out() -> None:
    assert "punch_hole = 2.0\n" in settings_for({})
    assert "[opsize]\nmin = 1\n" in settings_for({})
    limited = settings_for({Limit.HOLES: "said so", Limit.ALLOCATION: "said so"})
    assert "punch_hole = 0.0\n" in limited
    assert "posix_fallocate = 0.0\n" in limited
    assert "mapwrite = 10.0\n" in limited


def stand_in(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Run a script instead of fsx."""
    path = directory / "fsx"
    path.write_text(script)
    path.chmod(0o755)
    monkeypatch.setattr(type(fsxfile.FSX), "path", str(path))


def test_its_panic_is_not_lost_behind_a_backtrace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(
        tmp_path, monkeypatch, '#!/bin/sh\necho "the message" >&2\n[ "$RUST_BACKTRACE" = 0 ] || seq 9 >&2\nexit 101\n'
    )
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    stack = NotedStack(tmp_path)
    with pytest.raises(FsxError, match=r"exit code 101: the message$"):
        fsxfile.fsx(NotedTimed(stack), stack, seed=1)


@pytest.mark.parametrize("spoiled", [False, True])
@pytest.mark.parametrize("code", [0, 1])
def test_a_stack_whose_server_fsx_ends_is_different(
    code: int, spoiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path, monkeypatch, f'#!/bin/sh\nfor last; do :; done\ntouch "$last"\necho "the message" >&2\nexit {code}\n'
    )
    stack, damaged = NotedStack(tmp_path), iter([False, True])
    monkeypatch.setattr(stack, "complete", lambda: next(damaged))
    with pytest.raises(FsxError, match="message") if code and spoiled else contextlib.nullcontext():
        wrong = fsxfile.fsx(NotedTimed(stack), stack, seed=1, spoiled=spoiled)
        assert ("the message" in wrong) == bool(code)
        # That a control is damaged does not show that a change is seen.
        assert ("remounted" in wrong) != spoiled


def test_a_stack_that_takes_no_more_writes_is_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, '#!/bin/sh\nfor last; do :; done\nmkdir "$last"\necho "the message" >&2\nexit 1\n')
    stack = NotedStack(tmp_path)
    wrong = fsxfile.fsx(NotedTimed(stack), stack, seed=1)
    assert wrong.startswith("fsx: it ended with exit code 1: the message; ")
    assert os.strerror(errno.EISDIR) in wrong


def test_a_stack_that_cannot_be_remounted_is_different_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = NotedStack(tmp_path)

    def refuse() -> bool:
        raise BuildError("it is gone")

    monkeypatch.setattr(stack, "complete", refuse)
    assert fsxfile.fsx(NotedTimed(stack), stack, seed=1) == "it is gone"
    with pytest.raises(BuildError):
        fsxfile.fsx(NotedTimed(stack), stack, seed=1, spoiled=True)
    (difference,) = exploring.explore(NotedTimed(stack), stack, seed=1)
    assert str(difference.error) == "it is gone"
    monkeypatch.setattr(stack, "complete", lambda: monkeypatch.setattr(stack, "complete", refuse))
    (difference,) = exploring.explore(NotedTimed(stack), stack, seed=1, themes=(), seconds=0.0)
    assert str(difference.error) == "it is gone"


def test_one_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "#!/bin/sh\nexec sleep 60\n")
    stack = NotedStack(tmp_path)
    with pytest.raises(FsxError, match=r"^fsx: .*\b0\.2 s$"):
        fsxfile.fsx(NotedTimed(stack), stack, seed=1, patience=0.2)
