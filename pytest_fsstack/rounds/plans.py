"""The plan of a chain as data: tests, budgets and marks, and the requirements that the machine does not meet."""

from __future__ import annotations

import pytest

from pytest_fsstack.judging.cells import ChainPlan, PlannedStack, PlannedTest
from pytest_fsstack.machine.emulation import is_emulated
from pytest_fsstack.machine.needs import missing
from pytest_fsstack.rounds.budgets import Budgets
from pytest_fsstack.rounds.chains import Chain, measures_by_fixture
from pytest_fsstack.rounds.marks import written_marks


def plan_of(chain: Chain, budgets: Budgets) -> ChainPlan:
    """Return the plan of a chain, after checking the requirements of its stacks."""
    runs = {stack: chain.required_steps(stack) for stack in chain.stacks}
    steps_by_stack = {stack: [step for step, _ in items] for stack, items in runs.items() if items}
    steps = [step for step in chain.steps if any(step in of_stack for of_stack in steps_by_stack.values())]
    example = next(iter(chain.examples()))
    return ChainPlan(
        chain.id,
        chain.device.spec,
        chain.baseline,
        steps=tuple(steps),
        stacks={stack: _planned_stack(chain, stack, of_stack) for stack, of_stack in steps_by_stack.items()},
        tests=tuple(
            _planned_test(chain, step, stack, item, budgets)
            for step, stack, item in chain.members()
            if item in chain.selected
        ),
        control=chain.control,
        repeats=chain.repeats(),
        groups={step: _group(step, chain) for step in steps},
        remarks=tuple(str(mark.args[0]) for mark in example.iter_markers("fsstack_remark"))[::-1],
        tables=tuple((mark.args[0], dict(mark.kwargs)) for mark in example.iter_markers("fsstack_table"))[::-1],
        rounds=next((mark.args[0] for mark in example.iter_markers("fsstack_rounds")), 0),
        emulated=is_emulated(),
        comparisons=chain.comparisons,
    )


def _planned_stack(chain: Chain, stack: str, steps: list[str]) -> PlannedStack:
    parameter, planned = chain.stacks[stack], chain.stacks[stack].stack
    lacks = missing(parameter.needs())
    settings = {setting.key: setting.value for setting in planned.settings}
    return PlannedStack(
        planned.spec,
        tuple(steps),
        tuple(lacks),
        planned.encrypts,
        settings,
        named=planned.name is not None,
        kernel_cipher=planned.has_kernel_cipher,
    )


def _planned_test(chain: Chain, step: str, stack: str, item: pytest.Item, budgets: Budgets) -> PlannedTest:
    judged = tuple(budgets.of(item, stack, stack == chain.baseline))
    promise, of_class = "", False
    if item.get_closest_marker("benchmark"):
        promise = "is marked as a benchmark"
    elif any(mark.name == "fsstack_budget" for mark in written_marks(item)) or (judged and measures_by_fixture(item)):
        promise = "has a budget"
    elif item.get_closest_marker("fsstack_budget"):
        promise, of_class = "has a budget", True
    return PlannedTest(step, stack, judged, promise, of_class=of_class, id=item.nodeid)


def _group(step: str, chain: Chain) -> str:
    item = next(iter(chain.items[step].values()))
    mark = item.get_closest_marker("benchmark")
    group: str = (mark.kwargs.get("group") if mark else None) or step
    return group
