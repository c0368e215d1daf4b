"""The filesystem with a bug as a layer, by ``-p tests.real.mutants.layer``: ``ext4 | mutant(bug='write-32')``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack import FUSE, BuildContext, Directory, Layer, Need, Place, Root, Tool, option, served

HERE = Path(__file__).parent
_BUG = re.compile(r'^BUG\(\w+, "(?P<name>[^"]*)", "(?P<kind>[^"]*)", "(?P<words>[^"]*)"\)$', re.M)


@dataclass(frozen=True)
class Bug:
    """One bug: its name, its class, and what goes wrong."""

    name: str
    kind: str
    words: str


def bugs() -> list[Bug]:
    """Return all bugs, in the order of their classes."""
    return [Bug(**match.groupdict()) for match in _BUG.finditer((HERE / "bugs.h").read_text())]


def compiled() -> Path:
    """Compile the filesystem, once for each state of its source, and return the program."""
    source = b"".join((HERE / name).read_bytes() for name in ("mutant.c", "bugs.h"))
    program = Path(tempfile.gettempdir(), f"pytest-fsstack-mutant-{hashlib.sha256(source).hexdigest()[:16]}")
    if not program.exists():
        part = program.with_suffix(f".{os.getpid()}.part")
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
        subprocess.run(["gcc", *flags, "-o", part, HERE / "mutant.c"], check=True)
        part.rename(program)
    return program


@dataclass(frozen=True)
class Mutant(Layer):
    """A directory seen through a FUSE filesystem that may have a bug."""

    name: ClassVar = "mutant"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    stores: ClassVar = "seen"

    bug: str = option("", "the name of a bug, none by default", choices=("", *(bug.name for bug in bugs())))

    def needs(self) -> list[Need]:
        return [Root("mounting"), FUSE, Tool("gcc", "gcc")]

    def create(self, below: Place, context: BuildContext) -> None:
        context.machine.mkdir(below.path / self.stores)

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        target = context.mountpoint(self.name)
        bug = [self.bug] if self.bug else []
        with served(target, context, str(compiled()), str(below.path / self.stores), str(target), *bug) as directory:
            yield directory


def pytest_fsstack_layers() -> Sequence[type[Layer]]:
    return [Mutant]
