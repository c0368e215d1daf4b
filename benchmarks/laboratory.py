"""The cost of a laboratory: one scenario on 1, 2 and 4 nodes of a Slurm cluster on this machine.

    python -m benchmarks laboratory [rounds]

The wall time of `fsstack lab run` is compared with the longest session of a node. The CPU time includes all commands
that it starts. The nodes share the processors of this machine, so the figures do not show how sessions on several hosts
run at the same time. Needs root and Slurm.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

from tabulate import tabulate

from tests.laboratory.cluster import Cluster

NODES = ("node1", "node2", "node3", "node4")
ROUNDS = 48
#: The largest ratio of the wall time to the longest session.
TARGET = 1.15
SCENARIO = ("--fsstack-scenario=filesystems", "--fsstack-scale=smoke", "-k", "ext4 or xfs")

SETTINGS = """
[laboratory]
directory = "{directory}/hosts"
[python]
environment = "{environment}"
"""


def measure(cluster: Cluster, nodes: int, rounds: int) -> tuple[float, float, float]:
    """Return the wall time of a run, its longest session and its CPU time, in seconds."""
    with tempfile.TemporaryDirectory() as name:
        lab, directory = Path(name, "LAB.toml"), Path(name, "run")
        hosts = "".join(f'[[hosts]]\nname = "{node}"\ndisk = "{cluster.disks[node]}"\n' for node in NODES[:nodes])
        lab.write_text(hosts + SETTINGS.format(directory=cluster.directory, environment=sys.prefix))
        command = [sys.executable, "-m", "pytest_fsstack.command", "lab", "run", f"--directory={directory}", str(lab)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(
            [*command, "--", *SCENARIO, f"--fsstack-rounds={rounds}"],
            env=cluster.environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        sessions = [
            float(suite.attrib["time"])
            for path in directory.glob("results/*/0/junit.xml")
            for suite in ElementTree.parse(path).iter("testsuite")
        ]
    assert len(sessions) == nodes
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, max(sessions), cpu


def main(arguments: list[str]) -> int:
    """Print a row for each number of nodes. Return 1 if the target is missed."""
    rounds = int(arguments[0]) if arguments else ROUNDS
    rows = []
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        cluster = Cluster(Path(name, "cluster"), NODES)
        try:
            cluster.start()
            for nodes in (1, 2, 4):
                wall, session, cpu = measure(cluster, nodes, rounds)
                rows.append((nodes, wall, session, wall / session, cpu, 60 * cpu / nodes / wall))
        finally:
            cluster.stop()
    columns = ["nodes", "wall s", "longest session s", "ratio", "CPU s of lab run", "CPU s per node and minute"]
    print(tabulate(rows, columns, floatfmt=".2f"))
    return 0 if all(row[3] <= TARGET for row in rows) else 1
