"""The verdict of a scenario on a stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack.records.findings import Fault, Finding
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.truth.correctness.findings import KEPT, Explained, KnownFault, explain, known_in
from pytest_fsstack.units import counted

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


def damage_of(fsstack: Built) -> str:
    """Remount a stack whose calls have ended a server. Return why it was not usable, or ""."""
    try:
        return "the stack was not usable any more, and was remounted" if fsstack.complete() else ""
    except BuildError as error:
        return str(error)


@dataclass
class _Rounds:
    """The findings of all rounds of a test, and the mark that expects them."""

    findings: list[Finding] = field(default_factory=list)
    mark: pytest.Mark | None = None


_ROUNDS: pytest.StashKey[_Rounds] = pytest.StashKey()


def known_faults(item: pytest.Item, fsstack: Built) -> list[KnownFault]:
    """Return the faults of the stack's layers that a test of a scenario may show."""
    faults: dict[str, list[Fault]] = {}
    for by_layer in item.config.hook.pytest_fsstack_faults():
        for layer, of_layer in by_layer.items() if isinstance(by_layer, Mapping) else [("", [by_layer])]:
            if wrong := next((fault for fault in of_layer if not isinstance(fault, Fault)), None):
                pytest.fail(f"pytest_fsstack_faults must return lists of Fault by layer (got {wrong!r})", pytrace=False)
            faults.setdefault(layer, []).extend(of_layer)
    test = item.name.partition("[")[0]
    return known_in(fsstack.stack, faults, item.path.stem.removeprefix("test_"), test)


def expecting(item: pytest.Item, fsstack: Built) -> Callable[[str], bool]:
    """Return a function that tells whether findings of a kind are expected, because a known fault explains them."""
    known = known_faults(item, fsstack)
    return lambda kind: any(fault.fault.explains(kind) for fault in known)


def conclude(
    item: pytest.Item,
    timed: Timed,
    fsstack: Built,
    findings: Sequence[Finding],
    *,
    summary: str = "",
    enough: bool = False,
    of_others: bool = True,
    expected: bool = True,
    scripts: Path | None = None,
) -> Explained:
    """Fail the test after all rounds if there are findings. Those of a known fault of a layer are an expected failure.

    `findings` are in the order of their weight. `summary` counts them in a few words. On the scenario's own stacks and
    on a version that a fault was seen in, a fault that is not found after `enough` attempts fails the test: it was
    mended, and its declaration must go. Without `of_others`, this holds only for faults that are declared for this test
    alone. `expected` is False for a stack that avoids the faults of its layers. `scripts` is a directory with those of
    the findings.
    """
    known = known_faults(item, fsstack) if expected else []
    rounds = item.stash.setdefault(_ROUNDS, _Rounds())
    rounds.findings += findings
    all_rounds = explain(rounds.findings, known)
    if rounds.mark in item.own_markers:
        item.own_markers.remove(rounds.mark)
    if known and not all_rounds.new and not item.get_closest_marker("xfail"):
        mark = item.get_closest_marker("fsstack")
        own = {text.partition(" = ")[0] for text in mark.args} if mark else set()
        must_show = any(fault.same_version and (of_others or "::" in fault.fault.scenario) for fault in known)
        versions = ", ".join(dict.fromkeys(fault.fault.shown_versions for fault in known))
        words = all_rounds.faults_in_words or f"nothing found of {counted(len(known), 'known fault')} ({versions})"
        # `incomplete` ends in `pytest.fail`. Any other error of a later round is not the known fault.
        item.add_marker(
            pytest.mark.xfail(
                reason="; ".join(filter(None, [words, all_rounds.comparison])),
                strict=enough and must_show and fsstack.stack.id in own,
                raises=pytest.fail.Exception,
            )
        )
        rounds.mark = item.own_markers[-1]
    explained = explain(findings, known)
    if findings:
        timed.incomplete(_in_one_line(findings, explained, summary, scripts))
    timed.keep(KEPT, [*explained.lines(scripts)])
    return explained


def _in_one_line(findings: Sequence[Finding], explained: Explained, summary: str, scripts: Path | None) -> str:
    if not explained.new:
        parts = [summary or counted(len(findings), "finding"), f"known faults: {explained.faults_in_words}"]
    else:
        first = explained.new[0]
        parts = [summary or counted(len(findings), "finding"), f"the first: {first.text}"]
        parts += [f"script: {scripts}/{first.script}"] if scripts and first.script else []
        if len(findings) > len(explained.new):
            parts.append(f"{len(findings) - len(explained.new)} are known faults: {explained.faults_in_words}")
    return "; ".join(filter(None, [*parts, explained.comparison]))
