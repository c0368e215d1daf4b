"""mountinfo is read as the bytes that it is, whatever anybody has mounted."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.port import Mount, Word
from pytest_fsstack.preflight.recording import RecordingMachine

#: What a file's name can be made of, and what a mount's source can: all bytes but NUL.
NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name)
WORDS = st.sampled_from([b"rw", b"rw,noatime", b"ext4", b"fuse.sshfs"])
OPTIONAL = st.lists(st.sampled_from([b"shared:1", b"master:2", b"propagate_from:3", b"unbindable"]), max_size=3)


def escaped(name: bytes) -> bytes:
    """As the kernel's `mangle` does it (fs/seq_file.c)."""
    return b"".join(b"\\%03o" % byte if byte in b" \t\n\\#" else bytes([byte]) for byte in name)


def line(*fields: bytes, optional: list[bytes] | None = None) -> bytes:
    device, root, target, options, kind, source, super_options = fields
    left = [b"36", b"35", device, root, target, options, *(optional or [])]
    return b" ".join([*left, b"-", kind, source, super_options]) + b"\n"


@given(st.lists(st.tuples(NAMES, NAMES, WORDS, WORDS, NAMES | st.just(b""), NAMES, OPTIONAL), max_size=5))
def test_whatever_bytes_names_hold_they_are_read_back(
    fields_of_mounts: list[tuple[bytes, bytes, bytes, bytes, bytes, bytes, list[bytes]]],
) -> None:
    table = b"".join(
        line(b"8:1", escaped(root), escaped(target), options, kind, escaped(source), escaped(last), optional=optional)
        for root, target, options, kind, source, last, optional in fields_of_mounts
    )
    assert mounts.parse(table) == [
        Mount("8:1", *map(os.fsdecode, (root, target, options, kind, source, last)))
        for root, target, options, kind, source, last, _ in fields_of_mounts
    ]


@pytest.mark.parametrize(
    "name",
    [b"/mnt/gr\xc3\xb6\xc3\x9fe", b"/\xff\xfe", b"/a\x0bb\x0cc\x1cd", "/a\u2028b\u0085c\xa0d".encode(), b"/a\rb"],
)
def test_no_name_breaks_the_table_or_is_garbled(name: bytes) -> None:
    (mount,) = mounts.parse(line(b"0:50", b"/", name, b"rw", b"fuse", b"x", b"rw"))
    assert os.fsencode(mount.target) == name


@pytest.mark.parametrize("text", [b"36 35\n", b"36 35 8:1 / / rw ext4 x rw\n", b"36 35 8:1 / / rw - ext4 x\n"])
def test_what_is_no_mountinfo_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match="mountinfo"):
        mounts.parse(text)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mounts, "PROC", tmp_path)
    (tmp_path / "self").mkdir()
    return tmp_path / "self/mountinfo"


def test_mounts_below_a_directory_are_found_by_whole_names(table: Path) -> None:
    targets = b"/a/b", b"/a/b/c\\040d", b"/a/bc", b"/a"
    table.write_bytes(b"".join(line(b"8:1", b"/", target, b"rw", b"ext4", b"x", b"rw") for target in targets))
    assert mounts.below("/a/b") == ["/a/b", "/a/b/c d"]


def test_of_two_mounts_at_a_place_the_later_counts(table: Path) -> None:
    table.write_bytes(
        line(b"8:1", b"/", b"/", b"rw", b"ext4", b"x", b"rw")
        + line(b"0:5", b"/", b"/a", b"rw,noatime", b"tmpfs", b"one", b"rw,size=1k")
        + line(b"0:6", b"/", b"/a", b"rw", b"xfs", b"two", b"rw")
    )
    assert str(mounts.at("/a")) == "xfs two rw"
    assert mounts.at("/a/b") is None
    assert [str(mounts.holding(Path(path))) for path in ("/a/b/c", "/ab")] == ["xfs two rw", "ext4 x rw"]


@pytest.mark.parametrize(
    ("kind", "user", "tool"),
    [
        ("fuse.gocryptfs", 1000, "fusermount3 -u"),
        ("fuse.gocryptfs", 0, "umount"),
        ("ext4", 1000, "umount"),
    ],
)
def test_what_a_killed_session_left_mounted_is_unmounted_by_who_may(
    kind: str, user: int, tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mounted(RecordingMachine):
        """Twice at the same place, as two killed sessions leave it."""

        times = 2

        def mount_at(self, path: Path) -> Mount | None:
            return Mount("0:1", "/", str(path), "rw", kind, "none", "rw") if self.times else None

        def run(self, *argv: Word, **keywords: Any) -> str:
            self.times -= 1
            return super().run(*argv, **keywords)

    machine = Mounted(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: user)
    facts = {"target": str(tmp_path)}
    assert mounts.MOUNT.present(machine, facts)
    assert str(tmp_path) in mounts.MOUNT.undo(machine, facts)
    assert machine.commands == [f"{tool} {tmp_path}"] * 2
    assert not mounts.MOUNT.present(machine, facts)


def mount_of(device: str, kind: str) -> Mount:
    return Mount(device, "/", "/place", "rw", kind, "server", "rw")


@pytest.mark.parametrize("number", [0, errno.EIO, errno.ENOTCONN, errno.ECONNABORTED])
@pytest.mark.parametrize("kind", ["fuse.sshfs", "ext4"])
def test_only_a_fuse_mount_without_a_server_is_disconnected(
    kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def statvfs(path: Path) -> None:
        if number:
            raise OSError(number, "")

    monkeypatch.setattr(os, "statvfs", statvfs)
    machine = RecordingMachine(tmp_path)
    machine.mount = mount_of("0:57", kind)
    answer = mounts.FuseWatch(machine, Path("/place")).answer()
    assert answer == (number if kind == "fuse.sshfs" else 0)
    assert (answer in mounts.DISCONNECTED) == (kind == "fuse.sshfs" and number in (errno.ENOTCONN, errno.ECONNABORTED))


def test_a_server_without_an_answer_in_time_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = threading.Event()
    monkeypatch.setattr(os, "statvfs", lambda path: answering.wait(60.0))
    machine = RecordingMachine(tmp_path)
    machine.mount = mount_of("0:57", "fuse.sshfs")
    assert mounts.FuseWatch(machine, Path("/place")).answer(0.01) is None
    answering.set()


@pytest.mark.parametrize(
    ("device", "kind", "number"), [("0:57", "fuse.gocryptfs", 57), ("7:3", "fuseblk", 7 << 20 | 3), ("0:57", "ext4", 0)]
)
def test_the_connection_of_a_fuse_mount_is_aborted_and_no_other(
    device: str, kind: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in 57, 7 << 20 | 3, 3:
        (tmp_path / str(name)).mkdir()
        (tmp_path / str(name) / "abort").touch()
    monkeypatch.setattr(mounts, "FUSE_CONNECTIONS", tmp_path)
    machine = RecordingMachine(tmp_path)
    machine.mount = mount_of(device, kind)
    assert mounts.abort_fuse(machine, Path("/place")) == bool(number)
    assert [int(abort.parent.name) for abort in tmp_path.glob("*/abort") if abort.read_text()] == [number][
        : bool(number)
    ]


@pytest.mark.root
def test_a_pause_ends_with_the_next_change() -> None:
    # In a process of its own, which gets a mount namespace.
    code = """
import subprocess
from pytest_fsstack.machine import mounts

assert mounts.private_namespace()
with mounts.changes() as pause:
    quiet = pause(0)
    for command in ["mount", "-t", "tmpfs", "tmpfs", "/mnt"], ["umount", "/mnt"]:
        subprocess.run(command, check=True)
        print(bool(quiet), bool(pause(600)))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False True\n" * 2
