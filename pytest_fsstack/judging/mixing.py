"""Mixed rounds: the runs of up to four rounds in one random order.

With few stacks, a run mostly follows a run of the same other stack. So if a stack slows down the next run, its own runs
suffer less than those of its reference. In mixed rounds each run follows any other. Each run still belongs to a round,
and exchanging the two runs of a pair still flips only a sign (docs/statistics.md).

The two runs of a pair are farther apart in mixed rounds. If the machine is much more alike within a round than over
four, that costs more than it gains. So after the first look the plan may return to single rounds. The order of earlier
rounds does not affect the signs of later ones, so this choice leaves the error rate as it is. It compares times with
the median of their own stack, so it does not depend on which stack is slower.
"""

from __future__ import annotations

from math import ceil, log
from statistics import fmean, median

from pytest_fsstack.records.results import ChainResults

#: The most cells in a round that is mixed with others, and the most rounds that are mixed.
_CELLS, _ROUNDS = 3, 4
#: A share of the variance of times above this one lies between rounds.
_MOST = 0.5


def rounds_to_mix(cells: int, left: int) -> int:
    """Return how many of the rounds before the next look have their runs in one order.

    They are `left`, and the parts have about the same size.
    """
    return ceil(left / ceil(left / _ROUNDS)) if 1 < cells <= _CELLS else 1


def rounds_differ(chain: ChainResults) -> bool:
    """Return whether rounds explain most of the variance of times: runs in a row are much more alike than others."""
    cells = max(map(len, chain.orders), default=0)
    shares = []
    for step in chain.steps:
        times = _times(chain, step)
        near, far = (_mean_square(times, distance) for distance in (cells, cells * _ROUNDS))
        if far:
            shares.append(1 - near / far)
    return bool(shares) and fmean(shares) > _MOST


def _times(chain: ChainResults, step: str) -> list[float]:
    """Return the logarithms of the times of a step, less the median of the stack, in the order of the runs."""
    logs: dict[str, dict[int, float]] = {}
    for stack in chain.stacks:
        for key, sample in chain.of(step, stack).items():
            if (seconds := sample.values.get("seconds", 0.0)) > 0:
                logs.setdefault(stack, {})[key.number] = log(seconds)
    medians = {stack: median(of_stack.values()) for stack, of_stack in logs.items()}
    runs = [run for _, runs in chain.draws() for run in runs]
    return [logs[stack][number] - medians[stack] for number, stack in runs if number in logs.get(stack, {})]


def _mean_square(times: list[float], distance: int) -> float:
    """Return the mean square of the differences of runs that are closer than a distance, or 0 if there are none."""
    squares = [(one - other) ** 2 for index, one in enumerate(times) for other in times[index + 1 : index + distance]]
    return fmean(squares) if squares else 0.0
