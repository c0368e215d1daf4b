"""The commands of network layers, recorded instead of run, and what they need."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.network import servers
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.needs import Missing, MissingRequirement
from pytest_fsstack.preflight.recording import RecordingJournal, RecordingMachine
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext, Directory


def opened(text: str, directory: Path) -> tuple[list[list[str]], RecordingJournal]:
    """Return the words of the commands that make, open and close a layer, and the journal."""
    machine = RecordingMachine(directory)
    journal = RecordingJournal(machine)
    context, (layer,) = BuildContext(directory, journal, depth=1), Stack.parse(text, BUILT_IN).layers
    layer.create(Directory(directory), context)
    with layer.opened(Directory(directory), context):
        pass
    return [shlex.split(line.replace(str(directory), "DIR")) for line in machine.commands], journal


def test_sshfs_asks_a_server_that_has_namespaces_of_its_own(tmp_path: Path) -> None:
    lines, journal = opened("sshfs(cipher='aes128-ctr', mount='-o max_conns=2')", tmp_path)
    make, server, _, client, unmount = lines
    assert make == ["mkdir", "DIR/sshfs"]
    assert server[:6] == ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    assert server[-2:] == ["DIR/sshfs", "&"]
    assert client[0] == "sshfs"
    assert client[-7:] == [
        "-o",
        "Ciphers=aes128-ctr",
        "-o",
        "max_conns=2",
        "root@127.0.0.1:/run/shared",
        "DIR/1-sshfs",
        "&",
    ]
    (ssh,) = [word for word in client if word.startswith("ssh_command=")]
    assert re.match(r"ssh_command=nsenter --net=/proc/\d+/ns/net --mount=/proc/\d+/ns/mnt ssh -F none ", ssh)
    assert unmount == ["umount", "DIR/1-sshfs"]
    assert [kind for kind, _ in journal.entered] == ["daemon", "mount", "daemon"]


def test_nfs_asks_the_kernels_server_in_a_network_of_its_own(tmp_path: Path) -> None:
    lines, journal = opened("nfs(version='4.1', mount='nconnect=4')", tmp_path)
    make, server, _, client, unmount = lines
    assert make == ["mkdir", "DIR/nfs"]
    # The process that stops the kernel's threads must outlive the session, which kills what carries its mark.
    assert server[:5] == ["env", "-u", "PYTEST_FSSTACK_SESSION", "-u", "PYTEST_FSSTACK_COMMAND"]
    assert server[5:10] == ["unshare", "--net", "--mount", "--fork", "--kill-child=TERM"]
    (export,) = re.findall(r"echo '([^']*)' >/proc/net/rpc/nfsd.export/channel", " ".join(server))
    assert export == "* /run/shared 2147483647 9216 65534 65534 0"
    assert re.fullmatch(r"nsenter --net=/proc/\d+/ns/net mount -i -t nfs4 -o", " ".join(client[:7]))
    assert client[7].startswith("vers=4.1,addr=127.0.0.1,")
    assert client[7].endswith(",nconnect=4")
    assert client[8:] == ["127.0.0.1:/", "DIR/1-nfs"]
    assert unmount == ["umount", "DIR/1-nfs"]
    assert [kind for kind, _ in journal.entered] == ["kernel server", "mount"]


def test_samba_gets_its_password_by_a_descriptor_on_both_sides(tmp_path: Path) -> None:
    lines, journal = opened("samba(version='3.0', mount='seal')", tmp_path)
    _, server, _, client, unmount = lines
    assert server[:6] == ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    assert server[-3:] == ["DIR/samba", "/proc/self/fd/SECRET", "&"]
    assert re.fullmatch(r"nsenter --net=/proc/\d+/ns/net env PASSWD_FILE=/proc/self/fd/SECRET", " ".join(client[:4]))
    assert client[4:8] == ["mount", "-t", "cifs", "-o"]
    assert client[8].startswith("username=root,vers=3.0,")
    assert client[8].endswith(",seal")
    assert client[9:] == ["//127.0.0.1/shared", "DIR/1-samba"]
    assert unmount == ["umount", "DIR/1-samba"]
    assert [kind for kind, _ in journal.entered] == ["daemon", "mount"]


@pytest.mark.parametrize(("text", "delays"), [("sshfs", []), ("sshfs(delay=7)", ["7ms"])])
def test_only_a_delay_that_is_asked_for_is_made(text: str, delays: list[str], tmp_path: Path) -> None:
    (script,) = [line[8] for line in opened(text, tmp_path)[0] if line[0] == "unshare"]
    assert re.findall(r"tc qdisc add dev lo root netem .*delay (\w+)", script) == delays


def test_a_delay_needs_a_kernel_that_delays_packets(
    monkeypatch: pytest.MonkeyPatch, become: Callable[[int], None]
) -> None:
    become(0)
    monkeypatch.setattr(commands, "which", lambda tool: f"/usr/bin/{tool}")

    def lacking(text: str, *, netem: bool) -> list[MissingRequirement]:
        monkeypatch.setattr(servers, "_delays_packets", lambda: netem)
        return needs.lacking([need for need in Stack.parse(text, BUILT_IN).needs() if need != needs.FUSE])

    assert lacking("sshfs", netem=False) == lacking("sshfs(delay=7)", netem=True) == []
    (lack,) = lacking("sshfs(delay=7)", netem=False)
    assert lack.kind is Missing.KERNEL
    assert "sch_netem" in lack.what


@pytest.mark.parametrize(
    ("layer", "server", "package"),
    [("sshfs", "sshd", "openssh-server"), ("nfs", "nfsdcld", "nfs-kernel-server"), ("samba", "smbd", "samba")],
)
def test_nothing_but_the_user_installs_a_server(
    layer: str, server: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "which", lambda tool: None)
    lacking = needs.lacking(Stack.parse(layer, BUILT_IN).needs())
    lacks = {word: lack for lack in lacking for word in lack.what.split()}
    assert lacks["ip"].package
    assert lacks[server].package == ""
    assert package in lacks[server].remedy
