"""One HTML page that needs nothing else: the verdict, pictures, tables, what the tools said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_fsstack.judging.results import ChainResults, Results, describe_failure
from pytest_fsstack.report import vega
from pytest_fsstack.report.charts import charts, is_curve
from pytest_fsstack.report.model import DETAILS, LEGEND, View, heading
from pytest_fsstack.report.shapes import grids


@dataclass(frozen=True)
class Said:
    """What a tool printed in one round."""

    title: str
    text: str


def report(results: Results) -> str:
    """The page: the verdict first, then for each chain what its figures depend on, pictures, tables and notes."""
    import jinja2

    template = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_fsstack.report", "."),
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    ).get_template("page.html.jinja")
    return template.render(
        verdict=verdict(results),
        failures=list(_failures(results)),
        chains=[_section(results, chain) for chain in results.chains],
        legend=LEGEND,
        script=vega.script(),
        missing=vega.MISSING,
    )


def verdict(results: Results) -> str:
    """How many budgets there are, and how many of them are broken or undecided, in a sentence."""
    outcomes = [each.outcome for chain in results.chains for found in chain.judgements.values() for each in found]
    if not outcomes:
        return "Figures without budgets"
    broken, undecided = outcomes.count("fail"), outcomes.count("inconclusive")
    budgets = f"{len(outcomes)} budget{'' if len(outcomes) == 1 else 's'}"
    if not broken and not undecided:
        return f"{budgets}, and all are kept"
    parts = [f"{broken} broken" if broken else "", f"{undecided} not decided" if undecided else ""]
    return f"{budgets}: {', '.join(filter(None, parts))}"


def _failures(results: Results) -> Iterator[str]:
    for chain in results.chains:
        for step, stack in chain.judgements:
            if chain.worst(step, stack) == "fail":
                yield f"{step} on {describe_failure(chain, step, stack).splitlines()[0]}"


def _section(results: Results, chain: ChainResults) -> dict[str, Any]:
    view = View(chain)
    return {
        "title": f"{chain.id} on {chain.device}",
        "heading": heading(results, chain),
        "stacks": {stack.id: stack.described for stack in chain.stacks.values()},
        "charts": [] if vega.missing() else list(charts(chain)),
        "grids": [*grids(view, results.shapes), *(view.grid(metric) for metric in view.metrics())],
        "details": [view.grid(metric) for metric in view.metrics(DETAILS)],
        "said": list(_kept_texts(chain)),
        "notes": view.notes,
        "remarks": view.remarks,
    }


def _kept_texts(chain: ChainResults) -> Iterator[Said]:
    for step in chain.steps:
        for stack in chain.stacks:
            for index, sample in sorted(chain.of(step, stack).items()):
                for name, value in sample.kept.items():
                    if not is_curve(value):
                        text = value if isinstance(value, str) else json.dumps(value, indent=1)
                        yield Said(f"{step} on {stack}, round {index + 1}: {name}", text)
