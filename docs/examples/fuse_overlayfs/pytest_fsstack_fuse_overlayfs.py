import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack import FUSE, BuildContext, Directory, Layer, Need, Place, Tool, served


@dataclass(frozen=True)
class FuseOverlayfs(Layer):
    """fuse-overlayfs, the overlay of containers without root: what is written goes to a directory of its own."""

    name: ClassVar = "fuse_overlayfs"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    caches: ClassVar = True

    def needs(self) -> list[Need]:
        return [FUSE, Tool("fuse-overlayfs", "fuse-overlayfs")]

    def stored_names(self, length: int) -> tuple[int, ...]:
        """Return the lengths of a name and of the file that hides it once it is deleted."""
        return length, len(".wh.") + length

    def create(self, below: Place, context: BuildContext) -> None:
        context.machine.run("mkdir", below.path / "lower", below.path / "upper", below.path / "work")

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        options = f"lowerdir={below.path}/lower,upperdir={below.path}/upper,workdir={below.path}/work"
        target = context.mountpoint(self.name)
        with served(target, context, "fuse-overlayfs", "-f", "-o", options, target) as directory:
            yield directory


def pytest_fsstack_layers() -> list[type[Layer]]:
    return [FuseOverlayfs]
