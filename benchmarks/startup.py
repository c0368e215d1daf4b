"""The time that the plugin adds to the start of every pytest run, also of those that do not use it.

    python -m benchmarks startup [pairs]

``pytest --collect-only`` runs in an empty directory, with and without ``-p no:fsstack``. No other plugin is loaded. The
plugin is a copy, installed as from a wheel, because pytest treats the modules of a checkout differently. The CPU time
(user and system) is judged. A start waits for nothing, so its wall time on an idle machine is the same.

Two starts in a row differ by more than the plugin costs, so many pairs are needed, and a machine at rest. If Valgrind
is installed, the additional instructions are shown too. They do not depend on other work of the machine.

Starts are measured with compiled files, and with ``PYTHONDONTWRITEBYTECODE``, as in many containers, where Python
compiles the plugin in each run. The slower kind is judged.
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
from benchmarks.pairs import Finding, Pairs, cpu_seconds_of, difference_finding, interleaved, run

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
        # This start compiles all files except those of the plugin.
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
                details += [f"  {instructions / 1e6:+.1f} million instructions, {share:+.2%}"]
        slower = max(more, key=lambda way: more[way][0])
        if more[slower][0] > MOST:
            details += _imports(directory / "empty", starts[slower])
    return difference_finding(f"start-up (CPU time, {slower})", more[slower], most=MOST, details=details)


def _install(site: Path) -> None:
    """Copy the package into a directory, with the metadata that an installer writes."""
    package = Path(pytest_fsstack.__file__).parent
    shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{package.name}-{pytest_fsstack.__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[pytest11]\nfsstack = {package.name}.plugin\n")
    files = [path.relative_to(site) for path in site.rglob("*") if path.is_file()]
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))


def _command(*words: str) -> list[str]:
    """Return the command that starts pytest with this plugin alone."""
    plugins = sorted({point.name for point in entry_points(group="pytest11")} - {"fsstack"})
    excluded = [word for plugin in plugins for word in ("-p", f"no:{plugin}")]
    return [sys.executable, "-m", "pytest", "--collect-only", *excluded, *words]


def _pairs(directory: Path, env: Mapping[str, str], pairs: int) -> Pairs:
    def start(*words: str) -> float:
        return cpu_seconds_of(*_command(*words), cwd=directory, expected=NOTHING_COLLECTED, env=env)

    return interleaved(start, lambda: start(*WITHOUT), pairs)


def _instructions(directory: Path, env: Mapping[str, str]) -> tuple[int, float]:
    """Return the additional instructions of a start with the plugin, and their ratio to those without it."""

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
    """Return the import times of modules that the plugin needs, the slowest first."""
    command = [sys.executable, "-X", "importtime", *_command()[1:]]
    output = run(*command, cwd=directory, expected=NOTHING_COLLECTED, env=env)
    rows = re.findall(r"import time: +(\d+) \| +(\d+) \| *(pytest_fsstack\S*|numpy|scipy|tabulate)$", output, re.M)
    slowest = sorted(((int(whole), int(own), module) for own, whole, module in rows), reverse=True)
    return [f"{module}: {whole} us, {own} us of it its own" for whole, own, module in slowest[:15]]
