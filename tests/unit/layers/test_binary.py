"""The commands of a layer with another executable: the same ones, but for their first word."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.needs import Program
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.stack.model import Block, BuildContext, Stack
from pytest_fsstack.stack.program import ToolLayer
from tests.unit.layers.conftest import LayerMachine, only

LAYERS = {layer.name: layer.tool.command for layer in BUILT_IN.values() if issubclass(layer, ToolLayer)}


def commands_of(name: str, options: str) -> list[str]:
    """What a session would run for the layer, between what it needs below and above."""
    text = {"luks": "luks{} | ext4", "dmcrypt": "dmcrypt{} | ext4", "integrity": "integrity{} | ext4"}.get(name)
    if text is None:
        text = f"{name}{{}}" if BUILT_IN[name].takes[0].kind == "block device" else f"ext4 | {name}{{}}"
    explanation = explained(Stack.parse(text.format(options), BUILT_IN), LoopDevice(1 << 30))
    assert not explanation.problem
    return [line for line in explanation.lines if line and not line.startswith("#")]


@pytest.mark.parametrize("name", LAYERS)
def test_only_the_executable_differs(name: str) -> None:
    tool = LAYERS[name]
    binary = f"/opt/of-nobody/{tool}-2.4"
    usual, other = commands_of(name, ""), commands_of(name, f"(binary='{binary}')")
    said = [line for line in other if binary in line]
    assert said, "nothing runs it"
    assert not any(line.split()[0] == tool for line in other)
    # mke2fs goes by its name, which is another one here.
    kind = f" -t {name}" if tool.startswith("mkfs.ext") else ""
    assert [line.replace(f"{binary} -q -F{kind}", f"{tool} -q -F").replace(binary, tool) for line in other] == usual
    assert any(kind in line for line in said)


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
