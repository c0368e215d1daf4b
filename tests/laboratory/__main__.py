"""A trial laboratory on this machine, until Ctrl-C: ``sudo python -m tests.laboratory DIRECTORY [NODES]``."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

from tests.laboratory.cluster import Cluster


def main(words: list[str]) -> int:
    """Run the cluster in a new directory. Returns 2 if that is not named, or there already."""
    if not words or Path(words[0]).exists():
        print("name a directory that does not exist yet, and how many nodes there are (2)", file=sys.stderr)
        return 2
    directory = Path(words[0]).absolute()
    cluster = Cluster(directory, [f"node{number + 1}" for number in range(int((words[1:] or ["2"])[0]))])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster.start()
        print(f"{', '.join(cluster.names)} are up. In another terminal: export SLURM_CONF={directory}/slurm.conf")
        for name, disk in cluster.disks.items():
            print(f"{name} has the disk {disk}")
        print("Ctrl-C ends it", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
