"""Template files: a workload, a layer or a scenario, each with a passing test, or a LAB.toml."""

from __future__ import annotations

import argparse
import builtins
import keyword
from pathlib import Path
from string import Template

from pytest_fsstack.command import CommandLineError, write_new
from pytest_fsstack.units import show

WORKLOAD = Template('''\
"""The workload $name: what it does, and a test that runs it on two stacks.

    pytest test_$name.py --fsstack-device=dir:.      in a directory, without root
    sudo pytest test_$name.py                        on a loop device
"""

from __future__ import annotations

import pytest

from pytest_fsstack import Built, Timed, Tool, workload

SIZE = 1 << 20


# What is named here is looked for before a test runs, Tool("command", "package"); `fsstack doctor` shows it as well if
# the hook pytest_fsstack_workloads returns the function.
@workload(Tool("cp", "coreutils"))
def $name(timed: Timed, fsstack: Built, *, size: int = SIZE) -> None:
    """Say in a line what is timed. Then how it is checked that the work was done."""
    # Before the timed block: make what it needs. fsstack.path is the mounted stack.
    source, target = fsstack.path / "source", fsstack.path / "target"
    source.write_bytes(bytes(range(256)) * (size // 256))

    # The timed block, one a test. It starts with cold caches, and ends when all is written to the device.
    with timed(bytes=size):
        timed.run("cp", source, target)

    # After it: see that the work was done, from the device and not from a cache.
    fsstack.remount()
    assert target.read_bytes() == source.read_bytes(), "$name: the copy differs"
    # A figure of your own, if the time and the rate are not what you want to know:
    # timed.record("copies", 1, better="higher")


# The first stack is the baseline. below= goes between if the device is a block device.
@pytest.mark.fsstack("directory", "same = directory", below="ext4")
class Test$Class:
    # What a stack may cost over the baseline. Without a budget it is measured and shown, and nothing is judged.
    # @pytest.mark.fsstack_budget("30%")
    def test_$name(self, fsstack: Built, timed: Timed) -> None:
        $name(timed, fsstack)
''')

LAYER = Template('''\
"""The layer $name. As it is, it adds a directory that it makes anew for each round, and needs no root."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack import NAME, BuildContext, Directory, Layer, Place, option


@dataclass(frozen=True)
class $Class(Layer):
    """Say in a line what it is: the docs show it."""

    name: ClassVar = "$name"
    # Block or Directory: what it can stand on, and what it is for the layer above.
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    # What it needs, all from pytest_fsstack: Root("mounting"), Tool("bindfs", "bindfs"), FUSE,
    # KernelFilesystem("overlay"), DeviceMapper("crypt"). Without one, the stack is skipped, with the way to get it.
    requires: ClassVar = ()

    # Its options, as in "$name(subdirectory='x')"; their types are checked, and text by its grammar.
    grammar: ClassVar = {"subdirectory": NAME}

    subdirectory: str = option("$name", "the directory below that holds what is written")

    def create(self, below: Place, context: BuildContext) -> None:
        # Once a round, on a fresh place. Commands by context.machine.run("tool", "word"), so that they are in
        # `fsstack stacks explain`. A block device only by below.overwrite(...).
        context.machine.mkdir(below.path / self.subdirectory)

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        # Again for each remount: mount, yield the place, unmount. For a FUSE daemon in the foreground:
        #     target = context.mountpoint(self.name)
        #     with served(target, context, "bindfs", "-f", str(below.path / self.subdirectory), str(target)) as place:
        #         yield place
        # A secret goes to tools by a descriptor: with context.secret.passphrase() as fd: ...
        yield Directory(below.path / self.subdirectory)
''')

LAYER_TEST = Template('''\
"""What the layer $name does and costs.

    pytest test_$name.py --fsstack-device=dir:.      in a directory, without root
    sudo pytest test_$name.py                        on a loop device
    fsstack stacks explain 'ext4 | $name'            the commands that it runs
"""

from __future__ import annotations

import pytest

from pytest_fsstack import Built, Timed, workloads


# The first stack is the baseline. below= goes between if the device is a block device.
@pytest.mark.fsstack("directory", "$name", below="ext4")
class Test$Class:
    # What it may cost over the baseline. Without a budget it is measured and shown, and nothing is judged.
    # @pytest.mark.fsstack_budget("30%")
    def test_write(self, fsstack: Built, timed: Timed) -> None:
        workloads.stream_write(timed, fsstack, size=1 << 20)


# Without a baseline: an ordinary test on the stack.
@pytest.mark.fsstack("$name", below="ext4")
def test_what_was_written_is_there_after_a_remount(fsstack: Built) -> None:
    (fsstack.path / "file").write_text("text")
    fsstack.remount()
    assert (fsstack.path / "file").read_text() == "text"
''')

CONFTEST = Template('''\
"""Layers of this project for pytest-fsstack; this file must be at its root."""

from $module import $Class


def pytest_fsstack_layers():
    return [$Class]
''')

SCENARIO = Template('''\
"""$title: the question that this answers, in a line.

    pytest test_$name.py --fsstack-device=dir:. --fsstack-scale=smoke     in a directory, without root, in seconds
    sudo pytest test_$name.py --fsstack-device=/dev/sdX                   on a disk, which is overwritten
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Corpus, Sizes, Timed, workloads

# The first is the baseline. On a block device: ("ext4", "luks | ext4", "mine = luks(cipher='...') | xfs").
STACKS = ("directory", "same = directory")
MiB = 1 << 20


@dataclass(frozen=True)
class $Class(Sizes):
    """`space` is what the device must have, in bytes; then the sizes of the steps."""

    stream: int


# A class is a chain: its steps run in this order on each stack, round by round.
@pytest.mark.fsstack(*STACKS, below="ext4")
@pytest.mark.fsstack_sizes(
    smoke=$Class(space=64 * MiB, stream=1 * MiB),
    small=$Class(space=512 * MiB, stream=100 * MiB),
    paper=$Class(space=4096 * MiB, stream=1024 * MiB),
)
@pytest.mark.fsstack_table("times")  # times, advantage, change, matrix, summary: docs/writing-tests.md
class Test$Class:
    # What a stack may cost over the baseline, by stack: {"*": "30%", "luks*": "50%"}.
    # @pytest.mark.fsstack_budget("30%")
    def test_stream_write(self, fsstack: Built, timed: Timed, sizes: $Class) -> None:
        workloads.stream_write(timed, fsstack, size=sizes.stream)

    def test_extract(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        workloads.extract(timed, fsstack, corpus)

    # A step that only reads may run several times in a round.
    @pytest.mark.fsstack_repeat("auto")
    def test_du(self, fsstack: Built, timed: Timed) -> None:
        workloads.du(timed, fsstack)

    def test_delete(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        workloads.delete(timed, fsstack, corpus=corpus)
''')


#: The files of each kind, by name.
FILES = {
    "workload": {"test_$name.py": WORKLOAD},
    "layer": {"${name}_layer.py": LAYER, "test_$name.py": LAYER_TEST, "conftest.py": CONFTEST},
    "scenario": {"test_$name.py": SCENARIO},
}


def new(arguments: argparse.Namespace) -> int:
    """Write the files of a kind and name into the current directory. Raises `CommandLineError`."""
    kind, name = arguments.kind, arguments.name
    _check_name(kind, name)
    words = {
        "name": name,
        "title": name.replace("_", " ").capitalize(),
        "Class": "".join(part.capitalize() for part in name.split("_")) or "Mine",
        "module": f"{name}_layer",
    }
    files = {Template(file).substitute(words): template.substitute(words) for file, template in FILES[kind].items()}
    advice = ""
    if "conftest.py" in files and Path("conftest.py").exists():
        del files["conftest.py"]
        advice = (
            f"in conftest.py, write `from {name}_layer import {words['Class']}`, and let its function "
            f"pytest_fsstack_layers return [{words['Class']}]; then "
        )
    write_new(files)
    scale = " --fsstack-scale=smoke" if kind == "scenario" else ""
    show(f"{advice}run it without root: pytest test_{name}.py --fsstack-device=dir:.{scale}")
    return 0


def _check_name(kind: str, name: str) -> None:
    """Raise `CommandLineError` for a name that is invalid or in use."""
    from pytest_fsstack import layers, workloads

    if not name.isidentifier() or not name.isascii() or name != name.lower() or keyword.iskeyword(name):
        raise CommandLineError(
            f"new: {name!r} is not a valid name for a {kind}: use small letters, digits and underscores"
        )
    if name in {"layer": layers.BUILT_IN, "workload": workloads.BUILT_IN}.get(kind, ()):
        raise CommandLineError(f"new: the {kind} {name!r} exists; choose another name")
    # The function of a workload would hide what the file, or a line that you add, calls by that name.
    if kind == "workload" and (hasattr(builtins, name) or name in ("fsstack", "pytest", "timed")):
        raise CommandLineError(f"new: {name!r} would hide a name of Python or of the file; choose another name")
