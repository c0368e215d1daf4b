"""Every sample as a line of CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

from pytest_fsstack.results import Results

COLUMNS = ("chain", "device", "step", "stack", "baseline", "metric", "unit", "round", "value")


def report(results: Results) -> str:
    """One line for each chain, step, stack, metric and round; rounds are counted from 1."""
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for chain in results.chains:
        for (step, arm), samples in chain.samples.items():
            for index, sample in sorted(samples.items()):
                for name, value in sample.values.items():
                    unit = sample.metrics[name].unit
                    # repr is the shortest text that reads back as the same number.
                    lines.writerow(
                        [chain.id, chain.device, step, arm, chain.reference(arm), name, unit, index + 1, repr(value)]
                    )
    return text.getvalue()
