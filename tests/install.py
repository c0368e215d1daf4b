"""Install what the tests need beside the plugin's own layers, on Debian, as root: ``python -m tests.install``."""

from __future__ import annotations

import os
import subprocess
import sys

from pytest_fsstack.machine import commands
from tests.kernel.boot import KERNEL_PACKAGE, TOOLS

#: Tools of the tests themselves, and the packages that hold them: partitions, an LVM for the guard to find, and what an
#: example makes a layer of.
OF_TESTS = {"sfdisk": "fdisk", "partx": "util-linux", "pvcreate": "lvm2", "fuse-overlayfs": "fuse-overlayfs"}


def main() -> int:
    """Returns the exit code of what installs; what is missing is skipped by its tests, with the reason."""
    missing = [package for tool, package in {**TOOLS, **OF_TESTS}.items() if commands.which(tool) is None]
    if commands.which("apt-get") is None or os.geteuid() != 0:
        print(f"missing: {', '.join(missing) or 'nothing'}; only root can install it, and with apt-get")
        return 1 if missing else 0
    env = {**os.environ, "PATH": commands.search_path(), "DEBIAN_FRONTEND": "noninteractive"}
    known = subprocess.run(["apt-cache", "show", KERNEL_PACKAGE], env=env, capture_output=True).returncode == 0
    if missing or not known:
        subprocess.run(["apt-get", "update"], env=env)
    if not missing:
        return 0
    return subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
