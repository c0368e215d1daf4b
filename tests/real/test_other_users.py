"""Another user owns the directory that a session of root uses, and exchanges what is in it while the session runs."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import directories, mounts, owners
from pytest_fsstack.plugin import ci
from pytest_fsstack.report import ReportError
from pytest_fsstack.session.files import ReportFile

pytestmark = pytest.mark.root

NOBODY = 65534
SESSION = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fsstack-size=300M", "--fsstack-seed=1"]

#: Renames each directory of a session as soon as it sees it, and puts a link or a directory of its own in its place.
ATTACKER = """
import itertools, os, sys, time
os.setgroups([]), os.setgid(65534), os.setuid(65534)
place, victim, how = sys.argv[1:]
numbers = itertools.count()
print("ready", flush=True)
while True:
    time.sleep(0.0002)
    for name in os.listdir(place):
        try:
            if not name.startswith("fsstack-") or os.lstat(f"{place}/{name}").st_uid != 0:
                continue
            os.rename(f"{place}/{name}", f"{place}/moved-{next(numbers)}")
            if how == "link":
                os.symlink(victim, f"{place}/{name}")
            elif how == "directory":
                os.mkdir(f"{place}/{name}", 0o777)
        except OSError:
            pass
"""

EXCHANGING = """
import os
from pathlib import Path
import pytest

PLACE, VICTIM = Path({place!r}), {victim!r}

@pytest.mark.fsstack({stack!r})
def test_it(fsstack):
    (made,) = PLACE.glob("fsstack-*")
    os.rename(made, PLACE / "moved")
    os.symlink(VICTIM, made)
    (fsstack.path / "file").write_text("of the test")
    assert (fsstack.path / "file").read_text() == "of the test"
"""


TEST = "import pytest\n@pytest.mark.fsstack('directory')\ndef test_it(fsstack): ...\n"


@pytest.fixture
def foreign() -> Iterator[Path]:
    """A directory of another user that everybody reaches."""
    with directories.scratch(Path("/tmp"), "foreign-") as base:
        base.chmod(0o755)
        place = base / "place"
        place.mkdir()
        os.chown(place, NOBODY, NOBODY)
        yield place


@pytest.fixture
def victim(foreign: Path) -> Iterator[Path]:
    """A directory of root, of which nothing may change."""
    victim = foreign.parent / "victim"
    (victim / "data").mkdir(parents=True)
    (victim / "file").write_text("precious")
    (victim / "data/file").write_text("precious")
    victim.chmod(0o750)
    before = contents(victim)
    yield victim
    assert contents(victim) == before


def contents(top: Path) -> list[tuple[Path, int, int, str]]:
    """Return mode, owner and text of all that is there."""
    paths = [top, *sorted(top.rglob("*"))]
    states = [(path, path.lstat()) for path in paths]
    return [(path, state.st_mode, state.st_uid, path.read_text() if path.is_file() else "") for path, state in states]


def session(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (project / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run([*SESSION, *arguments], cwd=project, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("stack", "option"),
    [
        ("ext4", "--fsstack-dir={}"),
        ("recorded | ext4", "--fsstack-dir={}"),
        ("bind", "--fsstack-device=dir:{}"),
    ],
)
def test_what_was_put_in_place_of_a_directory_is_left_alone(
    foreign: Path, victim: Path, tmp_path: Path, stack: str, option: str
) -> None:
    (tmp_path / "test_it.py").write_text(EXCHANGING.format(place=str(foreign), victim=str(victim), stack=stack))
    result = session(tmp_path, option.format(foreign))
    assert "1 passed, 1 error" in result.stdout, result.stdout
    # The session says where its own directory is now.
    assert str(foreign / "moved") in result.stdout
    assert (foreign / "moved").is_dir()
    assert not list((foreign / "moved").iterdir())
    assert mounts.below(foreign) == []


@pytest.mark.parametrize(
    ("stack", "option", "how"),
    [
        ("ext4", "--fsstack-dir={}", "link"),
        ("bind", "--fsstack-device=dir:{}", "link"),
        ("ext4", "--fsstack-dir={}", "directory"),
        ("bind", "--fsstack-device=dir:{}", "nothing"),
    ],
)
def test_a_user_who_renames_all_the_time_gets_nothing(
    foreign: Path, victim: Path, tmp_path: Path, stack: str, option: str, how: str
) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(3))\n"
        f"@pytest.mark.fsstack({stack!r})\n"
        "def test_it(fsstack, number):\n"
        "    (fsstack.path / 'file').write_text('of the test')\n"
    )
    words = [sys.executable, "-c", ATTACKER, str(foreign), str(victim), how]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as attacker:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == b"ready\n"
        result = session(tmp_path, option.format(foreign))
        attacker.kill()
    assert "Traceback" not in result.stdout + result.stderr, result.stdout
    assert list(foreign.glob("moved-*")), "the attacker never came between"
    assert not [path for path in foreign.rglob("*") if path.is_file() and path.read_text() == "of the test"]
    assert mounts.below(foreign) == []


def test_another_user_cannot_run_what_a_test_unpacks(foreign: Path, tmp_path: Path) -> None:
    foreign.chmod(0o755)
    (tmp_path / "test_it.py").write_text(
        "import os, shutil, subprocess\nfrom pathlib import Path\nimport pytest\n"
        "@pytest.mark.fsstack('directory')\n"
        "def test_it(fsstack):\n"
        "    shutil.copy('/usr/bin/id', fsstack.path / 'id')\n"
        "    os.chmod(fsstack.path / 'id', 0o4755)\n"
        f"    (made,) = Path({str(foreign)!r}).glob('fsstack-*')\n"
        "    outside = made / 'data' / fsstack.path.name / 'id'\n"
        "    assert outside.exists()\n"
        "    with pytest.raises(PermissionError):\n"
        "        subprocess.run([outside], user=65534, group=65534)\n"
        "    # A test that acts as another user reaches its files all the same.\n"
        "    subprocess.run([fsstack.path / 'id'], user=65534, group=65534, check=True)\n"
    )
    result = session(tmp_path, f"--fsstack-device=dir:{foreign}")
    assert "1 passed" in result.stdout, result.stdout


def test_a_session_without_mounts_of_its_own_refuses_a_directory_of_another_user(foreign: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.fsstack('directory')\ndef test_it(fsstack): ...\n"
    )
    foreign.chmod(0o777)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]
    result = subprocess.run(
        [*drop, *SESSION, f"--fsstack-device=dir:{foreign}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert re.search(rf"\b{NOBODY}\b.*{foreign}\b", result.stdout), result.stdout
    assert result.returncode == 1
    assert not list(foreign.iterdir())


def test_the_temporary_directory_of_everybody_is_safe() -> None:
    assert owners.untrusted(Path(tempfile.gettempdir())) == ""


@pytest.mark.parametrize("path", ["link", "directory/file", "directory/new"])
def test_no_report_is_written_through_a_link_of_another_user(foreign: Path, victim: Path, path: str) -> None:
    put_link(foreign / "link", victim / "file")
    put_link(foreign / "directory", victim)
    report = ReportFile("json", foreign / path)
    for act in report.check, lambda: report.write("of the session"):
        with pytest.raises(ReportError, match=rf": {Path(path).parts[0]} .*\b{NOBODY}\b"):
            act()
    # The fixture looks at the victim.
    (foreign / "mine").symlink_to(foreign / "out")
    ReportFile("json", foreign / "mine").write("of the session")
    assert (foreign / "out").read_text() == "of the session"


def test_what_ci_is_given_is_not_written_through_a_link_of_another_user(
    foreign: Path, victim: Path, tmp_path: Path
) -> None:
    put_link(foreign / "summary", victim / "file")
    for name in ci.GITLAB_CODE_QUALITY, ci.GITLAB_METRICS:
        put_link(foreign / name, victim / "file")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.fsstack('ext4')\ndef test_it(fsstack, timed):\n    with timed():\n        pass\n"
    )
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(foreign / "summary")}
    gitlab = {"GITLAB_CI": "true", "CI_PROJECT_DIR": str(foreign)}
    for words, count in (github, 1), (gitlab, 2):
        (tmp_path / "pytest.ini").write_text("[pytest]\n")
        command = [*SESSION, "--fsstack-rounds=1", "--fsstack-device=loop"]
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI"))}
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=plain | words)
        pattern = rf"^fsstack: (?:GITHUB_STEP_SUMMARY: .*{os.strerror(errno.ELOOP)}|gitlab=.*\b{NOBODY}\b)"
        assert len(re.findall(pattern, result.stdout, re.MULTILINE)) == count, result.stdout


def put_link(link: Path, target: Path) -> None:
    link.symlink_to(target)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
