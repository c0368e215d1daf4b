"""Run all benchmarks that have a target, and print one table: ``python -m benchmarks``.

The exit code is 1 if a target is missed. ``python -m benchmarks session 7`` runs one of them, with seven pairs. These
run by name only:

- ``verdict`` simulates error rates of verdicts, ``turns`` those between two kernels.
- ``over-time`` simulates comparisons with earlier runs, ``nights`` four months of such a gate.
- ``changes`` simulates the change points that `fsstack trend` shows.
- ``gate`` counts wrong verdicts in real sessions, ``recipe`` follows docs/over-time.md for a month of real nights.
- ``laboratory`` times a run on 1, 2 and 4 nodes of a Slurm cluster on this machine.
- ``pool`` times `fsstack pool` on the files of 200 hosts.
- ``reports`` compares the CPU time of all reports of a large session with that of an earlier build.
- ``agreement`` compares the verdicts on random chains with those of that build.
- ``sooner`` compares the time until all budgets are decided with that of that build.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.pairs import show

#: Benchmarks with a target, in the order of the table.
JUDGED = ("run_overhead", "shell", "startup", "collection", "timed_extract", "session")
#: The modules of those that run by name only, by name.
OTHERS = {
    name: name.replace("-", "_")
    for name in (
        "verdict",
        "turns",
        "over-time",
        "changes",
        "nights",
        "recipe",
        "gate",
        "laboratory",
        "pool",
        "reports",
        "agreement",
        "sooner",
    )
}


def main(words: list[str]) -> int:
    """Run one benchmark by name, or all with a target. Return the exit code, 2 for an unknown name."""
    if not words:
        return show([importlib.import_module(f"benchmarks.{name}").measure() for name in JUDGED])
    name, *arguments = words
    if name in JUDGED:
        return show([importlib.import_module(f"benchmarks.{name}").measure(*map(int, arguments))])
    if name not in OTHERS:
        names = ", ".join([*JUDGED, *OTHERS])
        print(f"there is no benchmark {name!r}; name one of {names}, or none to run the others", file=sys.stderr)
        return 2
    code: int | None = importlib.import_module(f"benchmarks.{OTHERS[name]}").main(arguments)
    return code or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
