"""What runs inside the guest, on its /dev/vda: encryption of files by the kernel, for real.

`tests/kernel/test_stacked_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack import guard, host
from pytest_fsstack.stack import Built
from tests.kernel.guest.common import DISK, HERE, mounted, on_the_disk, session

ENCRYPTED = (
    "ext4 | ecryptfs",
    "ext4 | ecryptfs(cipher='twofish', key_bytes=32, mount='ecryptfs_xattr')",
    "btrfs | ecryptfs",
    "xts = ext4(mkfs='-O encrypt,stable_inodes') | fscrypt",
    "hctr2 = ext4(mkfs='-O encrypt,stable_inodes') | fscrypt(filenames='AES-256-HCTR2')",
    "essiv = ext4(mkfs='-O encrypt,stable_inodes') | fscrypt(contents='AES-128-CBC')",
    "adiantum = ext4(mkfs='-O encrypt,stable_inodes') | fscrypt(contents='Adiantum', policy='-f 0x4')",
    "f2fs = f2fs(mkfs='-O encrypt') | fscrypt",
    "both = ext4(mkfs='-O encrypt,stable_inodes') | fscrypt | ecryptfs",
)
NAME = "a-name-that-nobody-must-find"


def keys() -> list[str]:
    """The keys that eCryptfs could use, of any keyring."""
    return [line for line in Path("/proc/keys").read_text().splitlines() if line.split()[7] == "user"]


def mounted_ecryptfs() -> list[str]:
    found = []
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):  # processes end while one looks
            found += [line for line in table.read_text().splitlines() if " - ecryptfs " in line]
    return found


def nothing_is_left(seconds: float) -> bool:
    # The kernel collects the keys that nobody refers to in its own time.
    return host.wait_until(lambda: not (mounted() or mounted_ecryptfs() or keys()), seconds)


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    assert not keys()
    yield
    assert not mounted()
    assert not mounted_ecryptfs()
    assert nothing_is_left(10), keys()
    assert guard.labelled(DISK)


def write(stack: Built) -> bytes:
    # Random, for a layer that compresses would hide text as well; larger than what is stored among metadata.
    data = os.urandom(64 << 10)
    (stack.path / NAME).write_bytes(data)
    (stack.path / f"{NAME}-in-a-directory").mkdir()
    return data


@pytest.mark.fsstack(*ENCRYPTED)
def test_what_is_read_back_is_not_on_the_disk(fsstack: Built) -> None:
    data = write(fsstack)
    fsstack.remount()
    assert (fsstack.path / NAME).read_bytes() == data
    assert (fsstack.path / f"{NAME}-in-a-directory").is_dir()
    fsstack.sync()
    assert not on_the_disk(data[8192:8256])
    assert not on_the_disk(NAME.encode())


@pytest.mark.fsstack("ext4 | ecryptfs(fnek=False, passthrough=True)")
def test_ecryptfs_leaves_names_and_plain_files_if_told_so(fsstack: Built) -> None:
    data = write(fsstack)
    fsstack.remount()
    below = fsstack.below / "ecryptfs.ciphertext"
    assert (fsstack.path / NAME).read_bytes() == data
    assert data[8192:8256] not in (below / NAME).read_bytes()
    (below / "plain").write_text("as it is")
    assert (fsstack.path / "plain").read_text() == "as it is"


@pytest.mark.fsstack("ext4 | ecryptfs")
def test_ecryptfs_keeps_its_keys_in_no_keyring_while_it_is_mounted(fsstack: Built) -> None:
    assert mounted_ecryptfs()
    options = host.mount_options(fsstack.path)
    assert options is not None
    signature = options.partition("ecryptfs_sig=")[2][:16]
    assert len(signature) == 16
    for keyring in "@u", "@us", "@s":
        listed = subprocess.run(["keyctl", "list", keyring], capture_output=True, text=True)
        assert signature not in listed.stdout
    # Files made by now are opened with a key that only the mount knows.
    data = write(fsstack)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")
    assert (fsstack.path / NAME).read_bytes() == data


def test_nothing_of_ecryptfs_stands_after_sigkill(tmp_path: Path) -> None:
    standing = tmp_path / "standing"
    argv = session(f"--fsstack-device={DISK}", "--fsstack-stacks=ext4 | ecryptfs", f"{HERE}/inside_standing.py")
    with (tmp_path / "said").open("w+b") as said:
        process = subprocess.Popen(argv, stdout=said, stderr=said, env={**os.environ, "STANDING": str(standing)})
        try:
            assert host.wait_until(lambda: standing.exists() or process.poll() is not None, 120)
            said.seek(0)
            assert process.poll() is None, said.read().decode()
            assert mounted()
            assert mounted_ecryptfs()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert nothing_is_left(10), (mounted(), mounted_ecryptfs(), keys())
    cleaned = subprocess.run(session("--fsstack-cleanup"), capture_output=True, text=True)
    assert cleaned.returncode == 0, cleaned.stdout + cleaned.stderr
    assert "left alone" not in cleaned.stdout
