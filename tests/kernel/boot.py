"""Debian kernels, and guests of them that run a command as root.

The machine is virtme-ng's, in software emulation: commands take ten to a hundred times longer than on the host.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.images import Kernel, resolve
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.workloads.data.corpus import cache_directory
from tests.toolkit import chains_of

ROOT = Path(__file__).parents[2]
KERNEL_PACKAGE = "linux-image-amd64"
#: The kernel with ntfs3 and bcachefs.
NEWER = "linux-image-6.12-amd64"

#: A pytest of the host that starts others in guests, with no plugins but what that takes: each file of a plugin is read
#: from the host, and run in emulation.
PYTEST = (sys.executable, "-m", "pytest", "-p", "xdist", "-p", "benchmark", "-p", "fsstack")


def pytest_environment() -> dict[str, str]:
    """Return the environment of `PYTEST`, which does not take itself for a worker where it is started by one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return {**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class GuestError(RuntimeError):
    """A guest whose command did not run to its end, or a kernel that cannot be had. The message has the reason."""


class MissingError(GuestError):
    """A machine that lacks the tools for guests, or a kernel that not all releases of Debian have."""


def kernels() -> Path:
    """Return the directory of unpacked kernels."""
    return cache_directory() / "kernels"


def kernel(package: str = KERNEL_PACKAGE) -> Path:
    """Return the image of a Debian kernel package, unpacked (not installed) with its modules. Raises `GuestError`."""
    if reasons := needs.missing([*vm.NEEDS, needs.Tool("apt-get", "apt")]):
        raise MissingError("; ".join(reasons))
    # linux-image-amd64 only depends on the package of the kernel.
    code, listing, errors = commands.ended("apt-cache", "depends", "--important", package)
    if code:
        # In CI, tests of a kernel must not be skipped from one day to the next.
        kind = GuestError if package == KERNEL_PACKAGE or "CI" in os.environ else MissingError
        raise kind(f"no package {package}: {errors.strip()} (`apt-get update`?)")
    depends = (line.partition("Depends: ")[2] for line in listing.splitlines())
    name = next((name for name in depends if name.startswith("linux-image-")), package)
    home = kernels() / name
    if not home.exists():
        kernels().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kernels(), prefix=f".{name}-") as scratch:
            # APT's own user may not enter a cache in somebody's home.
            try:
                commands.run("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name, cwd=Path(scratch))
            except commands.CommandError as error:
                raise GuestError(f"{error}\n(`apt-get update`, or no network?)") from None
            (archive,) = Path(scratch).glob("*.deb")
            unpacked = resolve(str(archive), Path(scratch)).image
            assert unpacked
            with contextlib.suppress(OSError):  # another session was faster, and its files are the same
                unpacked.parents[1].rename(home)
    image = resolve(str(home), kernels()).image
    assert image
    return image


def kernel_or_skip(package: str = KERNEL_PACKAGE) -> Path:
    """Return the image of a Debian kernel package, or skip the test if this machine lacks it."""
    try:
        return kernel(package)
    except MissingError as error:
        pytest.skip(f"no guest of {package}: {error}")


def run_scenarios(directory: Path, *words: str) -> list[ChainResults]:
    """Run scenarios at *smoke* and in one round in a guest of the newer kernel. Return their results."""
    results = directory / "results.json"
    words = ("-p", "no:cacheprovider", "--fsstack-scale=smoke", "--fsstack-rounds=1", *words)
    guest = (f"--fsstack-kernel={kernel_or_skip(NEWER)}", "--fsstack-vm-accel=tcg", "--fsstack-vm-cpus=1")
    result = subprocess.run(
        [*PYTEST, f"--fsstack-json={results}", *guest, *words],
        cwd=ROOT,
        env=pytest_environment(),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr
    return chains_of(results)


def run(
    vmlinuz: Path,
    argv: Sequence[str],
    *,
    directory: Path,
    disk_size: int,
    timeout: float = 600.0,
    env: Mapping[str, str] | None = None,
    disks: int = 1,
) -> subprocess.CompletedProcess[str]:
    """Run `argv` as root in a guest of this kernel, and return its exit code, stdout and stderr. Raises `GuestError`.

    It works in a copy of the directory in memory. What it writes to `vm.RESULTS` is in `results` of the directory
    afterwards. `env` is all that it gets besides PATH, HOME, LANG and a TMPDIR in
    memory. `timeout` includes the boot: 25 s, or a minute on a busy host.
    """
    # As many guests run at a time as most machines have processors; a second one for each would only wait.
    machine = vm.Machine(Kernel(vmlinuz.name, vmlinuz), directory.resolve(), cpus=1, disks=disks)
    environment = {**vm.guest_environment(passed=()), **(env or {})}
    with vm.Guest(machine, argv, disk_size=disk_size, env=environment) as guest:
        stdout, stderr, in_time = guest.communicate(timeout)
        if not in_time or not guest.ended:
            outcome = "went down" if in_time else f"did not end within {timeout:g} s"
            last = "\n".join([*stdout.splitlines(), *stderr.splitlines()][-30:])
            raise GuestError(f"{guest.story(f'{shlex.join(argv)}: {outcome}')}\n--- the command's last lines\n{last}")
        guest.copy_results(directory / "results")
    return subprocess.CompletedProcess(list(argv), guest.process.returncode, stdout, stderr)
