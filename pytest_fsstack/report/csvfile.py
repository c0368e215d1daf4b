"""The report of all samples as CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import itertools

from pytest_fsstack.judging.results import Results
from pytest_fsstack.report.model import one_line

#: Characters that begin a formula in a spreadsheet, and their full-width forms.
_FORMULA = ("=", "+", "-", "@", "\t", "\uff1d", "\uff0b", "\uff0d", "\uff20")

COLUMNS = ("chain", "device", "step", "stack", "baseline", "metric", "unit", "round", "value")


def report(results: Results) -> str:
    """Return a line for each chain, step, stack, metric and round. Rounds count from 1."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for chain in results.chains:
        # In a fixed order, so that saved results give the same file.
        for step, stack in itertools.product(chain.steps, chain.stacks):
            metrics = chain.metrics(step)
            for index, sample in sorted(chain.of(step, stack).items()):
                for name, value in sample.values.items():
                    unit = metrics[name].unit
                    # repr is the shortest text that parses to the same number.
                    words = map(escaped, (chain.id, chain.device, step, stack, chain.reference(stack), name, unit))
                    lines.writerow([*words, index + 1, repr(value)])
    return text.getvalue()


def escaped(text: str) -> str:
    """Return text that no spreadsheet takes for a formula. Users choose the names of tests and units."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
