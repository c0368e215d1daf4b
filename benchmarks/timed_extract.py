"""Does `timed` report the same time as a shell? `timed.run` with ``tar``, against a shell with ``tar`` and ``sync -f``.

    python -m benchmarks timed_extract [pairs]

Both extract an archive on one ext4 on a loop device, in turns. Each starts cold: the tree is removed, everything is
synced, caches are dropped, and the archive is read. Needs root.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.pairs import Finding, interleaved, ratio_finding, run
from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers.filesystems import Ext4
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built, build
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.workloads.data import corpus

PAIRS = 25

#: The script times itself. `timed` starts neither a shell nor ``sync``, so both are loaded before the clock starts.
#: ``tar`` is in memory in both cases, because this process pins it there.
SHELL = r"""
set -eu
sync -f "$2"
start=$EPOCHREALTIME
tar --no-same-owner -xf "$1" -C "$2"
sync -f "$2"
end=$EPOCHREALTIME
echo $(( ${end/./} - ${start/./} ))
"""


def measure(pairs: int = PAIRS) -> Finding:
    archive = corpus.generated(corpus.cache_directory()).tar
    with _ext4() as built:

        def plugin() -> float:
            with _cold(built, archive) as (timed, tree):
                timed.run("tar", "--no-same-owner", "-xf", archive, "-C", tree)
            assert timed.sample is not None
            return timed.sample["seconds"]

        def shell() -> float:
            with _cold(built, archive) as (_, tree):
                return int(run("bash", "-c", SHELL, "bash", str(archive), str(tree), cwd=tree)) / 1e6

        measured = interleaved(plugin, shell, pairs)
    return ratio_finding("timed extract / shell", measured, target="1.00 ± 0.03", least=0.97, most=1.03)


@contextmanager
def _ext4() -> Iterator[Built]:
    mounts.private_namespace()
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as directory:
        journal = Journal(Path(directory, "journal"), RealMachine())
        context = BuildContext(Path(directory, "site"), journal)
        context.directory.mkdir()
        with build(Stack((Ext4(),)), LoopDevice(4 << 30), context) as built:
            yield built
        journal.close()


@contextmanager
def _cold(built: Built, archive: Path) -> Iterator[tuple[Timed, Path]]:
    """Open a timed block and yield it with an empty tree. Remove the tree afterwards."""
    tree = built.path / "tree"
    tree.mkdir()
    timed = Timed(built)
    with timed(preload=[archive]):
        yield timed, tree
    shutil.rmtree(tree)
