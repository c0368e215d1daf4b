"""The layers' own checkers on a sound stack, and on one whose bytes were altered while it was taken down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine import commands
from pytest_fsstack.stack.layer import Checks
from pytest_fsstack.stack.places import Block, BuildContext
from tests.real.conftest import built
from tests.toolkit import flip

pytestmark = pytest.mark.root

CHECKED = ("ext2", "ext4", "xfs", "btrfs", "vfat", "exfat")
SIZE = 320 << 20
NAME = b"a name to be found"
WIDE = NAME.decode().encode("utf-16-le")[:10]


@pytest.mark.parametrize("text", CHECKED)
def test_a_checker_finds_nothing_in_a_sound_filesystem_and_what_was_altered_in_another(
    text: str, context: BuildContext
) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        (stack.path / NAME.decode()).mkdir()
        (sound,) = stack.fsck().values()
        assert sound.clean, sound.output
        assert (stack.path / NAME.decode()).is_dir()
        with stack.taken_down() as device:
            assert isinstance(device, Block)
            content = device.path.read_bytes()
            # Every copy of the name, which FAT writes in pieces of 16 bits a letter: Btrfs keeps two of all metadata.
            places = [checks.start() & ~15 for checks in re.finditer(NAME + b"|" + WIDE, content)]
            assert places
            device.write([(place, b"\xff" * 64) for place in places])
            layer = stack.stack.layers[0]
            assert isinstance(layer, Checks)
            broken = layer.fsck(device, context)
            device.write([(place, content[place : place + 64]) for place in places])
        assert broken is not None
        assert not broken.clean
        assert broken.output


def test_gocryptfs_checks_its_ciphertext_and_leaves_nothing_elsewhere(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    with built("ext4 | gocryptfs", LoopDevice(SIZE), context) as stack:
        (stack.path / "file").write_bytes(bytes(10_000))
        checks = stack.fsck()
        assert list(checks) == ["ext4", "gocryptfs"]
        assert all(check.clean for check in checks.values()), checks
        with stack.taken_down("gocryptfs") as directory:
            (ciphertext,) = [
                path for path in (directory.path / "gocryptfs.ciphertext").iterdir() if path.stat().st_size > 10_000
            ]
            flip(ciphertext, 5_000)
        checks = stack.fsck()
        assert checks["ext4"].clean
        assert not checks["gocryptfs"].clean
    assert list(elsewhere.iterdir()) == []


def test_a_mount_that_the_check_of_gocryptfs_leaves_is_unmounted(context: BuildContext, tmp_path: Path) -> None:
    leaving = tmp_path / "gocryptfs"
    leaving.write_text(
        '#!/bin/sh\ncase "$*" in *-fsck*)\nmkdir "$TMPDIR/gocryptfs.fsck.1" && '
        'mount -t tmpfs left "$TMPDIR/gocryptfs.fsck.1" && echo left; exit 26;;\nesac\n'
        f'exec {commands.which("gocryptfs")} "$@"\n'
    )
    leaving.chmod(0o755)
    with built(f"ext4 | gocryptfs(binary='{leaving}')", LoopDevice(SIZE), context) as stack:
        checks = stack.fsck()["gocryptfs"]
        assert (checks.clean, checks.output.strip()) == (False, "left")
        (left,) = context.directory.glob("gocryptfs.fsck.*")
        assert not left.is_mount()
