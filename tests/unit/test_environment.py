"""The environment record: what is in it, what must not be, and what happens where something cannot be read."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice, DiskDevice, LoopDevice
from pytest_fsstack.machine import identity
from pytest_fsstack.machine.needs import Root, Tool
from pytest_fsstack.session import environment
from pytest_fsstack.stack.model import Device
from pytest_fsstack.workloads.data.archive import Corpus

CRYPTO = """\
name         : xts(aes)
driver       : xts(ecb(aes-generic))
priority     : 100
internal     : no

name         : xts(aes)
driver       : xts-aes-vaes-avx512
priority     : 800
internal     : no

name         : xts(aes)
driver       : cryptd(__xts-aes)
priority     : 900
internal     : yes

name         : stdrng
driver       : drbg_nopr_hmac_sha256
priority     : 207
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return directory


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_it_is_json_without_the_name_of_the_machine(tmp_path: Path) -> None:
    text = json.dumps(environment.record([LoopDevice(2**30)], directory=tmp_path), allow_nan=False)
    content = json.loads(text)
    assert content["kernel"]["release"] == platform.release()
    assert content["cpu"]["count"] >= 1
    assert content["memory"] > 2**20
    assert content["versions"]["pytest"] == pytest.__version__
    assert f'"{platform.node()}"' not in text


def test_values_of_the_command_line_that_tell_too_much_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    line = 'root=/dev/vda1 systemd.hostname=my-laptop rd.luks.key="a b" mitigations=off ip=10.0.0.1::::box:eth0 quiet'
    line += (
        " systemd.machine_id=1f3a netroot=iscsi:me:password@box::::iqn.x resume=UUID=1-2 ks=http://box/a isolcpus=1,2"
    )
    line += " netconsole=@10.0.0.1/eth0,@/ ifname=eth0:52:54:00:12:34:56 loglevel=3"
    monkeypatch.setattr(environment, "_read", lambda path: line if path == "/proc/cmdline" else None)
    shown = environment.record()["kernel"]["command_line"]
    assert [word for word in shown.split() if not word.endswith("=...")] == [
        *("root=/dev/vda1", "mitigations=off", "quiet", "isolcpus=1,2", "loglevel=3")
    ]
    assert shown.count("=...") == 9
    assert "systemd.hostname=... rd.luks.key=..." in shown


def test_where_nothing_can_be_read_it_is_only_shorter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environment, "_read", lambda path: None)
    devices: list[Device] = [LoopDevice(2**20), DirectoryDevice(tmp_path), DiskDevice(Path("/dev/no-such-disk"), False)]
    record = environment.record(devices, directory=tmp_path / "gone", tools=["no-such-tool"])
    assert [device["spec"] for device in record["devices"]] == ["loop", f"dir:{tmp_path}", "/dev/no-such-disk"]
    assert "memory" not in record
    assert "crypto" not in record
    assert "no-such-tool" not in record["versions"]


def test_the_driver_of_an_algorithm_is_the_one_that_the_kernel_prefers() -> None:
    assert environment._crypto(CRYPTO) == {"xts(aes)": {"driver": "xts-aes-vaes-avx512", "priority": 800}}


def test_a_loop_device_is_told_with_what_holds_its_file(tmp_path: Path) -> None:
    (device,) = environment.record([LoopDevice(2**30)], directory=tmp_path)["devices"]
    assert device["size"] == 2**30
    assert device["filesystem"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    try:
        os.close(os.open(tmp_path / "file", os.O_RDWR | os.O_DIRECT))
    except OSError:
        assert device["direct_io"] is False
    else:
        assert device["direct_io"] is True


def test_a_directory_has_the_filesystem_of_the_innermost_mount() -> None:
    (device,) = environment.record([DirectoryDevice(Path("/proc"))])["devices"]
    assert device["filesystem"] == "proc"


def test_a_disk_is_told_by_sysfs() -> None:
    disk = next((path for path in sorted(Path("/sys/block").iterdir()) if Path("/dev", path.name).exists()), None)
    if disk is None:
        pytest.skip("no block device is visible here")
    (device,) = environment.record([DiskDevice(Path("/dev", disk.name), False)])["devices"]
    assert device.get("size", 0) == int((disk / "size").read_text()) * 512
    assert "rotational" in device


def test_the_corpus_is_told_by_size(tmp_path: Path) -> None:
    corpus = Corpus("generated", tmp_path / "corpus.tar", files=5000, directories=10, links=3, bytes=80, sample={})
    assert environment.corpus_facts(corpus) == {"name": "generated", "files": 5000, "bytes": 80}


def test_versions_of_the_tools_that_are_named(tools: Path) -> None:
    script(tools / "plain", 'echo "plain ($1) 1.2.3"; echo more 4')
    script(tools / "chatty", 'echo "hello" >&2; echo "chatty 7.0" >&2; exit 1')
    script(tools / "mute", "exit 0")
    versions = environment.record(tools=["plain", "chatty", "mute"])["versions"]
    assert versions["plain"] == "plain (--version) 1.2.3"
    assert versions["chatty"] == "chatty 7.0"
    assert "mute" not in versions


def test_a_tool_is_asked_in_the_same_way_whatever_its_path(tools: Path) -> None:
    for name in "gocryptfs", "mkfs.ext4-1.46", "mkfs.vfat":
        script(tools / name, 'echo "$1 2.4"')
    paths = [str(tools / name) for name in ("gocryptfs", "mkfs.ext4-1.46", "mkfs.vfat")]
    versions = environment.record(tools=[*paths, "mkfs.ext4-1.46"])["versions"]
    assert versions[paths[0]] == "-version 2.4"
    assert versions[paths[1]] == versions["mkfs.ext4-1.46"] == "-V 2.4"
    assert paths[2] not in versions, "what it answers is no version"


def test_a_tool_that_hangs_is_left_out(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_PATIENCE", 0.3)
    script(tools / "hangs", "exec sleep 600")
    script(tools / "broken", "")
    (tools / "broken").write_bytes(b"\x7fELF nonsense")
    start = time.monotonic()
    assert not {"hangs", "broken"} & set(environment.record(tools=["hangs", "broken"])["versions"])
    assert time.monotonic() - start < 300


def test_the_tools_are_those_of_the_needs() -> None:
    assert environment.tools_of([Root("mounting"), Tool("a", "p"), Tool("b", "p"), Tool("a", "p")]) == ["a", "b"]


def test_the_machine_and_its_disks_are_told_by_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serial = "S4EVNX0N123456"
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "serial").write_text(f"{serial}  \n")
    serial_hash = environment._serial_hash(tmp_path)
    assert serial_hash == identity.hashed(serial)
    assert serial not in json.dumps(serial_hash)
    assert environment._serial_hash(tmp_path / "nothing") is None
    assert environment.record().get("machine_id") == identity.machine_id()


def test_a_tool_that_leaves_its_output_open_holds_nothing_up() -> None:
    words = ["sh", "-c", "sleep 600 & echo started; sleep 600"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, text=True)
    start = time.monotonic()
    try:
        assert environment._version_output(process, 0.5) is None
        assert time.monotonic() - start < 300
    finally:
        os.killpg(process.pid, signal.SIGKILL)
