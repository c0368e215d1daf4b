"""The model against a directory of this machine, and differences that must be seen."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.correctness.contents import Call, Comparison, DifferentError
from pytest_fsstack.correctness.exploring import Difference, Patience, search, shrink
from pytest_fsstack.correctness.model import Model, data, difference
from pytest_fsstack.correctness.tree import Tree
from pytest_fsstack.machine import mounts, signals
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.model import Limit

PATIENT = Patience(RealMachine(), Path())

Changed = Callable[[Path], object]


def comparing(directory: Path, spoil: Changed = lambda root: None, full: bool = False) -> Callable[[], Comparison]:
    """Comparisons in directories of their own; `spoil` is what goes wrong at a remount."""
    numbers = count()

    def compared() -> Comparison:
        root = directory / str(next(numbers))
        return Comparison(root, lambda: spoil(root), full=full)

    return compared


def calls(*texts: str) -> list[Call]:
    """Calls as they are shown."""
    return [eval(text, {"__builtins__": {}}, _Names()) for text in texts]


class _Names(dict[str, Callable[..., Call]]):
    def __missing__(self, name: str) -> Callable[..., Call]:
        return lambda *arguments: Call(name, arguments)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("full", [False, True])
def test_the_model_is_right_about_a_filesystem_that_is(tmp_path: Path, seed: int, full: bool) -> None:
    os.umask(0o022)
    found = search(comparing(tmp_path, full=full), PATIENT, seed=seed, examples=10, steps=40, patience=0)
    assert found.difference is None
    # Four calls to begin with and a remount at the end are made in any case.
    assert found.calls > 10 * 5
    assert list(tmp_path.iterdir()) == []


def test_the_same_seed_makes_the_same_calls(tmp_path: Path) -> None:
    made: list[list[str]] = []
    for seed in (1, 1, 2):
        noted: list[str] = []
        inner = comparing(tmp_path / str(len(made)))
        (tmp_path / str(len(made))).mkdir()

        def compared(noted: list[str] = noted, inner: Callable[[], Comparison] = inner) -> Comparison:
            comparison = inner()
            make = comparison.make

            def noting(call: Call) -> None:
                noted.append(str(call))
                make(call)

            comparison.make = noting  # type: ignore[method-assign]
            return comparison

        search(compared, PATIENT, seed=seed, examples=3, steps=20, patience=0)
        made.append(noted)
    assert made[0] == made[1] != made[2]


def flip_first(root: Path) -> None:
    path = min((path for path in root.rglob("*") if path.is_file() and path.stat().st_size), default=None)
    if path:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


def test_a_changed_byte_is_found_with_the_fewest_calls_that_show_it(tmp_path: Path) -> None:
    found = search(comparing(tmp_path, flip_first), PATIENT, seed=1, examples=10, steps=40, patience=20).difference
    assert found
    assert found.words.startswith("after the remount, ")
    assert "1 wrong bytes" in found.words
    assert found.again
    names = [call.name for call in found.calls]
    assert names[-1] == "remount"
    # A file needs a call that makes it, or a directory and such a call.
    assert len(names) <= 3
    assert str(found) == f"{found.words}; calls: {'; '.join(map(str, found.calls))}"


def retarget(root: Path) -> None:
    (root / "s").unlink()
    (root / "s").symlink_to("b")


def replace_by_directory(root: Path) -> None:
    (root / "s").unlink()
    (root / "s").mkdir()


SPOILED: dict[str, tuple[Changed, str]] = {
    "a name": (lambda root: (root / "a").rename(root / "z"), "'a' missing and 'z' there, though removed or never made"),
    "a mode": (lambda root: (root / "a").chmod(0o600), "'a': mode 384 instead of 420"),
    "an attribute": (lambda root: os.setxattr(root / "a", "user.x", b"2"), r"'a': attributes {'x': b'2'} instead of"),
    "a link": (lambda root: os.link(root / "a", root / "b"), "'b' there, though"),
    "a size": (lambda root: os.truncate(root / "a", 9), "'a': 9 bytes instead of 10"),
    "a byte": (lambda root: (root / "a").write_bytes(data(9, 1) + b"!"), r"'a': 1 wrong bytes from 9 on \(found 0x21"),
    "a target": (retarget, "'s': a link to b instead of a"),
    "a kind": (replace_by_directory, "'s': a directory instead of a link to a"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_each_difference_is_said_in_words(tmp_path: Path, name: str) -> None:
    os.umask(0o022)
    spoil, words = SPOILED[name]
    comparison = comparing(tmp_path, spoil)()
    for call in calls("write('a', 0, 10, 1)", "set_attribute('a', 'x', b'1')", "symlink('a', 's')", "check()"):
        comparison.make(call)
    with pytest.raises(DifferentError, match=f"^after the remount, {words}"):
        comparison.make(Call("remount", ()))


def test_two_names_of_one_file_are_not_two_files(tmp_path: Path) -> None:
    os.umask(0o022)

    def part(root: Path) -> None:
        (root / "b").unlink()
        (root / "b").write_bytes((root / "a").read_bytes())

    comparison = comparing(tmp_path, part)()
    for call in calls("create('a')", "link('a', 'b')", "check()"):
        comparison.make(call)
    with pytest.raises(DifferentError, match="'a': links 1 instead of 2"):
        comparison.make(Call("remount", ()))


def test_an_answer_that_is_another_is_a_difference(tmp_path: Path) -> None:
    comparison = comparing(tmp_path)()
    comparison.make(Call("create", ("a",)))
    (tmp_path / "0" / "a").unlink()
    with pytest.raises(DifferentError, match=r"^unlink\('a'\): ENOENT instead of None$"):
        comparison.make(Call("unlink", ("a",)))
    (tmp_path / "0" / "a").write_bytes(b"xyz")
    comparison.make(Call("write", ("a", 0, 2, 65)))
    with pytest.raises(DifferentError, match=r"^read\('a', 0, 9\): 3 bytes instead of 2$"):
        comparison.make(Call("read", ("a", 0, 9)))


def test_what_a_layer_has_not_may_be_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "")

    monkeypatch.setattr(Tree, "link", refuse)
    strict = Comparison(tmp_path / "strict", lambda: None)
    strict.make(Call("create", ("a",)))
    with pytest.raises(DifferentError, match=r"link\('a', 'b'\): (ENOTSUP|EOPNOTSUPP) instead of None"):
        strict.make(Call("link", ("a", "b")))
    lenient = Comparison(tmp_path / "lenient", lambda: None, {Limit.HARD_LINKS: "said so"})
    for call in calls("create('a')", "link('a', 'b')", "check()"):
        lenient.make(call)


# -- without space -----------------------------------------------------------------------------------------------------


def without_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, does: Callable[[Path], object]
) -> Comparison:
    """A comparison whose tree does something else in place of a call, and then has no space."""
    comparison = Comparison(tmp_path / "full", lambda: None, full=True)
    comparison.make(Call("write", ("a", 0, 10, 1)))

    def call(*_: object) -> None:
        does(tmp_path / "full")
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(Tree, name, call)
    return comparison


POSSIBLE: dict[str, Changed] = {
    "nothing": lambda root: None,
    "a part": lambda root: (root / "a").write_bytes(data(10, 1) + data(3, 7)),
    "zeros": lambda root: (root / "a").write_bytes(data(10, 1) + bytes(4)),
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_write_without_space_may_have_written_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    os.umask(0o022)
    comparison = without_space(tmp_path, monkeypatch, "append", POSSIBLE[name])
    comparison.make(Call("append", ("a", 4, 7)))
    comparison.make(Call("check", ()))
    assert comparison.refused == 1


IMPOSSIBLE: dict[str, Changed] = {
    "other bytes": lambda root: (root / "a").write_bytes(data(9, 1) + b"!"),
    "less": lambda root: (root / "a").write_bytes(data(9, 1)),
    "more": lambda root: (root / "a").write_bytes(data(10, 1) + data(5, 7)),
    "no file": lambda root: (root / "a").unlink(),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    comparison = without_space(tmp_path, monkeypatch, "append", IMPOSSIBLE[name])
    with pytest.raises(DifferentError, match=r"^append\('a', 4, 7\): without space, "):
        comparison.make(Call("append", ("a", 4, 7)))


def test_a_name_that_was_refused_for_space_must_not_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = without_space(tmp_path, monkeypatch, "mkdir", lambda root: os.rename(root / "a", root / "d"))
    comparison.make(Call("mkdir", ("d",)))
    with pytest.raises(DifferentError, match="'a' missing and 'd' there"):
        comparison.make(Call("check", ()))


# -- fewer calls -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30), max_size=30), st.sets(st.integers(0, 30), min_size=1, max_size=3))
def test_no_call_is_left_that_the_difference_does_not_take(others: list[int], needed: set[int]) -> None:
    class Fake:
        def __init__(self) -> None:
            self.made: set[int] = set()
            self.calls: list[Call] = []

        def make(self, call: Call) -> None:
            self.made.add(call.arguments[0])
            if needed <= self.made:
                raise DifferentError("different")

        def dispose(self) -> None:
            pass

    way = [Call("write", (number,)) for number in [*others, *sorted(needed)]]
    found = Difference("different", way)
    shrink(Fake, found, float("inf"))  # type: ignore[arg-type]
    assert sorted(call.arguments[0] for call in found.calls) == sorted(needed)
    assert found.again


def test_a_difference_that_does_not_come_again_keeps_its_calls(tmp_path: Path) -> None:
    way = calls("create('a')", "unlink('a')")
    found = Difference("once", list(way))
    shrink(comparing(tmp_path), found, float("inf"))
    assert found.calls == way
    assert str(found) == "once, which did not come again; calls: create('a'); unlink('a')"


def test_of_a_stack_that_is_gone_no_call_is_left_out(tmp_path: Path) -> None:
    found = Difference("gone", calls("create('a')"))
    shrink(lambda: Comparison(tmp_path / "gone" / "x", lambda: None), found, float("inf"))
    assert str(found) == "gone; calls: create('a')"


def test_a_call_that_hangs_is_ended_and_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    patient = Patience(RealMachine(), tmp_path, 0.05)

    def abort(machine: object, place: Path) -> bool:
        ended.set()
        return place == tmp_path

    monkeypatch.setattr(mounts, "abort_fuse", abort)

    def hang(*_: object) -> None:
        assert ended.wait(10)
        raise OSError(errno.ECONNABORTED, "")

    monkeypatch.setattr(Tree, "fsync", hang)
    comparison = comparing(tmp_path)()
    patient.make(comparison, Call("create", ("a",)))
    with pytest.raises(DifferentError, match=r"^fsync\('a'\): it had not ended after 0.05 s$"):
        patient.make(comparison, Call("fsync", ("a",)))


class EndedError(Exception):
    """Ends the session of a test, like the exception of pytest.exit."""


def test_a_signal_during_a_remount_ends_the_search(tmp_path: Path) -> None:
    remounts = 0

    def interrupted(root: Path) -> None:
        nonlocal remounts
        remounts += 1
        os.kill(os.getpid(), signal.SIGTERM)
        # As if the signal had killed the command that unmounts.
        raise BuildError("umount: killed")

    with pytest.raises(EndedError), signals.caught(lambda number: EndedError(number)):
        search(comparing(tmp_path, interrupted), PATIENT, seed=1, examples=10, steps=40, patience=20)
    assert remounts == 1


def test_an_error_of_a_stack_that_is_broken_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr(Tree, "fsync", broken)
    comparison = comparing(tmp_path)()
    comparison.make(Call("create", ("a",)))
    with pytest.raises(DifferentError, match="EIO instead of None") as raised:
        comparison.make(Call("fsync", ("a",)))
    assert raised.value.kind == ""


def test_what_is_passed_over_is_no_difference(tmp_path: Path) -> None:
    os.umask(0o022)
    comparison = Comparison(tmp_path / "tree", lambda: None, passed_over=["create: None instead of EEXIST", "mode"])
    comparison.make(Call("create", ("a",)))
    (tmp_path / "tree" / "a").unlink()
    comparison.make(Call("create", ("a",)))
    (tmp_path / "tree" / "a").chmod(0o600)
    comparison.make(Call("check", ()))
    (tmp_path / "tree" / "a").write_bytes(b"1")
    with pytest.raises(DifferentError) as raised:
        comparison.make(Call("check", ()))
    assert raised.value.kind == ""


# -- words -------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_contents_that_differ_are_told_apart(one: bytes, two: bytes) -> None:
    assert bool(difference(one, two)) == (one != two)


@given(st.integers(0, 1000), st.integers(0, 600))
def test_data_of_any_length(length: int, fill: int) -> None:
    content = data(length, fill)
    assert len(content) == length
    assert content[:1] in (b"", bytes([fill % 251]))


def test_a_long_name_is_shown_short() -> None:
    assert str(Call("unlink", ("n" * 255,))) == "unlink('n' * 255)"
    assert str(Call("write", ("a", 0, 1, 2))) == "write('a', 0, 1, 2)"


def test_links_of_links_end(tmp_path: Path) -> None:
    model, tree = Model(), Tree(tmp_path / "tree")
    for side in (model, tree):
        side.symlink("t", "s")
        side.symlink("s", "t")
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            side.write("s", 0, 1, 1)
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            side.truncate("s", 1)


@pytest.mark.parametrize("call", ["pwrite", "write"])
def test_a_write_of_nothing_is_an_error_and_not_made_again(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(tmp_path / "tree")
    tree.create("file")
    monkeypatch.setattr(os, call, lambda *arguments: 0)
    with pytest.raises(OSError, match="written none"):
        tree.write("file", 0, 10, 1) if call == "pwrite" else tree.append("file", 10, 1)
