"""SSHFS, with an OpenSSH server."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers.network.servers import READY, SHARED, NetworkLayer, Server
from pytest_fsstack.layers.stacked import served
from pytest_fsstack.machine import mounts, orphans
from pytest_fsstack.machine.needs import FUSE, Need, Tool
from pytest_fsstack.stack.layer import Limit, option
from pytest_fsstack.stack.places import BuildContext, Directory
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import FLAG, FUSE_MOUNT, KEYWORD, NUMBER, OUTSIDE, SIZE, CommandLine

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
    # The client has applied the caller's umask.
    "umask 0",
    # It executes itself again for each connection, by its absolute path.
    'exec "$(command -v sshd)" -D -e -f none -o LogLevel=ERROR -o ListenAddress=127.0.0.1 -o HostKey=/run/keys/host '
    f"-o PidFile={READY} -o AuthorizedKeysFile=/run/keys/user.pub -o AuthenticationMethods=publickey "
    "-o PermitRootLogin=yes -o UsePAM=no -o PermitUserRC=no -o DisableForwarding=yes -o ForceCommand=internal-sftp "
    "-o Subsystem='sftp internal-sftp'",
)
_CLIENT = (
    "ssh -F none -i /run/keys/user -o IdentitiesOnly=yes -o IdentityAgent=none -o GlobalKnownHostsFile=none "
    "-o UserKnownHostsFile=/run/keys/known -o StrictHostKeyChecking=yes -o BatchMode=yes -o LogLevel=ERROR"
)


@dataclass(frozen=True)
class Sshfs(ToolLayer, NetworkLayer):
    """SSHFS: the directory below over SFTP, from an OpenSSH server that is started for the stack.

    Server and client are on this machine, in a network namespace of their own. Their keys are new for each mount, and
    neither reads the configuration of a user. Everything runs as root, so new files belong to root. Recent versions of
    sshfs refuse symbolic links that lead upwards or are absolute, unless `mount` has `-o no_contain_symlinks`.
    """

    name: ClassVar = "sshfs"
    example: ClassVar = "ext4 | sshfs(delay=5)"
    tool: ClassVar = Tool("sshfs", "sshfs", {"dnf": "fuse-sshfs"})
    leaves: ClassVar = (mounts.MOUNT, orphans.DAEMON)
    caches: ClassVar = True
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
            ssh = f"ssh_command=nsenter --net={namespaces.network} --mount={namespaces.mounts} {_CLIENT}"
            words = [self.program.command, "-f", "-o", "allow_other,default_permissions", "-o", ssh]
            words += ["-o", f"Ciphers={self.cipher}"] if self.cipher else []
            target = context.mountpoint(self.name)
            with served(target, context, *words, *shlex.split(self.mount), f"root@127.0.0.1:{SHARED}", target) as place:
                yield place
