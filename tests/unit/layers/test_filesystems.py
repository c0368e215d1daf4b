"""The commands that filesystems give, recorded instead of run: no root, no device."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.layers import BUILT_IN, bcachefs, zfs
from pytest_fsstack.layers.filesystems import Filesystem
from pytest_fsstack.machine.commands import CommandError, secret_fd
from pytest_fsstack.machine.needs import KernelFilesystem, Tool, missing
from pytest_fsstack.machine.port import Mount
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Directory, Pool
from tests.unit.layers.conftest import LayerMachine, first, only


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "ext4(mkfs='-b 4096 -E stride=128')",
            "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard,stride=128 -b 4096 /dev/fake",
        ),
        (
            "ext4(mkfs='-E lazy_itable_init=1 -Ediscard')",
            "mkfs.ext4 -q -F -E lazy_journal_init=0,lazy_itable_init=1,discard /dev/fake",
        ),
        (
            "ext2(mkfs='-L \"two words\"')",
            "mkfs.ext2 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -L 'two words' /dev/fake",
        ),
        ("xfs(mkfs='-m reflink=0')", "mkfs.xfs -q -f -K -m reflink=0 /dev/fake"),
        ("btrfs(mkfs='-m single')", "mkfs.btrfs -q -f -K -m single /dev/fake"),
        ("f2fs(compress='zstd', mkfs='-l x')", "mkfs.f2fs -q -f -t 0 -O extra_attr,compression -l x /dev/fake"),
        ("nilfs2(mkfs='-b 1024')", "mkfs.nilfs2 -q -f -K -b 1024 /dev/fake"),
        ("jfs(mkfs='-L x')", "mkfs.jfs -q -L x /dev/fake"),
        ("reiserfs(mkfs='--hash tea')", "mkfs.reiserfs -q -ff --hash tea /dev/fake"),
        ("exfat(mkfs='-c 64K')", "mkfs.exfat -c 64K /dev/fake"),
        ("vfat(mkfs='-F 32')", "mkfs.vfat -I --mbr=no -F 32 /dev/fake"),
        ("ntfs(mkfs='-c 4096')", "mkntfs -q -F -f -c 4096 /dev/fake"),
        ("ntfs3g(compress=True, mkfs='-c 4096')", "mkntfs -q -F -f -C -c 4096 /dev/fake"),
        ("bcachefs(compress='zstd:3')", "mkfs.bcachefs -q -f --no_initialize --compression=zstd:3 /dev/fake"),
        ("bcachefs(mkfs='--discard')", "mkfs.bcachefs -q -f --no_initialize --discard /dev/fake"),
        ("bcachefs(encrypted=True)", "mkfs.bcachefs -q -f --no_initialize --encrypted /dev/fake <&SECRET"),
    ],
)
def test_mkfs_gets_our_defaults_and_the_users_options(
    text: str, expected: str, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    only(text).create(device, context)
    assert machine.taken() == ["wipefs -aq /dev/fake", expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ext4", "-t ext4"),
        ("ext4(mount='noatime,discard')", "-t ext4 -o noatime,discard"),
        ("btrfs(compress='zlib', mount='ssd')", "-t btrfs -o nodiscard,compress=zlib,ssd"),
        ("btrfs(mount='discard=async')", "-t btrfs -o discard=async"),
        ("f2fs(mount='background_gc=on,discard')", "-t f2fs -o background_gc=on,discard"),
        (
            "f2fs(compress='zstd:3')",
            "-t f2fs -o 'nodiscard,background_gc=off,compress_algorithm=zstd:3,compress_extension=*'",
        ),
        ("nilfs2(mount='order=strict')", "-t nilfs2 -o nogc,order=strict"),
        ("reiserfs(mount='notail')", "-t reiserfs -o notail"),
        ("vfat(mount='utf8')", "-t vfat -o utf8"),
        ("ntfs(compress=True)", "-t ntfs3"),
    ],
)
def test_mount_gets_ours_and_the_users_options(
    text: str, expected: str, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    layer = only(text)
    with layer.opened(device, context) as place:
        assert place.path == context.directory / f"1-{layer.name}"
    assert machine.taken() == [f"mount {expected} /dev/fake DIR/1-{layer.name}", f"umount DIR/1-{layer.name}"]


def test_a_quota_is_set_after_each_mount(machine: LayerMachine, device: Block, context: BuildContext) -> None:
    with only("btrfs(quota='64M')").opened(device, context):
        pass
    assert machine.taken()[1:-1] == [
        "btrfs quota enable DIR/1-btrfs",
        "btrfs qgroup limit 67108864 DIR/1-btrfs",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ntfs3g", "no_detach"),
        ("ntfs3g(compress=True, mount='noatime,big_writes')", "no_detach,compression,noatime,big_writes"),
    ],
)
def test_ntfs_3g_stays_in_the_foreground(
    text: str, expected: str, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    with only(text).opened(device, context):
        pass
    assert machine.taken() == [
        f"ntfs-3g -o {expected} /dev/fake DIR/1-ntfs3g &",
        # The last process of the mount namespace must not be the daemon.
        "tail --pid=PID-OF-THE-DAEMON -f /dev/null &",
        "umount DIR/1-ntfs3g",
    ]


# -- ZFS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["OpenZFS", "zfs-fuse"])
def fuse(request: pytest.FixtureRequest, machine: LayerMachine) -> bool:
    """Both kinds of ZFS, one after the other."""
    if request.param == "OpenZFS":
        machine.filesystems.add("zfs")
    return bool(request.param == "zfs-fuse")


def with_daemon(fuse: bool, *expected: str, daemon: str = "") -> list[str]:
    if not fuse:
        return list(expected)
    hidden = [str(directory.resolve()) for directory in zfs._STATE]
    return [
        *(f"mount -t tmpfs -o mode=700 tmpfs {directory}" for directory in hidden),
        f"zfs-fuse --no-daemon --no-kstat-mount{daemon} &",
        *expected,
        *(f"umount {directory}" for directory in reversed(hidden)),
    ]


def test_a_pool_is_made_so_that_no_import_mounts_it(
    fuse: bool, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    only("zfs(compress='lz4', mkfs='-o ashift=12', daemon='--max-arc-size 64')").create(device, context)
    ours = "-f -o cachefile=none -O canmount=noauto -O mountpoint=none"
    assert machine.taken() == with_daemon(
        fuse,
        "wipefs -aq /dev/fake",
        f"zpool create {ours} -O compression=lz4 -o ashift=12 fsstack-ID-1-zfs /dev/fake",
        "zpool export fsstack-ID-1-zfs",
        daemon=" --max-arc-size 64",
    )


def test_an_import_looks_at_its_own_devices_only(
    fuse: bool, machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    with only("zfs(mount='noatime', devices=2)").opened(first(pool, 2), context):
        devices = context.directory / "1-zfs-devices"
        assert {path.readlink() for path in devices.iterdir()} == {Path("/dev/a"), Path("/dev/b")}
    assert not devices.exists()
    assert machine.taken() == with_daemon(
        fuse,
        "zpool import -d DIR/1-zfs-devices -o cachefile=none fsstack-ID-1-zfs",
        "zfs set mountpoint=DIR/1-zfs fsstack-ID-1-zfs",
        "zfs mount -o noatime fsstack-ID-1-zfs",
        "umount DIR/1-zfs",
        "zfs set mountpoint=none fsstack-ID-1-zfs",
        "zpool export fsstack-ID-1-zfs",
    )


@pytest.mark.parametrize("kind", ["zfs", "fuse.zfs"])
def test_a_sync_reaches_the_device(kind: str, machine: LayerMachine, context: BuildContext) -> None:
    machine.mount = Mount("0:50", "/", "-", "rw", kind, "fsstack-1-zfs", "rw,relatime")
    only("zfs").sync(Directory(context.directory), context)
    assert machine.synced == [context.directory]
    assert machine.taken() == ["zfs set fsstack:synced=yes fsstack-1-zfs"] * (kind == "fuse.zfs")


@pytest.mark.parametrize(("in_kernel", "package"), [(True, "zfsutils-linux"), (False, "zfs-fuse")])
def test_zfs_needs_what_its_kind_has(in_kernel: bool, package: str) -> None:
    assert {need.package for need in zfs.needs_of(in_kernel) if isinstance(need, Tool)} == {package}


PROPERTIES = "-O encryption=aes-256-gcm -O keyformat=raw -O keylocation=prompt"


def test_an_encrypted_pool_gets_its_key_by_stdin_each_time(
    machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    machine.filesystems.add("zfs")
    layer = only("zfs(encryption='aes-256-gcm')")
    layer.create(device, context)
    with layer.opened(device, context):
        lines = machine.taken()
    assert [line for line in lines if "SECRET" in line] == [
        "zpool create -f -o cachefile=none -O canmount=noauto -O mountpoint=none "
        f"{PROPERTIES} fsstack-ID-1-zfs /dev/fake <&SECRET",
        "zfs load-key fsstack-ID-1-zfs <&SECRET",
    ]
    assert lines.index("zfs load-key fsstack-ID-1-zfs <&SECRET") < lines.index("zfs mount fsstack-ID-1-zfs")
    assert machine.secrets == [32, 32]


def test_encryption_needs_openzfs_and_says_why() -> None:
    if KernelFilesystem("zfs").missing() is None:
        pytest.skip("this kernel has OpenZFS")
    plain, encrypted = (set(missing(only(text).needs())) for text in ("zfs", "zfs(encryption='aes-128-ccm')"))
    assert any("zfs-fuse" in reason for reason in encrypted - plain)
    assert not any("encryption" in reason for reason in plain)


@pytest.mark.parametrize(
    ("text", "encrypts"),
    [
        ("zfs", False),
        ("zfs(encryption='aes-256-gcm')", True),
        ("bcachefs", False),
        ("bcachefs(encrypted=True)", True),
        ("luks | zfs", True),
    ],
)
def test_a_stack_encrypts_if_an_option_of_its_layer_says_so(text: str, encrypts: bool) -> None:
    assert Stack.parse(text, BUILT_IN).encrypts is encrypts


# -- several devices ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("zfs(vdev='mirror')", 2, ["zpool create POOL mirror /dev/a /dev/b"]),
        ("zfs(vdev='raidz')", 3, ["zpool create POOL raidz /dev/a /dev/b /dev/c"]),
        ("zfs", 2, ["zpool create POOL /dev/a /dev/b"]),
        (
            "zfs(vdev='mirror', log=True, cache=True)",
            4,
            [
                "zpool create POOL mirror /dev/a /dev/b",
                "zpool add -f POOL log /dev/c",
                "zpool add -f POOL cache /dev/d",
            ],
        ),
        ("zfs(cache=True)", 2, ["zpool create POOL /dev/a", "zpool add -f POOL cache /dev/b"]),
        (
            "bcachefs(replicas=2)",
            2,
            ["mkfs.bcachefs -q -f --no_initialize --replicas=2 /dev/a /dev/b"],
        ),
    ],
)
def test_a_layer_on_a_pool_is_made_of_all_its_devices(
    text: str, count: int, expected: list[str], machine: LayerMachine, pool: Pool, context: BuildContext
) -> None:
    machine.filesystems.add("zfs")
    only(f"pool({count}) | {text}").create(first(pool, count), context)
    lines = [re.sub(r"-f -o .* fsstack-ID-1-zfs", "POOL", line) for line in machine.taken()]
    lines = [line.replace("fsstack-ID-1-zfs", "POOL") for line in lines]
    assert [line for line in lines if line.startswith(("zpool create", "zpool add", "mkfs"))] == expected
    assert [line for line in lines if line.startswith("wipefs")] == [
        f"wipefs -aq /dev/{name}" for name in "abcd"[:count]
    ]


def test_bcachefs_mounts_and_checks_several_devices(machine: LayerMachine, pool: Pool, context: BuildContext) -> None:
    devices, layer = first(pool, 2), only("bcachefs(devices=2, replicas=2, mount='noatime')")
    with layer.opened(devices, context):
        pass
    checks = layer.fsck(devices, context)
    assert checks == CheckResult(True, "")
    assert machine.taken() == [
        "mount -i -t bcachefs -o nodiscard,noatime /dev/a:/dev/b DIR/1-bcachefs",
        "umount DIR/1-bcachefs",
        "bcachefs fsck -n /dev/a /dev/b",
    ]
    assert machine.secrets == []


def test_encrypted_bcachefs_is_unlocked_in_a_keyring_of_its_own(
    machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    layer = only("bcachefs(encrypted=True)")
    with layer.opened(device, context):
        pass
    assert layer.fsck(device, context) is not None
    mount, umount, fsck = machine.taken()
    for line, command in (
        (mount, "mount -i -t bcachefs -o nodiscard /dev/fake DIR/1-bcachefs"),
        (fsck, "bcachefs fsck -n /dev/fake"),
    ):
        assert line.startswith("keyctl session - sh -euc ")
        assert line.endswith(f" sh /proc/self/fd/SECRET bcachefs /dev/fake {command}")
    assert umount == "umount DIR/1-bcachefs"
    assert machine.secrets == [64, 64]


def test_the_shell_reads_the_passphrase_and_then_runs_the_command(tmp_path: Path) -> None:
    tool = tmp_path / "bcachefs"
    tool.write_text('#!/bin/sh\necho "$@" >&2; cat >&2\n')
    tool.chmod(0o755)
    with secret_fd(b"hidden") as fd:
        words = [
            "sh",
            "-euc",
            bcachefs._UNLOCK,
            "sh",
            f"/proc/self/fd/{fd}",
            str(tool),
            "/dev/fake",
            "echo",
            "two words",
        ]
        result = subprocess.run(words, pass_fds=[fd], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("two words\n", "unlock -k session /dev/fake\nhidden")
    assert not any("hidden" in word for word in words)


# -- options and needs -------------------------------------------------------------------------------------------------


# -- features that layers above want -----------------------------------------------------------------------------------


def words(text: str, index: int = 0) -> list[str]:
    stack = Stack.parse(text, BUILT_IN)
    layer = stack.layers[index]
    assert isinstance(layer, Filesystem)
    return layer.with_features(layer.mkfs_words(), stack.required_features(index))


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("ext4 | fscrypt", "encrypt,stable_inodes"),
        ("ext4 | bind | fscrypt", "encrypt,stable_inodes"),
        ("f2fs | fscrypt", "encrypt"),
        ("ext4(mkfs='-O ^has_journal -b 1024') | fscrypt", "^has_journal,encrypt,stable_inodes"),
        ("ext4(mkfs='-Oencrypt,none') | fscrypt", "encrypt,none,stable_inodes"),
        ("ext4(mkfs='-O encrypt,stable_inodes') | fscrypt", "encrypt,stable_inodes"),
    ],
)
def test_a_filesystem_is_made_for_the_encryption_above(text: str, features: str) -> None:
    made = words(text)
    assert made.count("-O") == 1
    assert made[made.index("-O") + 1] == features


@pytest.mark.parametrize("text", ["ext4", "ext4 | gocryptfs", "ext4 | loop | f2fs | fscrypt"])
def test_nothing_is_added_that_nobody_wants(text: str) -> None:
    (ext4,) = Stack.parse("ext4", BUILT_IN).layers
    assert isinstance(ext4, Filesystem)
    assert words(text) == ext4.mkfs_words()


# -- trim --------------------------------------------------------------------------------------------------------------


def standing(machine: LayerMachine, context: BuildContext, text: str, *paths: str) -> Built:
    """Return a stack above the device, whose other places have these paths."""
    stack = Stack.parse(text, BUILT_IN)
    bottom = Block(Path("/dev/fake"), lambda: None, machine)
    built = Built(stack, DirectoryDevice(Path("/")), bottom, context)
    for layer, path in zip(stack.layers, map(Path, paths)):
        built._places.append(Directory(path) if layer.gives is Directory else Block(path, lambda: None, machine))
    return built


CANNOT = CommandError(["fstrim", "/b"], 1, "the discard operation is not supported")


def test_every_filesystem_of_a_stack_is_trimmed(machine: LayerMachine, context: BuildContext) -> None:
    machine.answers["fstrim --verbose /a"] = "/a: 1 GiB (1073741824 bytes) trimmed"
    machine.answers["fstrim --verbose /c"] = "/c: 5 B (5 bytes) trimmed"
    assert standing(machine, context, "ext4 | loop | btrfs | bind", "/a", "/b", "/c", "/d").trim() == 1073741829


def test_one_that_cannot_is_passed_over(machine: LayerMachine, context: BuildContext) -> None:
    machine.answers |= {"fstrim --verbose /a": "/a: 7 B (7 bytes) trimmed", "fstrim --verbose /c": CANNOT}
    assert standing(machine, context, "ext4 | loop | btrfs", "/a", "/b", "/c").trim() == 7


def test_where_none_can_it_says_why(machine: LayerMachine, context: BuildContext) -> None:
    machine.answers["fstrim"] = CANNOT
    hint = r"ext4: .* not supported\b.*\bluks\b.*open='--allow-discards'"
    with pytest.raises(BuildError, match=hint):
        standing(machine, context, "luks | ext4", "/a", "/b").trim()
    for text in "linear", "luks(open='--allow-discards')":
        with pytest.raises(BuildError, match=r"`.* \| ext4` .*not supported$"):
            standing(machine, context, f"{text} | ext4", "/a", "/b").trim()
    with pytest.raises(BuildError, match=r"`ext4` .*not supported$"):
        standing(machine, context, "ext4", "/b").trim()
    with pytest.raises(BuildError, match=r"`bind` .*\bfilesystem\b"):
        standing(machine, context, "bind", "/c").trim()


@pytest.mark.parametrize(
    ("number", "is_raised"), [(errno.ENODEV, False), (errno.ENOTTY, False), (errno.EIO, True), (errno.EPERM, True)]
)
def test_a_missing_journal_is_no_error_and_one_that_cannot_be_written_back_is(
    number: int, is_raised: bool, machine: LayerMachine, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, request: int, argument: bytes) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(machine, "ioctl", refuse)
    with pytest.raises(OSError, match=str(context.directory)) if is_raised else contextlib.nullcontext():
        only("ext4").checkpoint(Directory(context.directory), context)
