"""The model against a directory of this machine, and differences that must be seen."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.machine import mounts, orphans, signals
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.truth.correctness import exploring
from pytest_fsstack.truth.correctness.calls import MODES, Other, Side, answer, content_of, data
from pytest_fsstack.truth.correctness.contents import Comparison, DifferentError, Model, Weight, difference, orders
from pytest_fsstack.truth.correctness.drawing import DOMAINS, FULL, PARAMETERS, REMOUNT, THEMES, Call, Theme, draw
from pytest_fsstack.truth.correctness.exploring import Difference, Patience, Search, replay, shrink
from tests.toolkit import NotedStack, NotedTimed

PATIENT = Patience(RealMachine(), [])

Changed = Callable[[Path], object]
Replacing = Callable[[Callable[..., None]], None]
#: All themes but those that sync a disk.
QUICK = [theme.name for theme in THEMES if theme.name not in ("figures", "syncs", "everything")]


def comparing(directory: Path, spoil: Changed = lambda root: None, full: bool = False) -> Callable[[], Comparison]:
    """Comparisons in directories of their own; `spoil` is what goes wrong at a remount."""
    numbers = count()

    def compared() -> Comparison:
        number = next(numbers)
        return Comparison(
            directory / f"stack-{number}", directory / f"model-{number}", lambda: None, full=full, spoil=spoil
        )

    return compared


def calls(*texts: str) -> list[Call]:
    """Calls as they are shown."""
    return [eval(text, {"__builtins__": {}}, _Names()) for text in texts]


class _Names(dict[str, Callable[..., Call]]):
    def __missing__(self, name: str) -> Callable[..., Call]:
        return lambda *arguments: Call(name, arguments)


def searched(
    compared: Callable[[], Comparison],
    *themes: str,
    remount: Callable[[], object] = lambda: None,
    patient: Patience = PATIENT,
    seconds: float = 0,
) -> Search:
    search = Search(compared, remount, patient, users=os.geteuid() == 0)
    search.run([theme for theme in THEMES if theme.name in themes], 1, seconds)
    return search


@pytest.fixture
def flock(monkeypatch: pytest.MonkeyPatch) -> Replacing:
    """Replace flock on the stack. The model's does nothing."""
    monkeypatch.setattr(Model, "flock", lambda *_: None)
    return partial(monkeypatch.setattr, Side, "flock")


@pytest.fixture
def aborted(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the FUSE connections were aborted."""
    event = threading.Event()
    monkeypatch.setattr(mounts, "abort_fuse", lambda *_: event.set() or True)  # type: ignore[func-returns-value]
    return event


def test_the_model_agrees_with_a_filesystem_that_is_right_and_rare_conditions_are_met(tmp_path: Path) -> None:
    search = searched(comparing(tmp_path), *QUICK)
    assert search.differences == []
    assert list(tmp_path.iterdir()) == []
    met: dict[str, set[str]] = {}
    for call, condition in search.met:
        met.setdefault(condition, set()).add(call)
    assert {*met} >= {"unlinked", "linked", "open", "sparse", "beyond 2 GiB", "1,000 names", "odd name"}
    assert {*met} >= {"symbolic link", "directory", "refused"}
    assert "pwrite" in met["unlinked"]


@pytest.mark.parametrize("broken", [0, 1])
def test_all_files_are_closed_even_if_one_cannot_be(tmp_path: Path, broken: int) -> None:
    side = Side(str(tmp_path))
    for slot in (0, 1):
        side.open(slot, "a", "RDWR CREAT", 0o644)
    os.close(side.slots[broken])
    whole = side.slots[1 - broken]
    with pytest.raises(OSError, match="Bad file descriptor"):
        side.let_go()
    assert side.slots == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(whole)


def test_each_call_is_drawn_and_each_argument_has_values() -> None:
    helpers = {"at", "fd", "fd_of_file", "let_go", "entries", "opendir", "opened", "sectors"}
    helpers |= {"ctime", "other"}
    assert {name for name in vars(Side) if not name.startswith("_")} - helpers == {*PARAMETERS}
    for theme in (*THEMES, *FULL):
        for number in range(20):
            drawn = [*draw(theme, str(number), users=True)]
            assert all(len(call.arguments) == len(PARAMETERS[call.name]) for call in drawn[len(theme.begin) :])
            assert len(drawn) > len(theme.begin)
    assert {*DOMAINS} <= {name for names in PARAMETERS.values() for name in names} | {
        f"{call}.{name}" for call, names in PARAMETERS.items() for name in names
    }


def test_a_seed_draws_the_same_calls() -> None:
    assert [*draw(THEMES[0], "1")] == [*draw(THEMES[0], "1")] != [*draw(THEMES[0], "2")]


@pytest.mark.parametrize("how", ["", "KEEP_SIZE", "PUNCH_HOLE KEEP_SIZE"])
@pytest.mark.parametrize(("offset", "length"), [(0, 10), (5, 4096), (4000, 9000), (20_000, 1), ((4 << 30) - 1, 1)])
def test_the_model_of_fallocate_is_that_of_the_kernel(tmp_path: Path, how: str, offset: int, length: int) -> None:
    results = []
    for name, side in (("side", Side(str(tmp_path))), ("model", Model(str(tmp_path)))):
        side.open(0, name, "RDWR CREAT APPEND", 0o600)
        side.write(0, 10_000, 3)
        if isinstance(error := answer(side, "fallocate", (0, how, offset, length)), OSError):
            pytest.skip(f"fallocate here: {error}")
        size = (tmp_path / name).stat().st_size
        results.append((size, content_of(side.fd(0), size)))
        side.let_go()
    assert results[0] == results[1]
    assert MODES


def flip_last(root: Path) -> None:
    path = min((path for path in root.rglob("*") if path.is_file() and path.stat().st_size), default=None)
    if path:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


def test_a_changed_byte_is_found_with_the_fewest_calls_that_show_it(tmp_path: Path) -> None:
    (difference,) = searched(comparing(tmp_path, flip_last), "contents").differences
    assert re.search("': content 1 .*0x", str(difference.error))
    assert difference.again
    # A file needs a call that makes it and one that writes.
    assert [call.name for call in difference.calls] == ["open", "pwrite", "remount"]
    assert str(difference).startswith(str(difference.error))
    assert str(difference).endswith("; ".join(map(str, difference.calls)))
    assert len(difference.answers) == 3


def retarget(root: Path) -> None:
    (root / "s").unlink()
    (root / "s").symlink_to("b")


def replace_by_directory(root: Path) -> None:
    (root / "s").unlink()
    (root / "s").mkdir()


def replace_by_copy(root: Path) -> None:
    (root / "b").unlink()
    (root / "b").write_bytes((root / "a").read_bytes())


SPOILED: dict[str, tuple[Changed, str]] = {
    "a name": (lambda root: (root / "a").rename(root / "z"), "names 1 .*'a REG'.* 1 .*'z REG'"),
    "another name": (lambda root: (root / "z").touch(), "names 1 [^']*'z REG'[^']*$"),
    "a mode": (lambda root: (root / "a").chmod(0o600), "'a': mode 600 .*644$"),
    "an attribute": (lambda root: os.setxattr(root / "a", "user.x", b"2"), r"'a': user\.x 1 .*0x"),
    "a link": (lambda root: os.link(root / "a", root / "c"), "names 1 [^']*'c REG'[^']*$"),
    "two files": (replace_by_copy, r"'a': links 1 .*2$"),
    "a size": (lambda root: os.truncate(root / "a", 9), "'a': size 9 .*10$"),
    "a byte": (lambda root: (root / "a").write_bytes(data(9, 1) + b"!"), "'a': content 1 .* 9 .*0x21"),
    "a target": (retarget, "'s': target b .*a$"),
    "a kind": (replace_by_directory, "names 1 .*'s LNK'.* 1 .*'s DIR'"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_each_difference_is_described(tmp_path: Path, name: str) -> None:
    spoil, words = SPOILED[name]
    comparison = comparing(tmp_path, spoil)()
    texts = ["open(0, 'a', 'RDWR CREAT', 0o644)", "pwrite(0, 0, 10, 1)", "setxattr('a', 'user.x', 1, 1, '')"]
    for call in calls(*texts, "symlink('a', 's')", "link('a', 'b')"):
        comparison.make(call)
    with pytest.raises(DifferentError, match=words):
        comparison.make(REMOUNT)
    comparison.dispose()


def test_an_answer_that_is_another_is_a_difference(tmp_path: Path) -> None:
    comparison = comparing(tmp_path)()
    comparison.make(Call("open", (0, "a", "RDWR CREAT", 0o644)))
    (tmp_path / "stack-0" / "a").unlink()
    with pytest.raises(DifferentError, match=r"^unlink\('a'\): ENOENT .*done$"):
        comparison.make(Call("unlink", ("a",)))
    assert comparison.answers == ["done", "done"]
    comparison.dispose()


def refusing(number: int) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(number, "")

    return refuse


LIMITED = {
    Limit.HARD_LINKS: "link('a', 'b')",
    Limit.ATTRIBUTES: "setxattr('a', 'user.x', 1, 1, '')",
    Limit.HOLES: "fallocate(0, 'PUNCH_HOLE KEEP_SIZE', 0, 1)",
}


@pytest.mark.parametrize("limit", LIMITED, ids=lambda limit: limit.name)
def test_what_a_layer_declares_as_missing_may_be_refused_and_changes_nothing(tmp_path: Path, limit: Limit) -> None:
    (call,) = calls(LIMITED[limit])
    for limits in ({}, {limit: "declared"}):
        compared = tmp_path / f"stack{len(limits)}", tmp_path / f"model{len(limits)}"
        comparison = Comparison(*compared, lambda: None, limits)
        comparison.make(Call("open", (0, "a", "RDWR CREAT", 0o644)))
        setattr(comparison._stack, call.name, refusing(errno.EOPNOTSUPP))
        if limits:
            comparison.make(call)
        else:
            with pytest.raises(DifferentError, match=r"EOPNOTSUPP .*done$"):
                comparison.make(call)
        comparison.dispose()


@pytest.mark.parametrize("name", ["user.x", f"user.{'n' * 248}.x"])
@pytest.mark.parametrize("length", [100, 2000])
@pytest.mark.parametrize("before", [10, 2000])
def test_only_large_attributes_may_be_refused(tmp_path: Path, before: int, length: int, name: str) -> None:
    comparison = comparing(tmp_path)()
    comparison.make(Call("open", (0, "a", "RDWR CREAT", 0o644)))
    comparison.make(Call("setxattr", ("a", "user.y", before, 1, "")))
    comparison._stack.setxattr = refusing(errno.ENOSPC)  # type: ignore[method-assign]
    call = Call("setxattr", ("a", name, length, 1, ""))
    if name == "user.x" and before + length < 1000:
        with pytest.raises(DifferentError, match=r"ENOSPC .*done$"):
            comparison.make(call)
    else:
        comparison.make(call)
    comparison.dispose()


@pytest.mark.parametrize(("name", "refusable"), [("user.x", False), (f"user.{'n' * 248}.x", True)])
def test_an_attribute_that_cannot_be_stored_cannot_be_read(tmp_path: Path, name: str, refusable: bool) -> None:
    comparison = comparing(tmp_path)()
    comparison.make(Call("open", (0, "a", "RDWR CREAT", 0o644)))
    comparison._stack.getxattr = refusing(errno.EOVERFLOW)  # type: ignore[assignment]
    with contextlib.nullcontext() if refusable else pytest.raises(DifferentError, match="EOVERFLOW"):
        comparison.make(Call("getxattr", ("a", name)))
    comparison.dispose()


@pytest.mark.parametrize("how", ["chmod", "write", "truncate", "read"])
def test_only_reading_changes_the_time_of_access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    side, acts = Side(str(tmp_path)), {name: getattr(os, name) for name in ("read", "write", "ftruncate", "chmod")}
    side.open(0, "a", "RDWR CREAT", 0o600)
    assert side.access_time("a", how) == "kept"

    def touching(name: str, *arguments: Any) -> Any:
        result = acts[name](*arguments)
        os.utime(tmp_path / "a")
        return result

    for name in acts:
        monkeypatch.setattr(os, name, partial(touching, name))
    assert (side.access_time("a", how) == "kept") == (how == "read")
    side.let_go()


# -- without space -----------------------------------------------------------------------------------------------------


def test_without_space_for_a_directory_a_comparison_begins_once_the_ballast_has_given_way(tmp_path: Path) -> None:
    ballast = tmp_path / "ballast"
    ballast.touch()
    os.truncate(ballast, 64 << 20)
    # SSHFS reports a lack of space as the second one.
    errors = [OSError(errno.ENOSPC, "full"), FileExistsError(errno.EEXIST, "exists")]

    def compared() -> Comparison:
        if errors:
            raise errors.pop()
        return Comparison(tmp_path / "stack", tmp_path / "model", lambda: None)

    exploring._with_space(compared, ballast).dispose()
    assert ballast.stat().st_size < 64 << 20
    errors.append(FileExistsError(errno.EEXIST, "exists"))
    with pytest.raises(FileExistsError):
        exploring._with_space(compared, None)


def without_space(tmp_path: Path, name: str, does: Callable[[Path], object]) -> Comparison:
    """A comparison whose stack does something else in place of a call, and then has no space."""
    comparison = comparing(tmp_path, full=True)()
    for call in calls("open(0, 'a', 'RDWR CREAT', 0o644)", "pwrite(0, 0, 10, 1)"):
        comparison.make(call)

    def call_without_space(*_: object) -> None:
        does(tmp_path / "stack-0")
        raise OSError(errno.ENOSPC, "")

    setattr(comparison._stack, name, call_without_space)
    return comparison


CHANGED: dict[str, Callable[[Path], object]] = {
    "nothing": lambda root: None,
    "a part": lambda root: (root / "a").write_bytes(data(10, 1) + data(3, 7)),
    "zeros behind it": lambda root: (root / "a").write_bytes(data(10, 1) + bytes(4)),
    "zeros": lambda root: (root / "a").write_bytes(data(4, 1) + bytes(6)),
    "more zeros": lambda root: (root / "a").write_bytes(data(3, 1) + bytes(7)),
    "all": lambda root: os.truncate(root / "a", 4),
    "other bytes": lambda root: (root / "a").write_bytes(data(9, 1) + b"!"),
    "less": lambda root: (root / "a").write_bytes(data(9, 1)),
    "more": lambda root: (root / "a").write_bytes(data(10, 1) + data(5, 7)),
    "a name": lambda root: os.rename(root / "a", root / "d"),
}
WRITE, CUT, MAKE = calls("pwrite(0, 10, 4, 7)", "ftruncate(0, 4)", "mkdir('d', 0o755)")


@pytest.mark.parametrize(
    ("call", "change", "words"),
    [
        *((WRITE, change, "") for change in ("nothing", "a part", "zeros behind it")),
        *((CUT, change, "") for change in ("nothing", "zeros", "all")),
        (CUT, "more zeros", " 3 "),
        (WRITE, "other bytes", r"^pwrite\(slot=0, offset=10, length=4, fill=7\): \D*\b1 .* 9 .*0x21"),
        (WRITE, "less", r"^pwrite\(slot=0, offset=10, length=4, fill=7\): \D*\b9 bytes .*10"),
        (WRITE, "more", r"^pwrite\(slot=0, offset=10, length=4, fill=7\): \D*\b15 bytes .*10"),
        (MAKE, "a name", r"names 1 .*'a REG'.* 1 .*'d REG'"),
    ],
    ids=str,
)
def test_a_call_without_space_may_have_changed_its_own_part_and_nothing_else(
    tmp_path: Path, call: Call, change: str, words: str
) -> None:
    comparison = without_space(tmp_path, call.name, CHANGED[change])
    with pytest.raises(DifferentError, match=words) if words else contextlib.nullcontext():
        comparison.make(call)
        comparison.make(Call("close", (0,)))
    assert comparison.met[call.name, "no space"] == 1
    comparison.dispose()


def test_a_write_of_a_part_is_right_without_space_and_wrong_with(tmp_path: Path) -> None:
    for full in (True, False):
        comparison = comparing(tmp_path / str(full), full=full)
        (tmp_path / str(full)).mkdir()
        compared = comparison()
        compared.make(Call("open", (0, "a", "RDWR CREAT", 0o644)))
        write = compared._stack.pwrite
        first_two = partial(lambda write, slot, offset, length, fill: write(slot, offset, 2, fill), write)
        compared._stack.pwrite = first_two  # type: ignore[method-assign]
        if full:
            compared.make(Call("pwrite", (0, 0, 4, 7)))
        else:
            with pytest.raises(DifferentError, match=r"^pwrite\(slot=0, offset=0, length=4, fill=7\): 2 .*4$"):
                compared.make(Call("pwrite", (0, 0, 4, 7)))
        compared.dispose()


# -- other processes ---------------------------------------------------------------------------------------------------


def test_each_order_that_two_processes_may_have_is_tried_and_no_other() -> None:
    together = [[(0, 9), (1, 9)], [(0, 9)]]
    assert sorted(orders(together)) == [
        [(0, 0), (0, 1), (1, 0)],
        [(0, 0), (1, 0), (0, 1)],
        [(1, 0), (0, 0), (0, 1)],
    ]
    # The call of the second one began when the first of the others had ended, and ended before the second began.
    assert [*orders([[(0, 1), (6, 9)], [(2, 5)]])] == [[(0, 0), (1, 0), (0, 1)]]


AT_ONCE = (
    Call("open", (0, "a", "RDWR CREAT", 0o644)),
    Call("chmod", ("a", 0o600), 0, 1, True),
    Call("status", ("a", "mode"), 0, 2, True),
    Call("status", ("a", "mode"), 0, 2, True),
)


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme.at_once], ids=lambda theme: theme.name)
def test_no_theme_reads_and_truncates_at_once_which_fuse_does_not_order(theme: Theme) -> None:
    assert not {"pread", "ftruncate"} <= {word.partition("*")[0] for word in theme.calls.split()}


def test_what_two_processes_see_at_once_must_have_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replay(comparing(tmp_path), None, AT_ONCE, Comparison.make, 5) is None
    answers = Other.answers

    def half_done(other: Other) -> list[tuple[object, int, int]]:
        return [
            (0o100000 if difference == 0o100600 else difference, begin, end)
            for difference, begin, end in answers(other)
        ]

    monkeypatch.setattr(Other, "answers", half_done)
    difference = replay(comparing(tmp_path), None, AT_ONCE, Comparison.make, 50)
    assert difference
    assert re.search(r"chmod\('a', mode=0o600\) .*\b1: done, status\('a', 'mode'\) .*\b2: ", str(difference.error))
    assert len(getattr(difference.error, "possible", ())) == 3


def test_what_two_processes_leave_must_have_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Other.answers

    def changing(other: Other) -> list[tuple[object, int, int]]:
        (tmp_path / "stack-0" / "a").write_bytes(b"1")
        return answers(other)

    monkeypatch.setattr(Other, "answers", changing)
    difference = replay(comparing(tmp_path), None, AT_ONCE, Comparison.make)
    assert difference
    assert re.search("'a': size 1 .*0$", str(difference.error))
    assert difference.calls == [*AT_ONCE]


def test_a_lock_is_that_of_a_process(tmp_path: Path) -> None:
    comparison = comparing(tmp_path)()
    opened = Call("open", (0, "a", "RDWR CREAT", 0o644))
    lock = Call("lock", (0, "POSIX", "WRLCK", 0, 10))
    for process in (1, 2):
        comparison.make(replace(opened, process=process))
        comparison.make(replace(lock, process=process))
    assert comparison.answers == ["done", "done", "done", "EAGAIN"]
    comparison.dispose()


def test_a_process_that_ends_is_a_difference_and_others_go_on(tmp_path: Path) -> None:
    comparison = comparing(tmp_path)()
    comparison.make(Call("status", ("", "mode"), 0, 1))
    comparison._others._processes[False, 1]._process.kill()
    with pytest.raises(OSError, match=r" -9$") as caught:
        comparison.make(Call("status", ("", "mode"), 0, 1))
    assert caught.value.errno == errno.ESRCH
    comparison.leave()
    comparison.enter()
    comparison.make(Call("status", ("", "mode"), 0, 1))
    comparison.dispose()


# -- fewer calls -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 30), max_size=30), st.sets(st.integers(0, 30), min_size=1, max_size=3))
def test_no_call_is_left_that_the_difference_does_not_take(others: list[int], needed: set[int]) -> None:
    class Fake:
        def __init__(self) -> None:
            self.calls: list[Call] = []
            self.answers: list[str] = []
            self.conditions: list[str] = []

        def make(self, call: Call) -> None:
            self.calls.append(call)
            if needed <= {call.arguments[0] for call in self.calls}:
                raise DifferentError("different", "answer", Weight.ATTRIBUTES)

        def dispose(self) -> None:
            pass

    way = [Call("write", (number,)) for number in [*others, *sorted(needed)]]
    difference = Difference(None, DifferentError("different", "answer", Weight.ATTRIBUTES), way, [])
    shrink(Fake, difference, float("inf"), Fake.make)  # type: ignore[arg-type]
    assert sorted(call.arguments[0] for call in difference.calls) == sorted(needed)
    assert difference.again


def test_a_difference_that_does_not_come_again_keeps_its_calls(tmp_path: Path) -> None:
    way = calls("mkdir('a', 0o755)", "rmdir('a')")
    difference = Difference(None, DifferentError("once", "answer", Weight.ATTRIBUTES), list(way), [])
    shrink(comparing(tmp_path), difference, float("inf"), Comparison.make)
    assert difference.calls == way
    assert not difference.again
    assert str(difference) != str(replace(difference, again=True))
    assert re.fullmatch(r"once\b.*: mkdir\('a', mode=0o755\); rmdir\('a'\)", str(difference))


def test_of_a_stack_that_is_gone_no_call_is_left_out(tmp_path: Path) -> None:
    difference = Difference(None, DifferentError("gone", "answer", Weight.ATTRIBUTES), calls("umask(0)"), [])
    shrink(comparing(tmp_path / "gone"), difference, float("inf"), Comparison.make)
    assert (difference.again, difference.calls) == (False, calls("umask(0)"))


def test_a_directory_that_cannot_be_created_is_a_difference(tmp_path: Path) -> None:
    def compared() -> Comparison:
        raise OSError(errno.EIO, "Input/output error", str(tmp_path / "contents-3"))

    search = searched(compared, "names", "times")
    (difference,) = search.differences
    assert str(difference).endswith(": mkdir('contents-3', mode=0o777)")


def test_a_call_that_hangs_is_ended_and_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    patient = Patience(RealMachine(), [tmp_path], 0.05)

    def abort(machine: object, place: Path) -> bool:
        ended.set()
        time.sleep(0.05)
        return place == tmp_path

    monkeypatch.setattr(mounts, "abort_fuse", abort)

    def hang(*_: object) -> None:
        assert ended.wait(60)
        raise OSError(errno.ECONNABORTED, "")

    comparison = comparing(tmp_path)()
    monkeypatch.setattr(comparison._stack, "fsync", hang)
    patient.make(comparison, Call("open", (0, "a", "RDWR CREAT", 0o644)))
    with pytest.raises(DifferentError, match=r"^fsync\(slot=0\): .*\b0\.05 s$"):
        patient.make(comparison, Call("fsync", (0,)))
    comparison.dispose()


@pytest.mark.parametrize(("idle", "ends"), [(0.05, True), (600.0, False)])
def test_a_call_whose_servers_are_asleep_is_ended_early(
    idle: float, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aborted: threading.Event
) -> None:
    monkeypatch.setenv(orphans.VARIABLE, "a mark")
    comparison = comparing(tmp_path)()
    comparison.make(Call("open", (0, "a", "RDWR CREAT", 0o644)))

    def hang(*_: object) -> None:
        raise OSError(errno.ECONNABORTED if aborted.wait(60 if ends else 1.0) else errno.EIO, "")

    monkeypatch.setattr(comparison._stack, "fsync", hang)
    with subprocess.Popen(["sleep", "60"]) as server:
        try:
            with pytest.raises(DifferentError, match="worked" if ends else "EIO"):
                Patience(RealMachine(), [tmp_path], idle=idle).make(comparison, Call("fsync", (0,)))
        finally:
            server.kill()
    assert aborted.is_set() == ends
    comparison.dispose()


@pytest.mark.parametrize(
    ("share", "on_disk", "looks"),
    [
        (lambda look: 0.0, False, 41),
        (lambda look: 0.0002, False, 41),
        (lambda look: float(look < 10), False, 50),
        (lambda look: 0.01, False, 400),
        (lambda look: 0.0, True, 400),
    ],
)
def test_a_server_that_wakes_up_now_and_then_does_not_work(
    share: Callable[[int], float],
    on_disk: bool,
    looks: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    aborted: threading.Event,
) -> None:
    look, idle, cpu = count(), 0.05, 0.0

    def work() -> orphans.Work:
        nonlocal cpu
        cpu += share(next(look)) * idle / 40
        return orphans.Work(cpu, on_disk)

    monkeypatch.setattr(orphans, "work", work)
    patient = Patience(RealMachine(), [tmp_path], 0.5, idle)
    patient._watch(threading.Event())
    assert next(look) == pytest.approx(looks, abs=1)
    assert ("worked" in patient.over) == (looks < 400)


@pytest.mark.parametrize(("slow", "again"), [(1.0, True), (0.0, False)])
def test_only_quick_calls_are_repeated(
    slow: float,
    again: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flock: Replacing,
) -> None:
    monkeypatch.setattr(exploring, "_SLOW", slow)
    flock(refusing(errno.EIO))
    (difference,) = searched(comparing(tmp_path), "locks").differences
    assert difference.again is again
    assert str(difference) != str(replace(difference, again=not again))


def test_calls_that_hang_while_a_sequence_is_shortened_are_ended_too(
    tmp_path: Path, flock: Replacing, aborted: threading.Event
) -> None:
    times = count()

    def fail_then_hang(*_: object) -> None:
        assert not next(times) or aborted.wait(60)
        raise OSError(errno.EIO, "")

    flock(fail_then_hang)
    search = searched(comparing(tmp_path), "locks", patient=Patience(RealMachine(), [tmp_path], 0.05))
    assert aborted.is_set()
    assert len(search.differences) == 1


def test_a_daemon_that_ends_in_calls_at_once_leaves_its_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone: list[bool] = []
    begin = comparing(tmp_path)

    def compared() -> Comparison:
        if gone:
            raise OSError(errno.ENOTCONN, "")
        return begin()

    def end(*_: object) -> None:
        gone.append(True)
        raise DifferentError("the daemon has ended", "answer", Weight.ATTRIBUTES)

    monkeypatch.setattr(Comparison, "_make_at_once", end)
    (difference,) = searched(compared, *(theme.name for theme in THEMES if theme.at_once)).differences
    assert str(difference).startswith("the daemon has ended")


class EndedError(Exception):
    """Ends the session of a test, like the exception of pytest.exit."""


def test_a_signal_during_a_remount_ends_the_search(tmp_path: Path) -> None:
    remounts = 0

    def interrupted() -> None:
        nonlocal remounts
        remounts += 1
        os.kill(os.getpid(), signal.SIGTERM)
        # As if the signal had killed the command that unmounts.
        raise BuildError("umount: killed")

    with pytest.raises(EndedError), signals.caught(lambda number: EndedError(number)):
        searched(comparing(tmp_path), "contents", remount=interrupted)
    assert remounts == 1


def test_a_stack_that_cannot_be_remounted_ends_the_search(tmp_path: Path) -> None:
    def broken() -> None:
        raise BuildError("umount: busy")

    (difference,) = searched(comparing(tmp_path), "contents", remount=broken).differences
    assert str(difference).startswith("umount: busy")
    assert difference.calls == [REMOUNT]


def test_a_remount_that_fails_after_a_hanging_call_is_no_second_difference(tmp_path: Path, flock: Replacing) -> None:
    patient = Patience(RealMachine(), [tmp_path])

    def hang(*_: object) -> None:
        patient.over = "1 s"
        raise OSError(errno.ECONNABORTED, "")

    def broken() -> None:
        raise BuildError("umount: busy")

    flock(hang)
    (difference,) = searched(comparing(tmp_path), "locks", remount=broken, patient=patient).differences
    assert difference.theme
    assert difference.theme.name == "locks"


class SlowRemount:
    """A remount that takes 3 seconds on the search's clock, on which nothing else takes time."""

    now = 0.0

    def __call__(self) -> None:
        self.now += 3.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowRemount:
    remount = SlowRemount()
    monkeypatch.setattr(exploring, "time", remount)
    return remount


def test_a_theme_ends_with_its_first_difference_and_others_go_on(
    tmp_path: Path, flock: Replacing, slow: SlowRemount
) -> None:
    flock(refusing(errno.EIO))
    search = searched(comparing(tmp_path), "locks", "copies", remount=slow, seconds=30.0)
    assert [difference.theme.name for difference in search.differences if difference.theme] == ["locks"]
    assert search.met["copy_file_range", "made"] > 10


def test_no_turn_begins_that_would_not_end_in_time(tmp_path: Path, slow: SlowRemount) -> None:
    searched(comparing(tmp_path), "contents", remount=slow, seconds=10.0)
    assert slow.now == 9.0


# -- words -------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_contents_that_differ_are_told_apart(one: bytes, two: bytes) -> None:
    assert bool(difference(one, two)) == (one != two)


@given(st.integers(0, 1000), st.integers(0, 600))
def test_data_of_any_length(length: int, fill: int) -> None:
    content = data(length, fill)
    assert len(content) == length
    assert content[:1] in (b"", bytes([fill % 251 if fill != 251 else 0]))


@pytest.mark.parametrize("limits", [{}, {Limit.SPARSE: "declared"}], ids=["sparse", "not sparse"])
def test_no_gap_of_gigabytes_is_made_on_a_stack_that_would_fill_it(
    limits: dict[Limit, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, drawn = NotedStack(tmp_path), list[str]()
    monkeypatch.setattr(type(stack.stack), "limits", limits)
    monkeypatch.setattr(Search, "run", lambda search, themes, *_: drawn.extend(theme.name for theme in themes))
    exploring.explore(NotedTimed(stack), stack, seed=1)
    assert {theme.name for theme in THEMES} - {*drawn} == ({"far", "farther"} if limits else set())


def test_a_long_name_is_shown_short() -> None:
    assert str(Call("unlink", ("n" * 255,))) == "unlink('n' * 255)"
    shown = str(Call("pwrite", (0, 0, 4096, 2), 1000))
    assert re.fullmatch(r"pwrite\(slot=0, offset=0, length=4_096, fill=2\) .*\b1000", shown)


@pytest.mark.parametrize(("number", "is_late"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_lack_of_space_that_shows_at_a_sync_ends_no_search(
    number: int, is_late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ballast = tmp_path / "ballast"
    ballast.touch()
    stack, errors = NotedStack(tmp_path), [OSError(number, os.strerror(number))]

    def sync() -> None:
        if errors and not ballast.exists():
            raise errors.pop()

    monkeypatch.setattr(stack, "sync", sync)
    monkeypatch.setattr(exploring, "_fill", lambda directory, leave: ballast)
    with contextlib.nullcontext() if is_late else pytest.raises(OSError, match=os.strerror(number)):
        assert exploring.explore(NotedTimed(stack), stack, seed=1, themes=(), seconds=0.0, leave=1) == []
    assert not errors
