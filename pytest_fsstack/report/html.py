"""One HTML page that needs nothing else: the verdict, pictures, tables, what the tools said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from pytest_fsstack.judging.results import ChainResults, Results, describe_shortly
from pytest_fsstack.report import vega
from pytest_fsstack.report.charts import charts, comparisons, families, is_curve
from pytest_fsstack.report.model import DETAILS, LEGEND, View, failures_beside, heading, visible
from pytest_fsstack.report.shapes import grids
from pytest_fsstack.units import format_size

#: Characters of what tools printed that a page holds, as HTML: megabytes would make it slow, and the JSON has them.
_ROOM = 1 << 19
#: What of the environment is a number of bytes.
_IN_BYTES = ("memory", "size", "read_ahead", "bytes")


@dataclass(frozen=True, order=True)
class Said:
    """What a tool printed in one round."""

    title: str
    text: str

    @property
    def size(self) -> int:
        """Characters that it takes on the page."""
        return len(escape(self.text))


def report(results: Results) -> str:
    """The page: the verdict first, then for each chain what its figures depend on, pictures, tables and notes."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_fsstack.report", "."),
        autoescape=True,
        finalize=_visible,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.policies["json.dumps_function"] = lambda value, **how: json.dumps(_visible(value), **how)
    return environment.get_template("page.html.jinja").render(
        verdict=verdict(results),
        failures=[*_failures(results), *failures_beside(results)],
        families=list(_families(results)),
        environment=dict(_environment(results)),
        legend=LEGEND,
        script=vega.script(),
        missing=vega.MISSING,
    )


def _visible(value: Any) -> Any:
    """Return the value with all its text visible; text that is HTML already is the page's own."""
    if isinstance(value, dict):
        return {_visible(key): _visible(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_visible(inner) for inner in value]
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def verdict(results: Results) -> str:
    """How many budgets there are, and how many of them are broken or undecided, in a sentence; and what else failed."""
    others = len(failures_beside(results))
    return _of_budgets(results) + (f"; {others} other failure{'' if others == 1 else 's'}" if others else "")


def _of_budgets(results: Results) -> str:
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
    several = len({chain.device for chain in results.chains}) > 1
    for chain in results.chains:
        for step, stack in chain.judgements:
            if chain.worst(step, stack) == "fail":
                where = f"{stack}, on {chain.device}" if several else stack
                yield f"{step} on {where}: {describe_shortly(chain, step, stack).removeprefix('fail: ')}"


def _families(results: Results) -> Iterator[dict[str, Any]]:
    """Each test; if it ran on several devices, with the pictures that have a facet for each of them."""
    room = _ROOM
    for family in families(results.chains):
        several = len(family) > 1
        sections = []
        for chain in family:
            sections.append(_section(results, chain, compared=not several, room=room))
            room -= sum(said.size for said in sections[-1]["said"])
        devices = ", ".join(chain.device for chain in family)
        yield {
            "title": f"{family[0].id} on {devices}" if several else "",
            "charts": list(comparisons(family)) if several and not vega.missing() else [],
            "chains": sections,
        }


def _section(results: Results, chain: ChainResults, *, compared: bool, room: int) -> dict[str, Any]:
    view = View(chain)
    said, left_out = _kept_texts(chain, room)
    return {
        "title": f"{chain.id} on {chain.device}",
        "heading": heading(results, chain),
        "stacks": list(chain.stacks.values()),
        "charts": [] if vega.missing() else list(charts(chain, compared=compared)),
        "grids": [*grids(view, results.shapes), *(view.grid(metric) for metric in view.metrics())],
        "details": [view.grid(metric) for metric in view.metrics(DETAILS)],
        "said": said,
        "left_out": left_out,
        "notes": view.notes,
        "remarks": view.remarks,
    }


def _kept_texts(chain: ChainResults, room: int) -> tuple[list[Said], int]:
    """What tools printed, the first rounds first, in so many characters; and how many texts there is no room for."""
    found = sorted(
        (index, place, said)
        for place, (step, stack) in enumerate((step, stack) for step in chain.steps for stack in chain.stacks)
        for index, sample in chain.of(step, stack).items()
        for said in _texts(f"{step} on {stack}, round {index + 1}", sample.kept)
    )
    chosen = []
    for index, place, said in found:
        room -= said.size
        if room < 0:
            break
        chosen.append((place, index, said))
    return [said for _, _, said in sorted(chosen)], len(found) - len(chosen)


def _texts(where: str, kept: Mapping[str, Any]) -> Iterator[Said]:
    for name, value in kept.items():
        if not is_curve(value):
            yield Said(f"{where}: {name}", value if isinstance(value, str) else json.dumps(value, indent=1))


def _environment(results: Results) -> Iterator[tuple[str, str]]:
    """All that is known of the session and of the machine, by name."""
    session = {"began": results.start, "ended": results.stop, "scale": results.scale, "label": results.labels}
    for name, value in {**session, **results.environment}.items():
        yield from _flat(name, value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """What is nested by its whole name, as ``kernel release``."""
    if isinstance(value, Mapping):
        for inner, each in value.items():
            yield from _flat(f"{name} {inner}", each)
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value, 1):
            yield from _flat(f"{name} {number}", each)
    elif isinstance(value, bool):
        yield name, "yes" if value else "no"
    elif isinstance(value, int) and name.rpartition(" ")[2] in _IN_BYTES:
        yield name, format_size(value)
    elif value not in ("", None):
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
