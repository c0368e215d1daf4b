"""Settings of a session: the only way to the values of options."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pytest

from pytest_fsstack import options
from pytest_fsstack.options.built_in import brought, brought_layers

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pytest_fsstack.devices import DiskDevice
    from pytest_fsstack.judging.conditions import Rule as Discarding
    from pytest_fsstack.machine.guard import Disk, Refused
    from pytest_fsstack.measuring.settling import Settle
    from pytest_fsstack.options.budgets import Rule
    from pytest_fsstack.records.verdicts import Looks
    from pytest_fsstack.stack.layer import Layer
    from pytest_fsstack.stack.model import Device, Stack
    from pytest_fsstack.stack.tuning import Governor, Queue

T = TypeVar("T")


class Value(Generic[T]):
    """The value of an option that needs no other option. Its name is that of the attribute, or is given."""

    def __init__(self, option: str = "") -> None:
        self._option = option

    def __set_name__(self, owner: type[Settings], name: str) -> None:
        self._option = self._option or name.replace("_", "-")

    def __get__(self, settings: Settings, owner: type[Settings]) -> T:
        value: T = settings.value(self._option)
        return value


#: Devices of `--fsstack-overwrite` by argument, resolved when the command line was parsed.
OVERWRITABLE = pytest.StashKey["dict[str, Disk | Refused]"]()


class Settings:
    """The options of a session (`OPTIONS` describes them). Each is parsed on first use. Raises `pytest.UsageError`."""

    _KEY = pytest.StashKey["Settings"]()

    allow_unjudged = Value["list[str]"]()
    baseline = Value["str | None"]()
    ci = Value[str]()
    cleanup = Value[bool]()
    commands = Value["list[tuple[str, str]]"]("command")
    setup = Value["list[str]"]()
    checks = Value["list[str]"]("check")
    shell = Value[bool]()
    compare = Value["list[Path]"]()
    compare_anyway = Value[bool]()
    console = Value["str | None"]()
    control = Value[bool]()
    corpus = Value["Path | None"]()
    counterexamples = Value["Path | None"]()
    directory = Value["Path | None"]("dir")
    doctor = Value["str | None"]()
    dry_run = Value[bool]()
    fio = Value["list[str]"]()
    history = Value["Path | None"]()
    judges_emulated = Value[bool]("judge-emulated")
    judges_one_boot = Value[bool]("judge-one-boot")
    junit = Value[str]()
    kernels = Value["list[str]"]("kernel")
    labels = Value["list[tuple[str, str]]"]("label")
    log = Value["Path | None"]()
    max_regression = Value["float | None"]()
    rounds = Value["int | None"]()
    save_reference = Value["Path | None"]()
    scenarios = Value["list[str]"]("scenario")
    size = Value[int]()
    strict = Value[bool]()
    timeout = Value[float]()
    vm_accel = Value[str]()
    vm_cpus = Value["int | None"]()
    vm_memory = Value[int]()
    vm_timeout = Value[float]()
    wait = Value["float | None"]()
    weights = Value["dict[str, float] | None"]()
    xfstests = Value["Path | None"]()

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._values: dict[str, Any] = {}

    @classmethod
    def of(cls, config: pytest.Config) -> Settings:
        """Return the settings of a session."""
        return config.stash.setdefault(cls._KEY, cls(config))

    def value(self, name: str) -> Any:
        """Return the value of an option: from the command line, the ini, or its default."""
        if name not in self._values:
            self._values[name] = self._parse(options.named(name))
        return self._values[name]

    def _parse(self, option: options.Option) -> Any:
        source = options.given_for(self._config, option.name)
        if option.flag:
            return source is not None
        texts = source.texts if source else () if option.default is None else (option.default,)
        with self.blaming(option.name):
            values = [option.read(text) for text in texts]
        return values if option.many else values[0] if values else None

    def check(self) -> None:
        """Parse and check all options."""
        for option in options.OPTIONS:
            self.value(option.name)
        for name, attribute in vars(Settings).items():
            if isinstance(attribute, cached_property):
                getattr(self, name)

    def is_typed(self, name: str) -> bool:
        """Whether an option is on the command line."""
        return options.on_command_line(self._config, name) is not None

    def origin(self, name: str) -> str:
        """Return the origin of an option's value for messages, or the option's name."""
        source = options.given_for(self._config, name)
        return source.where if source else options.named(name).flags

    def blaming(self, name: str) -> AbstractContextManager[None]:
        """Turn a `ValueError` into a `pytest.UsageError` that begins with the origin of an option's value."""
        return options.blaming(self.origin(name))

    @cached_property
    def known(self) -> MutableMapping[str, type[Layer]]:
        """Return layers by name. Conftests add theirs during collection."""
        return brought_layers(self._config)

    @cached_property
    def stacks(self) -> tuple[Stack, ...]:
        from pytest_fsstack.stack.model import Stack

        with self.blaming("stacks"):
            return tuple(Stack.parse(text, self.known) for text in self.value("stacks"))

    @property
    def stacks_replace(self) -> bool:
        """Whether `stacks` come from the command line. They replace the stacks of tests."""
        return self.is_typed("stacks")

    @cached_property
    def budgets(self) -> tuple[Rule, ...]:
        """Return the budgets of the ini, and then those of the command line."""
        from pytest_fsstack.options.budgets import parse

        rules: list[Rule] = []
        for source in options.in_ini(self._config, "budget"), options.on_command_line(self._config, "budget"):
            if source:
                with options.blaming(source.where):
                    rules += [parse(text, source.where) for text in source.texts]
        return tuple(rules)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        from pytest_fsstack.devices import disks_of, look_up, parse_device, pinned_to, with_unique_ids
        from pytest_fsstack.machine.blockdev import guest_disks
        from pytest_fsstack.machine.guard import Disk

        size, discard = self.size, self.value("discard") or self.settle.discard
        texts = list(dict.fromkeys(self.value("device")))
        if options.worker_input(self._config).get("in_vm"):
            # A guest has blank disks of its own. A loop file on its root would be in memory.
            texts = ["+".join(guest_disks()) if text == "loop" else text for text in texts]
            return tuple(parse_device(text, size=size, overwrite=(), discard=discard) for text in texts)
        early = self._config.stash.get(OVERWRITABLE, {})
        given_up = {text: early.get(text) or look_up(text) for text in self._overwrite()}
        identities = {disk.identity for disk in given_up.values() if isinstance(disk, Disk)}
        with self.blaming("device"):
            devices = with_unique_ids(
                parse_device(text, size=size, overwrite=identities, discard=discard) for text in texts
            )
        if self.settle.discard and (unsuitable := [each for each in devices if not disks_of([each])]):
            with self.blaming("settle"):
                raise ValueError(
                    f"only a block device can be discarded, and {unsuitable[0].spec} is none: wait until it is idle"
                )
        for text, disk in given_up.items():
            if not any(_is_named_by(device, text, disk) for device in disks_of(devices)):
                # Never advise to hand over one more disk: this one may be a slip of the pen.
                own = " and ".join(device.spec for device in devices)
                raise pytest.UsageError(
                    f"--fsstack-overwrite={text}: this session's device is {own}, so nothing is to be overwritten there"
                )
        identities = getattr(self._config, "workerinput", {}).get(options.DEVICES, {})
        return tuple(pinned_to(device, identities) for device in devices)

    def identities(self) -> dict[str, tuple[object, ...]]:
        """Return the identities of the named block devices as plain data for another process."""
        from pytest_fsstack.devices import disks_of

        return {device.spec: identity for device in disks_of(self.devices) if (identity := device.identity())}

    def _overwrite(self) -> frozenset[str]:
        """Return the devices to overwrite. They must be named on the command line itself.

        An ini, addopts or PYTEST_ADDOPTS is easily forgotten, and must not destroy data.
        """
        import argparse

        typed = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        typed.add_argument("--fsstack-overwrite", action="append", default=[])
        typed_options, _ = typed.parse_known_args([str(word) for word in self._config.invocation_params.args])
        names = frozenset(self.value("overwrite"))
        if hidden := names - frozenset(typed_options.fsstack_overwrite):
            raise pytest.UsageError(
                f"--fsstack-overwrite={sorted(hidden)[0]} must stand on the command line itself, not in addopts or "
                "PYTEST_ADDOPTS: it destroys data"
            )
        return names

    @cached_property
    def settle(self) -> Settle:
        from pytest_fsstack.measuring.settling import Settle

        return self.value("settle") or Settle()

    @cached_property
    def queue(self) -> Queue:
        from pytest_fsstack.devices import DirectoryDevice, disks_of
        from pytest_fsstack.machine.real import RealMachine
        from pytest_fsstack.stack import tuning

        machine = RealMachine()
        queue = tuning.Queue(self.value("scheduler"), self.value("readahead"))
        for device in self.devices:
            if isinstance(device, DirectoryDevice):
                for name in "discard", "scheduler", "readahead":
                    if self.value(name):
                        with self.blaming(name):
                            raise ValueError(
                                f"only block devices have it, and {device.spec} is a directory: leave it out"
                            )
            # Layers of a kernel that is not booted yet are checked there.
            if queue.scheduler and not self.kernels and not options.worker_input(self._config):
                queues = [tuning.queue(machine, disk.path) for disk in disks_of([device])]
                for each in queues or sorted((machine.sysfs / "block").glob("loop*/queue"))[:1]:
                    if reason := queue.why_not_offered(machine, each):
                        with self.blaming("scheduler"):
                            raise ValueError(reason)
        return queue

    @cached_property
    def governor(self) -> Governor | None:
        from pytest_fsstack.stack.tuning import Governor

        name = self.value("governor")
        # The CPUs belong to the host, where the session that started this worker has set the governor.
        if options.worker_input(self._config).get("in_vm") or name is None:
            return None
        governor = Governor(name)
        if reason := governor.why_not_offered():
            with self.blaming("governor"):
                raise ValueError(reason)
        return governor

    @cached_property
    def looks(self) -> Looks:
        from pytest_fsstack.records.verdicts import LOOKS_OF_BOOTS, Looks

        alpha, rounds = self.value("alpha"), self.rounds
        if rounds is None and self.scale == "smoke":
            rounds = Looks.fixed(1, alpha).minimum_rounds
        if rounds is not None:
            return Looks.fixed(rounds, alpha)
        return Looks(LOOKS_OF_BOOTS if self.boots > 1 else (), alpha)

    @cached_property
    def discard_rounds(self) -> tuple[Discarding, ...]:
        rules: tuple[Discarding, ...] = self.value("drop-rounds") or ()
        # A guest cannot observe the machine, and does not judge.
        if not rules or options.worker_input(self._config):
            return ()
        from pytest_fsstack.measuring import load

        with self.blaming("drop-rounds"):
            if name := load.lacking((rule.name for rule in rules), load.read()):
                raise ValueError(f"this machine does not report the condition {name}: leave this rule out")
        return rules

    @cached_property
    def seed(self) -> int:
        seed = options.worker_input(self._config).get("seed", self.value("seed"))
        return int.from_bytes(os.urandom(4), "big") if seed is None else int(seed)

    @cached_property
    def reports(self) -> tuple[tuple[str, Path], ...]:
        """Return the names of reports with their files."""
        reports = []
        names = brought(self._config, "reports")
        with self.blaming("report"):
            for text in self.value("report"):
                name, _, file = text.partition("=")
                if name not in names or not file:
                    raise ValueError(f"{text!r} is not NAME=FILE; names are: {', '.join(sorted(names))}")
                reports.append((name, options.target(file)))
        return (*reports, *([("json", json)] if (json := self.value("json")) else []))

    @property
    def confirms(self) -> bool:
        """Whether the error rate applies to the session instead of each budget."""
        return (self.value("error-rate-per") or ("session" if self.strict else "budget")) == "session"

    def check_confirmation(self, budgets: int) -> None:
        """Refuse so many budgets if they share an error rate, and so few rounds could never confirm a failure.

        Raises `pytest.UsageError`. Rounds that are too few for any verdict are not refused: the header warns of them.
        """
        from pytest_fsstack.judging.plan import rounds_to_confirm
        from pytest_fsstack.units import counted

        rounds, needed = self.looks.max_rounds, rounds_to_confirm(budgets)
        if not self.confirms or not self.looks.minimum_rounds <= rounds < needed:
            return
        raise pytest.UsageError(
            f"{self.origin('scale' if self.rounds is None else 'rounds')}: {budgets} budgets share the error rate of "
            f"the session ({self.origin('error-rate-per' if self.value('error-rate-per') else 'strict')}), so fresh "
            f"rounds confirm a failure at 1/{budgets} of it. {counted(rounds, 'round')} can never do that, so no "
            f"budget could fail: add --fsstack-rounds={needed}, or --fsstack-error-rate-per=budget"
        )

    @property
    def missing_fails(self) -> bool:
        return bool(self.value("if-unavailable") == "fail")

    @property
    def scale(self) -> str:
        from pytest_fsstack.workloads.data.scale import DEFAULT

        return self.value("scale") or DEFAULT

    @property
    def boots(self) -> int:
        """Return the number of boots of each kernel."""
        return self.value("boots") or (3 if self.judges_kernels and not self.judges_one_boot else 1)

    @property
    def judges_kernels(self) -> bool:
        """Whether there is a limit between kernels."""
        return len(self.kernels) > 1 and self.max_regression is not None

    @cached_property
    def only_looks(self) -> bool:
        """Whether the session only inspects the selected tests: nothing is built, measured or written."""
        by_pytest = "collectonly", "setupplan", "showfixtures", "show_fixtures_per_test"
        return self.doctor is not None or self.dry_run or any(self._config.getoption(name, False) for name in by_pytest)


def _is_named_by(device: DiskDevice, text: str, disk: Disk | Refused) -> bool:
    if isinstance(disk, Exception) or isinstance(device.resolved, Exception) or device.resolved is None:
        # Nothing is overwritten. As for users without root, the tests are skipped with the reason.
        return os.path.realpath(text) == os.path.realpath(device.path)
    return disk.identity == device.resolved.identity
