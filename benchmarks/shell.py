"""The cost of a command by `fsstack.sh` in a timed block: ``true``, against `timed.run`.

python -m benchmarks shell [pairs]
"""

from __future__ import annotations

import time

from benchmarks.pairs import Finding, difference_finding, interleaved
from benchmarks.run_overhead import stack
from pytest_fsstack.measuring.timed import Timed

PAIRS = 200


def measure(pairs: int = PAIRS) -> Finding:
    with stack() as built:
        timed = Timed(built)

        def by_sh() -> float:
            start = time.perf_counter()
            built.sh.true()
            return time.perf_counter() - start

        def by_run() -> float:
            start = time.perf_counter()
            timed.run("true")
            return time.perf_counter() - start

        measured = interleaved(by_sh, by_run, pairs, warmup=10)
    return difference_finding("fsstack.sh.true()", measured.milliseconds_more, most=40.0, details=[str(measured)])
