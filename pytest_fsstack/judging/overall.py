"""The overall cost of a stack: the geometric mean over its steps, with a bootstrap interval over rounds.

A ratio of ratios does not depend on the unit or the length of a step, so the geometric mean weighs all steps alike
(Fleming & Wallace, Communications of the ACM 29 (1986) 218). Other weights can reflect how often a step occurs.

The interval is the expanded percentile bootstrap (Hesterberg, The American Statistician 69 (2015) 371). Whole rounds
are drawn, because the steps of one round share its disturbances. Each draw takes the median of every step.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import expm1, fsum, inf, log1p, sqrt
from statistics import NormalDist, median
from typing import Any

from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.verdicts import Estimate

#: The number of bootstrap draws. The ends of the interval vary by about 2 % of its width between seeds.
DRAWS = 2000
#: The smallest number of rounds for an interval.
MIN_ROUNDS = 4
CONFIDENCE = 0.9
_SEED = 20150521


def of_step(by_step: Mapping[str, Any], step: str, default: Any) -> Any:
    """Return the entry of a step, by its name with or without its parameters."""
    return by_step.get(step, by_step.get(step.partition("[")[0], default))


def main_metric(chain: ChainResults, step: str) -> str:
    """Return what a step is compared by: the time, unless the scenario's tables name another metric."""
    for _, options in chain.tables:
        metrics = options.get("metrics")
        if isinstance(metrics, Mapping) and (names := of_step(metrics, step, "")):
            return names if isinstance(names, str) else str(names[0])
    return "seconds"


def weights(results: Results, chain: ChainResults) -> Mapping[str, float]:
    """Return the weights of steps that the user chose; steps without one weigh 1."""
    environment = results.environment if chain.environment is None else chain.environment
    chosen: Mapping[str, float] = environment.get("settings", {}).get("weights", {})
    return chosen


def with_all_steps(
    chain: ChainResults, estimate: Callable[[str, str, str], Estimate | None]
) -> dict[str, dict[str, Estimate]]:
    """Return the estimates of all steps for each stack that has them, without controls, references and emulated CPUs.

    A step that lacks rounds or figures on a stack has no estimate here. A stack that failed has not won.
    """
    estimates = {
        stack: {
            step: cost
            for step in chain.steps
            if not chain.note(step, stack) and (cost := estimate(step, stack, main_metric(chain, step)))
        }
        for stack in chain.stacks
    }
    every = {step for steps in estimates.values() for step in steps}
    return {
        stack: steps
        for stack, steps in estimates.items()
        if steps
        and steps.keys() == every
        and not any(cost.missing for cost in steps.values())
        and stack not in chain.controls
        and not chain.is_emulated(stack)
    }


def geometric_mean(
    steps: Mapping[str, Mapping[int, float]],
    overheads: Mapping[str, float],
    weights: Mapping[str, float] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return the overall overhead of a stack.

    `steps` has the log-ratios of each step by round. `overheads` are the overheads that reports show, by step. A step
    without a weight in `weights` has weight 1. The ends of the interval are -1 and infinity if fewer than `MIN_ROUNDS`
    rounds have all steps.
    """
    shares = _shares(list(overheads), weights or {})
    center = sum(share * log1p(overheads[step]) for step, share in shares.items())
    rounds = sorted(set.intersection(*(set(steps[step]) for step in shares)))
    if len(rounds) < MIN_ROUNDS:
        return Estimate(expm1(center), -1.0, inf, confidence, len(rounds))
    rows = [[steps[step][number] for step in shares] for number in rounds]
    low, high = _deviations(rows, list(shares.values()), confidence)
    return Estimate(expm1(center), expm1(center + min(low, 0.0)), expm1(center + max(high, 0.0)), confidence, len(rows))


def by_round(steps: Mapping[str, Mapping[int, float]], weights: Mapping[str, float] | None = None) -> dict[int, float]:
    """Return the mean log-ratio of all steps in each round that has them, weighted as by `geometric_mean`."""
    shares = _shares(list(steps), weights or {})
    rounds = set.intersection(*(set(steps[step]) for step in shares))
    return {number: fsum(share * steps[step][number] for step, share in shares.items()) for number in sorted(rounds)}


def _shares(steps: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of the steps with a weight above 0, or of all steps if there are none. They add up to 1."""
    weighed = {step: weight for step in steps if (weight := of_step(weights, step, 1.0)) > 0}
    weighed = weighed or dict.fromkeys(steps, 1.0)
    total = sum(weighed.values())
    return {step: weight / total for step, weight in weighed.items()}


def parse_weights(text: str) -> dict[str, float]:
    """Parse weights such as ``stream_write=3, delete=1``. Raises `ValueError`."""
    weights = {}
    for part in text.split(","):
        step, _, number = (word.strip() for word in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if not step or not 0 <= weight < inf or step in weights:
            raise ValueError(f"must be STEP=WEIGHT, each step once, such as 'stream_write=3, delete=1' (got {text})")
        weights[step] = weight
    return weights


def unknown_step(weights: Iterable[str], steps: Iterable[str]) -> str:
    """Return an error message for the first weight of an unknown step, or an empty text."""
    names = list(dict.fromkeys(name for step in steps for name in (step, step.partition("[")[0])))
    for step in weights:
        if step not in names:
            near = difflib.get_close_matches(step, names, 1, 0)
            return f"there is no step {step!r}{f'. Did you mean {near[0]!r}?' if near else ''}"
    return ""


def _deviations(rows: list[list[float]], shares: list[float], confidence: float) -> tuple[float, float]:
    """Return the distances of the ends of the interval from the mean of the rows, as logarithms."""
    number, generator = len(rows), random.Random(_SEED)
    # With few rounds, the draws are too similar. Student's t and the factor correct this.
    width = student_quantile((1 + confidence) / 2, number - 1) * sqrt(number / (number - 1))
    tail = int(NormalDist().cdf(-width) * DRAWS)
    draws = sorted(_mean_of_medians(generator.choices(rows, k=number), shares) for _ in range(DRAWS))
    middle = _mean_of_medians(rows, shares)
    return draws[tail] - middle, draws[-1 - tail] - middle


def _mean_of_medians(rows: list[list[float]], shares: list[float]) -> float:
    return fsum(share * median(column) for share, column in zip(shares, zip(*rows), strict=True))
