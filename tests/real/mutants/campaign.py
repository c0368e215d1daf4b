"""The scenarios against each bug, one at a time, and against none."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.judging.describe import note_in_words
from tests.real.mutants.layer import Bug
from tests.toolkit import chains_of

ROOT = Path(__file__).parents[3]
#: Scenarios and their tests, in the order in which they run until one notices a bug.
SCENARIOS = ("contents:test_calls", "contents:test_nearly_full", "posix:test_pjdfstest", "contents:test_fsx")
#: How each scenario counts what it has noticed.
_COUNTS = {"contents": "contents_differences", "posix": "posix_differences"}


@dataclass(frozen=True)
class Noticed:
    """The scenario and step that noticed a bug, and the first line of its report."""

    scenario: str
    step: str
    words: str

    @property
    def calls(self) -> int:
        """Return the length of the counterexample of the worst finding, 0 if there is none."""
        _, separator, calls = self.words.partition("; calls: ")
        return len(calls.split("; ")) if separator else 0


def run(scenario: str, bug: str, *, scale: str = "small", seed: int | None = None) -> Noticed | None:
    """Run a scenario, or a test of it, on the filesystem with a bug, or none if its name is empty."""
    scenario, _, only = scenario.partition(":")
    layer = f"mutant(bug={bug!r})" if bug else "mutant"
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        results = Path(directory, "results.json")
        words = [sys.executable, "-m", "pytest"]
        words += ["-p", "tests.real.mutants.layer", "-p", "no:cacheprovider", "-p", "no:xdist"]
        words += [f"--fsstack-scenario={scenario}", f"--fsstack-scale={scale}", "--fsstack-rounds=1"]
        words += [f"--fsstack-stacks=mutant = ext4 | {layer}", f"--fsstack-json={results}"]
        words += [f"--fsstack-seed={seed}"] * (seed is not None)
        words += ["-k", f"mutant and {only}" if only else "mutant"]
        result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=900)
        if not results.exists():
            raise RuntimeError(f"{scenario} on {layer}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
        return _noticed(scenario, results, result.stdout)


def _noticed(scenario: str, results: Path, output: str) -> Noticed | None:
    for chain in chains_of(results):
        for step in chain.steps:
            if "mutant" not in chain.stacks:
                continue
            if chain.median(step, "mutant", _COUNTS[scenario]) or chain.incomplete(step, "mutant"):
                return Noticed(scenario, step, note_in_words(chain.note(step, "mutant")))
            if not chain.of(step, "mutant"):
                return Noticed(scenario, step, note_in_words(chain.note(step, "mutant")) or output[-300:])
    return None


def notice(
    bug: Bug | None, scenarios: Sequence[str], *, scale: str = "small", seed: int | None = None
) -> Noticed | None:
    """Run scenarios in turn until one notices the bug."""
    for scenario in scenarios:
        if noticed := run(scenario, bug.name if bug else "", scale=scale, seed=seed):
            return noticed
    return None
