"""Scrubs: read all data of a layer while it is in use, and verify it by checksums or copies."""

from __future__ import annotations

import functools
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from pytest_fsstack.machine import descriptors, signals
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.places import CheckResult

#: From linux/btrfs.h. The command `btrfs scrub` would leave its state in /var/lib/btrfs.
_BTRFS_IOC_SCRUB = 0xC400941B
#: struct btrfs_ioctl_scrub_args: device, start, end, flags; then struct btrfs_scrub_progress, all 64 bits.
_SCRUB_ARGS = struct.Struct("=4Q15Q872x")
_PROGRESS = (
    *("data extents", "tree extents", "data bytes", "tree bytes", "read errors", "csum errors", "verify errors"),
    *("without csum", "csums without data", "super errors", "malloc errors", "uncorrectable errors"),
    *("corrected errors", "last place", "unverified errors"),
)
_AT_ONCE = 1 << 20


def btrfs(machine: Machine, path: Path, devices: Iterable[int]) -> CheckResult:
    """Scrub the devices of a mounted Btrfs one by one. Data with a good copy is corrected."""
    counts: Counter[str] = Counter()
    for device in devices:
        request = bytearray(_SCRUB_ARGS.pack(device, 0, (1 << 64) - 1, *bytes(16)))
        machine.ioctl(path, _BTRFS_IOC_SCRUB, request)
        counts.update(dict(zip(_PROGRESS, _SCRUB_ARGS.unpack(request)[4:])))
    wrong = [f"{count} {what}" for what, count in counts.items() if what.endswith("errors") and count]
    return CheckResult(not wrong, ", ".join(wrong) or "no errors")


def xfs(machine: Machine, path: Path) -> CheckResult | None:
    """Check the metadata of a mounted XFS without changes. None if the tool or the kernel has no such check."""
    if machine.which("xfs_scrub") is None:
        return None
    code, stdout, stderr = machine.ended("xfs_scrub", "-n", path)
    # Exit codes of xfs_scrub(8): 1 for errors, 2 for possible optimisations, 4 or 8 for failures.
    return None if code & ~3 else CheckResult(not code & 1, (stdout + stderr).strip())


def zfs(machine: Machine, pool: str) -> CheckResult:
    """Scrub an imported pool. Data with a good copy is corrected."""
    status = functools.partial(machine.run, "zpool", "status", "-v", pool)
    machine.run("zpool", "scrub", pool)
    wait_for(machine, pool, lambda: "in progress" not in status())
    return zpool_status(status())


def zpool_status(output: str) -> CheckResult:
    """Parse the output of `zpool status` about a scrubbed pool."""
    counts = re.findall(r"^\t.* [A-Z]+ +(\S+) +(\S+) +(\S+)", output, re.MULTILINE)
    damaged = any(set(columns) - {"0"} for columns in counts if columns != ("READ", "WRITE", "CKSUM"))
    clean = "errors: No known data errors" in output and not damaged and bool(counts)
    return CheckResult(clean, output.strip())


def raid(machine: Machine, device: Path) -> CheckResult:
    """Compare all copies, or parity with data, of a dm-raid array. It is unknown which of two copies is right.

    Unreadable blocks of a device are rewritten from the others.
    """
    name = machine.mapping_name(device)
    if not name:
        raise OSError(f"{device} is no longer an array of the device-mapper")
    machine.run("dmsetup", "message", name, "0", "check", env=machine.mapper_environment())
    wait_for(machine, name, lambda: _raid_status(machine, name)[2] != "check")
    health, _, _, mismatches = _raid_status(machine, name)
    clean = mismatches == "0" and not health.strip("A")
    return CheckResult(clean, f"{mismatches} sectors differ, devices {health}")


def _raid_status(machine: Machine, name: str) -> list[str]:
    """Return the health, the ratio, the action and the number of mismatches of a dm-raid array.

    Documentation/admin-guide/device-mapper/dm-raid.rst: start, length, "raid", type, devices, then these.
    """
    return machine.run("dmsetup", "status", name).split()[5:9]


def wait_until_raid_is_synchronised(machine: Machine, name: str) -> None:
    """Wait until all copies, or the parity, of a new dm-raid array are written. Raises OSError."""

    def synchronised() -> bool:
        signals.safe_point()
        health, ratio, action, _ = _raid_status(machine, name)
        done, whole = map(int, ratio.split("/"))
        if action == "frozen" or "D" in health:
            raise OSError(f"{name} will not be synchronised: {ratio} sectors, {action}, devices {health}")
        return done == whole and action == "idle"

    if not machine.wait_until(synchronised, 24 * 3600.0):
        raise OSError(f"{name} was not synchronised within a day")


def wait_for(machine: Machine, name: object, ended: Callable[[], bool]) -> None:
    """Wait for background work of a layer. Raises OSError, and the exception for a signal that ends the session."""

    def is_over() -> bool:
        signals.safe_point()
        return ended()

    if not machine.wait_until(is_over, machine.limit):
        raise OSError(
            f"the synchronisation, scrub or rebuild of {name} has not ended within {machine.limit:g} s "
            "(--fsstack-timeout)"
        )


def readable(device: Path) -> CheckResult:
    """Read a whole device whose sectors have checksums."""
    bad: list[str] = []
    for offset in range(0, descriptors.size_of_device(device), _AT_ONCE):
        signals.progress()
        signals.safe_point()
        try:
            descriptors.read_direct(device, offset, _AT_ONCE)
        except TimeoutError:
            raise
        except OSError as error:
            bad.append(f"{error.strerror} in the MiB at {offset}")
    return CheckResult(not bad, "; ".join(bad) or "all can be read")
