"""Run all benchmarks that have a target, and print one table: ``python -m benchmarks``.

The exit code is 1 if a target is missed. ``python -m benchmarks verdict`` simulates instead how often a verdict is
wrong, ``python -m benchmarks over-time`` how often a comparison with earlier runs is, and ``python -m benchmarks gate``
counts it in real sessions. ``python -m benchmarks nights`` runs a gate every night for a month.
"""

from __future__ import annotations

import sys

from benchmarks import collection, run_overhead, session, startup, timed_extract
from benchmarks.pairs import show

if __name__ == "__main__":
    if sys.argv[1:2] == ["verdict"]:
        from benchmarks import verdict

        verdict.main(sys.argv[2:])
        sys.exit()
    if sys.argv[1:2] == ["over-time"]:
        from benchmarks import over_time

        over_time.main(sys.argv[2:])
        sys.exit()
    if sys.argv[1:2] == ["gate"]:
        from benchmarks import gate

        sys.exit(gate.main(sys.argv[2:]))
    if sys.argv[1:2] == ["nights"]:
        from benchmarks import nights

        sys.exit(nights.main())
    sys.exit(show([module.measure() for module in (run_overhead, startup, collection, timed_extract, session)]))
