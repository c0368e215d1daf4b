"""Results that are saved and read again: nothing is lost, and what is not understood is refused."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from pytest_fsstack.judging import programs
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.judging.readings import Readings, dumps
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.notices import (
    ControlDiffers,
    ControlNotCompared,
    Difference,
    GaveUp,
    Noise,
    OddTimes,
    OverheadChanged,
    ReferenceMoved,
    RunsCorrelated,
    Unrest,
)
from pytest_fsstack.records.results import FORMAT, ChainResults, Confirmation, Note, Results, StackInfo
from pytest_fsstack.records.sample import METRICS, Metric, Sample
from pytest_fsstack.records.saved import FormatError
from pytest_fsstack.records.verdicts import Estimate, Looks
from tests.chains import a_chain

NAMES = st.text(min_size=1, max_size=8)
NOTES = st.builds(Note, st.sampled_from(["failed", "cannot run"]), NAMES, NAMES, st.integers(0, 9))
FIGURES = st.floats(allow_nan=False, allow_infinity=False, width=64)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | FIGURES | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def budgets(draw: st.DrawFn, metric: str) -> Budget:
    if draw(st.booleans()):
        return Budget(metric, overhead=draw(st.floats(-0.9, 10)))
    return Budget(metric, limit=draw(st.floats(1e-3, 1e6)))


ESTIMATE = Estimate(0.3, 0.2, math.inf, 0.9, 8)
NOTICES = [
    GaveUp(["load>2"]),
    ControlDiffers("control", "base", 1, 0.9, [Difference("s", "seconds", ESTIMATE)]),
    ControlNotCompared("control", "base", "nothing was measured"),
    OverheadChanged({"s": ["a"]}),
    OddTimes({"s": ["a", "b"]}),
    Unrest(1, 0.1, frequencies=(1000.0, 2000.0)),
    Noise(0.1, 8, 0.2),
    ReferenceMoved("s", "base", "s", 1.0, 2.0, ESTIMATE),
    RunsCorrelated("s on a", 0.5),
]


@st.composite
def chains(draw: st.DrawFn) -> ChainResults:
    stacks = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    chain = ChainResults(
        draw(NAMES),
        draw(st.lists(NAMES, min_size=1, max_size=2, unique=True)),
        stacks[0],
        draw(st.sampled_from([Looks(), Looks.fixed(3, 0.1), Looks((5, 9), 0.01)])),
        draw(st.integers(0, 2**40)),
        steps=draw(st.lists(NAMES, min_size=1, max_size=2, unique=True)),
        remarks=draw(st.lists(st.text(max_size=8), max_size=2)),
        notices=draw(st.lists(st.sampled_from(NOTICES), max_size=2)),
        tables=draw(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, JSON, max_size=2)), max_size=2)),
        boots=draw(st.integers(1, 2)),
        paired=draw(st.booleans()),
        against=draw(st.dictionaries(st.sampled_from(stacks), st.sampled_from(stacks), max_size=2)),
    )
    for stack in stacks:
        chain.stacks[stack] = StackInfo(
            stack,
            draw(st.text(max_size=8)),
            draw(st.lists(st.text(max_size=8), max_size=2)),
            tools=draw(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2)),
            commands=draw(st.lists(st.text(max_size=8), max_size=2)),
        )
    own = Metric("own", draw(st.text(max_size=3)), draw(st.sampled_from(["lower", "higher"])), draw(st.floats(0, 1)))
    for _ in range(draw(st.integers(0, 4))):
        chain.orders.append(draw(st.permutations(stacks)))
        for step in chain.steps:
            for stack in stacks:
                if draw(st.booleans()):
                    names = draw(st.sets(st.sampled_from(["seconds", "written_bytes", "own"]), min_size=1))
                    values = {name: draw(st.floats(0, 1e12)) for name in names}
                    metrics = {**METRICS, "own": own} if "own" in values else METRICS
                    kept = draw(st.dictionaries(NAMES, JSON, max_size=2))
                    chain.add(step, stack, Sample(values, metrics, kept, draw(st.just("") | st.text(max_size=5))))
        seen = draw(st.dictionaries(st.sampled_from(["load", "steal"]), st.floats(0, 9)))
        if draw(st.booleans()):
            chain.discard("load>2", seen)
        else:
            chain.conditions.append(seen)
    for step in chain.steps:
        chain.groups[step] = draw(NAMES)
        for stack in stacks:
            if draw(st.booleans()):
                chain.notes.setdefault(step, {})[stack] = draw(NOTES)
    if draw(st.booleans()):
        chain.confirmation = Confirmation(draw(st.integers(1, 3)), draw(st.sampled_from([0.01, 0.05])))
    for step in chain.steps:
        for stack in stacks:
            if found := draw(st.lists(budgets("own") | budgets("seconds"), max_size=2)):
                judge_all(chain, step, stack, *found)
    return chain


def without_derived(results: Results) -> Results:
    """The same as it was before it was saved."""
    return replace(results, chains=[replace(chain, derived={}) for chain in results.chains])


SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(
    st.lists(chains(), max_size=2),
    # Of what is known of a machine, the types are checked.
    st.dictionaries(NAMES.map("own {}".format), JSON, max_size=3),
    st.sampled_from(["", "interrupted", "-x"]),
)
def test_what_is_saved_is_what_is_read(
    found: list[ChainResults], environment: dict[str, Any], interrupted: str
) -> None:
    results = Results(environment, found, interrupted=interrupted)
    text = saved.dumps(results)
    again = saved.loads(text)
    assert without_derived(again) == results
    assert saved.dumps(again) == text
    # Hundreds of such files are pooled, so indentation would cost time.
    assert text.count("\n") == 1
    assert saved.loads(saved.line(results)) == again


# -- the log -----------------------------------------------------------------------------------------------------------


def logged(results: Results) -> list[bytes]:
    """The lines of the log of a session that ran the chains one after the other, and its end."""
    lines: list[bytes] = []
    for chain in results.chains:
        rounds = replace(chain, samples={}, orders=[], conditions=[], discarded=[])
        orders, discarded, conditions = iter(chain.orders), iter(chain.discarded), iter(chain.conditions)
        waiting = list(discarded)
        while True:
            if waiting and waiting[0].replaced_by == rounds.rounds:
                rounds.discarded.append(waiting.pop(0))
            elif (order := next(orders, None)) is not None:
                number = rounds.rounds
                rounds.orders.append(order)
                rounds.conditions += [*itertools.islice(conditions, 1)]
                for step, stack, samples in chain.all_samples():
                    for key in samples:
                        if key.number == number:
                            of_stack = rounds.samples.setdefault(step, {}).setdefault(stack, {})
                            of_stack.setdefault(key.boot, {})[number] = samples[key]
            else:
                break
            lines.append(saved.log_line(results, len(lines) + 1, [rounds]))
    return [*lines, saved.log_line(results, len(lines) + 1)]


@SLOW
@given(st.lists(chains(), max_size=2, unique_by=lambda chain: chain.id), st.data())
def test_a_log_is_read_up_to_its_last_whole_line_wherever_it_ends(
    found: list[ChainResults], data: st.DataObject
) -> None:
    results = Results({"kernel": {"release": "6.1"}}, found, start="then", stop="now", scale="smoke")
    lines = logged(results)
    assert saved.loads(b"".join(lines)) == results
    cut = data.draw(st.integers(0, sum(map(len, lines))))
    whole = sum(1 for number in range(1, len(lines) + 1) if len(b"".join(lines[:number])) <= cut + 1)
    content = b"".join(lines)[:cut]
    if not whole:
        with pytest.raises(FormatError):
            saved.loads(content)
        return
    again = saved.loads(content)
    assert sum(chain.rounds + len(chain.discarded) for chain in again.chains) == min(whole, len(lines) - 1)
    assert bool(again.interrupted) == (whole < len(lines))
    for chain in again.chains:
        (before,) = (other for other in found if other.id == chain.id)
        assert chain.orders == before.orders[: chain.rounds]
        for step, stack, samples in chain.all_samples():
            assert samples == {k: s for k, s in before.of(step, stack).items() if k.number < chain.rounds}


def test_a_log_that_lost_a_line_is_damaged() -> None:
    chain = one().chains[0]
    first, second, *_ = lines = logged(Results({}, [chain], stop="now"))
    for damaged in [first, *lines[2:]], [first, b"{]\n", *lines[2:]], [first, second[:-9] + b"\n", *lines[2:]]:
        with pytest.raises(FormatError, match="damaged"):
            saved.loads(b"".join(damaged))


def one(*budgets: Budget) -> Results:
    """Return a judged session of three rounds."""
    costs = {"a": lambda number: 1 + number / 100, "b": lambda number: 1.5 + number / 100}
    chain = a_chain({"s": costs}, 3).with_budget("s", "b", *(budgets or [Budget(overhead=0.3)]))
    return chain.results({"load": [math.inf]})


def test_it_is_json_that_every_reader_takes() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    content = json.loads(dumps(one()), parse_constant=refuse)
    assert content["environment"] == {"load": [None]}
    assert content["chains"][0]["derived"]["s"]["b"]["readings"]["seconds"]["estimate"]["high"] is None


def test_a_name_that_is_no_utf_8_is_escaped() -> None:
    results = one()
    results.labels = {"name\udce9": "caf\udce9"}
    assert saved.loads(saved.dumps(results)).labels == {"name\\udce9": "caf\\udce9"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": FORMAT + 1}, f" {FORMAT + 1}, "),
        ({"format": 3}, " 3, "),
        ({"format": "2"}, "Expected `int`, got `str` - at `$.format`"),
        ({"format": None}, "Expected `int`, got `null` - at `$.format`"),
        ({"chains": [{}]}, "damaged: Object missing required field `id` - at `$.chains[0]`"),
        ({"chains": None}, "damaged: Expected `array`, got `null` - at `$.chains`"),
        ({"environment": 3}, "damaged: Expected `object`, got `int` - at `$.environment`"),
        ({"environment": {"kernel": "6.1"}}, "damaged: Expected `object`, got `str` - at `$.kernel`"),
        ({"labels": {"a": 1}}, "damaged: Expected `str`, got `int` - at `$.labels[...]`"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_reason(change: dict[str, Any], reason: str) -> None:
    content = {**json.loads(dumps(one())), **change}
    with pytest.raises(FormatError, match=re.escape(reason)):
        saved.loads(json.dumps(content))


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("looks", "rounds"), [3, 2], r"\blooks .*\(3, 2\)"),
        (("samples", "s", "a", "0", "0", "values", "seconds"), -1.0, "Expected `float` >= 0"),
        (("samples", "s", "a", "0", "0", "values", "other"), 1.0, r"\bs on a .*\bmetric: other\b"),
        (("samples", "s", "a", "0", str(10**400)), {"values": {}}, "Expected `int`"),
        (("samples", "s", "x"), {}, r"\bstack x\b"),
        (("judgements", "x"), {"a": []}, r"\bstep x\b"),
        (("judgements", "s", "b"), [{"budget": {}, "verdict": None, "text": ""}], r"\boverhead .*\blimit\b"),
    ],
)
def test_what_contradicts_itself_is_refused(path: tuple[str, ...], value: Any, reason: str) -> None:
    content = json.loads(dumps(one()))
    part = content["chains"][0]
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(FormatError, match=f"damaged: .*{reason}"):
        saved.loads(json.dumps(content))


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '"format"', "[" * 100_000, "9" * 5000, "\ud800", "\0"])
def test_what_is_no_result_at_all_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="pytest-fsstack"):
        saved.loads(text)


@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_what_has_another_value_somewhere_is_refused_or_read(data: st.DataObject) -> None:
    content = json.loads(dumps(one()))
    holder, key = data.draw(st.sampled_from(list(places(content))))
    holder[key] = data.draw(JSON)
    with contextlib.suppress(FormatError):
        saved.dumps(saved.loads(json.dumps(content)))


@given(st.integers(0, 3000), st.binary(max_size=3))
@settings(deadline=None)
def test_a_file_that_is_broken_somewhere_is_refused_or_read(place: int, other: bytes) -> None:
    text = saved.line(one()).encode()
    with contextlib.suppress(FormatError):
        saved.loads(text[:place] + other + text[place + 1 :])
    with contextlib.suppress(FormatError):
        saved.loads(text[:place])


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """All that holds something, and where."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from places(value)


def test_properties_for_junit_name_units_and_budgets() -> None:
    chain = one(Budget(overhead=0.3), Budget(limit=2.0)).chains[0]
    found = dict(programs.properties(Readings(chain), "s", "b"))
    assert found["rounds"] == 3
    assert found["seconds_unit"] == "s"
    assert found["seconds_budget"] == 0.3
    assert found["seconds_limit"] == 2.0
    assert found["seconds_estimate"] == pytest.approx(0.49, abs=0.02)
    assert programs.properties(Readings(chain), "s", "nowhere") == []
    assert programs.facts(Readings(chain), "s", "nowhere") == {}


# -- the schema --------------------------------------------------------------------------------------------------------


def validate(content: Any) -> None:
    import jsonschema

    jsonschema.Draft202012Validator(saved.schema()).validate(content)


def test_the_schema_is_one_and_is_of_this_format() -> None:
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(saved.schema())
    assert saved.schema()["properties"]["format"] == {"enum": [FORMAT]}


@SLOW
@given(st.lists(chains(), max_size=2), st.dictionaries(NAMES, st.text(max_size=5), max_size=2))
def test_what_is_written_keeps_to_the_schema(found: list[ChainResults], labels: dict[str, str]) -> None:
    results = Results({}, found, start="2026-01-01T00:00:00+00:00", scale="small", labels=labels)
    validate(json.loads(saved.dumps(results)))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("labels"),
        lambda content: content["chains"][0].update(seed="3"),
        lambda content: content["chains"][0]["derived"]["s"]["b"]["readings"]["seconds"].pop("series"),
    ],
)
def test_what_keeps_not_to_it_is_found(change: Any) -> None:
    import jsonschema

    content = json.loads(dumps(one()))
    validate(content)
    change(content)
    with pytest.raises(jsonschema.ValidationError):
        validate(content)


# -- of a run ----------------------------------------------------------------------------------------------------------


def test_each_metric_and_each_overhead_is_a_series_with_a_name_that_stays() -> None:
    chain = json.loads(dumps(one()))["chains"][0]
    summary = chain["derived"]["s"]
    assert summary["a"]["readings"]["seconds"]["series"] == "t.py::T::s::a::seconds"
    seconds = summary["b"]["readings"]["seconds"]
    assert (seconds["series"], seconds["median"]) == ("t.py::T::s::b::seconds", 1.51)
    by_round = chain["samples"]["s"]["b"]["0"]
    assert [by_round[str(number)]["values"]["seconds"] for number in range(3)] == [1.5, 1.51, 1.52]
    assert (seconds["overhead_series"], seconds["reference"]) == ("t.py::T::s::b::seconds::overhead", "a")
    assert summary["a"]["readings"]["seconds"]["estimate"] is None


def test_what_a_step_was_asked_to_do_is_saved_once() -> None:
    results, work = one(), {"bytes": 10, "cold": True, "workloads": [{"name": "fill", "options": {"share": 0.5}}]}
    results.chains[0].add("s", "a", Sample({"seconds": 1.0}, work=work))
    content = json.loads(saved.dumps(results))
    assert content["chains"][0]["work"] == {"s": work}
    assert "work" not in content["chains"][0]["samples"]["s"]["a"]["0"]["2"]
