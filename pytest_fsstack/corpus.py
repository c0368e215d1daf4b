"""The data that workloads use: generated from a seed, or given by the user.

A corpus is an archive and what must be there once it is extracted. All of it lies in a cache that sessions share, so
that a second session starts at once; the caller says where (`cache_directory` is the usual place).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import heapq
import json
import os
import shutil
import signal
import stat
import struct
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pytest_fsstack import host
from pytest_fsstack.backup import Backup, write_tar
from pytest_fsstack.needs import Tool

#: Part of every cached name: raise it whenever the same arguments would give other bytes.
FORMAT = 1
SEED = 1
FILES = 5_000
SIZE = 80_000_000
SAMPLES = 40
#: How much of a sampled file is hashed, so that checking an archive of huge files stays cheap.
SAMPLE_BYTES = 4 << 20

ZSTD = Tool("zstd", "zstd")

_MAGIC = {
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


def cache_directory() -> Path:
    """``$XDG_CACHE_HOME/pytest-fsstack``, or the same below ``~/.cache``; not created."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (named if named.is_absolute() else Path.home() / ".cache") / "pytest-fsstack"


def digest(content: IO[bytes]) -> str:
    """SHA-256, in hexadecimal, of the first 4 MiB of a file."""
    return hashlib.sha256(content.read(SAMPLE_BYTES)).hexdigest()


def compressor(tar: Path) -> Tool | None:
    """The tool without which ``tar -xf`` cannot read this archive, or None. Raises `OSError`."""
    with tar.open("rb") as archive:
        start = archive.read(8)
    return next((tool for magic, tool in _MAGIC.items() if start.startswith(magic)), None)


def generated(
    cache: Path, seed: int = SEED, *, files: int = FILES, size: int = SIZE, directories: int | None = None
) -> Corpus:
    """A tree shaped like the source of a program, the same bytes for the same arguments everywhere.

    `files` regular files of log-normal sizes, `size` bytes in all, in nested directories: one for every 15 files, or
    as many as `directories` says. The text compresses about as source code does. The archive is uncompressed, so that
    extracting it measures the stack and not gzip. It holds neither links nor odd names, so that every filesystem can
    take it. Raises `CorpusError`, and `ValueError` for more directories than files, or fewer than two.
    """
    count = 1 + max(1, files // 15) if directories is None else directories
    if directories is not None and not 2 <= directories <= files:
        raise ValueError(f"generated: {files} files cannot lie in {directories} directories")
    shape = f"{files}" if directories is None else f"{files}-in-{directories}"
    tar = cache / f"generated-{FORMAT}-{seed}-{shape}-{size}.tar"
    return _kept(f"generated, seed {seed}", tar, lambda out: _write_tree(out, seed, files, size, count))


def compressed(corpus: Corpus, tool: str, cache: Path) -> Corpus:
    """The corpus with its archive compressed by ``gzip``, ``bzip2``, ``xz`` or ``zstd``, kept in the cache.

    One that is compressed already stays what it is. Raises `CorpusError`.
    """
    if compressor(corpus.tar):
        return corpus
    needed = next((known for known in _MAGIC.values() if known.command == tool), None)
    if needed is None:
        raise CorpusError(f"{tool!r} is none of {', '.join(known.command for known in _MAGIC.values())}")
    if reason := needed.missing():
        raise CorpusError(f"corpus {corpus.name}: {reason}")
    status = corpus.tar.stat()
    target = cache / f"compressed-{FORMAT}-{_key(str(corpus.tar), status.st_size, status.st_mtime_ns)}.tar.{tool}"
    with _explained(corpus.tar):
        if not target.is_file():
            with _replacing(target) as out:
                subprocess.run([str(host.which(tool)), "-c", str(corpus.tar)], stdout=out, check=True)
    return dataclasses.replace(corpus, tar=target)


def given(path: Path, cache: Path) -> Corpus:
    """The user's own archive (.tar, .gz, .bz2, .xz or .zst) or directory.

    An archive is used as it is: extracting it includes decompressing it, on every stack alike. It is read once to know
    what it holds, and again only when its path, size or time of modification has changed. A directory is packed into
    an uncompressed archive in the cache, again whenever a path, type, size or time in it has changed.

    Raises `CorpusError`: nothing there, not a tar archive, damaged, empty, no tool to decompress it, members with
    absolute paths or ``..``.
    """
    with _explained(path):
        real = path.resolve(strict=True)
        status = real.stat()
        if stat.S_ISDIR(status.st_mode):
            if cache.resolve().is_relative_to(real):
                raise CorpusError(f"corpus {path}: holds the cache {cache}; set XDG_CACHE_HOME to another place")
            tar = cache / f"packed-{_fingerprint(real)}.tar"
            return _kept(real.name or str(real), tar, lambda out: _pack(real, out))
        if not stat.S_ISREG(status.st_mode):
            raise CorpusError(f"corpus {path}: neither an archive nor a directory")
        tool = compressor(real)
        if tool and (reason := tool.missing()):
            raise CorpusError(f"corpus {path}: {reason}")
        key = _key(str(real), status.st_size, status.st_mtime_ns)
        manifest = cache / f"given-{FORMAT}-{key}.json"
        if (corpus := _recalled(manifest, real)) is None:
            corpus = _scan(path.name, real)
            _remember(manifest, corpus)
        return corpus


def payload(cache: Path, size: int, seed: int) -> Path:
    """A file of `size` bytes that no layer can compress or deduplicate, the same for the same seed everywhere.

    Raises `CorpusError`.
    """
    path = cache / f"payload-{FORMAT}-{seed}-{size}.bin"
    with _explained(path):
        if not path.is_file() or path.stat().st_size != size:
            with _replacing(path) as out:
                for index, start in enumerate(range(0, size, 1 << 20)):
                    out.write(noise(min(1 << 20, size - start), "payload", seed, index))
    return path


def zipped(corpus: Corpus, cache: Path) -> Path:
    """A corpus as a zip archive, deflated, for ``unzip``; kept in the cache.

    Raises `CorpusError`: it holds hard links, or names that are not text, which no zip archive can hold.
    """
    status = corpus.tar.stat()
    path = cache / f"zipped-{FORMAT}-{_key(str(corpus.tar.resolve()), status.st_size, status.st_mtime_ns)}.zip"
    with _explained(path):
        if not path.is_file():
            with _replacing(path) as out:
                _zip(corpus, out)
    return path


def packed_backup(cache: Path, backup: Backup, *, compressed: bool = False) -> Path:
    """The archive that a description of a backup gives, as a file in the cache.

    The one of the published study has 490 GiB; `compressed`, with zstd, what it holds of zeros and of names of links
    takes half a gigabyte. It is made at about 20 µs a link and 1 s a GB. Raises `CorpusError`.
    """
    path = cache / f"backup-{FORMAT}-{_key(backup)}.tar{'.zst' if compressed else ''}"
    with _explained(path):
        if not path.is_file():
            if compressed and (reason := ZSTD.missing()):
                raise CorpusError(f"corpus {path}: {reason}")
            with _replacing(path) as out:
                if compressed:
                    _compress(out, lambda pipe: write_tar(backup, pipe))
                else:
                    write_tar(backup, out)
    return path


def _compress(out: IO[bytes], write: Callable[[IO[bytes]], None]) -> None:
    command = host.which(ZSTD.command) or ZSTD.command
    with tempfile.TemporaryFile() as said:
        # What it could not write shows in how it ends.
        with contextlib.suppress(BrokenPipeError):
            with subprocess.Popen([command, "-q", "-1"], stdin=subprocess.PIPE, stdout=out, stderr=said) as process:
                assert process.stdin is not None
                write(process.stdin)
        said.seek(0)
        words = said.read().decode(errors="replace").strip().splitlines()
    if process.wait():
        raise CorpusError(f"corpus {out.name}: {words[-1] if words else f'{ZSTD.command} failed'}")


# The cache


def _kept(name: str, tar: Path, make: Callable[[IO[bytes]], None]) -> Corpus:
    """The archive as the cache has it, made where it is missing or not what its manifest says."""
    manifest = tar.with_suffix(".json")
    with _explained(tar):
        if (corpus := _recalled(manifest, tar)) is None:
            with _replacing(tar) as out:
                make(out)
            corpus = _scan(name, tar)
            _remember(manifest, corpus)
    return corpus


def _recalled(manifest: Path, tar: Path) -> Corpus | None:
    try:
        known = json.loads(manifest.read_text())
        size = known.pop("tar_size")
        corpus = Corpus(tar=tar, **known)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return corpus if tar.is_file() and tar.stat().st_size == size else None


def _remember(manifest: Path, corpus: Corpus) -> None:
    facts: dict[str, Any] = {**vars(corpus), "sample": dict(corpus.sample), "tar_size": corpus.tar.stat().st_size}
    del facts["tar"]
    with _replacing(manifest) as out:
        out.write(json.dumps(facts, indent=1).encode())


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete, whoever else writes the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as out:
        try:
            yield out
            out.flush()
            # Else the kernel writes it back in the middle of the first measurement.
            os.fsync(out.fileno())
            Path(out.name).replace(path)
        except BaseException:
            Path(out.name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        elsewhere = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        raise CorpusError(f"corpus {path}: {error.strerror or error}{elsewhere}") from error


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


# An archive that exists


def _scan(name: str, tar: Path) -> Corpus:
    """Read an archive once, without extracting it. Raises `CorpusError`."""
    tree = _Contents(name)
    with _decompressed(name, tar) as stream:
        first = True
        try:
            with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 18, errors="surrogateescape") as archive:
                while (member := archive.next()) is not None:
                    first = False
                    tree.add(archive, member)
                    # It would keep every member of an archive of millions.
                    archive.members.clear()  # type: ignore[attr-defined]
        except tarfile.TarError as error:
            what = "not a tar archive, plain or by gzip, bzip2, xz or zstd" if first else f"damaged archive ({error})"
            raise CorpusError(f"corpus {name}: {what}") from error
    return tree.corpus(tar)


@contextlib.contextmanager
def _decompressed(name: str, tar: Path) -> Iterator[IO[bytes]]:
    """The archive's bytes through the tool that ``tar`` itself will use (zstd is in no Python before 3.14)."""
    tool = compressor(tar)
    if tool is None:
        with tar.open("rb") as plain:
            yield plain
        return
    command = host.which(tool.command) or tool.command
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen([command, "-dc", os.fspath(tar)], stdout=subprocess.PIPE, stderr=said) as process:
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
        said.seek(0)
        words = said.read().decode(errors="replace").strip().splitlines()
    # A damaged archive looks like a short one to the reader of the pipe: what the tool says comes first.
    if process.returncode not in (0, -signal.SIGPIPE):
        raise CorpusError(f"corpus {name}: {words[-1] if words else f'{tool.command} cannot read it'}") from refused
    if refused is not None:
        raise refused


class _Contents:
    """What extracting the members seen so far would give; a later member replaces an earlier one of its name."""

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
        self._forget(path)
        if member.isreg():
            self._sizes[path] = member.size
            if self._chosen(path):
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
        if both := self._directories & (self._links | set(self._sizes)):
            raise CorpusError(f"corpus {self._name}: {min(both)!r} is a directory and something else as well")
        total = sum(self._sizes.values())
        chosen = {path: self._digests[path] for _, path in sorted(self._last) if path in self._digests}
        sample = dict(sorted(chosen.items()))
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

    def _chosen(self, path: str) -> bool:
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


# A directory that exists


def _fingerprint(top: Path) -> str:
    """What changes when a tree does, from its metadata alone."""
    seen = hashlib.sha256(repr((FORMAT, os.fspath(top))).encode())
    pending = [""]
    while pending:
        directory = pending.pop()
        with os.scandir(top / directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            path = os.path.join(directory, entry.name)
            status = entry.stat(follow_symlinks=False)
            seen.update(repr((path, status.st_mode, status.st_size, status.st_mtime_ns)).encode())
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
    return seen.hexdigest()[:16]


def _pack(top: Path, out: IO[bytes]) -> None:
    argv = ["tar", "--create", "--file", out.name, "--format=gnu", "--sort=name", "--directory", os.fspath(top), "."]
    try:
        host.run(*argv, timeout=86_400.0)
    except host.CommandError as error:
        raise CorpusError(f"corpus {top}: cannot pack it: {error.stderr or error}") from error


def _zip(corpus: Corpus, out: IO[bytes]) -> None:
    with (
        _decompressed(corpus.name, corpus.tar) as stream,
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


# A tree that does not exist yet

_MTIME = 1_300_000_000
_DEPTH = 6

_SYLLABLES = """
ab add alloc arch bit blk buf bus cache call check clk cmd con copy count cpu ctl cur data del desc dev dma drv en
end err ev ext fd fill find fix flag flush fn free fs get grp handle hash hdr head host hw id idx in info init io
irq item key kick last len level line link list load lock log loop map mask max mem mgr min mod msg mux name net
new next nr num obj off op opt out own pack page param parse path pci pend phy pin poll pool port pos pre priv
probe proc ptr put queue rate raw read reg rel req res ret ring root rx scan sec seg sel send set shift size skb
slot sock spin start stat step stop str sub sum sync sys tab tag task test time timer tmp top trace tx type unit up
user val vec ver vm wait walk wake word work write xfer zone
"""

_LICENSE = """\
/*
 * This program is free software; you can redistribute it and/or modify it under the terms of the licence that comes
 * with it, either version 2 of that licence, or (at your option) any later version.
 *
 * This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the implied
 * warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the licence for more details.
 */

"""

_STATEMENTS = (
    "\t%s = %s(%s);\n",
    "\t%s->%s = %s;\n",
    "\t%s(%s, %s);\n",
    "\tif (%s)\n\t\treturn %s;\n",
    "\tif (!%s->%s) {\n\t\t%s(%s);\n\t\tgoto %s;\n\t}\n",
    "\tfor (%s = 0; %s < %s; %s++)\n\t\t%s(%s[%s], %s);\n",
    "\tstruct %s *%s = %s(%s);\n",
    "\t/* the %s of a %s %s must be %s before its %s */\n",
    "}\n\nstatic int %s(struct %s *%s, int %s)\n{\n",
    "}\n\nstatic void %s(struct %s *%s)\n{\n",
    "\tcase %s:\n\t\t%s |= %s;\n\t\tbreak;\n",
    "\tdev_err(%s, \"%s: %s %s failed\\n\", %s);\n",
    "\tspin_lock(&%s->%s);\n\t%s(%s);\n\tspin_unlock(&%s->%s);\n",
    "\treturn %s(%s, %s, %s);\n",
    "\t%s &= ~(%s << %s);\n",
    "}\n\n#define %s(%s)\t\t(%s + %s)\n\n{\n",
)  # fmt: skip


def noise(count: int, *label: object) -> bytes:
    """`count` bytes that depend on the label alone, by a published function: `random` promises less."""
    return hashlib.shake_128(repr((FORMAT, *label)).encode()).digest(count)


def _numbers(count: int, *label: object) -> tuple[int, ...]:
    """`count` numbers below 65536, as `noise`."""
    return struct.unpack(f"<{count}H", noise(2 * count, *label))


def _write_tree(out: IO[bytes], seed: int, files: int, size: int, count: int) -> None:
    directories, contents = _layout(seed, files, size, count)
    words = _words(seed)
    for path in sorted([*directories, *contents]):
        if path in contents:
            text = _text(words, contents[path], seed, path)
            out.write(_header(path, len(text)) + text + bytes(-len(text) % 512))
        else:
            out.write(_header(path + "/", 0))
    out.write(bytes(2 * 512))


def _layout(seed: int, files: int, size: int, count: int) -> tuple[list[str], dict[str, int]]:
    """`count` directories, and files with their sizes in bytes."""
    names, syllables = _numbers(files, seed, "names"), _SYLLABLES.split()
    top = f"source-{seed}"
    directories = [top]
    for index, number in enumerate(_numbers(count - 1, seed, "directories")):
        parent = directories[number * number * len(directories) >> 32]
        if parent.count("/") >= _DEPTH:
            parent = top
        directories.append(f"{parent}/{syllables[names[index] % len(syllables)]}{index}")
    paths = []
    for index, number in enumerate(_numbers(files, seed, "places")):
        directory = directories[number * len(directories) >> 16]
        suffix = (".c", ".c", ".c", ".h", ".h", ".S", ".txt")[names[index] % 7]
        paths.append(f"{directory}/{syllables[names[index] % len(syllables)]}_{index}{suffix}")
    return directories, dict(zip(paths, _sizes(seed, files, size), strict=True))


def _sizes(seed: int, files: int, size: int) -> list[int]:
    """Log-normal; the median is a quarter of the mean, as in the source of Linux 6.1."""
    weights = []
    for index in range(files):
        # Sums and products only: the last bits of a logarithm or an exponential are the C library's own. Twelve uniform
        # numbers add up to nearly a normal one, and exp(x) is nearly (1 + x / 1024) ** 1024.
        normal = sum(_numbers(12, seed, "size", index)) / 65536 - 6
        weight = 1 + 1.7 * normal / 1024
        for _ in range(10):
            weight *= weight
        weights.append(int(1e6 * weight))
    total = sum(weights)
    sizes = [weight * size // total for weight in weights]
    sizes[-1] += size - sum(sizes)
    return sizes


def _words(seed: int) -> list[str]:
    """Identifiers, each as often as Zipf's law has it: one taken at random is one taken by its frequency."""
    table, syllables = [], _SYLLABLES.split()
    for rank, number in enumerate(_numbers(8192, seed, "words")):
        first, second = divmod(number, 256)
        word = syllables[first % len(syllables)] + "_" + syllables[second % len(syllables)]
        if rank % 4 == 0:
            word += f"_{syllables[rank % len(syllables)]}"
        elif rank % 4 == 1:
            word = syllables[first % len(syllables)]
        table += [word] * max(1, 8192 // (rank + 3))
    return table


def _text(words: list[str], size: int, seed: int, path: str) -> bytes:
    parts = [_LICENSE]
    length = len(_LICENSE)
    while length < size:
        # A part of a program has a vocabulary of its own.
        numbers = _numbers(128, seed, path, length)
        local = [words[number % len(words)] for number in numbers] * 2
        shapes = [_STATEMENTS[byte % len(_STATEMENTS)] for byte in noise(512, seed, path, length, "shapes")]
        form = "".join(shapes)
        part = form % tuple(map(local.__getitem__, noise(form.count("%s"), seed, path, length, "words")))
        parts.append(part)
        length += len(part)
    return "".join(parts).encode()[:size]


def _header(path: str, size: int) -> bytes:
    """A ustar header, written here because `tarfile` does not promise the same bytes from version to version."""
    name = path.encode()
    if len(name) > 100:
        raise AssertionError(f"{path} does not fit a ustar header")
    kind, mode = (b"5", 0o755) if path.endswith("/") else (b"0", 0o644)
    fields = struct.pack(
        "100s8s8s8s12s12s8sc100s8s32s32s183x",
        name,
        b"%07o\0" % mode,
        b"%07o\0" % 0,
        b"%07o\0" % 0,
        b"%011o\0" % size,
        b"%011o\0" % _MTIME,
        b" " * 8,
        kind,
        b"",
        b"ustar\00000",
        b"root",
        b"root",
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]
