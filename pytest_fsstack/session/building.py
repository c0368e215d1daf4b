"""Devices, stacks and settings of the machine during a session."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from pytest_fsstack import options
from pytest_fsstack.units import reason_of

if TYPE_CHECKING:
    from pytest_fsstack.guard import Refused
    from pytest_fsstack.machine.journal import Journal
    from pytest_fsstack.machine.real import RealMachine
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.rounds.chains import StackParameter
    from pytest_fsstack.stack.build import Built
    from pytest_fsstack.stack.model import Device


#: Seconds between two looks at a device that another session holds.
_POLL = 0.5


class Builder:
    """`notify` shows a line among the progress of the tests."""

    def __init__(self, config: pytest.Config, settings: Settings, tell: Callable[[str], None]) -> None:
        self._config, self._settings, self.notify = config, settings, tell
        self._undo, self._process = ExitStack(), os.getpid()
        #: The devices that were looked at, and why they are refused.
        self._held: dict[Device, Refused | None] = {}
        #: Where the stack that stands is mounted, and the commands that built it.
        self.mounts: list[str] = []
        self.commands: list[str] = []
        self._cleaned_up = False

    @cached_property
    def machine(self) -> RealMachine:
        from pytest_fsstack.machine.real import RealMachine

        return RealMachine()

    @cached_property
    def journal(self) -> Journal:
        from pytest_fsstack.machine.journal import Journal, default_directory

        return Journal(default_directory(), self.machine)

    def set_governor(self) -> None:
        """Set the frequency governor for the whole session. Raises `pytest.UsageError`."""
        governor = self._settings.governor
        assert governor is not None
        if lack := governor.missing():
            source = options.given_for(self._config, "governor")
            raise pytest.UsageError(f"{source.where if source else '--fsstack-governor'}: {lack}")
        try:
            self._undo.enter_context(governor.applied(self.journal))
        except OSError as error:
            raise pytest.UsageError(f"--fsstack-governor: {error}") from None

    def hold_all(self, devices: Iterable[Device]) -> None:
        """Before round 1, say which devices these are and refuse what must not be overwritten.

        Raises `pytest.UsageError`.
        """
        from pytest_fsstack.devices import disks_of
        from pytest_fsstack.guard import Refused
        from pytest_fsstack.machine.needs import missing

        different = {member for device in devices for member in device.members}
        if disks_of(different):
            # What a killed session left on a disk, or holding it, would be a reason to refuse it.
            self._clean_up()
        for device in sorted(different, key=lambda device: device.spec):
            if missing(device.needs()):
                continue  # its tests are skipped, and say so
            try:
                self._hold_when_free(device)
            except Refused as refused:
                raise pytest.UsageError(f"--fsstack-device: {refused}") from None

    def try_settings(self, parameters: Iterable[StackParameter]) -> None:
        """Before round 1, set what stacks ask for and set it back. Raises `pytest.UsageError` for what is refused.

        What is of a device that a layer makes is not tried: that device is not there yet.
        """
        from pytest_fsstack.machine import signals
        from pytest_fsstack.machine.needs import missing
        from pytest_fsstack.stack.tuning import Tuning

        stacks = {(each.stack.settings, each.device): each.stack for each in parameters if each.stack.settings}
        for (settings, device), stack in stacks.items():
            if missing([*device.needs(), *stack.needs()]):
                continue  # its tests are skipped, and say so
            self._clean_up()
            with signals.during(signals.State.BUILDING), ExitStack() as undo:
                tuning = Tuning(settings, self._settings.queue, self.journal)
                try:
                    disks = undo.enter_context(self._like(device))
                    undo.enter_context(tuning.bottom(*disks[: stack.members], topmost=not stack.has_block_layer))
                except OSError as error:
                    raise pytest.UsageError(f"{stack}: {reason_of(error)}") from None

    @contextlib.contextmanager
    def _like(self, device: Device) -> Iterator[list[Path]]:
        """Return block devices whose queues take what those of a device take; none for a directory."""
        import tempfile

        from pytest_fsstack.devices import DirectoryDevice, disks_of

        if isinstance(device, DirectoryDevice) or disks_of([device]):
            yield [disk.path for disk in disks_of([device])]
            return
        with tempfile.TemporaryFile(dir=self._settings.directory) as image:
            image.truncate(1 << 20)
            with self.machine.attached(image.fileno()) as loop:
                yield [loop.path]

    def _hold_when_free(self, device: Device) -> None:
        """Hold a device as soon as no other session does, within --fsstack-wait. Raises `guard.Refused`."""
        from pytest_fsstack.guard import InUse, Refused

        wait, start, holders = self._settings.wait, time.monotonic(), ""
        while True:
            waited = time.monotonic() - start
            try:
                self._hold(device)
                break
            except InUse as refused:
                if waited >= wait:
                    raise
                if refused.holders != holders:
                    self.notify(f"waiting up to {wait - waited:.0f} s for {device.spec}: {refused.holders} has it")
                holders = refused.holders
                time.sleep(min(_POLL, wait - waited))
            except Refused:
                if not holders:
                    raise
                # The session that had it may have been killed.
                holders, self._cleaned_up = "", False
                self._clean_up()
            del self._held[device]
        if waited > _POLL:
            self.notify(f"{device.spec} is free after {waited:.0f} s")

    def _hold(self, device: Device) -> None:
        """Hold this very device until the end of the session. Raises `guard.Refused`."""
        from pytest_fsstack.guard import Refused

        if device not in self._held:
            try:
                self._undo.enter_context(device.held())
            except Refused as refused:
                self._held[device] = refused
            else:
                self._held[device] = None
        if refusal := self._held[device]:
            raise refusal

    def _clean_up(self) -> None:
        """Once a session."""
        from pytest_fsstack.session import cleanup

        if not self._cleaned_up:
            self._cleaned_up = True
            self.notify(cleanup.at_the_start(self._config, self._settings.devices))

    def require(self, parameter: StackParameter) -> None:
        """Skip or fail the test if something is missing that its stack needs."""
        from pytest_fsstack.machine.needs import load, missing

        governor = [self._settings.governor] if self._settings.governor else []
        needs = [*parameter.device.needs(), *parameter.stack.needs(), *governor]
        if reasons := missing(needs):
            say = pytest.fail if self._settings.missing_fails else pytest.skip
            say(f"{parameter.id} on {parameter.device.spec}: {'; '.join(reasons)}")
        load(needs)

    def prepare(self) -> None:
        """Before the first stack: mounts of our own, nothing left of killed sessions, and a mark to find ours by."""
        from pytest_fsstack.machine import mounts, orphans, processes, resident

        private = mounts.private_namespace()
        self._clean_up()
        try:
            self._undo.enter_context(orphans.marked(self.journal, private=private))
        except OSError as error:
            pytest.fail(f"the journal cannot be written ({reason_of(error)})", pytrace=False)
        self._undo.enter_context(processes.watched(orphans.VARIABLE))
        # All stacks need them, and no layer names them. After a cold start each of them took 20 ms to load.
        for command in "mount", "umount":
            resident.keep(command)

    @contextlib.contextmanager
    def built(self, parameter: StackParameter, parent: Path) -> Iterator[Built]:
        """Build a stack for the time of a test or a class, in a directory in `parent`. Fails the test if it cannot."""
        from pytest_fsstack.guard import Refused
        from pytest_fsstack.machine import commands, directories, signals
        from pytest_fsstack.machine.descriptors import opened
        from pytest_fsstack.machine.processes import end_if_forked, undumpable
        from pytest_fsstack.machine.signals import State
        from pytest_fsstack.stack.build import BuildError, build
        from pytest_fsstack.stack.model import BuildContext

        undo, owner = ExitStack(), os.getpid()
        try:
            with signals.during(State.BUILDING):
                start = undo.enter_context(opened(".", os.O_PATH | os.O_DIRECTORY))
                for member in parameter.device.members:
                    self._hold(member)
                undo.enter_context(undumpable())
                place = undo.enter_context(directories.workplace(parent, self.journal))
                context = BuildContext(
                    place.files,
                    self.journal,
                    queue=self._settings.queue,
                    mountpoints=place.mountpoints,
                    tell=self.notify,
                )
                with commands.noted() as self.commands:
                    built = undo.enter_context(build(parameter.stack, parameter.device, context))
        except (BuildError, Refused, commands.CommandError, OSError) as error:
            _close(undo)
            fail(error)
        except BaseException:
            _close(undo)
            raise
        self.mounts = built.mounts()
        try:
            yield built
        finally:
            end_if_forked(owner)
            _leave([place.files, place.mountpoints, built.bottom.path], start)
            if problem := _close(undo):
                fail(problem)

    def close(self) -> list[str]:
        """Undo what is for the whole session. Returns what could not be undone in it."""
        if os.getpid() != self._process:
            return []  # a forked child, which ends by itself
        self._undo.close()
        return self.journal.close() if "journal" in self.__dict__ else []


def _leave(places: Iterable[Path], start: int) -> None:
    """Go back where the test began, if its working directory is in the stack: that would keep it in use."""
    directory = Path(os.readlink("/proc/self/cwd"))
    if any(directory.is_relative_to(place.resolve()) for place in places):
        os.fchdir(start)


def _close(undo: ExitStack) -> Exception | None:
    """Undo, whatever comes; what went wrong."""
    from pytest_fsstack.machine import signals

    with signals.during(signals.State.UNDOING):
        try:
            undo.close()
        except Exception as error:
            return error
    return None


def fail(error: Exception) -> NoReturn:
    """Fail the test with what an error says, once: without the errors that led to it."""
    raise pytest.fail.Exception(str(error), pytrace=False) from None
