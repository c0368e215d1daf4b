"""A backup archive with many hard links: unpacked, and removed."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.units import first_names
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import existing, verify_removed
from pytest_fsstack.workloads.data import backup as archive_program
from pytest_fsstack.workloads.data.archive import compressor
from pytest_fsstack.workloads.data.backup import Backup, describe, sample
from pytest_fsstack.workloads.latency import Latencies, remove

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Completed, Timed
    from pytest_fsstack.stack.build import Built

RemovalOrder = Literal["pool-first", "links-first", "rm"]

_PIPE_BYTES = 1 << 20
_CHECKED_FILES = 40
_CHECKED_NAMES = 200


@workload(Tool("tar", "tar"))
def extract_backup(
    timed: Timed,
    fsstack: Built,
    backup: Backup,
    *,
    archive: Path | None = None,
    into: str = "backup",
    cold: bool = True,
    remount: bool = True,
) -> None:
    """Unpack the backup with ``tar -x`` into the new directory `into` of the stack.

    An `archive` (`corpus.packed_backup`) is read into the page cache before the clock starts. A separate process
    decompresses it if necessary, like lzop in the published measurement. Without an archive, a separate process
    generates the input of ``tar``. The CPU seconds of that process are the metric ``source_seconds``, and part of
    ``machine_seconds`` only. Generating takes some 20 µs per link, which slows down a stack that creates links faster.
    Decompressing takes 1.5 µs.

    Afterwards, the names are counted. For a sample, contents, link counts and link targets are compared. If links
    failed, for example by a filesystem's limit of links per file, the result is marked as incomplete, and
    ``failed_links`` is their number. The check reads from the device. With `remount` False, it reads from the caches,
    to keep them warm for the next step. Raises `FileExistsError` if `into` exists.
    """
    top = fsstack.path / into
    if archive and (tool := compressor(archive)):
        needs.require(tool)
    top.mkdir()
    with _source(backup, archive) as source:
        with timed(bytes=backup.pool_bytes, files=backup.names, cold=cold, preload=[archive] if archive else []):
            result = timed.run(
                "tar",
                "--no-same-owner",
                "-xf",
                "-",
                "-C",
                top,
                stdin=source.descriptor,
                check=False,
                env=commands.ENGLISH,
            )
    failures = _failed_links(result)
    if source.returncode:
        raise commands.CommandError(source.argv, source.returncode, "")
    if source.argv:
        timed.record("source_seconds", source.seconds, unit="s", better="lower", resolution=1e-3)
    if remount:
        fsstack.remount()
    failed = failures.total()
    timed.record("failed_links", failed, better="lower", exact=True)
    if failed:
        reasons = ", ".join(failures)
        timed.incomplete(f"{failed:,} of {backup.links:,} links failed: {reasons}")
    _verify(top, backup, failed)


@workload(Tool("rm", "coreutils"))
def remove_backup(
    timed: Timed,
    fsstack: Built,
    *,
    order: RemovalOrder = "rm",
    tree: str = "backup",
    backup: Backup | None = None,
    cold: bool = True,
) -> None:
    """Remove the backup with ``rm -rf``, or file by file, with the pool before or after the trees that link to it.

    With the pool first, the last link in the trees frees a file's space. With the links first, the pool's name does.
    File by file, the latency of each unlink is recorded (`latency.Latencies.record`). Afterwards everything must be
    gone, also on the device. `backup` has the number of names, for a rate. With fewer names, the result is marked as
    incomplete. For ``rm``, they are counted before it, so without `cold` all directories are in the cache.
    """
    top = existing(fsstack, tree, "remove_backup")
    files = backup.names if backup else None
    if order == "rm":
        there = _count(top) if backup else None
        with timed(files=files, cold=cold):
            timed.run("rm", "-rf", top)
    else:
        parts = ("pool", "machines") if order == "pool-first" else ("machines", "pool")
        with timed(files=files, cold=cold):
            latencies = Latencies()
            for part in parts:
                if (top / part).is_dir():
                    remove(latencies, top / part)
            top.rmdir()
        there = len(latencies)
        latencies.record(timed)
    if backup and there != backup.names:
        timed.incomplete(f"there were {there:,} names to remove instead of {backup.names:,}")
    verify_removed(timed, top, "remove_backup")


@dataclass
class _Source:
    """The source of the archive, with the process that writes it, and its CPU seconds."""

    descriptor: int
    argv: tuple[str, ...] = ()
    returncode: int = 0
    seconds: float = 0.0


@contextlib.contextmanager
def _source(backup: Backup, archive: Path | None) -> Iterator[_Source]:
    tool = compressor(archive) if archive else None
    if archive and not tool:
        with archive.open("rb") as file:
            yield _Source(file.fileno())
        return
    reading, writing = os.pipe()
    source = _Source(reading)
    try:
        # A larger pipe means fewer waits. Some systems limit its size.
        with contextlib.suppress(OSError):
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        if archive and tool:
            source.argv = (commands.which(tool.command) or tool.command, "-dc", os.fspath(archive))
        else:
            # -I: modules of the plugin lie beside this program, and must not shadow those of the library.
            source.argv = (sys.executable, "-I", "-S", archive_program.__file__, describe(backup))
        process = subprocess.Popen(source.argv, stdin=subprocess.DEVNULL, stdout=writing)
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    try:
        yield source
    finally:
        # It ends by itself when the reader is gone.
        os.close(reading)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = source.returncode = os.waitstatus_to_exitcode(status)
        source.seconds = usage.ru_utime + usage.ru_stime


def _failed_links(result: Completed) -> collections.Counter[str]:
    """Count the failed links by reason. Raises `CommandError` if tar failed for another reason."""
    failures: collections.Counter[str] = collections.Counter()
    if result.returncode == 0:
        return failures
    for line in result.stderr.splitlines():
        if match := re.search(r": Cannot hard link to .*: ([^:]+)$", line):
            failures[match[1]] += 1
        elif not line.endswith("Exiting with failure status due to previous errors"):
            raise commands.CommandError(result.argv, result.returncode, line)
    if not failures:
        raise commands.CommandError(result.argv, result.returncode, result.stderr)
    return failures


def _count(top: Path) -> int:
    """Count all names except directories, without stat calls. There are none without the directory."""
    return sum(len(names) for _, _, names in os.walk(top))


def _verify(top: Path, backup: Backup, failed: int) -> None:
    wrong = []
    for part, expected in ("pool", backup.pool_files), ("machines", backup.tree_files - failed):
        if (actual := _count(top / part)) != expected:
            wrong.append(f"{actual:,} names in {part} instead of {expected:,}")
    for problem, paths in (*_wrong_files(top, backup, failed).items(), *_wrong_names(top, backup, failed).items()):
        wrong.append(f"{problem}: {first_names(paths)}")
    if wrong:
        raise AssertionError(f"extract_backup: {'; '.join(wrong)}")


def _wrong_files(top: Path, backup: Backup, failed: int) -> dict[str, list[str]]:
    """Return files of the pool by what is wrong with them."""
    wrong = collections.defaultdict(list)
    for file in sample(backup.pool_files, _CHECKED_FILES, backup.seed):
        path = backup.pool_path(file)
        try:
            status = (top / path).lstat()
            same = _holds(top / path, backup.content(file))
        except OSError as error:
            wrong[f"cannot be read ({error.strerror})"].append(path)
            continue
        if not same:
            wrong["other content than in the archive"].append(path)
        names = 1 + backup.links_to(file)
        if status.st_nlink > names or status.st_nlink < names - failed:
            wrong["other numbers of names than in the archive"].append(f"{path} ({status.st_nlink:,} of {names:,})")
    return wrong


def _wrong_names(top: Path, backup: Backup, failed: int) -> dict[str, list[str]]:
    """Return names in the trees by what is wrong with them."""
    wrong = collections.defaultdict(list)
    missing = []
    for name in sample(backup.tree_files, _CHECKED_NAMES, backup.seed):
        path, target = backup.tree_path(name), backup.target(name)
        try:
            status = (top / path).lstat()
        except FileNotFoundError:
            missing.append(path)
            continue
        if target is None:
            if status.st_size:
                wrong["not empty"].append(path)
            continue
        try:
            linked = (top / backup.pool_path(target)).lstat()
        except FileNotFoundError:
            wrong["link to what is not there"].append(path)
            continue
        if (status.st_dev, status.st_ino) != (linked.st_dev, linked.st_ino):
            wrong["not the file that it is to link to"].append(path)
    if len(missing) > failed:
        wrong["missing"] = missing
    return wrong


def _holds(path: Path, content: Iterable[bytes]) -> bool:
    """Whether a file has exactly this content."""
    with path.open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in content) and not file.read(1)
