"""The scenarios against each bug, one at a time, and against none."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.real.mutants.layer import Bug
from tests.toolkit import chains_of

ROOT = Path(__file__).parents[3]
#: How each scenario counts what it has noticed.
SCENARIOS = {
    "contents": "contents_differences",
    "posix": "posix_differences",
}


@dataclass(frozen=True)
class Noticed:
    """The scenario and step that noticed a bug, and the first line of its report."""

    scenario: str
    step: str
    words: str

    @property
    def calls(self) -> int:
        """Return the length of the counterexample, 0 if there is none."""
        _, found, calls = self.words.partition("; calls: ")
        return len(calls.partition(" | ")[0].split("; ")) if found else 0


def run(scenario: str, bug: str, *, scale: str = "small", seed: int | None = None, only: str = "") -> Noticed | None:
    """Run a scenario, or `only` some of its tests, on the filesystem with a bug, or none if its name is empty."""
    layer = f"mutant(bug={bug!r})" if bug else "mutant"
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        results = Path(directory, "results.json")
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.real.mutants.layer",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        words += [f"--fsstack-scenario={scenario}", f"--fsstack-scale={scale}", "--fsstack-rounds=1"]
        words += [f"--fsstack-stacks=mutant = ext4 | {layer}", f"--fsstack-json={results}"]
        words += [f"--fsstack-seed={seed}"] * (seed is not None)
        words += ["-k", only] * bool(only)
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
        if not results.exists():
            raise RuntimeError(f"{scenario} on {layer}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return _noticed(scenario, results, done.stdout)


def _noticed(scenario: str, results: Path, output: str) -> Noticed | None:
    for chain in chains_of(results):
        for step in chain.steps:
            if "mutant" not in chain.stacks:
                continue
            if chain.median(step, "mutant", SCENARIOS[scenario]) or chain.incomplete(step, "mutant"):
                return Noticed(scenario, step, chain.note(step, "mutant"))
            if not chain.of(step, "mutant"):
                return Noticed(scenario, step, chain.note(step, "mutant") or output[-300:])
    return None


def notice(bug: Bug | None, scenarios: list[str], *, scale: str = "small", seed: int | None = None) -> Noticed | None:
    """Run scenarios in turn until one notices the bug."""
    for scenario in scenarios:
        if noticed := run(scenario, bug.name if bug else "", scale=scale, seed=seed):
            return noticed
    return None
