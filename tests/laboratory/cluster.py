"""A Slurm cluster on this machine: a controller and nodes, told apart by their host names and machine ids."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pytest_fsstack.machine import commands
from tests.laboratory.machines import Machines, wait_or_fail

#: What must be installed, by the package of Debian that has it.
TOOLS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
#: Start a node as if it were a machine of its own.
_NODE = 'hostname "$1" && mount --bind "$2/$1.id" /etc/machine-id && exec slurmd -D -N "$1" -f "$2/slurm.conf"'

_CONFIGURATION = """\
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdSpoolDir={directory}/%n
SlurmdPidFile={directory}/%n.pid
SlurmdLogFile={directory}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
GresTypes=disk
# A session that has begun is not run again by itself.
JobRequeue=0
# A node that was lost is used again when it is back.
ReturnToService=2
SlurmdTimeout=10
# A controller that was killed may have forgotten that an srun has ended.
InactiveLimit=20
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
# Seconds between SIGTERM and SIGKILL.
KillWait=60
MinJobAge=3600
Epilog={directory}/epilog
TaskProlog={directory}/task-prolog
{nodes}
PartitionName=storage Nodes=ALL Default=YES State=UP
"""


_EPILOG = """\
python={directory}/hosts/fsstack-laboratory/current/bin/python
[ ! -e "$python" ] || "$python" -m pytest --fsstack-cleanup -p no:cacheprovider >>{directory}/epilog.log 2>&1
exit 0"""


class Cluster(Machines):
    """The daemons of a cluster in a directory. All end when the process that started them dies."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        super().__init__(directory, names)
        self.environment = {**self.environment, "SLURM_CONF": str(directory / "slurm.conf")}

    def start(self) -> None:
        """Write the configuration, start all daemons, and wait until the nodes are idle."""
        self.make_disks()
        for name in ("state", "hosts"):
            (self.directory / name).mkdir()
        (self.directory / "key").touch(0o600)
        (self.directory / "key").write_bytes(secrets.token_bytes(128))
        scripts = {"task-prolog": f"echo export {self.mark}", "epilog": _EPILOG.format(directory=self.directory)}
        for name, text in scripts.items():
            (self.directory / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.directory / name).chmod(0o755)
        ports = _free_ports(len(self.names) + 1)
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={name} NodeAddr=127.0.0.1 Port={port} CPUs=2 Gres=disk:1 Feature=trial"
            for name, port in zip(self.names, ports[1:])
        )
        text = _CONFIGURATION.format(host=socket.gethostname(), ports=ports, directory=self.directory, nodes=nodes)
        (self.directory / "slurm.conf").write_text(text)
        (self.directory / "gres.conf").write_text("Name=disk Count=1\n")
        self.start_munge()
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        self.wait_for("idle", self.names)

    def start_munge(self) -> None:
        words = [f"--{word}={self.directory}/munge.{word}" for word in ("socket", "pid-file", "log-file", "seed-file")]
        self.start_daemon("munged", "munged", "--foreground", "--force", f"--key-file={self.directory}/key", *words)
        wait_or_fail(lambda: (self.directory / "munge.socket").exists(), "munged has no socket")

    def start_controller(self) -> None:
        self.start_daemon("slurmctld", "slurmctld", "-D", "-f", str(self.directory / "slurm.conf"))

    def start_node(self, name: str) -> None:
        self.start_daemon(name, "unshare", "--mount", "--uts", "sh", "-c", _NODE, "sh", name, str(self.directory))

    def kill(self, name: str) -> None:
        """Kill a daemon with SIGKILL; jobs go on."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def wait_for(self, state: str, names: Sequence[str]) -> None:
        """Wait until these nodes are in a state."""

        def reached() -> bool:
            states = subprocess.run(
                ["sinfo", "-h", "-N", "-n", ",".join(names), "-o", "%t"],
                env=self.environment,
                capture_output=True,
                text=True,
            )
            return states.stdout.split() == [state] * len(names)

        wait_or_fail(reached, f"{', '.join(names)}: not {state}, see {self.directory}/*.log")

    def stop(self) -> None:
        """End sessions by SIGTERM, so that they take their stacks down, and then all processes of the cluster."""
        subprocess.run(["scancel", "--signal=TERM", "--full", "--user=root"], env=self.environment, capture_output=True)
        commands.wait_until(lambda: not self.run("squeue", "-h", "-t", "running,completing"), 60)
        self.end()

    def recover(self) -> None:
        """Start the daemons that were killed, cancel all jobs, and wait until the nodes are idle."""
        for name in ("slurmctld", *self.names):
            if name not in self.daemons:
                self.start_controller() if name == "slurmctld" else self.start_node(name)
        wait_or_fail(
            lambda: subprocess.run(["scancel", "-u", "root"], env=self.environment).returncode == 0, "no controller"
        )
        self.wait_for("idle", self.names)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as sockets:
        opened = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in opened]
