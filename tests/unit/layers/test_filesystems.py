"""The commands that filesystems give, recorded instead of run: no root, no device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.layers import BUILT_IN, zfs
from pytest_fsstack.machine.commands import CommandError
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.machine.port import Mount
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.model import Block, BuildContext, Directory, Stack
from pytest_fsstack.stack.spec import SpecError
from tests.unit.layers.conftest import LayerMachine, only


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
        ("bcachefs(compress='zstd:3')", "mkfs.bcachefs -q -f --discard=0 --compression=zstd:3 /dev/fake"),
        ("bcachefs(mkfs='--discard')", "mkfs.bcachefs -q -f --discard /dev/fake"),
    ],
)
def test_mkfs_gets_our_defaults_and_the_users_options(
    text: str, expected: str, machine: LayerMachine, context: BuildContext
) -> None:
    checks: list[None] = []
    only(text).create(Block(Path("/dev/fake"), lambda: checks.append(None), machine), context)
    assert machine.taken() == ["wipefs -aq /dev/fake", expected]
    assert len(checks) == 2, "the guard is asked before the wipe, and again at the last moment"


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
        f"zpool create {ours} -O compression=lz4 -o ashift=12 fsstack-PID-1-zfs /dev/fake",
        "zpool export fsstack-PID-1-zfs",
        daemon=" --max-arc-size 64",
    )


def test_an_import_looks_at_its_own_device_only(
    fuse: bool, machine: LayerMachine, device: Block, context: BuildContext
) -> None:
    with only("zfs(mount='noatime')").opened(device, context):
        devices = context.directory / "1-zfs-devices"
        assert [path.readlink() for path in devices.iterdir()] == [device.path]
    assert not devices.exists()
    assert machine.taken() == with_daemon(
        fuse,
        "zpool import -d DIR/1-zfs-devices -o cachefile=none fsstack-PID-1-zfs",
        "zfs set mountpoint=DIR/1-zfs fsstack-PID-1-zfs",
        "zfs mount -o noatime fsstack-PID-1-zfs",
        "umount DIR/1-zfs",
        "zfs set mountpoint=none fsstack-PID-1-zfs",
        "zpool export fsstack-PID-1-zfs",
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


# -- options and needs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f2fs(compress='gzip')", "compress: must be lzo, lz4, zstd or lzo-rle (or zstd:3) (got 'gzip')"),
        ("f2fs(compress='zstd:best')", "got 'zstd:best'"),
        ("bcachefs(compress='lzo')", "compress: must be lz4, gzip or zstd (or zstd:3) (got 'lzo')"),
        ("zfs(mkfs='\"')", "mkfs: not a command line"),
        ("zfs(daemon='\"')", "daemon: not a command line"),
    ],
)
def test_options_that_make_no_sense_are_told(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Stack.parse(text, BUILT_IN)


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
    hint = r"layer ext4: .* not supported\. luks: open='--allow-discards' passes discards on"
    with pytest.raises(BuildError, match=hint):
        standing(machine, context, "luks | ext4", "/a", "/b").trim()
    for text in "linear", "luks(open='--allow-discards')":
        with pytest.raises(BuildError, match=r"could not trim `.* \| ext4` on .*not supported$"):
            standing(machine, context, f"{text} | ext4", "/a", "/b").trim()
    with pytest.raises(BuildError, match=r"could not trim `ext4` on .*not supported$"):
        standing(machine, context, "ext4", "/b").trim()
    with pytest.raises(BuildError, match="it has no filesystem of its own"):
        standing(machine, context, "bind", "/c").trim()
