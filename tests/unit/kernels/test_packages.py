"""Hostile packages: nothing is written outside of their directory, and errors have one line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pytest_fsstack.kernels import packages
from pytest_fsstack.kernels.images import KernelError, resolve
from pytest_fsstack.machine import confined
from tests.unit.kernels.test_kernels import image

RELEASE = "6.1.0-test"
#: Name, kind as in its mode, mode, content or where a link leads.
Entry = tuple[str, int, int, bytes]
FILE, DIRECTORY, LINK, HARD_LINK, FIFO, DEVICE = stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, 0, stat.S_IFIFO, stat.S_IFCHR

_TAR = {
    FILE: tarfile.REGTYPE,
    DIRECTORY: tarfile.DIRTYPE,
    LINK: tarfile.SYMTYPE,
    HARD_LINK: tarfile.LNKTYPE,
    FIFO: tarfile.FIFOTYPE,
    DEVICE: tarfile.CHRTYPE,
}


def tar(entries: Iterable[Entry]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, kind, mode, content in entries:
            member = tarfile.TarInfo(name)
            member.type, member.mode = _TAR[kind], mode
            if kind == FILE:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                member.linkname = os.fsdecode(content)
                archive.addfile(member)
    return out.getvalue()


def cpio(entries: Iterable[Entry]) -> bytes:
    """Write the format of rpm2cpio. A hard link has the inode number of its target."""
    out, numbers = b"", {b"": 1}
    for name, kind, mode, content in [*entries, ("TRAILER!!!", FILE, 0, b"")]:
        words = os.fsencode(name)
        number = numbers.setdefault(content if kind == HARD_LINK else words, len(numbers) + 1)
        data = content if kind in (FILE, LINK) else b""
        fields = [number, (kind or FILE) | mode, 0, 0, 2, 0, len(data), 0, 0, 1, 3, len(words) + 1, 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + words + b"\0"
        out += head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
    return out


def ar(members: dict[str, bytes]) -> bytes:
    out = b"!<arch>\n"
    for name, content in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        out += b"\n" * (len(content) % 2)
    return out


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE, check=True).stdout


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstd,
}


def deb(data: bytes, suffix: str = "") -> bytes:
    control = gzip.compress(tar([("./control", FILE, 0o644, b"Package: linux-image\nVersion: 1\n")]))
    packed = COMPRESSED[suffix](data)
    return ar({"debian-binary": b"2.0\n", "control.tar.gz": control, f"data.tar{suffix}": packed})


@pytest.fixture(autouse=True)
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install an `rpm2cpio` for packages that are plain archives, and a `depmod` that does nothing."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("needs dpkg-deb")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in ("rpm2cpio", "exec cat"), ("depmod", "exit 0"):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    # The user without rights must reach them, which pytest's directories do not allow.
    for parent in (tools, *tools.parents):
        if parent.stat().st_uid == os.geteuid() and parent.stat().st_mode & 0o755 != 0o755:
            parent.chmod(0o755)
    return tools


@pytest.fixture
def kernel(tmp_path: Path) -> list[Entry]:
    """Write a package like those of distributions."""
    content = image(tmp_path / "image", RELEASE).read_bytes()
    return [
        ("./", DIRECTORY, 0o755, b""),
        ("./boot/", DIRECTORY, 0o755, b""),
        (f"./boot/vmlinuz-{RELEASE}", FILE, 0o600, content),
        (f"./lib/modules/{RELEASE}/kernel/a.ko", FILE, 0o644, b"module"),
        (f"./lib/modules/{RELEASE}/kernel/b.ko", LINK, 0o777, b"a.ko"),
        (f"./lib/modules/{RELEASE}/build", LINK, 0o777, b"/usr/src/linux"),
    ]


def check(package: Path, cache: Path) -> None:
    if os.geteuid() == 0:
        nobody = [sys.executable, "-I", "-S", confined.__file__, "65534", "65534", "/bin/true"]
        if problem := subprocess.run(nobody, capture_output=True, text=True).stderr:
            pytest.skip(problem.strip())
    resolved = resolve(str(package), cache)
    assert resolved.name == RELEASE
    assert resolved.image is not None
    modules = resolved.image.parent.parent / "lib/modules" / RELEASE
    assert (modules / "kernel/b.ko").read_text() == "module"
    # It leads to another package, and nothing here needs it.
    assert not os.path.lexists(modules / "build")
    owners = {path.lstat().st_uid for path in cache.rglob("*")}
    assert owners == {os.geteuid()}


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_deb_is_unpacked_however_it_is_compressed(tmp_path: Path, kernel: list[Entry], suffix: str) -> None:
    if suffix == ".zst" and not shutil.which("zstd"):
        pytest.skip("needs zstd")
    package = tmp_path / "linux.deb"
    package.write_bytes(deb(tar(kernel), suffix))
    check(package, tmp_path / "cache")


def test_an_rpm_is_unpacked_with_its_hard_links(tmp_path: Path, kernel: list[Entry]) -> None:
    package = tmp_path / "linux.rpm"
    first = f"./lib/modules/{RELEASE}/kernel/a.ko"
    kernel.append((f"./lib/modules/{RELEASE}/kernel/c.ko", HARD_LINK, 0o644, first.encode()))
    package.write_bytes(cpio(kernel))
    check(package, tmp_path / "cache")
    (linked,) = (tmp_path / "cache").rglob("c.ko")
    assert linked.read_text() == "module"


HOSTILE: dict[str, list[Entry]] = {
    "an absolute name": [("{out}/file", FILE, 0o644, b"x")],
    "a name with ..": [("./boot/../{up}/file", FILE, 0o644, b"x")],
    "a link out": [("boot/evil", LINK, 0o777, b"{out}")],
    "a relative link out": [("evil", LINK, 0o777, b"{up}")],
    "a link out and a file through it": [("evil", LINK, 0o777, b"{out}"), ("evil/file", FILE, 0o644, b"x")],
    "a link inside and a file through it": [("evil", LINK, 0o777, b"boot"), ("evil/file", FILE, 0o644, b"x")],
    "a link in place of boot": [("boot", LINK, 0o777, b"{out}"), ("boot/vmlinuz-x", FILE, 0o644, b"x")],
    "modules that lead out": [("lib/modules/6.9", LINK, 0o777, b"{out}")],
    "links that lead out together": [
        ("a/b/", DIRECTORY, 0o755, b""),
        ("a/b/top", LINK, 0o777, b"../.."),
        ("evil", LINK, 0o777, b"a/b/top/.."),
    ],
    "a hard link out": [("evil", HARD_LINK, 0o644, b"{out}/secret")],
    "a hard link with ..": [("evil", HARD_LINK, 0o644, b"{up}/secret")],
    "a hard link to nothing": [("evil", HARD_LINK, 0o644, b"missing")],
    "a device": [("evil", DEVICE, 0o666, b"")],
    "a pipe": [("evil", FIFO, 0o644, b"")],
    "a setuid file": [("evil", FILE, 0o4755, b"x")],
    "a setgid file": [("evil", FILE, 0o2755, b"x")],
    "a name with a new line": [("boot/a\nFAILED: b", FILE, 0o644, b"x")],
    "a name that moves the cursor": [("boot/\x1b[2J", FILE, 0o644, b"x")],
    "a file twice": [("evil", FILE, 0o644, b"x"), ("evil", FILE, 0o644, b"y")],
    "a name that is an option": [("lib/modules/-C/a.ko", FILE, 0o644, b"x")],
    "a name that is no text": [("boot/\udcff", FILE, 0o644, b"x")],
}


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[Path], str]:
    """Return the reason for refusing a package, and check that no files remain."""
    outside = tmp_path / "outside"
    outside.mkdir()
    outside.chmod(0o777)
    (outside / "secret").write_text("secret")

    def refuse(package: Path) -> str:
        with pytest.raises(KernelError) as error:
            resolve(str(package), tmp_path / "cache")
        assert sorted(path.name for path in outside.iterdir()) == ["secret"]
        assert (outside / "secret").stat().st_nlink == 1
        assert list((tmp_path / "cache").rglob("*")) in ([], [tmp_path / "cache/kernels"])
        text = str(error.value)
        assert f" {package}: " in text
        assert text.isprintable(), text
        return text

    return refuse


def hostile(tmp_path: Path, entries: Iterable[Entry]) -> list[Entry]:
    out = tmp_path / "outside"
    # Above the root directory is itself, from however deep it is.
    up = f"{'../' * 40}{str(out).lstrip('/')}"

    def filled(text: str) -> str:
        return text.replace("{out}", str(out)).replace("{up}", up)

    return [(filled(name), kind, mode, os.fsencode(filled(os.fsdecode(data)))) for name, kind, mode, data in entries]


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("suffix", [".deb", ".rpm"])
def test_a_hostile_member_is_refused(
    what: str, suffix: str, tmp_path: Path, kernel: list[Entry], refused: Callable[[Path], str]
) -> None:
    if suffix == ".rpm" and "hard link" in what:
        pytest.skip("hard links of cpio have numbers, which cannot lead out")
    entries = hostile(tmp_path, HOSTILE[what])
    if what == "a link in place of boot":
        kernel = [entry for entry in kernel if "boot" not in entry[0]]
    package = tmp_path / f"linux{suffix}"
    package.write_bytes(deb(tar([*kernel, *entries])) if suffix == ".deb" else cpio([*kernel, *entries]))
    refused(package)


def test_a_file_that_claims_to_be_huge_is_refused(tmp_path: Path, refused: Callable[[Path], str]) -> None:
    member = tarfile.TarInfo("huge")
    member.size = 1 << 50
    package = tmp_path / "linux.deb"
    package.write_bytes(deb(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))
    refused(package)
    rpm = tmp_path / "linux.rpm"
    rpm.write_bytes(cpio([("huge", FILE, 0o644, b"x")]).replace(b"%08x" % 1, b"ffffffff"))
    refused(rpm)


def test_a_sparse_file_is_refused(tmp_path: Path, refused: Callable[[Path], str]) -> None:
    member = tarfile.TarInfo("sparse")
    member.type, member.size = tarfile.GNUTYPE_SPARSE, 0
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    head[483:495] = b"77777777777\0"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    package = tmp_path / "linux.deb"
    package.write_bytes(deb(bytes(head) + bytes(1024)))
    refused(package)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_what_is_small_only_when_compressed_is_refused(
    suffix: str, tmp_path: Path, refused: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "MAX_BYTES", 1 << 20)
    package = tmp_path / "linux.deb"
    package.write_bytes(deb(tar([("zeros", FILE, 0o644, bytes(8 << 20))]), suffix))
    refused(package)


@pytest.mark.parametrize("end", [100, 600, 2000])
def test_an_archive_that_is_cut_off_is_refused(
    end: int, tmp_path: Path, kernel: list[Entry], refused: Callable[[Path], str]
) -> None:
    for name, content in ("linux.deb", deb(tar(kernel)[:end])), ("linux.rpm", cpio(kernel)[:end]):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name)


@pytest.mark.root
def test_root_unpacks_as_a_user_without_rights(
    tmp_path: Path, kernel: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    makers: set[tuple[int, int]] = set()
    check = packages._check

    def look(directory: Path) -> None:
        makers.update((path.lstat().st_uid, path.lstat().st_gid) for path in directory.rglob("*"))
        check(directory)

    monkeypatch.setattr(packages, "_check", look)
    package = tmp_path / "linux.deb"
    package.write_bytes(deb(tar(kernel)))
    resolve(str(package), tmp_path / "cache")
    assert {uid for uid, _ in makers} == {packages._unprivileged_user().pw_uid}  # type: ignore[union-attr]
    assert os.geteuid() == 0
    (tmp_path / "mine").write_text("of root again")
    assert (tmp_path / "mine").stat().st_uid == 0


@pytest.mark.root
def test_other_processes_of_the_unprivileged_user_cannot_reach_the_archive(
    tmp_path: Path, kernel: list[Entry], tools: Path
) -> None:
    shared = tools / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tools / "rpm2cpio").write_text(f"#!/bin/sh\ncat\nuntil [ -e {shared}/over ]; do sleep 0.1; done\n")
    # Another process of the user opens every file of the tool's processes.
    attack = f"""
        lines() {{ grep -ls {tools}/rpm2cpi[o] /proc/[0-9]*/cmdline; }}
        seen() {{ for p in $(lines); do p=${{p%/*}}; [ -O $p ] && echo $p; done; }}
        until [ "$(seen)" ]; do sleep 0.1; done
        for p in $(seen); do (echo altered >>$p/fd/1) && echo altered $p; (ls $p/cwd/) && echo entered $p; done
        touch {shared}/over
    """
    user = packages._unprivileged_user()
    assert user is not None
    rights = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    package = tmp_path / "linux.rpm"
    package.write_bytes(cpio(kernel))
    with subprocess.Popen(
        [*rights, "/bin/sh", "-c", attack], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as attacker:
        check(package, tmp_path / "cache")
        opened, refusals = attacker.communicate(timeout=60)
    assert "Permission denied" in refusals
    assert opened == ""
    (image,) = (tmp_path / "cache").rglob("vmlinuz-*")
    assert b"altered" not in image.read_bytes()
