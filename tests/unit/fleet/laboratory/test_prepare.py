"""Directories on hosts: a laboratory removes only what it made there, and runs no program of another user."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack import __version__
from pytest_fsstack.fleet.laboratory import expire, run
from pytest_fsstack.machine import owners

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment whose Python writes down that it ran, and passes on its words to the real one."""
    python = tmp_path / "environment/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n: >"${{0%/*}}/ran"\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return python.parents[1]


def prepare(
    top: Path, environment: Path | None, python: str = "python3", name: str = "fsstack-1"
) -> subprocess.CompletedProcess[str]:
    """Run the script on this machine, with a directory of LAB.toml."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo("files")
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(member)
    words = [f"{top}/{run.OWN}", f"{name}/node1", python, "hash", str(environment or ""), __version__]
    result = subprocess.run(
        ["sh", run.SCRIPTS / "prepare.sh", *words, run._OWNERS.read_text()],
        input=archive.getvalue(),
        capture_output=True,
        cwd="/",
    )
    return subprocess.CompletedProcess(result.args, result.returncode, result.stdout.decode(), result.stderr.decode())


def aged(path: Path, days: int) -> Path:
    os.utime(path, (time.time() - days * 86400,) * 2)
    return path


def test_nothing_of_a_user_in_the_directory_is_removed(tmp_path: Path, environment: Path) -> None:
    top = tmp_path / "data"
    for name in "runs/notes", "python-book", "current":
        (top / name).mkdir(parents=True)
        (top / name / "file").write_text("mine")
    for name in "runs/notes", "python-book":
        aged(top / name, 400)
    before = sorted(path for path in top.rglob("*"))
    result = prepare(top, environment)
    assert result.returncode == 0, result.stderr
    own = top / run.OWN
    assert [path for path in before if not path.exists()] == []
    assert [path for path in sorted(top.rglob("*")) if own not in (path, *path.parents)] == before
    assert (own / "runs/fsstack-1/node1/files").is_dir()
    assert (own / "current").resolve() == environment


def test_only_old_runs_that_carry_their_marker_are_removed(tmp_path: Path, environment: Path) -> None:
    for number in range(1, 6):
        assert prepare(tmp_path / "lab", environment, name=f"fsstack-{number}").returncode == 0
    runs = tmp_path / "lab" / run.OWN / "runs"
    # Renamed, copied, restored from a copy, a user's own directory, and one of a user with a copy of a marker.
    (runs / "fsstack-1").rename(runs / "fsstack-kept")
    shutil.copytree(runs / "fsstack-2", runs / "fsstack-copy")
    shutil.copytree(runs / "fsstack-3", tmp_path / "backup")
    shutil.rmtree(runs / "fsstack-3")
    shutil.copytree(tmp_path / "backup", runs / "fsstack-3")
    (runs / "fsstack-notes").mkdir()
    (runs / "fsstack-mine").mkdir()
    (runs / "fsstack-link").symlink_to(tmp_path)
    shutil.copy(runs / "fsstack-2" / owners.MARKER, runs / "fsstack-mine")
    for path in runs.iterdir():
        if path.name != "fsstack-5" and path.is_dir() and not path.is_symlink():
            aged(path, 31)
    lines = expire.expire(runs.parent)
    kept = {"fsstack-kept", "fsstack-copy", "fsstack-3", "fsstack-notes", "fsstack-mine"}
    assert {path.name for path in runs.glob("fsstack-*")} == {*kept, "fsstack-5", "fsstack-link"}
    assert {re.findall(r"[\w-]+(?=: it)", line)[0] for line in lines if ": it" in line} == kept


@pytest.mark.parametrize("kind", ["directory", "copy", "link", "renamed"])
def test_a_directory_of_that_name_without_its_marker_is_refused(tmp_path: Path, environment: Path, kind: str) -> None:
    lab, other = tmp_path / "lab", tmp_path / "other"
    lab.mkdir()
    assert prepare(other, environment).returncode == 0
    if kind == "directory":
        (lab / run.OWN).mkdir()
    elif kind == "copy":
        shutil.copytree(other / run.OWN, lab / run.OWN, symlinks=True)
    elif kind == "renamed":
        (other / run.OWN).rename(other / "away")
        (other / "away").rename(lab / "moved")
        (lab / run.OWN).symlink_to("moved")
    else:
        (lab / run.OWN).symlink_to(other / run.OWN)
    before = sorted(lab.rglob("*"))
    result = prepare(lab, environment)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert str(lab) in result.stderr
    assert sorted(lab.rglob("*")) == before


@needs_root
@pytest.mark.parametrize("whose", ["directory", "above", "writable", "link", "environment", "python", "executable"])
def test_root_runs_no_python_that_another_user_may_change(
    tmp_path: Path, environment: Path, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, python = tmp_path / "above/lab", "python3"
    top.mkdir(parents=True)
    if whose == "link":
        (tmp_path / "link").symlink_to(top)
        os.chown(tmp_path / "link", NOBODY, NOBODY, follow_symlinks=False)
        top = tmp_path / "link"
    elif whose == "writable":
        top.chmod(0o777)
    elif whose == "executable":
        python = str(environment / "bin/python")
    owned: dict[str, Path] = {
        "directory": top,
        "above": top.parent,
        "environment": environment,
        "python": environment / "bin/python",
        "executable": environment / "bin/python",
    }
    if whose in owned:
        os.chown(owned[whose], NOBODY, NOBODY)
    result = prepare(top, None if whose == "executable" else environment, python)
    assert result.returncode == 1
    assert re.search(rf"\buser {NOBODY}\b|every user", result.stderr), result.stderr
    assert "Traceback" not in result.stderr
    assert not (environment / "bin/ran").exists()


def test_two_hosts_with_one_directory_begin_at_the_same_time(tmp_path: Path) -> None:
    words = [sys.executable, "-I", "-c", run._OWNERS.read_text(), str(tmp_path / "lab"), "own/runs/fsstack-1"]
    processes = [subprocess.Popen([*words[:-1], f"{words[-1]}/node{number}", "/bin/sh"]) for number in range(8)]
    assert [process.wait() for process in processes] == [0] * 8
    assert len(list((tmp_path / "lab/own/runs/fsstack-1").glob("node*"))) == 8
    assert not list((tmp_path / "lab").rglob(".fsstack-*"))


def test_a_marker_without_a_device_of_this_boot_is_still_one(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prepare(tmp_path, environment).returncode == 0
    marker = tmp_path / run.OWN / owners.MARKER
    text = marker.read_text()
    marker.write_text(re.sub(r'("boot": ")[^"]*', r"\1another", re.sub(r'("device": )\d+', r"\g<1>1", text)))
    assert prepare(tmp_path, environment).returncode == 0
    # In the same boot, another device is another directory.
    marker.write_text(re.sub(r'("device": )\d+', r"\g<1>1", text))
    assert prepare(tmp_path, environment).returncode == 1


def test_the_scripts_of_a_laboratory_remove_no_trees() -> None:
    scripts: list[Path] = list(run.SCRIPTS.glob("*.sh"))
    assert {path.name for path in scripts} >= {"prepare.sh", "session.sh"}
    removing: Callable[[str], list[str]] = re.compile(r"\brm\s+-\w*r|-delete\b|-exec\s+rm|\brmdir\b").findall
    assert {path.name: removing(path.read_text()) for path in scripts if removing(path.read_text())} == {}
    assert removing("find . -exec rm -rf {} +")
