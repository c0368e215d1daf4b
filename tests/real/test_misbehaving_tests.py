"""Tests that disturb their own process. The stack is taken down nevertheless."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

HEAD = """
import os, signal, sys, time
from pathlib import Path
import pytest

"""

#: Less than a session needs to take anything down.
LIMITS = [("AS", 1 << 20), ("NOFILE", 3), ("FSIZE", 0), ("NPROC", 0)]


def journals_naming(project: Path) -> list[Path]:
    """List the journals that name the project. Other sessions' journals may vanish meanwhile."""
    journals = []
    for journal in Path("/run/pytest-fsstack").glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if str(project) in journal.read_text():
                journals.append(journal)
    return journals


def session(project: Path, test: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "test_it.py").write_text(HEAD + test)
    (project / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fsstack-size=300M", *arguments]
    result = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=100)
    assert not journals_naming(project)
    return result


FORKS = """
@pytest.mark.parametrize("end", ["return", "value", "exit", "skip"])
@pytest.mark.fsstack('ext4')
def test_it(fsstack, end):
    child = os.fork()
    if not child:
        if end == "value":
            raise ValueError("of the child")
        if end == "exit":
            sys.exit(3)
        if end == "skip":
            pytest.skip("no")
        return
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert os.path.ismount(fsstack.path)
    (fsstack.path / 'file').write_text('text')

@pytest.mark.fsstack('ext4')
def test_signal(fsstack):
    child = os.fork()
    if not child:
        time.sleep(60)
        os._exit(0)
    time.sleep(0.1)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert os.path.ismount(fsstack.path)

def test_later():
    with open('ran', 'a') as file:
        file.write('once ')
"""


def test_a_forked_child_takes_nothing_down_and_ends_by_a_signal_as_any_other(tmp_path: Path) -> None:
    result = session(tmp_path, FORKS)
    assert "6 passed" in result.stdout, result.stdout + result.stderr
    assert (tmp_path / "ran").read_text() == "once "


def test_a_working_directory_in_the_stack_is_left(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.mkdir()
    result = session(
        tmp_path,
        "@pytest.mark.parametrize('where', ['path', 'below', 'bottom'])\n"
        "@pytest.mark.fsstack('bind')\n"
        "def test_it(fsstack, where):\n"
        f"    assert os.getcwd() == {str(tmp_path)!r}\n"
        "    (fsstack.path / 'below').mkdir()\n"
        "    os.chdir({'path': fsstack.path, 'below': fsstack.path / 'below', 'bottom': fsstack.bottom.path}[where])\n"
        f"def test_later():\n    assert os.getcwd() == {str(tmp_path)!r}\n",
        f"--fsstack-device=dir:{device}",
    )
    assert "4 passed" in result.stdout, result.stdout


def test_a_working_directory_that_a_remount_detaches_is_left(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfsstack_strict = false\n")
    result = session(
        tmp_path,
        "@pytest.mark.fsstack('ext4', 'xfs')\n"
        "def test_it(fsstack):\n"
        "    os.chdir(fsstack.path)\n"
        "    if fsstack.stack.id == 'ext4':\n"
        "        fsstack.remount()\n"
        f"def test_later():\n    assert os.getcwd() == {str(tmp_path)!r}\n",
    )
    assert "1 failed, 2 passed" in result.stdout, result.stdout
    assert "the working directory" in result.stdout


ACTS = (
    "os.environ.clear()",
    "sys.setrecursionlimit(len(inspect.stack()) + 12)",
    *(
        f"resource.setrlimit(resource.RLIMIT_{name}, ({limit}, resource.getrlimit(resource.RLIMIT_{name})[1]))"
        for name, limit in LIMITS
    ),
    "os.seteuid(65534)",
    "ctypes.CDLL(None).mount(b'none', b'/run', b'tmpfs', 0, None)",
    "os.chroot('/tmp')",
)


def test_what_a_test_takes_from_the_process_costs_no_teardown(tmp_path: Path) -> None:
    (tmp_path / "device").mkdir()
    result = session(
        tmp_path,
        "import ctypes, inspect, resource\n"
        + "".join(
            f"@pytest.mark.fsstack('bind')\ndef test_{number}(fsstack):\n"
            f"    (fsstack.path / 'file').touch()\n    {act}\n"
            for number, act in enumerate(ACTS)
        ),
        f"--fsstack-device=dir:{tmp_path / 'device'}",
    )
    assert f"{len(ACTS)} passed" in result.stdout, result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert "left behind" not in result.stdout
    assert list((tmp_path / "device").iterdir()) == []


@pytest.mark.parametrize(
    "deed",
    [
        "os.setuid(65534)",
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))",
    ],
)
def test_what_cannot_be_given_back_ends_the_session_at_once(tmp_path: Path, deed: str) -> None:
    (tmp_path / "test_it.py").write_text(
        f"import os, pytest, resource\n@pytest.mark.fsstack('ext4')\ndef test_it(fsstack):\n    {deed}\n"
    )
    # Even root needs a capability to raise a hard limit again.
    command = ["setpriv", "--bounding-set", "-sys_resource", sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("fsstack: ")
    assert "Traceback" not in result.stdout + result.stderr
    clean_up = [*command[3:], "--fsstack-cleanup"]
    cleaned = subprocess.run(clean_up, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert cleaned.returncode == 0, cleaned.stdout
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert not journals_naming(tmp_path)
