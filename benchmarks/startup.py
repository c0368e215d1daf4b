"""What does the plugin add to the start of every pytest, also where nobody uses it?

    python -m benchmarks.startup [pairs]

``pytest --collect-only`` in an empty directory, with the plugin and without. Judged is CPU time: a start
that is compiled and in memory waits for nothing, so this is what passes on an idle machine, and a busy one cannot
spoil it.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from benchmarks.pairs import Finding, cpu_seconds_of, difference_finding, interleaved, main, pytest_command, run

PAIRS = 60
MOST = 10.0
NOTHING_COLLECTED = 5


def measure(pairs: int = PAIRS) -> Finding:
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)

        def start(plugin: bool) -> float:
            command = pytest_command("--collect-only", plugin=plugin)
            return cpu_seconds_of(*command, cwd=directory, expected=NOTHING_COLLECTED)

        found = interleaved(lambda: start(True), lambda: start(False), pairs)
        details = () if found.milliseconds_more <= MOST else _imports(directory)
    return difference_finding("start-up (CPU time)", found, most=MOST, details=details)


def _imports(directory: Path) -> list[str]:
    """What Python imports on behalf of the plugin, the dearest first."""
    _, _, *words = pytest_command("--collect-only")
    said = run(sys.executable, "-X", "importtime", "-m", *words, cwd=directory, expected=NOTHING_COLLECTED)
    found = re.findall(r"import time: +(\d+) \| +(\d+) \| *(pytest_fsstack\S*|numpy|scipy|sh|tabulate)$", said, re.M)
    dearest = sorted(((int(whole), int(own), module) for own, whole, module in found), reverse=True)
    return [f"{module}: {whole} us, {own} us of it its own" for whole, own, module in dearest[:15]]


if __name__ == "__main__":
    sys.exit(main(measure, PAIRS))
