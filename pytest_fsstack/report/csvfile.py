"""Every sample as a line of CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import itertools

from pytest_fsstack.judging.results import Results
from pytest_fsstack.report.model import one_line

#: What a formula begins with, also in the full width of East Asian text.
_FORMULA = ("=", "+", "-", "@", "\t", "\uff1d", "\uff0b", "\uff0d", "\uff20")

COLUMNS = ("chain", "device", "step", "stack", "baseline", "metric", "unit", "round", "value")


def report(results: Results) -> str:
    """One line for each chain, step, stack, metric and round; rounds are counted from 1."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for chain in results.chains:
        # By step and stack, so that results that were saved and read give the same file.
        for step, stack in itertools.product(chain.steps, chain.stacks):
            metrics = chain.metrics(step)
            for index, sample in sorted(chain.of(step, stack).items()):
                for name, value in sample.values.items():
                    unit = metrics[name].unit
                    # repr is the shortest text that reads back as the same number.
                    words = map(escaped, (chain.id, chain.device, step, stack, chain.reference(stack), name, unit))
                    lines.writerow([*words, index + 1, repr(value)])
    return text.getvalue()


def escaped(text: str) -> str:
    """Text that no spreadsheet takes for a formula: names of tests and units are whatever somebody wrote."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
