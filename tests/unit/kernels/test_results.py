"""Results of a guest are copied as data, and a hostile archive changes nothing else."""

from __future__ import annotations

import io
import stat
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.kernels import results
from pytest_fsstack.kernels.packages import PackageError
from pytest_fsstack.machine.blockdev import RESULTS_DISK
from tests.unit.kernels.test_packages import DEVICE, DIRECTORY, FIFO, FILE, HARD_LINK, LINK, Entry, tar


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[bytes], list[tuple[str, int, int]]]:
    """Copy results from a disk with these first bytes, and return names, modes and sizes of all files."""

    def copy(content: bytes) -> list[tuple[str, int, int]]:
        with results.disk() as image:
            image.seek(0)
            image.write(content)
            image.flush()
            results.copy(image, tmp_path / "new")
        top = tmp_path / "new"
        return [
            (str(path.relative_to(top)), path.stat().st_mode, path.stat().st_size)
            for path in sorted(top.rglob("*"))
            if not path.is_dir()
        ]

    return copy


def test_files_keep_names_and_contents_only(copied: Callable[[bytes], list[tuple[str, int, int]]]) -> None:
    entries: list[Entry] = [
        ("./", DIRECTORY, 0o777, b""),
        ("./a/", DIRECTORY, 0o7777, b""),
        ("./a/b", FILE, 0o777, b"text"),
        ("./c", FILE, 0o000, b""),
    ]
    assert copied(tar(entries)) == [("a/b", stat.S_IFREG | 0o644, 4), ("c", stat.S_IFREG | 0o644, 0)]


def test_the_directory_is_private(tmp_path: Path, copied: Callable[[bytes], object]) -> None:
    copied(tar([("a", FILE, 0o644, b"x")]))
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1755, 0o6777])
def test_no_special_mode_is_copied(mode: int, copied: Callable[[bytes], list[tuple[str, int, int]]]) -> None:
    assert copied(tar([("program", FILE, mode, b"x")])) == [("program", stat.S_IFREG | 0o644, 1)]


@pytest.mark.parametrize(
    "entry",
    [
        ("link", LINK, 0o777, b"/etc/passwd"),
        ("link", LINK, 0o777, b"first"),
        ("link", HARD_LINK, 0o644, b"first"),
        ("pipe", FIFO, 0o644, b""),
        ("device", DEVICE, 0o666, b""),
        ("../out", FILE, 0o644, b"x"),
        ("/tmp/out", FILE, 0o644, b"x"),
        ("a/../../out", FILE, 0o644, b"x"),
        ("two\nlines", FILE, 0o644, b"x"),
        ("first", FILE, 0o644, b"again"),
        ("first/in a file", FILE, 0o644, b"x"),
    ],
)
def test_other_members_are_refused(tmp_path: Path, entry: Entry, copied: Callable[[bytes], object]) -> None:
    with pytest.raises(PackageError):
        copied(tar([("first", FILE, 0o644, b"kept"), entry]))
    assert [path.name for path in (tmp_path / "new").rglob("*")] == ["first"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert (tmp_path / "new/first").read_bytes() == b"kept"


@pytest.mark.parametrize("size", [0, 2, 1 << 40])
def test_a_damaged_archive_is_refused(size: int, copied: Callable[[bytes], object]) -> None:
    member = tarfile.TarInfo("file")
    member.size = size
    head = member.tobuf(tarfile.GNU_FORMAT) if size else b"x" * 512
    with pytest.raises(PackageError):
        copied(head + b"\1" * 4096)


def test_too_many_files_are_refused(monkeypatch: pytest.MonkeyPatch, copied: Callable[[bytes], object]) -> None:
    monkeypatch.setattr(results, "MAX_MEMBERS", 10)
    with pytest.raises(PackageError, match="more than 10 files"):
        copied(tar([(str(number), FILE, 0o644, b"") for number in range(11)]))


def test_a_directory_that_exists_is_not_written_to(tmp_path: Path, copied: Callable[[bytes], object]) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(FileExistsError):
        copied(tar([("a", FILE, 0o644, b"x")]))
    assert list((tmp_path / "new").iterdir()) == []


def test_without_results_nothing_is_made(tmp_path: Path) -> None:
    with results.disk() as image:
        assert results.copy(image, tmp_path / "new") == 0
    assert list(tmp_path.iterdir()) == []


def test_the_commands_of_the_guest_write_to_the_disk_that_the_host_reads(tmp_path: Path) -> None:
    """Run them with a file in place of the disk."""
    source = tmp_path / "source"
    source.mkdir()
    other = tmp_path / "vda"
    other.write_bytes(bytes(4096))
    for name, serial in ("vda", ""), ("vdb", RESULTS_DISK):
        (tmp_path / "block" / name).mkdir(parents=True)
        (tmp_path / "block" / name / "serial").write_text(serial)
    with results.disk() as image:
        (tmp_path / "vdb").symlink_to(f"/proc/self/fd/{image.fileno()}")
        script = "\n".join(results.hand_over(source)).replace("busybox ", "")
        script = script.replace("/sys/block", f"{tmp_path}/block").replace("/dev/", f"{tmp_path}/")
        for files in 0, 1:
            subprocess.run(["sh", "-euc", script], pass_fds=[image.fileno()], check=True)
            assert results.copy(image, tmp_path / "new") == files
            (source / "file").write_text("text")
    assert (tmp_path / "new/file").read_text() == "text"
    assert other.read_bytes() == bytes(4096)


def test_an_empty_archive_has_no_files(tmp_path: Path, copied: Callable[[bytes], list[tuple[str, int, int]]]) -> None:
    out = io.BytesIO()
    tarfile.open(fileobj=out, mode="w").close()
    assert copied(out.getvalue()) == []
