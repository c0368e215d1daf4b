"""Read-only images: a tree of files packed into one file of the directory below, and mounted from there."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.needs import LOOP_DEVICES, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.layer import DirectoryLayer, Limit, OptionError, option
from pytest_fsstack.stack.places import BuildContext, CheckResult, Directory
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import FLAG, KEYWORD, MOUNT, NUMBER, OUTSIDE, SIZE, CommandLine, Directories, Grammar


@dataclass(frozen=True)
class ImageLayer(ToolLayer, DirectoryLayer):
    """A layer with an image of a tree, which is mounted read-only."""

    leaves: ClassVar = (mounts.MOUNT,)
    limits: ClassVar = dict.fromkeys((Limit.CHECKSUMS, Limit.NAME_CHECKSUMS), "the format has no checksums of files")

    source: str = option("", "the directory that the image is made of. The default is an empty one")
    compress: str | None = option(None, "compression, whose methods depend on the format")
    mkfs: str = option("", "further options of the tool, verbatim")
    mount: str = option("", "further mount options, verbatim")

    def needs(self) -> list[Need]:
        return [Root("mounting"), LOOP_DEVICES, KernelFilesystem(self.name), *super().needs()]

    def check_options(self) -> None:
        if self.source and (":" in self.source or not Path(self.source).is_absolute()):
            raise OptionError("source", f"must be the absolute path of one directory (got {self.source!r})")

    def words(self, source: Path, image: Path) -> list[str]:
        """Return the command that packs a tree into an image."""
        raise NotImplementedError

    def image(self, below: Directory) -> Path:
        """Return the path of the image."""
        return self.own_directory(below) / "image"

    def create(self, below: Directory, context: BuildContext) -> None:
        super().create(below, context)
        empty, image = self.own_directory(below) / "empty", self.image(below)
        context.machine.mkdir(empty)
        context.machine.make_file(image)
        context.machine.run(*self.words(Path(self.source or empty), image))

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Directory]:
        options = ",".join(["ro", *([self.mount] if self.mount else [])])
        with (
            open(self.image(below), "rb") as image,
            context.machine.attached(image.fileno()) as loop,
            context.mounted(self.name, loop.path, self.name, options) as place,
        ):
            yield dataclasses.replace(place, writable=below.path)


@dataclass(frozen=True)
class Squashfs(ImageLayer):
    """A read-only SquashFS image, as in live systems and Snap packages.

    It is made with the stack, of `source` or of nothing. `workloads.build_image` makes another one of a corpus.
    `overlay` on it keeps new files in the directory below the image.
    """

    name: ClassVar = "squashfs"
    stores: ClassVar = "squashfs"
    example: ClassVar = "ext4 | squashfs(compress='zstd') | overlay"
    tool: ClassVar = Tool("mksquashfs", "squashfs-tools")
    grammar: ClassVar[Mapping[str, Grammar]] = {
        "source": Directories(),
        "mkfs": CommandLine(
            {
                "-no-exports -no-sparse -no-xattrs -noI -noId -noD -noF -noX -no-fragments -always-use-fragments": FLAG,
                "-no-duplicates -all-root -root-owned -no-tailends -tailends -exports": FLAG,
                "-b -mem -Xdict-size": SIZE,
                "-processors -Xcompression-level -mkfs-time -all-time -force-uid -force-gid -root-mode": NUMBER,
                "-Xstrategy -Xbcj -Xalgorithm": KEYWORD,
                "-p -pf -pd -e -ef -sort -recover -recovery-path -o -offset -tar -cpiostyle": OUTSIDE,
                "-action -log-action -true-action -false-action": OUTSIDE,
                "-action-file -log-action-file -true-action-file -false-action-file": OUTSIDE,
            }
        ),
        "mount": MOUNT | {"threads": KEYWORD},
    }

    compress: str | None = option(
        None,
        "compression, such as zstd:19. The default is gzip",
        choices=("none", "lz4", "xz"),
        levels={"gzip": range(1, 10), "lzo": range(1, 10), "zstd": range(1, 23)},
    )

    def words(self, source: Path, image: Path) -> list[str]:
        method, _, level = (self.compress or "gzip").partition(":")
        how = ["-noI", "-noD", "-noF", "-noX"] if method == "none" else ["-comp", method]
        how += ["-Xcompression-level", level] if level else []
        words = [self.program.command, str(source), str(image), "-noappend", "-quiet", "-no-progress"]
        return [*words, *how, *shlex.split(self.mkfs)]


@dataclass(frozen=True)
class Erofs(ImageLayer):
    """A read-only EROFS image, as in Android and containers.

    It is made with the stack, of `source` or of nothing. `workloads.build_image` makes another one of a corpus.
    `overlay` on it keeps new files in the directory below the image.
    """

    name: ClassVar = "erofs"
    stores: ClassVar = "erofs"
    example: ClassVar = "ext4 | erofs(compress='lz4hc') | overlay"
    tool: ClassVar = Tool("mkfs.erofs", "erofs-utils")
    grammar: ClassVar[Mapping[str, Grammar]] = {
        "source": Directories(),
        "mkfs": CommandLine(
            {
                "--all-root --ignore-mtime --preserve-mtime --force-gid --force-uid --quiet": FLAG,
                "-C -b --max-extent-bytes": SIZE,
                "-d -x -T --workers --mount-point": NUMBER,
                "-E -U": KEYWORD,
                "-L": OUTSIDE,
                "-c --compress-hints --exclude-path --exclude-regex --file-contexts --blobdev --tar --aufs": OUTSIDE,
                "--random-pclusterblks --product-out --fs-config-file --block-list-file --clean --incremental": OUTSIDE,
            }
        ),
        "mount": MOUNT | {"device": OUTSIDE, "fsid domain_id": OUTSIDE, "cache_strategy dax": KEYWORD},
    }

    compress: str | None = option(
        None,
        "compression, such as zstd:19. The default is none",
        choices=("none", "lz4"),
        levels={"lz4hc": range(13), "lzma": range(110), "deflate": range(10), "zstd": range(23)},
    )

    def words(self, source: Path, image: Path) -> list[str]:
        method, _, level = (self.compress or "none").partition(":")
        how = [] if method == "none" else [f"-z{method}{f',{level}' if level else ''}"]
        return [self.program.command, "--quiet", *how, *shlex.split(self.mkfs), str(image), str(source)]

    def fsck(self, below: Directory, context: BuildContext) -> CheckResult | None:
        return CheckResult.of(*context.machine.ended(self.beside(Tool("fsck.erofs")).command, str(self.image(below))))


def fill(stack: Built, write: Callable[[Path], object]) -> None:
    """Let `write` create files in a directory, and make them visible in the stack: directly, or in its image."""
    layer = next((layer for layer in stack.stack.layers if isinstance(layer, ImageLayer)), None)
    if layer is None:
        write(stack.path)
        return
    with stack.taken_down(layer.name) as below:
        assert isinstance(below, Directory)
        tree = below.path / "tree"
        stack.machine.mkdir(tree, exist_ok=True)
        write(tree)
        stack.machine.run(*layer.words(tree, layer.image(below)))
