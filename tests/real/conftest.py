"""Real block devices for tests: loop devices on sparse files of the test's own."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack.guard import holding, users
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, mounts, needs
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import Built, build
from pytest_fsstack.stack.model import BuildContext, Device, Stack


def run(*argv: str | os.PathLike[str], stdin: str = "") -> str:
    """Run a command with no help from the code under test; its stderr is in the failure."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout.strip()


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
    said = ""
    for number in range(_FIRST, _FIRST + 64):
        path = Path(f"/dev/loop{number}")
        if image_of(path):
            continue
        done = subprocess.run(["losetup", *options, path, image], capture_output=True, text=True)
        if done.returncode == 0:
            return path
        said = done.stderr
    raise OSError(f"no loop device from {_FIRST} on could be attached to {image}: {said}")


#: The kernel gives the lowest one that is free. Tests beside this one have numbers of their own.
_FIRST = 64 + 64 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))

LoopDevice = Callable[..., Loop]


@pytest.fixture
def context_directory(tmp_path: Path) -> Path:
    """Below it stacks are mounted. A file of tests may have another one."""
    return tmp_path / "site"


@pytest.fixture
def context(tmp_path: Path, context_directory: Path) -> Iterator[BuildContext]:
    """For stacks that a test builds itself, of which nothing may be left."""
    mounts.private_namespace()
    journal = Journal(tmp_path / "journal", RealMachine())
    context_directory.mkdir()
    yield BuildContext(context_directory, journal)
    journal.close()
    assert list((tmp_path / "journal").glob("*")) == [], "the journal says that something was left behind"
    assert mounts.below(tmp_path) == []
    for left in context_directory.iterdir():
        if left.is_dir():
            left.rmdir()
        else:
            left.unlink()


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
    made: list[Path] = []

    def make(*options: str, size: int = 64 << 20, on: Path | None = None) -> Loop:
        image = on or tmp_path / f"image-{len(made)}"
        if on is None:
            with image.open("wb") as file:
                file.truncate(size)
        path = _attach(image, *options)
        made.append(path)
        return Loop(path, image)

    yield make
    for path in reversed(made):
        subprocess.run(["partx", "-d", path], capture_output=True)
        subprocess.run(["losetup", "-d", path], capture_output=True)
    # A process that made itself a mount namespace meanwhile keeps what was mounted then.
    assert commands.wait_until(lambda: not any(map(image_of, made)), 60), f"still attached, one of {made}"


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
