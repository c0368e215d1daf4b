"""The short end of ``fsstack bench``: what needs attention, the tables, and a sentence for each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

from pytest_fsstack.judging.results import ChainResults, Results
from pytest_fsstack.judging.verdict import Estimate
from pytest_fsstack.report import terminal
from pytest_fsstack.report.answer import main_metric, problems
from pytest_fsstack.report.model import visible
from pytest_fsstack.units import format_quantity


def lines(results: Results, *, width: int, coloured: bool = False) -> list[str]:
    """Return the end of a session."""
    tables = [terminal.table_lines(results, chain, width=width, coloured=coloured) for chain in results.chains]
    text = [line for table in tables for line in table]
    text += [visible(f"{problem.kind + ':':<13} {problem}") for problem in problems(results)]
    return [*text, "", *(visible(line) for chain in results.chains for line in sentences(chain))]


def sentences(chain: ChainResults) -> Iterator[str]:
    """Yield for each step what its references took, and how much slower the other stacks are."""
    for step in chain.steps:
        metric = main_metric(chain, step)
        others = [stack for stack in chain.stacks if stack != chain.reference(stack) and stack not in chain.controls]
        for reference in dict.fromkeys(map(chain.reference, others or chain.stacks)):
            median = chain.median(step, reference, metric)
            if median is None:
                continue
            costs = [_cost(chain, step, stack, metric) for stack in others if chain.reference(stack) == reference]
            label = f"{step}: " if len(chain.steps) > 1 else ""
            figure = format_quantity(median, chain.metrics(step)[metric].unit)
            took = f"took {figure}" if metric == "seconds" else f"had {figure} ({metric.replace('_', ' ')})"
            yield f"{label}{'; '.join([f'{chain.stacks[reference].name} {took}', *filter(None, costs)])}."


def _cost(chain: ChainResults, step: str, stack: str, metric: str) -> str:
    estimate = chain.estimate(step, stack, metric)
    if estimate is None or chain.incomplete(step, stack):
        return ""
    return f"{chain.stacks[stack].name} {_compared(estimate)}"


def _compared(estimate: Estimate) -> str:
    low, high = 1 + estimate.low, 1 + estimate.high
    if not isfinite(high):
        return f"is about {1 + estimate.overhead:.3g} times as slow (too few rounds for an interval)"
    if low <= 1 <= high:
        return f"takes {_ends((low, high))} times as long, so no difference was shown"
    return f"is {_ends((low, high))} times slower" if low > 1 else f"is {_ends((1 / high, 1 / low))} times faster"


def _ends(numbers: Iterable[float]) -> str:
    return " to ".join(f"{number:.2f}" if number < 10 else f"{number:.3g}" for number in numbers)
