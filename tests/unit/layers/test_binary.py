"""`binary`: what it may name, what is needed then, what it is called in ids, and the commands with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.needs import Missing, Program
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.stack import spec
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext
from pytest_fsstack.stack.program import ToolLayer
from tests.unit.layers.conftest import LayerMachine, only

TOOLS = {layer.name: layer.tool.command for layer in BUILT_IN.values() if issubclass(layer, ToolLayer)}


def commands_of(name: str, options: str) -> list[str]:
    """What a session would run for the layer, between what it needs below and above."""
    text = {"luks": "luks{} | ext4", "dmcrypt": "dmcrypt{} | ext4", "integrity": "integrity{} | ext4"}.get(name)
    if text is None:
        text = f"{name}{{}}" if BUILT_IN[name].takes[0].kind == "block device" else f"ext4 | {name}{{}}"
    explanation = explained(Stack.parse(text.format(options), BUILT_IN), LoopDevice(1 << 30))
    assert not explanation.problem
    return [line for line in explanation.lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", TOOLS)
def test_only_the_executable_differs(name: str) -> None:
    tool = TOOLS[name]
    binary = f"/opt/of-nobody/{tool}-2.4"
    usual, other = commands_of(name, ""), commands_of(name, f"(binary='{binary}')")
    lines = [line for line in other if binary in line]
    assert lines, "nothing runs it"
    assert not any(line.split()[0] == tool for line in other)
    # mke2fs goes by its name, which is another one here.
    kind = f" -t {name}" if tool.startswith("mkfs.ext") else ""
    assert [line.replace(f"{binary} -q -F{kind}", f"{tool} -q -F").replace(binary, tool) for line in other] == usual
    assert any(kind in line for line in lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
@pytest.mark.parametrize("whose", ["file", "directory", "above", "link", "mode", "mode of the directory"])
@pytest.mark.parametrize("by_name", [False, True])
def test_what_another_user_may_change_is_not_run(
    tmp_path: Path, whose: str, by_name: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = executable(tmp_path / "above" / "gocryptfs-2")
    file = Path(binary)
    if whose == "link":
        file = file.rename(tmp_path / "gocryptfs-3")
        Path(binary).symlink_to(file)
    if whose.startswith("mode"):
        (file if whose == "mode" else file.parent).chmod(0o777)
    else:
        changed = {"file": file, "directory": file.parent, "above": tmp_path, "link": Path(binary)}[whose]
        os.chown(changed, 65534, 65534, follow_symlinks=False)
    monkeypatch.setenv("PATH", str(Path(binary).parent))
    text = f"ext4 | gocryptfs(binary='{'gocryptfs-2' if by_name else binary}')"
    with pytest.raises(spec.SpecError, match=r"gocryptfs: binary: .*(user 65534|every user).*copy it"):
        Stack.parse(text, BUILT_IN)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
def test_a_tool_beside_it_that_another_user_may_change_is_not_run(
    tmp_path: Path, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    mkfs, checker = (executable(tmp_path / "both" / name) for name in ("mkfs.ext4", "e2fsck"))
    os.chown(checker, 65534, 65534)
    only(f"ext4(binary='{mkfs}')").fsck(device, context)
    assert machine.commands[-1] == "e2fsck -f -n /dev/fake"


def executable(path: Path) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_checker_is_the_one_beside_mkfs(
    tmp_path: Path, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    mkfs, checker = (executable(tmp_path / "both" / name) for name in ("mkfs.ext4", "e2fsck"))
    for binary, command in (mkfs, checker), (executable(tmp_path / "alone" / "mkfs.ext4"), "e2fsck"):
        only(f"ext4(binary='{binary}')").fsck(device, context)
        assert machine.commands[-1] == f"{command} -f -n /dev/fake"


def test_the_daemon_of_ntfs_3g_is_the_one_beside_mkntfs(tmp_path: Path) -> None:
    alone = executable(tmp_path / "alone" / "mkntfs")
    maker, daemon = (executable(tmp_path / "both" / name) for name in ("mkntfs", "ntfs-3g"))

    def programs(binary: str) -> list[str]:
        needs = Stack.parse(f"ntfs3g(binary='{binary}')", BUILT_IN).needs()
        return [need.command for need in needs if isinstance(need, Program)]

    assert programs(maker) == [maker, daemon]
    assert programs(alone) == [alone]
    assert any(line.startswith(f"{daemon} -o") for line in commands_of("ntfs3g", f"(binary='{maker}')"))
    assert any(line.startswith("ntfs-3g -o") for line in commands_of("ntfs3g", f"(binary='{alone}')"))


def needed(text: str) -> list[Program]:
    return [need for need in Stack.parse(text, BUILT_IN).needs() if isinstance(need, Program)]


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
    executable(tmp_path / "securefs-3")
    needs = Stack.parse("securefs(binary='securefs-3')", BUILT_IN).needs()
    assert BUILT_IN["securefs"].tool not in needs  # type: ignore[attr-defined]
    assert [need.missing() for need in needs if isinstance(need, Program)] == [None]
