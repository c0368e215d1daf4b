"""A machine of its own for a command: virtme-ng boots a kernel on the host's own root.

The guest's `/` is the host's, read-only, with layers in memory over the usual top directories; only the working
directory is shared for writing. /run, where virtme-ng works, shows what pytest needs and nothing else of the host's.
/dev/vda is a blank disk of its own.
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
from typing import BinaryIO

from pytest_fsstack.kernels.images import Kernel
from pytest_fsstack.machine import blockdev, commands, needs
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Need, Root, Tool

#: What the guest may write to without the host noticing. What is in `HIDDEN` it has of its own.
OVERLAID = ("/etc", "/home", "/opt", "/root", "/srv", "/tmp", "/usr", "/var")
HIDDEN = ("/dev", "/proc", "/sys")

#: virtme-ng covers /run, and works in it. `needed` directories are shown there again.
_RUN = Path("/run")
#: virtme-ng covers these with an empty tmpfs, which the guest takes away: the layer over /var does for them.
_UNCOVERED = ("/var/cache", "/var/log", "/var/tmp")

#: The guest's own places: for temporary files (a tmpfs), for the working directory, and for the host's whole root.
_PLACE = _RUN / "fsstack"
_TEMPORARY, _DIRECTORY, _ROOT = (_PLACE / name for name in ("tmp", "directory", "root"))

#: Written to the guest's console, at a level that nothing hides: proof of how far it came.
STARTED = "fsstack: command started"
ENDED = "fsstack: command ended"

#: The command travels through QEMU's firmware configuration: the kernel's command line has no room for it.
_COMMAND = "opt/fsstack/command"

DISK = blockdev.GUEST_DISK

#: Seconds that a guest may take to boot.
BOOT_SECONDS = 300.0


@dataclass(frozen=True)
class VirtmeRun:
    """virtme-ng's command."""

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
    """The parts of a guest: kernel, writable directory, memory as QEMU writes it (2G), CPUs, accelerator, disks."""

    kernel: Kernel
    directory: Path
    memory: str = "2G"
    cpus: int = 2
    kvm: bool = False
    #: The number of disks.
    disks: int = 1

    def argv(self, *, disks: Sequence[int], console: int, command: int) -> list[str]:
        """The command that boots it: descriptors of its disk images, its console's log, and the script that it runs.

        virtme-run rather than vng, which passes its arguments through a shell and closes the descriptors.
        """
        uncover = f"umount {' '.join(_UNCOVERED)} 2>/dev/null"
        # Modules may lie in what was covered when udev looked for those of the disk.
        load = "modprobe -a qemu_fw_cfg virtio_blk"
        start = f"{uncover}; {load}; exec /bin/sh /sys/firmware/qemu_fw_cfg/by_name/{_COMMAND}/raw"
        return [
            *_leash(),
            virtme_run(),
            *self.kernel.arguments(),
            # An emulated timer that a busy host lets wait passes for broken, and without that option the kernel panics.
            *([] if self.kvm else ["--disable-kvm", "--kopt", "no_timer_check"]),
            *("--memory", self.memory, "--cpus", str(self.cpus)),
            *(f"--overlay-rwdir={path}" for path in OVERLAID if Path(path).is_dir()),
            # Relative to where it starts: virtme-run takes few of the characters that a path may have.
            f"--rwdir={_DIRECTORY}=.",
            *("--script-sh", start, "--kopt", "loglevel=7"),
            *("-q=-fw_cfg", f"-q=name={_COMMAND},file=/proc/self/fd/{command}"),
            *("-q=-set", f"-q=chardev.console.path=/proc/self/fd/{console}"),  # else /dev/null
            # A probed raw image refuses a LUKS1 magic written at block 0.
            *(
                word
                for disk in disks
                for word in ("-q=-drive", f"-q=file=/proc/self/fd/{disk},format=raw,cache=none,if=virtio")
            ),
        ]


def environment() -> dict[str, str]:
    """Return the environment of virtme-run itself, which finds all that is its own in the leash's directory."""
    modules = os.pathsep.join(filter(None, (str(_LEASHED), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PATH": commands.search_path(), "TMPDIR": str(_LEASHED), "PYTHONPATH": modules}


def script(argv: Sequence[str], directory: Path, env: Mapping[str, str], *, stdin: bool) -> str:
    """Return the script of the guest's shell: the command in its directory and environment, between two marks."""
    words = [f"{name}={value}" for name, value in env.items()]
    return "\n".join(
        (
            f"echo '<0>{STARTED}' >/dev/kmsg",
            f"mkdir -p {_TEMPORARY} && mount -t tmpfs fsstack {_TEMPORARY}",
            *_shown_again(needed(directory)),
            _bound(_DIRECTORY, directory),
            f"cd {shlex.quote(str(directory))} && env -i {shlex.join([*words, *argv])}{'' if stdin else ' </dev/null'}",
            "status=$?",
            f"echo '<0>{ENDED}' >/dev/kmsg",
            "exit $status",
            "",
        )
    )


def _shown_again(paths: Iterable[Path]) -> list[str]:
    """Return the shell's lines that show directories below /run as the host has them, read-only."""
    lines = [_bound(_ROOT / path.relative_to("/"), path) for path in paths if path.is_relative_to(_RUN)]
    return [_bound(Path("/"), _ROOT), *lines] if lines else []


def _bound(source: Path, target: Path) -> str:
    place = shlex.quote(str(target))
    return f"mkdir -p {place} && mount --bind {shlex.quote(str(source))} {place}"


def guest_environment(passed: Iterable[str] = ("PYTEST_", "PYTHON", "XDG_CACHE_HOME", "VIRTUAL_ENV")) -> dict[str, str]:
    """Return the environment of a command in the guest: PATH, home, a temporary directory, and Python's variables."""
    return {
        **{name: value for name, value in os.environ.items() if name.startswith(tuple(passed))},
        "PATH": commands.search_path(),
        "HOME": _home(),
        "LANG": "C.UTF-8",
        "TMPDIR": str(_TEMPORARY),  # a tmpfs; /tmp is an overlay
    }


def _home() -> str:
    """The root directory for a user without a home, as a number without an entry in passwd is in a container."""
    try:
        return str(Path.home())
    except RuntimeError:
        return "/"


def virtme_run() -> str:
    """The path of virtme-run: beside this Python, or on the search path. Raises FileNotFoundError."""
    path = shutil.which("virtme-run", path=str(Path(sys.executable).parent)) or commands.which("virtme-run")
    if path is None:
        raise FileNotFoundError("needs virtme-run: pip install pytest-fsstack[kernel]")
    return path


def hidden(path: Path) -> bool:
    """Whether the guest has something of its own in place of this path."""
    return any(path.is_relative_to(place) for place in HIDDEN)


def needed(directory: Path) -> list[Path]:
    """Return what pytest needs in a guest: the working directory, Python, and the places of Python's modules."""
    paths: tuple[str | Path, ...] = (directory, sys.prefix, sys.base_prefix, *sys.path)
    return sorted({Path(path).absolute() for path in paths if os.path.isdir(path)})


def why_no_guest(directory: Path) -> str | None:
    """Why no guest can work in this directory here; None where one can."""
    if reasons := needs.missing(NEEDS):
        return "; ".join(reasons)
    path = next(filter(hidden, needed(directory)), None)
    return f"a guest does not see {path}, because it has its own {', '.join(HIDDEN)}; move it" if path else None


#: Where the leash mounts a tmpfs for virtme-run. Every machine has it, and each guest soon has one of its own.
_LEASHED = Path("/sys/fs")


def _leash() -> list[str]:
    """Return what makes the whole tree of processes die with its parent, and its temporary files with it.

    A PID namespace does not survive its first process, nor a mount namespace its last. Slave propagation pins no mount
    of the host. virtme-ng's own files get a path without blanks, which init= of the guest's kernel cannot have.
    """
    spec = importlib.util.find_spec("virtme")
    package = Path(spec.origin).parent if spec and spec.origin else None
    steps = [f"mount -t tmpfs fsstack {_LEASHED}"]
    if package:
        steps.append(_bound(package, _LEASHED / "virtme"))
    return [
        *("setpriv", "--pdeathsig", "KILL"),
        *("unshare", "--mount", "--propagation", "slave", "--pid", "--fork", "--kill-child", "--"),
        *("sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh"),
    ]


class Guest:
    """A machine that runs one command, with its console's log and its disks in files without a name.

    The command gets `env` and nothing else; it reads nothing unless it `talks`, by `process`. Raises OSError.
    """

    def __init__(
        self, machine: Machine, argv: Sequence[str], *, disk_size: int, env: Mapping[str, str], talks: bool = False
    ) -> None:
        self.machine = machine
        with contextlib.ExitStack() as files:
            # Not in /tmp: a tmpfs has no room, and may refuse O_DIRECT.
            disks = [files.enter_context(tempfile.TemporaryFile(dir="/var/tmp")) for _ in range(machine.disks)]
            command = files.enter_context(tempfile.TemporaryFile())
            self._console: BinaryIO = files.enter_context(tempfile.TemporaryFile())
            for disk in disks:
                disk.truncate(disk_size)
            command.write(script(argv, machine.directory, env, stdin=talks).encode())
            command.flush()
            # QEMU opens them again.
            images, console = [disk.fileno() for disk in disks], self._console.fileno()
            self.process = subprocess.Popen(
                machine.argv(disks=images, console=console, command=command.fileno()),
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                # Pipes: QEMU truncates files, and each of its ports writes at an offset of its own.
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[*images, console, command.fileno()],
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
        """Return the output of its kernel so far."""
        size = os.fstat(self._console.fileno()).st_size
        return os.pread(self._console.fileno(), size, 0).decode(errors="replace").replace("\r\n", "\n")

    @property
    def ended(self) -> bool:
        """Whether its command has come to an end, and not the machine below it."""
        return ENDED in self.console

    def booted(self, seconds: float) -> bool:
        """Wait until its command starts; False where it has ended or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if STARTED in self.console:
                return True
            time.sleep(0.1)
        return STARTED in self.console

    def boot(self) -> str:
        """Wait until its command starts; an empty text, or why it does not, as a story. Then it is ended."""
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
        """Return the stdout and stderr of its command, and whether it ended in time. Otherwise it is killed."""
        try:
            output, in_time = self.process.communicate(timeout=seconds), True
        except subprocess.TimeoutExpired:
            self.kill()
            output, in_time = self._last_words(), False
        return output[0].decode(errors="replace"), output[1].decode(errors="replace"), in_time

    def _last_words(self) -> tuple[bytes, bytes]:
        """Return what it wrote before it was killed. What it had started may hold its pipes open."""
        try:
            return self.process.communicate(timeout=10.0)
        except subprocess.TimeoutExpired as error:
            return error.stdout or b"", error.stderr or b""

    def kill(self) -> None:
        self.process.kill()
        commands.reap(self.process)

    def story(self, outcome: str, stderr: str = "") -> str:
        """Describe a failure: the panic if there was one, the last words, and the output of QEMU."""
        console = self.console
        panic = [line for line in console.splitlines() if "Kernel panic" in line or "BUG:" in line]
        tail = console.splitlines()[-30:] or ["(the console is empty: is this a kernel for this machine?)"]
        qemu = ["--- QEMU's last lines", *stderr.splitlines()[-10:]] if stderr.strip() else []
        first = f"kernel {self.machine.kernel.name}: {outcome}"
        return "\n".join([first, *panic[:1], "--- the console's last lines", *tail, *qemu])


#: Seconds after which a guest that hung on KVM is no reason any more not to try again: the machine may have been busy.
TRY_AGAIN = 86400.0


def accelerate(repeat: str, kernel: Kernel, seconds: float = 40.0) -> bool:
    """Whether guests run on KVM: as wished (``kvm``, ``tcg``), or, for ``auto``, if one that tries boots in time.

    A device /dev/kvm says little: there are machines on which guests then hang. That it works is known until the host's
    kernel or QEMU is another one, that guests hang for a day.
    """
    if repeat != "auto":
        return repeat == "kvm"
    works = known_to_accelerate()
    if works is not None:
        return works
    boots = _boots_on_kvm(kernel, seconds)
    if boots is not None:
        answer = _answer()
        answer.parent.mkdir(parents=True, exist_ok=True)
        fresh = answer.with_name(f"{answer.name}.{os.getpid()}")
        fresh.write_text("kvm" if boots else "tcg")
        fresh.replace(answer)
    return boots is True


def known_to_accelerate() -> bool | None:
    """Whether guests run on KVM, as far as it is known without booting one; else None."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with contextlib.suppress(FileNotFoundError, commands.CommandError):
        answer = _answer()
        text, age = answer.read_text(), time.time() - answer.stat().st_mtime
        if text == "kvm" or (text == "tcg" and 0 <= age < TRY_AGAIN):
            return text == "kvm"
    return None


def _answer() -> Path:
    """The file that keeps what a trial showed. Raises `commands.CommandError`."""
    import hashlib
    import platform

    from pytest_fsstack.data.corpus import cache_directory

    versions = f"{platform.release()} {commands.run('qemu-system-x86_64', '--version')}"
    return cache_directory() / f"kvm-{hashlib.sha256(versions.encode()).hexdigest()[:16]}"


def _boots_on_kvm(kernel: Kernel, seconds: float) -> bool | None:
    """Whether it does, or hangs; None where it goes down, which may be about the kernel and costs no time."""
    with Guest(Machine(kernel, Path.cwd(), "1G", 1, kvm=True), ["true"], disk_size=1 << 20, env={}) as guest:
        _, _, in_time = guest.communicate(seconds)
        if guest.ended:
            return True
        return None if in_time else False
