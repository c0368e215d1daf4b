"""The cost of a whole session: pytest with the plugin against a shell script that runs the same rounds.

    python -m benchmarks session [pairs]

In six rounds, an archive is extracted and removed from cold caches, on ext4 and xfs on loop devices. The script is what
you would write to time the same by hand. It compares nothing. The share of timed blocks in a session's time is printed
too. Needs root.

Only this plugin and pytest-benchmark are loaded. A chain takes half a second on a stack. This is the worst case,
because a session adds a constant time at its start.
"""

from __future__ import annotations

import json
import shlex
import statistics
import tempfile
from pathlib import Path

from benchmarks.pairs import Finding, interleaved, pytest_command, ratio_finding, seconds_of
from pytest_fsstack.layers.filesystems import Ext4, Xfs
from pytest_fsstack.machine import mounts
from pytest_fsstack.workloads.data import corpus

PAIRS = 7
ROUNDS = 6
SIZE = "4G"

TEST = """
import pytest


@pytest.mark.fsstack("ext4", "xfs")
class TestTree:
    @pytest.mark.benchmark
    def test_extract(self, fsstack, timed, corpus):
        (fsstack.path / "tree").mkdir()
        with timed(preload=[corpus.tar]):
            timed.run("tar", "--no-same-owner", "-xf", corpus.tar, "-C", fsstack.path / "tree")

    @pytest.mark.benchmark
    def test_remove(self, fsstack, timed):
        with timed():
            timed.run("rm", "-rf", fsstack.path / "tree")
"""

SHELL = r"""
set -eu
archive=$1 rounds=$2 size=$3 mnt=$PWD/mnt loop=
declare -A mkfs=([ext4]=$4 [xfs]=$5)
trap 'exit 1' INT TERM
trap 'umount -q "$mnt" || true; [ -z "$loop" ] || losetup -d "$loop"; rm -f image' EXIT
mkdir -p "$mnt"

cold() {
    sync
    echo 3 > /proc/sys/vm/drop_caches
}

timed() {
    local start=$EPOCHREALTIME
    "$@"
    sync -f "$mnt"
    local end=$EPOCHREALTIME
    echo "$fs $1 $(( ${end/./} - ${start/./} )) us"
}

for (( round = 0; round < rounds; round++ )); do
    for fs in ext4 xfs; do
        truncate -s "$size" image
        loop=$(losetup --find --show --direct-io=on image)
        mkfs.$fs ${mkfs[$fs]} "$loop"
        mount -t $fs "$loop" "$mnt"
        mkdir "$mnt/tree"
        cold
        cat "$archive" > /dev/null
        timed tar --no-same-owner -xf "$archive" -C "$mnt/tree"
        cold
        timed rm -rf "$mnt/tree"
        umount "$mnt"
        losetup -d "$loop"
        loop=
        rm image
    done
done
"""


def measure(pairs: int = PAIRS) -> Finding:
    archive = corpus.generated(corpus.cache_directory()).tar
    # A private mount namespace hides the mounts of the script from other processes, which could keep them busy.
    mounts.private_namespace()
    mkfs = [shlex.join(layer.mkfs_words()) for layer in (Ext4(), Xfs())]
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)
        (directory / "test_tree.py").write_text(TEST)

        def session(*budget: str) -> float:
            saved = f"--fsstack-json={directory}/run.json"
            options = (
                f"--fsstack-rounds={ROUNDS}",
                f"--fsstack-size={SIZE}",
                f"--fsstack-dir={directory}",
                saved,
                *budget,
            )
            command = pytest_command(*options, "test_tree.py")
            return seconds_of(*command, cwd=directory)

        def script() -> float:
            return seconds_of("bash", "-c", SHELL, "bash", str(archive), str(ROUNDS), SIZE, *mkfs, cwd=directory)

        measured = interleaved(session, script, pairs)
        share = json.loads((directory / "run.json").read_text())["timed_share"]
        judged = [session("--fsstack-budget=2000%") for _ in range(3)]
    more = statistics.median(judged) - statistics.median(measured.candidate)
    return ratio_finding(
        "session / shell script",
        measured,
        target="at most 1.10",
        most=1.10,
        details=[
            f"timed blocks took {share:.0%} of the session's time",
            f"a budget adds {more:.1f} s to a session of any length: its verdict",
        ],
    )
