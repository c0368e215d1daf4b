"""Removal of trees by one function, which does not follow mounts."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

import pytest_fsstack
from pytest_fsstack.machine import directories, owners

PACKAGE = Path(pytest_fsstack.__file__).parent
#: They remove whatever is mounted in a tree as well.
FOLLOW_MOUNTS = {"rmtree", "TemporaryDirectory"}


def removing(source: str) -> list[str]:
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if getattr(node, "attr", getattr(node, "id", None)) in FOLLOW_MOUNTS
        or (isinstance(node, ast.ImportFrom) and FOLLOW_MOUNTS & {name.name for name in node.names})
    ]


def test_no_module_removes_trees_by_itself() -> None:
    calls = {str(path.relative_to(PACKAGE)): removing(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert "machine/directories.py" in calls
    assert {name: what for name, what in calls.items() if what} == {}


@pytest.mark.parametrize("source", ["shutil.rmtree(path)", "from shutil import rmtree", "TemporaryDirectory().name"])
def test_what_removes_trees_is_seen(source: str) -> None:
    assert len(removing(source)) == 1


def test_a_scratch_directory_goes_with_all_that_is_in_it_and_nothing_else(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    with directories.scratch(tmp_path, "some-") as made:
        assert made.name.startswith("some-")
        (made / "a/b").mkdir(parents=True)
        (made / "a/file").write_text("of no use")
        (made / "link").symlink_to(kept)
    assert list(tmp_path.iterdir()) == [kept]
    assert (kept / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("mapping", "trusted"),
    [(None, {0, 7}), ("0 0 4294967295", {0, 7}), ("0 1000 65536", {0, 7, 65534})],
    ids=["without user namespaces", "the first one", "another one"],
)
def test_in_a_user_namespace_files_of_the_machine_s_root_are_trusted(
    mapping: str | None, trusted: set[int], fs: FakeFilesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    fs.create_file("/proc/sys/kernel/overflowuid", contents="65534\n")
    if mapping:
        fs.create_file("/proc/self/uid_map", contents=f"{mapping}\n")
    assert owners.trusted_users() == trusted
