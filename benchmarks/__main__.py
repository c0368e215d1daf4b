"""Run all benchmarks that have a target, and print one table: ``python -m benchmarks``.

The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import sys

from benchmarks import collection, run_overhead, session, startup, timed_extract
from benchmarks.pairs import show

if __name__ == "__main__":
    sys.exit(show([module.measure() for module in (run_overhead, startup, collection, timed_extract, session)]))
