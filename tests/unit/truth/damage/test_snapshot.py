"""Files that a tree returns, and their changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.truth.damage import snapshot
from pytest_fsstack.truth.damage.snapshot import Effect, Entry, Shape, Snapshot

SHAPE = Shape(large=2, size=20_000, small=5)


def look(top: Path, most: int = 100) -> Snapshot:
    return snapshot.look(top, most=most, longest=SHAPE.size)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    snapshot.plant(tmp_path, SHAPE, 7)
    return tmp_path


def test_what_is_written_for_a_seed_is_always_the_same_and_no_sector_is_there_twice() -> None:
    files = snapshot.files(SHAPE, 7)
    assert files == snapshot.files(SHAPE, 7)
    assert files != snapshot.files(SHAPE, 8)
    assert len(files) == SHAPE.large + SHAPE.small
    large = b"".join(list(files.values())[: SHAPE.large])
    sectors = [large[start : start + 512] for start in range(0, len(large), 512)]
    assert len(set(sectors)) == len(sectors)


def test_all_that_was_written_is_read(tree: Path) -> None:
    entries = look(tree)
    assert entries.errors == {}
    assert {"large-0", "large-1", "link", "directory-3/below", "."} < entries.entries.keys()
    for name, content in snapshot.files(SHAPE, 7).items():
        assert entries.entries[name].contents == snapshot.digest_of(content)
    assert snapshot.judge(entries.entries, look(tree))[0] is Effect.UNNOTICED


def test_overwriting_changes_the_large_files_alone(tree: Path) -> None:
    before = look(tree).entries
    snapshot.overwrite(tree, SHAPE, 8)
    after = look(tree).entries
    assert {name for name in before if before[name] != after[name]} == {"large-0", "large-1"}
    assert before.keys() == after.keys()


@pytest.mark.parametrize(
    ("alter", "effect", "reason"),
    [
        (lambda tree: (tree / "large-1").write_bytes(bytes(20_000)), Effect.WRONG, r"large-1: .*\bcontents"),
        (lambda tree: (tree / "large-1").chmod(0o640), Effect.WRONG, r"large-1: .*\bmode"),
        (lambda tree: os.utime(tree / "large-0", (1, 1)), Effect.WRONG, r"large-0: .*\bmodified"),
        (lambda tree: (tree / "new").touch(), Effect.WRONG, r"new: \w"),
        (lambda tree: (tree / "large-0").rename(tree / "x"), Effect.MISSING, r"large-0\b.*: x$"),
        (lambda tree: os.rename(tree / "large-0", os.fsencode(tree) + b"/\x9b\n"), Effect.MISSING, r".*: \\x9b\\n$"),
        (lambda tree: (tree / "large-0").unlink(), Effect.MISSING, "large-0$"),
    ],
)
def test_what_is_not_as_it_was_is_told(tree: Path, alter: object, effect: Effect, reason: str) -> None:
    before = look(tree).entries
    alter(tree)  # type: ignore[operator]
    effect_seen, why = snapshot.judge(before, look(tree))
    assert effect_seen is effect
    assert re.match(reason, why)


def test_an_error_is_part_of_what_is_seen(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, whole = look(tree).entries, snapshot._entry

    def failing(path: Path, longest: int) -> Entry:
        if path.name == "large-1":
            raise OSError(5, "Input/output error")
        return whole(path, longest)

    monkeypatch.setattr(snapshot, "_entry", failing)
    assert snapshot.judge(before, look(tree)) == (Effect.REPORTED, "large-1: Input/output error")


def test_what_does_not_answer_is_no_error_of_a_file(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hanging(path: Path, longest: int) -> Entry:
        raise TimeoutError("no end")

    monkeypatch.setattr(snapshot, "_entry", hanging)
    with pytest.raises(TimeoutError, match="no end"):
        look(tree)


def test_no_more_is_read_than_there_can_be(tree: Path) -> None:
    with (tree / "large-0").open("r+b") as file:
        file.truncate(1 << 40)
    assert look(tree).entries["large-0"].contents.startswith(f"{SHAPE.size + 1} ")
    assert re.search(r"\b3\b", look(tree, most=3).errors["."])


ENTRIES = st.dictionaries(st.sampled_from("abcdef"), st.builds(Entry, st.integers(0, 2), st.just((0, 0))))


@given(ENTRIES, ENTRIES, st.sets(st.sampled_from("abcdef")))
def test_the_worst_that_was_seen_counts(written: dict[str, Entry], entries: dict[str, Entry], failed: set[str]) -> None:
    read = Snapshot(
        {name: entry for name, entry in entries.items() if name not in failed}, dict.fromkeys(failed, "broken")
    )
    effect, why = snapshot.judge(written, read)
    missing = {name: entry for name, entry in written.items() if name not in read.entries}
    wrong = any(
        written[name] != entry if name in written else entry not in missing.values()
        for name, entry in read.entries.items()
    )
    expected = (
        *((Effect.WRONG,) if wrong else ()),
        *((Effect.REPORTED,) if failed else ()),
        *((Effect.MISSING,) if missing else ()),
        Effect.UNNOTICED,
    )
    assert effect is expected[0]
    assert why
