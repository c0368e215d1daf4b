"""The rounds of a chain, whoever runs its cells: the loop of this process, or workers in kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from pytest_fsstack.judging.cells import CellRun, Task
from pytest_fsstack.judging.course import Course
from pytest_fsstack.measuring import load
from pytest_fsstack.rounds.progress import Pace, Progress


class Rounds:
    """The rounds of one chain: the machine is watched around each, and its end is logged and shown.

    `session` are the rounds of all chains so far. Once enough tests in them have failed (--maxfail), no more rounds
    run. `after_round` is called with the course after each round.
    """

    def __init__(
        self,
        course: Course,
        config: pytest.Config,
        progress: Progress,
        after_round: Callable[[Course], None],
        session: Collection[Rounds],
    ) -> None:
        self.course, self._progress, self._after_round, self._session = course, progress, after_round, session
        self._max_failures: int = config.getoption("maxfail", 0) or 0
        self._pace = Pace()
        #: Two readings of the machine's counters before the running round, with a pause between. None between rounds.
        self._before: tuple[load.Reading, load.Reading] | None = None

    def next(self) -> list[Task]:
        """End the running tasks, and return the next ones. Empty at the end, or if enough tests have failed."""
        self.end()
        if self.course.stopped or not (tasks := self.course.next_tasks()):
            return []
        self._before = load.watch(any(rule.name.startswith("psi") for rule in self.course.policy.discard))
        return tasks

    def end(self) -> None:
        """End the running tasks, if there are any."""
        before, self._before = self._before, None
        if before:
            self.course.end_tasks(load.conditions(*before, load.read()))
            self._after_round(self.course)
            self.show()
        self._count_failures()

    def add(self, task: Task, run: CellRun) -> None:
        """Record a run."""
        self.course.add(task, run)
        self._pace.add(1)
        self._count_failures()

    def _count_failures(self) -> None:
        failures = sum(rounds.course.endings.failures for rounds in self._session)
        self.course.stopped = 0 < self._max_failures <= failures

    def show(self, running: str = "", step: str = "") -> None:
        """Show the progress. Called only before a step and after a round, so it delays no measurement."""
        self._progress(self._pace.timed(self.course)._replace(running=running, step=step))
