"""Removal of old runs and environments in a laboratory's own directory on a host.

Only directories with a marker that has their own name, device and inode are removed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_fsstack.machine import owners
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.units import show

_DAY = 86400.0
#: Days after which a run, and an environment that no run has used since, are removed.
RUN_DAYS, ENVIRONMENT_DAYS = 30, 90


def expire(directory: Path) -> list[str]:
    """Remove old runs and environments. Return a line for each that is left alone. Raises OSError."""
    with HeldDirectory.open(directory) as top, top.subdirectory("runs") as runs:
        return [*_old(runs, "fsstack-", RUN_DAYS), *_old(top, "python-", ENVIRONMENT_DAYS)]


def _old(parent: HeldDirectory, prefix: str, days: float) -> Iterator[str]:
    for name in sorted(os.listdir(parent.fileno())):
        try:
            if name.startswith(prefix) and time.time() - parent.status_of(name).st_mtime > days * _DAY:
                with parent.subdirectory(name) as held:
                    if reason := owners.why_not_own(held.fileno(), name):
                        yield f"left alone: {held.path}: {reason}"
                    else:
                        parent.remove(name, held)
        except OSError as error:
            yield f"left alone: {parent.path / name}: {error.strerror}"


if __name__ == "__main__":
    for line in expire(Path(sys.argv[1])):
        show(line, error=True)
