"""Run the tests: ``python -m tests``, ``python -m tests kernels`` (all guests), or ``families`` (one guest per family).

Other arguments go to a single pytest session.

An emulated guest uses one CPU, so two files or classes with guests run at a time, the longest first. Tests on real
devices spend half of their time waiting for the kernel.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.sessions import interrupt_once

LONGEST = "tests/kernel/test_scenarios_in_guest.py"
ONE_GUEST = "tests/kernel/test_one_guest.py"
LONG = "tests/kernel/test_truth_in_guest.py"
SLOW = {LONGEST, LONG}
GUESTS = dict.fromkeys([LONGEST, LONG, *sorted(map(str, Path(LONGEST).parent.glob("test_*.py")))])

#: One run of a laboratory, on two of its nodes.
LABORATORY = "tests/laboratory/test_runs.py::test_two_hosts_run_a_scenario_and_are_pooled"

# Tests that wait for devices leave the processors to those that do not, so all go together, two for each processor.
WORKERS = min(16, 2 * (os.cpu_count() or 1))
PLACES = [ONE_GUEST, LABORATORY, "tests/real", "tests/plugin", "tests/unit"]
STEALING = ["--dist=worksteal", "-p", "tests.shares"]
IN_TURNS = ["-n2", "--dist=loadscope", "--no-loadscope-reorder"]
FAMILIES = [guest for guest in GUESTS if guest.endswith("_in_guest.py") and guest not in SLOW]
#: Name and words of the sessions, by the argument.
SESSIONS = {
    "": ("all but most guests", [*PLACES, f"-n{WORKERS}", *STEALING, "--hypothesis-profile=gate"]),
    "kernels": ("all guests", [*GUESTS, *IN_TURNS]),
    "families": ("one guest per family", [*FAMILIES, *IN_TURNS]),
}

LEFT_OUT = """\
Left out: tests/kernel but for one guest, that is each layer, the scenarios' stacks and several kernels in guests of
other kernels, and a long build. They take half an hour on two cores without KVM: tox -e kernels (as root), or
python -m tests kernels"""


def main(arguments: list[str]) -> int:
    """Run the tests, and print how long they took. Return the exit code of pytest."""
    name, words = SESSIONS.get(" ".join(arguments), ("pytest", arguments))
    interrupt_once()
    start = time.monotonic()
    # Not in a process of its own, so that a signal to this one ends the tests.
    code = pytest.main(["-ra", *words])
    print(f"Tests: {name} {time.monotonic() - start:.0f} s{' (failed)' if code else ''}")
    if not arguments:
        print(LEFT_OUT)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
