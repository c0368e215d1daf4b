"""Archives and states that hosts of a laboratory return."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pytest_fsstack.laboratory import run, slurm
from pytest_fsstack.laboratory.run import Host, Run, RunError, State, Task, unpack
from pytest_fsstack.laboratory.settings import Hosts, Python, Settings


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


def test_a_run_that_cannot_begin_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_planned_hosts", lambda settings: [])
    directory, hosts = tmp_path / "night" / "first", [Hosts("loop", "node1")]
    with pytest.raises(RunError, match="no-such-package"):
        Run.begin(directory, Settings(hosts, python=Python(["./no-such-package"])), tmp_path, [])
    assert not directory.exists()
    Run.begin(directory, Settings(hosts, python=Python(environment="/opt/fsstack")), tmp_path, [])
    with pytest.raises(RunError, match="exists"):
        Run.begin(directory, Settings(hosts), tmp_path, [])


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
