"""The oracle of power cuts: it accepts whatever a filesystem may leave, and finds each single thing that it may not."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pytest_fsstack.truth.damage.perform import content
from pytest_fsstack.truth.damage.plan import Operation, plan
from pytest_fsstack.truth.damage.promises import EMPTY_DIRECTORY, History, Kind, Unreadable

SEED = 7


class Model:
    """A filesystem that does not sync what it is not told to, kept apart from the oracle and written in another way:
    the directory as it was synced, and each file as it was, with all that happened to both since."""

    def __init__(self) -> None:
        self.names: dict[str, dict[str, object]] = {}
        self.directories: list[dict[str, dict[str, object]]] = [{}]

    def do(self, index: int, operation: Operation) -> None:
        names = dict(self.names)
        if operation.kind == "write":
            file = names.setdefault(operation.name, {"synced": b"", "since": [], "bytes": b""})
            data = content(SEED, index, operation.length)
            file["since"] = [*file["since"], (operation.offset, data)]  # type: ignore[misc]
            file["bytes"] = over(file["bytes"], operation.offset, data)  # type: ignore[arg-type]
            if operation.how:
                # Of these bytes alone, and of the size up to them; what came before is no safer than it was.
                file["synced"] = over(file["synced"], operation.offset, data)  # type: ignore[arg-type]
                since: list[Any] = file["since"]  # type: ignore[assignment]
                file["since"] = [cut for write in since for cut in without(write, operation)]
        elif operation.kind == "sync":
            file = names[operation.name]
            file["synced"], file["since"] = file["bytes"], []
        elif operation.kind == "sync all":
            for file in names.values():
                file["synced"], file["since"] = file.get("bytes", file["synced"]), []
            self.directories = [names]
        elif operation.kind == "sync directory":
            self.directories = [names]
        elif operation.kind == "rename":
            names[operation.to] = names.pop(operation.name)
        elif operation.kind == "make directory":
            names[operation.name] = {"synced": EMPTY_DIRECTORY, "since": []}
        elif operation.kind in ("unlink", "remove directory"):
            del names[operation.name]
        self.names = names
        self.directories.append(names)

    def crashed(self, draw: random.Random) -> dict[str, bytes]:
        """What may be left: the directory at some moment since its sync, and of each file its synced bytes under any
        part of what was written since."""
        contents: dict[str, bytes] = {}
        for name, file in draw.choice(self.directories).items():
            content: bytes = file["synced"]  # type: ignore[assignment]
            for offset, data in file["since"]:  # type: ignore[attr-defined]
                if draw.random() < 0.6:
                    start = draw.randrange(len(data) + 1)
                    stop = draw.randint(start, len(data))
                    content = over(content, offset + start, data[start:stop])
            contents[name] = content
        return contents


def without(write: tuple[int, bytes], operation: Operation) -> list[tuple[int, bytes]]:
    """The parts of a write that another one has not covered."""
    offset, data = write
    start, stop = operation.offset, operation.offset + operation.length
    parts = [(offset, data[: max(0, start - offset)]), (max(offset, stop), data[max(0, stop - offset) :])]
    return [part for part in parts if part[1]]


def over(old: bytes, offset: int, data: bytes) -> bytes:
    if not data:
        return old
    return old.ljust(offset, b"\0")[:offset] + data + old[offset + len(data) :]


def at(operations: list[Operation], number: int) -> Model:
    model = Model()
    for index, operation in enumerate(operations[:number]):
        model.do(index, operation)
    return model


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.floats(0, 1))
def test_all_that_a_filesystem_may_leave_is_accepted(which: int, how: int, part: float) -> None:
    operations = plan(which, 40)
    number = int(part * len(operations))
    history = History(SEED, operations)
    contents = at(operations, number).crashed(random.Random(how))
    assert history.broken(contents, number) == []
    if number < len(operations):
        # The next operation may have begun, and may have had its effect.
        next_one = at(operations, number)
        if not operations[number].kind.startswith("sync"):
            next_one.do(number, operations[number])
        assert history.broken(next_one.crashed(random.Random(how)), number) == []


def kinds(
    operations: list[Operation], contents: Mapping[str, bytes | Unreadable], number: int | None = None
) -> set[Kind]:
    return {
        loss.kind for loss in History(SEED, operations).broken(contents, len(operations) if number is None else number)
    }


SAVE = [Operation("write", "a", "", 0, 1000), Operation("sync", "a"), Operation("sync directory")]
SAVED = content(SEED, 0, 1000)


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(0, 999))
def test_each_byte_that_was_synced_must_be_there(which: int, place: int) -> None:
    # The plan goes on with other files of other numbers.
    later = [
        Operation(
            operation.kind,
            f"{operation.name}x" if operation.name else "",
            f"{operation.to}x",
            operation.offset,
            operation.length,
            operation.how,
        )
        for operation in plan(which, 20)
    ]
    operations = [*SAVE, *later]
    contents = at(operations, len(operations)).crashed(random.Random(which))
    assert contents["a"] == SAVED
    wrong = bytes([(SAVED[place] + 1 + which % 255) % 256])
    altered = over(SAVED, place, wrong)
    # A zero is what a write that never came leaves; anything else comes from nowhere.
    expected = {Kind.LOST} if wrong == b"\0" else {Kind.LOST, Kind.INVENTED}
    assert kinds(operations, {**contents, "a": altered}) == expected
    assert kinds(operations, {**contents, "a": SAVED[:place]}) == {Kind.LOST}
    assert kinds(operations, {**contents, "a": SAVED + b"\0"}) == {Kind.INVENTED}
    assert kinds(operations, {name: data for name, data in contents.items() if name != "a"}) == {Kind.LOST}
    assert kinds(operations, {**contents, "a": Unreadable("EIO")}) == {Kind.LOST, Kind.UNREADABLE}
    assert kinds(operations, {**contents, "never": b""}) == {Kind.INVENTED}


def test_until_it_is_synced_nothing_is_promised() -> None:
    for number in range(3):
        assert kinds(SAVE, {}, number) == set()
    # The file's own fsync does not promise its name; but if it is there, it is whole.
    assert kinds(SAVE, {"a": b""}, 1) == set()
    assert kinds(SAVE, {"a": Unreadable("EIO")}, 1) == {Kind.UNREADABLE}
    assert kinds(SAVE, {"a": b""}, 2) == {Kind.LOST}


def test_what_was_overwritten_may_be_the_old_or_the_new_at_each_byte() -> None:
    operations = [*SAVE, Operation("write", "a", "", 100, 50)]
    new = over(SAVED, 100, content(SEED, 3, 50))
    for found in (SAVED, new, new[:120] + SAVED[120:]):
        assert kinds(operations, {"a": found}) == set()
    again = [*operations, Operation("sync", "a")]
    assert kinds(again, {"a": new}) == set()
    # An older state of it is lost, and not invented.
    assert kinds(again, {"a": SAVED}) == {Kind.LOST}


@pytest.mark.parametrize("how", ["O_SYNC", "O_DSYNC", "msync"])
def test_a_write_that_syncs_promises_its_own_bytes_alone(how: str) -> None:
    before = Operation("write", "a", "", 0, 60)
    operations = [*SAVE, before, Operation("write", "a", "", 50, 50, how)]
    new = over(SAVED, 50, content(SEED, 4, 50))
    assert kinds(operations, {"a": new}) == set()
    assert kinds(operations, {"a": over(new, 0, content(SEED, 3, 60)[:50])}) == set()
    # Where it was itself, neither what was synced before nor what was written just before will do.
    assert kinds(operations, {"a": SAVED}) == {Kind.LOST}
    assert kinds(operations, {"a": over(new, 50, content(SEED, 3, 60)[50:])}) == {Kind.LOST}
    # Until it has returned, nothing of it is promised.
    assert kinds(operations, {"a": SAVED}, 4) == set()


@pytest.mark.parametrize("how", ["sync", "syncfs"])
def test_a_sync_of_all_promises_names_and_contents(how: str) -> None:
    operations = [Operation("write", "a", "", 0, 1000), Operation("sync all", how=how)]
    assert kinds(operations, {"a": SAVED}) == set()
    assert kinds(operations, {"a": SAVED[:999]}) == kinds(operations, {}) == {Kind.LOST}


def test_a_plan_has_each_call_that_syncs_but_those_that_are_left_out() -> None:
    single = {"fsync", "fdatasync", "O_SYNC", "O_DSYNC", "msync"}
    for of_all in False, True:
        calls = {operation.how for seed in range(5) for operation in plan(seed, 200, of_all=of_all)} - {""}
        assert calls == single | ({"sync", "syncfs"} if of_all else set())
    without = {operation.how for operation in plan(1, 500, ["syncfs", "msync"], of_all=True)}
    assert "sync" in without
    assert not {"syncfs", "msync"} & without


def test_all_files_are_often_synced_after_another_file_than_the_written_one() -> None:
    operations = plan(1, 200, of_all=True)
    late = [
        sync.kind == "sync all" and (write.kind, write.how) == ("write", "") and write.name != other.name
        for sync, write, other, again in zip(operations, operations[1:], operations[2:], operations[3:])
        if again.kind == "sync all" and other.name == "other" and other.how in ("O_SYNC", "O_DSYNC")
    ]
    assert sum(late) > 3


def test_a_rename_leaves_the_old_or_the_new_and_never_none() -> None:
    operations = [
        *SAVE,
        *(Operation("write", "b", "", 0, 10), Operation("sync", "b"), Operation("sync directory")),
        Operation("rename", "b", "a"),
    ]
    new = content(SEED, 3, 10)
    assert kinds(operations, {"a": SAVED, "b": new}) == set()
    assert kinds(operations, {"a": new}) == set()
    assert kinds(operations, {"a": SAVED}) == {Kind.LOST}
    assert kinds(operations, {"b": new}) == {Kind.LOST}
    synced = [*operations, Operation("sync directory")]
    assert kinds(synced, {"a": new}) == set()
    # An older state of the directory is lost, and not invented.
    assert kinds(synced, {"a": SAVED, "b": new}) == {Kind.LOST}
    assert kinds(synced, {"a": SAVED[:-1] + b"!", "b": new}) == {Kind.LOST, Kind.INVENTED}


def test_a_directory_whose_name_is_synced_can_be_listed() -> None:
    operations = [Operation("make directory", "d")]
    assert kinds(operations, {}) == kinds(operations, {"d": EMPTY_DIRECTORY}) == set()
    synced = [*operations, Operation("sync directory")]
    assert kinds(synced, {}) == {Kind.LOST}
    assert kinds(synced, {"d": EMPTY_DIRECTORY}) == set()
    assert kinds(synced, {"d": Unreadable("EIO")}) == {Kind.LOST, Kind.UNREADABLE}
    assert kinds(synced, {"d": b"a/name"}) == {Kind.LOST, Kind.INVENTED}


def test_what_is_gone_for_good_stays_gone() -> None:
    operations = [*SAVE, Operation("unlink", "a")]
    assert kinds(operations, {"a": SAVED}) == kinds(operations, {}) == set()
    assert kinds([*operations, Operation("sync directory")], {"a": SAVED}) == {Kind.LOST}


@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_can_be_done_and_syncs_at_its_beginning_and_its_end(seed: int, of_all: bool) -> None:
    operations = plan(seed, 60, of_all=of_all)
    assert operations == plan(seed, 60, of_all=of_all)
    assert 60 <= len(operations) <= 64
    names: set[str] = set()
    for operation in operations:
        assert not operation.name or operation.kind in ("write", "make directory") or operation.name in names
        if operation.kind == "write":
            assert operation.length > 0
            assert operation.offset + operation.length <= 48 << 10
            names.add(operation.name)
        elif operation.kind == "make directory":
            assert operation.name not in names
            names.add(operation.name)
        elif operation.kind in ("rename", "unlink", "remove directory"):
            names.remove(operation.name)
            names.update({operation.to} - {""})
    assert [operation.kind for operation in operations].index("sync directory") < 9
    assert operations[-1].kind == "sync directory"
