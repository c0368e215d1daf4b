"""What does the plugin add to the start of every pytest run, also of those that do not use it?

    python -m benchmarks.startup [pairs]

Whole processes of ``pytest --collect-only`` in an empty directory, with and without ``-p no:fsstack``. They load their
plugins as an installed pytest does, and all other plugins are left out of both. Judged is CPU time (user and system): a
start waits for nothing, so an idle machine takes this long, and a busy machine disturbs it least.

Two ways of starting are measured: with compiled files, and with ``PYTHONDONTWRITEBYTECODE``, as in many containers,
where Python compiles the plugin in each run. The slower one is judged.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from benchmarks.pairs import Finding, Pairs, cpu_seconds_of, difference_finding, interleaved, main, run

PAIRS = 60
MOST = 8.0
NOTHING_COLLECTED = 5
WITHOUT = ("-p", "no:fsstack")


def measure(pairs: int = PAIRS) -> Finding:
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)
        (directory / "empty").mkdir()
        # Compiled files of all but the plugin, which must not compile itself here.
        uncompiled = {"PYTHONPYCACHEPREFIX": f"{directory}/compiled", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
        run(*_command(*WITHOUT), cwd=directory / "empty", expected=NOTHING_COLLECTED, env=uncompiled)
        starts = {
            "compiled": {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""},
            "compiled in each run": {**uncompiled, "PYTHONDONTWRITEBYTECODE": "1"},
        }
        results = {way: _pairs(directory / "empty", env, pairs) for way, env in starts.items()}
        slower = max(results, key=lambda way: results[way].milliseconds_more)
        details = [f"{way}: {each.milliseconds_more:+.2f} ms; {each}" for way, each in results.items()]
        if results[slower].milliseconds_more > MOST:
            details += _imports(directory / "empty", starts[slower])
    return difference_finding(f"start-up (CPU time, {slower})", results[slower], most=MOST, details=details)


def _command(*words: str) -> list[str]:
    """Return the words that start pytest with this plugin alone."""
    others = sorted({point.name for point in entry_points(group="pytest11")} - {"fsstack"})
    left_out = [word for other in others for word in ("-p", f"no:{other}")]
    return [sys.executable, "-m", "pytest", "--collect-only", *left_out, *words]


def _pairs(directory: Path, env: Mapping[str, str], pairs: int) -> Pairs:
    def start(*words: str) -> float:
        return cpu_seconds_of(*_command(*words), cwd=directory, expected=NOTHING_COLLECTED, env=env)

    return interleaved(start, lambda: start(*WITHOUT), pairs)


def _imports(directory: Path, env: Mapping[str, str]) -> list[str]:
    """Return what Python imports on behalf of the plugin, the slowest first."""
    command = [sys.executable, "-X", "importtime", *_command()[1:]]
    output = run(*command, cwd=directory, expected=NOTHING_COLLECTED, env=env)
    rows = re.findall(r"import time: +(\d+) \| +(\d+) \| *(pytest_fsstack\S*|numpy|scipy|sh|tabulate)$", output, re.M)
    slowest = sorted(((int(whole), int(own), module) for own, whole, module in rows), reverse=True)
    return [f"{module}: {whole} us, {own} us of it its own" for whole, own, module in slowest[:15]]


if __name__ == "__main__":
    sys.exit(main(measure, PAIRS))
