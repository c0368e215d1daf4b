"""Filesystems that the host's kernel may lack, inside the guest on its /dev/vda.

`tests/kernel/test_layers_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import guard
from pytest_fsstack.stack.build import BuildError, Built
from tests.kernel.guest.common import DISK, mounted, processes

FILESYSTEMS = (
    "f2fs",
    "f2fs-compressed = f2fs(compress='zstd:3', mkfs='-l label', mount='noatime,background_gc=on')",
    "nilfs2",
    "nilfs2-small = nilfs2(mkfs='-b 1024', mount='noatime')",
    "jfs",
    "jfs-verbatim = jfs(mkfs='-L label -s 2', mount='iocharset=utf8,noatime')",
    "reiserfs",
    "reiserfs-verbatim = reiserfs(mkfs='--hash tea', mount='notail')",
    "exfat",
    "exfat-verbatim = exfat(mkfs='-c 64K', mount='iocharset=utf8')",
    "vfat",
    "vfat-verbatim = vfat(mkfs='-F 32 -s 8', mount='iocharset=ascii')",
    "ntfs",
    "ntfs-compressed = ntfs(compress=True, mkfs='-c 4096', mount='prealloc')",
    "bcachefs",
    "bcachefs-compressed = bcachefs(compress='zstd:3', mount='noatime')",
)
WITHOUT_LINKS = ("exfat", "vfat")


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    yield
    assert not mounted()
    assert not processes("nilfs_cleanerd")
    assert guard.labelled(DISK)


def fill(top: Path, links: bool) -> dict[str, str]:
    """Files of all sizes in several directories; what they must read as, by name."""
    expected = {}
    for number, size in enumerate((0, 1, 4095, 4097, 65536, 3 << 20)):
        file = top / f"directory-{number % 2}" / f"a long name with blanks {number}"
        file.parent.mkdir(exist_ok=True)
        data = os.urandom(size // 2) + bytes(size - size // 2)
        file.write_bytes(data)
        expected[str(file.relative_to(top))] = hashlib.sha256(data).hexdigest()
    if links:
        (top / "link").symlink_to("directory-0/a long name with blanks 0")
        expected["link"] = hashlib.sha256().hexdigest()
    return expected


@pytest.mark.fsstack(*FILESYSTEMS)
def test_what_is_written_is_read_back_after_a_remount(fsstack: Built) -> None:
    (layer,) = fsstack.stack.layers
    expected = fill(fsstack.path, links=layer.name not in WITHOUT_LINKS)
    fsstack.remount()
    for name, digest in expected.items():
        assert hashlib.sha256((fsstack.path / name).read_bytes()).hexdigest() == digest, name
    assert fsstack.usage() > 1 << 20
    (mount,) = fsstack.mounts()
    kind, source, options = mount.split()
    assert (kind, source) == ({"ntfs": "ntfs3"}.get(layer.name, layer.name), str(DISK))
    assert "discard" not in options.split(",")


@pytest.mark.fsstack("f2fs", "nilfs2", "jfs", "exfat", "vfat")
def test_what_is_not_used_can_be_discarded(fsstack: Built) -> None:
    file = fsstack.path / "file"
    file.write_bytes(os.urandom(4 << 20))
    fsstack.sync()
    file.unlink()
    assert fsstack.trim() > 4 << 20


@pytest.mark.fsstack("reiserfs")
def test_a_filesystem_that_cannot_discard_says_so(fsstack: Built) -> None:
    with pytest.raises(BuildError, match=r"could not trim `reiserfs` on /dev/vda: layer reiserfs: .*fstrim"):
        fsstack.trim()


@pytest.mark.fsstack("f2fs")
def test_f2fs_does_nothing_in_the_background(fsstack: Built) -> None:
    (mount,) = fsstack.mounts()
    assert "background_gc=off" in mount


@pytest.mark.fsstack("nilfs2")
def test_the_cleaner_of_nilfs2_does_not_run(fsstack: Built) -> None:
    assert fsstack.path.is_mount()
    assert not processes("nilfs_cleanerd")


@pytest.mark.fsstack("vfat")
def test_vfat_makes_no_partitions(fsstack: Built) -> None:
    assert list(Path("/sys/block", DISK.name).glob(f"{DISK.name}*")) == []
    assert "PTTYPE" not in subprocess.run(["blkid", "-p", DISK], capture_output=True, text=True).stdout
