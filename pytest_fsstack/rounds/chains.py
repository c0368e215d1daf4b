"""Chains of tests: the items of each stack, and the groups of items that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_fsstack.rounds.protocol import Phase, Run, again, phases_of

if TYPE_CHECKING:
    from pytest_fsstack.judging.repetition import Wish
    from pytest_fsstack.stack.model import Device, Stack


@dataclass(frozen=True)
class StackParameter:
    """The parameter of the `fsstack` fixture: a stack on a device, and the id of the stack that it is compared with."""

    stack: Stack
    device: Device
    baseline: str
    #: As it stands in the names of tests: the stack's id, and the device's where there are several.
    test_id: str
    #: Whether it is the baseline a second time, which must not differ from it.
    control: bool = False

    def __hash__(self) -> int:
        # pytest puts it into dictionaries, several times for each test; all of its fields would be hashed each time.
        return hash(self.test_id)

    @cached_property
    def id(self) -> str:
        return self.stack.id

    @cached_property
    def value(self) -> Any:
        """The value for `parametrize`, shared by all tests. There may be thousands."""
        return pytest.param(self, id=self.test_id)


@dataclass
class ItemOutcome:
    """The outcome of an item over all rounds: its last run, or the one in which it ended."""

    run: Run | None = None
    #: What its calls took in all rounds.
    seconds: float = 0.0
    #: What tearing down the fixtures of the chain raised.
    torn_down: list[pytest.CallInfo[None]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return self.run is not None and self.run.failed

    @property
    def ended(self) -> bool:
        """Whether it raised, so that there is nothing to judge."""
        return self.run is not None and self.run.raised

    def add(self, run: Run) -> None:
        self.run = run
        call = run.calls.get("call")
        self.seconds += call.duration if call else 0.0

    def add_teardown(self, call: pytest.CallInfo[None]) -> None:
        self.torn_down.append(call)

    def phases(self) -> list[Phase]:
        """Return the phases to report, in order."""
        own = phases_of(self.run) if self.run is not None else []
        return [*own, *(Phase("teardown", again(call)) for call in self.torn_down)]


@dataclass(eq=False)
class Chain:
    """The items of one chain on one device, by step and stack id: the selected ones and those that they stand on.

    `parent` is the collector around the chain: what a stack's fixtures are torn down to.
    """

    id: str
    device: Device
    baseline: str
    parent: pytest.Item | pytest.Collector
    stacks: dict[str, StackParameter] = field(default_factory=dict)
    #: The stack that is the baseline a second time; empty if there is none.
    control: str = ""
    items: dict[str, dict[str, pytest.Item]] = field(default_factory=dict)
    selected: set[pytest.Item] = field(default_factory=set)
    #: Whether a test among them measures; other chains run as pytest runs them.
    timed: bool = False
    done: bool = False
    outcomes: dict[pytest.Item, ItemOutcome] = field(default_factory=dict)

    def add(self, step: str, parameter: StackParameter, item: pytest.Item, selected: bool) -> None:
        if step not in self.items:
            self.items[step] = {}
            # On other stacks the test has the same marks.
            self.timed = self.timed or measures(item)
        self.stacks.setdefault(parameter.id, parameter)
        if parameter.control:
            self.control = parameter.id
        self.items[step].setdefault(parameter.id, item)
        if selected:
            self.selected.add(item)

    @property
    def steps(self) -> list[str]:
        return list(self.items)

    def examples(self) -> Iterable[pytest.Item]:
        """One selected item of each step, for its marks."""
        return [items[-1] for step in self.items if (items := self._selected(step))]

    def of_step(self, example: pytest.Item) -> list[pytest.Item]:
        """The selected items of the step that an item stands for, on all stacks."""
        return self._selected(self.step(example))

    def _selected(self, step: str) -> list[pytest.Item]:
        return [item for item in self.items[step].values() if item in self.selected]

    def members(self) -> Iterator[tuple[str, str, pytest.Item]]:
        """Step, stack id and item."""
        for step, items in self.items.items():
            for stack, item in items.items():
                yield step, stack, item

    def needed(self, stack: str) -> list[tuple[str, pytest.Item]]:
        """The steps that must run on a stack: all up to the last one of which somebody wants to know."""
        wanted = list(self.stacks) if stack in (self.baseline, self.control) else [stack]
        last = max(
            (
                index
                for index, items in enumerate(self.items.values())
                if any(of in wanted and item in self.selected for of, item in items.items())
            ),
            default=-1,
        )
        steps = list(self.items.items())[: last + 1]
        return [(step, items[stack]) for step, items in steps if stack in items]

    def wishes(self) -> dict[str, Wish]:
        """Return the wished numbers of runs in each round, only of steps with a wish."""
        wishes = {self.step(item): wish_of(item) for item in self.examples()}
        return {step: wish for step, wish in wishes.items() if wish != 1}

    def step(self, item: pytest.Item) -> str:
        """The step that an item is."""
        return next(step for step, _, other in self.members() if other is item)


def measures(item: pytest.Item) -> bool:
    """Whether a test measures, or says that it does: by a fixture that does, a budget or the mark of a benchmark."""
    marks = (item.get_closest_marker(name) for name in ("benchmark", "fsstack_budget"))
    return any(marks) or not {"timed", "benchmark"}.isdisjoint(getattr(item, "fixturenames", ()))


def wish_of(item: pytest.Item) -> Wish:
    """Return the wished number of runs of a test in each round. A mark on a class applies to its tests with `timed`."""
    mark = item.get_closest_marker("fsstack_repeat")
    if mark is None or "timed" not in getattr(item, "fixturenames", ()):
        return 1
    wish: Wish = mark.args[0]
    return wish


def parameter_of(item: pytest.Item) -> StackParameter | None:
    """The stack that an item is parametrized with, if it is."""
    callspec = getattr(item, "callspec", None)
    parameter = callspec.params.get("fsstack") if callspec else None
    return parameter if isinstance(parameter, StackParameter) else None


def plain_name(item: pytest.Function) -> str:
    """The name of the item's function without ``test_``."""
    return item.originalname.removeprefix("test_")


def step_of(item: pytest.Function, parameter: StackParameter) -> str:
    """The item's name without ``test_``, the stack and the class's parameters: ``untar``, ``write[4k]``."""
    name = plain_name(item)
    if item.callspec.id == parameter.test_id:
        return name
    words = f"-{item.callspec.id}-"
    # There is a chain for each value of the class's parameters, so that its steps need not name it.
    for part in filter(None, (parameter.test_id, _words_of_class(item))):
        words = words.replace(f"-{part}-", "-", 1)
    return f"{name}[{inner}]" if (inner := words.strip("-")) else name


def chains_of(
    known: Iterable[pytest.Item], selected: Iterable[pytest.Item], complete: bool
) -> dict[pytest.Item, Chain]:
    """The group of every selected item. `known` are the collected items, deselected ones included.

    Where the session did not collect everything (`complete` is false: node ids, --last-failed), the parents are asked
    for the items that the selected ones stand on.
    """
    # By identity, because pytest computes the hash of an item in Python, and there may be thousands.
    selected_by_id = {id(item): item for item in selected}
    ordered = {id(item): item for item in known} | selected_by_id
    if not complete:
        # The siblings come first, because their order is that of the file, and so that of the steps.
        names = {item.nodeid: item for item in ordered.values()}
        standing = [item for item in selected_by_id.values() if parameter_of(item)]
        siblings = [names.get(item.nodeid, item) for item in _siblings(standing)]
        ordered = {id(item): item for item in siblings} | ordered
    places = _Places()
    chains: dict[tuple[str, str], Chain] = {}
    of: dict[int, Chain] = {}
    for number, item in ordered.items():
        if parameter := parameter_of(item):
            place = places.of(item, parameter)
            key = place.chain, parameter.device.id
            if key not in chains:
                chains[key] = _new_chain(place.chain, item, parameter)
            of[number] = chains[key]
            chains[key].add(place.step, parameter, item, selected=number in selected_by_id)
    return {item: of[number] for number, item in selected_by_id.items() if number in of}


class Membership(NamedTuple):
    """The step that an item is, and of which chain."""

    step: str
    chain: str


class _Places:
    """The memberships of items, found once for all items that differ only in the stack. There may be thousands."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Membership] = {}

    def of(self, item: pytest.Item, parameter: StackParameter) -> Membership:
        assert isinstance(item, pytest.Function)
        if item.callspec.id != parameter.test_id:
            return _place(item, parameter)
        key = id(item.parent), item.originalname
        if key not in self._known:
            self._known[key] = _place(item, parameter)
        return self._known[key]


def _place(item: pytest.Function, parameter: StackParameter) -> Membership:
    step, parent = step_of(item, parameter), item.parent
    assert parent is not None
    if not isinstance(parent, pytest.Class):
        return Membership(step, f"{parent.nodeid}::{item.originalname}{step.removeprefix(plain_name(item))}")
    words = _words_of_class(item)
    return Membership(step, f"{parent.nodeid}[{words}]" if words else parent.nodeid)


def _new_chain(name: str, item: pytest.Item, parameter: StackParameter) -> Chain:
    top = item.parent if isinstance(item.parent, pytest.Class) else item
    assert top is not None
    assert top.parent is not None
    return Chain(name, parameter.device, parameter.baseline, top.parent)


def _words_of_class(item: pytest.Function) -> str:
    """The values of the parameters that a class has for all of its tests, as pytest writes them; empty if none."""
    words = []
    for mark in item.parent.iter_markers("parametrize") if isinstance(item.parent, pytest.Class) else ():
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        for name in names.replace(",", " ").split() if isinstance(names, str) else names:
            value, index = item.callspec.params.get(name), item.callspec.indices.get(name, 0)
            words.append(str(value) if isinstance(value, str | int | float | None) else f"{name}{index}")
    return "-".join(words)


def _siblings(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    for parent in dict.fromkeys(item.parent for item in items):
        # Past the collector's own `collect`, which would register its setup functions a second time.
        if isinstance(parent, pytest.Class):
            nodes = super(pytest.Class, parent).collect()
        elif isinstance(parent, pytest.Module):
            nodes = super(pytest.Module, parent).collect()
        else:
            continue
        yield from (node for node in nodes if isinstance(node, pytest.Item))
