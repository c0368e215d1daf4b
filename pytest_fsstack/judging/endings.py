"""The ends of the steps of a chain on its stacks, in one table.

The decisions on tests, the number of failures and the notes of reports follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from pytest_fsstack.judging.cells import EndKind, PlannedTest, StepRun
from pytest_fsstack.judging.describe import ENDED
from pytest_fsstack.records.results import ChainResults, Note


@dataclass(frozen=True)
class End:
    """The end of a step on a stack: `text` explains it in the report of a test, `note` in tables.

    `because` tells what it comes from: a requirement that the machine does not meet, a baseline that cannot run, or a
    test whose code skips it or whose failure was expected. It is empty for a failure or a kernel that went down.
    """

    kind: EndKind
    text: str = ""
    note: Note | None = None
    because: Literal["", "lacking", "baseline", "skip"] = ""


_RAN = End("")
_NOT_STARTED = End("not run", "not run: the session was stopped before")


class Endings:
    """The ends of a chain's steps, by step and stack. They write the notes of the chain.

    `tests` are the selected tests, by step and stack. `steps` are the steps to run on each stack. `labels` name each
    stack with its device.
    """

    def __init__(
        self,
        chain: ChainResults,
        tests: Mapping[tuple[str, str], PlannedTest],
        steps: Mapping[str, Sequence[str]],
        labels: Mapping[str, str],
    ) -> None:
        self.chain, self.tests, self.steps, self.labels = chain, tests, steps, labels
        self._ends: dict[tuple[str, str], End] = {}
        #: The steps that ran to their end on any stack.
        self._ran: set[str] = set()

    def of(self, step: str, stack: str) -> End:
        """Return the end of a step on a stack."""
        return self._ends.get((step, stack), _NOT_STARTED)

    def _put(self, step: str, stack: str, end: End) -> None:
        """Enter an end. The last run of a step says most about it. Of what happened elsewhere, the first counts."""
        is_own = end.kind != "not run"
        if is_own or self._ends.get((step, stack), _RAN).kind == "":
            self._ends[step, stack] = end
        if end.note and (is_own or not self.chain.note(step, stack)):
            self.chain.notes.setdefault(step, {})[stack] = end.note

    def add(self, stack: str, number: int, run: StepRun) -> None:
        """Record how a run of a step in a round (from 0) ended, and what becomes of the steps after it."""
        if run.ending == "":
            self._ran.add(run.step)
            self._put(run.step, stack, _RAN)
        elif run.ending == "left out":
            # This skip says nothing about the other steps.
            self._put(run.step, stack, End("left out", _reason_of_skip(run), Note("left out", run.cause), "skip"))
        else:
            self._add_last(stack, number, run)

    def _add_last(self, stack: str, number: int, run: StepRun) -> None:
        """Record a failure or skip of a step, after which no other step runs."""
        if run.ending == "failed":
            note = Note("failed", run.reason, round=number)
        elif run.cause:
            note = Note("skipped", run.cause, round=number)
        else:
            # An expected failure counts as skipped, and has no cause.
            reason = run.reason.removeprefix("expected to fail").removeprefix(": ")
            note = Note("failed as expected", reason, round=number)
        why = f": {note.reason}" if note.reason else ""
        if run.ending == "failed":
            end = End("failed", f"{run.step} failed on {self.labels[stack]}{why}\n\n{run.cause}".rstrip(), note)
        else:
            end = End("skipped", _reason_of_skip(run), note, "lacking" if run.lacking else "skip")
        self._put(run.step, stack, end)
        text = f"not run: {run.step} {ENDED[note.kind]} on {self.labels[stack]}{why}"
        later = msgspec.structs.replace(note, cause=run.step)
        self.drop(stack, replace(end, kind="not run", text=text, note=later), after=run.step)

    def drop(self, stack: str, end: End, after: str = "") -> None:
        """End the steps of a stack that cannot run any more: all, or those after one."""
        steps = self.steps[stack]
        for step in steps[steps.index(after) + 1 :] if after else steps:
            self._put(step, stack, end)

    def failure_before(self, step: str, stack: str) -> str:
        """Return the error of a step without a test of its own, that a test depends on or is compared with.

        Nothing else would report that error. Empty if there is none.
        """
        steps = self.chain.steps[: self.chain.steps.index(step) + 1]
        pairs = [(earlier, on) for on in (stack, self.chain.reference(stack)) for earlier in steps]
        failed = (self.of(*pair) for pair in pairs if pair not in self.tests)
        return next((end.text for end in failed if end.kind == "failed"), "")

    @property
    def failures(self) -> int:
        """Return the number of failed tests, without those of the control."""
        return sum(end.kind == "failed" for (_, stack), end in self._ends.items() if stack not in self.chain.controls)

    # -- what tests must measure ---------------------------------------------------------------------------------------

    def promise(self, step: str, stack: str) -> str:
        """Return why a test should have measured something, or an empty text.

        A budget of a class, the ini or the command line applies to the steps that measure, and others are waived.
        """
        test, measured = self.tests[step, stack], self.chain.measured
        if test.budgets and step in measured:
            return test.promise or "has a budget"
        return "" if test.of_class and measured else test.promise

    def only_prepares(self, step: str, stack: str) -> bool:
        """Whether a test needs no timed block, and its step ran without one, be it on other stacks."""
        return step in self._ran and step not in self.chain.measured and not self.promise(step, stack)


def _reason_of_skip(run: StepRun) -> str:
    return run.cause or run.reason or "it was skipped"
