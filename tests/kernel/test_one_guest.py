"""The way to a guest and back, in one session and one boot: another kernel, a LUKS stack in it, and a comparison.

The kernel has a word on its command line, and the LUKS stack has settings.

What this leaves out is in the other files of this folder.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.images import resolve
from tests.kernel.test_kernel_parameter import TEST, guests, older, prepare, run, troubles
from tests.toolkit import chains_of

pytestmark = [pytest.mark.root, pytest.mark.kernel]

__all__ = ["older"]


def test_a_stack_that_this_kernel_may_lack_is_measured_in_a_guest_and_kernels_are_compared(
    older: Path, tmp_path: Path
) -> None:
    guest, here = "plain", resolve("host", tmp_path).name
    tuned = "luks+ext4 = luks | ext4 @ top/read_ahead_kb=64, vm.swappiness=50"
    result = run(
        prepare(tmp_path, tests=TEST.replace("luks | ext4", tuned)),
        tmp_path,
        *(
            f"--fsstack-kernel=plain = {older} @ mitigations=off",
            "--fsstack-kernel=host",
            "--fsstack-rounds=1",
            "-k",
            "write",
            "-v",
        ),
        # On a busy host two that wait for each other cost twice the time.
        *("--fsstack-json=out.json", "--junitxml=out.xml", "--fsstack-vm-cpus=1"),
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    assert f"kernels {guest} (baseline), {here}" in output
    assert {name: text for name, text in troubles(tmp_path / "out.xml").items() if text} == {}
    between, within = chains_of(tmp_path / "out.json")
    assert within.id == between.id
    assert [between.view, within.view] == ["between", "within"]
    for chain in between, within:
        step = chain.steps[0]
        for stack in f"ext4:{guest}", f"luks+ext4:{guest}", f"ext4:{here}":
            assert [key.number for key in chain.of(step, stack)] == [0], f"{stack}: {chain.note(step, stack)}"
        assert any("/dev/mapper/" in mount for mount in chain.stacks[f"luks+ext4:{guest}"].mounts)
        assert chain.stacks[f"luks+ext4:{guest}"].settings == {"top/read_ahead_kb": "64", "vm.swappiness": "50"}
        assert chain.stacks[f"ext4:{guest}"].mounts[0].startswith(f"ext4 {vm.DISK} ")
    environment = json.loads((tmp_path / "out.json").read_text())["environment"]["kernels"][guest]
    assert "mitigations=off" in environment["kernel"]["command_line"].split()
    assert guests(tmp_path) == []
