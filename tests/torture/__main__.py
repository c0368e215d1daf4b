"""Repeat the scenarios, some at a time, and print a table: every column after the harmless ones must be 0."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.sessions import heed_signals
from tests.torture.ending import killed, one_signal, teardowns
from tests.torture.place import Figures, Place, Scenario, loop

SCENARIOS: Mapping[str, Scenario] = {"one signal": one_signal, "SIGKILL": killed, "teardowns": teardowns}
#: How often each is drawn: the first has most to get wrong, the last takes longest.
WEIGHTS = {"one signal": 16, "SIGKILL": 3, "teardowns": 1}
#: What may happen: a signal may be drawn for a moment after the session's end, and after SIGKILL a disk may hold what
#: nothing proves to be the session's, so that it needs to be given over again.
HARMLESS = ("tries", "teardowns", "too late", "unproved")
COLUMNS = (
    *HARMLESS,
    *("not begun", "hung", "swallowed", "wrong exit code", "traceback", "unlabelled"),
    *("journals", "directories", "loops", "mounts", "processes"),
)
#: More than processors, since sessions that wait for their signal need none.
WORKERS = 3


def torture(seconds: float, seed: int, names: list[str]) -> tuple[dict[str, Figures], list[str]]:
    """The figures of each scenario, and what was wrong."""
    deadline = time.monotonic() + seconds

    def work(number: int) -> tuple[dict[str, Figures], list[str]]:
        found: dict[str, Figures] = {name: Counter() for name in names}
        drawn = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory(prefix="torture-", dir="/var/tmp") as name, loop(Path(name)) as device:
            place = Place(Path(name), device, drawn)
            # Each of them at first, by one of the workers.
            chosen = names[number % len(names)]
            while time.monotonic() < deadline:
                found[chosen] += Counter({"tries": 1}) + SCENARIOS[chosen](place)
                (chosen,) = drawn.choices(names, [WEIGHTS[name] for name in names])
        return found, place.complaints

    totals: dict[str, Figures] = {name: Counter() for name in names}
    complaints: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for found, said in pool.map(work, range(WORKERS)):
            complaints += said
            for name, figures in found.items():
                totals[name] += figures
    return totals, complaints


def table(totals: Mapping[str, Figures]) -> str:
    columns = [*COLUMNS, *sorted({kind for figures in totals.values() for kind in figures} - set(COLUMNS))]
    rows = [["", *columns], *([name, *(str(figures[kind]) for kind in columns)] for name, figures in totals.items())]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def wrong(totals: Mapping[str, Figures]) -> int:
    """How often something happened that must not."""
    return sum(count for figures in totals.values() for kind, count in figures.items() if kind not in HARMLESS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="draw the same moments again")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one; repeat it for several")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("needs root: it makes loop devices and mounts")
    heed_signals()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"--seed={seed}", flush=True)
    totals, complaints = torture(given.seconds, seed, given.scenario or list(SCENARIOS))
    for complaint in complaints:
        print(complaint, end="\n\n")
    print(table(totals))
    return 1 if wrong(totals) or not all(figures["tries"] for figures in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
