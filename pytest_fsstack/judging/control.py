"""The control: a second copy of the baseline, which must not differ from it (an A/A test)."""

from __future__ import annotations

from pytest_fsstack.judging.describe import note_in_words
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.notices import ControlDiffers, ControlNotCompared, Difference


def doubts(readings: Readings) -> list[ControlDiffers | ControlNotCompared]:
    """Return notices about controls that differ from their baselines, or cannot be compared."""
    return [notice for control in readings.chain.controls if (notice := _doubt(readings, control))]


def _doubt(readings: Readings, control: str) -> ControlDiffers | ControlNotCompared | None:
    chain, baseline = readings.chain, readings.chain.reference(control)
    compared = _compared(readings, control)
    if not compared:
        reasons = (note_in_words(notes[control]) for notes in chain.notes.values() if control in notes)
        return ControlNotCompared(control, baseline, next(reasons, "nothing was measured"))
    differing = [one for one in compared if one.estimate.low > 0 or one.estimate.high < 0]
    return ControlDiffers(control, baseline, len(compared), chain.looks.confidence, differing) if differing else None


def _compared(readings: Readings, control: str) -> list[Difference]:
    """Return the control's overhead in each step, by the metrics of budgets, or else by the time."""
    chain = readings.chain
    return [
        Difference(step, metric, estimate)
        for step in chain.steps
        for metric in chain.compared_metrics(step)
        if (estimate := readings.estimate(step, control, metric))
    ]
