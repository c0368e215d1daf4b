"""Runs on the hosts of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from tests.laboratory.conftest import ROOT, Laboratory

pytestmark = pytest.mark.root


def test_two_hosts_run_a_scenario_and_are_pooled(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2", labels={"place": "it's $(here)"})
    result = laboratory.lab(
        *("run", "--directory=run", "LAB.toml", "--"),
        *("--fsstack-scenario=filesystems", "--fsstack-scale=smoke", "-k", "ext4 or xfs", "--fsstack-rounds=5"),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    sessions = {name: json.loads(path.read_text()) for name, path in laboratory.state().files().items()}
    assert set(sessions) == {"node1", "node2"}
    assert len({session["environment"]["machine_id"] for session in sessions.values()}) == 2
    assert {session["labels"]["place"] for session in sessions.values()} == {"it's $(here)"}
    pooled = json.loads((laboratory.directory / "run/pool.json").read_text())
    assert [host["name"] for host in pooled["hosts"]] == ["node1", "node2"]
    assert all(len(series["hosts"]) == 2 for series in pooled["series"])


def test_an_environment_is_built_once_from_wheels_of_this_machine(laboratory: Laboratory) -> None:
    laboratory.write("node1", python={"requirements": [str(ROOT)], "executable": sys.executable})
    words = ("LAB.toml", "--", "--fsstack-rounds=5", "test_write.py")
    first = laboratory.lab("run", "--directory=one", *words)
    assert first.returncode == 0, first.stdout + first.stderr
    environment = (laboratory.cluster.directory / "hosts/fsstack-laboratory/current").resolve()
    built = (environment / "ready").stat().st_mtime_ns
    assert laboratory.lab("run", "--directory=two", *words).returncode == 0
    assert (environment / "ready").stat().st_mtime_ns == built
    versions = json.loads((laboratory.directory / "two/results/node1/0/run.json").read_text())["environment"][
        "versions"
    ]
    assert "pytest-fsstack" in versions


def test_kernels_run_one_after_the_other_on_a_host(laboratory: Laboratory) -> None:
    laboratory.write("node1", laboratory={"kernels": ["host", "/none/vmlinuz"]})
    result = laboratory.lab("run", "--directory=run", "LAB.toml", "--", "--fsstack-rounds=5", "test_write.py")
    assert result.returncode == 1
    run = laboratory.state()
    (host,) = run.state.hosts
    codes = {task.kernel: run.exit_code(host, task) for task in host.tasks}
    assert codes["/none/vmlinuz"] == 4
    assert codes["host"] in (0, 4), "without pytest-xdist there are no kernels"


def test_check_shows_what_each_host_lacks(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2")
    mkfs = commands.which("mkfs.ext4")
    assert mkfs
    laboratory.inside("node2", "mount", "--bind", "/dev/null", mkfs)
    try:
        result = laboratory.lab("check", "LAB.toml", "--", "test_write.py")
    finally:
        laboratory.inside("node2", "umount", mkfs)
    assert result.returncode == 1
    first, second = sorted(result.stdout.split("== ")[1:])
    assert first.startswith("node1")
    assert "e2fsprogs" not in first
    assert "e2fsprogs" in second


def test_stop_ends_sessions_which_take_their_stacks_down(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2", "node3", seconds=0.5)
    laboratory.cluster.run("sbatch", "--exclusive", "--nodelist=node3", "--output=/dev/null", "--wrap=sleep 600")
    with laboratory.start("--fsstack-rounds=80", "test_write.py") as run:
        laboratory.wait_for_rounds("node1")
        stopped = laboratory.lab("stop", "run")
        assert stopped.returncode == 0, stopped.stderr
        assert laboratory.cluster.left() == ""
        output, _ = run.communicate(timeout=120)
    assert run.returncode == 1
    assert laboratory.lab("status", "run").stdout.count("exit code 143") == 2
    # It waited for another job.
    assert not laboratory.hosts()["node3"].job
    assert laboratory.hosts()["node3"].problem
    assert (laboratory.directory / "run/results/node1/0/rounds.jsonl").exists(), output


def test_a_cluster_does_not_outlive_a_killed_process(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal; from tests.laboratory.cluster import Cluster;"
        f"cluster = Cluster(pathlib.Path({str(tmp_path)!r}, 'cluster'), ['node1']); cluster.start();"
        "print(*cluster.disks.values(), flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    disk = Path(result.stdout.strip())

    def gone() -> bool:
        processes = subprocess.run(["pgrep", "-f", f"{tmp_path}/cluster"], capture_output=True).stdout
        return not processes and not Path("/sys/block", disk.name, "loop/backing_file").exists()

    assert disk.name.startswith("loop")
    assert commands.wait_until(gone, 300)
