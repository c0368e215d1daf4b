"""`binary`: what it may name, what is needed then, and what it is called in ids."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.needs import Missing, Program
from pytest_fsstack.stack import spec
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.program import ToolLayer


def needed(text: str) -> list[Program]:
    return [need for need in Stack.parse(text, BUILT_IN).needs() if isinstance(need, Program)]


TOOLS = {layer.name: layer.tool.command for layer in BUILT_IN.values() if issubclass(layer, ToolLayer)}
parts = st.text(st.characters(exclude_characters="/\0", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=8)
suffixes = st.text(st.characters(exclude_characters="/\0", categories=("L", "N", "P", "S")), max_size=6)
# Spaces other than ASCII's are not printable.
printable = st.lists(parts.filter(str.isprintable), max_size=4)


@given(st.sampled_from(sorted(TOOLS)), st.none() | printable, suffixes)
def test_a_stack_with_a_binary_survives_its_own_text(name: str, directories: list[str] | None, suffix: str) -> None:
    start = "" if directories is None else "/".join(["", *directories, ""])
    binary = f"{start}{TOOLS[name]}{suffix}"
    stack = Stack.parse(f"{name}(binary={binary!r})", BUILT_IN)
    assert Stack.parse(str(stack), BUILT_IN) == stack
    assert stack.layers[0].given_options == {"binary": binary}
    assert spec.NAME.fullmatch(stack.id)
    assert stack.id != name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ext4 | gocryptfs(binary='/opt/gocryptfs-2.4/gocryptfs')", "ext4+gocryptfs-2.4"),
        ("gocryptfs(xchacha=True, binary='/opt/gocryptfs_v2.4/bin/gocryptfs')", "gocryptfs-v2.4-xchacha"),
        ("gocryptfs(binary='gocryptfs-2.4')", "gocryptfs-2.4"),
        ("gocryptfs(binary='/srv/2.4/gocryptfs')", "gocryptfs-2.4"),
        ("ext4(binary='/opt/e2fsprogs-1.46/sbin/mkfs.ext4')", "ext4-e2fsprogs-1.46"),
        ("luks(binary='/home/me/build/cryptsetup') | ext4", "luks-build+ext4"),
        ("encfs(binary='/usr/bin/encfs')", "encfs-usr"),
        ("encfs(binary='encfs')", "encfs-binary"),
        ("new = encfs(binary='/opt/encfs-2/encfs')", "new"),
    ],
)
def test_the_id_has_what_the_path_tells(text: str, expected: str) -> None:
    assert Stack.parse(text, BUILT_IN).id == expected


def test_it_is_a_path_and_no_command_line() -> None:
    commands = [need.command for need in needed("luks(binary='/opt/cryptsetup -q')")]
    assert commands == ["/opt/cryptsetup -q"]


def test_what_is_missing_is_told_by_its_path_and_no_package_helps(tmp_path: Path) -> None:
    (tmp_path / "mkfs.ext4").mkdir()
    (tmp_path / "mkfs.ext4-plain").touch()
    expected = {
        "mkfs.ext4": "directory",
        "mkfs.ext4-plain": "executable",
        "mkfs.ext4-gone": "exist",
    }
    for name, why in expected.items():
        (need,) = needed(f"ext4(binary='{tmp_path / name}')")
        lack = need.missing()
        assert lack is not None
        assert re.search(rf"{tmp_path / name}\b.*{why}", lack.what)
        assert "`binary`" in lack.remedy
        assert (lack.kind, lack.package) == (Missing.OTHER, "")
    lack = Program("gocryptfs-of-nobody", "gocryptfs").missing()
    assert lack is not None
    assert re.search(r"gocryptfs-of-nobody\b.*\bPATH\b", lack.what)


def test_the_machine_s_own_tool_is_not_needed_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "securefs-3").write_text("#!/bin/sh\n")
    (tmp_path / "securefs-3").chmod(0o755)
    needs = Stack.parse("securefs(binary='securefs-3')", BUILT_IN).needs()
    assert BUILT_IN["securefs"].tool not in needs  # type: ignore[attr-defined]
    assert [need.missing() for need in needs if isinstance(need, Program)] == [None]
