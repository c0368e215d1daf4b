"""Hosts with an sshd each, in network namespaces of their own, and a machine from which they are reached."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pytest_fsstack.machine import commands
from tests.laboratory.machines import Machines, wait_or_fail

#: What must be installed, by the package of Debian that has it.
TOOLS = {"sshd": "openssh-server", "ssh": "openssh-client", "ip": "iproute2", "rsync": "rsync", "parallel": "parallel"}
#: Directories that each machine has for itself.
_OWN = ("/opt/fsstack", "/srv/storage", "/var/tmp/tmt", "/dev/disk")

#: Be a machine of one's own: a name, a machine id, and the directories of which each has its own.
_MACHINE = """\
name=$1 directory=$2
ip link set lo up && hostname "$name" && mount --bind "$directory/$name.id" /etc/machine-id &&
mount -t tmpfs none /run && mkdir /run/sshd &&
mount --bind "$directory/hosts" /etc/hosts && mount --bind "$directory/ssh_config" /etc/ssh/ssh_config || exit
shift 2
while [ "$1" != -- ]; do
    mount --bind "$directory/$name$1" "$1" || exit
    shift
done
shift
exec "$@"
"""
_SERVER = """\
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/key.pub
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
SetEnv {mark} PATH={directory}/bin:{path}
"""
#: Before its own work, tmt asks Debian's package manager for flock, which each Debian has. Hosts here have no mirror.
_NO_MIRROR = {"apt": "exit 0", "apt-file": "echo util-linux"}
_CLIENT = """\
IdentityFile {directory}/key
UserKnownHostsFile {directory}/known_hosts
StrictHostKeyChecking accept-new
"""


class SshHosts(Machines):
    """Hosts that are reached by their names from the machine `desk`, each with the partition label `scratch`."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        super().__init__(directory, names)
        self._made: list[Path] = []

    def start(self) -> None:
        """Start all machines, and wait until each answers. Raises `CalledProcessError`, `TimeoutError`."""
        self.make_disks()
        for key in ("key", "host_key"):
            self.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.directory / key))
        addresses = [f"10.77.{number}.2 {name}.example.org {name}" for number, name in enumerate(self.names)]
        files = {"hosts": "\n".join(["127.0.0.1 localhost", *addresses]), "sshd_config": _SERVER, "ssh_config": _CLIENT}
        for name, text in files.items():
            path = self.environment["PATH"]
            (self.directory / name).write_text(text.format(directory=self.directory, mark=self.mark, path=path) + "\n")
        (self.directory / "bin").mkdir()
        for name, script in _NO_MIRROR.items():
            (self.directory / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.directory / "bin" / name).chmod(0o755)
        (self.directory / "desk.id").write_text("0" * 32)
        self._make_mount_points()
        self._start_machine("desk", "sleep", "infinity")
        for number, name in enumerate(self.names):
            sshd = commands.which("sshd")
            assert sshd
            self._start_machine(name, sshd, "-D", "-e", "-f", f"{self.directory}/sshd_config")
            self._connect(number, name)
        for name in self.names:
            wait_or_fail(partial(self._answers, name), f"{name} does not answer")

    def _answers(self, name: str) -> bool:
        return self.on_desk("/", f"ssh {name} true").returncode == 0

    def _make_mount_points(self) -> None:
        for place in map(Path, _OWN):
            for directory in [*reversed(place.parents), place]:
                if not directory.exists():
                    directory.mkdir()
                    self._made.append(directory)

    def _start_machine(self, name: str, *words: str) -> None:
        own = self.directory / name
        for place in _OWN[1:]:
            (own / place[1:]).mkdir(parents=True)
        (own / _OWN[0][1:]).parent.mkdir()
        (own / _OWN[0][1:]).symlink_to(sys.prefix)
        (own / "srv/storage/venv").symlink_to(sys.prefix)
        if name in self.disks:
            (own / "dev/disk/by-partlabel").mkdir()
            (own / "dev/disk/by-partlabel/scratch").symlink_to(self.disks[name])
        script = ["sh", "-c", _MACHINE, "sh", name, str(self.directory), *_OWN, "--"]
        # The environment of sshd cannot be read, so nothing finds it by the mark.
        killed_with_this = ["setpriv", "--pdeathsig", "KILL"]
        self.start_daemon(name, *killed_with_this, "unshare", "--mount", "--uts", "--net", *script, *words)
        here, there = Path("/proc/self/ns/net"), Path(f"/proc/{self.daemons[name].pid}/ns/net")
        wait_or_fail(lambda: os.readlink(here) != os.readlink(there), f"{name}: no network namespace")

    def _connect(self, number: int, name: str) -> None:
        desk, host = (str(self.daemons[which].pid) for which in ("desk", name))
        self.run(*f"ip link add {name} netns {desk} type veth peer name uplink netns {host}".split())
        for machine, link, last in ((desk, name, 1), (host, "uplink", 2)):
            inside = ["nsenter", f"--target={machine}", "--net", "ip"]
            self.run(*inside, "address", "add", f"10.77.{number}.{last}/24", "dev", link)
            self.run(*inside, "link", "set", link, "up")

    def on_desk(self, directory: str | Path, script: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script in a directory on the machine from which the hosts are reached."""
        enter = ["nsenter", f"--target={self.daemons['desk'].pid}", "--mount", "--uts", "--net"]
        words = [*enter, "sh", "-ec", f'cd "$1"; {script}', "sh", str(directory)]
        return subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def write_tests(self, text: str) -> None:
        """Give each host the directory tests/storage in /srv/storage."""
        for name in self.names:
            tests = self.directory / name / "srv/storage/tests/storage"
            tests.mkdir(parents=True, exist_ok=True)
            (tests / "test_storage.py").write_text(text)

    def stop(self) -> None:
        """End all machines, and remove the mount points that were made for them."""
        self.end()
        for directory in reversed(self._made):
            with contextlib.suppress(OSError):
                directory.rmdir()
