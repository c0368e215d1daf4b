"""Real block devices for tests: loop devices on sparse files of the test's own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import guard, host


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root: it makes loop devices and mounts")


def run(*argv: str | os.PathLike[str], stdin: str = "") -> str:
    """Run a command with no help from the code under test; its stderr is in the failure."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout.strip()


@dataclass(frozen=True)
class Loop:
    """A loop device and the file behind it."""

    path: Path
    image: Path

    def digest(self) -> str:
        """Of every byte of the file, with all that was written through the device."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        digest = hashlib.sha256()
        with self.image.open("rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
        return digest.hexdigest()

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


def _attached(loop: Path) -> bool:
    return Path("/sys/block", loop.name, "loop/backing_file").exists()


LoopDevice = Callable[..., Loop]


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The guard's lock files in a directory of the test's own, since they are never removed."""
    monkeypatch.setattr(guard, "_LOCKS", tmp_path / "lock")
    return tmp_path / "lock"


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[LoopDevice]:
    """Make loop devices: `loop_device("--read-only", size=64 << 20)`, or one on top of the device `on`."""
    made: list[Path] = []

    def make(*options: str, size: int = 64 << 20, on: Path | None = None) -> Loop:
        image = on or tmp_path / f"image-{len(made)}"
        if on is None:
            with image.open("wb") as file:
                file.truncate(size)
        path = Path(run("losetup", "-f", "--show", *options, image))
        made.append(path)
        return Loop(path, image)

    yield make
    for path in reversed(made):
        subprocess.run(["partx", "-d", path], capture_output=True)
        subprocess.run(["losetup", "-d", path], capture_output=True)
    # A process that made itself a mount namespace meanwhile keeps what was mounted then.
    assert host.wait_until(lambda: not any(map(_attached, made)), 20.0), f"still attached, one of {made}"


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
