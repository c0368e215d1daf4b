"""The environment of a session, read from the machine. Unreadable facts are left out."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fsstack import version
from pytest_fsstack.machine import blockdev, commands, identity, mounts
from pytest_fsstack.machine.needs import Need, Tool

if TYPE_CHECKING:
    from pytest_fsstack.stack.model import Device
    from pytest_fsstack.workloads.data.archive import Corpus

Facts = dict[str, Any]

_PACKAGES = ("pytest", "pytest-benchmark", "pytest-xdist", "numpy", "scipy")
#: For tools without --version.
_VERSION_OPTIONS = {
    **dict.fromkeys(("mkfs.ext2", "mkfs.ext3", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fusermount"), "-V"),
    **dict.fromkeys(("mkfs.f2fs", "mkfs.nilfs2", "mkfs.reiserfs"), "-V"),
    "gocryptfs": "-version",
}
#: Algorithms of disk encryption and filesystem checksums.
_CRYPTO = re.compile(r"aes|serpent|twofish|camellia|sm4|adiantum|chacha|blake2b-256|sha256|crc32c|xxhash64")
#: Names of kernel parameters that may identify the machine or give access to it, and parts of values that do: addresses
#: in a network, and users.
_PRIVATE = re.compile(
    r".*(host|pass|secret|token|key|cred|auth|uuid|username|machine_id|initiator).*|ip|nfsroot|bootif", re.I
)
_ADDRESS = re.compile(r"uuid=|://|@|\d+\.\d+\.\d+\.\d+|([0-9a-f]{2}[:-]){5}", re.I)
#: Tools that are not asked for a version. dmsetup creates /dev/mapper/control even then. The others print misleading
#: numbers.
_WITHOUT_VERSION = ("dmsetup", "mkfs.vfat", "zfs-fuse")
#: Seconds. A busy machine needs some to start so many commands.
_PATIENCE = 15.0
#: Facts about the disk below a filesystem. The size is left out, because it is not that of the stacks.
_DISK_FACTS = ("model", "serial_hash", "scheduler", "rotational", "read_ahead")


def record(
    devices: Iterable[Device] = (),
    *,
    directory: Path | None = None,
    tools: Iterable[str] = (),
) -> Facts:
    """Return all known facts about this machine as JSON data, with sizes in bytes.

    `directory` is where the files of loop devices are. `tools` are the commands whose versions matter. The load is the
    current one, so call this before the first stack is built. Host names and secrets are left out. The machine's id and
    serial numbers are hashed.
    """
    facts = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine_id": identity.machine_id(),
        "kernel": _known_facts(
            release=platform.release(), version=platform.version(), command_line=_command_line(), taint=_taint()
        ),
        "cpu": _cpu(),
        "memory": _memory(),
        "load": _load(),
        **crypto_facts(),
        "devices": [_device(device, directory) for device in devices],
        "versions": {**_packages(), **_tools(tools)},
    }
    return _known_facts(**facts)


def tools_of(needs: Iterable[Need]) -> list[str]:
    """Return the commands among the requirements of layers and workloads, for `record`."""
    return list(dict.fromkeys(need.command for need in needs if isinstance(need, Tool)))


def crypto_facts() -> Facts:
    """Return the kernel's drivers of ciphers. It lists a cipher from its first use on, which may be in the session."""
    return _known_facts(crypto=_crypto(_read("/proc/crypto") or ""))


def corpus_facts(corpus: Corpus) -> Facts:
    """Return the facts about the corpus for reports. `record` runs before a test uses a corpus."""
    return {"name": corpus.name, "files": corpus.files, "bytes": corpus.bytes}


def _known_facts(**facts: Any) -> Facts:
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


# -- the machine -------------------------------------------------------------------------------------------------------


def _command_line() -> str | None:
    text = _read("/proc/cmdline")
    return text and re.sub(r'([\w.-]+)=("[^"]*"|\S+)', _without_private, text)


def _without_private(parameter: re.Match[str]) -> str:
    name, value = parameter.groups()
    return f"{name}=..." if _PRIVATE.fullmatch(name) or _ADDRESS.search(value) else parameter[0]


def _taint() -> int | None:
    """Return the kernel's taint bits, which show foreign modules among others. None if untainted."""
    text = _read("/proc/sys/kernel/tainted")
    return (int(text) or None) if text else None


def _cpu() -> Facts:
    fields = _fields(_read("/proc/cpuinfo") or "", until="")
    flags = fields.get("flags", fields.get("Features", "")).split()
    vulnerabilities = Path("/sys/devices/system/cpu/vulnerabilities")
    names = sorted(path.name for path in vulnerabilities.iterdir()) if vulnerabilities.is_dir() else []
    return _known_facts(
        model=fields.get("model name") or fields.get("Model") or platform.machine(),
        count=len(os.sched_getaffinity(0)),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        aes_instructions="aes" in flags if flags else None,
        virtual="hypervisor" in flags if flags else None,
        mitigations=_known_facts(**{name: _read(vulnerabilities / name) for name in names}),
    )


def _fields(text: str, until: str | None = None) -> dict[str, str]:
    """Parse ``name : value`` lines, up to the line `until`."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() == until:
            break
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    return fields


def _memory() -> int | None:
    words = _fields(_read("/proc/meminfo") or "").get("MemTotal", "").split()
    return int(words[0]) * 1024 if words else None


def _load() -> list[float] | None:
    try:
        return [round(load, 2) for load in os.getloadavg()]
    except OSError:
        return None


def _crypto(text: str) -> dict[str, Facts]:
    """Return the driver that the kernel uses for each algorithm: the one with the highest priority."""
    drivers: dict[str, Facts] = {}
    for block in text.split("\n\n"):
        fields = _fields(block)
        name, priority = fields.get("name", ""), fields.get("priority", "")
        if _CRYPTO.search(name) and priority.isdecimal() and fields.get("internal") != "yes":
            driver = {"driver": fields.get("driver", ""), "priority": int(priority)}
            if name not in drivers or drivers[name]["priority"] < driver["priority"]:
                drivers[name] = driver
    return dict(sorted(drivers.items()))


# -- devices -----------------------------------------------------------------------------------------------------------


def _device(device: Device, directory: Path | None) -> Facts:
    from pytest_fsstack.devices import DeviceGroup, DirectoryDevice, DiskDevice, LoopDevice

    facts: Facts = {"spec": device.spec, "size": getattr(device, "size", None)}
    if isinstance(device, DiskDevice):
        with contextlib.suppress(OSError):
            facts.update(_disk(os.stat(device.path).st_rdev))
    elif isinstance(device, DeviceGroup):
        facts["devices"] = [_device(member, directory) for member in device.members]
    elif isinstance(device, LoopDevice) and directory:
        facts.update(_holder(directory), direct_io=_takes_direct_io(directory))
    elif isinstance(device, DirectoryDevice):
        facts.update(_holder(device.path))
    return _known_facts(**facts)


def _disk(number: int) -> Facts:
    """Return the facts about a block device in sysfs. Partitions have the queue and model of their disk."""
    device = Path("/sys/dev/block", blockdev.major_minor(number))
    if not device.exists():
        return {}
    whole = blockdev.whole(device.resolve())
    sectors, rotational = _read(device / "size"), _read(whole / "queue/rotational")
    read_ahead = _read(whole / "queue/read_ahead_kb")
    scheduler = re.search(r"\[(\S+)\]", _read(whole / "queue/scheduler") or "")
    return _known_facts(
        size=int(sectors) * 512 if sectors else None,
        model=_read(whole / "device/model"),
        serial_hash=_serial_hash(whole),
        scheduler=scheduler[1] if scheduler else None,
        rotational=rotational == "1" if rotational else None,
        read_ahead=int(read_ahead) * 1024 if read_ahead else None,
    )


def _serial_hash(disk: Path) -> str | None:
    """Hash the serial number of an NVMe, virtio or MMC disk, or the world-wide name of a SCSI or SATA disk."""
    names = ("device/serial", "serial", "device/wwid", "wwid")
    serial = next(filter(None, (_read(disk / name) for name in names)), None)
    return identity.hashed(serial) if serial else None


def _holder(directory: Path) -> Facts:
    """Return the facts about a directory's filesystem and the disk below it, without the size."""
    mount = mounts.holding(directory)
    facts: Facts = {"filesystem": mount.kind, "mount_options": mount.options} if mount else {}
    with contextlib.suppress(OSError):
        disk = _disk(os.stat(directory).st_dev)
        facts.update({name: disk[name] for name in _DISK_FACTS if name in disk})
    return facts


def _takes_direct_io(directory: Path) -> bool | None:
    """Whether files there support direct I/O, which loop devices use as well."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            try:
                fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
            except OSError:
                return False
            return True
    except OSError:
        return None


# -- versions ----------------------------------------------------------------------------------------------------------


def _packages() -> dict[str, str]:
    versions = {"python": platform.python_version(), "pytest-fsstack": version.full()}
    for package in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _tools(tools: Iterable[str]) -> dict[str, str]:
    """Return the version of each installed tool. All run at once. Tools that do not answer are left out."""
    processes = {tool: process for tool in dict.fromkeys(tools) if (process := _start_version(tool))}
    until = time.monotonic() + _PATIENCE
    return _known_facts(
        **{tool: _version_output(process, until - time.monotonic()) for tool, process in processes.items()}
    )


def _tool_name(tool: str) -> str:
    """Return the known name of a tool. A stack may use a path such as /opt/e2fsprogs/mkfs.ext4-1.46."""
    name = os.path.basename(tool)
    matches = (known_tool for known_tool in (*_VERSION_OPTIONS, *_WITHOUT_VERSION) if name.startswith(known_tool))
    return max(matches, key=len, default=name)


def _start_version(tool: str) -> subprocess.Popen[str] | None:
    path = commands.which(tool)
    name = _tool_name(tool)
    if path is None or name in _WITHOUT_VERSION:
        return None
    environment: Mapping[str, str] = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.Popen(
            [path, _VERSION_OPTIONS.get(name, "--version")],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
    except OSError:
        return None


def _version_output(process: subprocess.Popen[str], patience: float) -> str | None:
    try:
        text, _ = process.communicate(timeout=max(patience, 0.01))
    except subprocess.TimeoutExpired:
        process.kill()
        # Do not wait for the end of the output: child processes may hold it open.
        commands.reap(process)
        if process.stdout is not None:
            process.stdout.close()
        return None
    lines = [line.strip() for line in text.splitlines() if re.search(r"\d", line)]
    return lines[0][:120] if lines else None
