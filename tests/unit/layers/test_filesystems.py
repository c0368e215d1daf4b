"""The commands that filesystems give, recorded instead of run: no root, no device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN, filesystems, zfs
from pytest_fsstack.layers.devices import DirectoryDevice
from pytest_fsstack.machine import commands, mounts, needs, processes
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.stack.build import BuildError, Built
from pytest_fsstack.stack.model import Block, Directory, Layer, Site, Stack
from pytest_fsstack.stack.spec import SpecError
from tests.toolkit import NotedJournal


class NoDaemon:
    """A server that runs until it is told to end."""

    pid, alive = 1, True
    argv = ()

    def __init__(self, ran: list[str]) -> None:
        self.ran = ran

    def kill(self) -> None:
        self.ran.append("(killed)")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    recorded: list[str] = []

    def run(*argv: object, **keywords: object) -> str:
        recorded.append(" ".join(map(str, argv)))
        return ""

    def start(*argv: object, **keywords: object) -> NoDaemon:
        recorded.append(f"start {' '.join(map(str, argv))}")
        return NoDaemon(recorded)

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(processes, "start", start)
    monkeypatch.setattr(commands, "wait_until", lambda condition, seconds: condition())
    return recorded


@pytest.fixture
def site(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(Site, "name", lambda self, layer: f"fsstack-1-{layer}")
    return site


def only(text: str) -> Layer:
    (layer,) = Stack.parse(text, BUILT_IN).layers
    return layer


DEVICE = Block(Path("/dev/fake"), lambda: None)


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
            "mkfs.ext2 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard -L two words /dev/fake",
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
def test_mkfs_gets_our_defaults_and_the_users_options(text: str, expected: str, ran: list[str], site: Site) -> None:
    checks: list[None] = []
    only(text).create(Block(Path("/dev/fake"), lambda: checks.append(None)), site)
    assert ran == ["wipefs -aq /dev/fake", expected]
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
            "-t f2fs -o nodiscard,background_gc=off,compress_algorithm=zstd:3,compress_extension=*",
        ),
        ("nilfs2(mount='order=strict')", "-t nilfs2 -o nogc,order=strict"),
        ("reiserfs(mount='notail')", "-t reiserfs -o notail"),
        ("vfat(mount='utf8')", "-t vfat -o utf8"),
        ("ntfs(compress=True)", "-t ntfs3"),
    ],
)
def test_mount_gets_ours_and_the_users_options(text: str, expected: str, ran: list[str], site: Site) -> None:
    layer = only(text)
    with layer.opened(DEVICE, site, 1) as place:
        assert place.path == site.directory / f"1-{layer.name}"
    assert ran == [f"mount {expected} /dev/fake {place.path}", f"umount {place.path}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ntfs3g", "no_detach"),
        ("ntfs3g(compress=True, mount='noatime,big_writes')", "no_detach,compression,noatime,big_writes"),
    ],
)
def test_ntfs_3g_stays_in_the_foreground(
    text: str, expected: str, site: Site, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def served(target: Path, site: Site, *argv: object, on_block: bool = False) -> Iterator[Directory]:
        ran.append(" ".join(map(str, argv)))
        yield Directory(target)

    monkeypatch.setattr(filesystems, "served", served)
    with only(text).opened(DEVICE, site, 1) as place:
        pass
    assert ran == [f"ntfs-3g -o {expected} /dev/fake {place.path}"]


# -- ZFS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["OpenZFS", "zfs-fuse"])
def fuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bool:
    """Both kinds of ZFS, one after the other."""
    fuse: bool = request.param == "zfs-fuse"
    state = tmp_path / "state"
    state.mkdir()
    (state / "zfs_socket").touch()
    monkeypatch.setattr(zfs, "_in_kernel", lambda: not fuse)
    monkeypatch.setattr(zfs, "_STATE", (state,))
    monkeypatch.setattr(mounts, "private_namespace", lambda: True)
    return fuse


def with_daemon(fuse: bool, site: Site, *expected: str, daemon: str = "") -> list[str]:
    if not fuse:
        return list(expected)
    state = site.directory / "state"
    return [
        f"mount -t tmpfs -o mode=700 tmpfs {state}",
        f"start zfs-fuse --no-daemon --no-kstat-mount{daemon}",
        "zpool list",
        *expected,
        "(killed)",
        f"umount {state}",
    ]


def test_a_pool_is_made_so_that_no_import_mounts_it(fuse: bool, ran: list[str], site: Site) -> None:
    only("zfs(compress='lz4', mkfs='-o ashift=12', daemon='--max-arc-size 64')").create(DEVICE, site)
    ours = "-f -o cachefile=none -O canmount=noauto -O mountpoint=none"
    assert ran == with_daemon(
        fuse,
        site,
        "wipefs -aq /dev/fake",
        f"zpool create {ours} -O compression=lz4 -o ashift=12 fsstack-1-zfs /dev/fake",
        "zpool export fsstack-1-zfs",
        daemon=" --max-arc-size 64",
    )


def test_an_import_looks_at_its_own_device_only(fuse: bool, ran: list[str], site: Site) -> None:
    with only("zfs(mount='noatime')").opened(DEVICE, site, 1) as place:
        devices = site.directory / "zfs-devices"
        assert [path.readlink() for path in devices.iterdir()] == [DEVICE.path]
    assert not devices.exists()
    assert ran == with_daemon(
        fuse,
        site,
        f"zpool import -d {devices} -o cachefile=none fsstack-1-zfs",
        f"zfs set mountpoint={place.path} fsstack-1-zfs",
        "zfs mount -o noatime fsstack-1-zfs",
        f"umount {place.path}",
        "zfs set mountpoint=none fsstack-1-zfs",
        "zpool export fsstack-1-zfs",
    )


def test_a_sync_reaches_the_device(fuse: bool, ran: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "syncfs", lambda path: ran.append(f"syncfs {path}"))
    kind = "fuse.zfs" if fuse else "zfs"
    mount = mounts.Mount("0:50", "/", str(tmp_path), "rw", kind, "fsstack-1-zfs", "rw,relatime")
    monkeypatch.setattr(mounts, "at", lambda path: mount)
    only("zfs").sync(Directory(tmp_path))
    assert ran == [f"syncfs {tmp_path}", *(["zfs set fsstack:synced=yes fsstack-1-zfs"] if fuse else [])]


def test_zfs_needs_what_its_kind_has(fuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "package_manager", lambda: "apt")
    packages = {need.package_here for need in only("zfs").needs() if isinstance(need, Tool)}
    assert packages == ({"zfs-fuse"} if fuse else {"zfsutils-linux"})


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


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | commands.CommandError]:
    """What fstrim says of each mount point."""
    says: dict[str, str | commands.CommandError] = {}

    def run(*argv: object) -> str:
        said = says[str(argv[-1])]
        if isinstance(said, commands.CommandError):
            raise said
        return said

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(commands, "syncfs", lambda path: None)
    return says


def standing(text: str, *places: Block | Directory) -> Built:
    built = Built(Stack.parse(text, BUILT_IN), DirectoryDevice(Path("/")), DEVICE, Site(Path("/"), NotedJournal()))
    built._places += places
    return built


CANNOT = commands.CommandError(["fstrim", "/b"], 1, "the discard operation is not supported")


def test_every_filesystem_of_a_stack_is_trimmed(trims: dict[str, str | commands.CommandError]) -> None:
    trims.update({"/a": "/a: 1 GiB (1073741824 bytes) trimmed", "/c": "/c: 5 B (5 bytes) trimmed"})
    parts = Directory(Path("/a")), DEVICE, Directory(Path("/c")), Directory(Path("/d"))
    assert standing("ext4 | loop | btrfs | bind", *parts).trim() == 1073741829


def test_one_that_cannot_is_passed_over(trims: dict[str, str | commands.CommandError]) -> None:
    trims.update({"/a": "/a: 7 B (7 bytes) trimmed", "/b": CANNOT})
    assert standing("ext4 | loop | btrfs", Directory(Path("/a")), DEVICE, Directory(Path("/b"))).trim() == 7


def test_where_none_can_it_says_why(trims: dict[str, str | commands.CommandError]) -> None:
    trims["/b"] = CANNOT
    hint = r"layer ext4: .* not supported\. luks: open='--allow-discards' passes discards on"
    with pytest.raises(BuildError, match=hint):
        standing("luks | ext4", DEVICE, Directory(Path("/b"))).trim()
    for text in "linear", "luks(open='--allow-discards')":
        with pytest.raises(BuildError, match=r"could not trim `.* \| ext4` on .*not supported$"):
            standing(f"{text} | ext4", DEVICE, Directory(Path("/b"))).trim()
    with pytest.raises(BuildError, match=r"could not trim `ext4` on .*not supported$"):
        standing("ext4", Directory(Path("/b"))).trim()
    with pytest.raises(BuildError, match="it has no filesystem of its own"):
        standing("bind", Directory(Path("/c"))).trim()
