"""SMB, with Samba's server and the client of the kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers.network.servers import READY, SHARED, NetworkLayer, Server
from pytest_fsstack.machine import mounts, orphans
from pytest_fsstack.machine.needs import KernelFilesystem, Need, Tool
from pytest_fsstack.stack.layer import Limit, option
from pytest_fsstack.stack.places import BuildContext, Directory
from pytest_fsstack.stack.words import FLAG, KEYWORD, MOUNT, NUMBER, OUTSIDE

_SMBD = Server("smbd", "samba")
#: It comes with the server.
_SMBPASSWD = Server("smbpasswd", "samba", {"dnf": "samba-common-tools"})
#: The helper of mount, which reads the password from a file.
_MOUNT_CIFS = Tool("mount.cifs", "cifs-utils")

_CONFIGURATION = (
    "[global]",
    "server role = standalone server",
    "netbios name = fsstack",
    "log level = 0",
    *(f"{kind} = /run/samba" for kind in ("private dir", "lock directory", "state directory", "cache directory")),
    "pid directory = /run/samba",
    "ncalrpc dir = /run/samba/rpc",
    # The directory of core dumps is beside the log.
    "log file = /run/samba/log",
    "usershare path =",
    "interfaces = lo",
    "bind interfaces only = yes",
    "smb ports = 445",
    "disable netbios = yes",
    "load printers = no",
    "printing = bsd",
    "printcap name = /dev/null",
    "[shared]",
    f"path = {SHARED}",
    "read only = no",
    # Linux distinguishes A from a, and needs no short names.
    "case sensitive = yes",
    "mangled names = no",
)
_LINES = r"\n".join(_CONFIGURATION)
_SERVER = (
    "mkdir /run/samba",
    f"printf '{_LINES}' >/run/smb.conf",
    # A share of its own is in the directory of temporary files, which may be below /run.
    "export TMPDIR=/run",
    '{ cat "$2"; echo; cat "$2"; echo; } | smbpasswd -c /run/smb.conf -s -a root',
    # 01BD is its port, 445. smbd would end with its input, if that is a pipe.
    f"{{ until grep -q ':01BD ' /proc/net/tcp; do sleep 0.1; done; : >{READY}; }} & "
    "exec smbd --foreground --no-process-group --configfile=/run/smb.conf --debug-stdout </dev/null >&2",
)


@dataclass(frozen=True)
class Samba(NetworkLayer):
    """SMB 3: the directory below, shared by Samba's server smbd and mounted by the kernel's client.

    Both are on this machine, in a network namespace of their own, and smbd reads a configuration of its own. The user
    is root, with a password that is new for each stack. Without the POSIX extensions of SMB, all files belong to root
    and have one mode. Symbolic links are files that only such clients follow (`mfsymlinks`). If smbd is
    killed while the mount is in use, unmounting it may take minutes.
    """

    name: ClassVar = "samba"
    example: ClassVar = "ext4 | samba(delay=5)"
    leaves: ClassVar = (mounts.MOUNT, orphans.DAEMON)
    limits: ClassVar = {
        **NetworkLayer.limits,
        Limit.CASES: "smb.conf(5), case sensitive: names are compared without their case",
        Limit.MODES: "mount.cifs(8), File and directory ownership and permissions",
    }
    grammar: ClassVar = {
        "mount": MOUNT
        | {
            "rsize wsize bsize acregmax acdirmax actimeo closetimeo echo_interval handletimeout max_credits": NUMBER,
            "max_channels min_enc_offload rasize file_mode dir_mode": NUMBER,
            "cache sec reparse upcall_target symlink": KEYWORD,
            "multichannel seal sign nosharesock noserverino nohandlecache modefromsid idsfromsid cifsacl": FLAG,
            "user* pass* pass2 cred* dom* workgroup addr ip srcaddr unc target path prefixpath port": OUTSIDE,
            "vers netbiosname servern cruid multiuser guest hard witness snapshot fsc iocharset": OUTSIDE,
        }
    }

    version: str = option("3.1.1", "version of the protocol", choices=("3.1.1", "3.0", "2.1"))
    mount: str = option("", "further options of mount.cifs, verbatim, such as seal")

    def needs(self) -> list[Need]:
        return [*super().needs(), KernelFilesystem("cifs"), _SMBD, _SMBPASSWD, _MOUNT_CIFS]

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        options = ",".join(filter(None, (f"username=root,vers={self.version},mfsymlinks", self.mount)))
        with contextlib.ExitStack() as undo:
            with context.secret.passphrase() as password:
                namespaces = undo.enter_context(self.server(below, context, *_SERVER, fds=[password]))
                # The variable has the path of the password, and not the password.
                mount = namespaces.inside("env", f"PASSWD_FILE=/proc/self/fd/{password}", "mount")
                place = undo.enter_context(
                    context.mounted(self.name, "//127.0.0.1/shared", "cifs", options, by=mount, fds=[password])
                )
            yield place
