"""The short end of ``fsstack bench``: what needs attention, the tables, and a sentence for each step."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_fsstack.judging.overall import main_metric
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.report import terminal
from pytest_fsstack.report.answer import problems, worst_first
from pytest_fsstack.report.wording import times
from pytest_fsstack.units import format_quantity, visible


def lines(results: Results, *, width: int, coloured: bool = False) -> list[str]:
    """Return the end of a session."""
    results = settle(results)
    text = [visible(str(sentence)) for sentence in [worst_first(results)] if sentence.headline]
    text += terminal.problem_lines(problem for problem in problems(results) if problem.kind != "failed")
    # Pytest has shown the failures above.
    text = terminal.once(results, text, shown=True)
    for chain in results.chains:
        text += terminal.table_lines(results, chain, width=width, coloured=coloured)
    return [*text, "", *(visible(line) for chain in results.chains for line in sentences(chain))]


def sentences(chain: ChainResults) -> Iterator[str]:
    """Yield for each step the figures of its references, and the costs of stacks whose CPU is not emulated."""
    for step in chain.steps:
        metric = main_metric(chain, step)
        others = [stack for stack in chain.stacks if stack != chain.reference(stack) and stack not in chain.controls]
        for reference in dict.fromkeys(map(chain.reference, others or chain.stacks)):
            median = chain.median(step, reference, metric)
            if median is None or chain.note(step, reference):
                continue
            costs = [_cost(chain, step, stack, metric) for stack in others if chain.reference(stack) == reference]
            label = f"{step}: " if len(chain.steps) > 1 else ""
            figure = format_quantity(median, chain.metrics(step)[metric].unit)
            took = f"took {figure}" if metric == "seconds" else f"had {figure} ({metric.replace('_', ' ')})"
            emulated = " (emulated)" if chain.stacks[reference].emulated else ""
            yield f"{label}{'; '.join([f'{chain.stacks[reference].name}{emulated} {took}', *filter(None, costs)])}."


def _cost(chain: ChainResults, step: str, stack: str, metric: str) -> str:
    estimate = chain.overhead(step, stack, metric)
    if estimate is None or chain.note(step, stack) or chain.is_emulated(stack):
        return ""
    verb, adverb = ("takes", "long") if metric == "seconds" else ("costs", "much")
    shown = ", so no difference was shown" if estimate.low <= 0 <= estimate.high else ""
    few = "" if estimate.has_interval else " (too few rounds for an interval)"
    return f"{chain.stacks[stack].name} {verb} {_ratio(estimate)} times as {adverb}{few or shown}"


def _ratio(estimate: Estimate) -> str:
    if not estimate.has_interval:
        return f"about {times(estimate.overhead)}"
    return f"{times(estimate.low)} to {times(estimate.high)}"
