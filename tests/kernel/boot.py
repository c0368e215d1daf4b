#!/usr/bin/env python3
"""Run a command as root on a Debian kernel, in an emulated machine that sees this host's files.

    tests/kernel/boot.py --cwd . -- /path/to/venv/bin/python -m pytest tests/real --fsstack-device=/dev/vda

The guest's `/` is the host's, read-only; the usual top directories have a layer in memory over them, so the guest may
write there and the host stays as it was. Only `cwd` is shared for writing. `/dev/vda` is a blank disk of its own.

The machine is virtme-ng's, in software emulation: commands take ten to a hundred times longer than on the host.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.images import Kernel
from pytest_fsstack.machine.commands import search_path

# The commands that are not on every Debian, and the packages that hold them.
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "udevadm": "udev",
    "depmod": "kmod",
    "busybox": "busybox-static",
    "file": "file",
}
APT_PACKAGES = tuple(TOOLS.values())
PIP_PACKAGES = ("virtme-ng",)

KERNEL_PACKAGE = "linux-image-amd64"
DISK_SIZE = 2 << 30
TIMEOUT = 600.0
MEMORY = "2G"


#: A pytest of the host that starts others in guests, with no plugins but what that takes: each file of a plugin is read
#: from the host, and run in emulation.
PYTEST = (sys.executable, "-m", "pytest", "-p", "xdist", "-p", "benchmark", "-p", "fsstack")


def pytest_environment() -> dict[str, str]:
    """The environment of `PYTEST`, which does not take itself for a worker where it is started by one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return {**env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


class GuestError(RuntimeError):
    """The command did not run to its end in a guest: what was tried, what was seen, what to do."""


class Missing(GuestError):  # noqa: N818 - nothing went wrong
    """This machine lacks something that a guest needs: what, and how to get it."""


def cache_directory() -> Path:
    """Where kernels are kept unless the caller says otherwise."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pytest-fsstack" / "kernels"


def kernel(cache: Path, package: str = KERNEL_PACKAGE) -> Path:
    """The vmlinuz of a Debian kernel package, unpacked (not installed) in `cache` with its modules beside it."""
    require("apt-get", "apt-cache", "dpkg", "depmod")
    image = image_package(package)
    home = cache.absolute() / image
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".{image}-") as scratch:
            unpacked = unpack(image, Path(scratch))
            with contextlib.suppress(OSError):  # somebody else was first: theirs is as good
                unpacked.rename(home)
    return vmlinuz_in(home)


def image_package(package: str) -> str:
    """The package that holds the kernel: linux-image-amd64 only depends on it."""
    listing = tool("apt-cache", "depends", "--important", package, hint="`apt-get update`, or another package name?")
    depends = (line.partition("Depends: ")[2] for line in listing.splitlines())
    return next((name for name in depends if name.startswith("linux-image-")), package)


def unpack(package: str, scratch: Path) -> Path:
    """Download a package and spread it out in `scratch`, with the index of modules that its postinst would make."""
    # APT's own user may not enter a cache in somebody's home.
    options = ("-q", "-o", "APT::Sandbox::User=root")
    tool("apt-get", *options, "download", package, cwd=scratch, hint="`apt-get update`, or no network?")
    (archive,) = scratch.glob("*.deb")
    root = scratch / "root"
    tool("dpkg", "-x", str(archive), str(root))
    release = vmlinuz_in(root).name.removeprefix("vmlinuz-")
    base = root if (root / "lib/modules").is_dir() else root / "usr"  # trixie's packages are usr-merged
    tool("depmod", "-b", str(base), release)
    root.chmod(0o755)
    return root


def vmlinuz_in(home: Path) -> Path:
    images = sorted(home.glob("boot/vmlinuz-*"))
    if len(images) != 1:
        raise GuestError(f"{home} holds {len(images)} kernels, expected one: remove it, or name another package")
    return images[0]


def run(
    vmlinuz: Path,
    argv: Sequence[str],
    *,
    disk_size: int = DISK_SIZE,
    timeout: float = TIMEOUT,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    memory: str = MEMORY,
    disks: int = 1,
) -> subprocess.CompletedProcess[str]:
    """Run `argv` as root in a guest of this kernel and return its exit status, stdout and stderr.

    `cwd` (the current directory by default) is where it runs and the only place where what it writes remains.
    `env` is all it gets besides PATH, HOME, LANG and a TMPDIR in memory. `timeout` includes the boot: 25 s, or a minute
    on a busy host. Nothing outlives the call: the guest dies with the *thread* that called, whatever kills that.
    """
    check()
    vmlinuz, cwd = vmlinuz.resolve(), (cwd or Path.cwd()).resolve()
    for path in (vmlinuz, cwd, Path(argv[0])):
        if vm.is_hidden(path):
            raise GuestError(f"{path} is invisible in the guest, which has its own {', '.join(vm.HIDDEN)}")
    # As many guests run at a time as most machines have processors; a second one for each would only wait.
    machine = vm.Machine(Kernel(vmlinuz.name, vmlinuz), cwd, memory, cpus=1, disks=disks)
    environment = {**vm.guest_environment(passed=()), **(env or {})}
    with vm.Guest(machine, argv, disk_size=disk_size, env=environment) as guest:
        stdout, stderr, in_time = guest.communicate(timeout)
        if not in_time or not guest.ended:
            status = guest.process.returncode
            outcome = (
                f"did not end (virtme-run: exit status {status})" if in_time else f"was stopped after {timeout:g} s"
            )
            raise GuestError(story(argv, vmlinuz, outcome, guest.console, stdout, stderr))
    return subprocess.CompletedProcess(list(argv), guest.process.returncode, stdout, stderr)


def check() -> None:
    """Raise `Missing` where no guest can run here."""
    if os.geteuid() != 0:
        raise Missing("the guest's root is the host's, with the host's permissions: run this as root")
    require(*TOOLS, "setpriv", "unshare")
    try:
        vm.virtme_run()
    except FileNotFoundError as error:
        raise Missing(str(error)) from None


def require(*names: str) -> None:
    missing = [name for name in names if shutil.which(name, path=search_path()) is None]
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(APT_PACKAGES)}"
        raise Missing(f"missing: {', '.join(missing)}. On Debian: {install}")


def tool(*argv: str, cwd: Path | None = None, hint: str = "") -> str:
    """Run a command of the host for its output."""
    env = {**os.environ, "PATH": search_path(), "LC_ALL": "C"}
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip() or done.stdout.strip()
        raise GuestError(f"{shlex.join(argv)}: exit status {done.returncode}: {said}" + (f"\n({hint})" if hint else ""))
    return done.stdout


def story(
    argv: Sequence[str],
    vmlinuz: Path,
    outcome: str,
    said: str,
    stdout: str,
    stderr: str,
) -> str:
    """A failure as a reader wants it: how far the guest came, and the last lines of all that it said."""
    if vm.STARTED in said:
        stage = "the guest had booted and the command had started"
    elif said:
        stage = "the guest had not finished booting"
    else:
        stage = "the guest's kernel had not said a word: is it a kernel, and is the memory enough?"
    parts = [f"{shlex.join(argv)} on {vmlinuz.name} {outcome}; {stage}"]
    parts.extend(line for line in said.splitlines() if "Kernel panic" in line)  # its trace is longer than the tail
    for name, content in (("stdout", stdout), ("stderr", stderr), ("console", said)):
        if content.strip():
            parts.append(f"--- {name} (last lines)")
            parts.extend(content.splitlines()[-30:])
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--package", default=KERNEL_PACKAGE, help="Debian package of the kernel (default: %(default)s)")
    parser.add_argument("--cache", type=Path, default=cache_directory(), help="kernels (default: %(default)s)")
    parser.add_argument("--vmlinuz", type=Path, help="a kernel image with its modules beside it, instead of a package")
    parser.add_argument("--disk-size", type=int, default=DISK_SIZE, metavar="BYTES", help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="SECONDS", help="default: %(default)g")
    parser.add_argument("--cwd", type=Path, help="where the command runs and may write (default: here)")
    parser.add_argument("command", nargs="*", help="what to run in the guest; put -- before it")
    options = parser.parse_args()
    if not options.command:
        parser.error("what shall run in the guest? Put -- and a command at the end")
    try:
        vmlinuz = options.vmlinuz or kernel(options.cache, options.package)
        done = run(vmlinuz, options.command, disk_size=options.disk_size, timeout=options.timeout, cwd=options.cwd)
    except GuestError as error:
        print(f"boot: {error}", file=sys.stderr)
        return 125  # as env, timeout and docker say "the command itself was not run"
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
