"""Every layer that this machine's kernel has, built, written, read back after a remount, and taken down."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice, LoopDevice, RamDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import CleanupReport, Journal, cleanup
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.places import BuildContext, Secret
from tests.real.conftest import LoopDevice as LoopDeviceFixture, built, run
from tests.toolkit import kill_session

pytestmark = pytest.mark.root

SIZE = 512 << 20
#: Where a test reads all of it.
SMALL = 64 << 20
MARK = b"the plaintext that nobody must find "


def exercise(stack: Built) -> None:
    content = MARK * 4096
    (stack.path / "directory").mkdir()
    (stack.path / "directory" / "file").write_bytes(content)
    os.symlink("directory/file", stack.path / "link")
    stack.sync()
    if not any(layer.volatile for layer in stack.stack.layers):
        stack.remount()
    assert (stack.path / "link").read_bytes() == content
    assert stack.usage() >= len(content)


@pytest.mark.parametrize(
    "text",
    [
        # Those that other tests here build are left out, as are plain ext4, xfs and btrfs.
        "ext2",
        "ext3",
        "ext4(mkfs='-b 4096 -E stride=128,stripe-width=128', mount='noatime,discard')",
        "xfs(mkfs='-m reflink=0', mount='noatime')",
        "btrfs(compress='zlib')",
        "btrfs(compress='zstd:3', mount='noatime')",
        "tmpfs(mount='size=64M')",
        "xfs | gocryptfs(aessiv=True)",
        "ext4 | gocryptfs(xchacha=True, plaintextnames=True)",
        "xfs | securefs(format=2, block_size=8192, init='--iv-size 16', mount='--noflock')",
        "ext4 | fscrypt(contents='AES-128-CBC', policy='-f 0x1')",
        "ext4 | fscrypt(filenames='AES-256-HCTR2')",
        "ext4 | fscrypt(contents='Adiantum', policy='-f 0x4')",
        "ext4 | fscrypt | gocryptfs",
        "ext4 | ecryptfs",
        "xfs | sshfs(cipher='aes128-ctr', mount='-o max_conns=2')",
        "ext4 | bind",
        "ext4 | overlay",
        "ext4 | squashfs(source='/etc/apt', compress='zstd') | overlay",
        "xfs | erofs(source='/etc/apt', compress='lz4hc') | overlay",
        "xfs | overlay(lower='/etc/apt', mount='metacopy=on') | bind",
        "ext4 | loop(size='100M', direct_io=False) | ext2 | bind",
        "tmpfs | gocryptfs | encfs",
        "luks | ext4",
        "dmcrypt | ext4",
    ],
)
def test_on_a_loop_device(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        exercise(stack)
        assert stack.device is not None
        assert _loops(context)
    assert not _loops(context)


@pytest.mark.parametrize(("text", "umask"), [("ext4 | bind", 0o077), ("ext4 | bind", 0), ("ext4 | sshfs", 0)])
def test_under_any_umask(text: str, umask: int, context: BuildContext) -> None:
    before = os.umask(umask)
    try:
        with built(text, LoopDevice(SIZE), context) as stack:
            assert stat.S_IMODE(os.stat(stack.path).st_mode) == 0o755
            assert os.umask(umask) == umask
    finally:
        os.umask(before)


def test_on_memory(context: BuildContext) -> None:
    with built("ext4", RamDevice(SIZE), context) as stack:
        exercise(stack)


@pytest.mark.parametrize("text", ["gocryptfs", "encfs", "securefs", "bind", "loop(size='64M') | ext4"])
def test_on_an_existing_directory(text: str, context: BuildContext, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "precious").write_text("mine")
    with built(text, DirectoryDevice(home), context) as stack:
        exercise(stack)
    assert [path.name for path in home.iterdir()] == ["precious"]


@pytest.mark.parametrize("text", ["ext4 | gocryptfs", "ext4 | encfs", "ext4 | securefs"])
def test_encryption_hides_contents_and_names(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SMALL), context) as stack:
        (stack.path / "secret-name").write_bytes(MARK)
        stack.remount()
        names = [name for _, directories, files in os.walk(stack.below) for name in directories + files]
        assert not any("secret-name" in name for name in names)
        assert len(names) > 2
        raw = stack.bottom.path.read_bytes()
    assert MARK not in raw


@pytest.mark.parametrize(("below", "mode"), [("ext4", "standard"), ("btrfs", "paranoia")])
def test_encfs_derives_the_key_of_a_later_volume_fast(below: str, mode: str, context: BuildContext) -> None:
    # With an option that no other test gives, so that the first volume here is new.
    text, rounds, passphrases = f"{below} | encfs(mode='{mode}', mount='-t other')", [], set()
    for _ in range(2):
        context.secret = Secret()
        with built(text, LoopDevice(SIZE), context) as stack:
            exercise(stack)
            assert _loops(context)
            volume = (Path(str(stack.below)) / "encfs.ciphertext/.encfs6.xml").read_text()
        rounds.append(int(re.findall(r"<kdfIterations>(\d+)<", volume)[0]))
        passphrases.add(re.findall(r"<encodedKeyData>(.*?)<", volume, re.S)[0])
        assert not _loops(context)
    assert rounds[1] < rounds[0] / 10
    assert len(passphrases) == 2


def test_names_are_ciphertext_once_the_kernel_has_lost_the_key(context: BuildContext) -> None:
    with built("ext4 | fscrypt", LoopDevice(SIZE), context) as stack:
        (stack.path / "secret-name").write_bytes(MARK)
        encrypted = stack.path
        stack._close(1)
        (hidden,) = encrypted.iterdir()
        assert hidden.name != "secret-name"
        with pytest.raises(OSError, match="Required key not available"):
            hidden.read_bytes()
        stack._add(stack.stack.layers[1], fresh=False)
        assert (stack.path / "secret-name").read_bytes() == MARK
        stack.sync()
        raw = stack.bottom.path.read_bytes()
    assert MARK not in raw


def test_a_directory_that_cannot_encrypt_files_is_told_with_what_to_write(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        device = DirectoryDevice(stack.path)
        with pytest.raises(BuildError, match=rf"layer fscrypt: {stack.path}\S* .*\bext4\b.*`ext4 \| fscrypt`"):
            with built("fscrypt", device, BuildContext(stack.path, context.journal)):
                pass


def test_a_file_that_keeps_the_key_in_the_kernel_is_named(context: BuildContext, tmp_path: Path) -> None:
    # The journal keeps what could not be undone.
    context = BuildContext(context.directory, Journal(tmp_path / "other", RealMachine()))
    with built("ext4(mkfs='-O encrypt') | fscrypt", LoopDevice(SIZE), context) as stack:
        with open(stack.path / "held", "w"):
            with pytest.raises(BuildError, match=rf"layer fscrypt: .*\b{os.getpid()} \(.*\) .*/held"):
                stack._close(1)


def test_a_session_that_died_leaves_no_key_in_a_directory_that_stays_mounted(
    context: BuildContext, tmp_path: Path
) -> None:
    with built("ext4(mkfs='-O encrypt')", LoopDevice(SIZE), context) as stack:
        kill_session("fscrypt", stack.path, tmp_path)
        assert (stack.path / "fscrypt" / "secret-name").exists()
        undo = functools.partial(cleanup, tmp_path / "dead", RealMachine(), lambda: kinds(BUILT_IN.values()))
        (line,) = undo().undone
        assert str(stack.path) in line
        assert not (stack.path / "fscrypt" / "secret-name").exists()
        assert undo() == CleanupReport([], [])


@pytest.mark.parametrize("options", ["", ", plaintextnames=True"])
def test_a_reverse_view_shows_what_is_below_as_ciphertext(options: str, context: BuildContext, tmp_path: Path) -> None:
    with built(f"ext4 | gocryptfs(reverse=True{options})", LoopDevice(SIZE), context) as stack:
        (stack.below / "secret-name").write_bytes(MARK)
        stack.remount()
        with pytest.raises(OSError, match="Read-only file system"):
            (stack.path / "file").touch()
        contents = [path.read_bytes() for path in stack.path.iterdir() if path.is_file()]
        assert not any(MARK in content for content in contents)
        assert (stack.path / "secret-name").exists() == bool(options)
        plain = tmp_path / "plain"
        plain.mkdir()
        with context.secret.passphrase() as fd:
            words = ["-passfile", f"/proc/self/fd/{fd}", str(stack.path), str(plain)]
            commands.run("gocryptfs", "-q", "-ro", "-nosyslog", *words, fds=(fd,))
        try:
            assert (plain / "secret-name").read_bytes() == MARK
        finally:
            mounts.unmount(RealMachine(), plain)


def test_an_overlay_shows_what_is_under_it_and_leaves_it_alone(context: BuildContext, tmp_path: Path) -> None:
    under = tmp_path / "under"
    under.mkdir()
    (under / "kept").write_text("old")
    with built(f"ext4 | overlay(lower={str(under)!r})", LoopDevice(SIZE), context) as stack:
        (stack.path / "kept").write_text("new")
        stack.remount()
        assert (stack.path / "kept").read_text() == "new"
    assert (under / "kept").read_text() == "old"


def test_cryfs_hides_everything_and_has_written_it_once_its_caches_are_dropped(context: BuildContext) -> None:
    # It makes its key anew whenever it is mounted, which takes seconds: so one stack, and one remount, for all.
    text = "ext4 | cryfs(cipher='aes-256-gcm', blocksize=32768, mount='-o noatime')"
    with built(text, LoopDevice(SMALL), context) as stack:
        (stack.path / "secret-name").write_bytes(MARK * (1 << 17))
        stack.sync()
        stack.release_caches()
        assert (stack.path / "secret-name").read_bytes() == MARK * (1 << 17)
        assert stack.usage() >= len(MARK) << 17
        names = [name for _, directories, files in os.walk(stack.below) for name in directories + files]
        assert not any("secret-name" in name for name in names)
        stack.sync()
        raw = stack.bottom.path.read_bytes()
    assert MARK not in raw


def test_a_filesystem_without_encryption_does_not(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SMALL), context) as stack:
        (stack.path / "secret-name").write_bytes(MARK)
        stack.sync()
        raw = stack.bottom.path.read_bytes()
    assert MARK in raw


def test_loop_files_bypass_the_page_cache_where_they_can_and_have_no_name(
    context: BuildContext, loop_device: LoopDeviceFixture
) -> None:
    # Where losetup can, which asks the kernel the same; where it cannot, it still makes the device.
    usual = loop_device("--direct-io=on").path.name
    with built("raw", LoopDevice(SIZE), context) as stack:
        bypasses = [Path("/sys/block", name, "loop/dio").read_text() for name in (usual, stack.bottom.path.name)]
        assert bypasses[0] == bypasses[1]
        assert [path.name for path in context.directory.iterdir()] == []


def test_ext4_does_not_initialise_itself_in_the_background(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        features = run("dumpe2fs", "-h", stack.bottom.path)
        assert "lifetime writes" in features.lower()
        groups = run("dumpe2fs", stack.bottom.path)
        assert "ITABLE_ZEROED" in groups
        assert "INODE_UNINIT" not in "".join(
            line for line in groups.splitlines() if "Group " in line and "ITABLE_ZEROED" not in line
        )


def test_the_passphrase_is_in_no_command_line_and_no_environment(context: BuildContext) -> None:
    with built("ext4 | gocryptfs | encfs", LoopDevice(SIZE), context):
        with context.secret.passphrase() as fd:
            passphrase = os.read(fd, 100)
        assert len(passphrase) == 64
        for process in Path("/proc").glob("[0-9]*"):
            for name in "cmdline", "environ":
                try:
                    text = (process / name).read_bytes()
                except OSError:
                    continue
                assert passphrase not in text, process


def test_a_failing_mkfs_says_why_and_leaves_nothing(context: BuildContext) -> None:
    with pytest.raises(BuildError, match=r"layer xfs: `mkfs.xfs .*` .*\b1\b(?s:.*)300") as caught:
        with built("xfs", LoopDevice(64 << 20), context):
            pass
    assert isinstance(caught.value.__cause__, commands.CommandError)
    assert caught.value.__cause__.returncode == 1


def _loops(context: BuildContext) -> list[Path]:
    """The loop devices on files of this site; those of others come and go meanwhile."""
    lines = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if str(context.directory) in path.read_text():
                lines.append(path)
    return lines


@pytest.mark.parametrize("text", ["ext4", "ext4 | gocryptfs"])
def test_who_holds_a_file_for_some_seconds_is_waited_for(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        (stack.path / "file").write_bytes(MARK)
        holder = subprocess.Popen(["sh", "-c", 'exec 3<"$0"; sleep 2', stack.path / "file"])
        assert commands.wait_until(lambda: os.path.exists(f"/proc/{holder.pid}/fd/3"), 60)
    assert holder.wait(60) == 0
