"""Reports as lines on a console: signals of LAVA, and KTAP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from pytest_fsstack.judging.describe import judgement_in_words, note_in_words
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import ChainResults, Results, TestOutcome
from pytest_fsstack.report.answer import emulation
from pytest_fsstack.report.model import is_expected, title_of
from pytest_fsstack.report.series import Series
from pytest_fsstack.report.stores import main_series, several, suffix
from pytest_fsstack.units import OverheadUnit, format_quantity, visible

#: Results of LAVA and KTAP, by verdict and by outcome of a test.
_RESULTS = {"pass": "pass", "fail": "fail", "inconclusive": "unknown", None: "pass"}
_OF_TESTS = {"passed": "pass", "xpassed": "pass", "xfailed": "pass", "skipped": "skip", "failed": "fail"}


class Case(NamedTuple):
    """A test on a console: ``pass``, ``fail`` or ``skip``, the reason for a skip, and further lines."""

    name: str
    outcome: str
    reason: str = ""
    lines: tuple[str, ...] = ()


def lava(results: Results) -> str:
    """Return a signal of LAVA for each main series, and for each test or step without a figure.

    The signals are those of `lava-test-case` (https://docs.lavasoftware.org/lava/writing-tests.html). Measurements
    without a budget pass, and so do those that were expected to break one. Undecided ones are unknown. All measurements
    of a failed test fail.
    """
    results, lines = settle(results), []
    entries = main_series(results)
    labels = several(entries)
    for entry in entries:
        more, unit = (0.0, entry.unit) if entry.kind == "figure" else (1.0, "ratio")
        name = _id(entry.name + suffix(entry, labels))
        result = _result(results, entry)
        units = f" UNITS={re.sub(r'[^!-=?-~]+', '_', unit)}" if unit else ""
        # Without an exponent: LAVA accepts one, but some readers of its results do not.
        lines.append(f"{name} RESULT={result} MEASUREMENT={entry.value + more:.9f}{units}")
    for chain in results.chains:
        for step, stack in _steps_on_stacks(chain):
            case = _case(results, chain, step, stack)
            if not chain.measures(step, stack) or chain.incomplete(step, stack):
                lines.append(f"{_id('::'.join((chain.id, step, stack)))} RESULT={case.outcome}")
    lines += [f"{_id(case.name)} RESULT={case.outcome}" for cases in _unmeasured(results).values() for case in cases]
    return "".join(f"<LAVA_SIGNAL_TESTCASE TEST_CASE_ID={line}>\n" for line in lines)


def ktap(results: Results) -> str:
    """Return a KTAP test for each chain, with a subtest for each step on a stack (docs.kernel.org/dev-tools/ktap.html).

    Tests without a chain are subtests of their file or class. Undecided and unmeasured ones are skipped, with the
    reason.
    """
    results = settle(results)
    groups = {
        f"{title_of(chain)} on {chain.device}": [
            _case(results, chain, step, stack) for step, stack in _steps_on_stacks(chain)
        ]
        for chain in results.chains
    }
    for name, cases in _unmeasured(results).items():
        groups.setdefault(name, []).extend(cases)
    emulated = [f"# {_one_line(text)}"] if (text := emulation(results)) else []
    lines = ["KTAP version 1", *emulated, f"1..{len(groups)}"]
    for number, (name, cases) in enumerate(groups.items(), 1):
        lines += _group(number, name, cases)
    return "\n".join([*lines, ""])


def _group(number: int, name: str, cases: list[Case]) -> Iterator[str]:
    yield "  KTAP version 1"
    yield f"  1..{len(cases)}"
    for index, case in enumerate(cases, 1):
        title = _described(case.name)
        yield from (f"  # {title}: {_one_line(line)}" for line in case.lines)
        skipped = f" # SKIP {_one_line(case.reason)}" if case.outcome == "skip" else ""
        yield f"  {'not ok' if case.outcome == 'fail' else 'ok'} {index} {title}{skipped}"
    outcomes = {case.outcome for case in cases}
    skipped = " # SKIP nothing was decided" if outcomes == {"skip"} else ""
    yield f"{'not ok' if 'fail' in outcomes else 'ok'} {number} {_described(name)}{skipped}"


def _steps_on_stacks(chain: ChainResults) -> list[tuple[str, str]]:
    return [(step, stack) for step in chain.steps for stack in chain.stacks if stack not in chain.controls]


def _result(results: Results, entry: Series) -> str:
    """Return LAVA's result of a measurement, which also depends on the test on that device and kernel."""
    names = {entry.stack, f"{entry.stack}:{entry.labels.get('kernel')}"}
    tested = [
        (chain, entry.step, stack)
        for chain in results.chains
        if (chain.id, chain.device) == (entry.test, entry.labels["device"])
        for stack in names & chain.stacks.keys()
    ]
    tests = [results.test(*one) for one in tested]
    if any(test is not None and test.outcome == "failed" for test in tests):
        return "fail"
    if entry.outcome == "fail" and any(is_expected(results, *one) for one in tested):
        return "pass"
    return _RESULTS[entry.outcome]


def _unmeasured(results: Results) -> dict[str, list[Case]]:
    """Return the tests that are in no chain, by file or class."""
    measured = {
        test.id
        for chain in results.chains
        for step, stack in _steps_on_stacks(chain)
        if (test := results.test(chain, step, stack)) is not None
    }
    groups: dict[str, list[Case]] = {}
    for test in results.tests.values():
        # A chain shows the worst outcome of its step and stack, which covers this test.
        if test.id not in measured and not (test.chain and test.outcome == "passed"):
            case = _of_test(test, test.id, ())
            groups.setdefault(test.id.partition("[")[0].rpartition("::")[0] or test.id, []).append(case)
    return groups


def _of_test(test: TestOutcome, name: str, lines: tuple[str, ...]) -> Case:
    outcome = _OF_TESTS[test.outcome]
    if outcome == "skip":
        return Case(name, "skip", test.text, lines)
    return Case(name, outcome, "", (*lines, test.text) if outcome == "fail" else lines)


def _case(results: Results, chain: ChainResults, step: str, stack: str) -> Case:
    """Return the case of a step on a stack. Its outcome is that of the test, or else that of the budgets."""
    name, lines = f"{step} on {chain.stacks[stack].label}", tuple(_lines(chain, step, stack))
    worst = chain.worst(step, stack)
    if (chain.incomplete(step, stack) or worst == "fail") and not is_expected(results, chain, step, stack):
        return Case(name, "fail", "", lines)
    if test := results.test(chain, step, stack):
        return _of_test(test, name, lines)
    if not chain.measures(step, stack):
        return Case(name, "skip", note_in_words(chain.note(step, stack)) or "not measured")
    return Case(name, "skip", "inconclusive", lines) if worst == "inconclusive" else Case(name, "pass", "", lines)


def _lines(chain: ChainResults, step: str, stack: str) -> Iterator[str]:
    if incomplete := chain.incomplete(step, stack):
        yield f"did not do the work: {incomplete}"
    elif chain.measures(step, stack):
        yield from _figures(chain, step, stack)
        yield from (judgement_in_words(chain, step, stack, judgement) for judgement in chain.judgements_of(step, stack))


def _figures(chain: ChainResults, step: str, stack: str) -> Iterator[str]:
    median, metric = chain.median(step, stack), chain.metric(step, stack, "seconds")
    if median is not None and metric is not None:
        estimate = chain.overhead(step, stack)
        unit = OverheadUnit.fitting([estimate.overhead] if estimate else [])
        over = f", {unit.signed(estimate.overhead)} over {chain.reference(stack)}" if estimate else ""
        yield f"seconds: {format_quantity(median, metric.unit)}{over}"


def _id(text: str) -> str:
    """Return a name in characters that all parts of LAVA accept."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text.replace("::", ".")).strip("-")


def _described(text: str) -> str:
    """Return the description of a test without number signs, which would begin a directive."""
    return _one_line(text).replace("#", "")


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))
