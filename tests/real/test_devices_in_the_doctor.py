"""The doctor and the dry run say of a device what the session would say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.conftest import Loop, LoopDevice, run, small_session

pytestmark = pytest.mark.root


def asked(directory: Path, *arguments: str) -> tuple[int, str]:
    result = small_session(directory, *arguments)
    return result.returncode, result.stdout + result.stderr


def blank(loop: Loop, loop_device: LoopDevice) -> list[str]:
    return []


def photos(loop: Loop, loop_device: LoopDevice) -> list[str]:
    run("mkfs.ext4", "-q", "-L", "photos", loop.path)
    return []


def behind(loop: Loop, loop_device: LoopDevice) -> list[str]:
    photos(loop, loop_device)
    loop_device(on=loop.path)
    return [f"--fsstack-overwrite={loop.path}"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [(blank, ""), (photos, "'photos'"), (behind, "`losetup -d /dev/loop")],
    ids=["blank", "photos", "in-use"],
)
def test_the_doctor_agrees_with_the_session(
    loop_device: LoopDevice, tmp_path: Path, state: Callable[[Loop, LoopDevice], list[str]], reason: str
) -> None:
    loop = loop_device()
    words = [f"--fsstack-device={loop.path}", *state(loop, loop_device)]
    with loop.untouched():
        code, answer = asked(tmp_path, "--fsstack-doctor", *words)
        _, plan = asked(tmp_path, "--fsstack-dry-run", *words)
    assert (code == 0) is (not reason), answer
    assert reason in answer
    assert reason in plan
    code, output = asked(tmp_path, *words)
    assert code == (4 if reason else 0), output
    assert reason in output
