"""The plan of a chain: which cells run in the next round, and up to which step. It depends on nothing but verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Literal, NamedTuple

from pytest_fsstack.judging.verdict import expected_rounds
from pytest_fsstack.records.verdicts import Looks, Verdict

#: The largest level for confirming a failure by fresh rounds. Two budgets would otherwise get 1 / 2, a coin toss.
_LARGEST_LEVEL = 0.25


def confirmation_level(budgets: int) -> float:
    """Return the level at which fresh rounds must confirm a failure.

    It limits the probability that any of so many budgets fails falsely to alpha. Each budget fails falsely with at most
    alpha. Independent fresh rounds confirm that falsely with at most the level. The sum, budgets * alpha * level, is at
    most alpha if the level is 1 / budgets.
    """
    return min(_LARGEST_LEVEL, 1 / budgets)


def rounds_to_confirm(budgets: int) -> int:
    """Return the fewest fresh rounds that can confirm a failure of one of so many budgets, or 0 if none is needed.

    The smallest p value of the exact test is 0.5 ** rounds. The last look has the whole level, so it is the one that
    can decide with the fewest rounds.
    """
    return ceil(-log2(confirmation_level(budgets))) if budgets > 1 else 0


#: `measured`: a cell without budgets that has run its rounds. `ended`: failed or skipped.
State = Literal["running", "pass", "fail", "given up", "measured", "ended"]


class RoundsLeft(NamedTuple):
    """The remaining rounds of a cell: at most, and if each trend holds (None if no trend shows yet)."""

    expected: int | None
    maximum: int


def longer(one: RoundsLeft, other: RoundsLeft) -> RoundsLeft:
    """Return the larger of two remaining times."""
    both_expected = one.expected is not None and other.expected is not None
    return RoundsLeft(
        max(one.expected or 0, other.expected or 0) if both_expected else None, max(one.maximum, other.maximum)
    )


def combined_state(states: Iterable[State]) -> State:
    """Return the combined state of a cell that runs for several reasons."""
    order: tuple[State, ...] = ("ended", "running", "fail", "given up", "pass", "measured")
    present = set(states)
    return next(state for state in order if state in present)


def in_words(states: Iterable[State]) -> str:
    """Summarize the decided states: ``2 pass, 1 fail, 1 given up``. Empty if none is decided."""
    words = list(states)
    order: tuple[State, ...] = ("pass", "fail", "given up")
    return ", ".join(f"{words.count(state)} {state}" for state in order if state in words)


class Question(NamedTuple):
    """A comparison to decide: a step on a cell and on its reference, which may be the cell itself."""

    cell: str
    reference: str
    step: str


@dataclass
class Planner:
    """The questions of a chain, and the state of each.

    Cells are given by name. A step runs on a cell until its budgets are decided or given up, or for the first block if
    it has none, and as long as a later step does. References run as long as their cells. A control runs while any cell
    with the same reference runs, and keeps none running.
    """

    looks: Looks
    questions: Sequence[Question]
    controls: Collection[str] = ()
    #: The questions with a budget. The others are over after the first block. None: all have one.
    judged: Collection[Question] | None = None
    states: dict[Question, State] = field(default_factory=dict)
    #: The look (as a number of rounds) that will decide a running question if its trends hold.
    expected: dict[Question, int] = field(default_factory=dict)
    #: Cells that failed or were skipped. They run no more.
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for question in self.questions:
            self.states.setdefault(question, "measured" if question.cell in self.controls else "running")

    def next_round(self) -> dict[str, set[str]]:
        """Return the open steps of each cell in the next round, in the order of the questions. Empty at the end."""
        required: dict[str, set[str]] = {question.cell: set() for question in self.questions}
        for question in self._open():
            for cell in self._cells_of(question).intersection(required):
                required[cell].add(question.step)
        return {cell: steps for cell, steps in required.items() if steps and cell not in self.ended}

    def _open(self) -> list[Question]:
        return [
            question
            for question, state in self.states.items()
            if state == "running" and question.cell not in self.ended
        ]

    def _cells_of(self, question: Question) -> set[str]:
        """Return the cells that must run for a question, its controls included."""
        cells = {question.cell, question.reference}
        if self.controls:
            others = (other for other in self.questions if other.cell in self.controls)
            cells |= {other.cell for other in others if other.reference == question.reference}
        return cells

    def look(self, rounds: int, verdicts: Mapping[Question, Sequence[Verdict | None]]) -> None:
        """Update the states with the verdicts of each question after so many rounds. None is a verdict that no round
        can give.
        """
        for question in self._open():
            answers = verdicts.get(question, ())
            self.states[question] = self._state(question, answers, rounds)
            self.expected[question] = max(
                (expected_rounds(verdict) for verdict in answers if verdict is not None), default=rounds
            )

    def _state(self, question: Question, verdicts: Sequence[Verdict | None], rounds: int) -> State:
        if not verdicts:
            return "measured"
        open_ones = [verdict for verdict in verdicts if verdict is not None and not verdict.settled]
        if open_ones and rounds < self.looks.max_rounds and question.reference not in self.ended:
            return "running"
        if any(verdict is not None and verdict.outcome == "fail" for verdict in verdicts):
            return "fail"
        if all(verdict is not None and verdict.outcome == "pass" for verdict in verdicts):
            return "pass"
        return "given up"

    def cell_states(self) -> dict[str, State]:
        """Return the state of each cell over all of its questions."""
        states: dict[str, list[State]] = {}
        for question, state in self.states.items():
            states.setdefault(question.cell, []).append("ended" if question.cell in self.ended else state)
        return {cell: combined_state(parts) for cell, parts in states.items()}

    @property
    def decided(self) -> str:
        """Return the numbers of decided comparisons of cells in words."""
        states: dict[tuple[str, str], list[State]] = {}
        for question, state in self.states.items():
            states.setdefault((question.cell, question.reference), []).append(state)
        return in_words(map(combined_state, states.values()))

    @property
    def max_rounds(self) -> int:
        """Return the number of rounds after which the plan ends at the latest."""
        return max((self._last_round(question) for question in self.questions), default=0)

    def _last_round(self, question: Question) -> int:
        return self.looks.rounds[-1 if self._is_judged(question) else 0]

    def _is_judged(self, question: Question) -> bool:
        return self.judged is None or question in self.judged

    def rounds_left(self, rounds: int, confirming: Looks | None = None) -> dict[str, RoundsLeft]:
        """Return the remaining rounds of each cell after so many rounds, with those of the plan for confirmation."""
        looks, remaining = self.looks, dict[str, RoundsLeft]()
        for question, state in self.states.items():
            if question.cell in self.ended:
                continue
            if state == "running":
                last = self._last_round(question)
                end = last if last == looks.rounds[0] else self.expected.get(question)
                fresh = confirming.max_rounds if confirming and self._is_judged(question) else 0
                of_cell = RoundsLeft(end - rounds if end else None, last - rounds + fresh)
            elif state == "fail" and confirming:
                of_cell = RoundsLeft(confirming.minimum_rounds, confirming.max_rounds)
            else:
                continue
            # Fresh rounds have no control.
            controls = self.controls if state == "fail" else ()
            for cell in self._cells_of(question).difference(self.ended, controls):
                remaining[cell] = longer(remaining[cell], of_cell) if cell in remaining else of_cell
        return remaining
