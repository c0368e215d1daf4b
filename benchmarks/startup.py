"""What does the plugin add to the start of every pytest run, also of those that do not use it?

    python -m benchmarks.startup [pairs]

Whole processes of ``pytest --collect-only`` in an empty directory, with and without ``-p no:fsstack``. The plugin is a
copy that is installed as a wheel installs it: pytest treats the modules of a checkout otherwise. All other plugins are
left out of both. Judged is CPU time (user and system): a start waits for nothing, so an idle machine takes this long.
Two starts in a row differ by more than the plugin costs. So Valgrind, if it is installed, counts the instructions of
one start of each. Judged is that share of the CPU time that starts without the plugin take, as if all instructions
took the same. Without Valgrind, the difference of pairs is judged.

Two ways of starting are measured: with compiled files, and with ``PYTHONDONTWRITEBYTECODE``, as in many containers,
where Python compiles the plugin in each run. The slower one is judged.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest_fsstack
from benchmarks.pairs import Finding, Pairs, cpu_seconds_of, difference_finding, interleaved, main, milliseconds, run

PAIRS = 150
MOST = 8.0
NOTHING_COLLECTED = 5
WITHOUT = ("-p", "no:fsstack")


def measure(pairs: int = PAIRS) -> Finding:
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)
        (directory / "empty").mkdir()
        _install(directory / "installed")
        installed = {"PYTHONPATH": f"{directory}/installed", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": ""}
        # Compiled files of all but the plugin, which must not compile itself here.
        uncompiled = {**installed, "PYTHONPYCACHEPREFIX": f"{directory}/compiled"}
        run(*_command(*WITHOUT), cwd=directory / "empty", expected=NOTHING_COLLECTED, env=uncompiled)
        starts = {"compiled": installed, "compiled in each run": {**uncompiled, "PYTHONDONTWRITEBYTECODE": "1"}}
        results = {way: _pairs(directory / "empty", env, pairs) for way, env in starts.items()}
        more = {way: result.milliseconds_more for way, result in results.items()}
        details = []
        for way, result in results.items():
            median, low, high = more[way]
            details += [f"{way}: {median:+.2f} ms, 95 % interval {low:+.2f} to {high:+.2f}; {result}"]
            if shutil.which("valgrind"):
                instructions, share = _instructions(directory, starts[way])
                more[way] = milliseconds([seconds * share for seconds in result.reference])
                text = f"  {instructions / 1e6:+.1f} million instructions, {share:+.2%}: {more[way][0]:+.2f} ms"
                details += [f"{text}, 95 % interval {more[way][1]:+.2f} to {more[way][2]:+.2f}"]
        slower = max(more, key=lambda way: more[way][0])
        if more[slower][0] > MOST:
            details += _imports(directory / "empty", starts[slower])
    return difference_finding(f"start-up (CPU time, {slower})", more[slower], most=MOST, details=details)


def _install(site: Path) -> None:
    """Copy the package into a directory, with what an installer writes about it."""
    package = Path(pytest_fsstack.__file__).parent
    shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{package.name}-{pytest_fsstack.__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[pytest11]\nfsstack = {package.name}.plugin\n")
    files = [path.relative_to(site) for path in site.rglob("*") if path.is_file()]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def _command(*words: str) -> list[str]:
    """Return the words that start pytest with this plugin alone."""
    others = sorted({point.name for point in entry_points(group="pytest11")} - {"fsstack"})
    left_out = [word for other in others for word in ("-p", f"no:{other}")]
    return [sys.executable, "-m", "pytest", "--collect-only", *left_out, *words]


def _pairs(directory: Path, env: Mapping[str, str], pairs: int) -> Pairs:
    def start(*words: str) -> float:
        return cpu_seconds_of(*_command(*words), cwd=directory, expected=NOTHING_COLLECTED, env=env)

    return interleaved(start, lambda: start(*WITHOUT), pairs)


def _instructions(directory: Path, env: Mapping[str, str]) -> tuple[int, float]:
    """Return how many more instructions a start has with the plugin, and their share of those without it."""

    def count(*words: str) -> int:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={directory}/callgrind"]
        env_of_count = {**env, "PYTHONHASHSEED": "0"}
        command = [*valgrind, *_command(*words)]
        output = run(*command, cwd=directory / "empty", expected=NOTHING_COLLECTED, env=env_of_count)
        collected = re.search(r"Collected : (\d+)", output)
        assert collected is not None, output
        return int(collected[1])

    reference = count(*WITHOUT)
    more = count() - reference
    return more, more / reference


def _imports(directory: Path, env: Mapping[str, str]) -> list[str]:
    """Return what Python imports on behalf of the plugin, the slowest first."""
    command = [sys.executable, "-X", "importtime", *_command()[1:]]
    output = run(*command, cwd=directory, expected=NOTHING_COLLECTED, env=env)
    rows = re.findall(r"import time: +(\d+) \| +(\d+) \| *(pytest_fsstack\S*|numpy|scipy|sh|tabulate)$", output, re.M)
    slowest = sorted(((int(whole), int(own), module) for own, whole, module in rows), reverse=True)
    return [f"{module}: {whole} us, {own} us of it its own" for whole, own, module in slowest[:15]]


if __name__ == "__main__":
    sys.exit(main(measure, PAIRS))
