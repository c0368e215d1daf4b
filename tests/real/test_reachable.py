"""Who else may look at a stack: other users reach what is on it, and a reader of the disk does not cost its label."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytest_fsstack.machine import directories, guard
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from tests import guarding
from tests.real.conftest import LoopDevice
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root

AS_NOBODY = """
import os, subprocess, sys
import pytest

@pytest.mark.fsstack("ext4", "ext4 | bind")
def test_others(fsstack):
    (fsstack.path / "file").write_text("for all")
    done = subprocess.run(["cat", fsstack.path / "file"], user=65534, group=65534, capture_output=True, text=True)
    assert done.stdout == "for all", done.stderr
    secret = fsstack._context.directory
    assert subprocess.run(["ls", secret], user=65534, group=65534, capture_output=True).returncode
"""


def test_another_user_reaches_what_is_on_a_stack_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(AS_NOBODY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    result = run_pytest("-p", "no:cacheprovider", "--fsstack-size=300M", cwd=tmp_path)
    assert "2 passed" in result.stdout, result.stdout


@pytest.mark.usefixtures("locks")
def test_a_reader_for_some_seconds_at_the_end_costs_no_label(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with guarding.claimed(loop.path, overwrite=True):
        file = loop.path.open("rb")
        timer = threading.Timer(4.5, file.close)
        timer.start()
    timer.join()
    assert guard.labelled(loop.path)


def test_a_directory_of_a_dead_session_is_removed_without_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from pytest_fsstack.machine import directories\nfrom pytest_fsstack.machine.journal import Journal\n"
        "from pytest_fsstack.machine.real import RealMachine\n"
        "with directories.lasting(Path(sys.argv[1]), Journal(Path(sys.argv[1], 'journals'), RealMachine())) as path:\n"
        "    (path.path / 'data').write_text('much')\n    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    for journal in (tmp_path / "journals").iterdir():
        journal.unlink()
    (dead,) = tmp_path.glob("fsstack-*")
    mine = tmp_path / "fsstack-mine"
    mine.mkdir()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(directories, "_machine_id", lambda: "another machine")
        (line,) = directories.remove_stale(tmp_path)
        assert line.startswith(f"left alone: {dead}")
        assert list(dead.rglob("data/data"))
    book = Journal(tmp_path / "living", RealMachine())
    with directories.lasting(tmp_path, book) as living:
        for asked in False, True:
            # It holds files, so only a user who asks for it loses them.
            assert dead.is_dir()
            (line,) = directories.remove_stale(tmp_path, asked=asked)
            assert str(dead) in line
            assert ("--fsstack-cleanup" in line) is not asked
        assert living.path.is_dir()
        assert sorted(tmp_path.glob("fsstack-*")) == sorted([mine, living.path.parent])
    book.close()
    assert list(tmp_path.glob("fsstack-*")) == [mine]
