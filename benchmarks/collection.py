"""What does collecting many tests on many stacks cost? 100 tests on 100 stacks against plain ``parametrize``.

    python -m benchmarks.collection [pairs]

The figure is pytest's own ("10000 tests collected in ..."), so that its start does not water the ratio down.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from benchmarks.pairs import Finding, interleaved, main, pytest_command, ratio_finding, run

PAIRS = 25
STACKS = TESTS = 100


def measure(pairs: int = PAIRS) -> Finding:
    names = [f"stack{number}" for number in range(STACKS)]
    marks = {
        "fsstack": f"pytest.mark.fsstack(*{[f'{name} = ext4' for name in names]})",
        "plain": f"pytest.mark.parametrize('plain', {names})",
    }
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)
        for argument, mark in marks.items():
            tests = "".join(f"\n\ndef test_{number}({argument}):\n    pass\n" for number in range(TESTS))
            (directory / f"test_{argument}.py").write_text(f"import pytest\n\npytestmark = {mark}\n{tests}")

        def collect(argument: str, *, plugin: bool) -> float:
            command = pytest_command("--collect-only", "-q", f"test_{argument}.py", plugin=plugin)
            said = re.search(r"^(\d+) tests collected in ([\d.]+)s", run(*command, cwd=directory), re.M)
            assert said is not None
            assert int(said[1]) == STACKS * TESTS
            return float(said[2])

        found = interleaved(lambda: collect("fsstack", plugin=True), lambda: collect("plain", plugin=False), pairs)
    return ratio_finding("collection / parametrize", found, target="at most 1.2", most=1.2)


if __name__ == "__main__":
    sys.exit(main(measure, PAIRS))
