"""The cost of collection: 100 tests on 100 stacks, against plain ``parametrize`` of that size.

    python -m benchmarks collection [pairs]

The figure is the CPU time of the collection, without pytest's start. A busy machine hardly disturbs it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from benchmarks.pairs import Finding, interleaved, pytest_command, ratio_finding, run

PAIRS = 25
STACKS = TESTS = 100
CONFTEST = """
import time, pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session):
    start = time.process_time()
    yield
    print(f"{session.testscollected} tests took {time.process_time() - start} s")
"""


def measure(pairs: int = PAIRS) -> Finding:
    names = [f"stack{number}" for number in range(STACKS)]
    marks = {
        "fsstack": f"pytest.mark.fsstack(*{[f'{name} = ext4' for name in names]})",
        "plain": f"pytest.mark.parametrize('plain', {names})",
    }
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)
        (directory / "conftest.py").write_text(CONFTEST)
        for argument, mark in marks.items():
            tests = "".join(f"\n\ndef test_{number}({argument}):\n    pass\n" for number in range(TESTS))
            (directory / f"test_{argument}.py").write_text(f"import pytest\n\npytestmark = {mark}\n{tests}")

        def collect(argument: str, *, plugin: bool) -> float:
            command = pytest_command("--collect-only", "-qs", f"test_{argument}.py", plugin=plugin)
            line = re.search(r"(\d+) tests took ([\d.]+) s", run(*command, cwd=directory))
            assert line is not None
            assert int(line[1]) == STACKS * TESTS
            return float(line[2])

        pairs_measured = interleaved(
            lambda: collect("fsstack", plugin=True), lambda: collect("plain", plugin=False), pairs
        )
    return ratio_finding("collection / parametrize (CPU time)", pairs_measured, target="at most 1.15", most=1.15)
