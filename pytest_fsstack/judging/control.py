"""The control: a second copy of the baseline, which must not differ from it (an A/A test)."""

from __future__ import annotations

from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.units import OverheadUnit, first_names


def doubts(readings: Readings) -> list[str]:
    """Return warnings about controls that differ from their baselines."""
    return [text for control in readings.chain.controls if (text := _doubt(readings, control))]


def _doubt(readings: Readings, control: str) -> str:
    chain, differences = readings.chain, compared(readings, control)
    baseline = chain.reference(control)
    if not differences:
        reason = next((notes[control] for notes in chain.notes.values() if control in notes), "nothing was measured")
        return f"the control cannot be compared with the baseline {baseline}: {reason}"
    if not (texts := differing(readings, control)):
        return ""
    few = first_names(texts)
    which = "it does" if len(differences) == 1 else f"each of {len(differences)} comparisons does"
    chance = f"{which} so by chance in at most {(1 - chain.looks.confidence) * 100:.3g} % of sessions"
    return (
        f"doubt the verdicts of this chain: the baseline {baseline} differs from itself, run a second time as "
        f"{control}: {few}; {chance}"
    )


def differing(readings: Readings, control: str) -> list[str]:
    """Return the steps in which a control differs from its baseline, with the difference."""
    return [
        f"{step}{'' if metric == 'seconds' else f' ({metric})'} {_with_interval(estimate)}"
        for (step, metric), estimate in compared(readings, control).items()
        if estimate.low > 0 or estimate.high < 0
    ]


def compared(readings: Readings, control: str) -> dict[tuple[str, str], Estimate]:
    """Return the control's overhead by step and metric, for the metrics of budgets, or else for the time."""
    chain, estimates = readings.chain, {}
    for step in chain.steps:
        for metric in chain.compared_metrics(step):
            if estimate := readings.estimate(step, control, metric):
                estimates[step, metric] = estimate
    return estimates


def _with_interval(estimate: Estimate) -> str:
    unit = OverheadUnit.fitting([estimate.overhead])
    return f"{unit.signed(estimate.overhead)} {unit.interval(estimate.low, estimate.high)}"
