"""The views of a chain on several kernels: each stack against itself on the first kernel, and within each kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import structs

from pytest_fsstack.judging.cells import ChainPlan, KernelBoot, Policy, stack_on
from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.judge import find_carry_over, judge
from pytest_fsstack.judging.notices import notices, of_the_machine
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.notices import GaveUp, Notice
from pytest_fsstack.records.results import ChainResults, Judgement, Unjudged
from pytest_fsstack.records.sample import BootNumber, RoundNumber, Sample
from pytest_fsstack.records.verdicts import CarryOver, Looks

_Value = TypeVar("_Value")


class Views:
    """The views of a chain. They share its samples, and have the judgements of the limit between kernels.

    With several boots of a kernel, the stack has a row for all of them. Each boot then counts once.
    """

    def __init__(
        self,
        chain: ChainResults,
        plans: Mapping[KernelBoot, ChainPlan],
        kernels: Sequence[str],
        boots: int,
        policy: Policy,
    ) -> None:
        self.chain, self._kernels, self._boots, self._policy = chain, kernels, boots, policy
        self._baselines = {place.kernel: plan.baseline for place, plan in plans.items()}
        #: Judgements of the limit between kernels, by step, then by stack on its kernel.
        self.judgements: dict[str, dict[str, list[Judgement]]] = {}
        #: Effects of the previous run on the figures that are compared between kernels in one boot.
        self._carry_over: list[CarryOver] = []

    @property
    def _limit(self) -> float | None:
        return self._policy.limit if len(self._kernels) > 1 else None

    def between(self) -> ChainResults:
        """Return each stack on each kernel, compared with itself on the first kernel."""
        if self._boots == 1:
            chain = structs.replace(self.chain, notices=[], carry_over=self._carry_over)
        else:
            chain = self._by_boot()
            chain.paired = False
            # A failure cannot be confirmed by other boots, so the error rate is divided among the verdicts.
            chain.looks = Looks.fixed(self._boots, chain.looks.alpha / max(1, self._policy.sharing))
        first = self._kernels[0]
        chain.view, chain.judgements = "between", self.judgements
        chain.against = {info.id: stack_on(info.name, first) for info in chain.stacks.values()}
        chain.baseline = stack_on(next(iter(self._baselines.values())), first)
        return chain

    def within(self) -> ChainResults:
        """Return each stack on each kernel, compared with the baseline there. Several boots have no verdicts."""
        if self._boots == 1:
            return self.chain
        chain = self._by_boot()
        if len(self._kernels) > 1:
            chain.against = {
                info.id: stack_on(self._baselines[info.kernel], info.kernel) for info in chain.stacks.values()
            }
        chain.notices = self.notices([*doubts(Readings(chain)), *of_the_machine(chain)])
        return chain

    def _by_boot(self) -> ChainResults:
        """Return the chain with one stack for all boots of a kernel."""
        results = self.chain
        names = {stack: stack_on(info.name, info.kernel) for stack, info in results.stacks.items()}
        first, baseline = next(iter(self._baselines.items()))
        samples: dict[str, dict[str, dict[BootNumber, dict[RoundNumber, Sample]]]] = {}
        for step, by_stack in results.samples.items():
            for stack, by_boot in by_stack.items():
                samples.setdefault(step, {}).setdefault(names[stack], {}).update(by_boot)
        return structs.replace(
            results,
            baseline=stack_on(baseline, first),
            looks=Looks.fixed(self._boots, self._policy.looks.alpha),
            boots=self._boots,
            stacks={names[stack]: structs.replace(info, id=names[stack]) for stack, info in results.stacks.items()},
            samples=samples,
            judgements={},
            notes={step: _renamed(notes, names) for step, notes in results.notes.items()},
            orders=[[names[stack] for stack in order] for order in results.orders],
            controls=list(dict.fromkeys(names[stack] for stack in results.controls)),
            against={},
            notices=[],
            confirmation=None,
            discarded=[
                structs.replace(
                    discarded,
                    order=[names[stack] for stack in discarded.order],
                    samples={step: _renamed(by_stack, names) for step, by_stack in discarded.samples.items()},
                )
                for discarded in results.discarded
            ],
        )

    def so_far(self) -> list[ChainResults]:
        """Return the views that reports show, without final notices."""
        within = self.within()
        if len(self._kernels) == 1:
            return [within]
        kernels = {info.kernel for info in self.chain.stacks.values()}
        # One stack on each kernel has nothing else to be compared with.
        return [self.between()] if len(within.stacks) == len(kernels) else [self.between(), within]

    def final(self) -> list[ChainResults]:
        """Return the views that reports show: between kernels, and within each of them."""
        views = self.so_far()
        if len(self._kernels) > 1:
            between = views[0]
            between.notices = self.notices(notices(Readings(between)) if self._boots == 1 else of_the_machine(between))
        return views

    def notices(self, notices: Sequence[Notice]) -> list[Notice]:
        """Return the most important notices, after that of an early end."""
        return [
            *([GaveUp([item.rule for item in self.chain.discarded])] if self.chain.too_many_discarded else []),
            *notices[:3],
        ]

    # -- the limit between kernels -------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Judge the limit between kernels with the samples so far, if there is one."""
        if self._limit is None:
            return
        between, budget = self.between(), Budget(overhead=self._limit)
        for stack in between.stacks:
            reference = between.reference(stack)
            for step in between.steps if stack != reference and stack not in between.controls else ():
                if between.measures(step, stack) or between.measures(step, reference):
                    self.judgements.setdefault(step, {})[stack] = [self._of_boots(judge(between, step, stack, budget))]

    def _of_boots(self, judgement: Judgement) -> Judgement:
        """Return a judgement without the verdict that rounds of one boot give, unless it was asked for."""
        if self._boots > 1 or self._policy.judges_one_boot or judgement.verdict is None:
            return judgement
        return Judgement(judgement.budget, unjudged=Unjudged.FEW_BOOTS)

    def find_carry_over(self) -> None:
        """Find effects of the previous run on what is compared between kernels in one boot."""
        if len(self._kernels) > 1 and self._boots == 1:
            self._carry_over = find_carry_over(self.between())

    @property
    def judged(self) -> int:
        """Return the number of judged limits between kernels, decided or not."""
        return self.between().judged if self.judgements else 0

    @property
    def budgets(self) -> int:
        """Return the number of limits that had to be judged. One without any comparison still counts."""
        return 0 if self._limit is None else max(1, sum(map(len, self.judgements.values())))


def _renamed(by_stack: Mapping[str, _Value], names: Mapping[str, str]) -> dict[str, _Value]:
    return {names[stack]: value for stack, value in by_stack.items()}
