"""Texts about failures and undecided budgets."""

from __future__ import annotations

import statistics

from pytest_fsstack.judging import verdict
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.results import ChainResults, Judgement, worst
from pytest_fsstack.units import OverheadUnit, format_quantity, shortened


def describe_failure(readings: Readings, step: str, stack: str, rerun_command: str = "") -> str:
    """Describe a failure: the broken budget with its figures in the first line, then the advice, then the samples.

    `rerun_command` is the command that runs this test alone, or empty.
    """
    chain, judgements = readings.chain, readings.chain.judgements_of(step, stack)
    order = sorted(judgements, key=lambda judgement: judgement.outcome != worst(other.outcome for other in judgements))
    lines = [_first_line(readings, step, stack, order[0])]
    lines += ["", *(["  again:   " + rerun_command] if rerun_command else [])]
    lines.append(
        f"  step:    {step}, {chain.rounds} rounds; the order of the stacks is that of --fsstack-seed={chain.seed}"
    )
    lines += [f"  {judgement.outcome + ':':<8} {judgement.text}" for judgement in judgements]
    for name in dict.fromkeys(judgement.budget.metric for judgement in judgements if judgement.outcome == "fail"):
        lines += ["", *_sample_lines(chain, step, stack, name)]
    lines += ["", _error_rate(chain, judgements), *filter(None, [readings.doubt(step, stack)])]
    return "\n".join(lines)


def _error_rate(chain: ChainResults, judgements: list[Judgement]) -> str:
    if all(judgement.budget.overhead is None for judgement in judgements if judgement.outcome == "fail"):
        return "A limit is compared with these rounds only. It has no error rate, because it depends on the machine."
    return f"{error_rate(chain)}."


def error_rate(chain: ChainResults) -> str:
    """Return the rate of false failures of budgets over a baseline."""
    together = f"For all {chain.budgets_sharing} budgets together: a stack that keeps its budget"
    stack = together if chain.budgets_sharing > 1 else "For each budget: a stack that keeps it"
    return f"{stack} is judged FAIL by chance in at most {chain.looks.alpha * 100:.3g} % of sessions"


#: The minimum width for the first line of a failure: 80 columns less the prefix that pytest adds.
COLUMNS = 80 - len("Failed: ")
#: The minimum width of a shortened name.
_SHORT = 8


def _first_line(readings: Readings, step: str, stack: str, judgement: Judgement) -> str:
    """Describe a budget with its figures in 80 columns. The middle of long names is left out."""
    reference = readings.chain.reference(stack)

    def line(width: int) -> str:
        return f"{shortened(stack, width)}: {_in_short(readings, step, stack, judgement, shortened(reference, width))}"

    longest = max(len(stack), len(reference), _SHORT)
    widths = range(longest, _SHORT - 1, -1)
    return next((text for width in widths if len(text := line(width)) <= COLUMNS), line(_SHORT))


def describe_shortly(readings: Readings, step: str, stack: str) -> str:
    """Describe the worst verdict of a step on a stack in one line, with its figures."""
    chain, outcome = readings.chain, readings.chain.worst(step, stack)
    for judgement in chain.judgements_of(step, stack):
        if judgement.outcome == outcome:
            return f"{outcome}: {_in_short(readings, step, stack, judgement, chain.reference(stack))}"
    return ""


def _in_short(readings: Readings, step: str, stack: str, judgement: Judgement, reference: str) -> str:
    """Describe a budget with its figures, for displays that show only the first line of a failure."""
    chain, budget, reading = readings.chain, judgement.budget, readings.of(step, stack, judgement.budget.metric)
    if judgement.verdict is None or reading is None:
        return judgement.text
    metric = reading.metric
    if budget.limit is not None:
        figures = chain.series(step, stack, budget.metric)[: judgement.verdict.estimate.rounds]
        median, limit = (format_quantity(each, metric.unit) for each in (statistics.median(figures), budget.limit))
        bound = "at most" if metric.better == "lower" else "at least"
        return f"{budget.metric} {median}, budget {bound} {limit}"
    final, limits = judgement.final or judgement.verdict, [budget.overhead or 0.0]
    numbers = final.estimate
    # The unit of the table, which shows all stacks.
    estimates = (readings.estimate(other, name, budget.metric) for other in chain.steps for name in chain.stacks)
    unit = OverheadUnit.fitting([numbers.overhead, *(each.overhead for each in estimates if each)])
    return (
        f"{budget.metric} {unit.signed(numbers.overhead, limits)} {unit.interval(numbers.low, numbers.high, limits)} "
        f"over {reference}, budget {unit.limit(limits[0])}"
    )


def describe_undecided(chain: ChainResults, step: str, stack: str) -> str:
    """Describe the undecided budgets in one line, with what would settle them."""
    parts = []
    for judgement in chain.judgements_of(step, stack):
        if judgement.outcome == "inconclusive":
            parts.append(f"{judgement.text}; {advice(judgement)}" if judgement.final else judgement.text)
    return f"inconclusive: {' | '.join(parts)}"


def advice(judgement: Judgement) -> str:
    """Return the advice for an undecided budget."""
    if judgement.final is None:
        return judgement.text
    if judgement.budget.limit is not None and judgement.final.estimate.rounds >= judgement.final.looks.minimum_rounds:
        return "it is too close to the limit to tell in so many rounds"
    return verdict.advice(judgement.final)


def _sample_lines(chain: ChainResults, step: str, stack: str, name: str) -> list[str]:
    metric = chain.metric(step, stack, name)
    unit = f" ({metric.unit})" if metric and metric.unit else ""
    reference = chain.reference(stack)
    width = max(len(stack), len(reference))
    lines = [f"  {name}{unit}, in the order of the rounds"]
    for side in dict.fromkeys((reference, stack)):
        lines.append(f"  {side:<{width}}  {' '.join(f'{value:.4g}' for value in chain.series(step, side, name))}")
    return lines
