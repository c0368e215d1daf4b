"""Guests: virtme-ng boots a kernel in a VM on the root filesystem of the host, and runs a command.

The guest's `/` is that of the host, read-only, with overlays in memory on the usual top directories and the working
directory. A guest is not trusted, so it can write to no file of the host: see `kernels.results` for what it hands back.
virtme-ng covers /run, so directories there are only visible if pytest needs them. /dev/vda is a blank disk.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from pytest_fsstack.kernels import results
from pytest_fsstack.kernels.images import Kernel
from pytest_fsstack.machine import blockdev, commands, needs, reading
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Need, Root, Tool
from pytest_fsstack.units import visible

#: Directories with an overlay: writes of the guest do not reach the host. The guest has its own `HIDDEN` ones.
OVERLAID = ("/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/var")
HIDDEN = ("/dev", "/proc", "/sys")

#: virtme-ng covers /run, and works in it. `required_paths` below it are mounted again.
_RUN = Path("/run")
#: virtme-ng covers these with an empty tmpfs. The guest unmounts it, because the overlay on /var is enough.
_UNCOVERED = ("/var/cache", "/var/log", "/var/tmp")

#: Directories in the guest: for results, for temporary files (a tmpfs), and the whole root of the host.
_PLACE = _RUN / "fsstack"
RESULTS, _TEMPORARY, _ROOT = (_PLACE / name for name in ("results", "tmp", "root"))

#: Marks on the console of the guest, at a level that is never filtered. They show how far the guest came.
STARTED = "fsstack: command started"
ENDED = "fsstack: command ended"

#: The name of the command in QEMU's firmware configuration. It would be too long for the kernel's command line.
_COMMAND = "opt/fsstack/command"

DISK = blockdev.GUEST_DISK

#: Seconds for a guest to boot.
BOOT_SECONDS = 300.0


@dataclass(frozen=True)
class VirtmeRun:
    """The requirement for virtme-run, a command of virtme-ng."""

    def missing(self) -> MissingRequirement | None:
        try:
            virtme_run()
        except FileNotFoundError:
            return MissingRequirement(Missing.OTHER, "needs virtme-run", "pip install pytest-fsstack[kernel]")
        return None


NEEDS: tuple[Need, ...] = (
    Root("booting a kernel"),
    Tool("qemu-system-x86_64", "qemu-system-x86", {"dnf": "qemu-system-x86-core", "pacman": "qemu-system-x86"}),
    Tool("udevadm", "udev", {"dnf": "systemd-udev", "pacman": "systemd", "zypper": "udev"}),
    Tool("depmod", "kmod"),
    Tool("busybox", "busybox-static", {"dnf": "busybox", "pacman": "busybox", "zypper": "busybox-static"}),
    Tool("file", "file"),
    Tool("setpriv", "util-linux"),
    VirtmeRun(),
)


@dataclass(frozen=True)
class Machine:
    """The parts of a guest: kernel, working directory, memory in the form of QEMU (2G), CPUs, accelerator, disks."""

    kernel: Kernel
    directory: Path
    memory: str = "2G"
    cpus: int = 2
    kvm: bool = False
    #: The number of disks.
    disks: int = 1

    def argv(self, *, disks: Sequence[int], results: int, console: int, command: int) -> list[str]:
        """Return the command that boots the guest.

        The arguments are descriptors of its disk images, the one for results, the log of its console, and its script.
        It is virtme-run
        instead of vng, because vng passes its arguments through a shell and closes the descriptors.
        """
        uncover = f"umount {' '.join(_UNCOVERED)} 2>/dev/null"
        # udev may have missed these modules of the disk while their directory was covered.
        load = "modprobe -a qemu_fw_cfg virtio_blk"
        start = f"{uncover}; {load}; exec /bin/sh /sys/firmware/qemu_fw_cfg/by_name/{_COMMAND}/raw"
        return [
            *_contained(),
            virtme_run(),
            *self.kernel.arguments(),
            # On a busy host, an emulated timer seems broken to the kernel, which panics without no_timer_check.
            *([] if self.kvm else ["--disable-kvm", "--kopt", "no_timer_check"]),
            *("--memory", self.memory, "--cpus", str(self.cpus)),
            *(f"--overlay-rwdir={path}" for path in OVERLAID if Path(path).is_dir()),
            "--force-9p",  # older versions of virtiofsd cannot share a directory read-only
            *("--script-sh", start, "--kopt", "loglevel=7"),
            *("-q=-fw_cfg", f"-q=name={_COMMAND},file=/proc/self/fd/{command}"),
            *("-q=-set", f"-q=chardev.console.path=/proc/self/fd/{console}"),  # it would be /dev/null otherwise
            # QEMU before 8.1 merges requests to IOV_MAX buffers. It fails if they then need two more for their edges,
            # as unaligned requests do on a disk with blocks of 4 KiB.
            *("-q=-global", "-q=virtio-blk-device.request-merging=off"),
            # The guest names its disks in the order of these devices. With if=virtio, they would come after all others.
            *(word for number, disk in enumerate(disks) for word in _disk(f"disk{number}", disk)),
            *_disk("results", results, f",serial={blockdev.RESULTS_DISK}"),
        ]


def _disk(name: str, image: int, options: str = "") -> list[str]:
    """Return the words that give the guest a disk on the image with this descriptor."""
    # If QEMU probes the format, it refuses writes of a LUKS1 header to block 0.
    drive = f"file=/proc/self/fd/{image},format=raw,cache=none,if=none,id={name}"
    return ["-q=-drive", f"-q={drive}", "-q=-device", f"-q=virtio-blk,drive={name}{options}"]


def environment() -> dict[str, str]:
    """Return the environment of virtme-run, with its modules and temporary files in the workspace."""
    modules = os.pathsep.join(filter(None, (str(_WORKSPACE), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PATH": commands.search_path(), "TMPDIR": str(_WORKSPACE), "PYTHONPATH": modules}


def script(argv: Sequence[str], directory: Path, env: Mapping[str, str], *, stdin: bool) -> str:
    """Return the shell script of the guest. It runs the command in its directory and environment, between two marks."""
    words = [f"{name}={value}" for name, value in env.items()]
    return "\n".join(
        (
            f"echo '<0>{STARTED}' >/dev/kmsg",
            f"mkdir -p {RESULTS} {_TEMPORARY} && mount -t tmpfs fsstack {_TEMPORARY}",
            *_mount_again(required_paths(directory)),
            *_overlay(directory),
            f"cd {shlex.quote(str(directory))} && env -i {shlex.join([*words, *argv])}{'' if stdin else ' </dev/null'}",
            "status=$?",
            *results.hand_over(RESULTS),
            f"echo '<0>{ENDED}' >/dev/kmsg",
            "exit $status",
            "",
        )
    )


def _mount_again(paths: Iterable[Path]) -> list[str]:
    """Return the shell commands that mount directories of the host below /run again, read-only."""
    lines = [_bind_mount(_ROOT / path.relative_to("/"), path) for path in paths if path.is_relative_to(_RUN)]
    return [_bind_mount(Path("/"), _ROOT), *lines] if lines else []


def _overlay(directory: Path) -> list[str]:
    """Return the shell commands that let the guest write to its copy of a directory in memory."""
    if any(directory.is_relative_to(path) for path in OVERLAID):
        return []
    upper, work, place = _PLACE / "upper", _PLACE / "work", shlex.quote(str(directory))
    # A relative path, because options of a mount cannot have every character.
    options = f"lowerdir=.,upperdir={upper},workdir={work}"
    return [f"mkdir -p {upper} {work} && cd {place} && mount -t overlay -o {options} fsstack {place}"]


def _bind_mount(source: Path, target: Path) -> str:
    place = shlex.quote(str(target))
    return f"mkdir -p {place} && mount --bind {shlex.quote(str(source))} {place}"


def guest_environment(passed: Iterable[str] = ("PYTEST_", "PYTHON", "XDG_CACHE_HOME", "VIRTUAL_ENV")) -> dict[str, str]:
    """Return the environment of a command in the guest: PATH, home, its directories, and Python's variables."""
    return {
        **{name: value for name, value in os.environ.items() if name.startswith(tuple(passed))},
        "PATH": commands.search_path(),
        "HOME": _home(),
        "LANG": "C.UTF-8",
        "TMPDIR": str(_TEMPORARY),  # a tmpfs; /tmp is an overlay
        results.VARIABLE: str(RESULTS),
    }


def _home() -> str:
    """Return the home directory, or / if there is none, for example in a container without an entry in passwd."""
    try:
        return str(Path.home())
    except RuntimeError:
        return "/"


def virtme_run() -> str:
    """Return the path of virtme-run: beside this Python, or on the search path. Raises FileNotFoundError."""
    path = shutil.which("virtme-run", path=str(Path(sys.executable).parent)) or commands.which("virtme-run")
    if path is None:
        raise FileNotFoundError("needs virtme-run: pip install pytest-fsstack[kernel]")
    return path


def required_paths(directory: Path) -> list[Path]:
    """Return the paths that pytest needs in a guest: the working directory, Python, and Python's modules."""
    paths: tuple[str | Path, ...] = (directory, sys.prefix, sys.base_prefix, *sys.path)
    return sorted({Path(path).absolute() for path in paths if os.path.isdir(path)})


def why_no_guest(directory: Path) -> str | None:
    """Return why a guest cannot work in this directory, or None if it can."""
    if reasons := needs.missing(NEEDS):
        return "; ".join(reasons)
    for path in required_paths(directory):
        if any(path.is_relative_to(place) for place in HIDDEN):
            return f"a guest does not see {path}, because it has its own {', '.join(HIDDEN)}; move it"
    return None


#: The directory for a private tmpfs of virtme-run. It exists on every machine, and guests mount their own.
_WORKSPACE = Path("/sys/fs")


def _contained() -> list[str]:
    """Return a command prefix that makes all processes and temporary files of a guest end with this process.

    A PID namespace ends with its first process, and a mount namespace with its last. Slave propagation keeps no mount
    of the host busy. The files of virtme-ng get a path without blanks, because init= of the kernel cannot have any.
    """
    spec = importlib.util.find_spec("virtme")
    package = Path(spec.origin).parent if spec and spec.origin else None
    steps = [f"mount -t tmpfs fsstack {_WORKSPACE}"]
    if package:
        steps.append(_bind_mount(package, _WORKSPACE / "virtme"))
    return [
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--"),
        *("sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh"),
    ]


class Guest:
    """A running VM with one command. The log of its console and its disks are files without a name.

    The command's environment is `env`. With `talks`, it reads from the stdin of `process`. Raises OSError.
    """

    def __init__(
        self, machine: Machine, argv: Sequence[str], *, disk_size: int, env: Mapping[str, str], talks: bool = False
    ) -> None:
        self.machine = machine
        with contextlib.ExitStack() as files:
            # Not in /tmp, because a tmpfs may be small or refuse O_DIRECT.
            disks = [files.enter_context(tempfile.TemporaryFile(dir="/var/tmp")) for _ in range(machine.disks)]
            command = files.enter_context(tempfile.TemporaryFile())
            self._console: BinaryIO = files.enter_context(tempfile.TemporaryFile())
            for disk in disks:
                disk.truncate(disk_size)
            self._results: IO[bytes] = files.enter_context(results.disk())
            command.write(script(argv, machine.directory, env, stdin=talks).encode())
            command.flush()
            # QEMU opens these files again by descriptor.
            images, back, console = [disk.fileno() for disk in disks], self._results.fileno(), self._console.fileno()
            self.process = subprocess.Popen(
                machine.argv(disks=images, results=back, console=console, command=command.fileno()),
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                # Pipes, because QEMU truncates files, and each of its ports writes at its own offset.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[*images, back, console, command.fileno()],
                cwd=machine.directory,
                env=environment(),
            )
            self._files = files.pop_all()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        for pipe in self.process.stdin, self.process.stdout, self.process.stderr:
            if pipe is not None:
                pipe.close()
        self._files.close()

    @property
    def console(self) -> str:
        """Return the output of the kernel so far."""
        size = os.fstat(self._console.fileno()).st_size
        return os.pread(self._console.fileno(), size, 0).decode(errors="replace").replace("\r\n", "\n")

    @property
    def ended(self) -> bool:
        """Whether the command has ended. False if the VM went down before."""
        return ENDED in self.console

    def booted(self, seconds: float) -> bool:
        """Wait until the command starts. Return False if the VM ended or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if STARTED in self.console:
                return True
            time.sleep(0.1)
        return STARTED in self.console

    def boot(self) -> str:
        """Wait until the command starts, and return an empty text. If it fails, kill the VM and return the reason."""
        if self.booted(BOOT_SECONDS):
            return ""
        code = self.process.poll()
        late = f"did not boot within {BOOT_SECONDS:g} s"
        self.kill()
        _, output, _ = self.communicate(10.0)
        return self.story(
            late if code is None else f"went down before it had booted (virtme-run: exit code {code})", output
        )

    def communicate(self, seconds: float) -> tuple[str, str, bool]:
        """Return stdout and stderr of the command, and whether it ended in time. Otherwise the VM is killed."""
        try:
            output, in_time = self.process.communicate(timeout=seconds), True
        except subprocess.TimeoutExpired:
            self.kill()
            output, in_time = self._remaining_output(), False
        return output[0].decode(errors="replace"), output[1].decode(errors="replace"), in_time

    def _remaining_output(self) -> tuple[bytes, bytes]:
        """Return the output before the VM was killed. Its child processes may keep the pipes open."""
        try:
            return self.process.communicate(timeout=10.0)
        except subprocess.TimeoutExpired as error:
            return error.stdout or b"", error.stderr or b""

    def copy_results(self, directory: Path) -> int:
        """Copy the results of the ended guest to a new directory. Return the number of files, which may be 0.

        Raises `packages.PackageError`, OSError.
        """
        return results.copy(self._results, directory)

    def kill(self) -> None:
        self.process.kill()
        commands.reap(self.process)

    def story(self, outcome: str, stderr: str = "") -> str:
        """Describe a failure: a panic if there was one, the last lines of the console, and the output of QEMU."""
        console = self.console
        panic = [line for line in console.splitlines() if "Kernel panic" in line or "BUG:" in line]
        tail = console.splitlines()[-30:] or ["(the console is empty: is this a kernel for this machine?)"]
        qemu = ["--- QEMU's last lines", *stderr.splitlines()[-10:]] if stderr.strip() else []
        first = f"kernel {self.machine.kernel.name}: {outcome}"
        return visible("\n".join([first, *panic[:1], "--- the console's last lines", *tail, *qemu]))


#: Seconds after which KVM is tried again after a guest hung. The machine may have been busy.
RETRY_SECONDS = 86400.0


def accelerate(accelerator: str, kernel: Kernel, seconds: float = 40.0) -> bool:
    """Whether guests run on KVM: as requested (``kvm``, ``tcg``), or for ``auto``, if a trial guest boots in time.

    There are machines with /dev/kvm on which guests hang. A success is cached until the host's kernel or QEMU changes,
    a failure for one day.
    """
    if accelerator != "auto":
        return accelerator == "kvm"
    works = known_to_accelerate()
    if works is not None:
        return works
    boots = _boots_on_kvm(kernel, seconds)
    if boots is not None:
        answer = _trial_result()
        with HeldDirectory.made(answer.parent) as cache:
            cache.replace(answer.name, b"kvm" if boots else b"tcg")
    return boots is True


def known_to_accelerate() -> bool | None:
    """Whether guests run on KVM. None if that is unknown without booting one."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with contextlib.suppress(FileNotFoundError, commands.CommandError):
        answer = _trial_result()
        text, age = reading.read_text(answer), time.time() - answer.stat().st_mtime
        if text == "kvm" or (text == "tcg" and 0 <= age < RETRY_SECONDS):
            return text == "kvm"
    return None


def _trial_result() -> Path:
    """Return the cache file with the result of a trial. Raises `commands.CommandError`."""
    import hashlib
    import platform

    from pytest_fsstack.workloads.data.corpus import cache_directory

    versions = f"{platform.release()} {commands.run('qemu-system-x86_64', '--version')}"
    return cache_directory() / f"kvm-{hashlib.sha256(versions.encode()).hexdigest()[:16]}"


def _boots_on_kvm(kernel: Kernel, seconds: float) -> bool | None:
    """Whether a kernel boots on KVM, or hangs (False). None if it goes down, which may be a fault of the kernel."""
    with Guest(Machine(kernel, Path.cwd(), "1G", 1, kvm=True), ["true"], disk_size=1 << 20, env={}) as guest:
        _, _, in_time = guest.communicate(seconds)
        if guest.ended:
            return True
        return None if in_time else False
