"""Install what the tests need beside the plugin's own layers, on Debian, as root: ``python -m tests.install``."""

from __future__ import annotations

import os
import subprocess
import sys

from pytest_fsstack.machine import commands
from tests.kernel.boot import KERNEL_PACKAGE, TOOLS

#: Tools of the tests themselves, and the packages that hold them: partitions, an LVM for the guard to find, and what
#: the docs and examples make layers of; and an fsync that does nothing, for power cuts that lose data.
OF_TESTS = {
    "sfdisk": "fdisk",
    "partx": "util-linux",
    "pvcreate": "lvm2",
    "eatmydata": "eatmydata",
    "fuse-overlayfs": "fuse-overlayfs",
    "mergerfs": "mergerfs",
    "unionfs": "unionfs-fuse",
}
#: Any of these commands is a browser for the HTML report; of a browser, this is what needs no screen. Ubuntu has none
#: as a package.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER_PACKAGE = BROWSERS[0]


def browser() -> str | None:
    """The path of a browser that is installed."""
    return next(filter(None, map(commands.which, BROWSERS)), None)


def main() -> int:
    """Returns the exit code of what installs; what is missing is skipped by its tests, with the reason."""
    missing = [package for tool, package in {**TOOLS, **OF_TESTS}.items() if commands.which(tool) is None]
    if commands.which("apt-get") is None or os.geteuid() != 0:
        print(f"missing: {', '.join(missing) or 'nothing'}; only root can install it, and with apt-get")
        return 1 if missing else 0
    env = {**os.environ, "PATH": commands.search_path(), "DEBIAN_FRONTEND": "noninteractive"}

    def known(package: str) -> bool:
        return subprocess.run(["apt-cache", "show", package], env=env, capture_output=True).returncode == 0

    if missing or not browser() or not known(KERNEL_PACKAGE):
        subprocess.run(["apt-get", "update"], env=env)
    if not browser() and known(BROWSER_PACKAGE):
        missing.append(BROWSER_PACKAGE)
    if not missing:
        return 0
    return subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *missing], env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
