"""A laboratory on this machine: a cluster of four nodes, each with a disk of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.fleet.laboratory.run import Host, Run, own_directory
from pytest_fsstack.machine import commands
from tests.laboratory.cluster import TOOLS, Cluster
from tests.laboratory.machines import ENVIRONMENT
from tests.sessions import FEW_PLUGINS

ROOT = Path(__file__).parents[2]
NODES = ("node1", "node2", "node3", "node4")
TEST = """
import time
import pytest

@pytest.mark.fsstack("ext4", "inner = ext4 | loop | ext4")
@pytest.mark.fsstack_budget("400%")
def test_write(fsstack, timed):
    with timed(bytes=1 << 20):
        (fsstack.path / "file").write_bytes(bytes(1 << 20))
        time.sleep({seconds})
"""


class Laboratory:
    """The cluster, and a directory from which runs are started."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory
        self.environment = {**cluster.environment, **FEW_PLUGINS}

    def inside(self, name: str, *words: str) -> None:
        """Run a command among the mounts of a node, where it changes what sessions there find."""
        command = ["nsenter", f"--target={self.cluster.daemons[name].pid}", "--mount", *words]
        subprocess.run(command, check=True, capture_output=True)

    def write(self, *hosts: str, seconds: float = 0.05, **settings: Any) -> None:
        """Write LAB.toml and a test whose rounds take at least twice the seconds."""
        (self.directory / "test_write.py").write_text(TEST.format(seconds=seconds))
        (self.directory / "pytest.ini").write_text("[pytest]\n")
        common = {"directory": str(self.cluster.directory / "hosts"), "files": ["test_write.py", "pytest.ini"]}
        common |= settings.pop("laboratory", {})
        tables = {"laboratory": common, "python": {"environment": sys.prefix}, **settings}
        lines = []
        for host in hosts:
            lines += ["[[hosts]]", f'name = "{host}"', f'disk = "{self.cluster.disks[host]}"']
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{key} = {value!r}" for key, value in table.items())]
        (self.directory / "LAB.toml").write_text("\n".join(lines))

    def start(self, *words: str, directory: str = "run") -> subprocess.Popen[str]:
        """Start `fsstack lab run`."""
        command = [sys.executable, "-m", "pytest_fsstack.command", "lab", "run", f"--directory={directory}", "LAB.toml"]
        return subprocess.Popen(
            [*command, "--", *words],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def lab(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `fsstack lab` to its end."""
        command = [sys.executable, "-m", "pytest_fsstack.command", "lab", *words]
        return subprocess.run(command, cwd=self.directory, env=self.environment, capture_output=True, text=True)

    def state(self, directory: str = "run") -> Run:
        return Run.open(self.directory / directory)

    def hosts(self, directory: str = "run") -> Mapping[str, Host]:
        return {host.name: host for host in self.state(directory).state.hosts}

    def on_host(self, name: str, directory: str = "run") -> Path:
        """Return where a session on a host writes its files."""
        run = self.state(directory)
        return Path(own_directory(self.hosts(directory)[name]), "runs", run.state.name, name, "results", "0")

    def wait_for_rounds(self, name: str, rounds: int = 2, directory: str = "run") -> Path:
        """Wait until a session on a host has logged so many rounds; return its log."""

        def logged() -> bool:
            if not (self.directory / directory / "run.json").exists():
                return False
            log = self.on_host(name, directory) / "rounds.jsonl"
            return log.exists() and len(log.read_bytes().splitlines()) >= rounds

        assert commands.wait_until(logged, 120), f"{name} has not run {rounds} rounds"
        return self.on_host(name, directory) / "rounds.jsonl"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All daemons of a cluster, which end with the tests, also if those are killed."""
    missing = {package for tool, package in TOOLS.items() if shutil.which(tool, path=ENVIRONMENT["PATH"]) is None}
    if missing:
        pytest.skip(f"needs {', '.join(sorted(missing))}: python -m tests.install installs it")
    cluster = Cluster(tmp_path_factory.mktemp("laboratory") / "cluster", NODES)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def laboratory(cluster: Cluster, tmp_path: Path) -> Iterator[Laboratory]:
    """The cluster for one test, after which nothing runs on it and nothing is left."""
    yield Laboratory(cluster, tmp_path)
    processes = cluster.left()
    cluster.recover()
    assert processes == ""
