"""Run all benchmarks that have a target, and print one table: ``python -m benchmarks``.

The exit code is 1 if a target is missed. ``python -m benchmarks NAME`` runs one of `OTHERS` instead:

- ``verdict`` simulates how often a verdict is wrong, ``turns`` does so for two kernels only;
- ``over-time`` simulates how often a comparison with earlier runs is wrong, ``nights`` four months of such a gate;
- ``changes`` simulates which change points `fsstack trend` shows;
- ``gate`` counts wrong verdicts in real sessions, ``recipe`` follows docs/over-time.md for a month of real nights.
"""

from __future__ import annotations

import importlib
import sys

#: What is run by name only, by its module.
OTHERS = {
    name: name.replace("-", "_") for name in ("verdict", "turns", "over-time", "changes", "nights", "recipe", "gate")
}


def main(words: list[str]) -> int:
    """Run what the words name. Returns the exit code: 2 for a name that does not exist."""
    if not words:
        from benchmarks import collection, run_overhead, session, startup, timed_extract
        from benchmarks.pairs import show

        return show([module.measure() for module in (run_overhead, startup, collection, timed_extract, session)])
    name, *arguments = words
    if name not in OTHERS:
        names = ", ".join(OTHERS)
        print(f"there is no benchmark {name!r}; name one of {names}, or none to run the others", file=sys.stderr)
        return 2
    code: int | None = importlib.import_module(f"benchmarks.{OTHERS[name]}").main(arguments)
    return code or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
