"""Install the requirements of the tests on Debian, as root: ``python -m tests.install``.

``python -m tests.install laboratory`` installs what all tests of the laboratory need as well. None of the services of
these packages is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pytest_fsstack import Crate
from pytest_fsstack.kernels import vm
from pytest_fsstack.machine import commands
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.machine.needs import INSTALL, Tool
from tests.kernel.boot import KERNEL_PACKAGE
from tests.laboratory import cluster, ssh

#: Tools of the tests, with their packages: partitions, an LVM that the guard must find, layers in docs and examples,
#: archives, repositories, and an fsync that does nothing, for power cuts that lose data.
OF_TESTS = {
    "sfdisk": "fdisk",
    "partx": "util-linux",
    "pvcreate": "lvm2",
    "eatmydata": "eatmydata",
    "bzip2": "bzip2",
    "xz": "xz-utils",
    "zstd": "zstd",
    "git": "git",
    "fuse-overlayfs": "fuse-overlayfs",
    "mergerfs": "mergerfs",
    "unionfs": "unionfs-fuse",
    "sshd": "openssh-server",
    "nfsdcld": "nfs-kernel-server",
    "smbd": "samba",
    "mount.cifs": "cifs-utils",
    **cluster.TOOLS,
}
#: Browsers for the HTML report, headless if possible. Ubuntu has no package of one.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER_PACKAGE = BROWSERS[0]
#: What hosts with sshd on this machine need, and a library for clocks that are wrong.
OF_LABORATORY = {**ssh.TOOLS, "faketime": "faketime"}
#: Schemas for jobs of LAVA, for Debian's own Python.
LAVA_PACKAGE, LAVA = "lava-common", Path("/usr/lib/python3/dist-packages/lava_common")
#: Services of packages. They must not start, because the tests start their own.
SERVICES = {
    "munge": ("munge",),
    "slurm-wlm": ("slurmctld", "slurmd"),
    "openssh-server": ("ssh",),
    "nfs-kernel-server": ("nfs-server",),
    "samba": ("smbd", "nmbd", "samba-ad-dc"),
}
POLICY = Path("/usr/sbin/policy-rc.d")
NO_SERVICES = "#!/bin/sh\nexit 101\n"
#: Programs that scenarios of correctness run.
CRATES = ("pjdfstest", "fsx")


def browser() -> str | None:
    """Return the path of an installed browser."""
    return next(filter(None, map(commands.which, BROWSERS)), None)


def build_crates() -> subprocess.Popen[bytes] | None:
    """Start cargo in the background for missing crates. Return None if there are none, or without cargo."""
    missing = [name for name in CRATES if Crate(name).missing()]
    cargo = commands.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))
    if not missing or cargo is None:
        return None
    # They mostly wait for the filesystem, so an optimised build would not pay off.
    return subprocess.Popen([cargo, "install", "--quiet", "--debug", *missing])


def main() -> int:
    """Return the exit code of the installation. Tests skip what could not be installed."""
    building = build_crates()
    try:
        return install_packages(OF_LABORATORY if sys.argv[1:] == ["laboratory"] else {})
    finally:
        if building:
            building.wait()


@contextlib.contextmanager
def _no_services(packages: Iterable[str], env: Mapping[str, str]) -> Iterator[None]:
    """Prevent packages from starting a service, now or at boot."""
    if POLICY.exists() and POLICY.read_text() != NO_SERVICES:
        yield
        return
    POLICY.write_text(NO_SERVICES)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
        services = [service for package in packages for service in SERVICES.get(package, ())]
        if services and commands.which("systemctl"):
            subprocess.run(["systemctl", "disable", *services], env=env, capture_output=True)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait for other runs that install. What they install, this one then finds."""
    with opened(POLICY.parent) as directory:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield


def install_packages(more: Mapping[str, str]) -> int:
    if commands.which("apt-get") is None or os.geteuid() != 0:
        missing = _missing(more)
        print(f"missing: {', '.join(missing) or 'nothing'}; only root can install it, and with apt-get")
        return 1 if missing else 0
    with _alone():
        return _install(more)


def _missing(more: Mapping[str, str]) -> list[str]:
    guests = {need.command: need.package for need in vm.NEEDS if isinstance(need, Tool)}
    needed = {**guests, **OF_TESTS, **more}
    return sorted({package for tool, package in needed.items() if commands.which(tool) is None})


def _install(more: Mapping[str, str]) -> int:
    missing = _missing(more)
    env = {**os.environ, "PATH": commands.search_path(), "DEBIAN_FRONTEND": "noninteractive"}

    def known(package: str) -> bool:
        return subprocess.run(["apt-cache", "show", package], env=env, capture_output=True).returncode == 0

    if missing or not browser() or not known(KERNEL_PACKAGE):
        subprocess.run(["apt-get", "update"], env=env)
    if not browser() and known(BROWSER_PACKAGE):
        missing.append(BROWSER_PACKAGE)
    if more and not LAVA.exists() and known(LAVA_PACKAGE):
        missing.append(LAVA_PACKAGE)
    if not missing:
        return 0
    with _no_services(missing, env):
        return subprocess.run([*INSTALL["apt"], *missing], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
