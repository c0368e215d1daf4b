"""False alarms and power of the change points of `fsstack trend`.

    python -m benchmarks changes [series] [seed]

Runs have a standard deviation of 2 %. A step of 5 % is found if a change is shown at most five runs beside it. If
Apache Otava is installed, the table has its rows too, with its default p of 0.001 and a magnitude of 1 %.
"""

from __future__ import annotations

import importlib.util
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from math import exp, log1p

from tabulate import tabulate

from benchmarks.machines import Noise, correlated, heavy, normal, share, skewed
from pytest_fsstack.over_time.changes import change_points
from pytest_fsstack.over_time.trend import ALPHA

DEVIATION, STEP, NEAR = 0.02, 0.05, 5
RUNS = (30, 100, 365)
#: The number of runs, and the run of the step.
STEPS = ((30, 15), (30, 24), (100, 50), (100, 90), (365, 200), (365, 350))

#: The distribution of runs, and the correlation of successive runs.
NOISES: dict[str, tuple[Noise, float]] = {
    "normal": (normal, 0.0),
    "heavy tails (t3)": (heavy, 0.0),
    "skewed": (skewed, 0.0),
    "AR(1) 0.5": (normal, 0.5),
    "AR(1) 0.5, heavy tails": (heavy, 0.5),
}


def overheads(rng: random.Random, name: str, number: int, step: int | None = None) -> list[float]:
    """Return the ratios of a stack to its baseline, higher from the run `step` on."""
    runs = zip(correlated(rng, *NOISES[name]), range(number))
    return [1.3 * exp(DEVIATION * value + (step is not None and run >= step) * log1p(STEP)) for value, run in runs]


def _own(values: Sequence[float]) -> list[int]:
    return change_points(values, ALPHA)


def _otava(values: Sequence[float]) -> list[int]:
    from otava.analysis import compute_change_points

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        points, _ = compute_change_points(list(values), max_pvalue=0.001, min_magnitude=0.01)
    return [int(point.index) for point in points]


def detectors() -> dict[str, Callable[[Sequence[float]], list[int]]]:
    """Return the available detectors by name."""
    return {"fsstack trend": _own, **({"Otava": _otava} if importlib.util.find_spec("otava") else {})}


def rows(series: int, seed: int) -> Iterator[list[str]]:
    """Yield a row for each detector and noise: the shares of false alarms, then of found steps."""
    for detector, detect in detectors().items():
        for name in NOISES:
            rng = random.Random(f"{seed} {name}")
            alarms = [share([bool(detect(overheads(rng, name, n))) for _ in range(series)]) for n in RUNS]
            yield [detector, name, *alarms, *(_power(detect, name, n, step, series, rng) for n, step in STEPS)]


def _power(
    detect: Callable[[Sequence[float]], list[int]], name: str, n: int, step: int, series: int, rng: random.Random
) -> str:
    hits = [any(abs(point - step) <= NEAR for point in detect(overheads(rng, name, n, step))) for _ in range(series)]
    return f"{100 * sum(hits) / series:.0f} %"


def main(arguments: list[str]) -> None:
    """Print the table as Markdown. The arguments are the number of series in a cell and the seed."""
    series, seed = (*map(int, arguments), *(200, 1)[len(arguments) :])
    headers = ["", "runs", *(f"alarms in {n}" for n in RUNS), *(f"finds {step} of {n}" for n, step in STEPS)]
    print(tabulate(rows(series, seed), headers, tablefmt="github", disable_numparse=True))
