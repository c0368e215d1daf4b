"""One HTML page that needs nothing else: the answer, what needs attention, costs, rounds, tables, environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from itertools import product
from typing import Any

from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import ChainResults, Results, RoundKey
from pytest_fsstack.report import draw, figures
from pytest_fsstack.report.answer import Sentence, answer, notes_on_answer, prefix, problems
from pytest_fsstack.report.layouts import grids
from pytest_fsstack.report.model import Figure, View, by_chance, described, heading, reference, title_of
from pytest_fsstack.report.wording import LEGEND, RATIOS
from pytest_fsstack.units import counted, format_size, visible

#: Characters of what tools printed that a page holds, as HTML: megabytes would make it slow, and the JSON has them.
_ROOM = 1 << 19
#: What of the environment is a number of bytes.
_IN_BYTES = ("memory", "size", "read_ahead", "bytes")
#: Facts that stand above the answer; the others are below.
_SHORT = ("date", "machine", "kernel", "device")


def report(results: Results) -> str:
    """Return the page: the answer first, then for each chain its costs, cards of its steps, tables and notes."""
    results = settle(results)
    chains = results.chains
    judgements = [each for chain in chains for _, _, of_place in chain.all_judgements() for each in of_place]
    # What else a reader must know, such as what disturbed the rounds.
    notes = [
        ("note", f"{prefix(chain, results)}{remark}") for chain in chains for remark in View(chain, results).remarks
    ]
    sentences = answer(results) or [Sentence("Nothing was compared")]
    return render(
        "page.html.jinja",
        title=sentences[0].headline,
        answer=sentences,
        notes=notes_on_answer(results),
        problems=list(dict.fromkeys([*((problem.kind, str(problem)) for problem in problems(results)), *notes])),
        facts=_short_facts(results),
        families=list(_families(results)),
        comparison=results.comparison,
        stacks=[(name, draw.colour_class(number)) for name, number in _drawn(results).items()],
        environment=dict(_environment(results)),
        legend=LEGEND if any(not judgement.budget.sanity for judgement in judgements) else "",
    )


def render(template: str, **values: object) -> str:
    """Return a page with the colours and styles of pictures, from a template of this package."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_fsstack.report", "."),
        autoescape=True,
        finalize=_visible,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"svg": Markup, "described": described, "verdicts": _verdicts}
    colours = {"style": draw.STYLE, "light": draw.colours(draw.LIGHT), "dark": draw.colours(draw.DARK)}
    marked = {name: Markup(text) for name, text in colours.items()}
    return environment.get_template(template).render(**values, **marked)


def _visible(value: Any) -> Any:
    """Return the value with all its text visible; text that is HTML already is the page's own."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _drawn(results: Results) -> dict[str, int]:
    """Return the stacks of the pictures with the numbers of their colours."""
    drawn = {info.name for chain in results.chains if not chain.only_counts for info in chain.stacks.values()}
    return {name: number for name, number in figures.stack_colours(results).items() if name in drawn}


def _short_facts(results: Results) -> list[str]:
    """Return what was measured where, in a line."""
    if not results.chains:
        return []
    first = results.chains[0]
    facts = heading(results, first)
    if date := facts.get("date"):
        facts["date"] = f"{date[:10]} {date[11:16]} UTC"
    rounds = counted(first.rounds, "round") if len(results.chains) == 1 else ""
    return list(filter(None, [title_of(first).rpartition("/")[2], rounds, *(facts.get(name, "") for name in _SHORT)]))


def _families(results: Results) -> Iterator[dict[str, Any]]:
    """Yield each test: what it costs over all steps and in each, the cards of its steps, and a section a device."""
    room = _ROOM
    for family in figures.families(results.chains):
        sections = []
        for chain in family:
            sections.append(_section(results, chain, room=room))
            room -= sum(_size(text) for _, text in sections[-1]["said"])
        yield {
            "title": title_of(family[0]).rpartition("/")[2],
            "chains": sections,
            "cards": list(figures.cards(results, family)),
        }


def _section(results: Results, chain: ChainResults, *, room: int) -> dict[str, Any]:
    view = View(chain, results)
    outputs, left_out = _kept_texts(chain, room)
    tables = [
        *grids(view, results.table_layouts),
        *(view.grid(metric) for metric in view.metrics() if metric != "seconds"),
    ]
    costs = _costs(view, figures.stack_colours(results))
    return {
        "title": chain.device,
        "heading": heading(results, chain),
        "reference": reference(chain),
        "overview": "" if chain.only_counts else figures.overview(results, chain),
        "costs": costs,
        "stacks": list(chain.stacks.values()),
        "grids": tables if costs or tables else [view.grid("seconds")],
        "details": view.tables(details=True),
        "said": outputs,
        "left_out": left_out,
    }


# -- what each stack costs in each step --------------------------------------------------------------------------------


def _costs(view: View, colours: Mapping[str, int]) -> dict[str, Any]:
    """Return the table of costs; empty if the chain only counts, or nothing was timed."""
    chain, steps = view.chain, view.steps("seconds")
    if chain.only_counts or not any("seconds" in chain.metrics(step) for step in steps):
        return {}
    rows = [(info, [view.figure(step, stack) for step in steps]) for stack, info in chain.stacks.items()]
    return {
        "steps": [(step, f"{chain.summaries[step]}." if step in chain.summaries else "") for step in steps],
        "heat": figures.Heat.of(figure for _, row in rows for figure in row),
        "by_chance": by_chance(chain),
        "unit": RATIOS,
        "rows": [(info, draw.colour_class(colours[info.name]), row) for info, row in rows],
    }


def _verdicts(figure: Figure) -> list[tuple[str, str]]:
    """Return the colours and texts of the verdicts of the user, and of sanity limits that are not kept."""
    return [
        (verdict.tone, verdict.long(figure.reading.metric, RATIOS))
        for verdict in figure.verdicts
        if figure.reading and (not verdict.judgement.budget.sanity or verdict.judgement.outcome == "fail")
    ]


# -- below -------------------------------------------------------------------------------------------------------------


def _kept_texts(chain: ChainResults, room: int) -> tuple[list[tuple[str, str]], int]:
    """Return titles and outputs of tools, up to a size by the order of rounds, and the number of omitted ones."""
    outputs = [
        (place, key, f"{step} on {stack}, {_round_of(chain, key)}: {name}", value)
        for place, (step, stack) in enumerate(product(chain.steps, chain.stacks))
        for key, sample in chain.of(step, stack).items()
        for name, value in sample.kept.items()
        if not figures.is_drawn(name, value)
    ]
    selected = []
    for place, index, title, value in sorted(outputs, key=lambda output: (output[1], output[0], output[2])):
        text = value if isinstance(value, str) else json.dumps(value, indent=1)
        room -= _size(text)
        if room < 0:
            break
        selected.append((place, index, title, text))
    return [(title, text) for _, _, title, text in sorted(selected)], len(outputs) - len(selected)


def _round_of(chain: ChainResults, key: RoundKey) -> str:
    boot = f"boot {key.boot + 1}, " if chain.boots > 1 else ""
    return f"{boot}round {key.number + 1}"


def _size(text: str) -> int:
    """Return the number of characters that a text takes on the page."""
    return len(escape(text))


def _environment(results: Results) -> Iterator[tuple[str, str]]:
    """All that is known of the session and of the machine, by name."""
    session = {"began": results.start, "ended": results.stop, "scale": results.scale, "label": results.labels}
    for name, value in {**session, **results.environment}.items():
        yield from _flat(name, value)


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Flatten nested facts, with whole names such as ``kernel release``."""
    if isinstance(value, Mapping):
        for inner, inner_value in value.items():
            yield from _flat(f"{name} {inner}", inner_value)
    elif isinstance(value, list) and any(isinstance(inner_value, Mapping) for inner_value in value):
        for number, inner_value in enumerate(value, 1):
            yield from _flat(f"{name} {number}", inner_value)
    elif isinstance(value, bool):
        yield name, "yes" if value else "no"
    elif isinstance(value, int) and name.rpartition(" ")[2] in _IN_BYTES:
        yield name, format_size(value)
    elif value not in ("", None):
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)
