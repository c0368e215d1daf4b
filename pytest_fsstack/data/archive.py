"""An archive, what extracting it must give, and how one is read, packed and compressed."""

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

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.descriptors import closing
from pytest_fsstack.machine.needs import Tool

SAMPLES = 40
#: How much of a sampled file is hashed, so that checking an archive of huge files stays cheap.
SAMPLE_BYTES = 4 << 20

ZSTD = Tool("zstd", "zstd")

#: What decompresses an archive that begins so.
COMPRESSORS = {
    b"\x1f\x8b": Tool("gzip", "gzip"),
    b"BZh": Tool("bzip2", "bzip2"),
    b"\xfd7zXZ\0": Tool("xz", "xz-utils", {"dnf": "xz", "zypper": "xz", "pacman": "xz"}),
    b"\x28\xb5\x2f\xfd": ZSTD,
}


class CorpusError(Exception):
    """The data cannot be had; one line that says why and, where there is one, the way out."""


@dataclass(frozen=True)
class Corpus:
    """An archive, and what extracting it must give."""

    name: str
    #: What ``tar -xf`` takes, compressed or not.
    tar: Path
    #: Names of regular files; a file with two hard links counts twice.
    files: int
    #: Directories at any depth, also those that the archive only implies.
    directories: int
    #: Symbolic links.
    links: int
    #: Sum of the regular files' sizes, over names as in `files`.
    bytes: int
    #: Path below the extraction directory to what `digest` gives for it: a seeded sample of some 40 files.
    sample: Mapping[str, str] = field(hash=False)


def digest(content: IO[bytes]) -> str:
    """SHA-256, in hexadecimal, of the first 4 MiB of a file."""
    return hashlib.sha256(content.read(SAMPLE_BYTES)).hexdigest()


def compressor(tar: Path) -> Tool | None:
    """The tool without which ``tar -xf`` cannot read this archive, or None. Raises `OSError`."""
    with tar.open("rb") as archive:
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
                    # It would keep every member of an archive of millions.
                    archive.members.clear()  # type: ignore[attr-defined]
                watched.check_end(name, archive.offset)
        except tarfile.TarError as error:
            what = "not a tar archive, plain or by gzip, bzip2, xz or zstd" if first else f"damaged archive ({error})"
            raise CorpusError(f"corpus {name}: {what}") from error
    return tree.corpus(tar)


@contextlib.contextmanager
def decompressed(name: str, tar: Path) -> Iterator[IO[bytes]]:
    """The archive's bytes through the tool that ``tar`` itself will use (zstd is in no Python before 3.14)."""
    tool = compressor(tar)
    if tool is None:
        with tar.open("rb") as plain:
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
                # Padding follows the end of an archive, and a tool that cannot write it would seem to fail.
                while process.stdout.read(1 << 20):
                    pass
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()
    # A damaged archive looks like a short one to the reader of the pipe: what the tool says comes first.
    if process.returncode not in (0, -signal.SIGPIPE):
        raise CorpusError(f"corpus {name}: {words[-1] if words else f'{tool.command} cannot read it'}") from refused
    if refused is not None:
        raise refused


class _Watched:
    """A stream of which the end is looked at: tarfile takes a cut off archive, or rubbish in it, for a whole one."""

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
        """Raise `CorpusError` unless at this offset there is a block of zeros, which ends an archive."""
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
            # As root, tar would make a live one, with the mode that the archive's author chose.
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
        """A member's path as it will be below the extraction directory, None for that directory itself."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts:
            raise CorpusError(f"corpus {self._name}: refused, member {name!r} would leave the extraction directory")
        return "/".join(parts) or None

    def _forget(self, path: str) -> None:
        self._sizes.pop(path, None)
        self._links.discard(path)
        self._digests.pop(path, None)

    def _in_sample(self, path: str) -> bool:
        """Whether a path belongs to the sample: those whose hashes are least, so that the order does not matter."""
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
    """Write a directory as an uncompressed archive, without set-user-ID and set-group-ID. Raises `CorpusError`."""
    # As tar's own descriptor: this process lets no other look into its own while a stack stands.
    with closing(os.dup(out.fileno())) as descriptor:
        os.set_inheritable(descriptor, True)
        options = ["--create", "--file", f"/proc/self/fd/{descriptor}", "--format=gnu", "--sort=name", "--mode=ug-s"]
        try:
            commands.run("tar", *options, "--directory", top, ".", fds=[descriptor], timeout=86_400.0)
        except commands.CommandError as error:
            raise CorpusError(f"corpus {top}: cannot pack it: {error.stderr or error}") from error


def write_zip(corpus: Corpus, out: IO[bytes]) -> None:
    """Write a corpus as a zip archive. Raises `CorpusError`: hard links, or names that are not text."""
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
            # Its times begin in 1980, and end in 2107.
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


def compress(out: IO[bytes], write: Callable[[IO[bytes]], None]) -> None:
    """Write what `write` writes, compressed with zstd. Raises `CorpusError`."""
    command = commands.which(ZSTD.command) or ZSTD.command
    with tempfile.TemporaryFile() as errors:
        # What it could not write shows in how it ends.
        with contextlib.suppress(BrokenPipeError):
            with subprocess.Popen([command, "-q", "-1"], stdin=subprocess.PIPE, stdout=out, stderr=errors) as process:
                assert process.stdin is not None
                write(process.stdin)
        errors.seek(0)
        words = errors.read().decode(errors="replace").strip().splitlines()
    if process.wait():
        raise CorpusError(f"cannot compress: {words[-1] if words else f'{ZSTD.command} failed'}")
