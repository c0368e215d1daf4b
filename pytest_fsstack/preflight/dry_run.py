"""The dry run of `--fsstack-dry-run`: shows the actions and the duration of a session without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.devices import DiskDevice, LoopDevice, RamDevice, refusals
from pytest_fsstack.judging.course import ChainPlan
from pytest_fsstack.judging.results import Results
from pytest_fsstack.machine import identity
from pytest_fsstack.over_time import history
from pytest_fsstack.over_time.plugin import earlier_runs
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.rounds.chains import Chain
from pytest_fsstack.rounds.plans import plan_of
from pytest_fsstack.session.duration import seconds_of_run
from pytest_fsstack.stack.model import Device
from pytest_fsstack.units import counted, first_names, format_size, show

if TYPE_CHECKING:
    from pytest_fsstack.session.state import Session


class DryRun:
    """A pytest plugin that shows the dry run instead of running tests. Raises `pytest.UsageError`."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config, self._session = config, session
        self._earlier = _earlier(config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for line in described(self._config, self._session, session.items, self._earlier):
            show(line)
        return True


def described(
    config: pytest.Config, session: Session, items: list[pytest.Item], earlier: list[Results]
) -> Iterator[str]:
    """Return the lines for a selection. A stack's commands are shown once."""
    chains = list(dict.fromkeys(session.chains.values()))
    yield "fsstack: dry run: nothing is built, measured or written"
    kernels = _Kernels(tuple(options.value(config, "kernel")), options.boots(config))
    described_before: dict[tuple[Device, str], str] = {}
    for chain in chains:
        planned = plan_of(chain, session.budgets)
        plan = _Plan.of(config, session, chain, planned)
        yield f"\n{chain.id} on {chain.device.spec}"
        yield from (f"  device: {line}" for line in _devices(chain, plan.max_rounds))
        yield f"  steps: {', '.join(chain.steps)}"
        yield f"  stacks: {', '.join(_name(chain, stack) for stack in plan.max_rounds)}"
        yield f"  rounds: {plan.rounds}"
        if settle := session.settings.settle.describe():
            yield f"  between two stacks: {settle}"
        yield from (f"  {line}" for line in kernels.lines(plan))
        yield from (f"  missing here: {line}" for line in _missing(planned))
        yield f"  time: {_time(session, chain, plan, earlier, kernels)}"
        for stack in plan.max_rounds:
            parameter = chain.stacks[stack]
            key = (chain.device, str(parameter.stack))
            if key in described_before:
                yield f"\n  {_name(chain, stack)}: the commands are those of {described_before[key]}"
                continue
            described_before[key] = f"{stack} in {chain.id}"
            explanation = explained(parameter.stack, chain.device)
            yield f"\n  {_name(chain, stack)}:"
            yield from (f"    {line}".rstrip() for line in explanation.lines)
            if explanation.problem:
                yield f"    the rest cannot be shown: {explanation.problem}"
    ordinary = len(items) - len(session.chains)
    if ordinary:
        yield f"\n{counted(ordinary, 'other selected test')} would run as ever"


@dataclass(frozen=True)
class _Plan:
    """The minimum and maximum number of runs of each stack of a chain, with a description."""

    rounds: str
    min_rounds: dict[str, int]
    max_rounds: dict[str, int]

    @classmethod
    def of(cls, config: pytest.Config, session: Session, chain: Chain, planned: ChainPlan) -> _Plan:
        settings, looks, stacks = session.settings, session.policy.looks_of(planned), list(planned.stacks)
        if not chain.timed:
            return cls._fixed(stacks, 1, "none: nothing is measured, and each stack is built as pytest runs the tests")
        if flag := options.runs_once_by(config):
            return cls._fixed(stacks, 1, f"1, because of {flag}")
        first, last = looks.rounds[0], looks.max_rounds
        additional = f", and at most {last} more to confirm failures" if session.budgets.confirmed > 1 else ""
        additional += f", and at most {last} more in place of discarded ones" if settings.discard_rounds else ""
        budgets = {
            stack: [budget for test in planned.tests if test.stack == stack for budget in test.budgets]
            for stack in stacks
        }
        # Verdicts between kernels apply to all stacks.
        between = len(options.value(config, "kernel")) > 1 and options.value(config, "max-regression") is not None
        judged = {stack: between or bool(budgets[stack]) for stack in stacks}
        max_rounds = {stack: last if judged[stack] else first for stack in stacks}
        for stack in stacks if session.budgets.confirmed > 1 else ():
            if any(budget.overhead is not None for budget in budgets[stack]):
                max_rounds[stack] += last
        # These run as long as any other stack.
        for stack in {chain.baseline, chain.control} & max_rounds.keys():
            max_rounds[stack] = max(max_rounds.values())
        if settings.discard_rounds:
            max_rounds = {stack: rounds + last for stack, rounds in max_rounds.items()}
        rounds_text = str(first) if first == last else f"{first} to {last}, judged after every eighth"
        if first != last and not any(judged.values()):
            rounds_text = f"{first}, because there are no budgets to decide"
        return cls(rounds_text + additional, dict.fromkeys(stacks, first), max_rounds)

    @classmethod
    def _fixed(cls, stacks: Iterable[str], rounds: int, text: str) -> _Plan:
        runs = dict.fromkeys(stacks, rounds)
        return cls(text, runs, runs)


@dataclass(frozen=True)
class _Kernels:
    """The given kernels by name, because looking into a package would mean unpacking it."""

    names: tuple[str, ...]
    boots: int

    @property
    def guests(self) -> int:
        """Return the number of places in which each stack runs."""
        return max(1, len(self.names) * self.boots)

    def lines(self, plan: _Plan) -> Iterator[str]:
        if not self.names:
            return
        boots = f"{self.boots} boots each" if self.boots > 1 else "1 boot each"
        first, *further = self.names
        yield f"kernels: {', '.join([f'{first} (baseline)', *further])}; {boots}"
        yield f"turns: a stack on a kernel, one at a time: {len(plan.max_rounds) * self.guests} in the first round"


def _name(chain: Chain, stack: str) -> str:
    roles = {chain.baseline: " (baseline)", chain.control: " (the baseline again)"}
    return stack + roles.get(stack, "")


def _devices(chain: Chain, stacks: Iterable[str]) -> Iterator[str]:
    """Yield a line for each device: whether it is refused, and the stacks that would overwrite it."""
    device, needed = chain.device, {stack: chain.stacks[stack].stack.members for stack in stacks}
    most = max(needed.values(), default=1)
    if isinstance(device, LoopDevice | RamDevice):
        many = f", up to {most} of them" if most > 1 else ""
        yield f"{device.spec}, {format_size(device.size)}{many}, made anew for each stack"
        return
    refused = refusals(device)
    for number, member in enumerate(device.members):
        users = [stack for stack, count in needed.items() if count > number]
        if refusal := refused.get(member):
            yield f"refused as it is now: {refusal}"
        elif not isinstance(member, DiskDevice):
            yield member.spec
        elif len(users) == len(needed):
            yield f"{member.spec}, WHICH WOULD BE OVERWRITTEN"
        elif users:
            yield f"{member.spec}, WHICH WOULD BE OVERWRITTEN by {first_names(users)}"
        else:
            yield f"{member.spec}, which no stack needs, and which would not be written to"


def _missing(planned: ChainPlan) -> Iterator[str]:
    """Yield each reason once, with the stacks that it prevents."""
    reasons: dict[str, list[str]] = {}
    for name, stack in planned.stacks.items():
        for reason in stack.lacks:
            reasons.setdefault(reason, []).append(name)
    for reason, stacks_without in reasons.items():
        yield f"{reason} ({first_names(stacks_without)})"


def _time(session: Session, chain: Chain, plan: _Plan, earlier: list[Results], kernels: _Kernels) -> str:
    ends = dict.fromkeys(sum(rounds.values()) * kernels.guests for rounds in (plan.min_rounds, plan.max_rounds))
    runs = f"{' to '.join(map(str, ends))} runs of stacks"
    if kernels.names:
        return f"not known, because each kernel has its own speed; {runs}, and the boots"
    seconds = {
        stack: seconds_of_run(earlier, chain.id, chain.device.spec, chain.steps, stack, scale=session.settings.scale)
        for stack in plan.max_rounds
    }
    unknown = [stack for stack, seconds_of_one in seconds.items() if seconds_of_one is None]
    if unknown:
        hint = "" if earlier else "; --fsstack-history or --fsstack-compare names earlier runs"
        return f"not known, because there is no earlier run of {first_names(unknown)}; {runs}{hint}"
    shortest, longest = (
        timedelta(
            seconds=round(
                sum(runs_by_stack[stack] * (seconds_of_one or 0.0) for stack, seconds_of_one in seconds.items())
            )
        )
        for runs_by_stack in (plan.min_rounds, plan.max_rounds)
    )
    duration = f"about {shortest}" if shortest == longest else f"about {shortest}, at most about {longest}"
    return f"{duration}, as in the last run of these stacks; {runs}"


def _earlier(config: pytest.Config) -> list[Results]:
    """Return the runs that the command line names, the latest last. Raises `pytest.UsageError`."""
    runs: list[Results] = []
    if directory := options.value(config, "history"):
        path = history.file_of(directory, identity.machine_id())
        with options.blaming_option(config, "history"):
            try:
                runs += history.read(path).runs if path.exists() else []
            except OSError as error:
                raise ValueError(f"{path}: {error.strerror}") from None
    with options.blaming_option(config, "compare"):
        for source in options.value(config, "compare"):
            runs += earlier_runs(source).values()
    return sorted(runs, key=lambda run: run.start)
