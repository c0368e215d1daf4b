"""Real block devices for tests: loop devices on sparse files of the test's own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, journal, mounts, needs
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.machine.guard import holding, users
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack.build import Built, build
from pytest_fsstack.stack.model import Device, Stack
from pytest_fsstack.stack.places import BuildContext
from tests import warm


def run(*argv: str | os.PathLike[str], stdin: str = "") -> str:
    """Run a command with no help from the code under test; its stderr is in the failure."""
    result = subprocess.run(argv, input=stdin, capture_output=True, text=True)
    assert result.returncode == 0, f"{argv}: {result.stderr}"
    return result.stdout.strip()


def built(text: str, device: Device, context: BuildContext) -> AbstractContextManager[Built]:
    """The stack on the device; what the machine lacks for it skips the test."""
    stack = Stack.parse(text, BUILT_IN)
    if reasons := needs.missing([*device.needs(), *stack.needs()]):
        pytest.skip("; ".join(reasons))
    return build(stack, device, context)


@dataclass(frozen=True)
class Loop:
    """A loop device and the file behind it."""

    path: Path
    image: Path

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """Each MiB of the file that is not all zeros, with its offset, and all that was written through the device."""
        with opened(self.path) as device:
            os.fsync(device)
        yield from contents_of(self.image)

    def digest(self) -> str:
        """Of every byte of the file."""
        digest = hashlib.sha256()
        for offset, data in self.contents():
            digest.update(offset.to_bytes(8, "big") + data)
        return f"{self.image.stat().st_size} {digest.hexdigest()}"

    def free(self, seconds: float = 60.0) -> bool:
        """Whether nobody mounts it: what SIGKILL leaves is unmounted by the kernel, which writes, in its own time."""

        def claimed() -> bool:
            try:
                with opened(self.path, os.O_RDONLY | os.O_EXCL):
                    return False
            except OSError:
                return True

        return commands.wait_until(lambda: not claimed(), seconds)

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Fail if a byte of it has changed at the end."""
        before = self.digest()
        yield
        assert self.digest() == before, f"{self.path} was written to"

    def write(self, data: bytes, offset: int) -> None:
        with self.path.open("r+b", buffering=0) as device:
            device.seek(offset)
            device.write(data)
            os.fsync(device.fileno())

    def partition(self, table: str, *partitions: str) -> list[Path]:
        """Write a partition table and make its partitions known, also to a kernel that does not read such tables."""
        run("sfdisk", "-q", "--no-reread", self.path, stdin="\n".join([f"label: {table}", *partitions]))
        subprocess.run(["partx", "-d", self.path], capture_output=True)
        run("partx", "-a", self.path)
        return [Path(f"{self.path}p{number}") for number in range(1, len(partitions) + 1)]


_ZEROS = bytes(1 << 20)


def contents_of(image: Path) -> Iterator[tuple[int, bytes]]:
    """Each MiB of a sparse file that is not all zeros, which is most of it, with its offset."""
    offset = 0
    with opened(image) as fd:
        while True:
            try:
                offset = os.lseek(fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole until the end
                    return
                raise
            offset -= offset % len(_ZEROS)
            # Zeros may have been written, too.
            if (data := os.pread(fd, len(_ZEROS), offset)) != _ZEROS[: len(data)]:
                yield offset, data
            offset += len(_ZEROS)


def image_of(loop: Path) -> str:
    """The file behind a loop device. Another test may get the number of the device at once, but not the file."""
    try:
        return Path("/sys/block", loop.name, "loop/backing_file").read_text()
    except OSError:
        return ""


def _attach(image: Path, *options: str) -> Path:
    """A loop device that nobody is given who asks for a free one, not even while a test has detached it."""
    error = ""
    first = _first_number()
    for number in range(first, first + _NUMBERS):
        path = Path(f"/dev/loop{number}")
        if image_of(path):
            continue
        result = subprocess.run(["losetup", *options, path, image], capture_output=True, text=True)
        if result.returncode == 0:
            return path
        error = result.stderr
    raise OSError(f"no loop device from {first} on could be attached to {image}: {error}")


#: Loop devices of a process that runs tests.
_NUMBERS = 64
_LOOP_CTL_REMOVE = 0x4C81


@functools.cache
def _first_number() -> int:
    """Return the first of numbers that no other process on this machine uses for tests.

    The kernel gives the lowest number that is free. The name of a socket is reserved until this process ends.
    """
    for number in itertools.count(1):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as reserved:
            reserved.bind(f"\0pytest-fsstack-tests-{number}")
            reserved.detach()
            return number * _NUMBERS
    raise AssertionError


LoopDevice = Callable[..., Loop]


@pytest.fixture
def context_directory(tmp_path: Path) -> Path:
    """Below it stacks are mounted. A file of tests may have another one."""
    return tmp_path / "site"


@pytest.fixture
def context(tmp_path: Path, context_directory: Path) -> Iterator[BuildContext]:
    """For stacks that a test builds itself, of which nothing may be left."""
    mounts.private_namespace()
    book = Journal(tmp_path / "journal", RealMachine())
    context_directory.mkdir()
    yield BuildContext(context_directory, book)
    book.close()
    assert list((tmp_path / "journal").glob("*")) == [], "the journal says that something was left behind"
    assert mounts.below(tmp_path) == []
    for path in context_directory.iterdir():
        if path.is_dir():
            path.rmdir()
        else:
            path.unlink()


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guard's lock files in a directory of the test's own, since they are never removed."""
    monkeypatch.setattr(holding, "LOCKS", tmp_path / "lock")
    return tmp_path / "lock"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse an open device soon, because nobody closes it."""
    monkeypatch.setattr(users, "PATIENCE", 0.1)


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[LoopDevice]:
    """Make loop devices: `loop_device("--read-only", size=64 << 20)`, or one on top of the device `on`."""
    made: list[Loop] = []

    def make(*options: str, size: int = 64 << 20, on: Path | None = None) -> Loop:
        image = on or tmp_path / f"image-{len(made)}"
        if on is None:
            with image.open("wb") as file:
                file.truncate(size)
        made.append(Loop(_attach(image, *options), image))
        return made[-1]

    def is_attached(loop: Loop) -> bool:
        """Whether it is still this test's: another process may have its number."""
        behind = image_of(loop.path).strip()
        return behind == str(loop.image) or str(tmp_path) in behind

    yield make
    for loop in reversed(made):
        if is_attached(loop):
            subprocess.run(["partx", "-d", loop.path], capture_output=True)
            subprocess.run(["losetup", "-d", loop.path], capture_output=True)
    # A process that made itself a mount namespace meanwhile keeps what was mounted then.
    assert commands.wait_until(lambda: not any(map(is_attached, made)), 60), f"still attached, one of {made}"
    # The kernel gives devices that exist to whoever asks for a free one, once those of lower numbers are in use.
    with open("/dev/loop-control", "rb") as control:
        for loop in made:
            with contextlib.suppress(OSError):  # another process was faster
                fcntl.ioctl(control, _LOOP_CTL_REMOVE, int(loop.path.name.removeprefix("loop")))


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Mount a device on a directory of the test's own; unmounted at the end."""
    made: list[Path] = []

    def make(device: Path) -> Path:
        target = tmp_path / f"mount-{len(made)}"
        target.mkdir()
        run("mount", device, target)
        made.append(target)
        os.sync()
        return target

    yield make
    for target in reversed(made):
        run("umount", target)


@contextlib.contextmanager
def swapped_on(place: Path) -> Iterator[None]:
    """Use a device or a file as swap space."""
    run("mkswap", place)
    run("swapon", place)
    try:
        yield
    finally:
        run("swapoff", place)


# -- sessions ----------------------------------------------------------------------------------------------------------

SMALL = """
import pytest

@pytest.mark.fsstack("ext4")
def test_write(fsstack):
    (fsstack.path / "file").write_bytes(bytes(1 << 20))
"""


def small_session(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a session of one round of one test in a directory."""
    (directory / "test_it.py").write_text(SMALL)
    (directory / "pytest.ini").write_text("[pytest]\n")
    base = [f"--basetemp={directory / 'tmp'}", "-p", "no:cacheprovider", "--fsstack-rounds=1"]
    return warm.session(*base, *arguments, cwd=directory)


TEST = """
import os, time
from pathlib import Path
import pytest

@pytest.mark.fsstack({stacks})
class TestIt:
    @pytest.mark.benchmark
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            (fsstack.path / "file").write_bytes(bytes(1 << 20))

    def test_wait(self, fsstack, request):
        with open(request.config.rootpath / "mounts", "a") as file:
            print(fsstack.spec, fsstack.path, os.getpid(), file=file, flush=True)
        flag = request.config.rootpath / "wait"
        while flag.exists():
            time.sleep(0.05)
"""


def lacking(stack: str) -> list[str]:
    """What this machine must have to build it, and has not."""
    return needs.missing(Stack.parse(stack, BUILT_IN).needs())


DISK_SIZE = 512 << 20
#: Whoever has root shares the journals, so that other tests' sessions would clean up what is to be found here.
OWN_JOURNALS = 'mkdir -p /run/pytest-fsstack && mount --bind "$0" /run/pytest-fsstack && exec "$@"'


def stop_process(pid: int) -> None:
    """Stop a process, and wait until all its threads have stopped. On a busy machine they may go on for a moment."""

    def states() -> set[str]:
        stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}

    os.kill(pid, signal.SIGSTOP)
    assert commands.wait_until(lambda: states() == {"T"}, 60), states()


def left_of(directory: Path) -> dict[str, list[str]]:
    """What sessions with their temporary files in a directory have left in the kernel, in any namespace."""
    mine = f"{directory}/tmp/"
    in_table = mine.replace(" ", r"\040").encode()
    loops: list[str] = []
    mounts: list[str] = []
    processes: list[str] = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            if mine in (text := backing.read_text()):
                loops.append(f"/dev/{backing.parts[-3]}: {text.strip()}")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if in_table in (process / "mountinfo").read_bytes():
                mounts.append(str(process))
            # The kernel's view of a daemon's command line holds its mount point.
            if mine.encode() in (words := (process / "cmdline").read_bytes()):
                processes.append(words.decode(errors="replace"))
    return {"loops": loops, "mounts": mounts, "processes": processes}


def lines_naming(directory: Path) -> list[str]:
    """Return the command lines that name something in a directory."""
    lines = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            lines.append(os.fsdecode(process.read_bytes().replace(b"\0", b" ")))
    return [line for line in lines if str(directory) in line]


class Sessions:
    """Runs pytest on a test file in a directory of its own, as a user would; its sessions know only of each other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mounts = directory / "mounts"
        self.journals = directory / "journals"
        self.journals.mkdir(mode=0o700)
        self._pipes = ExitStack()

    def write(self, *stacks: str) -> None:
        for stack in stacks:
            if reasons := lacking(stack):
                pytest.skip("; ".join(reasons))
        (self.directory / "test_it.py").write_text(TEST.format(stacks=", ".join(map(repr, stacks))))
        (self.directory / "pytest.ini").write_text("[pytest]\n")

    def command(self, *arguments: str) -> list[str]:
        base = ["--fsstack-size=512M", f"--basetemp={self.directory / 'tmp'}", "-p", "no:cacheprovider"]
        alone = ["unshare", "--mount", "sh", "-c", OWN_JOURNALS, str(self.journals)]
        return [*alone, sys.executable, "-m", "pytest", *base, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), cwd=self.directory, capture_output=True, text=True, timeout=600)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a session, and wait until its first stack stands."""
        (self.directory / "wait").touch()
        process = subprocess.Popen(
            self.command(*arguments), cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        self._pipes.callback(process.stdout.close)
        assert commands.wait_until(lambda: self.mounts.exists() and self.mounts.read_text(), 120), process.communicate()
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a session. The kernel takes down all that it has built."""
        process.kill()
        process.communicate()
        assert self.nothing_is_left(), "\n".join([*self.left, *self.users_of_loops])

    def close(self) -> None:
        """Close what is read from sessions, and undo what killed ones left, such as mount points in /tmp."""
        self._pipes.close()
        report = journal.cleanup(self.journals, RealMachine(), lambda: kinds(BUILT_IN.values()))
        assert [line for line in report.left if " disk /dev/" not in line] == []

    @property
    def left(self) -> list[str]:
        return [f"{kind}: {thing}" for kind, things in left_of(self.directory).items() for thing in things]

    @property
    def users_of_loops(self) -> list[str]:
        paths = [Path(text.partition(":")[0]) for text in left_of(self.directory)["loops"]]
        return [f"{path} is {mounts.in_use(RealMachine(), path)}" for path in paths]

    def nothing_is_left(self, seconds: float = 300.0) -> bool:
        return commands.wait_until(lambda: not self.left, seconds)


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    project_sessions = Sessions(tmp_path)
    yield project_sessions
    project_sessions.close()


@pytest.fixture
def disk(loop_device: LoopDevice) -> Loop:
    """A disk for such sessions."""
    return loop_device(size=DISK_SIZE)
