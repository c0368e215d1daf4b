"""Archives and states that hosts of a laboratory return."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path
from typing import IO

import pytest

from pytest_fsstack.laboratory import run, slurm
from pytest_fsstack.laboratory.run import Host, Run, RunError, State, Task, unpack
from pytest_fsstack.laboratory.settings import Common, Python, Settings


def archive_of(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """Return a tar of members: name, type, and contents or link target."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
            else:
                member.linkname = content
            tar.addfile(member, io.BytesIO(content.encode()))
    buffer.seek(0)
    return buffer


def test_files_of_a_host_are_unpacked(tmp_path: Path) -> None:
    unpack(archive_of((".", tarfile.DIRTYPE, ""), ("./0/exit", tarfile.REGTYPE, "0\n")), tmp_path)
    assert (tmp_path / "0" / "exit").read_text() == "0\n"


@pytest.mark.parametrize("name", ["../outside", "0/../../outside", "/outside", "0/link/outside"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_nothing_of_a_host_leads_out(tmp_path: Path, name: str, kind: bytes) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    unpack(archive_of(("0/link", kind, "../.."), (name, tarfile.REGTYPE, "text")), inside)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    assert all(path.is_dir() or path.is_file() for path in inside.rglob("*"))
    assert not any(path.is_symlink() for path in inside.rglob("*"))


@pytest.fixture
def no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Slurm, which would know the hosts of a run."""
    monkeypatch.setattr(run, "_planned_hosts", lambda settings: [])


@pytest.mark.usefixtures("no_hosts")
def test_the_files_of_a_run_may_be_everything_beside_its_laboratory(tmp_path: Path) -> None:
    (tmp_path / "tests/inner").mkdir(parents=True)
    (tmp_path / "tests/inner/test_it.py").touch()
    # A lock of Emacs.
    (tmp_path / "tests/.#test_it.py").symlink_to("user@host.1234")
    for name, files in ("first", ["."]), ("second", [".", "tests/inner", "tests"]):
        settings = Settings([], laboratory=Common(files=files), python=Python(environment="/opt/fsstack"))
        Run.begin(tmp_path / name, settings, tmp_path, [])
        copies = tmp_path / name / "files"
        assert sorted(str(path.relative_to(copies)) for path in copies.rglob("*")) == [
            "tests",
            "tests/inner",
            "tests/inner/test_it.py",
        ]


@pytest.mark.usefixtures("no_hosts")
@pytest.mark.parametrize("python", [Python(["./no-such-package"]), Python(["./slow"]), Python(wheels="empty")])
def test_a_run_that_cannot_begin_leaves_no_directory(
    python: Python, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    directory = tmp_path / "night/first"
    if "./slow" in python.requirements:
        monkeypatch.setattr(run, "_WHEELS_TIMEOUT", 0.01)
    with pytest.raises(RunError, match=r"no wheels .*(no-such-package|slow.*0\.01 s|empty)"):
        Run.begin(directory, Settings([], python=python), tmp_path, [])
    assert not directory.exists()
    Run.begin(directory, Settings([], python=Python(environment="/opt/fsstack")), tmp_path, [])
    with pytest.raises(RunError, match="exists"):
        Run.begin(directory, Settings([]), tmp_path, [])


def test_a_job_that_is_submitted_while_slurm_answers_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("node1", "loop", "/", {}, [Task()])
    begun = Run(tmp_path, State("run", Settings([]), [], [host]))

    def submitted_meanwhile(name: str) -> dict[tuple[str, int], tuple[str, str]]:
        host.job = "7"
        return {}

    monkeypatch.setattr(slurm, "jobs", submitted_meanwhile)
    assert begun.update_states() == []
    assert not host.ended()
    # The next answer would have it.
    assert begun.update_states() == ["node1: forgotten"]
    assert host.ended()


def test_only_the_main_thread_writes_the_state_of_hosts_that_are_fetched_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = [Host(f"node{number}", "loop", "/", {}, [Task()], job=str(number)) for number in range(4)]
    states = {(host.job, 0): ("COMPLETED", host.name) for host in hosts}
    together = threading.Barrier(len(hosts), timeout=60)

    def send(*words: object, stdout: IO[bytes], **options: object) -> bytes:
        together.wait()
        stdout.write(archive_of(("./0/exit", tarfile.REGTYPE, "0\n")).read())
        return b""

    monkeypatch.setattr(slurm, "jobs", lambda name: states)
    monkeypatch.setattr(slurm, "unavailable", lambda names: {})
    monkeypatch.setattr(slurm, "on_host", send)
    monkeypatch.setattr(run, "_POLL", (0.01, 0.01))
    writers: list[tuple[threading.Thread, str]] = []
    begun = Run(
        tmp_path,
        State("run", Settings([]), [], hosts),
        lambda line: writers.append((threading.current_thread(), line)),
    )
    begun.finish()
    assert {thread for thread, _ in writers} == {threading.main_thread()}
    assert sum("exit code 0" in line for _, line in writers) == 4
    assert all(host.fetched for host in Run.open(tmp_path).state.hosts)


def test_check_asks_the_doctor_on_all_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def answer(host: str, script: Path, words: list[str], **options: object) -> bytes:
        given.append(words)
        return b"all is there\n0\n"

    monkeypatch.setattr(slurm, "unavailable", lambda names: {})
    monkeypatch.setattr(slurm, "on_host", answer)
    host = Host("node1", "ram", "/lab", {}, [Task("host"), Task("linux image.deb")])
    asked = Run(tmp_path, State("run", Settings([]), ["test_it.py"], [host]))
    assert asked.doctor(host) == (0, "all is there")
    assert given[-1][2:] == [
        "test_it.py",
        "--fsstack-device=ram",
        "--fsstack-kernel=host",
        "--fsstack-kernel=linux image.deb",
    ]


def test_steps_are_done_again_if_the_controller_of_slurm_was_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host("node1", "loop", "/", {}, [Task()])
    begun = Run(tmp_path, State("run", Settings([], python=Python(environment="/opt")), [], [host]), lambda line: None)
    silences, submitted = {"jobs": [True, False, True], "on_host": [True, False, True]}, list[str]()

    def answer(command: str) -> None:
        if silences[command] and silences[command].pop(0):
            raise slurm.NoAnswerError("Unable to contact slurm controller")

    def jobs(name: str) -> dict[tuple[str, int], tuple[str, str]]:
        answer("jobs")
        return {("7", 0): ("COMPLETED", "node1")} if submitted else {}

    def on_host(*words: object, stdout: IO[bytes] | None = None, **options: object) -> bytes:
        answer("on_host")
        if stdout:
            stdout.write(archive_of(("./0/exit", tarfile.REGTYPE, "0\n")).read())
        return b""

    def submit(name: str, host: str, *options: object) -> str:
        submitted.append(host)
        return "7"

    monkeypatch.setattr(run, "_POLL", (0.01, 0.01))
    monkeypatch.setattr(slurm, "unavailable", lambda names: {})
    monkeypatch.setattr(slurm, "jobs", jobs)
    monkeypatch.setattr(slurm, "on_host", on_host)
    monkeypatch.setattr(slurm, "submit", submit)
    begun.finish()
    assert submitted == ["node1"]
    assert silences == {"jobs": [], "on_host": []}
    assert host.fetched
    assert not host.problem
