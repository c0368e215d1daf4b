"""Files of reports: refused before anything is measured, and never half written."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pytest_fsstack.report import ReportError
from pytest_fsstack.session.files import ReportFile, check_all


def left(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_check_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    check_all([ReportFile("json", tmp_path / "old.json"), ReportFile("csv", tmp_path / "new.csv")])
    assert left(tmp_path) == {"old.json"}
    assert (tmp_path / "old.json").read_text() == "old"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".", "directory$"),
        ("missing/out.json", "No such file or directory"),
        ("x" * 300, "File name too long"),
        ("out\0.json", "null"),
    ],
)
def test_what_cannot_be_written_is_said_at_once(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(ReportError, match=f"^json=.*{reason}") as caught:
        check_all([ReportFile("json", tmp_path / path)])
    assert "\n" not in str(caught.value)
    assert not left(tmp_path)


def test_permission_is_asked_for_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old.json").write_text("old")
    # Root may write everywhere, so the kernel is not asked.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ReportError, match=r"^json=.*old\.json: .*permission"):
        check_all([ReportFile("json", tmp_path / "old.json")])


def test_two_reports_in_one_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("out")
    with pytest.raises(ReportError, match=r"^csv=.*link: .*\bjson\b"):
        check_all([ReportFile("json", tmp_path / "out"), ReportFile("csv", tmp_path / "link")])


def test_a_block_device_is_not_a_file_for_reports(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "disk", 0o600 | 0o060000, os.makedev(259, 1048575))
    except PermissionError:
        pytest.skip("needs root to make a device node")
    with pytest.raises(ReportError, match=r"^json=.*disk: .*\bblock\b"):
        ReportFile("json", tmp_path / "disk").check()


def test_a_report_replaces_the_older_one_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    path.chmod(0o640)
    ReportFile("json", path).write("new\n")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new\n", 0o640)
    assert left(tmp_path) == {"out.json"}


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs /dev/shm")
def test_a_report_in_memory_is_replaced_too() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        path = Path(directory, "out.json")
        for text in "old\n", "new\n":
            ReportFile("json", path).write(text)
        assert path.read_text() == "new\n"


def test_a_new_report_has_the_mode_of_any_new_file(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        ReportFile("json", tmp_path / "out.json").write("new")
    finally:
        os.umask(mask)
    assert (tmp_path / "out.json").stat().st_mode & 0o777 == 0o640


def test_what_a_link_leads_to_is_replaced_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/out")
    ReportFile("json", tmp_path / "link").write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "out").read_text() == "new"


def test_a_write_that_fails_keeps_the_older_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out.json").write_text("old")

    def full(descriptor: int, content: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(ReportError, match=r"^json=.*out\.json: .*No space left on device$"):
        ReportFile("json", tmp_path / "out.json").write("new")
    monkeypatch.undo()
    assert (tmp_path / "out.json").read_text() == "old"
    assert left(tmp_path) == {"out.json"}


def test_a_name_that_is_no_utf_8_is_written_and_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.json")
    file = ReportFile("json", path)
    file.check()
    file.write("new")
    assert path.read_text() == "new"
    assert file.shown.endswith(r"\xff.json")
    file.shown.encode("utf-8")


def test_text_that_is_no_utf_8_is_escaped(tmp_path: Path) -> None:
    ReportFile("json", tmp_path / "out").write('["\udcff"]')
    assert (tmp_path / "out").read_bytes() == rb'["\udcff"]'


def test_what_follows_a_report_in_the_standard_output_does_not_overwrite_it(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from pytest_fsstack.session.files import ReportFile; "
        "ReportFile('ktap', Path('/dev/stdout')).write('report\\n'); print('more')"
    )
    with (tmp_path / "out").open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "out").read_text() == "report\nmore\n"


def test_a_stream_is_written_to_and_stays(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    try:
        file = ReportFile("json", Path(f"/proc/self/fd/{writing}"))
        check_all([file, ReportFile("csv", file.path)])
        file.write("new")
        assert os.read(reading, 100) == b"new"
    finally:
        os.close(reading)
        os.close(writing)
