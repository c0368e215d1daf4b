"""Directories pooled by mergerfs, a FUSE daemon, as a layer: ``ext4 | mergerfs``, ``ext4 | mergerfs(branches=8)``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack import (
    FUSE,
    FUSE_MOUNT,
    KEYWORD,
    OUTSIDE,
    BuildContext,
    Directory,
    Layer,
    Need,
    Place,
    Root,
    Tool,
    option,
    served,
)


@dataclass(frozen=True)
class Mergerfs(Layer):
    """Several directories shown as one by mergerfs, which chooses where a new file goes."""

    name: ClassVar = "mergerfs"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    caches: ClassVar = True
    grammar: ClassVar = {"mount": FUSE_MOUNT | {"branches": OUTSIDE, "*": KEYWORD}}

    branches: int = option(2, "how many directories are pooled")
    # By default it fills no directory that has less than 4 GiB left, and a loop device may have that from the start.
    mount: str = option("category.create=rand,minfreespace=0", "what mergerfs -o takes, verbatim")

    def needs(self) -> list[Need]:
        return [Root("mergerfs"), FUSE, Tool("mergerfs", "mergerfs")]  # Debian's may not mount for other users

    def create(self, below: Place, context: BuildContext) -> None:
        context.machine.run("mkdir", *self.pooled(below))

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        target = context.mountpoint(self.name)
        branches = ":".join(self.pooled(below))
        with served(target, context, "mergerfs", "-f", "-o", self.mount, branches, target) as directory:
            yield directory

    def pooled(self, below: Place) -> list[str]:
        return [f"{below.path}/branch{number}" for number in range(self.branches)]


def pytest_fsstack_layers() -> Sequence[type[Layer]]:
    return [Mergerfs]
