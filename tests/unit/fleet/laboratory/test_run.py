"""Archives and states that hosts of a laboratory return."""

from __future__ import annotations

import io
import re
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from pytest_fsstack.command import main
from pytest_fsstack.fleet.laboratory import run, slurm
from pytest_fsstack.fleet.laboratory.run import Host, Run, RunError, State, Task, unpack
from pytest_fsstack.fleet.laboratory.settings import Common, Python, Settings, load
from pytest_fsstack.version import __version__


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
    (tmp_path / "tests/loop").symlink_to("loop")
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
    waiting = begun(tmp_path, host)

    def submitted_meanwhile(name: str) -> dict[tuple[str, int], tuple[str, str]]:
        host.job = "7"
        return {}

    monkeypatch.setattr(slurm, "jobs", submitted_meanwhile)
    assert waiting.update_states() == []
    assert not host.ended()
    # The next answer would have it.
    assert waiting.update_states() == ["node1: forgotten"]
    assert host.ended()


@dataclass
class FakeSlurm:
    """A Slurm whose jobs end at once. As often as `silences` says, it does not answer."""

    silences: dict[str, list[bool]] = field(default_factory=lambda: {"jobs": [], "on_host": []})
    #: The hosts of the jobs.
    submitted: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    #: So many hosts send their files at the same time.
    fetching: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))

    def _answer(self, command: str) -> None:
        if self.silences[command] and self.silences[command].pop(0):
            raise slurm.NoAnswerError("Unable to contact slurm controller")

    def unavailable(self, hosts: list[str]) -> dict[str, str]:
        return {}

    def jobs(self, name: str) -> dict[tuple[str, int], tuple[str, str]]:
        self._answer("jobs")
        return {(str(job), 0): ("COMPLETED", host) for job, host in enumerate(self.submitted)}

    def submit(self, name: str, host: str, *options: object) -> str:
        self.submitted.append(host)
        return str(self.submitted.index(host))

    def on_host(
        self, host: str, script: Path, words: list[str], *, stdout: IO[bytes] | None = None, **options: object
    ) -> bytes:
        self._answer("on_host")
        self.words = words
        if stdout:
            self.fetching.wait(60)
            stdout.write(archive_of(("./0/exit", tarfile.REGTYPE, "0\n")).read())
        return b"all is there\n0\n"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm()
    for name in ("unavailable", "jobs", "submit", "on_host"):
        monkeypatch.setattr(slurm, name, getattr(fake, name))
    monkeypatch.setattr(run, "_POLL", (0.01, 0.01))
    return fake


def begun(tmp_path: Path, *hosts: Host, notify: Callable[[str], None] = print) -> Run:
    settings = Settings([], python=Python(environment="/opt/fsstack"))
    return Run(tmp_path, State("run", settings, ["test_it.py"], list(hosts)), notify)


def test_only_the_main_thread_writes_the_state_of_hosts_that_are_fetched_together(
    tmp_path: Path, fake: FakeSlurm
) -> None:
    hosts = [Host(f"node{number}", "loop", "/", {}, [Task()]) for number in range(4)]
    fake.fetching = threading.Barrier(len(hosts))
    writers: list[tuple[threading.Thread, str]] = []
    begun(tmp_path, *hosts, notify=lambda line: writers.append((threading.current_thread(), line))).finish()
    assert {thread for thread, _ in writers} == {threading.main_thread()}
    assert sum("exit code 0" in line for _, line in writers) == 4
    assert all(host.fetched for host in Run.open(tmp_path).state.hosts)


def test_a_host_that_slurm_never_reaches_ends_the_run(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_PATIENCE", 0.1)
    fake.silences["on_host"] = [True] * 1000
    host = Host("node1", "loop", "/", {}, [Task()])
    begun(tmp_path, host).finish()
    assert re.match("not begun: .* slurm controller", host.problem)
    assert 1 < 1000 - len(fake.silences["on_host"]) < 100


def test_check_asks_the_doctor_on_all_kernels(tmp_path: Path, fake: FakeSlurm) -> None:
    host = Host("node1", "ram", "/lab", {}, [Task("host"), Task("linux image.deb")])
    assert begun(tmp_path, host).doctor(host) == (0, "all is there")
    kernels = ["--fsstack-kernel=host", "--fsstack-kernel=linux image.deb"]
    assert fake.words[2:] == ["test_it.py", "--fsstack-device=ram", *kernels]


def test_steps_are_done_again_if_the_controller_of_slurm_was_restarted(tmp_path: Path, fake: FakeSlurm) -> None:
    fake.silences = {"jobs": [True, False, True], "on_host": [True, False, True]}
    host = Host("node1", "loop", "/", {}, [Task()])
    begun(tmp_path, host).finish()
    assert fake.submitted == ["node1"]
    assert fake.silences == {"jobs": [], "on_host": []}
    assert host.fetched
    assert not host.problem


def test_a_job_that_slurm_gets_just_after_a_stop_is_ended(
    tmp_path: Path, fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, ended = Host("node1", "loop", "/", {}, [Task()]), list[tuple[str, ...]]()
    stopped = begun(tmp_path, host)

    def submitted(*words: object) -> str:
        (tmp_path / "stopped").touch()
        return "7"

    monkeypatch.setattr(slurm, "submit", submitted)
    monkeypatch.setattr(slurm, "cancel", lambda *words: ended.append(words))
    stopped._submit(host)
    assert ended == [("run", "--state=PENDING"), ("run", "--signal=TERM", "--batch")]


@pytest.mark.parametrize("change", ["", '[labels]\nplace = "attic"\n'])
def test_a_run_goes_on_only_with_the_settings_with_which_it_began(
    change: str, tmp_path: Path, fake: FakeSlurm, capfd: pytest.CaptureFixture[str]
) -> None:
    file, text = tmp_path / "LAB.toml", '[[hosts]]\nname = "node1"\ndisk = "loop"\n'
    file.write_text(text)
    host = Host("node1", "loop", "/", {}, [Task()])
    Run(tmp_path, State("run", load(file), [], [host])).save()
    # Another version of the plugin goes on with it.
    assert f"=={__version__}" not in (tmp_path / "run.json").read_text()
    file.write_text(text + change)
    # Without results, it cannot be pooled.
    assert main(["lab", "run", f"--directory={tmp_path}", str(file)]) == 4
    assert ("LAB.toml (labels)" in capfd.readouterr().err) == bool(change)
    assert fake.submitted == ([] if change else ["node1"])
