"""A machine of its own for a command: virtme-ng boots a kernel on the host's own root.

The guest's `/` is the host's, read-only, with layers in memory over the usual top directories; only the working
directory is shared for writing. /dev/vda is a blank disk of its own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack import host
from pytest_fsstack.hosts.kernels import Kernel
from pytest_fsstack.needs import Need, Root, Tool

#: What the guest may write to without the host noticing. virtme-ng mounts an empty tmpfs on those that are `HIDDEN`.
OVERLAID = ("/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/var")
HIDDEN = ("/dev", "/proc", "/run", "/sys", "/var/cache", "/var/log", "/var/tmp")

#: Written to the guest's console, at a level that nothing hides: proof of how far it came.
STARTED = "fsstack: command started"
ENDED = "fsstack: command ended"

#: The command travels through QEMU's firmware configuration: the kernel's command line has no room for it.
_COMMAND = "opt/fsstack/command"

DISK = "/dev/vda"

NEEDS: tuple[Need, ...] = (
    Root("booting a kernel"),
    Tool("qemu-system-x86_64", "qemu-system-x86", {"dnf": "qemu-system-x86-core", "pacman": "qemu-system-x86"}),
    Tool("udevadm", "udev", {"dnf": "systemd-udev", "pacman": "systemd", "zypper": "udev"}),
    Tool("depmod", "kmod"),
    Tool("busybox", "busybox-static", {"dnf": "busybox", "pacman": "busybox", "zypper": "busybox-static"}),
    Tool("file", "file"),
    Tool("setpriv", "util-linux"),
)


@dataclass(frozen=True)
class Machine:
    """What a guest gets: kernel, memory as QEMU writes it (2G), CPUs, KVM or emulation, the writable directory."""

    kernel: Kernel
    directory: Path
    memory: str = "2G"
    cpus: int = 2
    kvm: bool = False

    def argv(self, *, disk: int, console: int, command: int) -> list[str]:
        """The command that boots it: descriptors of its disk image, its console's log, and the script that it runs.

        virtme-run rather than vng, which passes its arguments through a shell and closes the descriptors.
        """
        start = f"modprobe qemu_fw_cfg; exec /bin/sh /sys/firmware/qemu_fw_cfg/by_name/{_COMMAND}/raw"
        return [
            *_leash(),
            virtme_run(),
            *self.kernel.arguments(),
            *([] if self.kvm else ["--disable-kvm"]),
            *("--memory", self.memory, "--cpus", str(self.cpus)),
            *(f"--overlay-rwdir={path}" for path in OVERLAID if Path(path).is_dir()),
            f"--rwdir={self.directory}",
            *("--script-sh", start, "--kopt", "loglevel=7"),
            *("-q=-fw_cfg", f"-q=name={_COMMAND},file=/proc/self/fd/{command}"),
            *("-q=-set", f"-q=chardev.console.path=/proc/self/fd/{console}"),  # else /dev/null
            # A probed raw image refuses a LUKS1 magic written at block 0.
            *("-q=-drive", f"-q=file=/proc/self/fd/{disk},format=raw,cache=none,if=virtio"),
        ]


def environment() -> dict[str, str]:
    """The environment of virtme-run itself; /var/tmp is covered by the leash, and so are its temporary files."""
    return {**os.environ, "PATH": host.search_path(), "TMPDIR": "/var/tmp"}


def script(argv: Sequence[str], directory: Path, env: Mapping[str, str], *, stdin: bool) -> str:
    """What the guest's shell runs: the command in its directory and environment, between two marks on the console."""
    words = [f"{name}={value}" for name, value in env.items()]
    return "\n".join(
        (
            f"echo '<0>{STARTED}' >/dev/kmsg",
            f"cd {shlex.quote(str(directory))} && env -i {shlex.join([*words, *argv])}{'' if stdin else ' </dev/null'}",
            "status=$?",
            f"echo '<0>{ENDED}' >/dev/kmsg",
            "exit $status",
            "",
        )
    )


def guest_environment(passed: Iterable[str] = ("PYTEST_", "PYTHON", "XDG_CACHE_HOME", "VIRTUAL_ENV")) -> dict[str, str]:
    """What a command in the guest gets: a PATH, a home, a temporary directory in memory, and what concerns Python."""
    return {
        **{name: value for name, value in os.environ.items() if name.startswith(tuple(passed))},
        "PATH": host.search_path(),
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "TMPDIR": "/var/tmp",  # a tmpfs; /tmp is an overlay
    }


def virtme_run() -> str:
    """The path of virtme-run: beside this Python, or on the search path. Raises FileNotFoundError."""
    found = shutil.which("virtme-run", path=str(Path(sys.executable).parent)) or host.which("virtme-run")
    if found is None:
        raise FileNotFoundError("virtme-run is not installed: pip install pytest-fsstack[kernel]")
    return found


def hidden(path: Path) -> bool:
    """Whether the guest has something of its own in place of this path."""
    return any(path.is_relative_to(place) for place in HIDDEN)


def _leash() -> list[str]:
    """Makes the whole tree of processes die with its parent, and its temporary files with it.

    A PID namespace does not survive its first process, nor a mount namespace its last. Slave propagation pins no mount
    of the host.
    """
    return [
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--"),
        *("sh", "-c", 'mount -t tmpfs fsstack /var/tmp && exec "$@"', "sh"),
    ]


def accelerate(wish: str, kernel: Kernel, seconds: float = 40.0) -> bool:
    """Whether guests run on KVM: as wished (``kvm``, ``tcg``), or, for ``auto``, if one that tries boots in time.

    A device /dev/kvm says little: there are machines on which guests then hang. The answer is kept until the kernel or
    QEMU is another one.
    """
    if wish != "auto":
        return wish == "kvm"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    import hashlib
    import platform

    from pytest_fsstack.corpus import cache_directory

    versions = f"{platform.release()} {host.run('qemu-system-x86_64', '--version')}"
    answer = cache_directory() / f"kvm-{hashlib.sha256(versions.encode()).hexdigest()[:16]}"
    if not answer.exists():
        answer.parent.mkdir(parents=True, exist_ok=True)
        answer.write_text("kvm" if _boots_on_kvm(kernel, seconds) else "tcg")
    return answer.read_text() == "kvm"


def _boots_on_kvm(kernel: Kernel, seconds: float) -> bool:
    import subprocess
    import tempfile

    with (
        tempfile.TemporaryFile(dir="/var/tmp") as disk,
        tempfile.TemporaryFile() as console,
        tempfile.TemporaryFile() as command,
    ):
        disk.truncate(1 << 20)
        command.write(script(["true"], Path.cwd(), {}, stdin=False).encode())
        command.flush()
        fds = {"disk": disk.fileno(), "console": console.fileno(), "command": command.fileno()}
        try:
            subprocess.run(
                Machine(kernel, Path.cwd(), "1G", 1, kvm=True).argv(**fds),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=list(fds.values()),
                env=environment(),
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return False
        return ENDED.encode() in os.pread(console.fileno(), 1 << 20, 0)
