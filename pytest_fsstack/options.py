"""The command line and the ini: what may be given, and what it means. Importing this costs nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.budget import Rule
    from pytest_fsstack.settings import Governor, Queue
    from pytest_fsstack.stack import Device, Known, Stack
    from pytest_fsstack.verdict import Looks

DEFAULT_SIZE = "4G"
DEFAULT_ALPHA = 0.05


def add_options(parser: pytest.Parser) -> None:
    """Declare every option, and its ini twin where it makes sense in a file."""
    group = parser.getgroup("fsstack", "storage stacks (fsstack)")

    def option(name: str, help: str, *, ini: Any = None, **keywords: Any) -> None:
        group.addoption(f"--fsstack-{name}", dest=f"fsstack_{name.replace('-', '_')}", help=help, **keywords)
        if ini:
            default = {"linelist": [], "bool": False}.get(ini, "")
            ini_name = f"fsstack_{name.replace('-', '_')}"
            parser.addini(ini_name, f"default of --fsstack-{name}", type=ini, default=default)

    option(
        "device",
        "where stacks start: loop (a sparse file; default), ram, a block device such as /dev/sdb1 (IT IS OVERWRITTEN), "
        "or dir:/a/directory; repeat it to run on several",
        action="append",
        metavar="DEVICE",
        ini="linelist",
    )
    option("size", f"size of loop and ram devices (default: {DEFAULT_SIZE})", metavar="SIZE", ini="string")
    option(
        "dir", "directory for loop files and mount points (default: pytest's base temp)", metavar="DIR", ini="string"
    )
    option(
        "overwrite",
        "give a device that holds data over to testing: its contents are lost; must name the device of "
        "--fsstack-device, on the command line itself",
        action="append",
        metavar="DEVICE",
    )
    option(
        "discard",
        "discard all of a block device before each stack is built on it; loop and ram are blank each time anyway",
        action="store_true",
        ini="bool",
    )
    option(
        "scheduler",
        "the I/O scheduler of the device, such as none or mq-deadline, while a stack stands on it",
        metavar="NAME",
        ini="string",
    )
    option(
        "readahead",
        "the read-ahead of the stack's block devices, such as 128K, while it stands",
        metavar="SIZE",
        ini="string",
    )
    option(
        "governor",
        "the frequency governor of all CPUs, such as performance, during the session",
        metavar="NAME",
        ini="string",
    )
    option(
        "stacks",
        "a stack such as 'luks | ext4' or 'name = luks | ext4', instead of those of the tests; repeat it, the first is "
        "the baseline",
        action="append",
        metavar="STACK",
        ini="linelist",
    )
    option("baseline", "the stack that the others are compared with, by name", metavar="NAME", ini="string")
    option(
        "rounds",
        "run exactly N rounds, and judge once (default: up to 30, judged after 10, 20 and 30)",
        metavar="N",
        type=int,
        ini="string",
    )
    option("seed", "replay the order of the stacks of an earlier session", metavar="N", type=int)
    option("alpha", f"error rate of a verdict (default: {DEFAULT_ALPHA})", metavar="P", type=float, ini="string")
    option(
        "budget",
        "what a stack may cost, such as '30%%', 'luks*: 30%%', 'luks*: written_bytes 50%%' or 'ext4: seconds <= 2.5'; "
        "repeat it, the last that matches wins, over the tests' own",
        action="append",
        metavar="BUDGET",
        ini="linelist",
    )
    option("strict", "fail what is inconclusive, instead of skipping it", action="store_true", ini="bool")
    option(
        "missing",
        "what becomes of a stack that this machine cannot build (default: skip)",
        choices=("skip", "fail"),
        ini="string",
    )
    option(
        "corpus",
        "a tar archive or a directory for the workloads to use, instead of generated files",
        metavar="PATH",
        ini="string",
    )
    option(
        "scale",
        "how big the steps of a scenario are: smoke (seconds, and one round), small (minutes; default) or paper (as "
        "published)",
        choices=("smoke", "small", "paper"),
        ini="string",
    )
    option("json", "write all samples, verdicts and the environment to FILE", metavar="FILE")
    option(
        "report",
        "write a report: json=FILE, markdown=FILE, html=FILE, csv=FILE or tables=FILE; repeat it",
        action="append",
        metavar="NAME=FILE",
    )
    option(
        "kernel",
        "run the tests in a VM of this kernel: a vmlinuz or bzImage, a build tree, a .deb or .rpm, or `host` for the "
        "running one without a VM; repeat it to compare kernels, the first is the baseline",
        action="append",
        metavar="KERNEL",
        ini="linelist",
    )
    option("boots", "boot each kernel N times (default: 1)", metavar="N", type=int, ini="string")
    option(
        "max-regression",
        "what a test may cost on a kernel more than on the first one, such as 5%%",
        metavar="PERCENT",
        ini="string",
    )
    option("vm-memory", "memory of a VM (default: 2G)", metavar="SIZE", ini="string")
    option("vm-cpus", "CPUs of a VM (default: those of the host, at most 4)", metavar="N", type=int, ini="string")
    option(
        "vm-accel",
        "kvm, tcg (emulation), or auto: KVM if a guest boots on it in time (default: auto)",
        choices=("auto", "kvm", "tcg"),
        ini="string",
    )
    option(
        "vm-timeout",
        "seconds of silence after which a VM counts as hung (default: 3600)",
        metavar="SECONDS",
        type=float,
        ini="string",
    )
    option(
        "doctor",
        "show which layers can be built here, and on each --fsstack-kernel, and how to get the others, and exit; "
        "=install installs packages",
        nargs="?",
        const="show",
        choices=("show", "install"),
    )
    option("cleanup", "remove what a killed session left behind, and exit", action="store_true")


@dataclass(frozen=True)
class Settings:
    """The options, read and checked."""

    known: Known
    devices: tuple[Device, ...]
    queue: Queue
    governor: Governor | None
    directory: Path | None
    stacks: tuple[Stack, ...]
    #: Whether `stacks` come from the command line, and so replace those of the tests.
    stacks_replace: bool
    baseline: str | None
    looks: Looks
    fixed_rounds: bool
    seed: int
    budgets: tuple[Rule, ...]
    strict: bool
    missing_fails: bool
    corpus: Path | None
    scale: str
    #: Whether the scale was asked for.
    scale_given: bool
    reports: tuple[tuple[str, Path], ...]


#: In the environment of a worker that stands in for one that went down: why it did.
GUEST_DOWN = "FSSTACK_GUEST_DOWN"
#: In the environment of a guest that the doctor asks what can be built there: its kernel.
PROBED = "FSSTACK_PROBED"
#: What a guest's own disk is called in it.
DISK_OF_A_GUEST = "/dev/vda"


def worker_input(config: pytest.Config) -> dict[str, Any]:
    """In a worker of a kernel, what the controller says of it: kernel, boot, in_vm, seed; else nothing.

    In a guest that the doctor asks it is kernel and in_vm.
    """
    if kernel := os.environ.get(PROBED):
        return {"kernel": kernel, "in_vm": True}
    found: dict[str, Any] = getattr(config, "workerinput", {}).get("fsstack", {})
    return found


def value(config: pytest.Config, name: str) -> Any:
    """An option from the command line, else from the ini, else None (or an empty list)."""
    given = config.getoption(f"fsstack_{name}")
    return config.getini(f"fsstack_{name}") if given is None or given is False else given


def any_given(config: pytest.Config) -> bool:
    """Whether anything was said about fsstack, on the command line or in the ini."""
    return any(
        value not in (None, False, []) for name, value in vars(config.option).items() if name.startswith("fsstack_")
    ) or any(config.getini(name) for name in _INI_NAMES)


_INI_NAMES = tuple(
    f"fsstack_{name}"
    for name in (
        *("discard", "scheduler", "readahead", "governor"),
        *("device", "size", "dir", "stacks", "baseline", "rounds", "alpha", "budget", "strict", "missing", "corpus"),
        "scale",
    )
)


def read(config: pytest.Config, known: Known, report_names: frozenset[str]) -> Settings:
    """Read and check all options. Raises `pytest.UsageError`, with one message for a person."""
    from pytest_fsstack.budget import BudgetError, parse
    from pytest_fsstack.spec import SpecError
    from pytest_fsstack.stack import Stack

    directory = value(config, "dir")
    if directory and not os.path.isdir(directory):
        raise pytest.UsageError(f"--fsstack-dir: there is no directory {directory}")
    commanded = config.getoption("fsstack_stacks")
    try:
        stacks = tuple(Stack.parse(text, known) for text in value(config, "stacks"))
    except SpecError as error:
        raise pytest.UsageError(f"{'--fsstack-stacks' if commanded else 'fsstack_stacks'}: {error}") from None
    try:
        budgets = tuple(
            parse(text) for text in [*config.getini("fsstack_budget"), *(config.getoption("fsstack_budget") or [])]
        )
    except BudgetError as error:
        raise pytest.UsageError(f"--fsstack-budget: {error}") from None
    corpus = value(config, "corpus")
    if corpus and not os.path.exists(corpus):
        raise pytest.UsageError(f"--fsstack-corpus: there is no file or directory {corpus}")
    looks, fixed = _looks(config)
    devices = _devices(config)
    return Settings(
        known=known,
        devices=devices,
        queue=_queue(config, devices),
        governor=_governor(config),
        directory=Path(directory).absolute() if directory else None,
        stacks=stacks,
        stacks_replace=bool(commanded),
        baseline=value(config, "baseline") or None,
        looks=looks,
        fixed_rounds=fixed,
        seed=_seed(config),
        budgets=budgets,
        strict=bool(value(config, "strict")),
        missing_fails=_missing(config) == "fail",
        corpus=Path(corpus).absolute() if corpus else None,
        scale=_scale(config),
        scale_given=bool(value(config, "scale")),
        reports=_reports(config, report_names),
    )


def _devices(config: pytest.Config) -> tuple[Device, ...]:
    from pytest_fsstack.layers.devices import parse_device
    from pytest_fsstack.units import parse_size

    try:
        size = parse_size(value(config, "size") or DEFAULT_SIZE)
    except ValueError as error:
        raise pytest.UsageError(f"--fsstack-size: {error}") from None
    texts = list(dict.fromkeys(value(config, "device") or ["loop"]))
    discard = bool(value(config, "discard"))
    if worker_input(config).get("in_vm"):
        # The guest's disk is its own, and blank; a file on the guest's root would be one in memory.
        texts = [DISK_OF_A_GUEST if text == "loop" else text for text in texts]
        return tuple(parse_device(text, size=size, overwrite=frozenset(), discard=discard) for text in texts)
    overwrite = _overwrite(config)
    try:
        devices = tuple(parse_device(text, size=size, overwrite=overwrite, discard=discard) for text in texts)
    except ValueError as error:
        raise pytest.UsageError(f"--fsstack-device: {error}") from None
    named = {os.path.realpath(text) for text in texts}
    for text in overwrite:
        if os.path.realpath(text) not in named:
            raise pytest.UsageError(
                f"--fsstack-overwrite={text} names no device of this session; add --fsstack-device={text}"
            )
    return devices


def _queue(config: pytest.Config, devices: tuple[Device, ...]) -> Queue:
    from pytest_fsstack import settings
    from pytest_fsstack.layers.devices import DirectoryDevice, DiskDevice
    from pytest_fsstack.units import parse_size

    scheduler, read_ahead = value(config, "scheduler") or None, value(config, "readahead") or None
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        size = parse_size(read_ahead) if read_ahead else None
    except ValueError as error:
        raise pytest.UsageError(f"--fsstack-readahead: {error}") from None
    if size is not None and size % page:
        raise pytest.UsageError(f"--fsstack-readahead: {read_ahead} is not a multiple of {page // 1024}K, a page")
    queue = settings.Queue(scheduler, size)
    named = {"discard": value(config, "discard"), "scheduler": scheduler, "readahead": read_ahead}
    for device in devices:
        if isinstance(device, DirectoryDevice) and (given := next((name for name in named if named[name]), None)):
            raise pytest.UsageError(f"--fsstack-{given} is for block devices; {device.spec} is a directory")
        # What a kernel offers that is yet to be booted shows only there.
        if not value(config, "kernel") and not worker_input(config):
            disk = device.path if isinstance(device, DiskDevice) else next(Path("/dev").glob("loop[0-9]*"), None)
            if disk and (refusal := queue.refusal(settings.queue(disk))):
                raise pytest.UsageError(f"--fsstack-scheduler: {refusal}")
    return queue


def _governor(config: pytest.Config) -> Governor | None:
    from pytest_fsstack.settings import Governor

    # The CPUs are the host's, where the session that started this worker has set it.
    if worker_input(config).get("in_vm") or not (name := value(config, "governor")):
        return None
    governor = Governor(name)
    if refusal := governor.refusal():
        raise pytest.UsageError(f"--fsstack-governor: {refusal}")
    return governor


def _overwrite(config: pytest.Config) -> frozenset[str]:
    """The devices given over, if they were named on the command line itself.

    An ini, addopts or PYTEST_ADDOPTS is written once and then forgotten; data must not be lost by something forgotten.
    """
    import argparse

    typed = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    typed.add_argument("--fsstack-overwrite", action="append", default=[])
    found, _ = typed.parse_known_args([str(word) for word in config.invocation_params.args])
    given = frozenset(config.getoption("fsstack_overwrite") or [])
    if hidden := given - frozenset(found.fsstack_overwrite):
        raise pytest.UsageError(
            f"--fsstack-overwrite={sorted(hidden)[0]} must stand on the command line itself, not in addopts or "
            "PYTEST_ADDOPTS: it destroys data"
        )
    return given


def _looks(config: pytest.Config) -> tuple[Looks, bool]:
    from pytest_fsstack.verdict import Looks

    alpha, rounds = value(config, "alpha"), value(config, "rounds")
    try:
        alpha = float(alpha) if alpha else DEFAULT_ALPHA
        if not 0 < alpha < 0.5:
            raise ValueError
    except ValueError:
        raise pytest.UsageError(
            f"--fsstack-alpha: an error rate lies between 0 and 0.5, such as 0.05, not {alpha}"
        ) from None
    if rounds in (None, "") and _scale(config) == "smoke":
        rounds = 1  # it is to show that all steps work
    if rounds in (None, ""):
        return Looks(alpha=alpha), False
    try:
        if int(rounds) < 1:
            raise ValueError
    except ValueError:
        raise pytest.UsageError(f"--fsstack-rounds: give a number of rounds, 1 or more, not {rounds}") from None
    return Looks.fixed(int(rounds), alpha), True


def _seed(config: pytest.Config) -> int:
    given = worker_input(config).get("seed", config.getoption("fsstack_seed"))
    return int.from_bytes(os.urandom(4), "big") if given is None else int(given)


def _missing(config: pytest.Config) -> str:
    given = value(config, "missing") or "skip"
    if given not in ("skip", "fail"):
        raise pytest.UsageError(f"fsstack_missing: choose skip or fail, not {given!r}")
    return str(given)


def _scale(config: pytest.Config) -> str:
    from pytest_fsstack.scale import DEFAULT, SCALES

    given = value(config, "scale") or DEFAULT
    if given not in SCALES:
        raise pytest.UsageError(f"fsstack_scale: choose {', '.join(SCALES)}, not {given!r}")
    return str(given)


def _reports(config: pytest.Config, names: frozenset[str]) -> tuple[tuple[str, Path], ...]:
    texts = list(config.getoption("fsstack_report") or [])
    if config.getoption("fsstack_json"):
        texts.append(f"json={config.getoption('fsstack_json')}")
    found = []
    for text in texts:
        name, _, file = text.partition("=")
        if name not in names or not file:
            raise pytest.UsageError(
                f"--fsstack-report: {text!r} is not NAME=FILE; names are: {', '.join(sorted(names))}"
            )
        path = Path(file).absolute()
        if not path.parent.is_dir():
            raise pytest.UsageError(f"--fsstack-report: there is no directory {path.parent}")
        found.append((name, path))
    return tuple(found)
