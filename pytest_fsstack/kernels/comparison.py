"""Kernel against kernel: a chain that runs on several, as one chain whose stacks are compared across kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_fsstack.judging import carry_over
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.conditions import Conditions, Discarded, Rule, first_broken, given_up
from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.notices import notices, of_the_machine
from pytest_fsstack.judging.plan import Left, Planner, State, confirmation_level, in_words, longer
from pytest_fsstack.judging.results import (
    IN_EACH_KERNEL,
    ROUNDS_OF_A_BOOT,
    ChainResults,
    Confirmation,
    Judgement,
)
from pytest_fsstack.judging.saved import load
from pytest_fsstack.judging.standing import Standing, standings, together
from pytest_fsstack.judging.verdict import Looks, Verdict

#: What rounds of one boot of each kernel say, by `python -m benchmarks verdict 1600 boots`.
_OF_THESE_BOOTS = (
    "of these boots: if boots differ by 2 %, a limit that is kept fails in 39 / 25 / 13 % of sessions at a CV of "
    "2 / 5 / 10 %"
)

#: A kernel by its name, and the number of its boot.
Boot = tuple[str, int]


class Course:
    """A chain while it runs: what each kernel measured so far, and which stacks must run again on which kernel.

    `limit` is what a stack may cost on a kernel more than on the first one (0.05 is 5 %; None: nothing is judged).
    `budgets` is how many budgets the error rate holds for all together, whose failures fresh rounds must confirm; up to
    1 it is each one's own.
    """

    def __init__(self, kernels: Sequence[str], boots: int, limit: float | None, budgets: int = 0) -> None:
        self._kernels, self._boots, self._limit, self._budgets = kernels, boots, limit, budgets
        self.found: dict[Boot, ChainResults] = {}
        #: The stacks of which the kernel's own budgets want to know more.
        self._wanted: dict[Boot, list[str]] = {}
        self._alive: dict[Boot, list[str]] = {}
        self._failed: dict[Boot, int] = {}
        #: What the kernels' own plans say of their stacks: what is decided, and what is yet to run.
        self._states: dict[Boot, dict[str, State]] = {}
        self._left: dict[Boot, dict[str, Left]] = {}
        #: How often stacks have run, on all kernels.
        self.runs = 0
        #: What the machine that all kernels share did around each round.
        self.conditions: list[Conditions] = []
        #: The round that is running, from 1: those that count before it, and one. Why it will not count, if so.
        self.number = 0
        self.discarding: tuple[Rule, Conditions] | None = None
        self.discarded: list[Discarded] = []
        #: The order in which kernels had their turns, with the number of each round from 0; None if it does not count.
        self._turns: list[tuple[int | None, list[Boot]]] = []
        #: Which stacks must run on for the verdicts between kernels; with several boots, rounds do not decide them.
        self._planner: Planner | None = None
        #: The fresh rounds of those verdicts, once the planned rounds are over.
        self._confirmation: Confirmation | None = None

    @property
    def failed(self) -> int:
        """How many tests have raised."""
        return sum(self._failed.values())

    def hear(self, boot: Boot, message: Mapping[str, Any]) -> dict[str, Any]:
        """Take in what a worker measured in a round, or all that it measured; returns the environment there."""
        results = load(message["results"])
        (part,) = results.chains
        known = self.found.get(boot)
        if known is None or message["over"]:
            self.found[boot] = part
        else:
            for key, samples in part.samples.items():
                known.samples.setdefault(key, {}).update(samples)
            known.notes, known.orders, known.stacks = part.notes, part.orders, part.stacks
            known.work = part.work
            known.confirmation = part.confirmation
        self._wanted[boot], self._alive[boot] = message["wanted"], message["alive"]
        self._failed[boot] = message["failed"]
        self._states[boot] = message["states"]
        self._left[boot] = {stack: Left(*left) for stack, left in message["left"].items()}
        if not message["over"]:
            if self._turns:
                self._turns[-1][1].append(boot)
            if self.discarding:
                self._discard(boot[0], part.discarded[-1])
            else:
                self.runs += len(part.orders[-1])
        self._end_stacks()
        return results.environment

    def _discard(self, kernel: str, found: Discarded) -> None:
        """Add a kernel's turn to the round that does not count, in the order of the turns."""
        order = [stack_on(stack, kernel) for stack in found.order]
        samples = {(step, stack_on(stack, kernel)): sample for (step, stack), sample in found.samples.items()}
        self.runs += len(order)
        last = self.discarded[-1]
        self.discarded[-1] = replace(last, order=[*last.order, *order], samples={**last.samples, **samples})

    def lose(self, boot: Boot) -> None:
        """A kernel went down: nothing can be compared with it any more."""
        self._alive[boot] = []
        self._end_stacks()

    @property
    def rounds(self) -> int:
        """How many rounds there were so far."""
        return max((chain.rounds for chain in self.found.values()), default=0)

    @property
    def _rounds_of_plan(self) -> int:
        return self.rounds - (self._confirmation.start if self._confirmation else 0)

    @property
    def confirming_since(self) -> int | None:
        """The round after which fresh ones began, if all that runs are those."""
        starts = [part.confirmation for boot, part in self.found.items() if self._wanted.get(boot)]
        if self._planner and self._planner.next_round():
            starts.append(self._confirmation)
        known = [self._confirmation, *(part.confirmation for part in self.found.values())]
        return None if None in starts else min((each.start for each in starts or known if each), default=None)

    def decided(self) -> str:
        """What is decided so far, of the kernels' own budgets and between kernels, as `plan.in_words`."""
        between = self._planner.states.values() if self._planner else ()
        return in_words([*(state for states in self._states.values() for state in states.values()), *between])

    def standings(self) -> list[Standing]:
        """Where each stack on each kernel stands, beside the first kernel if there are several."""
        chain = self.merged()
        for step, stack, judged in self._judge(chain):
            chain.judgements[step, stack] = [judged]
        states: dict[str, list[State]] = {}
        own = (
            (stack_on(stack, boot[0]), state) for boot, found in self._states.items() for stack, state in found.items()
        )
        for stack, state in (*own, *(self._planner.states.items() if self._planner else ())):
            states.setdefault(stack, []).append(state)
        return standings(chain, {stack: together(found) for stack, found in states.items()})

    def left(self) -> list[Left]:
        """What each stack has yet to run on each kernel."""
        between: dict[str, Left] = {}
        if self._planner:
            confirms = self._budgets > 1 and self._confirmation is None
            between = self._planner.left(self._rounds_of_plan, confirms=confirms)
        found = []
        for boot, stacks in self._alive.items():
            own = self._left.get(boot, {})
            for stack in stacks:
                reasons = [own.get(stack), between.get(stack_on(stack, boot[0]))]
                wanted = [left for left in reasons if left is not None]
                if wanted:
                    found.append(longer(wanted[0], wanted[-1]))
        return found

    def begin_round(self, conditions: Conditions, rules: Sequence[Rule]) -> None:
        """Number the next round; whether it counts is known from the conditions before it."""
        self.number = self.rounds + 1
        rule = first_broken(rules, conditions)
        self.discarding = (rule, conditions) if rule else None
        self._turns.append((None if rule else self.rounds, []))
        if rule:
            self.discarded.append(Discarded(self.rounds, str(rule), [], conditions))

    @property
    def gave_up(self) -> bool:
        """Whether as many rounds were discarded as were planned."""
        return any(len(self.discarded) >= chain.looks.most for chain in self.found.values())

    def end_round(self, conditions: Conditions) -> None:
        """Plan on, after all kernels had their turn."""
        if self.discarding or not self.found:
            return
        self.conditions.append(conditions)
        if self._limit is None or self._boots > 1 or len(self._kernels) == 1:
            return
        if self._planner is None:
            chain = self.merged()
            references = {stack: chain.reference(stack) for stack in chain.stacks}
            # On the first kernel a stack runs for the others only.
            states: dict[str, State] = {
                stack: "measured"
                for stack, reference in references.items()
                if stack == reference or stack in chain.controls
            }
            self._planner = Planner(chain.looks, references, states)
            self._end_stacks()
        here = self._rounds_of_plan
        if self._planner.due(here):
            verdicts: dict[str, list[Verdict | None]] = {}
            for _, stack, judged in self._judge(self.merged()):
                verdicts.setdefault(stack, []).append(judged.confirmed if self._confirmation else judged.verdict)
            self._planner.look(here, verdicts)

    def confirm(self) -> None:
        """Once the planned rounds are over, plan fresh ones of the stacks that seem to be slower than the limit."""
        if self._planner is None or self._planner.next_round() or self._budgets < 2 or self._confirmation:
            return
        chain, states = self.merged(), self._planner.states
        suspects = {
            stack
            for _, stack, judged in self._judge(chain)
            if judged.outcome == "fail" and "ended" not in (states[stack], states[chain.reference(stack)])
        }
        level = confirmation_level(self._budgets)
        self._confirmation = Confirmation(self.rounds, level)
        references = {stack: chain.reference(stack) for stack in chain.stacks}
        looked_at: dict[str, State] = {stack: "running" if stack in suspects else states[stack] for stack in references}
        self._planner = Planner(Looks(chain.looks.rounds, level), references, looked_at)

    def _end_stacks(self) -> None:
        """Take out of the plan what failed or went down, and what is compared with it."""
        if self._planner is None:
            return
        alive = {stack_on(name, kernel) for (kernel, _), names in self._alive.items() for name in names}
        for stack, reference in self._planner.references.items():
            if not {stack, reference} <= alive:
                self._planner.end(stack)

    def wanted(self, boot: Boot) -> list[str] | None:
        """The stacks that a kernel must run in the next round; None if all, as nothing is known yet."""
        if boot not in self._alive:
            return None
        between = self._planner.next_round() if self._planner else []
        return [
            name
            for name in self._alive[boot]
            if name in self._wanted.get(boot, []) or stack_on(name, boot[0]) in between
        ]

    def order(self, boot: Boot) -> tuple[int, list[str] | None, tuple[str, Conditions] | None]:
        """What a kernel is told of the round that is running: its number, the stacks, and why it will not count."""
        reason = (str(self.discarding[0]), self.discarding[1]) if self.discarding else None
        return self.number, self.wanted(boot), reason

    def merged(self) -> ChainResults:
        """All kernels' results as one chain, with the fresh rounds of the verdicts between kernels."""
        chain = merge(self.found, self._kernels, self._boots)
        chain.confirmation = self._confirmation or chain.confirmation
        chain.conditions, chain.discarded = self.conditions, self.discarded
        if self._boots > 1 and len(self._kernels) > 1:
            chain.paired = False
            # Boots cannot be run again to confirm a failure, so each verdict has its share of the error rate.
            chain.looks = Looks.fixed(self._boots, chain.looks.alpha / max(1, self._budgets))
        return chain

    def conclude(self) -> ChainResults:
        """All kernels' results as one chain, with the verdicts between kernels."""
        chain = self.merged()
        for step, stack, judged in self._judge(chain):
            chain.judgements[step, stack] = [judged]
        if len(self._kernels) > 1:
            chain.carry_over = carry_over.carry_overs(self._rounds_of_turns(chain), f"{chain.seed} {chain.id}")
            noted = filter(None, [carry_over.remark(chain.carry_over)])
            chain.remarks = [*self._remarks(), *noted, *(notices if self._boots == 1 else of_the_machine)(chain)]
        else:
            chain.carry_over = self._carry_over_within()
            chain.remarks = [*doubts(chain), *self._remarks()]
        return chain

    def _rounds_of_turns(self, chain: ChainResults) -> list[carry_over.Round]:
        """Return which kernel ran after which, and the times of each of its stacks."""
        rounds = []
        for number, turns in self._turns:
            figures: dict[carry_over.Place, dict[str, float]] = {}
            for boot in turns if number is not None else ():
                for (step, stack), samples in self.found[boot].samples.items():
                    if number in samples and not samples[number].incomplete:
                        for metric in chain.compared_metrics(step):
                            place = figures.setdefault((step, metric, stack), {})
                            place[self._name(boot)] = carry_over.cost(samples[number], metric)
            rounds.append(carry_over.Round([self._name(boot) for boot in turns], figures))
        return rounds

    def _name(self, boot: Boot) -> str:
        return boot[0] if self._boots == 1 else f"{boot[0]} (boot {boot[1] + 1})"

    def _carry_over_within(self) -> list[carry_over.CarryOver]:
        """Return what runs of stacks on one kernel add to the next ones there, as its worker says."""
        if self._boots > 1:
            return []
        return [replace(each, kernel=boot[0]) for boot, part in self.found.items() for each in part.carry_over]

    def _remarks(self) -> list[str]:
        """Those of the scenario, which all kernels have in common, and why there are no more rounds."""
        first, *others = self.found.values()
        own = [remark for remark in first.remarks if all(remark in other.remarks for other in others)]
        return list(dict.fromkeys([*own, *([given_up(self.discarded)] if self.gave_up else [])]))

    def within(self) -> ChainResults | None:
        """The same samples, but each stack is compared with the baseline on the same kernel; None if that is no more.

        With several boots there are no verdicts on the tests' own budgets here: each boot has its own.
        """
        chain = merge(self.found, self._kernels, self._boots)
        kernels = [kernel for kernel in self._kernels if any(boot[0] == kernel for boot in self.found)]
        baseline = next(iter(self.found.values())).baseline
        if len(self._kernels) == 1 or len(chain.stacks) == len(kernels):
            return None
        chain.id += IN_EACH_KERNEL
        starts: dict[str, int] = {}
        level: float | None = None
        for (kernel, _), part in self.found.items():
            chain.against.update((stack_on(stack, kernel), stack_on(baseline, kernel)) for stack in part.stacks)
            if self._boots == 1:
                confirmation = part.confirmation
                starts |= dict.fromkeys(
                    (stack_on(stack, kernel) for stack in part.stacks),
                    confirmation.start if confirmation else part.rounds,
                )
                level = confirmation.level if confirmation else level
                found = {(step, stack_on(stack, kernel)): judged for (step, stack), judged in part.judgements.items()}
                chain.judgements.update(found)
        if level is not None:
            chain.confirmation = Confirmation(chain.rounds, level, starts)
        own = self._remarks()
        chain.carry_over = self._carry_over_within()
        chain.discarded = self.discarded
        chain.remarks = [*own, *doubts(chain)] + [
            f"{kernel}: {remark}"
            for (kernel, _), part in self.found.items()
            for remark in part.remarks
            if remark not in own
        ]
        return chain

    def _judge(self, chain: ChainResults) -> Iterator[tuple[str, str, Judgement]]:
        if self._limit is None or len(self._kernels) == 1:
            return
        for stack in chain.stacks:
            reference = chain.reference(stack)
            if stack in chain.controls:
                continue
            for step in chain.steps if stack != reference else ():
                if chain.of(step, stack) or chain.of(step, reference):
                    judged = chain.judge(step, stack, Budget(overhead=self._limit))
                    if self._boots == 1 and judged.verdict:
                        judged = replace(judged, text=f"{judged.text}, {_OF_THESE_BOOTS}")
                    yield step, stack, judged


def stack_on(stack: str, kernel: str) -> str:
    """What a stack on a kernel is called, in tables and test ids."""
    return f"{stack}:{kernel}"


def merge(found: Mapping[Boot, ChainResults], kernels: Sequence[str], boots: int) -> ChainResults:
    """The chains of (kernel, boot) as one: each stack on each kernel, compared with itself on the first of `kernels`.

    Where there is only one kernel, stacks are compared with the chain's baseline, and judged, as they are in it.

    Samples are paired by round, within the boots of the same number. With one boot a round is the unit of the verdict;
    with several a boot is, because the rounds of a boot have in common what differs between boots (the layout of the
    kernel's memory, say).
    """
    some = next(iter(found.values()))
    merged = ChainResults(some.id, some.device, stack_on(some.baseline, kernels[0]), some.looks, some.seed, boots=boots)
    merged.groups, merged.tables, merged.remarks = dict(some.groups), list(some.tables), list(some.remarks)
    merged.work, merged.budgets_sharing = dict(some.work), some.budgets_sharing
    # The shares are those of each kernel.
    merged.repeated = {step: replace(each, variance=None, cost=None) for step, each in some.repeated.items()}
    devices = dict.fromkeys(chain.device for chain in found.values())
    merged.device = ", ".join(devices)
    for stack in dict.fromkeys(name for chain in found.values() for name in chain.stacks):
        for kernel in kernels:
            for (ran_on, boot), chain in found.items():
                if ran_on == kernel and stack in chain.stacks:
                    _add(merged, chain, stack, kernel, boot)
            if len(kernels) > 1:
                merged.against[stack_on(stack, kernel)] = stack_on(stack, kernels[0])
    merged.steps = list(dict.fromkeys(step for chain in found.values() for step in chain.steps))
    merged.orders = max((chain.orders for chain in found.values()), key=len)
    if boots > 1:
        merged.looks = Looks.fixed(boots, some.looks.alpha)
    if len(kernels) == boots == 1:
        merged.confirmation = some.confirmation
        for (step, stack), judgements in some.judgements.items():
            name = stack_on(stack, kernels[0])
            merged.judgements[step, name] = [merged.judge(step, name, each.budget) for each in judgements]
    return merged


def _add(merged: ChainResults, chain: ChainResults, stack: str, kernel: str, boot: int) -> None:
    name = stack_on(stack, kernel)
    if stack in chain.controls and name not in merged.controls:
        merged.controls.append(name)
    merged.stacks[name] = replace(chain.stacks[stack], id=name, kernel=kernel)
    for step in chain.steps:
        for index, sample in chain.of(step, stack).items():
            merged.samples.setdefault((step, name), {})[boot * ROUNDS_OF_A_BOOT + index] = sample
        if (step, stack) in chain.notes:
            merged.notes[step, name] = chain.notes[step, stack]
