"""Chains of tests: groups of items that run in order on the same stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack.rounds.protocol import Phase, Run, phases_of, raising_again

if TYPE_CHECKING:
    from pytest_fsstack.judging.repetition import RepeatCount
    from pytest_fsstack.machine.needs import Need
    from pytest_fsstack.records.sample import Metric
    from pytest_fsstack.stack.model import Device, Stack


#: At the node of a class: the parameters of fixtures that all of its tests share.
SHARED: pytest.StashKey[list[str]] = pytest.StashKey()


@dataclass(frozen=True)
class StackParameter:
    """The parameter of the `fsstack` fixture: a stack on a device, and the id of the reference stack."""

    stack: Stack
    device: Device
    baseline: str
    #: The id in the names of tests: the stack's, and the device's if there are several devices.
    test_id: str
    #: Whether the device can hold the stack.
    fits: Need
    #: Whether this is the control: a second copy of the baseline, which must not differ from it.
    control: bool = False

    def __hash__(self) -> int:
        # pytest hashes parameters several times for each test. Hashing all fields would be slow.
        return hash(self.test_id)

    @cached_property
    def id(self) -> str:
        return self.stack.id

    def needs(self) -> list[Need]:
        """Return the requirements of the device, of the stack, and of the stack on this device."""
        return [*self.device.needs(), self.fits, *self.stack.needs()]

    @cached_property
    def value(self) -> Any:
        """Return the value for `parametrize`. All tests share it, because there may be thousands."""
        return pytest.param(self, id=self.test_id)


@dataclass
class ItemRuns:
    """The runs of an item in all rounds: the last one, or the one that ended it, and the duration of all."""

    run: Run | None = None
    #: The total duration of its calls.
    seconds: float = 0.0
    #: Errors of the chain's fixtures during teardown.
    torn_down: list[pytest.CallInfo[None]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the item raised an exception, so there is nothing to judge."""
        return self.run is not None and self.run.raised

    def add(self, run: Run) -> None:
        self.run = run
        call = run.calls.get("call")
        self.seconds += call.duration if call else 0.0

    def phases(self) -> list[Phase]:
        """Return the phases to report, in order."""
        own = phases_of(self.run) if self.run is not None else []
        return [*own, *self.teardowns()]

    def teardowns(self) -> list[Phase]:
        """Return a phase for each error of the chain's fixtures during teardown."""
        return [Phase("teardown", raising_again(call)) for call in self.torn_down]


@dataclass(eq=False)
class Chain:
    """The items of one chain on one device, by step and stack id: selected items and the items that they depend on.

    `parent` is the collector around the chain. Fixtures of a stack are torn down up to it.
    """

    id: str
    device: Device
    baseline: str
    parent: pytest.Item | pytest.Collector
    stacks: dict[str, StackParameter] = field(default_factory=dict)
    #: The control, a second copy of the baseline. Empty if there is none.
    control: str = ""
    items: dict[str, dict[str, pytest.Item]] = field(default_factory=dict)
    selected: set[pytest.Item] = field(default_factory=set)
    #: Whether any of the tests measures. Other chains run without rounds.
    timed: bool = False
    has_run: bool = False
    #: By step, the metrics that its workloads have recorded on any stack in any round.
    metrics: dict[str, dict[str, Metric]] = field(default_factory=dict)
    runs: dict[pytest.Item, ItemRuns] = field(default_factory=dict)

    def add(self, step: str, parameter: StackParameter, item: pytest.Item, selected: bool) -> None:
        if step not in self.items:
            self.items[step] = {}
            # The same test on other stacks has the same marks.
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
        """Yield one selected item of each step, to read its marks."""
        return [items[-1] for step in self.items if (items := self._selected(step))]

    def of_step(self, example: pytest.Item) -> list[pytest.Item]:
        """Return the selected items of an item's step, on all stacks."""
        return self._selected(self.step(example))

    def _selected(self, step: str) -> list[pytest.Item]:
        return [item for item in self.items[step].values() if item in self.selected]

    def members(self) -> Iterator[tuple[str, str, pytest.Item]]:
        """Yield step, stack id and item."""
        for step, items in self.items.items():
            for stack, item in items.items():
                yield step, stack, item

    def required_steps(self, stack: str) -> list[tuple[str, pytest.Item]]:
        """Return the steps that must run on a stack: all up to the last selected one."""
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

    @property
    def comparisons(self) -> int:
        """Return the number of selected tests that are compared with the baseline."""
        return sum(item in self.selected and stack != self.baseline for _, stack, item in self.members())

    def repeats(self) -> dict[str, RepeatCount]:
        """Return how often steps should run in a round, for steps with such a mark."""
        repeats = {self.step(item): repeat_of(item) for item in self.examples()}
        return {step: repeat for step, repeat in repeats.items() if repeat != 1}

    def step(self, item: pytest.Item) -> str:
        """Return the step of an item."""
        return next(step for step, _, other in self.members() if other is item)


def measures(item: pytest.Item) -> bool:
    """Whether a test measures: it has a measuring fixture, a budget, or the mark of a benchmark."""
    marks = (item.get_closest_marker(name) for name in ("benchmark", "fsstack_budget"))
    return any(marks) or measures_by_fixture(item)


def measures_by_fixture(item: pytest.Item) -> bool:
    return not {"timed", "benchmark"}.isdisjoint(getattr(item, "fixturenames", ()))


def repeat_of(item: pytest.Item) -> RepeatCount:
    """Return how often a test should run in each round. A mark on a class applies to its tests with `timed`."""
    mark = item.get_closest_marker("fsstack_repeat")
    if mark is None or "timed" not in getattr(item, "fixturenames", ()):
        return 1
    repeat: RepeatCount = mark.args[0]
    return repeat


def parameter_of(item: pytest.Item) -> StackParameter | None:
    """Return the stack parameter of an item, or None."""
    callspec = getattr(item, "callspec", None)
    parameter = callspec.params.get("fsstack") if callspec else None
    return parameter if isinstance(parameter, StackParameter) else None


def plain_name(item: pytest.Function) -> str:
    """Return the name of an item's function without ``test_``."""
    return item.originalname.removeprefix("test_")


def step_of(item: pytest.Function, parameter: StackParameter) -> str:
    """Return an item's name without ``test_``, its stack and its class's parameters: ``untar``, ``write[4k]``."""
    name = plain_name(item)
    if item.callspec.id == parameter.test_id:
        return name
    words = f"-{item.callspec.id}-"
    # Each value of a class's parameters has its own chain, so steps do not repeat it.
    for part in filter(None, (parameter.test_id, *_words_of_class(item))):
        words = words.replace(f"-{part}-", "-", 1)
    return f"{name}[{inner}]" if (inner := words.strip("-")) else name


def chains_of(
    known: Iterable[pytest.Item], selected: Iterable[pytest.Item], complete: bool
) -> dict[pytest.Item, Chain]:
    """Return the chain of every selected item. `known` are all collected items, including deselected ones.

    If only a part was collected (`complete` is false: node ids, --last-failed), collect the siblings that selected
    items depend on.
    """
    # By identity: pytest computes the hash of an item in Python, and there may be thousands.
    selected_by_id = {id(item): item for item in selected}
    ordered = {id(item): item for item in known} | selected_by_id
    if not complete:
        # Siblings first: they are in the order of the file, which is the order of the steps.
        names = {item.nodeid: item for item in ordered.values()}
        standing = [item for item in selected_by_id.values() if parameter_of(item)]
        siblings = [names.get(item.nodeid, item) for item in _siblings(standing)]
        ordered = {id(item): item for item in siblings} | ordered
    _find_shared(ordered.values())
    chains: dict[tuple[str, str], Chain] = {}
    of: dict[int, Chain] = {}
    for number, item in ordered.items():
        if parameter := parameter_of(item):
            assert isinstance(item, pytest.Function)
            step = step_of(item, parameter)
            key = _chain_id(item, step), parameter.device.id
            if key not in chains:
                chains[key] = _new_chain(key[0], item, parameter)
            of[number] = chains[key]
            chains[key].add(step, parameter, item, selected=number in selected_by_id)
    return {item: of[number] for number, item in selected_by_id.items() if number in of}


def _chain_id(item: pytest.Function, step: str) -> str:
    """Return the id of an item's chain: that of its class with its parameters, or of the test itself."""
    assert item.parent is not None
    if not isinstance(item.parent, pytest.Class):
        return f"{item.parent.nodeid}::{item.originalname}{step.removeprefix(plain_name(item))}"
    words = "-".join(_words_of_class(item))
    return f"{item.parent.nodeid}[{words}]" if words else item.parent.nodeid


def _new_chain(name: str, item: pytest.Item, parameter: StackParameter) -> Chain:
    top = item.parent if isinstance(item.parent, pytest.Class) else item
    assert top is not None
    assert top.parent is not None
    return Chain(name, parameter.device, parameter.baseline, top.parent)


def _words_of_class(item: pytest.Function) -> list[str]:
    """Return the values of a class's own parameters as one text, as in the ids of tests, then those of shared fixtures.

    In an id, those of fixtures stand elsewhere.
    """
    if not isinstance(item.parent, pytest.Class):
        return []
    own = list(_parameters_of(item.parent))
    shared = [[name] for name in item.parent.stash.get(SHARED, ()) if name not in own]
    return ["-".join(_word(item, name) for name in names) for names in (own, *shared) if names]


def _word(item: pytest.Function, name: str) -> str:
    value, index = item.callspec.params.get(name), item.callspec.indices.get(name, 0)
    return str(value) if isinstance(value, str | int | float | None) else f"{name}{index}"


def _parameters_of(parent: pytest.Class) -> Iterator[str]:
    """Yield the names of a class's own parameters."""
    for mark in parent.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        yield from names.replace(",", " ").split() if isinstance(names, str) else names


def _find_shared(items: Iterable[pytest.Item]) -> None:
    """Find the parameters of fixtures that all tests of a class share, with a value for the whole class or more.

    pytest runs all tests of the class with one value, then all with the next one.
    """
    for item in items:
        if parameter_of(item) and isinstance(item, pytest.Function) and isinstance(item.parent, pytest.Class):
            scopes = item.callspec._arg2scope.items()
            names = [name for name, scope in scopes if name != "fsstack" and scope.value != "function"]
            known = item.parent.stash.setdefault(SHARED, names)
            item.parent.stash[SHARED] = [name for name in known if name in names]


def _siblings(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    for parent in dict.fromkeys(item.parent for item in items):
        # Skip the collector's own `collect`, which would register its setup functions twice.
        if isinstance(parent, pytest.Class):
            nodes = super(pytest.Class, parent).collect()
        elif isinstance(parent, pytest.Module):
            nodes = super(pytest.Module, parent).collect()
        else:
            continue
        yield from (node for node in nodes if isinstance(node, pytest.Item))
