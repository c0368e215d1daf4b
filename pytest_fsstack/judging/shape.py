"""Whether JSON has the types that a schema says: what somebody else wrote is looked at before it is used.

Of JSON Schema (2020-12) it knows what `results.schema.json` uses, but for what a reader need not insist on: fields that
are missing, fields that are not known, formats of text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def problem(value: object, schema: Mapping[str, Any]) -> str:
    """The first thing in the value that is of another type than the schema says, and where; empty if none is."""
    return next(_problems(value, schema, schema.get("$defs", {}), "it"), "")


def _problems(value: Any, part: Mapping[str, Any], defined: Mapping[str, Any], where: str) -> Iterator[str]:
    if "$ref" in part:
        part = defined[part["$ref"].rpartition("/")[2]]
    if choices := part.get("anyOf"):
        found = [next(_problems(value, choice, defined, where), "") for choice in choices]
        if all(found):
            yield found[-1]
        return
    if "enum" in part and value not in part["enum"]:
        yield f"{where} is {_shown(value)} and none of {', '.join(map(str, part['enum']))}"
        return
    kinds = part.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        yield f"{where} is {_shown(value)} where {' or '.join(kinds)} belongs"
    elif isinstance(value, dict):
        known, other = part.get("properties", {}), part.get("additionalProperties")
        for name, inner in value.items():
            if name in known:
                yield from _problems(inner, known[name], defined, f"{where}.{name}")
            elif isinstance(other, Mapping):
                yield from _problems(inner, other, defined, f"{where}.{name}")
    elif isinstance(value, (list, tuple)):
        first, others = part.get("prefixItems", []), part.get("items")
        for index, inner in enumerate(value):
            if kind := first[index] if index < len(first) else others:
                yield from _problems(inner, kind, defined, f"{where}[{index}]")
    elif isinstance(value, (int, float)) and not _within(value, part):
        yield f"{where} is {_shown(value)}, which is out of its range"


def _number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # more than there are atoms
        return False


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and _number(value),
    "number": _number,
    "string": lambda value: isinstance(value, str),
    # What has not been through text yet may have tuples.
    "array": lambda value: isinstance(value, (list, tuple)),
    "object": lambda value: isinstance(value, dict),
}


def _within(value: float, part: Mapping[str, float]) -> bool:
    if not part.get("minimum", -math.inf) <= value <= part.get("maximum", math.inf):
        return False
    return part.get("exclusiveMinimum", -math.inf) < value < part.get("exclusiveMaximum", math.inf)


def _shown(value: object) -> str:
    """A value in a message, which is one line."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
