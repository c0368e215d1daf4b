"""The planned runs of a session's stacks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from pytest_fsstack.judging.cells import ChainPlan, KernelBoot
from pytest_fsstack.judging.course import Course
from pytest_fsstack.kernels.boots import boots_of
from pytest_fsstack.records.results import Results
from pytest_fsstack.session.duration import seconds_of_run

if TYPE_CHECKING:
    from pytest_fsstack.rounds.chains import Chain
    from pytest_fsstack.session.state import Session


@dataclass(frozen=True)
class Runs:
    """The planned runs of a chain: by cell, the fewest and the most. As text, ``8 to 160 runs``.

    `first` and `last` are the numbers of rounds until the first and the last look.
    """

    by_cell: dict[str, tuple[int, int]]
    first: int = 1
    last: int = 1
    #: The most rounds for confirming failures.
    fresh: int = 0
    #: Whether there are no budgets, so that the chain ends at the first look.
    undecided: bool = False

    @property
    def ends(self) -> tuple[int, int]:
        """Return the fewest and the most runs of all cells together."""
        fewest, most = ([ends[index] for ends in self.by_cell.values()] for index in range(2))
        return sum(fewest), sum(most)

    def only(self, cells: Collection[str]) -> Runs:
        """Return the runs of some of the cells."""
        return replace(self, by_cell={cell: ends for cell, ends in self.by_cell.items() if cell in cells})

    def __str__(self) -> str:
        return f"{' to '.join(map(str, dict.fromkeys(self.ends)))} runs"

    def seconds(self, session: Session, chain: Chain, earlier: Sequence[Results]) -> tuple[float, float] | list[str]:
        """Return the shortest and the longest duration, or the stacks without an earlier run."""
        scale = session.settings.scale
        seconds = {
            stack: seconds_of_run(earlier, chain.id, chain.device.spec, chain.steps, stack, scale=scale)
            for stack in self.by_cell
        }
        if unknown := [stack for stack, of_run in seconds.items() if of_run is None]:
            return unknown
        shortest, longest = (
            sum(ends[index] * (seconds[stack] or 0.0) for stack, ends in self.by_cell.items()) for index in range(2)
        )
        return shortest, longest


def runs_of(session: Session, chain: Chain, planned: ChainPlan, kernels: Sequence[str] = (), boots: int = 1) -> Runs:
    """Return the runs of a chain, as if the machine met all requirements of its stacks."""
    stacks = {name: structs.replace(stack, lacks=()) for name, stack in planned.stacks.items()}
    planned, names = structs.replace(planned, stacks=stacks), list(kernels) or [""]
    limit = session.settings.max_regression if len(names) > 1 else None
    policy = replace(session.policy, sharing=session.budgets.confirmed, limit=limit)
    places = [KernelBoot(kernel, boot) for kernel in names for boot in range(boots_of(kernel, boots))]
    course = Course(dict.fromkeys(places, planned), policy, chain.id, names, boots)
    if not chain.timed or policy.once:
        return Runs(dict.fromkeys(course.cells, (1, 1)))
    looks = course.planner.looks
    first, last = looks.rounds[0], course.planner.max_rounds
    replaced = looks.max_rounds if session.settings.discard_rounds else 0
    return Runs(
        {cell: (first, left.maximum + replaced) for cell, left in course.rounds_left.items()},
        first,
        last,
        course.confirming.max_rounds if course.confirming else 0,
        undecided=last < looks.max_rounds,
    )
