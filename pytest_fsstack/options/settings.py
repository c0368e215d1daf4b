"""Settings of a session, parsed from the options."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pytest_fsstack.devices import DiskDevice
    from pytest_fsstack.guard import Disk, Refused
    from pytest_fsstack.judging.conditions import Rule as Discarding
    from pytest_fsstack.measuring.settling import Settle
    from pytest_fsstack.options.budgets import Rule
    from pytest_fsstack.records.verdicts import Looks
    from pytest_fsstack.stack.model import Device, Layer, Stack
    from pytest_fsstack.stack.tuning import Governor, Queue


@dataclass(frozen=True)
class Settings:
    """The options of a session, parsed and checked."""

    #: Layers by name. Conftests add theirs during collection.
    known: MutableMapping[str, type[Layer]]
    devices: tuple[Device, ...]
    queue: Queue
    settle: Settle
    governor: Governor | None
    directory: Path | None
    stacks: tuple[Stack, ...]
    #: Whether `stacks` come from the command line. They replace the stacks of tests.
    stacks_replace: bool
    baseline: str | None
    #: Whether to run a control.
    control: bool
    looks: Looks
    #: Whether the number of rounds was set explicitly.
    rounds_given: bool
    #: Whether a limit on changes, between kernels or over time, is judged.
    judges_changes: bool
    discard_rounds: tuple[Discarding, ...]
    seed: int
    budgets: tuple[Rule, ...]
    strict: bool
    #: Whether budgets on time are judged on emulated CPUs too.
    judges_emulated: bool
    #: Whether the error rate applies to the session instead of each budget.
    confirms: bool
    missing_fails: bool
    corpus: Path | None
    #: The time limit in seconds for a command or a step of building.
    timeout: float
    scale: str
    #: Whether the scale was set explicitly.
    scale_given: bool
    reports: tuple[tuple[str, Path], ...]
    log: Path | None
    #: Seconds to wait for a device that another session holds.
    wait: float
    labels: tuple[tuple[str, str], ...]
    #: Weights of steps in the overall cost.
    weights: dict[str, float]

    def identities(self) -> dict[str, tuple[object, ...]]:
        """Return the identities of the named block devices as plain data for another process."""
        from pytest_fsstack.devices import disks_of

        return {device.spec: identity for device in disks_of(self.devices) if (identity := device.identity())}


#: Devices of `--fsstack-overwrite` by argument, resolved when the command line was parsed.
OVERWRITABLE = pytest.StashKey["dict[str, Disk | Refused]"]()


def read_settings(
    config: pytest.Config, known: MutableMapping[str, type[Layer]], report_names: frozenset[str]
) -> Settings:
    """Parse and check all options. Raises `pytest.UsageError` with one message."""
    from pytest_fsstack.data.scale import DEFAULT
    from pytest_fsstack.measuring.settling import Settle
    from pytest_fsstack.options.budgets import parse
    from pytest_fsstack.stack.model import Stack

    values = {option.name: options.value(config, option.name) for option in options.OPTIONS}
    with options.blaming_option(config, "stacks"):
        stacks = tuple(Stack.parse(text, known) for text in values["stacks"])
    budgets = []
    for source in options.in_ini(config, "budget"), options.on_command_line(config, "budget"):
        if source:
            with options.blaming(source.where):
                budgets += [parse(text) for text in source.texts]
    devices = _devices(config, values)
    return Settings(
        known=known,
        devices=devices,
        queue=_queue(config, values, devices),
        settle=values["settle"] or Settle(),
        governor=_governor(config, values["governor"]),
        directory=values["dir"],
        stacks=stacks,
        stacks_replace=options.on_command_line(config, "stacks") is not None,
        baseline=values["baseline"],
        control=values["control"],
        looks=_looks(values),
        rounds_given=values["rounds"] is not None,
        judges_changes=values["max-regression"] is not None,
        discard_rounds=_discard_rounds(config, values),
        seed=_seed(config, values["seed"]),
        budgets=tuple(budgets),
        strict=values["strict"],
        judges_emulated=values["judge-emulated"],
        confirms=(values["error-rate-per"] or ("session" if values["strict"] else "budget")) == "session",
        missing_fails=values["if-unavailable"] == "fail",
        corpus=values["corpus"],
        timeout=values["timeout"],
        scale=values["scale"] or DEFAULT,
        scale_given=values["scale"] is not None,
        reports=_reports(config, values, report_names),
        log=values["log"],
        wait=values["wait"] or 0.0,
        labels=tuple(values["label"]),
        weights=values["weights"] or {},
    )


def _devices(config: pytest.Config, values: dict[str, Any]) -> tuple[Device, ...]:
    from pytest_fsstack.devices import disks_of, look_up, parse_device, pinned_to, with_unique_ids
    from pytest_fsstack.guard import Disk
    from pytest_fsstack.machine.blockdev import guest_disks

    settle = values["settle"]
    size, discard = values["size"], values["discard"] or bool(settle and settle.discard)
    texts = list(dict.fromkeys(values["device"]))
    if options.worker_input(config).get("in_vm"):
        # A guest has blank disks of its own. A loop file on its root would be in memory.
        texts = ["+".join(guest_disks()) if text == "loop" else text for text in texts]
        return tuple(parse_device(text, size=size, overwrite=(), discard=discard) for text in texts)
    early = config.stash.get(OVERWRITABLE, {})
    given_up = {text: early.get(text) or look_up(text) for text in _overwrite(config)}
    identities = {disk.identity for disk in given_up.values() if isinstance(disk, Disk)}
    with options.blaming_option(config, "device"):
        devices = with_unique_ids(
            parse_device(text, size=size, overwrite=identities, discard=discard) for text in texts
        )
    if settle and settle.discard and (unsuitable := [each for each in devices if not disks_of([each])]):
        with options.blaming_option(config, "settle"):
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
    identities = getattr(config, "workerinput", {}).get(options.DEVICES, {})
    return tuple(pinned_to(device, identities) for device in devices)


def _is_named_by(device: DiskDevice, text: str, disk: Disk | Refused) -> bool:
    if isinstance(disk, Exception) or isinstance(device.resolved, Exception) or device.resolved is None:
        # Nothing is overwritten. As for users without root, the tests are skipped with the reason.
        return os.path.realpath(text) == os.path.realpath(device.path)
    return disk.identity == device.resolved.identity


def _queue(config: pytest.Config, values: dict[str, Any], devices: tuple[Device, ...]) -> Queue:
    from pytest_fsstack.devices import DirectoryDevice, disks_of
    from pytest_fsstack.machine.real import RealMachine
    from pytest_fsstack.stack import tuning

    machine = RealMachine()
    queue = tuning.Queue(values["scheduler"], values["readahead"])
    for device in devices:
        if isinstance(device, DirectoryDevice):
            for name in "discard", "scheduler", "readahead":
                if values[name]:
                    with options.blaming_option(config, name):
                        raise ValueError(f"only block devices have it, and {device.spec} is a directory: leave it out")
        # Layers of a kernel that is not booted yet are checked there.
        if values["scheduler"] and not values["kernel"] and not options.worker_input(config):
            queues = [tuning.queue(machine, disk.path) for disk in disks_of([device])]
            for each in queues or sorted((machine.sysfs / "block").glob("loop*/queue"))[:1]:
                if reason := queue.why_not_offered(machine, each):
                    with options.blaming_option(config, "scheduler"):
                        raise ValueError(reason)
    return queue


def _governor(config: pytest.Config, name: str | None) -> Governor | None:
    from pytest_fsstack.stack.tuning import Governor

    # The CPUs belong to the host, where the session that started this worker has set the governor.
    if options.worker_input(config).get("in_vm") or name is None:
        return None
    governor = Governor(name)
    if reason := governor.why_not_offered():
        with options.blaming_option(config, "governor"):
            raise ValueError(reason)
    return governor


def _overwrite(config: pytest.Config) -> frozenset[str]:
    """Return the devices to overwrite. They must be named on the command line itself.

    An ini, addopts or PYTEST_ADDOPTS is easily forgotten, and must not destroy data.
    """
    import argparse

    typed = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    typed.add_argument("--fsstack-overwrite", action="append", default=[])
    typed_options, _ = typed.parse_known_args([str(word) for word in config.invocation_params.args])
    names = frozenset(config.getoption("fsstack_overwrite") or [])
    if hidden := names - frozenset(typed_options.fsstack_overwrite):
        raise pytest.UsageError(
            f"--fsstack-overwrite={sorted(hidden)[0]} must stand on the command line itself, not in addopts or "
            "PYTEST_ADDOPTS: it destroys data"
        )
    return names


def _looks(values: dict[str, Any]) -> Looks:
    from pytest_fsstack.records.verdicts import Looks

    alpha, rounds = values["alpha"], values["rounds"]
    if rounds is None and values["scale"] == "smoke":
        rounds = Looks.fixed(1, alpha).minimum_rounds
    return Looks(alpha=alpha) if rounds is None else Looks.fixed(rounds, alpha)


def _discard_rounds(config: pytest.Config, values: dict[str, Any]) -> tuple[Discarding, ...]:
    rules: tuple[Discarding, ...] = values["drop-rounds"] or ()
    # A guest cannot observe the machine, and does not judge.
    if not rules or options.worker_input(config):
        return ()
    from pytest_fsstack.measuring import load

    with options.blaming_option(config, "drop-rounds"):
        if name := load.lacking((rule.name for rule in rules), load.read()):
            raise ValueError(f"this machine does not report the condition {name}: leave this rule out")
    return rules


def _seed(config: pytest.Config, commanded: int | None) -> int:
    seed = options.worker_input(config).get("seed", commanded)
    return int.from_bytes(os.urandom(4), "big") if seed is None else int(seed)


def _reports(config: pytest.Config, values: dict[str, Any], names: frozenset[str]) -> tuple[tuple[str, Path], ...]:
    reports = []
    with options.blaming_option(config, "report"):
        for text in values["report"]:
            name, _, file = text.partition("=")
            if name not in names or not file:
                raise ValueError(f"{text!r} is not NAME=FILE; names are: {', '.join(sorted(names))}")
            reports.append((name, options.target(file)))
    return (*reports, *([("json", values["json"])] if values["json"] else []))
