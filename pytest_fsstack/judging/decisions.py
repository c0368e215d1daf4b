"""The decision on each test of a chain: what pytest reports of it, from how its step ended and from its verdicts."""

from __future__ import annotations

import fnmatch
import glob
import shlex
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec import structs

from pytest_fsstack.judging.cells import Policy
from pytest_fsstack.judging.conditions import summary
from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.describe import (
    describe_failure,
    describe_undecided,
    doubt_in_words,
    judgement_in_words,
    note_in_words,
    notice_in_words,
)
from pytest_fsstack.judging.endings import End, Endings
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.results import Unjudged


class Decision(msgspec.Struct, frozen=True):
    """The decision on a test and its reason. `as_run`: the test ended in one of its runs, so that run is reported.

    The outcome belongs to the call phase, or with `in_setup` to setup. `expected` is the reason for an expected
    failure. `overrules`: marks and hooks that skip the test, or expect that it fails, do not change this failure.
    `by_limits`: the verdicts on its budgets are the only reason.
    """

    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""
    in_setup: bool = False
    as_run: bool = False
    expected: str = ""
    overrules: bool = False
    by_limits: bool = False


class Decisions:
    """The decisions on a chain's tests. `readings` are those of the tests' own figures.

    `stopped`: no more rounds run, because enough tests have failed (--maxfail).
    """

    def __init__(self, readings: Readings, endings: Endings, policy: Policy, stopped: bool) -> None:
        self.readings, self.chain, self.endings, self.policy = readings, readings.chain, endings, policy
        self._stopped = stopped
        # If consequences of a failure failed too, pytest would stop at one of them, and not show the cause.
        self._strict = policy.strict and not stopped

    def of(self, step: str, name: str, rerun_command: Callable[[], str]) -> Decision:
        """Return the decision on a test. `rerun_command` returns the command that runs it alone."""
        end, chain = self.endings.of(step, name), self.chain
        if error := self.endings.failure_before(step, name):
            return Decision("failed", error, in_setup=True)
        if end.kind == "failed":
            return Decision("failed", as_run=True)
        if end.kind != "":
            if chain.worst(step, name) == "fail" and not chain.expected(step, name):
                # A skip in a later round undoes no verdict.
                return structs.replace(self.of_budgets(self.readings, step, name, rerun_command), in_setup=True)
            return self._of_end(step, name, end)
        if decision := self._of_rounds(step, name):
            # That a budget cannot be judged is not the failure that was expected.
            return decision
        decision = self.of_budgets(self.readings, step, name, rerun_command)
        if decision.outcome == "failed" and chain.worst(step, name) == "pass":
            # Nor is it that a verdict is doubtful.
            return decision
        return structs.replace(decision, expected=chain.expected(step, name, strict=self._strict))

    @property
    def _early_end(self) -> str:
        over = self.chain.rounds_of_phase >= self.chain.looks.max_rounds
        return "" if over or not self._stopped else "; no more rounds ran, because enough tests have failed (--maxfail)"

    def _of_end(self, step: str, name: str, end: End) -> Decision:
        """Return the decision on a test that did not run to its end."""
        if self.policy.missing_fails and end.because == "lacking":
            return Decision("failed", f"{end.text} (--fsstack-if-unavailable=fail)", in_setup=True)
        promised = self.endings.promise(step, name) and not self.policy.once
        budgets = self.endings.tests[step, name].budgets if promised else ()
        compares = any(budget.overhead is not None for budget in budgets)
        if end.because == "baseline" and compares and not self._stopped:
            return Decision("failed", f"its budget has nothing to compare with: {end.text}", in_setup=True)
        # If an earlier step has failed, its own report is red.
        if budgets and end.because and not self._may_stay_unjudged(step, name, end.text):
            return Decision("failed", self._unjudged_text(name, end.text), in_setup=True, overrules=True)
        as_run = end.kind != "not run"
        return Decision("skipped", "" if as_run else end.text, in_setup=not as_run, as_run=as_run)

    def _may_stay_unjudged(self, step: str, name: str, reason: str) -> bool:
        """Whether the budgets of a test need no verdict: always without --fsstack-strict."""
        return not self._strict or is_allowed(self.policy.allowed, self.endings.tests[step, name].id, reason)

    def _unjudged_text(self, name: str, reason: str) -> str:
        # The same patterns must serve on all devices.
        allowing = allowing_option(reason.removeprefix(f"{self.endings.labels[name]}: "))
        return f"its budget is not judged: {reason} (--fsstack-strict)\n\n  allow:   {allowing}"

    def _of_rounds(self, step: str, name: str) -> Decision | None:
        """Return the decision on a test that has no rounds to judge, or None."""
        results, promise = self.chain, self.endings.promise(step, name)
        if reason := results.incomplete(step, name):
            return Decision("failed", f"{step} on {name} failed: {reason}")
        if results.discarded and not results.rounds:
            # The test itself succeeded, but could not be judged.
            text = f"inconclusive: no round counts: {summary([item.rule for item in results.discarded])}"
            if self._strict and promise:
                return Decision("failed", f"{step} on {name}: {text} (--fsstack-strict)")
            return Decision("skipped", text)
        if promise and not self.policy.once and not results.measures(step, name):
            return Decision(
                "failed",
                f"this test {promise}, but measured nothing: put its work in `with timed(): ...`, or use the benchmark "
                "fixture",
            )
        baseline = results.reference(name)
        for judgement in results.judgements_of(step, name):
            compared = judgement.verdict is not None and judgement.budget.overhead is not None
            note = results.note(step, baseline) if compared and judgement.outcome == "inconclusive" else None
            # A skip would leave the gate open unnoticed.
            if note or judgement.unjudged in (Unjudged.NO_METRIC, Unjudged.UNFIT, Unjudged.NO_BASELINE):
                why = f"; baseline {baseline}: {note_in_words(note)}" if note else ""
                text = f"{name}: {judgement_in_words(results, step, name, judgement)}{why}{self._early_end}"
                return Decision("skipped" if self._stopped else "failed", text, by_limits=True)
        return self._of_emulation(step, name)

    def _of_emulation(self, step: str, name: str) -> Decision | None:
        """Return the decision on a test whose budgets are all kept, but for those not judged on an emulated CPU.

        A sanity limit is no requirement of the user, so only --fsstack-strict insists on its verdict.
        """
        judgements = self.chain.judgements_of(step, name)
        emulated = [judgement for judgement in judgements if judgement.unjudged is Unjudged.EMULATED]
        if not emulated or any(judgement.outcome != "pass" for judgement in judgements if judgement not in emulated):
            return None
        reason = judgement_in_words(self.chain, step, name, emulated[0])
        if not self._may_stay_unjudged(step, name, reason):
            return Decision("failed", self._unjudged_text(name, reason), by_limits=True)
        is_sanity = all(judgement.budget.sanity for judgement in emulated)
        return Decision("passed") if is_sanity else Decision("skipped", f"{step} on {name}: {reason}")

    def of_budgets(self, readings: Readings, step: str, name: str, rerun_command: Callable[[], str]) -> Decision:
        """Return the decision on a test, or of a verdict between kernels, from the verdicts on its budgets."""
        chain, strict = readings.chain, self._strict
        worst = chain.worst(step, name)
        if worst == "fail":
            differences = map(notice_in_words, doubts(self.readings))
            text = "\n".join([describe_failure(readings, step, name, rerun_command()), *differences])
            return Decision("failed", text, by_limits=True)
        if worst == "inconclusive":
            text = f"{describe_undecided(chain, step, name)}{self._early_end}"
            # A budget that is expected to be broken has its own reason.
            if strict or (chain.expected(step, name) and not self.policy.runxfail):
                first = f"{step} on {name}: {text}{' (--fsstack-strict)' if strict else ''}"
                again = [f"  again:   {command}" for command in filter(None, [rerun_command()])]
                return Decision("failed", "\n\n".join([first, *again]), by_limits=True)
            return Decision("skipped", text)
        if strict and (doubt := doubt_in_words(readings.doubts(step, name))):
            return Decision("failed", f"{step} on {name}: {worst}, but {doubt} (--fsstack-strict)", by_limits=True)
        return Decision("passed")


def is_allowed(patterns: Iterable[str], name: str, reason: str) -> bool:
    """Whether a pattern of --fsstack-allow-unjudged matches the name of what has a budget, or the reason."""
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in (name, reason))


def allowing_option(text: str) -> str:
    """Return the option that allows all reasons and names that contain a text, for a shell."""
    return f"--fsstack-allow-unjudged={shlex.quote(f'*{glob.escape(text)}*')}"
