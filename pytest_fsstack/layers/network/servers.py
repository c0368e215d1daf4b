"""Servers in network namespaces, and the delays of their packets."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import commands, orphans
from pytest_fsstack.machine.journal import Kind, UndoError, start_time
from pytest_fsstack.machine.needs import (
    Missing,
    MissingRequirement,
    Need,
    Root,
    Tool,
    install_command,
    load_module,
    not_in_kernel,
)
from pytest_fsstack.stack.layer import DirectoryLayer, Limit, option
from pytest_fsstack.stack.places import BuildContext, Directory

_IP = Tool("ip", "iproute2", {"dnf": "iproute"})
_TC = Tool("tc", "iproute2", {"dnf": "iproute-tc"})

#: The exported directory in the server's mount namespace.
SHARED = "/run/shared"
#: The file that a server creates once it is ready, in its mount namespace.
READY = "/run/ready"
#: The argument is the directory to export. It may be below /run, which is hidden afterwards.
_PREPARE = (
    'cd "$1"',
    "mount -t tmpfs -o mode=755 none /run",
    f"mkdir {SHARED}",
    f"mount --no-canonicalize --bind . {SHARED}",
    "cd /",
    "ip link set lo up",
)
_DELAY = ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "limit", "100000", "delay")
#: Seconds for a server to become ready.
_PATIENCE = 60.0
#: Seconds for a server to end and to release the directory below.
RELEASE = 30.0


# -- requirements ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server(Tool):
    """A server program. Installing its package may start a public server, so only the user does that."""

    def _how_to_get(self) -> MissingRequirement:
        install = install_command([self.package_here])
        return MissingRequirement(
            Missing.PACKAGE, f"needs {self.command}", f"{install} (it may start a server that other machines reach)"
        )


@dataclass(frozen=True)
class Netem:
    """Delays of packets in the running kernel."""

    def missing(self) -> MissingRequirement | None:
        # These are separate requirements, needed for this check.
        if os.geteuid() != 0 or _TC.missing() or _delays_packets():
            return None
        return not_in_kernel("delays of packets (sch_netem)")


@functools.cache
def _delays_packets() -> bool:
    load_module("sch_netem")
    try:
        commands.run("unshare", "--net", *_DELAY, "1ms")
    except commands.CommandError:
        return False
    return True


# -- servers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Namespaces:
    """The namespaces of a server, as files in /proc."""

    pid: int

    @property
    def network(self) -> str:
        return f"/proc/{self.pid}/ns/net"

    @property
    def mounts(self) -> str:
        return f"/proc/{self.pid}/ns/mnt"

    def inside(self, *argv: str) -> tuple[str, ...]:
        """Return the words that run a command with the network of the server and the mounts of this process."""
        return ("nsenter", f"--net={self.network}", *argv)


@dataclass(frozen=True)
class NetworkLayer(DirectoryLayer):
    """A directory that a local server exports, mounted by a client.

    The server listens in a network namespace that only the two use, so no other machine or process reaches it. Its /run
    is an empty tmpfs with its keys and configuration.
    """

    limits: ClassVar = dict.fromkeys((Limit.CHECKSUMS, Limit.NAME_CHECKSUMS), "it shows what is below")
    #: The command that starts a server in its namespaces. By default, all of its processes are killed with it.
    isolated: ClassVar[Sequence[str]] = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
    #: The signal that ends the first process in the namespaces, and the kind of that process.
    ending: ClassVar[int] = signal.SIGKILL
    kind: ClassVar[Kind] = orphans.DAEMON

    delay: int = option(
        0, "milliseconds that each packet takes, in each direction, so a round trip takes twice as long", least=0
    )

    def needs(self) -> list[Need]:
        delay: list[Need] = [_TC, Netem()] if self.delay else []
        return [Root("a network namespace"), _IP, *delay]

    @contextlib.contextmanager
    def server(
        self, below: Directory, context: BuildContext, *script: str, fds: Sequence[int] = ()
    ) -> Iterator[Namespaces]:
        """Run a server until the end of the block: shell commands, of which the last one runs as long as the server.

        The commands get the descriptors as files, from `$2` on. Raises `CommandError`.
        """
        machine = context.machine
        delay = [" ".join([*_DELAY, f"{self.delay}ms"])] if self.delay else []
        text = "; ".join([*_PREPARE, *delay, *script])
        words = ["sh", "-euc", text, "sh", str(self.own_directory(below)), *(f"/proc/self/fd/{fd}" for fd in fds)]
        with context.journal.entry(self.kind, name=f"of {self.name}") as entry:
            server = machine.start(*self.isolated, *words, fds=fds)
            answered = False
            try:
                ready = Path(f"/proc/{server.pid}/root{READY}")
                if not machine.wait_until(lambda: ready.exists() or not server.alive, _PATIENCE):
                    raise commands.CommandError(server.argv, None, "", f"no answer within {_PATIENCE:g} s")
                if not server.alive:
                    raise server.error()
                for pid in _children(server.pid):
                    entry.update(pid=pid)
                answered = True
                yield Namespaces(server.pid)
            finally:
                if answered and not server.alive:
                    context.notify(str(server.error("while its files were in use")))
                try:
                    for pid in _children(server.pid):
                        orphans.end(pid, start_time(pid), [self.ending], RELEASE)
                except UndoError as error:
                    raise commands.CommandError(server.argv, None, "", str(error)) from None
                finally:
                    server.stop()


def _children(pid: int) -> list[int]:
    try:
        return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended, or was only recorded
        return []
