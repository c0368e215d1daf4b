"""Repeat the scenarios, some at a time, and print a table: every column after the harmless ones must be 0."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.sessions import heed_signals
from tests.torture.devices import aliases, exchanged, redirected, two_sessions, wrong_device
from tests.torture.ending import killed, one_signal, teardowns
from tests.torture.faults import fault
from tests.torture.guests import guests
from tests.torture.inputs import inputs
from tests.torture.misbehaving import misbehaving
from tests.torture.owners import owners
from tests.torture.paired import two_devices
from tests.torture.place import LEFT, Figures, Place, Scenario, loop
from tests.torture.secrets import secrets
from tests.torture.shortage import shortage
from tests.torture.tuned import settings

SCENARIOS: Mapping[str, Scenario] = {
    "one signal": one_signal,
    "SIGKILL": killed,
    "teardowns": teardowns,
    "faults": fault,
    "shortage": shortage,
    "wrong device": wrong_device,
    "exchanged": exchanged,
    "redirected": redirected,
    "aliases": aliases,
    "owners": owners,
    "misbehaving": misbehaving,
    "two sessions": two_sessions,
    "inputs": inputs,
    "secrets": secrets,
    "settings": settings,
    "two devices": two_devices,
}
#: Guests take minutes, so they are there only if asked for.
ASKED_FOR: Mapping[str, Scenario] = {"guests": guests}
#: How often each is drawn: those with most to get wrong most, and those that take longest least.
WEIGHTS = {
    **{"one signal": 16, "SIGKILL": 6, "teardowns": 1, "faults": 16, "shortage": 8, "wrong device": 10},
    **{"redirected": 3, "aliases": 3, "owners": 4, "misbehaving": 12},
    **{"exchanged": 2, "two sessions": 2, "inputs": 7, "secrets": 2, "settings": 4, "two devices": 6, "guests": 3},
}
#: What may happen. `cases`: calls that went wrong, inputs, devices, texts that were searched. `controls`: what had to
#: fail or be found did. `too late`: the signal was drawn for a moment after the session's end. `not needed`: the
#: session passed, or skipped with a reason, without what went wrong. `unproved`: after SIGKILL a disk may hold what
#: nothing proves to be the session's, so that it needs to be given over again. `admitted`: what could not be undone
#: because of what went wrong was named, and the next session undid it. `unsaid`: another session, which was killed
#: before it could say so, had undone what a dead one had left.
HARMLESS = ("tries", "cases", "controls", "teardowns", "too late", "not needed", "unproved", "admitted", "unsaid")
COLUMNS = (
    *HARMLESS,
    *("not begun", "hung", "swallowed", "wrong exit code", "traceback", "wrong report", "out of order", "unlabelled"),
    *("left", "not refused", "bytes written", "outside", "secrets seen", "failed controls"),
)
#: More than processors, since sessions that wait for their signal need none.
WORKERS = 3


def torture(
    seconds: float, seed: int, names: list[str], say: Callable[[str], object] = lambda complaint: None
) -> tuple[dict[str, Figures], list[str]]:
    """The figures of each scenario, and what was wrong, which is said at once as well."""
    deadline = time.monotonic() + seconds
    known = {**SCENARIOS, **ASKED_FOR}
    # Each of them at first, whatever time that takes.
    first = deque(names)
    tries = {name: itertools.count() for name in names}

    def work(number: int) -> tuple[dict[str, Figures], list[str]]:
        figures: dict[str, Figures] = {name: Counter() for name in names}
        drawn = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory(prefix="torture-", dir="/var/tmp") as name, loop(Path(name)) as disk:
            place = Place(Path(name), disk.path, drawn)
            while first or time.monotonic() < deadline:
                try:
                    chosen = first.popleft()
                except IndexError:
                    (chosen,) = drawn.choices(names, [WEIGHTS[name] for name in names])
                # The same seed draws the same cases, whichever worker is the first to come to them.
                place.random = random.Random(f"{seed} {chosen} {next(tries[chosen])}")
                before = len(place.complaints)
                figures[chosen] += Counter({"tries": 1}) + known[chosen](place)
                for complaint in place.complaints[before:]:
                    say(f"{chosen}: {complaint}\n")
        return figures, place.complaints

    totals: dict[str, Figures] = {name: Counter() for name in names}
    complaints: list[str] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for found, lines in pool.map(work, range(WORKERS)):
            complaints += lines
            for name, figures in found.items():
                totals[name] += figures
    return totals, complaints


def table(totals: Mapping[str, Figures]) -> str:
    """A row for each kind of figure, a column for each scenario, and their sums."""
    summed = {name: _in_columns(figures) for name, figures in totals.items()}
    kinds = [*COLUMNS, *sorted({kind for figures in summed.values() for kind in figures} - set(COLUMNS))]
    sums: Figures = sum(summed.values(), Counter())
    rows = [["", *summed, "all"]]
    rows += [[kind, *(str(figures[kind]) for figures in [*summed.values(), sums])] for kind in kinds]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def _in_columns(figures: Figures) -> Figures:
    """With all that was left behind in one figure: the complaints say what it was."""
    totals: Figures = Counter()
    for kind, count in figures.items():
        totals["left" if kind in LEFT else kind] += count
    return totals


def wrong(totals: Mapping[str, Figures]) -> int:
    """How often something happened that must not."""
    return sum(count for figures in totals.values() for kind, count in figures.items() if kind not in HARMLESS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on (default: 60)")
    parser.add_argument("--seed", type=int, default=None, help="draw the same moments, calls, devices and inputs again")
    parser.add_argument(
        "--scenario", action="append", choices=[*SCENARIOS, *ASKED_FOR], help="only this one; repeat it for several"
    )
    parser.add_argument("--guests", action="store_true", help="end sessions in guests as well (QEMU; minutes)")
    given = parser.parse_args()
    if os.geteuid():
        parser.error("needs root: it makes loop devices and mounts")
    heed_signals()
    seed = random.randrange(2**32) if given.seed is None else given.seed
    print(f"--seed={seed}", flush=True)
    names = given.scenario or [*SCENARIOS, *(ASKED_FOR if given.guests else ())]
    totals, _ = torture(given.seconds, seed, names, lambda complaint: print(complaint, flush=True))
    print(table(totals))
    return 1 if wrong(totals) or not all(figures["tries"] for figures in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
