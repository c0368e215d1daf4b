"""The data of workloads: generated from a seed, or given by the user.

A corpus is an archive with the expected result of extracting it. Sessions share a cache of corpora, so a second session
starts at once. Callers pass the directory of the cache, usually `cache_directory()`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from pytest_fsstack.machine import owners, reading
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.workloads.data.archive import (
    COMPRESSORS,
    ZSTD,
    Corpus,
    CorpusError,
    compress,
    compressor,
    pack,
    scan,
    write_zip,
)
from pytest_fsstack.workloads.data.backup import Backup, write_tar
from pytest_fsstack.workloads.data.noise import FORMAT, noise
from pytest_fsstack.workloads.data.scale import CORPUS, DEFAULT
from pytest_fsstack.workloads.data.source_tree import write_tree

SEED = 1
FILES, SIZE = CORPUS[DEFAULT]


class Cache(NamedTuple):
    """The directory of the cache, and the reason if it is not the usual one."""

    place: Path
    reason: str


def cache_directory() -> Path:
    """Return ``$XDG_CACHE_HOME/pytest-fsstack`` or ``~/.cache/pytest-fsstack``, without creating it.

    Users without a home get a directory below ``/tmp``, for example in a container without an entry in passwd. A
    directory in which another user could change something is skipped. Raises `CorpusError` if there is no other.
    """
    return chosen_cache().place


def chosen_cache() -> Cache:
    """Return the first directory for a cache in which no other user can change anything. Raises `CorpusError`."""
    first = ""
    for place in _places():
        existing = next(path for path in (place, *place.parents) if os.path.lexists(path))
        reason = owners.untrusted(existing)
        if not reason:
            return Cache(place, first)
        first = first or f"{place} is not used as the cache, because {reason}"
    raise CorpusError(f"{first}; name a directory of your own in XDG_CACHE_HOME")


def _places() -> Iterator[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification requires that relative paths are ignored.
    if cache.is_absolute():
        yield cache / "pytest-fsstack"
    # Under sudo, HOME may belong to the user who started it.
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".cache/pytest-fsstack"
    with contextlib.suppress(KeyError):
        yield Path(pwd.getpwuid(os.geteuid()).pw_dir, ".cache/pytest-fsstack")
    yield Path(tempfile.gettempdir(), f"pytest-fsstack-cache-{os.geteuid()}")


def generated(
    cache: Path, seed: int = SEED, *, files: int = FILES, size: int = SIZE, directories: int | None = None
) -> Corpus:
    """Return a generated tree like the source of a program. The same arguments give the same bytes everywhere.

    It has `files` regular files of log-normal sizes, with `size` bytes in total. There is a directory for every 15
    files, or the number in `directories`. The text compresses about as well as source code. The archive is
    uncompressed, so extracting it measures the stack and not gzip. It has no links and no unusual names, so every
    filesystem can store it. Raises `CorpusError`, and `ValueError` without files, for more directories than files, or
    fewer than two.
    """
    count = 1 + max(1, files // 15) if directories is None else directories
    if files < 1 or size < 0 or (directories is not None and not 2 <= directories <= files):
        raise ValueError(f"generated: {files} files of {size} bytes cannot lie in {count} directories")
    shape = f"{files}" if directories is None else f"{files}-in-{directories}"
    tar = cache / f"generated-{FORMAT}-{seed}-{shape}-{size}.tar"
    return _cached(f"generated, seed {seed}", tar, lambda out: write_tree(out, seed, files, size, count))


def compressed(corpus: Corpus, tool: str, cache: Path) -> Corpus:
    """Return the corpus with its archive compressed by ``gzip``, ``bzip2``, ``xz`` or ``zstd``, in the cache.

    A compressed archive is returned as it is. Raises `CorpusError`.
    """
    if compressor(corpus.tar):
        return corpus
    program = next((candidate for candidate in COMPRESSORS.values() if candidate.command == tool), None)
    if program is None:
        raise CorpusError(f"{tool!r} is none of {', '.join(candidate.command for candidate in COMPRESSORS.values())}")
    if reason := program.missing():
        raise CorpusError(f"corpus {corpus.name}: {reason}")
    status = corpus.tar.stat()
    target = cache / f"compressed-{FORMAT}-{_key(str(corpus.tar), status.st_size, status.st_mtime_ns)}.tar.{tool}"

    def copy(pipe: IO[bytes]) -> None:
        with reading.opened(corpus.tar) as plain:
            shutil.copyfileobj(plain, pipe, 1 << 20)

    return dataclasses.replace(corpus, tar=_kept(target, lambda out: compress(program, out, copy)))


def users_corpus(path: Path, cache: Path) -> Corpus:
    """Return the corpus of a user's archive (.tar, .gz, .bz2, .xz or .zst) or directory.

    An archive is used as it is, so extracting it includes decompressing it, equally on every stack. Its contents are
    read once, and again only after its path, size or modification time has changed. A directory is packed into an
    uncompressed archive in the cache, and again only after a path, type, size or time in it has changed.

    Raises `CorpusError` if the path does not exist, is no tar archive, is damaged or empty, if no tool can decompress
    it, and for members with absolute paths or ``..``.
    """
    with _explained(path):
        source = path.resolve(strict=True)
        status = source.stat()
        if stat.S_ISDIR(status.st_mode):
            if cache.resolve().is_relative_to(source):
                raise CorpusError(f"corpus {path}: holds the cache {cache}; set XDG_CACHE_HOME to another place")
            tar = cache / f"packed-{_fingerprint(source)}.tar"
            return _cached(source.name or str(source), tar, lambda out: pack(source, out))
        if not stat.S_ISREG(status.st_mode):
            raise CorpusError(f"corpus {path}: neither an archive nor a directory")
        tool = compressor(source)
        if tool and (reason := tool.missing()):
            raise CorpusError(f"corpus {path}: {reason}")
        key = _key(str(source), status.st_size, status.st_mtime_ns)
        manifest = cache / f"read-{FORMAT}-{key}.json"
        _open_cache(manifest)
        if (corpus := _recalled(manifest, source)) is None:
            corpus = scan(path.name, source)
            _remember(manifest, corpus)
        return corpus


def payload(cache: Path, size: int, seed: int) -> Path:
    """Return a file of `size` bytes that no layer can compress or deduplicate. It depends on the seed alone.

    Raises `CorpusError`.
    """

    def write(out: IO[bytes]) -> None:
        for index, start in enumerate(range(0, size, 1 << 20)):
            out.write(noise(min(1 << 20, size - start), "payload", seed, index))

    return _kept(cache / f"payload-{FORMAT}-{seed}-{size}.bin", write, size)


def zipped(corpus: Corpus, cache: Path) -> Path:
    """Return a corpus as a deflated zip archive in the cache, for ``unzip``.

    Raises `CorpusError` for hard links and for names that are not text, because zip archives cannot store them.
    """
    status = corpus.tar.stat()
    directory = f"zipped-{FORMAT}-{_key(str(corpus.tar.resolve()), status.st_size, status.st_mtime_ns)}"
    # Results name the file, so its name is the same on each machine.
    path = cache / directory / "corpus.zip"
    return _kept(path, lambda out: write_zip(corpus, out))


def packed_backup(cache: Path, backup: Backup, *, compressed: bool = False) -> Path:
    """Return the archive of a backup as a file in the cache.

    The published one has 490 GiB, or half a gigabyte if it is `compressed` with zstd. Making it takes about 20 µs a
    link and 1 s a GB. Raises `CorpusError`.
    """
    path = cache / f"backup-{FORMAT}-{_key(backup)}.tar{'.zst' if compressed else ''}"
    if not compressed:
        return _kept(path, lambda out: write_tar(backup, out))
    if not path.is_file() and (reason := ZSTD.missing()):
        raise CorpusError(f"corpus {path}: {reason}")
    return _kept(path, lambda out: compress(ZSTD, out, lambda pipe: write_tar(backup, pipe), "-q", "-1"))


# The cache


def _cached(name: str, tar: Path, make: Callable[[IO[bytes]], None]) -> Corpus:
    """Return a corpus from the cache. Make its archive if it is missing or does not match its manifest."""
    manifest = tar.with_suffix(".json")
    with _explained(tar):
        _open_cache(tar)
        if (corpus := _recalled(manifest, tar)) is None:
            with _replacing(tar) as out:
                make(out)
            corpus = scan(name, tar)
            _remember(manifest, corpus)
    return corpus


def _kept(path: Path, make: Callable[[IO[bytes]], object], size: int | None = None) -> Path:
    """Return a file of the cache. Make it if it is missing or has another size. Raises `CorpusError`."""
    with _explained(path):
        _open_cache(path)
        if not path.is_file() or size not in (None, path.stat().st_size):
            with _replacing(path) as out:
                make(out)
    return path


def _open_cache(path: Path) -> None:
    """Create the directory of a file in the cache. Raises OSError if another user may change it.

    From then on it can be used by name.
    """
    HeldDirectory.made(path.parent).__exit__()


def _recalled(manifest: Path, tar: Path) -> Corpus | None:
    try:
        record = json.loads(reading.read_text(manifest))
        size = record.pop("tar_size")
        corpus = Corpus(tar=tar, **record)
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
    """Yield a new file, which gets its name once it is complete, even if other processes write the same one.

    Until then it has no name, so nothing of it remains if this process is killed.
    """
    with HeldDirectory.made(path.parent) as cache:
        _remove_stale(cache)
        with _nameless(cache) as out:
            name = _name_of(out.fileno())
            try:
                yield out
                out.flush()
                # Otherwise the kernel would write it back during the first measurement.
                os.fsync(out.fileno())
                if not os.fstat(out.fileno()).st_nlink:
                    # Python follows the link to the file only if src_dir_fd is set.
                    ends = {"src_dir_fd": out.fileno(), "dst_dir_fd": cache.fileno()}
                    os.link(f"/proc/self/fd/{out.fileno()}", name, **ends, follow_symlinks=True)
                cache.rename(name, path.name)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    cache.unlink(name)
                raise


def _nameless(cache: HeldDirectory) -> IO[bytes]:
    """Return a new file without a name. If the filesystem has no such files, it has a name, and is locked while open.

    The name has the file's device and inode, so a file that a user calls so is not taken for a stale one.
    """
    flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(".", flags, 0o600, dir_fd=cache.fileno()), "w+b")
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
    descriptor, name = cache.new_file()
    with contextlib.suppress(OSError):  # without locks, only the age counts
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    cache.rename(name, _name_of(descriptor))
    return os.fdopen(descriptor, "w+b")


def _name_of(file: int) -> str:
    """Return the name of an unfinished file."""
    status = os.fstat(file)
    return f".fsstack-{status.st_dev:x}-{status.st_ino:x}.part"


#: Seconds after which an unlocked unfinished file in the cache counts as left by a killed process.
_STALE = 3600.0


def _remove_stale(cache: HeldDirectory) -> None:
    for name in os.listdir(cache.fileno()):
        if name.startswith(".fsstack-") and name.endswith(".part"):
            with contextlib.suppress(OSError):  # another process has locked or removed it
                with open(cache.open_file(name, os.O_RDONLY), "rb") as file:
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_old = time.time() - os.fstat(file.fileno()).st_mtime > _STALE
                    if is_old and name == _name_of(file.fileno()):
                        cache.unlink(name)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        elsewhere = f" ({error.filename})" if error.filename not in (None, str(path)) else ""
        raise CorpusError(f"corpus {path}: {error.strerror or error}{elsewhere}") from error


def _key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


# A directory that exists


def _fingerprint(top: Path) -> str:
    """Return a digest of the metadata of a tree."""
    digest = hashlib.sha256(repr((FORMAT, os.fspath(top))).encode())
    pending = [""]
    while pending:
        directory = pending.pop()
        with os.scandir(top / directory) as iterator:
            entries = sorted(iterator, key=lambda entry: entry.name)
        for entry in entries:
            path = os.path.join(directory, entry.name)
            status = entry.stat(follow_symlinks=False)
            digest.update(repr((path, status.st_mode, status.st_size, status.st_mtime_ns)).encode())
            if entry.is_dir(follow_symlinks=False):
                pending.append(path)
    return digest.hexdigest()[:16]
