"""A disk that is full by the time the reports are written, or a stack is made on a file there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.report import ReportError
from pytest_fsstack.session.files import ReportFile
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import built

pytestmark = pytest.mark.root


def test_a_full_disk_costs_the_new_report_and_not_the_older_one(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    commands.run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small)
    try:
        older = small / "out.json"
        older.write_text("older")
        file = ReportFile("json", older)
        file.check()
        with pytest.raises(ReportError, match=r"out\.json: .*No space left on device$"):
            file.write("x" * 2**20)
        assert older.read_text() == "older"
        assert [path.name for path in small.iterdir()] == ["out.json"]
        file.write("newer")
        assert older.read_text() == "newer"
    finally:
        commands.run("umount", small)


def test_a_full_disk_below_the_file_of_a_stack_is_named(context: BuildContext) -> None:
    with mounts.mounted(context.machine, "tmpfs", context.directory, "tmpfs", "size=1M"):
        # mkfs only reports "Input/output error".
        with pytest.raises(BuildError, match=rf"no space .*{context.directory.parent}.*--fsstack-dir"):
            with built("ext4", LoopDevice(64 << 20), context):
                pytest.fail("it was built")
