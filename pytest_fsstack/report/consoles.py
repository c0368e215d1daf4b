"""Results as lines on a console: LAVA's signals and KTAP."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_fsstack.judging.results import ChainResults, Results
from pytest_fsstack.judging.series import test_of
from pytest_fsstack.report.model import visible
from pytest_fsstack.report.stores import main_series, several, suffix
from pytest_fsstack.units import OverheadUnit, format_quantity

_RESULTS = {"pass": "pass", "fail": "fail", "inconclusive": "unknown", None: "pass"}


def lava(results: Results) -> str:
    """A signal for each series that people look at, and for each step that was not measured on a stack.

    They are what `lava-test-case` prints (https://docs.lavasoftware.org/lava/writing-tests.html). What has no budget is
    a measurement that passes. What is not decided is unknown.
    """
    lines = []
    entries = main_series(results)
    labels = several(entries)
    for each in entries:
        more, unit = (0.0, each.unit) if each.kind == "figure" else (1.0, "ratio")
        name = _id(each.name + suffix(each, labels))
        result = _RESULTS[each.outcome]
        units = f" UNITS={re.sub(r'[^!-=?-~]+', '_', unit)}" if unit else ""
        # Without an exponent, which LAVA's decimals may have, but not everyone who reads them.
        lines.append(f"{name} RESULT={result} MEASUREMENT={each.value + more:.9f}{units}")
    for chain in results.chains:
        for step, stack in _cases(chain):
            name = _id("::".join((test_of(chain), step, stack)))
            if chain.incomplete(step, stack):
                lines.append(f"{name} RESULT=fail")
            elif not chain.of(step, stack):
                lines.append(f"{name} RESULT=skip")
    return "".join(f"<LAVA_SIGNAL_TESTCASE TEST_CASE_ID={line}>\n" for line in lines)


def ktap(results: Results) -> str:
    """A test for each chain, with a subtest for each step on a stack (docs.kernel.org/dev-tools/ktap.html).

    What is not decided, and what was not measured, is skipped, with the reason.
    """
    lines = ["KTAP version 1", f"1..{len(results.chains)}"]
    for number, chain in enumerate(results.chains, 1):
        cases = _cases(chain)
        found = [_case(chain, step, stack) for step, stack in cases]
        lines += ["  KTAP version 1", f"  1..{len(cases)}"]
        for index, ((step, stack), (outcome, reason, text)) in enumerate(zip(cases, found, strict=True), 1):
            name = _described(f"{step} on {stack}")
            lines += [f"  # {name}: {_one_line(line)}" for line in text]
            skipped = f" # SKIP {_one_line(reason)}" if outcome == "skip" else ""
            lines.append(f"  {'not ok' if outcome == 'fail' else 'ok'} {index} {name}{skipped}")
        outcomes = {outcome for outcome, _, _ in found}
        result = "not ok" if "fail" in outcomes else "ok"
        skipped = " # SKIP nothing was decided" if outcomes == {"skip"} else ""
        lines.append(f"{result} {number} {_described(f'{chain.id} on {chain.device}')}{skipped}")
    return "\n".join([*lines, ""])


def _cases(chain: ChainResults) -> list[tuple[str, str]]:
    return [(step, stack) for step in chain.steps for stack in chain.stacks if stack not in chain.controls]


def _case(chain: ChainResults, step: str, stack: str) -> tuple[str, str, list[str]]:
    """``pass``, ``fail`` or ``skip``, why it is skipped, and what there is to say."""
    if incomplete := chain.incomplete(step, stack):
        return "fail", "", [f"did not do the work: {incomplete}"]
    if not chain.of(step, stack):
        return "skip", chain.notes.get((step, stack), "not measured"), []
    text = list(_figures(chain, step, stack))
    text += [each.text for each in chain.judgements.get((step, stack), [])]
    worst = chain.worst(step, stack)
    if worst == "inconclusive":
        return "skip", "inconclusive", text
    return "fail" if worst == "fail" and not chain.expected(step, stack) else "pass", "", text


def _figures(chain: ChainResults, step: str, stack: str) -> Iterator[str]:
    median, metric = chain.median(step, stack), chain.metric(step, stack, "seconds")
    if median is not None and metric is not None:
        estimate = chain.estimate(step, stack)
        unit = OverheadUnit.fitting([estimate.overhead] if estimate else [])
        over = f", {unit.signed(estimate.overhead)} over {chain.reference(stack)}" if estimate else ""
        yield f"seconds: {format_quantity(median, metric.unit)}{over}"


def _id(text: str) -> str:
    """A name in characters that all parts of LAVA take."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text.replace("::", ".")).strip("-")


def _described(text: str) -> str:
    """A description of a test: a number sign would begin a directive."""
    return _one_line(text).replace("#", "")


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))
