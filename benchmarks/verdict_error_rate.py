"""How often is a verdict wrong? Print it, beside what comparing two means would say.

    python benchmarks/verdict_error_rate.py [sessions]

Simulated sessions of two stacks whose true overhead is known. Run times are log-normal with the given coefficient of
variation (CV), 5 % of them are outliers of three times the length, and the machine becomes faster or slower by 20 %
over 60 runs. Our procedure takes rounds of both stacks in random order and judges after 10, 20 and 30 rounds; the naive
one runs A ten times, then B ten times, and calls B slower when its mean is more than 5 % above A's.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from math import log1p

import numpy as np
import numpy.typing as npt
from scipy.stats import wilcoxon

from pytest_fsstack.verdict import Looks, percent

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """A machine that runs a workload in one second, but for noise, outliers and drift."""

    cv: float
    outlier_share: float = 0.05
    outlier: float = 3.0
    drift: float = 0.20
    drift_runs: int = 60

    def run_times(self, when: npt.NDArray[np.int_], rng: np.random.Generator) -> Floats:
        """Return seconds, shaped as ``when``: sessions by the places of the runs in their session."""
        sigma = log1p(self.cv**2) ** 0.5
        noise = rng.lognormal(-(sigma**2) / 2, sigma, when.shape)
        outliers = np.where(rng.random(when.shape) < self.outlier_share, self.outlier, 1.0)
        return noise * outliers * np.exp(log1p(self.drift) * when / self.drift_runs)

    def compare(self, order: npt.NDArray[np.int_], overhead: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return run times of baseline and stack, both sessions by rounds; ``order`` holds the places of their runs.

        Half of the sessions run backwards, so that the machine becomes faster in them.
        """
        backwards = rng.random((1, order.shape[1], 1)) < 0.5
        when = np.where(backwards, order.max() - order, order)
        baseline, stack = self.run_times(when, rng)
        return baseline, stack * (1 + overhead)


def interleaved(sessions: int, rounds: int, rng: np.random.Generator) -> npt.NDArray[np.int_]:
    """Return the places of the runs when each round runs both stacks in random order."""
    first = rng.integers(0, 2, (sessions, rounds))
    return 2 * np.arange(rounds) + np.stack([first, 1 - first])


def one_after_the_other(sessions: int, rounds: int) -> npt.NDArray[np.int_]:
    """Return the places of the runs when the baseline runs all its rounds before the other stack runs any."""
    return np.arange(2 * rounds).reshape(2, 1, rounds).repeat(sessions, axis=1)


def logratios(machine: Machine, overhead: float, sessions: int, rng: np.random.Generator, rounds: int = 30) -> Floats:
    """Return log(stack / baseline), sessions by rounds, of interleaved rounds."""
    baseline, stack = machine.compare(interleaved(sessions, rounds, rng), overhead, rng)
    return np.log(stack / baseline)


def outcomes(d: Floats, budget: float, looks: Looks) -> list[str]:
    """Return the verdict of each session, as ``verdict.judge`` gives it at the first look that decides.

    All sessions at once, which is a hundred times faster; without ties both come down to the same test.
    """
    found = np.full(len(d), "inconclusive", dtype=object)
    for rounds in looks.rounds:
        excess = d[:, :rounds] - log1p(budget)
        for outcome, sign in (("fail", -1), ("pass", 1)):
            p = wilcoxon(sign * excess, alternative="less", method="exact", axis=1).pvalue
            found[(p <= looks.level) & (found == "inconclusive")] = outcome
    return [str(outcome) for outcome in found]


def naive_alarms(machine: Machine, sessions: int, rng: np.random.Generator, threshold: float = 0.05) -> float:
    """Return the share of sessions in which identical code is called slower by comparing means of ten runs."""
    baseline, stack = machine.compare(one_after_the_other(sessions, 10), 0.0, rng)
    return float(np.mean(stack.mean(axis=1) > baseline.mean(axis=1) * (1 + threshold)))


def main(sessions: int) -> None:
    """Print a Markdown table."""
    rng = np.random.default_rng(1)
    looks = Looks()
    headers = (
        "CV",
        "identical code, A x 10 then B x 10: mean of B > 5 % slower",
        "identical code, rounds, budget 5 %: fail / pass / inconclusive",
        "overhead exactly at its budget, rounds: fail",
    )
    print(f"| {' | '.join(headers)} |")
    print("|---|---|---|---|")
    for cv in (0.05, 0.10, 0.20):
        machine = Machine(cv)
        same = Counter(outcomes(logratios(machine, 0.0, sessions, rng), 0.05, looks))
        edge = Counter(outcomes(logratios(machine, 0.30, sessions, rng), 0.30, looks))
        shares = " / ".join(percent(same[outcome] / sessions) for outcome in ("fail", "pass", "inconclusive"))
        naive = percent(naive_alarms(machine, sessions, rng))
        print(f"| {cv:.0%} | {naive} | {shares} | {percent(edge['fail'] / sessions)} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
