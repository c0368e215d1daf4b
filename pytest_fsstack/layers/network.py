"""Network filesystems. Server and client are both on this machine, in a network namespace of their own."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers.stacked import served
from pytest_fsstack.machine import commands, mounts, orphans
from pytest_fsstack.machine.journal import start_time
from pytest_fsstack.machine.needs import (
    FUSE,
    Missing,
    MissingRequirement,
    Need,
    Root,
    Tool,
    install_command,
    load_module,
    not_in_kernel,
)
from pytest_fsstack.machine.port import Daemon
from pytest_fsstack.stack.model import BuildContext, Directory, DirectoryLayer, Limit, option
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import FLAG, FUSE_MOUNT, KEYWORD, NUMBER, OUTSIDE, SIZE, CommandLine

_IP = Tool("ip", "iproute2", {"dnf": "iproute"})
_TC = Tool("tc", "iproute2", {"dnf": "iproute-tc"})

#: The exported directory in the server's mount namespace.
_SHARED = "/run/shared"
#: The file that a server creates once it is ready, in its mount namespace.
_READY = "/run/ready"
#: The argument is the directory to export. It may be below /run, which is hidden afterwards.
_PREPARE = (
    'cd "$1"',
    "mount -t tmpfs -o mode=755 none /run",
    f"mkdir {_SHARED}",
    f"mount --no-canonicalize --bind . {_SHARED}",
    "cd /",
    "ip link set lo up",
)
_DELAY = ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "limit", "100000", "delay")
#: Seconds for a server to become ready.
_PATIENCE = 60.0


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
        return f"--net=/proc/{self.pid}/ns/net"

    @property
    def mounts(self) -> str:
        return f"--mount=/proc/{self.pid}/ns/mnt"


@dataclass(frozen=True)
class NetworkLayer(ToolLayer, DirectoryLayer):
    """A directory that a local server exports, mounted by a client.

    The server listens in a network namespace that only the two use, so no other machine or process reaches it. Its /run
    is an empty tmpfs with its keys and configuration.
    """

    leaves: ClassVar = (mounts.MOUNT, orphans.DAEMON)
    caches: ClassVar = True
    limits: ClassVar = dict.fromkeys((Limit.CHECKSUMS, Limit.NAME_CHECKSUMS), "it shows what is below")

    delay: int = option(
        0, "milliseconds that each packet takes, in each direction, so a round trip takes twice as long", least=0
    )

    def needs(self) -> list[Need]:
        delay: list[Need] = [_TC, Netem()] if self.delay else []
        return [Root("a network namespace"), _IP, *delay, self.program]

    @contextlib.contextmanager
    def server(
        self, below: Directory, context: BuildContext, *script: str, fds: Sequence[int] = ()
    ) -> Iterator[Namespaces]:
        """Run a server until the end of the block: shell commands, of which the last one becomes the server.

        Raises `CommandError`.
        """
        machine = context.machine
        delay = [" ".join([*_DELAY, f"{self.delay}ms"])] if self.delay else []
        text = "; ".join([*_PREPARE, *delay, *script])
        isolated = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        server = machine.start(*isolated, "sh", "-euc", text, "sh", self.own_directory(below), fds=fds)
        with context.journal.entry(orphans.DAEMON, pid=server.pid, name=f"server of {self.name}"):
            answered = False
            try:
                ready = Path(f"/proc/{server.pid}/root{_READY}")
                if not machine.wait_until(lambda: ready.exists() or not server.alive, _PATIENCE):
                    raise commands.CommandError(server.argv, None, "", f"no answer within {_PATIENCE:g} s")
                if not server.alive:
                    raise server.error()
                answered = True
                yield Namespaces(server.pid)
            finally:
                if answered and not server.alive:
                    context.notify(str(server.error("while its files were in use")))
                _end(server)


def _end(server: Daemon) -> None:
    """Kill a server with all its processes, and wait until none of them uses its mounts."""
    # When the first process of a pid namespace ends, the kernel kills all others. `unshare` waits for it.
    for pid in _children(server.pid):
        orphans.end(pid, start_time(pid), [signal.SIGKILL])
    server.stop()


def _children(pid: int) -> list[int]:
    try:
        return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended, or was only recorded
        return []


# -- SSH ---------------------------------------------------------------------------------------------------------------

_SSH = Tool("ssh", "openssh-client", {"dnf": "openssh-clients", "zypper": "openssh-clients", "pacman": "openssh"})
_SSHD = Server("sshd", "openssh-server", {"zypper": "openssh-server", "pacman": "openssh"})

_SERVER = (
    # Debian's sshd needs the directory. sshd refuses locked accounts, and root's is often locked.
    "mkdir /run/sshd",
    r"printf 'root:*:1::::::\nsshd:*:1::::::\n' >/run/shadow",
    "mount --bind /run/shadow /etc/shadow",
    "umask 077",
    "mkdir /run/keys",
    "ssh-keygen -q -t ed25519 -N '' -f /run/keys/host",
    "ssh-keygen -q -t ed25519 -N '' -f /run/keys/user",
    'echo "127.0.0.1 $(cat /run/keys/host.pub)" >/run/keys/known',
    # It executes itself again for each connection, by its absolute path.
    'exec "$(command -v sshd)" -D -e -f none -o LogLevel=ERROR -o ListenAddress=127.0.0.1 -o HostKey=/run/keys/host '
    f"-o PidFile={_READY} -o AuthorizedKeysFile=/run/keys/user.pub -o AuthenticationMethods=publickey "
    "-o PermitRootLogin=yes -o UsePAM=no -o PermitUserRC=no -o DisableForwarding=yes -o ForceCommand=internal-sftp "
    "-o Subsystem='sftp internal-sftp'",
)
_CLIENT = (
    "ssh -F none -i /run/keys/user -o IdentitiesOnly=yes -o IdentityAgent=none -o GlobalKnownHostsFile=none "
    "-o UserKnownHostsFile=/run/keys/known -o StrictHostKeyChecking=yes -o BatchMode=yes -o LogLevel=ERROR"
)


@dataclass(frozen=True)
class Sshfs(NetworkLayer):
    """SSHFS: the directory below over SFTP, from an OpenSSH server that is started for the stack.

    Server and client are on this machine, in a network namespace of their own. Their keys are new for each mount, and
    neither reads the configuration of a user. Everything runs as root, so new files belong to root. Recent versions of
    sshfs refuse symbolic links that lead upwards or are absolute, unless `mount` has `-o no_contain_symlinks`.
    """

    name: ClassVar = "sshfs"
    example: ClassVar = "ext4 | sshfs(delay=5)"
    tool: ClassVar = Tool("sshfs", "sshfs", {"dnf": "fuse-sshfs"})
    limits: ClassVar = {
        **NetworkLayer.limits,
        **dict.fromkeys((Limit.ATTRIBUTES, Limit.ALLOCATION, Limit.HOLES), "sshfs.c: no setxattr and no fallocate"),
    }
    grammar: ClassVar = {
        "cipher": KEYWORD,
        "mount": CommandLine(
            {
                "-f -s -C -h --help -V --version -d --debug -v --verbose": FLAG,
                "-o": FUSE_MOUNT
                | {
                    "max_conns dcache_max_size dcache_timeout dcache_stat_timeout dcache_link_timeout": NUMBER,
                    "dcache_dir_timeout dcache_clean_interval dcache_min_clean_interval remember": NUMBER,
                    "dir_cache idmap nomap workaround compression Compression": KEYWORD,
                    "Ciphers MACs KexAlgorithms HostKeyAlgorithms RekeyLimit IPQoS TCPKeepAlive": KEYWORD,
                    "ServerAliveInterval ServerAliveCountMax ConnectTimeout": SIZE,
                    "uidfile gidfile ssh_command sftp_server directport passive password_stdin slave": OUTSIDE,
                    "ProxyCommand ProxyJump ProxyUseFdpass LocalCommand PermitLocalCommand KnownHostsCommand": OUTSIDE,
                    "ControlMaster ControlPath ControlPersist IdentityFile IdentityAgent CertificateFile": OUTSIDE,
                    "UserKnownHostsFile GlobalKnownHostsFile HostName Host Port port User XAuthLocation": OUTSIDE,
                    "PKCS11Provider SecurityKeyProvider SmartcardDevice Include Match": OUTSIDE,
                },
                "-p -F -1": OUTSIDE,
            }
        ),
    }

    cipher: str = option("", "a cipher of ssh, such as aes128-ctr. The default is the choice of ssh")
    mount: str = option("", "further options of sshfs, verbatim, such as -o max_conns=4")

    def needs(self) -> list[Need]:
        return [*super().needs(), FUSE, _SSH, _SSHD]

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        with self.server(below, context, *_SERVER) as namespaces:
            # ssh needs the network and the server's keys, and sshfs the mounts of this session.
            ssh = f"ssh_command=nsenter {namespaces.network} {namespaces.mounts} {_CLIENT}"
            words = [self.program.command, "-f", "-o", "allow_other,default_permissions", "-o", ssh]
            words += ["-o", f"Ciphers={self.cipher}"] if self.cipher else []
            target = context.mountpoint(self.name)
            with served(
                target, context, *words, *shlex.split(self.mount), f"root@127.0.0.1:{_SHARED}", target
            ) as place:
                yield place
