"""The dry run of `--fsstack-dry-run`: shows the actions and the duration of a session without running it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.devices import DiskDevice, LoopDevice, RamDevice, refusals
from pytest_fsstack.judging.cells import ChainPlan
from pytest_fsstack.kernels.boots import why_no_gate
from pytest_fsstack.preflight.announcement import runs_before
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.preflight.runs import Runs, runs_of
from pytest_fsstack.records.results import Results
from pytest_fsstack.rounds.chains import Chain
from pytest_fsstack.rounds.plans import plan_of
from pytest_fsstack.stack.model import Device
from pytest_fsstack.units import counted, first_names, format_size, show

if TYPE_CHECKING:
    from pytest_fsstack.session.state import Session


class DryRun:
    """A pytest plugin that shows the dry run instead of running tests. Raises `pytest.UsageError`."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config, self._session = config, session
        self._earlier = runs_before(session.settings)

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
    kernels = _Kernels(tuple(session.settings.kernels), session.settings.boots, why_no_gate(session.settings))
    described_before: dict[tuple[Device, str], str] = {}
    for chain in chains:
        planned = plan_of(chain, session.budgets)
        runs = runs_of(session, chain, planned, kernels.names, kernels.boots)
        yield f"\n{chain.id} on {chain.device.spec}"
        yield from (f"  device: {line}" for line in _devices(chain, planned.stacks))
        yield f"  steps: {', '.join(chain.steps)}"
        yield f"  stacks: {', '.join(_name(chain, stack) for stack in planned.stacks)}"
        yield f"  rounds: {_rounds(config, session, chain, runs)}"
        if settle := session.settings.settle.describe():
            yield f"  between two stacks: {settle}"
        yield from (f"  {line}" for line in kernels.lines(runs))
        yield from (f"  missing here: {line}" for line in _missing(planned))
        yield f"  time: {_time(session, chain, runs, earlier, kernels)}"
        for stack in planned.stacks:
            parameter = chain.stacks[stack]
            key = (chain.device, str(parameter.stack))
            if key in described_before:
                yield f"\n  {_name(chain, stack)}: the commands are those of {described_before[key]}"
                continue
            if lack := parameter.fits.missing():
                yield f"\n  {_name(chain, stack)}: cannot be built: {lack}"
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


def _rounds(config: pytest.Config, session: Session, chain: Chain, runs: Runs) -> str:
    """Describe the rounds of a chain."""
    if not chain.timed:
        return "none: nothing is measured, and each stack is built as pytest runs the tests"
    if flag := options.runs_once_by(config):
        return f"1, because of {flag}"
    confirms = runs.fresh and not runs.undecided
    additional = f", and at most {runs.fresh} more to confirm failures" if confirms else ""
    if session.settings.discard_rounds:
        additional += f", and at most {runs.last} more in place of discarded ones"
    rounds = str(runs.first)
    if runs.first < runs.last:
        rounds += f" to {runs.last}, judged after round {runs.first} and every eighth from there"
    if runs.undecided:
        rounds += ", because there are no budgets to decide"
    return rounds + additional


@dataclass(frozen=True)
class _Kernels:
    """The given kernels by name, because looking into a package would mean unpacking it."""

    names: tuple[str, ...]
    boots: int
    why_no_gate: str

    def lines(self, runs: Runs) -> Iterator[str]:
        if not self.names:
            return
        boots = f"{self.boots} boots each" if self.boots > 1 else "1 boot each"
        first, *further = self.names
        yield f"kernels: {', '.join([f'{first} (baseline)', *further])}; {boots}"
        if self.why_no_gate:
            yield f"no verdicts: {self.why_no_gate}"
        yield f"turns: a stack on a kernel, one at a time: {len(runs.by_cell)} in the first round"


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


def _time(session: Session, chain: Chain, runs: Runs, earlier: list[Results], kernels: _Kernels) -> str:
    text = f"{runs} of stacks"
    if kernels.names:
        return f"not known, because each kernel has its own speed; {text}, and the boots"
    times = runs.seconds(session, chain, earlier)
    if isinstance(times, list):
        hint = "" if earlier else "; --fsstack-history or --fsstack-compare names earlier runs"
        return f"not known, because there is no earlier run of {first_names(times)}; {text}{hint}"
    shortest, longest = (timedelta(seconds=round(seconds)) for seconds in times)
    duration = f"about {shortest}" if shortest == longest else f"about {shortest}, at most about {longest}"
    return f"{duration}, as in the last run of these stacks; {text}"
