"""The commands that filesystems give, recorded instead of run: no root, no device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_fsstack import host, needs
from pytest_fsstack.layers import BUILT_IN, filesystems, zfs
from pytest_fsstack.layers.devices import DirectoryDevice
from pytest_fsstack.needs import Tool
from pytest_fsstack.spec import SpecError
from pytest_fsstack.stack import Block, BuildError, Built, Directory, Layer, Site, Stack

KNOWN: dict[str, type[Layer]] = {layer.name: layer for layer in BUILT_IN}


class NoJournal:
    """A journal that is not kept."""

    @contextmanager
    def entry(self, kind: str, **facts: object) -> Iterator[None]:
        yield


class NoDaemon:
    """A server that runs until it is told to end."""

    pid, alive = 1, True
    argv = ()

    def __init__(self, commands: list[str]) -> None:
        self.commands = commands

    def kill(self) -> None:
        self.commands.append("(killed)")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    recorded: list[str] = []

    def run(*argv: object, **keywords: object) -> str:
        recorded.append(" ".join(map(str, argv)))
        return ""

    def start(*argv: object, **keywords: object) -> NoDaemon:
        recorded.append(f"start {' '.join(map(str, argv))}")
        return NoDaemon(recorded)

    monkeypatch.setattr(host, "run", run)
    monkeypatch.setattr(host, "start", start)
    monkeypatch.setattr(host, "wait_until", lambda condition, seconds: condition())
    return recorded


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site(tmp_path, NoJournal())  # type: ignore[arg-type]
    monkeypatch.setattr(Site, "name", lambda self, layer: f"fsstack-1-{layer}")
    return site


def only(text: str) -> Layer:
    (layer,) = Stack.parse(text, KNOWN).layers
    return layer


DEVICE = Block(Path("/dev/fake"), lambda: None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f2fs", "mkfs.f2fs -q -f -t 0 /dev/fake"),
        ("f2fs(compress='zstd', mkfs='-l x')", "mkfs.f2fs -q -f -t 0 -O extra_attr,compression -l x /dev/fake"),
        ("nilfs2(mkfs='-b 1024')", "mkfs.nilfs2 -q -f -K -b 1024 /dev/fake"),
        ("jfs", "mkfs.jfs -q /dev/fake"),
        ("reiserfs(mkfs='--hash tea')", "mkfs.reiserfs -q -ff --hash tea /dev/fake"),
        ("exfat(mkfs='-c 64K')", "mkfs.exfat -c 64K /dev/fake"),
        ("vfat(mkfs='-F 32')", "mkfs.vfat -I --mbr=no -F 32 /dev/fake"),
        ("ntfs", "mkntfs -q -F -f /dev/fake"),
        ("ntfs3g(compress=True, mkfs='-c 4096')", "mkntfs -q -F -f -C -c 4096 /dev/fake"),
        ("bcachefs(compress='zstd:3')", "mkfs.bcachefs -q -f --discard=0 --compression=zstd:3 /dev/fake"),
        ("bcachefs(mkfs='--discard')", "mkfs.bcachefs -q -f --discard /dev/fake"),
    ],
)
def test_mkfs_gets_our_defaults_and_the_users_options(
    text: str, expected: str, commands: list[str], site: Site
) -> None:
    only(text).create(DEVICE, site)
    assert commands == ["wipefs -aq /dev/fake", expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f2fs", "-t f2fs -o nodiscard,background_gc=off"),
        ("f2fs(mount='background_gc=on,discard')", "-t f2fs -o background_gc=on,discard"),
        (
            "f2fs(compress='zstd:3')",
            "-t f2fs -o nodiscard,background_gc=off,compress_algorithm=zstd:3,compress_extension=*",
        ),
        ("nilfs2(mount='order=strict')", "-t nilfs2 -o nogc,order=strict"),
        ("jfs", "-t jfs"),
        ("reiserfs(mount='notail')", "-t reiserfs -o notail"),
        ("exfat", "-t exfat"),
        ("vfat(mount='utf8')", "-t vfat -o utf8"),
        ("ntfs(compress=True)", "-t ntfs3"),
        ("bcachefs", "-t bcachefs"),
    ],
)
def test_mount_gets_ours_and_the_users_options(text: str, expected: str, commands: list[str], site: Site) -> None:
    layer = only(text)
    with layer.opened(DEVICE, site, 1) as place:
        assert place.path == site.directory / f"1-{layer.name}"
    assert commands == [f"mount {expected} /dev/fake {place.path}", f"umount {place.path}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ntfs3g", "no_detach"),
        ("ntfs3g(compress=True, mount='noatime,big_writes')", "no_detach,compression,noatime,big_writes"),
    ],
)
def test_ntfs_3g_stays_in_the_foreground(
    text: str, expected: str, site: Site, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def served(target: Path, site: Site, *argv: object, on_block: bool = False) -> Iterator[Directory]:
        commands.append(" ".join(map(str, argv)))
        yield Directory(target)

    monkeypatch.setattr(filesystems, "served", served)
    with only(text).opened(DEVICE, site, 1) as place:
        pass
    assert commands == [f"ntfs-3g -o {expected} /dev/fake {place.path}"]


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
    monkeypatch.setattr(host, "private_mounts", lambda: True)
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


def test_a_pool_is_made_so_that_no_import_mounts_it(fuse: bool, commands: list[str], site: Site) -> None:
    only("zfs(compress='lz4', mkfs='-o ashift=12', daemon='--max-arc-size 64')").create(DEVICE, site)
    ours = "-f -o cachefile=none -O canmount=noauto -O mountpoint=none"
    assert commands == with_daemon(
        fuse,
        site,
        "wipefs -aq /dev/fake",
        f"zpool create {ours} -O compression=lz4 -o ashift=12 fsstack-1-zfs /dev/fake",
        "zpool export fsstack-1-zfs",
        daemon=" --max-arc-size 64",
    )


def test_an_import_looks_at_its_own_device_only(fuse: bool, commands: list[str], site: Site) -> None:
    with only("zfs(mount='noatime')").opened(DEVICE, site, 1) as place:
        devices = site.directory / "zfs-devices"
        assert [path.readlink() for path in devices.iterdir()] == [DEVICE.path]
    assert not devices.exists()
    assert commands == with_daemon(
        fuse,
        site,
        f"zpool import -d {devices} -o cachefile=none fsstack-1-zfs",
        f"zfs set mountpoint={place.path} fsstack-1-zfs",
        "zfs mount -o noatime fsstack-1-zfs",
        f"umount {place.path}",
        "zfs set mountpoint=none fsstack-1-zfs",
        "zpool export fsstack-1-zfs",
    )


def test_a_sync_reaches_the_device(
    fuse: bool, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "syncfs", lambda path: commands.append(f"syncfs {path}"))
    kind = "fuse.zfs" if fuse else "zfs"
    monkeypatch.setattr(host, "mount_options", lambda path: f"{kind} fsstack-1-zfs rw,relatime")
    only("zfs").sync(Directory(tmp_path))
    assert commands == [f"syncfs {tmp_path}", *(["zfs set fsstack:synced=yes fsstack-1-zfs"] if fuse else [])]


def test_zfs_needs_what_its_kind_has(fuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "package_manager", lambda: "apt")
    packages = {need.package_here for need in only("zfs").needs() if isinstance(need, Tool)}
    assert packages == ({"zfs-fuse", "util-linux"} if fuse else {"zfsutils-linux"})


# -- options and needs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f2fs(compress='gzip')", "compress must be lzo, lz4, zstd or lzo-rle (or zstd:3), not 'gzip'"),
        ("f2fs(compress='zstd:best')", "not 'zstd:best'"),
        ("bcachefs(compress='lzo')", "compress must be lz4, gzip or zstd (or zstd:3), not 'lzo'"),
        ("zfs(mkfs='\"')", "mkfs is not a command line"),
        ("zfs(daemon='\"')", "daemon is not a command line"),
    ],
)
def test_options_that_make_no_sense_are_told(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        Stack.parse(text, KNOWN)


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | host.CommandError]:
    """What fstrim says of each mount point."""
    says: dict[str, str | host.CommandError] = {}

    def run(*argv: object) -> str:
        said = says[str(argv[-1])]
        if isinstance(said, host.CommandError):
            raise said
        return said

    monkeypatch.setattr(host, "run", run)
    monkeypatch.setattr(host, "syncfs", lambda path: None)
    return says


def standing(text: str, *places: Block | Directory) -> Built:
    built = Built(Stack.parse(text, KNOWN), DirectoryDevice(Path("/")), DEVICE, None)  # type: ignore[arg-type]
    built._places += places
    return built


CANNOT = host.CommandError(["fstrim", "/b"], 1, "the discard operation is not supported")


def test_every_filesystem_of_a_stack_is_trimmed(trims: dict[str, str | host.CommandError]) -> None:
    trims.update({"/a": "/a: 1 GiB (1073741824 bytes) trimmed", "/c": "/c: 5 B (5 bytes) trimmed"})
    parts = Directory(Path("/a")), DEVICE, Directory(Path("/c")), Directory(Path("/d"))
    assert standing("ext4 | loop | btrfs | bind", *parts).trim() == 1073741829


def test_one_that_cannot_is_passed_over(trims: dict[str, str | host.CommandError]) -> None:
    trims.update({"/a": "/a: 7 B (7 bytes) trimmed", "/b": CANNOT})
    assert standing("ext4 | loop | btrfs", Directory(Path("/a")), DEVICE, Directory(Path("/b"))).trim() == 7


def test_where_none_can_it_says_why(trims: dict[str, str | host.CommandError]) -> None:
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
        Built(Stack.parse("bind", KNOWN), DirectoryDevice(Path("/")), Directory(Path("/")), None).trim()  # type: ignore[arg-type]
