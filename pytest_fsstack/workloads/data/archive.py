"""Archives: the expected result of extracting one, and functions that read, pack and compress them."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import os
import shutil
import signal
import stat
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from pytest_fsstack.machine import commands, reading
from pytest_fsstack.machine.descriptors import closing
from pytest_fsstack.machine.needs import Tool

#: The number of files of an archive whose contents are checked.
SAMPLES = 40
#: Bytes of a sampled file that are hashed. The limit keeps checks of huge files cheap.
SAMPLE_BYTES = 4 << 20

ZSTD = Tool("zstd", "zstd")

#: The tool that decompresses an archive, by the first bytes of the archive.
COMPRESSORS = {
    b"\x1f\x8b": Tool("gzip", "gzip"),
    b"BZh": Tool("bzip2", "bzip2"),
    b"\xfd7zXZ\0": Tool("xz", "xz-utils", {"dnf": "xz", "zypper": "xz", "pacman": "xz"}),
    b"\x28\xb5\x2f\xfd": ZSTD,
}


class CorpusError(Exception):
    """An error that makes the data unavailable. The message is one line with the reason and, if known, a remedy."""


@dataclass(frozen=True)
class Corpus:
    """An archive, and the expected result of extracting it."""

    name: str
    #: The archive, compressed or not, for ``tar -xf``.
    tar: Path
    #: The number of names of regular files. A file with two hard links counts twice.
    files: int
    #: The number of directories at any depth. Those that the archive only implies count too.
    directories: int
    #: The number of symbolic links.
    links: int
    #: The sum of the sizes of regular files, counted by name as in `files`.
    bytes: int
    #: The `digest` of some 40 sampled files, by path below the extraction directory.
    sample: Mapping[str, str] = field(hash=False)


def digest(content: IO[bytes]) -> str:
    """Return the SHA-256 of the first 4 MiB of a file, in hexadecimal."""
    return hashlib.sha256(content.read(SAMPLE_BYTES)).hexdigest()


def compressor(tar: Path) -> Tool | None:
    """Return the tool that ``tar -xf`` needs to read this archive, or None. Raises `OSError`."""
    with reading.opened(tar) as archive:
        start = archive.read(8)
    return next((tool for magic, tool in COMPRESSORS.items() if start.startswith(magic)), None)


def scan(name: str, tar: Path) -> Corpus:
    """Read an archive once, without extracting it. Raises `CorpusError`."""
    tree = _Contents(name)
    with decompressed(name, tar) as stream:
        first, watched = True, _Watched(stream)
        try:
            with tarfile.open(
                fileobj=cast("IO[bytes]", watched), mode="r|", bufsize=1 << 18, errors="surrogateescape"
            ) as archive:
                while (member := archive.next()) is not None:
                    first = False
                    tree.add(archive, member)
                    # Otherwise tarfile would keep every member in memory, and an archive may have millions.
                    archive.members.clear()  # type: ignore[attr-defined]
                watched.check_end(name, archive.offset)
        except tarfile.TarError as error:
            what = "not a tar archive, plain or by gzip, bzip2, xz or zstd" if first else f"damaged archive ({error})"
            raise CorpusError(f"corpus {name}: {what}") from error
    return tree.corpus(tar)


@contextlib.contextmanager
def decompressed(name: str, tar: Path) -> Iterator[IO[bytes]]:
    """Yield the decompressed archive as a stream, from the tool that ``tar`` itself uses. Raises `CorpusError`.

    Python has no zstd before 3.14.
    """
    tool = compressor(tar)
    if tool is None:
        with reading.opened(tar) as plain:
            yield plain
        return
    command = commands.which(tool.command) or tool.command
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen([command, "-dc", os.fspath(tar)], stdout=subprocess.PIPE, stderr=errors) as process:
            assert process.stdout is not None
            refused: CorpusError | None = None
            try:
                yield process.stdout
            except CorpusError as error:
                refused = error
            else:
                # Read the padding after the end of the archive. A tool that cannot write it would fail.
                while process.stdout.read(1 << 20):
                    pass
        reason = _last_line(errors)
    # To the reader of the pipe, a damaged archive looks like a short one. So the error of the tool comes first.
    if process.returncode not in (0, -signal.SIGPIPE):
        raise CorpusError(f"corpus {name}: {reason or f'{tool.command} cannot read it'}") from refused
    if refused is not None:
        raise refused


class _Watched:
    """A stream whose end can be checked. tarfile accepts archives that are cut off or have garbage between members."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._count = stream, 0
        self._last: deque[bytes] = deque(maxlen=4)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        if data:
            self._count += len(data)
            self._last.append(data)
        return data

    def check_end(self, name: str, offset: int) -> None:
        """Raise `CorpusError` unless a block of zeros, which ends an archive, is at this offset."""
        tail = b"".join(self._last)
        block = tail[max(0, offset - self._count + len(tail)) :][: tarfile.BLOCKSIZE]
        if self._count < offset + tarfile.BLOCKSIZE:
            raise CorpusError(f"corpus {name}: damaged archive (it is cut off)")
        if block.strip(b"\0"):
            raise CorpusError(f"corpus {name}: damaged archive (no member at byte {offset}, and no end)")


class _Contents:
    """The result of extracting the members so far. A later member replaces an earlier one with its name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._sizes: dict[str, int] = {}
        self._directories: set[str] = set()
        self._links: set[str] = set()
        self._digests: dict[str, str] = {}
        self._last: list[tuple[int, str]] = []

    def add(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path = self._safe(member.name)
        if path is None:
            return
        self._directories.update(_parents(path))
        if member.isdir():
            self._directories.add(path)
            return
        if member.isblk() or member.ischr():
            # As root, tar would create a working device node with any mode.
            raise CorpusError(f"corpus {self._name}: refused, member {member.name!r} is a device node")
        self._forget(path)
        if member.isreg():
            self._sizes[path] = member.size
            if self._in_sample(path):
                content = archive.extractfile(member)
                assert content is not None
                self._digests[path] = digest(content)
        elif member.issym():
            self._links.add(path)
        elif member.islnk():
            target = self._safe(member.linkname)
            if target in self._links:
                self._links.add(path)
            elif target in self._sizes:
                self._sizes[path] = self._sizes[target]
            else:
                raise CorpusError(f"corpus {self._name}: {path!r} is a hard link to {target!r}, which is not in it")

    def corpus(self, tar: Path) -> Corpus:
        if not self._sizes:
            raise CorpusError(f"corpus {self._name}: holds no files")
        if ambiguous := self._directories & (self._links | set(self._sizes)):
            raise CorpusError(f"corpus {self._name}: {min(ambiguous)!r} is a directory and something else as well")
        total = sum(self._sizes.values())
        digests = {path: self._digests[path] for _, path in sorted(self._last) if path in self._digests}
        sample = dict(sorted(digests.items()))
        return Corpus(self._name, tar, len(self._sizes), len(self._directories), len(self._links), total, sample)

    def _safe(self, name: str) -> str | None:
        """Return the path of a member below the extraction directory, or None for the directory itself."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            raise CorpusError(f"corpus {self._name}: refused, member {name!r} would leave the extraction directory")
        return "/".join(parts) or None

    def _forget(self, path: str) -> None:
        self._sizes.pop(path, None)
        self._links.discard(path)
        self._digests.pop(path, None)

    def _in_sample(self, path: str) -> bool:
        """Whether a path is in the sample so far. The sample has the smallest hashes, whatever the order of members."""
        rank = (-int.from_bytes(hashlib.sha256(os.fsencode(path)).digest(), "big"), path)
        if rank in self._last:
            return True
        if len(self._last) < SAMPLES:
            heapq.heappush(self._last, rank)
            return True
        dropped = heapq.heappushpop(self._last, rank)
        self._digests.pop(dropped[1], None)
        return dropped != rank


def _parents(path: str) -> Iterator[str]:
    while (end := path.rfind("/")) > 0:
        path = path[:end]
        yield path


def pack(top: Path, out: IO[bytes]) -> None:
    """Write a directory as an uncompressed archive, without set-user-ID and set-group-ID bits. Raises `CorpusError`."""
    # tar inherits the descriptor, because this process is undumpable while a stack is mounted.
    with closing(os.dup(out.fileno())) as descriptor:
        os.set_inheritable(descriptor, True)
        options = ["--create", "--file", f"/proc/self/fd/{descriptor}", "--format=gnu", "--sort=name", "--mode=ug-s"]
        try:
            commands.run("tar", *options, "--directory", top, ".", fds=[descriptor], timeout=commands.DAY)
        except commands.CommandError as error:
            raise CorpusError(f"corpus {top}: cannot pack it: {error.stderr or error}") from error


def write_zip(corpus: Corpus, out: IO[bytes]) -> None:
    """Write a corpus as a zip archive. Raises `CorpusError` for hard links, and for names that are not text."""
    with (
        decompressed(corpus.name, corpus.tar) as stream,
        tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 18, errors="surrogateescape") as archive,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        while (member := archive.next()) is not None:
            if member.islnk():
                raise CorpusError(
                    f"corpus {corpus.name}: {member.name!r} is a hard link, which no zip archive can hold"
                )
            name = member.name + ("/" if member.isdir() else "")
            try:
                name.encode()
            except UnicodeEncodeError:
                raise CorpusError(
                    f"corpus {corpus.name}: {name!r} is not text, as names in a zip archive are"
                ) from None
            # Times in a zip archive are from 1980 to 2107.
            modified = time.gmtime(min(max(member.mtime, 315_532_800), 4_354_819_199))
            info = zipfile.ZipInfo(name, modified[:6])
            kind = stat.S_IFDIR if member.isdir() else stat.S_IFLNK if member.issym() else stat.S_IFREG
            info.create_system, info.external_attr = 3, (kind | member.mode) << 16
            info.compress_type = zipfile.ZIP_STORED if member.isdir() else zipfile.ZIP_DEFLATED
            info.file_size = member.size
            if member.isreg():
                content = archive.extractfile(member)
                assert content is not None
                with packed.open(info, "w") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
            elif member.isdir() or member.issym():
                packed.writestr(info, member.linkname if member.issym() else b"")
            archive.members.clear()  # type: ignore[attr-defined]


def compress(tool: Tool, out: IO[bytes], write: Callable[[IO[bytes]], object], *options: str) -> None:
    """Compress the output of `write` with a tool. Raises `CorpusError`."""
    words = [commands.which(tool.command) or tool.command, "-c", *options]
    with tempfile.TemporaryFile() as errors:
        # If the tool cannot write, its exit code shows that.
        with contextlib.suppress(BrokenPipeError):
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=errors) as process:
                assert process.stdin is not None
                write(process.stdin)
        reason = _last_line(errors)
    if process.wait():
        raise CorpusError(f"cannot compress: {reason or f'{tool.command} failed'}")


def _last_line(errors: IO[bytes]) -> str:
    """Return the last line of a tool's stderr, or an empty text."""
    errors.seek(0)
    return errors.read().decode(errors="replace").strip().rpartition("\n")[2]
