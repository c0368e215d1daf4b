"""Run all benchmarks that have a target, and print one table: ``python -m benchmarks``.

The exit code is 1 if a target is missed. ``python -m benchmarks session 7`` runs one of them, with seven pairs. One of
`OTHERS` runs by name only:

- ``verdict`` simulates how often a verdict is wrong, ``turns`` does so for two kernels only;
- ``over-time`` simulates how often a comparison with earlier runs is wrong, ``nights`` four months of such a gate;
- ``changes`` simulates which change points `fsstack trend` shows;
- ``gate`` counts wrong verdicts in real sessions, ``recipe`` follows docs/over-time.md for a month of real nights;
- ``laboratory`` times a run on 1, 2 and 4 nodes of a Slurm cluster on this machine, ``pool`` files of 200 hosts.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.pairs import show

#: What has a target, in the order of the table.
JUDGED = ("run_overhead", "startup", "collection", "timed_extract", "session")
#: What is run by name only, by its module.
OTHERS = {
    name: name.replace("-", "_")
    for name in ("verdict", "turns", "over-time", "changes", "nights", "recipe", "gate", "laboratory", "pool")
}


def main(words: list[str]) -> int:
    """Run what the words name. Returns the exit code: 2 for a name that does not exist."""
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
