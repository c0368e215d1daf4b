"""A tree of many files: unpacked, listed and removed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.units import first_names
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import existing, verify_removed, verify_tree, walk
from pytest_fsstack.workloads.data.archive import COMPRESSORS, Corpus, compressor
from pytest_fsstack.workloads.data.corpus import cache_directory, compressed

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

#: The allowed deviation between ``du`` and a later walk. zfs and btrfs update allocated sizes only when they commit,
#: and xfs frees preallocated blocks later.
_DU_TOLERANCE = 0.01


@workload(Tool("tar", "tar"))
def extract(timed: Timed, fsstack: Built, corpus: Corpus, *, into: str = "tree", compression: str = "") -> None:
    """Unpack the corpus with ``tar -xf`` into the new directory `into` of the stack.

    With `compression` (gzip, bzip2, xz, zstd), the archive is compressed beforehand. It is read into the page cache
    before the clock starts. Decompressing is part of the time. Checked afterwards, from the device: the number of
    files, directories and symbolic links, the sum of sizes, and the contents of the corpus's sample. Raises
    `FileExistsError` if `into` exists.
    """
    if compression:
        needs.require(*(tool for tool in COMPRESSORS.values() if tool.command == compression))
        corpus = compressed(corpus, compression, cache_directory())
    if tool := compressor(corpus.tar):
        needs.require(tool)
    tree = fsstack.path / into
    tree.mkdir()
    with timed(bytes=corpus.bytes, files=corpus.files, preload=[corpus.tar]):
        # As root, tar would restore the owners in the archive. That is an additional change of metadata, and
        # filesystems without owners refuse it.
        timed.run("tar", "--no-same-owner", "-xf", corpus.tar, "-C", tree)
    timed.reread()
    verify_tree(tree, corpus, "extract")


@workload(Tool("tar", "tar"))
def extract_over(timed: Timed, fsstack: Built, corpus: Corpus, *, into: str = "tree", in_place: bool = False) -> None:
    """Unpack the corpus with ``tar -xf`` over the tree of `extract`, so that every file is overwritten.

    By default, tar removes each file and creates a new one. With `in_place`, it truncates and writes the existing one
    (``--overwrite``). Checked as in `extract`. The contents do not change, so the check shows damage, but cannot prove
    that files were written again.
    """
    if tool := compressor(corpus.tar):
        needs.require(tool)
    tree = existing(fsstack, into, "extract_over")
    how = ["--overwrite"] if in_place else []
    with timed(bytes=corpus.bytes, files=corpus.files, preload=[corpus.tar]):
        timed.run("tar", "--no-same-owner", *how, "-xf", corpus.tar, "-C", tree)
    timed.reread()
    verify_tree(tree, corpus, "extract_over")


@workload(Tool("unzip", "unzip"))
def unzip(
    timed: Timed, fsstack: Built, corpus: Corpus, archive: Path, *, into: str = "tree", overwrite: bool = False
) -> None:
    """Unpack the corpus with ``unzip -q -o`` from `archive` (made by `pytest_fsstack.zipped`).

    It goes to the new directory `into`. With `overwrite`, it goes over the tree of an earlier step, and unzip removes
    each file and creates a new one. The archive is read into the page cache before the clock starts. Decompressing is
    part of the time. Checked as in `extract`. Raises `FileExistsError` if `into` exists, unless `overwrite` is set.
    """
    tree = existing(fsstack, into, "unzip") if overwrite else fsstack.path / into
    if not overwrite:
        tree.mkdir()
    with timed(bytes=corpus.bytes, files=corpus.files, preload=[archive]):
        timed.run("unzip", "-q", "-o", archive, "-d", tree)
    timed.reread()
    verify_tree(tree, corpus, "unzip")


@workload(Tool("du", "coreutils"))
def du(timed: Timed, fsstack: Built, *, tree: str = "tree") -> int:
    """Measure the allocated size of the tree with ``du``, from cold caches. Return it in bytes.

    It is recorded as the metric ``du_bytes``, and compared with a separate walk afterwards.
    """
    top = existing(fsstack, tree, "du")
    with timed():
        result = timed.run("du", "-s", "--block-size=1", top)
    match = re.match(r"(\d+)\t", result.stdout)
    if not match:
        raise AssertionError(f"du: cannot read its output {result.stdout!r}")
    figure, walked = int(match[1]), walk(top).allocated
    if abs(figure - walked) > _DU_TOLERANCE * walked:
        raise AssertionError(f"du: it reports {figure:,} bytes, but the files of {tree} take {walked:,}")
    timed.record("du_bytes", figure, unit="B", better="lower", exact=True)
    return figure


@workload(Tool("rsync", "rsync"))
def rsync_dry_run(timed: Timed, fsstack: Built, target: Path, *, corpus: Corpus, tree: str = "tree") -> None:
    """Compare the tree with the empty directory `target` by ``rsync -an``, from cold caches: almost all stat calls.

    `target` is outside of the stack, and is created if necessary. Afterwards, rsync's own count is compared with the
    extracted corpus. Raises `ValueError` if `target` is not empty.
    """
    top = existing(fsstack, tree, "rsync")
    target.mkdir(parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise ValueError(f"rsync_dry_run: {target} is not empty")
    with timed(files=corpus.files):
        result = timed.run("rsync", "-an", "--stats", f"{top}/", f"{target}/", env=commands.ENGLISH)
    _verify_rsync(result.stdout, corpus)
    if leftovers := sorted(path.name for path in target.iterdir()):
        raise AssertionError(f"rsync: a dry run wrote to its target: {first_names(leftovers)}")


@workload(Tool("rm", "coreutils"))
def delete(timed: Timed, fsstack: Built, *, tree: str = "tree", corpus: Corpus | None = None) -> None:
    """Remove the tree with ``rm -rf``, from cold caches.

    Afterwards it must be gone, also on the device. `corpus` gives the number of files, for a rate.
    """
    top = existing(fsstack, tree, "delete")
    with timed(files=corpus.files) if corpus else timed():
        timed.run("rm", "-rf", top)
    verify_removed(timed, top, "delete")


def _verify_rsync(stdout: str, corpus: Corpus) -> None:
    match = re.search(r"^Number of files: ([\d,.]*\d)(?: \((.*)\))?$", stdout, re.MULTILINE)
    if not match:
        raise AssertionError(f"rsync: no count of files in its output {stdout!r}")
    # rsync counts the top directory too. Before 3.1, it only prints the total.
    expected = {"reg": corpus.files, "dir": corpus.directories + 1, "link": corpus.links}
    if match[2]:
        counts = {kind: _number(count) for kind, count in re.findall(r"(\w+): ([\d,.]*\d)", match[2])}
        counted = {kind: counts.get(kind, 0) for kind in expected}
    else:
        expected, counted = {"all": sum(expected.values())}, {"all": _number(match[1])}
    if counted != expected:
        raise AssertionError(f"rsync: saw {_counts(counted)} instead of {_counts(expected)}")


def _number(text: str) -> int:
    return int(re.sub(r"\D", "", text))


def _counts(counts: dict[str, int]) -> str:
    names = {"reg": "files", "dir": "directories", "link": "symbolic links", "all": "files and directories"}
    return ", ".join(f"{count:,} {names[kind]}" for kind, count in counts.items())
