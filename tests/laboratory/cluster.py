"""A Slurm cluster on this machine: a controller and nodes, told apart by their host names and machine ids."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_fsstack.machine import commands, reaper

#: What must be installed, by the package of Debian that has it.
TOOLS = {"slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "munged": "munge"}
ENVIRONMENT = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"}

#: Start a node as if it were a machine of its own.
_NODE = 'hostname "$1" && mount --bind "$2/$1.id" /etc/machine-id && exec slurmd -D -N "$1" -f "$2/slurm.conf"'

_DISK = 1 << 30
_MARK = "FSSTACK_TRIAL_CLUSTER"

#: What outlives this process: it kills all processes of the cluster, and detaches its disks.
_AFTERWARDS = '"$1" "$2" "$3" "$4"; shift 4; losetup --detach "$@"'

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
python={directory}/hosts/current/bin/python
[ ! -e "$python" ] || "$python" -m pytest --fsstack-cleanup -p no:cacheprovider >>{directory}/epilog.log 2>&1
exit 0"""


class Cluster:
    """The daemons of a cluster in a directory. All end when the process that started them dies."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.directory, self.names = directory, names
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        #: A loop device for each node.
        self.disks: dict[str, Path] = {}
        self.environment = {**ENVIRONMENT, "SLURM_CONF": str(directory / "slurm.conf")}
        #: In the environment of all processes of the cluster, those of jobs included.
        self.mark = f"{_MARK}={directory}"

    def start(self) -> None:
        """Write the configuration, start all daemons, and wait until the nodes are idle."""
        own = os.pidfd_open(os.getpid())
        self.directory.mkdir(mode=0o755, parents=True)
        self.disks = {name: self._new_disk(name) for name in self.names}
        words = [sys.executable, reaper.__file__, str(own), self.mark]
        words = ["sh", "-c", _AFTERWARDS, "sh", *words, *map(str, self.disks.values())]
        self._reaper = subprocess.Popen(words, pass_fds=[own], start_new_session=True)
        os.close(own)
        for name in ("state", "hosts", *self.names):
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
            (self.directory / f"{name}.id").write_text(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.directory}/{name}").hex)
            self.start_node(name)
        self.wait_for("idle", self.names)

    def _new_disk(self, name: str) -> Path:
        with (self.directory / f"{name}.disk").open("w+b") as image:
            image.truncate(_DISK)
        return Path(self.run("losetup", "--find", "--show", "--direct-io=on", f"{self.directory}/{name}.disk").strip())

    def start_munge(self) -> None:
        words = [f"--{word}={self.directory}/munge.{word}" for word in ("socket", "pid-file", "log-file", "seed-file")]
        self._start("munged", "munged", "--foreground", "--force", f"--key-file={self.directory}/key", *words)
        _wait(lambda: (self.directory / "munge.socket").exists(), "munged has no socket")

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld", "-D", "-f", str(self.directory / "slurm.conf"))

    def start_node(self, name: str) -> None:
        self._start(name, "unshare", "--mount", "--uts", "sh", "-c", _NODE, "sh", name, str(self.directory))

    def _start(self, name: str, *words: str) -> None:
        with (self.directory / f"{name}.output").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                words,
                env={**self.environment, _MARK: str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a daemon with SIGKILL; jobs go on."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def run(self, *words: str) -> str:
        """Run a command of Slurm's and return what it printed. Raises `CalledProcessError`."""
        return subprocess.run(words, env=self.environment, check=True, capture_output=True, text=True).stdout

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

        _wait(reached, f"{', '.join(names)}: not {state}, see {self.directory}/*.log")

    def stop(self) -> None:
        """End sessions by SIGTERM, so that they take their stacks down, and then all processes of the cluster."""
        subprocess.run(["scancel", "--signal=TERM", "--full", "--user=root"], env=self.environment, capture_output=True)
        commands.wait_until(lambda: not self.run("squeue", "-h", "-t", "running,completing"), 60)
        while reaper.end(self.mark.encode()):
            time.sleep(0.02)
        for daemon in self.daemons.values():
            daemon.wait()
        self.daemons.clear()
        os.killpg(self._reaper.pid, signal.SIGKILL)
        self._reaper.wait()
        for disk in self.disks.values():
            self.run("losetup", "--detach", str(disk))

    def sessions(self) -> list[str]:
        """Return the command lines of all sessions that run in jobs."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in path.read_bytes().split(b"\0"):
                    lines.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return [line for line in lines if " --fsstack-json=" in line]

    def recover(self) -> None:
        """Start the daemons that were killed, cancel all jobs, and wait until the nodes are idle."""
        for name in ("slurmctld", *self.names):
            if name not in self.daemons:
                self.start_controller() if name == "slurmctld" else self.start_node(name)
        _wait(lambda: subprocess.run(["scancel", "-u", "root"], env=self.environment).returncode == 0, "no controller")
        self.wait_for("idle", self.names)


def _wait(condition: Callable[[], bool], problem: str) -> None:
    if not commands.wait_until(condition, 60):
        raise TimeoutError(problem)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as sockets:
        opened = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in opened]
