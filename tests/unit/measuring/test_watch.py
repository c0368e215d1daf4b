"""Whether a block that should only read changed its stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.measuring import watch
from pytest_fsstack.measuring.watch import Watch
from tests.toolkit import NotedStack


@pytest.fixture
def stack(tmp_path: Path) -> NotedStack:
    made = NotedStack(tmp_path)
    (made.path / "tree" / "inner").mkdir(parents=True)
    (made.path / "tree" / "file").write_text("text")
    (made.path / "tree" / "link").symlink_to("nowhere")
    return made


def overwrite_in_place(top: Path) -> None:
    with (top / "tree" / "file").open("r+b") as file:
        file.write(b"TEXT")


@pytest.mark.parametrize(
    ("work", "path", "change"),
    [
        (overwrite_in_place, "tree/file", "changed"),
        (lambda top: (top / "tree" / "file").unlink(), "tree/file", "removed"),
        (lambda top: (top / "tree" / "inner" / "new").touch(), "tree/inner/new", "created"),
        (lambda top: (top / "tree" / "file").chmod(0o600), "tree/file", "changed"),
        (lambda top: (top / "tree" / "file").rename(top / "tree" / "other"), "tree/other", "created"),
        (lambda top: (top / "tree" / "inner").rmdir(), "tree/inner", "removed"),
    ],
)
def test_what_was_written_is_found_and_named(
    stack: NotedStack, work: Callable[[Path], object], path: str, change: str
) -> None:
    watched = Watch(stack)
    watched.begin()
    work(stack.path)
    assert re.fullmatch(f"{path} .*{change}", watched.change())


def test_reading_is_no_change_although_it_sets_times_of_access(stack: NotedStack) -> None:
    file = stack.path / "tree" / "file"
    watched = Watch(stack)
    watched.begin()
    file.read_text()
    list((stack.path / "tree").iterdir())
    assert not watched.change()


def test_of_a_device_the_bytes_count_that_are_written_after_the_beginning(
    stack: NotedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = iter([4096, 4096, 8192])
    monkeypatch.setattr(watch, "_written", lambda path: next(counted))
    watched = Watch(stack)
    watched.begin()
    assert not watched.change()
    assert re.match(r"4,096 bytes\b", watched.change())
