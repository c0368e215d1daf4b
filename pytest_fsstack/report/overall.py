"""One number for all steps of a stack: the geometric mean of what they cost, with a bootstrap interval over rounds.

A ratio of ratios does not depend on the unit or the length of a step, so the geometric mean weighs all steps alike
(Fleming & Wallace, Communications of the ACM 29 (1986) 218). Other weights say how often each step occurs at work.

The interval is the expanded percentile bootstrap (Hesterberg, The American Statistician 69 (2015) 371). Whole rounds
are drawn, because the steps of one round share its disturbances. Each draw takes the median of every step.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterable, Mapping, Sequence
from math import expm1, fsum, inf, log1p, sqrt
from statistics import NormalDist, median

from pytest_fsstack.judging.verdict import Estimate
from pytest_fsstack.report.quantiles import student_quantile

#: How often rounds are drawn. The ends of the interval vary by about 2 % of its width from seed to seed.
DRAWS = 2000
#: Fewest rounds for an interval.
MIN_ROUNDS = 4
CONFIDENCE = 0.9
_SEED = 20150521


def geometric_mean(
    steps: Mapping[str, Mapping[int, float]],
    overheads: Mapping[str, float],
    weights: Mapping[str, float] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return the overall overhead of a stack.

    `steps` holds the log-ratios of each step by round, `overheads` the overhead of each step as reports show it, and
    `weights` those of steps that do not weigh 1. The ends are -1 and infinity if fewer than `MIN_ROUNDS` rounds have
    all steps. Raises ValueError without a step that has a weight.
    """
    shares = _shares(list(overheads), weights or {})
    center = sum(share * log1p(overheads[step]) for step, share in shares.items())
    rounds = sorted(set.intersection(*(set(steps[step]) for step in shares)))
    if len(rounds) < MIN_ROUNDS:
        return Estimate(expm1(center), -1.0, inf, confidence, len(rounds))
    rows = [[steps[step][number] for step in shares] for number in rounds]
    low, high = _deviations(rows, list(shares.values()), confidence)
    return Estimate(expm1(center), expm1(center + min(low, 0.0)), expm1(center + max(high, 0.0)), confidence, len(rows))


def _shares(steps: Sequence[str], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each step that has one; all shares add up to 1."""
    weighed = {step: weight for step in steps if (weight := weight_of(step, weights)) > 0}
    if not weighed:
        raise ValueError(f"no step has a weight above 0 (got {', '.join(steps) or 'no step'})")
    total = sum(weighed.values())
    return {step: weight / total for step, weight in weighed.items()}


def parse_weights(text: str) -> dict[str, float]:
    """Read ``stream_write=3, delete=1``. Raises `ValueError`."""
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
    """Return what is wrong with the first weight of a step that there is not; empty if there is none."""
    names = list(dict.fromkeys(name for step in steps for name in (step, step.partition("[")[0])))
    for step in weights:
        if step not in names:
            near = difflib.get_close_matches(step, names, 1, 0)
            return f"there is no step {step!r}{f'. Did you mean {near[0]!r}?' if near else ''}"
    return ""


def weight_of(step: str, weights: Mapping[str, float]) -> float:
    """Return the weight of a step, by its name with or without its parameters; 1 if none is given."""
    return weights.get(step, weights.get(step.partition("[")[0], 1.0))


def _deviations(rows: list[list[float]], shares: list[float], confidence: float) -> tuple[float, float]:
    """Return how far the ends of the interval are from the mean of the rows, as logarithms."""
    number, generator = len(rows), random.Random(_SEED)
    # Few rounds make the draws too much alike. Student's t and the factor make up for that.
    width = student_quantile((1 + confidence) / 2, number - 1) * sqrt(number / (number - 1))
    tail = int(NormalDist().cdf(-width) * DRAWS)
    draws = sorted(_mean_of_medians(generator.choices(rows, k=number), shares) for _ in range(DRAWS))
    middle = _mean_of_medians(rows, shares)
    return draws[tail] - middle, draws[-1 - tail] - middle


def _mean_of_medians(rows: list[list[float]], shares: list[float]) -> float:
    return fsum(share * median(column) for share, column in zip(shares, zip(*rows), strict=True))
