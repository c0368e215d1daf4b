"""JSON against a schema: of what type it is, and what a reader need not insist on."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fsstack.judging import saved, shape

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": ["string", "null"]},
        "count": {"type": "integer", "minimum": 1},
        "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        "flag": {"type": "boolean"},
        "better": {"enum": ["lower", "higher"]},
        "inner": {"$ref": "#/$defs/inner"},
        "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/inner"}]},
        "list": {"type": "array", "items": {"type": "number"}},
        "pair": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False},
        "anything": {},
    },
    "$defs": {"inner": {"type": "object", "additionalProperties": {"type": "string"}}},
}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"name": None, "new in a later version": 3},
        {"count": 1, "share": 0.25, "flag": False, "better": "lower"},
        {"inner": {"a": "b"}, "either": None, "list": [1, 2.5], "anything": [{}]},
        {"either": {"a": "b"}, "list": (1, 2)},
    ],
)
def test_what_fits(value: object) -> None:
    assert shape.problem(value, SCHEMA) == ""


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "it is [] where object belongs"),
        ({"name": 3}, "it.name is 3 where string or null belongs"),
        ({"count": True}, "it.count is True where integer belongs"),
        ({"count": 1.5}, "it.count is 1.5 where integer belongs"),
        ({"count": 0}, "it.count is 0, which is out of its range"),
        ({"share": 0.5}, "it.share is 0.5, which is out of its range"),
        ({"share": float("nan")}, "it.share is nan where number belongs"),
        ({"share": "x" * 100}, f"it.share is '{'x' * 39}... where number belongs"),
        ({"better": "more"}, "it.better is 'more' and none of lower, higher"),
        ({"inner": {"a": 1}}, "it.inner.a is 1 where string belongs"),
        ({"either": {"a": 1}}, "it.either.a is 1 where string belongs"),
        ({"list": [1, None]}, "it.list[1] is None where number belongs"),
        ({"pair": [1, 2]}, "it.pair[1] is 2 where string belongs"),
        ({"list": [10**400]}, f"it.list[0] is 1{'0' * 39}... where number belongs"),
    ],
)
def test_what_does_not(value: object, problem: str) -> None:
    assert shape.problem(value, SCHEMA) == problem


def test_it_knows_all_that_the_schema_of_results_uses() -> None:
    known = {"$ref", "anyOf", "enum", "type", "properties", "additionalProperties", "items", "minimum", "maximum"}
    known |= {"exclusiveMinimum", "exclusiveMaximum", "prefixItems"}
    not_insisted_on = {
        "$schema",
        "$id",
        "$defs",
        "title",
        "description",
        "required",
        "pattern",
        "const",
        "default",
        "minItems",
    }

    def words(part: Any) -> set[str]:
        if isinstance(part, list):
            return set().union(*map(words, part)) if part else set()
        if not isinstance(part, dict):
            return set()
        named = [*part.get("properties", {}).values(), *part.get("$defs", {}).values()]
        inner = [value for name, value in part.items() if name not in ("properties", "$defs")]
        return set(part) | set().union(*map(words, named + inner)) if named + inner else set(part)

    assert words(saved.schema()) - known - not_insisted_on == set()
