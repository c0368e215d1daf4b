"""Build stacks during a session: hold devices, apply settings, clean up."""

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

from pytest_fsstack.units import reason_of

if TYPE_CHECKING:
    from pytest_fsstack.machine.guard import Refused
    from pytest_fsstack.machine.journal import Journal
    from pytest_fsstack.machine.real import RealMachine
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.rounds.chains import StackParameter
    from pytest_fsstack.stack.build import Built, LayerAction
    from pytest_fsstack.stack.model import Device


#: Seconds between attempts to get a device from another session.
_POLL = 0.5


class Builder:
    """A builder of stacks for one session. `notify` prints a line between tests."""

    def __init__(self, config: pytest.Config, settings: Settings, notify: Callable[[str], None]) -> None:
        self._config, self._settings, self.notify = config, settings, notify
        self._undo, self._process = ExitStack(), os.getpid()
        #: Checked devices, with the reason for a refusal.
        self._held: dict[Device, Refused | None] = {}
        #: Mounts of the current stack, and the commands that built it.
        self.mounts: list[str] = []
        self.commands: list[str] = []
        #: The seconds of actions on its layers so far.
        self.seconds: dict[LayerAction, float] = {}
        self._cleaned_up = False
        #: The stack that stands, if there is one.
        self._standing: Built | None = None

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
            raise pytest.UsageError(f"{self._settings.origin('governor')}: {lack}")
        try:
            self._undo.enter_context(governor.applied(self.journal))
        except OSError as error:
            raise pytest.UsageError(f"--fsstack-governor: {error}") from None

    def hold_all(self, devices: Iterable[Device]) -> None:
        """Check all devices before round 1, and refuse those that must not be overwritten.

        Raises `pytest.UsageError`.
        """
        from pytest_fsstack.devices import disks_of
        from pytest_fsstack.machine.guard import Refused
        from pytest_fsstack.machine.needs import missing

        different = {member for device in devices for member in device.members}
        if disks_of(different):
            # Leftovers of a killed session would be a reason to refuse a disk.
            self._clean_up()
        for device in sorted(different, key=lambda device: device.spec):
            if missing(device.needs()):
                continue  # its tests are skipped with the reason
            try:
                self._hold_when_free(device)
            except Refused as refused:
                raise pytest.UsageError(f"--fsstack-device: {refused}") from None

    def try_settings(self, parameters: Iterable[StackParameter]) -> None:
        """Apply and undo the settings of all stacks before round 1. Raises `pytest.UsageError` if one is refused.

        Settings of devices that layers create cannot be tried yet.
        """
        from pytest_fsstack.machine import signals
        from pytest_fsstack.machine.needs import missing
        from pytest_fsstack.stack.tuning import Tuning

        different = {(each.stack.settings, each.device): each for each in parameters if each.stack.settings}
        for (settings, device), parameter in different.items():
            stack = parameter.stack
            if missing(parameter.needs()):
                continue  # its tests are skipped with the reason
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
        """Yield block devices whose queues accept the same settings as a device's; none for a directory."""
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
        """Hold a device once no other session holds it, within --fsstack-wait. Raises `guard.Refused`."""
        from pytest_fsstack.machine.guard import InUse, Refused

        wait, start, holders = self._settings.wait or 0.0, time.monotonic(), ""
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
                # The other session may have been killed, so clean up again.
                holders, self._cleaned_up = "", False
                self._clean_up()
            del self._held[device]
        if waited > _POLL:
            self.notify(f"{device.spec} is free after {waited:.0f} s")

    def _hold(self, device: Device) -> None:
        """Hold a device until the end of the session. Raises `guard.Refused`."""
        from pytest_fsstack.machine.guard import Refused

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
        """Clean up after killed sessions, once per session."""
        from pytest_fsstack.session import cleanup

        if not self._cleaned_up:
            self._cleaned_up = True
            self.notify(cleanup.at_the_start(self._config, self._settings.devices))

    def require(self, parameter: StackParameter) -> None:
        """Skip or fail the test if a requirement of its stack is not met."""
        from pytest_fsstack.machine.needs import load, missing

        governor = [self._settings.governor] if self._settings.governor else []
        needs = [*parameter.needs(), *governor]
        if reasons := missing(needs):
            text = f"{parameter.id} on {parameter.device.spec}: {'; '.join(reasons)}"
            if self._settings.missing_fails:
                pytest.fail(f"{text} (--fsstack-if-unavailable=fail)", pytrace=False)
            pytest.skip(text)
        load(needs)

    def prepare(self) -> None:
        """Prepare for the first stack: a mount namespace, a cleanup, and a mark for processes of this session."""
        from pytest_fsstack.machine import mounts, orphans, processes, resident

        private = mounts.private_namespace()
        self._clean_up()
        try:
            self._undo.enter_context(orphans.marked(self.journal, private=private))
        except OSError as error:
            pytest.fail(f"the journal cannot be written ({reason_of(error)})", pytrace=False)
        self._undo.enter_context(processes.watched(orphans.VARIABLE, private=private))
        # All stacks need these, but no layer names them. After a cold start, loading each took 20 ms.
        for command in "mount", "umount", "prlimit", "setpriv":
            resident.keep(command)
        resident.keep_locales()

    @contextlib.contextmanager
    def built(self, parameter: StackParameter, parent: Path) -> Iterator[Built]:
        """Build a stack in a directory in `parent`, for the duration of a test or a class. Fail the test on errors."""
        from pytest_fsstack.machine import commands, directories, signals
        from pytest_fsstack.machine.descriptors import opened
        from pytest_fsstack.machine.guard import Refused
        from pytest_fsstack.machine.processes import end_if_forked, undumpable
        from pytest_fsstack.machine.signals import State
        from pytest_fsstack.stack.build import BuildError, build
        from pytest_fsstack.stack.places import BuildContext

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
                    notify=self.notify,
                )
                with commands.recorded_commands() as self.commands:
                    built = undo.enter_context(build(parameter.stack, parameter.device, context))
        except (BuildError, Refused, commands.CommandError, OSError) as error:
            _close(undo)
            fail(error)
        except BaseException:
            _close(undo)
            raise
        self.mounts, self.seconds = built.mounts(), built.seconds
        self._standing = built
        try:
            yield built
        finally:
            self._standing = None
            end_if_forked(owner)
            undo.callback(_leave_stack, [place.files, place.mountpoints, built.bottom.path], start)
            if problem := _close(undo):
                fail(problem)

    def why_full(self, error: BaseException) -> tuple[str, bool]:
        """Return why writing to the stack that stands fails although it has space, and whether this error shows it.

        The text is empty if the file below has room.
        """
        return self._standing.why_full(error) if self._standing else ("", False)

    def close(self) -> list[str]:
        """Undo the changes of the session. Return what could not be undone."""
        if os.getpid() != self._process:
            return []  # a forked child, which cleans up by itself
        self._undo.close()
        return self.journal.close() if "journal" in self.__dict__ else []


def _leave_stack(places: Iterable[Path], start: int) -> None:
    """Return to the original working directory if the current one would keep the stack busy."""
    with contextlib.suppress(OSError):  # it was removed, or a remount has detached it
        directory = Path(os.getcwd())
        if not any(directory.is_relative_to(place.resolve()) for place in places):
            return
    os.fchdir(start)


def _close(undo: ExitStack) -> Exception | None:
    """Close the stack of contexts, and return the error if there is one."""
    from pytest_fsstack.machine import signals

    with signals.during(signals.State.UNDOING):
        try:
            undo.close()
        except Exception as error:
            return error
    return None


def fail(error: Exception) -> NoReturn:
    """Fail the test with an error's message, without its chained errors."""
    raise pytest.fail.Exception(str(error), pytrace=False) from None
