"""The stacks and devices that tests are parametrized with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.rounds.marks import Mistakes, check_arguments

if TYPE_CHECKING:
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.rounds.chains import StackParameter
    from pytest_fsstack.stack.model import Device, Stack

#: The id of the control (the second copy of the baseline).
CONTROL = "control"

NO_STACKS = (
    "uses fsstack, but there are no stacks to run it on: mark it with @pytest.mark.fsstack('ext4', 'luks | ext4'), or "
    "give --fsstack-stacks or the ini option fsstack_stacks"
)

NOT_AN_ARGUMENT = (
    "got no stack, because fsstack (or timed) is not an argument of the test: make it one, of a function or of a "
    "method in a plain class; tests in a unittest.TestCase and request.getfixturevalue() cannot be given stacks"
)


class Parameters:
    """The parameters of all tests. Each marker is parsed once, however many tests it applies to."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self._read_already: dict[object, list[StackParameter]] = {}
        #: Tests without any choice of stacks.
        self._without_stacks: set[str] = set()

    def __iter__(self) -> Iterator[StackParameter]:
        """Yield the parameters of all collected tests."""
        for parameters in self._read_already.values():
            yield from parameters

    def of(self, definition: pytest.Item, mistakes: Mistakes) -> list[StackParameter] | None:
        """Return the stacks of a test on each device, or None if none are chosen. Only this test then fails."""
        mark = definition.get_closest_marker("fsstack")
        if not self._settings.stacks and mark is None:
            self._without_stacks.add(definition.nodeid)
            return None
        try:
            check_arguments(mark)
            key = None if mark is None else (mark.args, tuple(mark.kwargs.items()))
            if key not in self._read_already:
                self._read_already[key] = self._read(mark)
        except (ValueError, TypeError) as error:
            mistakes.add(str(error), definition)
            return []
        return self._read_already[key]

    def why_without_stack(self) -> str:
        """Return why the running test has no stack."""
        running = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        return NO_STACKS if running.partition("[")[0] in self._without_stacks else NOT_AN_ARGUMENT

    def _read(self, mark: pytest.Mark | None) -> list[StackParameter]:
        from pytest_fsstack.rounds.chains import StackParameter
        from pytest_fsstack.stack.model import Fits

        texts, baseline = self._stacks_of(mark)
        stacks = [stack for stack, _ in texts]
        ids = [stack.id for stack in stacks]
        if self._settings.control and CONTROL in ids:
            raise ValueError(f"--fsstack-control: a stack of the tests is called {CONTROL!r}; give it another name")
        if twice := next((name for name in ids if ids.count(name) > 1), None):
            raise ValueError(
                f"two stacks are called {twice!r}: give one a name, as in 'other = {stacks[ids.index(twice)]}'"
            )
        devices = self._devices_for(stacks)
        on = {device: [self._fit_layers(stack, text, device, mark) for stack, text in texts] for device in devices}
        # Ids take precedence, because several named stacks may have the same text.
        names = {name: stack.id for stack in stacks for name in (str(stack), stack.spec)} | {name: name for name in ids}
        if baseline is not None and baseline not in names:
            raise ValueError(f"the baseline {baseline!r} is none of the stacks: {', '.join(ids)}")
        baseline_id = names[baseline] if baseline is not None else ids[0]
        kernel = options.worker_input(self._config).get("kernel")

        def test_id(stack: Stack, device: Device) -> str:
            return ":".join([stack.id, *([device.id] if len(devices) > 1 else []), *([kernel] if kernel else [])])

        def parameter(stack: Stack, device: Device, control: bool = False) -> StackParameter:
            fits = Fits(stack, device, self._settings.known)
            return StackParameter(stack, device, baseline_id, test_id(stack, device), fits, control)

        parameters = [parameter(stack, device) for device in devices for stack in on[device]]
        if self._settings.control:
            baselines = [(candidate.stack, candidate.device) for candidate in parameters if candidate.id == baseline_id]
            parameters += [parameter(replace(stack, name=CONTROL), device, control=True) for stack, device in baselines]
        return parameters

    def _devices_for(self, stacks: list[Stack]) -> tuple[Device, ...]:
        """Return the devices for the stacks, as one group if every stack needs exactly that many."""
        from pytest_fsstack.devices import DeviceGroup, disks_of

        devices = self._settings.devices
        disks = tuple(device for device in devices if device in disks_of([device]))
        if len(disks) > 1 and {stack.members for stack in stacks} == {len(devices)} == {len(disks)}:
            return (DeviceGroup(tuple(disks_of(disks))),)
        return devices

    def _fit_layers(self, stack: Stack, text: str, device: Device, mark: pytest.Mark | None) -> Stack:
        """Apply the marker's `below` and `on` to a stack on a device. Its id stays.

        Raises `SpecError` if a stack of the command line does not fit the device. Tests of other stacks are skipped.
        """
        from pytest_fsstack.stack.model import Stack

        words, layers = mark.kwargs if mark is not None else {}, self._settings.known
        below, on = words.get("below"), words.get("on")
        if below and not self._settings.stacks_replace and device.gives not in stack.layers[0].takes:
            text = f"{below} | {stack.spec}"
            stack = replace(Stack.parse(text, layers), name=stack.id)
        if on and Stack.parse(on, layers).layers[0].name not in [layer.name for layer in stack.layers]:
            text = f"{on} | {stack.spec}"
            stack = replace(Stack.parse(text, layers), name=stack.id)
        if self._settings.stacks_replace:
            stack.check_device(device, layers, text)
        return stack

    def _stacks_of(self, mark: pytest.Mark | None) -> tuple[list[tuple[Stack, str]], str | None]:
        """Return the stacks with their texts, and the baseline's name: from the command line, the marker or the ini."""
        from pytest_fsstack.stack.model import Stack

        settings = self._settings
        if settings.stacks_replace or mark is None:
            if not settings.stacks:
                raise ValueError(NO_STACKS)
            return [(stack, str(stack)) for stack in settings.stacks] + self._stacks_to_keep(mark), settings.baseline
        if not mark.args:
            raise ValueError(NO_STACKS)
        stacks = [(Stack.parse(text, settings.known), text) for text in mark.args]
        return stacks, settings.baseline or mark.kwargs.get("baseline")

    def _stacks_to_keep(self, mark: pytest.Mark | None) -> list[tuple[Stack, str]]:
        """Return the marker's stacks that `keep` adds to those of the command line, without duplicate ids."""
        from pytest_fsstack.stack.model import Stack

        names = mark.kwargs.get("keep", ()) if mark is not None else ()
        if mark is None or not names:
            return []
        marked = {Stack.parse(text, self._settings.known).id: text for text in mark.args}
        if unknown := [name for name in names if name not in marked]:
            raise ValueError(f"keep={unknown[0]!r} is none of the stacks: {', '.join(marked)}")
        replaced = {stack.id for stack in self._settings.stacks}
        return [
            (Stack.parse(marked[name], self._settings.known), marked[name]) for name in names if name not in replaced
        ]
