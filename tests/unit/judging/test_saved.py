"""Results that are saved and read again: nothing is lost, and what is not understood is refused."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fsstack.judging import saved
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.results import ChainResults, Confirmation, Results, StackInfo
from pytest_fsstack.judging.sample import METRICS, Metric, Sample
from pytest_fsstack.judging.saved import FormatError
from pytest_fsstack.judging.verdict import Looks

NAMES = st.text(min_size=1, max_size=8)
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


@st.composite
def chains(draw: st.DrawFn) -> ChainResults:
    stacks = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    chain = ChainResults(
        *(draw(NAMES), draw(NAMES), stacks[0]),
        draw(st.sampled_from([Looks(), Looks.fixed(3, 0.1), Looks((5, 9), 0.01)])),
        draw(st.integers(0, 2**40)),
        steps=draw(st.lists(NAMES, min_size=1, max_size=2, unique=True)),
        remarks=draw(st.lists(st.text(max_size=8), max_size=2)),
        tables=draw(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, JSON, max_size=2)), max_size=2)),
        kernel=draw(st.text(max_size=5)),
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
                chain.notes[step, stack] = draw(st.text(max_size=8))
    if draw(st.booleans()):
        chain.confirmation = Confirmation(draw(st.integers(1, 3)), draw(st.sampled_from([0.01, 0.05])))
    for step in chain.steps:
        for stack in stacks:
            if found := draw(st.lists(budgets("own") | budgets("seconds"), max_size=2)):
                chain.judgements[step, stack] = [chain.judge(step, stack, budget) for budget in found]
    return chain


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(chains(), max_size=2),
    # Of what the schema knows of a machine, the types are checked.
    st.dictionaries(NAMES.map("own {}".format), JSON, max_size=3),
    st.sampled_from(["", "interrupted", "-x"]),
)
def test_what_is_saved_is_what_is_read(
    found: list[ChainResults], environment: dict[str, Any], interrupted: str
) -> None:
    results = Results(environment, found, interrupted=interrupted)
    text = saved.dumps(results)
    again = saved.loads(text)
    assert again == results
    assert saved.dumps(again) == text


def one(rounds: int = 3) -> Results:
    chain = ChainResults("c", "loop", "a", Looks.fixed(rounds), 1, steps=["s"])
    for name in "ab":
        chain.stacks[name] = StackInfo(name, "ext4")
    for index in range(rounds):
        chain.orders.append(["a", "b"])
        chain.add("s", "a", Sample({"seconds": 1 + index / 100}))
        chain.add("s", "b", Sample({"seconds": 1.5 + index / 100}))
    return Results({"load": [math.inf]}, [chain])


def test_it_is_json_that_every_reader_takes() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    content = json.loads(saved.dumps(one()), parse_constant=refuse)
    assert content["environment"] == {"load": [None]}
    assert content["interrupted"] is None
    assert content["chains"][0]["steps"][0]["stacks"]["b"]["metrics"]["seconds"]["overhead"]["high"] is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": saved.FORMAT + 1}, f"a newer pytest-fsstack: their format is {saved.FORMAT + 1}"),
        ({"format": 1}, "an older pytest-fsstack: their format is 1"),
        ({"format": "2"}, "no number under 'format'"),
        ({"format": None}, "no number under 'format'"),
        ({"chains": [{}]}, "damaged: KeyError: 'id'"),
        ({"chains": None}, "damaged: it.chains is None where array belongs"),
        ({"environment": 3}, "damaged: it.environment is 3 where object belongs"),
        ({"environment": {"kernel": "6.1"}}, "damaged: it.environment.kernel is '6.1' where object belongs"),
        ({"session": {"labels": {"a": 1}}}, "damaged: it.session.labels.a is 1 where string belongs"),
        ({"environment": {"memory": 10**400}}, "damaged: it.environment.memory is 10+... where integer belongs"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_reason(change: dict[str, Any], reason: str) -> None:
    content = {**json.loads(saved.dumps(one())), **change}
    with pytest.raises(FormatError, match=reason):
        saved.load(content)


@pytest.mark.parametrize("text", ["", "[]", "null", "{", '"format"'])
def test_what_is_no_result_at_all_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="these are not results of pytest-fsstack"):
        saved.loads(text)


def test_properties_for_junit_name_units_and_budgets() -> None:
    results = one()
    chain = results.chains[0]
    chain.judgements["s", "b"] = [
        chain.judge("s", "b", Budget(overhead=0.3)),
        chain.judge("s", "b", Budget(limit=2.0)),
    ]
    found = dict(saved.flat(saved.facts(chain, "s", "b")))
    assert found["rounds"] == 3
    assert found["seconds_unit"] == "s"
    assert found["seconds_budget"] == 0.3
    assert found["seconds_limit"] == 2.0
    assert found["seconds_estimate"] == pytest.approx(0.49, abs=0.02)
    assert saved.facts(chain, "s", "nowhere") == {}


# -- the schema --------------------------------------------------------------------------------------------------------


def validate(content: Any) -> None:
    import jsonschema

    jsonschema.Draft202012Validator(saved.schema()).validate(content)


def test_the_schema_is_one_and_is_of_this_format() -> None:
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(saved.schema())
    assert saved.schema()["properties"]["format"] == {"const": saved.FORMAT}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(chains(), max_size=2), st.dictionaries(NAMES, st.text(max_size=5), max_size=2))
def test_what_is_written_keeps_to_the_schema(found: list[ChainResults], labels: dict[str, str]) -> None:
    results = Results({}, found, start="2026-01-01T00:00:00+00:00", scale="small", labels=labels)
    validate(json.loads(saved.dumps(results)))


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("session"),
        lambda content: content.update(new_field=1),
        lambda content: content["chains"][0].update(rounds="3"),
        lambda content: content["chains"][0]["steps"][0]["stacks"]["b"]["metrics"]["seconds"].pop("series"),
        lambda content: content["environment"].update(machine_id="not hashed"),
    ],
)
def test_what_keeps_not_to_it_is_found(change: Any) -> None:
    import jsonschema

    content = json.loads(saved.dumps(one()))
    validate(content)
    change(content)
    with pytest.raises(jsonschema.ValidationError):
        validate(content)


def fields(part: Any) -> set[str]:
    """The names of all fields in a part of the schema."""
    if isinstance(part, list):
        return set().union(*map(fields, part)) if part else set()
    if not isinstance(part, dict):
        return set()
    own = set(part.get("properties", {}))
    return own | set().union(*(fields(inner) for inner in part.values()))


def test_every_field_of_the_schema_is_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "results.md").read_text()
    named = set(re.findall(r"`([a-z_]+)`", page))
    assert len(fields(saved.schema())) > 80
    assert fields(saved.schema()) - named == set()


# -- of a run ----------------------------------------------------------------------------------------------------------


def test_a_session_is_saved_with_its_time_scale_and_labels() -> None:
    results = one()
    results.start, results.stop, results.scale = "2026-01-01T10:00:00+00:00", "2026-01-01T11:00:00+00:00", "paper"
    results.labels = {"commit": "c0ffee", "kernel": "6.1"}
    content = json.loads(saved.dumps(results))
    assert content["session"] == {
        "start": "2026-01-01T10:00:00+00:00",
        "stop": "2026-01-01T11:00:00+00:00",
        "scale": "paper",
        "labels": {"commit": "c0ffee", "kernel": "6.1"},
    }
    assert saved.load(content).labels == results.labels


def test_each_metric_and_each_overhead_is_a_series_with_a_name_that_stays_and_samples_in_order() -> None:
    content = json.loads(saved.dumps(one()))
    stacks = content["chains"][0]["steps"][0]["stacks"]
    assert stacks["a"]["metrics"]["seconds"]["series"] == "c::s::a::seconds"
    seconds = stacks["b"]["metrics"]["seconds"]
    assert seconds["series"] == "c::s::b::seconds"
    assert seconds["samples"] == [1.5, 1.51, 1.52]
    assert seconds["overhead"]["series"] == "c::s::b::seconds::overhead"
    assert seconds["overhead"]["reference"] == content["chains"][0]["stacks"]["b"]["reference"] == "a"
    assert "overhead" not in stacks["a"]["metrics"]["seconds"]


def older(content: dict[str, Any]) -> dict[str, Any]:
    """The same as the first public form, format 2, had it."""
    content = {**content, "format": 2}
    del content["session"]
    for chain in content["chains"]:
        chain["stacks"] = {
            name: {"spec": each["spec"], "mounts": each["mounts"]} for name, each in chain["stacks"].items()
        }
        for step in chain["steps"]:
            del step["work"]
            for measured in step["stacks"].values():
                for metric in measured["metrics"].values():
                    del metric["series"]
                    for name in ("series", "reference"):
                        metric.get("overhead", {}).pop(name, None)
    return content


def test_results_of_format_2_are_read_with_what_they_have() -> None:
    results = one()
    results.environment = {"kernels": {"6.1": {}, "6.12": {}}}
    results.chains[0].stacks["b"] = StackInfo("b", "ext4", kernel="")
    again = saved.load(older(json.loads(saved.dumps(results))))
    assert again == results
    assert (again.labels, again.start, again.scale) == ({}, "", "")


def test_the_kernel_of_a_stack_of_format_2_is_that_in_its_id() -> None:
    chain = ChainResults("c", "loop", "a:6.1", Looks.fixed(1), 1, steps=["s"], orders=[["a"]])
    chain.stacks = {f"a:{kernel}": StackInfo(f"a:{kernel}", "ext4", kernel=kernel) for kernel in ("6.1", "6.12")}
    chain.add("s", "a:6.12", Sample({"seconds": 1.0}))
    content = older(json.loads(saved.dumps(Results({"kernels": {"6.1": {}, "6.12": {}}}, [chain]))))
    assert "kernel" not in content["chains"][0]["stacks"]["a:6.12"]
    assert saved.load(content).chains[0].stacks == chain.stacks


def test_what_a_step_was_asked_to_do_is_saved_once() -> None:
    results, work = one(), {"bytes": 10, "cold": True, "workloads": [{"name": "fill", "options": {"share": 0.5}}]}
    results.chains[0].add("s", "a", Sample({"seconds": 1.0}, work=work))
    content = json.loads(saved.dumps(results))
    validate(content)
    assert content["chains"][0]["steps"][0]["work"] == work
    assert saved.load(content).chains[0].work == {"s": work}


@pytest.mark.parametrize("text", ["", "[" * 100_000, "9" * 5000, '{"format": NaN}', "\ud800", "\0"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="these are not results of pytest-fsstack"):
        saved.loads(text)


@pytest.mark.parametrize("given", [{}, {"overhead": 0.1, "limit": 2.0}])
def test_a_budget_that_is_none_is_refused(given: dict[str, float]) -> None:
    content = json.loads(saved.dumps(one()))
    budget = {"metric": "seconds", **given, "verdict": "pass", "text": ""}
    content["chains"][0]["steps"][0]["stacks"]["b"]["budgets"] = [budget]
    with pytest.raises(FormatError, match="a budget for seconds needs an overhead or a limit, and one only"):
        saved.load(content)


@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
def test_what_has_another_value_somewhere_is_refused_or_read(data: st.DataObject) -> None:
    content = json.loads(saved.dumps(one()))
    holder, key = data.draw(st.sampled_from(list(places(content))))
    holder[key] = data.draw(JSON)
    with contextlib.suppress(FormatError):
        saved.dumps(saved.load(content))


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """All that holds something, and where."""
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from places(value)
