"""The ready files for engines that reach hosts by ssh, run as they are on hosts with those names."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.machine import commands
from tests.laboratory.conftest import TEST
from tests.laboratory.ssh import TOOLS, SshHosts
from tests.pages import DOCS, blocks_of

pytestmark = pytest.mark.root

NAMES = ("disk-1", "disk-2", "disk-3")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    missing = {package for tool, package in TOOLS.items() if commands.which(tool) is None}
    if missing:
        pytest.skip(f"needs {', '.join(sorted(missing))}: tox -e laboratory installs it")
    hosts = SshHosts(tmp_path_factory.mktemp("ssh") / "hosts", NAMES)
    try:
        hosts.start()
        hosts.write_tests(TEST.format(seconds=0.05))
        yield hosts
    finally:
        hosts.stop()
    assert not any(name.endswith(".example.org") for name in Path("/proc/mounts").read_text().split())


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A directory on the machine from which the hosts are reached, with this project's programs."""
    (tmp_path / "venv").symlink_to(sys.prefix)
    return tmp_path


def run(hosts: SshHosts, directory: Path, script: str) -> None:
    result = hosts.on_desk(directory, script)
    assert result.returncode == 0, result.stdout + result.stderr


def assert_pooled(directory: Path, files: str, hosts: SshHosts) -> None:
    """Check that the files are of three hosts, and that none has anything left."""
    run(hosts, directory, f"venv/bin/fsstack pool --each {files} --json pool.json")
    pooled: dict[str, Any] = json.loads((directory / "pool.json").read_text())
    assert len(pooled["hosts"]) == len(NAMES)
    assert all(len(series["hosts"]) == len(NAMES) for series in pooled["series"])
    assert hosts.left() == ""


def test_gnu_parallel_runs_the_commands_of_the_page(hosts: SshHosts, desk: Path) -> None:
    (block,) = (block for block in blocks_of(DOCS / "laboratory.md") if "parallel -a hosts" in block.text)
    (desk / "hosts").write_text("".join(f"{name}.example.org\n" for name in NAMES))
    run(hosts, desk, block.text)
    assert_pooled(desk, "fetched", hosts)


def test_tmt_runs_the_plan_for_hosts(hosts: SshHosts, desk: Path) -> None:
    tmt = Path(sys.prefix, "bin/tmt")
    if not tmt.exists():
        pytest.skip("needs tmt: tox -e laboratory installs it")
    (desk / "plans").mkdir()
    shutil.copy(DOCS / "ci/hosts.fmf", desk / "plans")
    shutil.copytree(hosts.directory / NAMES[0] / "srv/storage/tests", desk / "tests")
    (desk / "pytest.ini").write_text("[pytest]\n")
    run(hosts, desk, f"{tmt} init && {tmt} run --all plan --name /plans/hosts")
    assert_pooled(desk, "$(find /var/tmp/tmt/run-001 -name run.json)", hosts)
