"""The round loop of an ordinary session: run chains cell by cell as their courses ask, then report each item once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.hooks import PARSER
from pytest_fsstack.judging.cells import Cell, KernelBoot, Policy
from pytest_fsstack.judging.course import Course
from pytest_fsstack.options.scenarios import as_option
from pytest_fsstack.options.settings import Settings
from pytest_fsstack.rounds.chains import Chain
from pytest_fsstack.rounds.plans import plan_of
from pytest_fsstack.rounds.progress import Progress
from pytest_fsstack.rounds.rounds import Rounds

if TYPE_CHECKING:
    from pytest_fsstack.rounds.budgets import Budgets
    from pytest_fsstack.rounds.runner import Runner


class Loop:
    """A pytest plugin that runs chains in this process. It is registered once there are chains."""

    def __init__(self, runner: Runner, policy: Policy, budgets: Budgets, progress: Progress) -> None:
        self.config, self.runner, self.budgets, self.progress = runner.config, runner, budgets, progress
        self.policy = replace(policy, sharing=budgets.confirmed)
        self._rounds: dict[Chain, Rounds] = {}
        runner.start(self._before)

    def _before(self, item: pytest.Item) -> None:
        """Run the whole chain of an item before its first item is reported."""
        chain = self.runner.chains.get(item)
        if chain is None or not chain.timed or chain.has_run:
            return
        course = Course({KernelBoot(): plan_of(chain, self.budgets)}, self.policy, f"{chain.id} {chain.device.id}")
        self.runner.results.chains.append(course.chain)
        rounds = Rounds(course, self.config, self.progress, self.runner.after_round, self._rounds.values())
        self._rounds[chain] = rounds
        try:
            self._run(chain, rounds)
        finally:
            self.progress.end()
        chains = {chain for chain in self.runner.chains.values() if chain.timed}
        course.conclude(sum(chain.comparisons for chain in chains))
        chain.has_run = True
        self.budgets.count -= course.waived

    def _run(self, chain: Chain, rounds: Rounds) -> None:
        while tasks := rounds.next():
            for task in tasks:
                if rounds.course.can_run(task):
                    show = functools.partial(rounds.show, task.cell.stack)
                    rounds.add(task, self.runner.run(chain, task, show))

    def pytest_enter_pdb(self) -> None:
        self.progress.leave()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if (ran := self.runner.cell_of(item)) is None:
            return None
        chain, step, stack = ran
        course, cell = self._rounds[chain].course, Cell(stack)
        decision = course.decision(step, cell, self._again(item))
        figures = course.figures(step, cell, full=Settings.of(self.config).junit == "full")
        self.runner.report(item, nextitem, chain, decision, figures)
        return True

    def _again(self, item: pytest.Item) -> Callable[[], str]:
        """Return a function that makes the command to run one test alone."""

        def rerun_command() -> str:
            config, typed = self.config, self.config.invocation_params
            test = as_option(item) if Settings.of(config).scenarios else None
            nodeid = os.path.relpath(item.path, typed.dir) + item.nodeid[item.nodeid.index("::") :]
            return options.rerun_command(config.stash[PARSER], test or nodeid, typed.args, self.policy.seed)

        return rerun_command
