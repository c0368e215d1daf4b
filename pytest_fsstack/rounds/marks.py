"""Validation of marks. Each mistake is reported once for all tests that have it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_fsstack.rounds.chains import measures_by_fixture


class Mistakes:
    """Mistakes in marks, with the affected tests."""

    def __init__(self) -> None:
        self._tests: dict[str, dict[str, None]] = {}

    def add(self, text: str, item: pytest.Item) -> None:
        self._tests.setdefault(text, {})[item.nodeid.partition("[")[0]] = None

    def refuse(self) -> None:
        """Raise `pytest.UsageError` if there are any mistakes."""
        if self._tests:
            raise pytest.UsageError("\n".join(_mistake_in(text, list(tests)) for text, tests in self._tests.items()))


#: Keyword arguments of the marker `fsstack`.
MARKER_ARGUMENTS = ("baseline", "below", "on", "keep")


def check_arguments(mark: pytest.Mark | None) -> None:
    """Raise `ValueError` for unknown arguments of the marker `fsstack`, or arguments that are not text."""
    if mark is None:
        return
    if unknown := sorted(set(mark.kwargs) - set(MARKER_ARGUMENTS)):
        import difflib

        near = difflib.get_close_matches(unknown[0], MARKER_ARGUMENTS, n=1)
        hint = f"did you mean {near[0]}=?" if near else f"it takes stacks, {'=, '.join(MARKER_ARGUMENTS)}="
        raise ValueError(f"the marker fsstack has no argument {unknown[0]!r}; {hint}")
    for text in mark.args:
        if not isinstance(text, str):
            raise ValueError(f"the marker fsstack takes stacks as text, such as fsstack('ext4', 'xfs') (got {text!r})")
    for name, text in mark.kwargs.items():
        if name == "keep":
            if not isinstance(text, tuple) or not all(isinstance(word, str) for word in text):
                raise ValueError(f"the marker fsstack takes keep= as a tuple of names of stacks (got {text!r})")
        elif not isinstance(text, str | None):
            raise ValueError(f"the marker fsstack takes {name}= as text (got {text!r})")


def check(item: pytest.Item, layouts: Callable[[], Mapping[str, Callable[..., Any]]], mistakes: Mistakes) -> None:
    """Check the markers of an item, except `fsstack` and budgets. `layouts` returns the known tables by name."""
    for mark in item.iter_markers("fsstack_remark"):
        if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str):
            mistakes.add("fsstack_remark: it takes one text", item)
    for mark in item.iter_markers("fsstack_repeat"):
        if problem := wrong_repeat(mark, item):
            mistakes.add(f"fsstack_repeat: {problem}", item)
    for mark in item.iter_markers("fsstack_rounds"):
        rounds = mark.args[0] if len(mark.args) == 1 and not mark.kwargs else None
        if type(rounds) is not int or rounds < 1:
            mistakes.add("fsstack_rounds: it takes one number of rounds, from 1", item)
    if repeats_by_hypothesis(item):
        mistakes.add(DRAWS, item)
    for mark in item.iter_markers("fsstack_table"):
        name = mark.args[0] if len(mark.args) == 1 else mark.args
        if name not in [*layouts()]:
            mistakes.add(f"fsstack_table: there is no table {name!r}; there are: {', '.join(sorted(layouts()))}", item)
            continue
        try:
            inspect.signature(layouts()[name]).bind(None, **mark.kwargs)
        except TypeError as error:
            mistakes.add(f"fsstack_table: {name!r} {error}", item)
    for mark in written_marks(item) if isinstance(item.parent, pytest.Class) else ():
        if mark.name in ("fsstack_remark", "fsstack_rounds", "fsstack_table"):
            mistakes.add(f"{mark.name}: all steps of a class share it: mark the class", item)


def written_marks(item: pytest.Item) -> list[pytest.Mark]:
    """Return the marks of the test's own function. Those of its class and of a conftest may be meant for others."""
    return [*getattr(getattr(item, "function", None), "pytestmark", ())]


#: The mistake of a test that measures and has ``@given``.
DRAWS = (
    "@given calls a test with many inputs, but a round measures one: draw the input from the fixture fsstack_seed "
    "instead, or leave out the fixture timed"
)


def repeats_by_hypothesis(item: pytest.Item) -> bool:
    """Whether hypothesis would call a measuring test several times."""
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False) and measures_by_fixture(item)


def wrong_repeat(mark: pytest.Mark, item: pytest.Item) -> str:
    """Return the mistake in a mark `fsstack_repeat`, or an empty text."""
    repeat = mark.args[0] if len(mark.args) == 1 and not mark.kwargs else None
    if repeat != "auto" and (not isinstance(repeat, int) or isinstance(repeat, bool) or not 1 <= repeat <= 100):
        arguments = ", ".join([*map(repr, mark.args), *(f"{name}={value!r}" for name, value in mark.kwargs.items())])
        return f"it takes a number from 1 to 100, or 'auto' (got {arguments or 'nothing'})"
    if repeat == 1:
        return ""
    if not isinstance(item.parent, pytest.Class):
        return (
            "a test outside of a class builds its stack for each run, so repeating it is what rounds do; put it into a "
            "class, behind the step that writes what it reads"
        )
    if mark in item.own_markers and "timed" not in getattr(item, "fixturenames", ()):
        return "it is for tests that measure with the fixture timed"
    return ""


def _mistake_in(mistake: str, tests: list[str]) -> str:
    more = f" (and {len(tests) - 1} more)" if len(tests) > 1 else ""
    return f"{tests[0]}{more}: {mistake}"
