"""Which stacks run in the next round: planned from verdicts alone, so the same for stacks here and between kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pytest_fsstack.judging.verdict import Looks, Verdict, expected_rounds

#: The largest level at which fresh rounds confirm a failure: two budgets at 1 / 2 would be a coin.
_LARGEST_LEVEL = 0.25


def confirmation_level(budgets: int) -> float:
    """Return the level at which fresh rounds must confirm a failure.

    With it, any of so many budgets fails falsely in at most alpha of sessions. Each fails falsely in at most alpha of
    sessions, and is confirmed falsely in at most the level of those, by rounds that are independent of the first:
    budgets * alpha * level, which is at most alpha at a level of 1 / budgets.
    """
    return min(_LARGEST_LEVEL, 1 / budgets)


#: `measured`: it has no budget and ran as long as such a stack runs; `ended`: it failed or was skipped.
State = Literal["running", "pass", "fail", "given up", "measured", "ended"]


class Left(NamedTuple):
    """Rounds that a stack has yet to run: at most, and if each trend holds (None while nothing shows one)."""

    expected: int | None
    most: int


def longer(one: Left, other: Left) -> Left:
    """What a stack has to run that is wanted for two reasons."""
    known = one.expected is not None and other.expected is not None
    return Left(max(one.expected or 0, other.expected or 0) if known else None, max(one.most, other.most))


def in_words(states: Iterable[State]) -> str:
    """What is decided so far, in a few words; empty if nothing is: ``2 pass, 1 fail, 1 given up``."""
    found = list(states)
    shown: tuple[State, ...] = ("pass", "fail", "given up")
    return ", ".join(f"{found.count(state)} {state}" for state in shown if state in found)


@dataclass
class Planner:
    """The stacks of a chain, and how far each is decided.

    `references` names for each stack the one that it is compared with, which may be the stack itself. A stack runs
    until all of its budgets are decided or given up; one without budgets runs for the first block. A stack that
    others are compared with goes on for as long as any of them runs. So does the `control`, which is a stack that
    nobody waits for; empty if there is none.
    """

    looks: Looks
    references: dict[str, str]
    states: dict[str, State] = field(default_factory=dict)
    #: The look at which a running stack will be decided if its trends hold, as a number of rounds.
    expected: dict[str, int] = field(default_factory=dict)
    control: str = ""

    def __post_init__(self) -> None:
        for stack in self.references:
            self.states.setdefault(stack, "measured" if stack == self.control else "running")

    def next_round(self) -> list[str]:
        """The stacks of the next round, in the order in which they were given; empty if there is none."""
        running = {stack for stack, state in self.states.items() if state == "running"}
        needed = running | {self.references[stack] for stack in running} | ({self.control} if running else set())
        return [stack for stack in self.references if stack in needed and self.states[stack] != "ended"]

    def due(self, rounds: int) -> bool:
        """Whether there is a look after that many rounds."""
        return rounds in self.looks.rounds

    def end(self, stack: str) -> None:
        """Take out a stack that failed or was skipped."""
        self.states[stack] = "ended"

    def look(self, rounds: int, verdicts: Mapping[str, Sequence[Verdict | None]]) -> None:
        """Take note of all verdicts of each stack after that many rounds; None is a budget that nothing can decide."""
        for stack, state in self.states.items():
            if state == "running":
                found = verdicts.get(stack, ())
                self.states[stack] = self._state(found, rounds)
                self.expected[stack] = max(
                    (expected_rounds(each) for each in found if each is not None), default=rounds
                )

    def _state(self, verdicts: Sequence[Verdict | None], rounds: int) -> State:
        if not verdicts:
            return "measured"
        open_ones = [each for each in verdicts if each is not None and not each.settled]
        if open_ones and rounds < self.looks.most:
            return "running"
        if any(each is not None and each.outcome == "fail" for each in verdicts):
            return "fail"
        if all(each is not None and each.outcome == "pass" for each in verdicts):
            return "pass"
        return "given up"

    def summary(self) -> str:
        """What is decided so far, as `in_words`."""
        return in_words(self.states.values())

    def left(self, rounds: int, *, confirms: bool = False) -> dict[str, Left]:
        """What each stack has yet to run after that many rounds; with `confirms`, the fresh rounds of failures too."""
        looks, found = self.looks, dict[str, Left]()
        again = looks.most if confirms else 0
        fixed = looks.most if len(looks.rounds) == 1 else 0
        for stack, state in self.states.items():
            if state == "running":
                end = fixed or self.expected.get(stack)
                own = Left(end - rounds if end else None, looks.most - rounds + again)
            elif state == "fail" and confirms:
                own = Left(looks.minimum_rounds, looks.most)
            else:
                continue
            # Fresh rounds have no control.
            control = {self.control} & self.states.keys() if state == "running" else set()
            for needed in {stack, self.references[stack], *control}:
                if self.states[needed] != "ended":
                    found[needed] = longer(found[needed], own) if needed in found else own
        return found
