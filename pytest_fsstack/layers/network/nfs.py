"""NFS, with the server and the client of the kernel."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers.network.servers import READY, RELEASE, SHARED, NetworkLayer, Server
from pytest_fsstack.machine import journal, mounts, orphans
from pytest_fsstack.machine.descriptors import closing
from pytest_fsstack.machine.journal import Facts
from pytest_fsstack.machine.needs import KernelFilesystem, Need
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import option
from pytest_fsstack.stack.places import BuildContext, Directory
from pytest_fsstack.stack.words import KEYWORD, MOUNT, NUMBER, OUTSIDE

#: With it, the server knows that no client has locks to reclaim. Otherwise, the first open waits for 90 seconds.
_NFSDCLD = Server("nfsdcld", "nfs-kernel-server", {"dnf": "nfs-utils", "pacman": "nfs-utils"})

# The formats are in fs/nfsd/export.c of Linux. Without expiry, the kernel needs no rpc.mountd.
_NEVER = 2**31 - 1
_NO_SUBTREE_CHECK, _FSID = 0x400, 0x2000
_CLIENT = f"nfsd 127.0.0.1 {_NEVER} *"
_EXPORT = f"* {SHARED} {_NEVER} {_NO_SUBTREE_CHECK | _FSID} 65534 65534 0"
_HANDLE = rf"* 1 \x00000000 {_NEVER} {SHARED}"

_SERVER = (
    "mount -t nfsd none /proc/fs/nfsd",
    "mkdir /run/clients /run/pipes",
    "mount -t rpc_pipefs none /run/pipes",
    "setpriv --pdeathsig KILL nfsdcld -F -p /run/pipes -s /run/clients & tracker=$!",
    # After a kill, the kernel unmounts the client in its own time. Without a server, it would wait for one.
    "stop() { trap '' TERM; tries=0; "
    'until [ -z "$(ls /proc/fs/nfsd/clients)" ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done; '
    "echo 0 >/proc/fs/nfsd/threads; kill $tracker; wait $tracker || :; }",
    "trap stop EXIT",
    "trap 'exit 0' TERM",
    "echo -3 >/proc/fs/nfsd/versions",
    # Unless nfsdcld answers within a second or so, the kernel makes clients wait.
    "until echo 'tcp 2049' >/proc/fs/nfsd/portlist; echo 8 >/proc/fs/nfsd/threads; "
    "grep -q Y /proc/fs/nfsd/v4_end_grace; do echo 0 >/proc/fs/nfsd/threads; done",
    f"echo '{_CLIENT}' >/proc/net/rpc/auth.unix.ip/channel",
    f"echo '{_EXPORT}' >/proc/net/rpc/nfsd.export/channel || "
    "{ echo 'NFS cannot export the filesystem below' >&2; exit 1; }",
    f"echo '{_HANDLE}' >/proc/net/rpc/nfsd.fh/channel",
    f": >{READY}",
    "wait $tracker",
)


def _stopped(machine: Machine, facts: Facts) -> str:
    pid = journal.whole_number(facts, "pid")
    orphans.end(pid, journal.whole_number(facts, "start"), [signal.SIGTERM], RELEASE)
    return f"stopped the NFS server of process {pid}"


@contextlib.contextmanager
def _reachable(network: str, machine: Machine) -> Iterator[None]:
    """Stop the server in a network namespace at the end of the block, even if all of its processes have ended."""
    try:
        descriptor = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # it was only recorded
        yield
        return
    with closing(descriptor):
        try:
            yield
        finally:
            stop = "mount -t nfsd none /proc/fs/nfsd; echo 0 >/proc/fs/nfsd/threads"
            network = f"/proc/{os.getpid()}/fd/{descriptor}"
            machine.run("nsenter", f"--net={network}", "unshare", "--mount", "sh", "-euc", stop)


#: The process that stops the server in the kernel, which no kill would end.
KERNEL_SERVER = dataclasses.replace(orphans.DAEMON, name="kernel server", undo=_stopped)


@dataclass(frozen=True)
class Nfs(NetworkLayer):
    """NFS version 4: the directory below, exported by the kernel's server and mounted by its client.

    Both are on this machine, in a network namespace of their own, so the system's own NFS server goes on as it was. The
    server is a part of the kernel. A process of its own stops it within ten seconds after the session was killed. The
    mount is `soft`: if the connection is lost, calls fail after a while. A slow disk does not make them fail. The
    kernel must be able to export the filesystem below, unlike overlay and eCryptfs.
    """

    name: ClassVar = "nfs"
    example: ClassVar = "ext4 | nfs(delay=5)"
    leaves: ClassVar = (mounts.MOUNT, KERNEL_SERVER)
    # It must survive the session, and the processes that a dead session leaves are killed by their mark.
    isolated: ClassVar = (
        *("env", "-u", orphans.VARIABLE, "-u", orphans.COMMAND),
        *("unshare", "--net", "--mount", "--fork", "--kill-child=TERM"),
    )
    ending: ClassVar = signal.SIGTERM
    kind: ClassVar = KERNEL_SERVER
    grammar: ClassVar = {
        "mount": MOUNT
        | {
            "rsize wsize nconnect max_connect acregmin acregmax acdirmin acdirmax actimeo": NUMBER,
            "lookupcache local_lock sec write": KEYWORD,
            "addr clientaddr mount* vers nfsvers minorversion v4* proto port hard softerr fsc* xprtsec": OUTSIDE,
        }
    }

    version: str = option("4.2", "version of the protocol", choices=("4.1", "4.2"))
    mount: str = option("", "further mount options, verbatim, such as nconnect=4")

    def needs(self) -> list[Need]:
        return [*super().needs(), KernelFilesystem("nfsd"), KernelFilesystem("nfs4", "nfsv4"), _NFSDCLD]

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        # By rpc_check_timeout in net/sunrpc/clnt.c of Linux, version 4 only fails if the connection is lost.
        options = f"vers={self.version},addr=127.0.0.1,clientaddr=127.0.0.1,soft,timeo=50,retrans=1"
        options = ",".join(filter(None, (options, self.mount)))
        with contextlib.ExitStack() as undo:
            namespaces = undo.enter_context(self.server(below, context, *_SERVER))
            undo.enter_context(_reachable(namespaces.network, context.machine))
            # Without its helper, mount needs no package.
            mount = namespaces.inside("mount", "-i")
            yield undo.enter_context(context.mounted(self.name, "127.0.0.1:/", "nfs4", options, by=mount))
