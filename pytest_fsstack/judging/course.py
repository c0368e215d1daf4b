"""The course of one chain on one machine. It plans the rounds, judges the budgets and decides the outcome of each test.

A *cell* is a stack on a kernel in one of its boots. Without --fsstack-kernel there is one kernel without a name, in one
boot. A client builds and runs cells in the order of the tasks:

    while tasks := course.next_tasks():
        for task in tasks:
            if course.can_run(task):
                course.add(task, run(task))
        course.end_tasks(conditions)
    course.conclude()

Each budget compares a cell with a reference cell. For a test's own budget, that is the baseline on the same kernel and
boot. For --fsstack-max-regression, it is the same stack on the first kernel. One planner handles both, with the same
looks, discards, confirmation and controls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property

from msgspec import structs

from pytest_fsstack.judging import programs
from pytest_fsstack.judging.cells import Cell, CellRun, ChainPlan, KernelBoot, Policy, StepRun, Task, stack_on
from pytest_fsstack.judging.conditions import first_broken
from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.decisions import Decision, Decisions
from pytest_fsstack.judging.describe import judgement_in_words, note_in_words
from pytest_fsstack.judging.endings import End, Endings
from pytest_fsstack.judging.judge import find_carry_over, judge, judge_all
from pytest_fsstack.judging.mixing import rounds_differ, rounds_to_mix
from pytest_fsstack.judging.notices import notices
from pytest_fsstack.judging.plan import Planner, Question, RoundsLeft, State, confirmation_level
from pytest_fsstack.judging.programs import Figures
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.judging.repetition import Repeated, combined
from pytest_fsstack.judging.standing import ProgressState, costliest, standings
from pytest_fsstack.judging.views import Views
from pytest_fsstack.records.conditions import Conditions
from pytest_fsstack.records.results import ChainResults, Confirmation, Judgement, Note, StackInfo, Unjudged
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks, Verdict


class Course:
    """The course of a running chain. `plans` are the chains as collected, by kernel and boot. `key` seeds the order of
    rounds.

    `kernels` are the names of all kernels; the others are compared with the first. `boots` is the number of boots of
    each.
    """

    def __init__(
        self,
        plans: Mapping[KernelBoot, ChainPlan],
        policy: Policy,
        key: str,
        kernels: Sequence[str] = ("",),
        boots: int = 1,
    ) -> None:
        self.policy, self.kernels, self.boots = policy, kernels, boots
        self._plans = {boot: plans[boot] for kernel in kernels for boot in plans if boot.kernel == kernel}
        self._rng = random.Random(f"{policy.seed} {key}")
        stacks = dict.fromkeys(stack for plan in plans.values() for stack in plan.stacks)
        #: All cells by their names in results.
        self.cells = {
            self.name(cell): cell
            for stack in stacks
            for boot, plan in self._plans.items()
            if stack in plan.stacks
            for cell in [Cell(stack, *boot)]
        }
        #: Samples, and judgements of the tests' own budgets: each cell against the baseline on its kernel and boot.
        self.chain = self._new_results()
        self._tests = {
            (test.step, self.name(Cell(test.stack, *boot))): test
            for boot, plan in self._plans.items()
            for test in plan.tests
        }
        self._steps = {name: self._plan_of(name).stacks[cell.stack].steps for name, cell in self.cells.items()}
        repeats = {} if policy.once else next(iter(plans.values())).repeats
        self._repeated = {
            step: Repeated(repeat, self.chain.looks, sanity_only=self._has_sanity_limits_only(step))
            for step, repeat in repeats.items()
        }
        self.views = Views(self.chain, self._plans, kernels, boots, policy)
        self.endings = Endings(
            self.chain,
            self._tests,
            self._steps,
            {name: self._label(name) for name in self.cells},
        )
        self._concluded = False
        #: Errors about budgets whose metric no step records, since the first round. Each is there once.
        self.impossible: dict[str, None] = {}
        #: Whether no more rounds run, because enough tests have failed (--maxfail).
        self.stopped = False
        questions = self._questions()
        judged = {question for question in questions if self._is_judged(question)}
        self.planner = Planner(self.chain.looks, questions, self.chain.controls, judged)
        #: The first round of the current or the last tasks.
        self._start = 0
        #: Whether rounds explain most of the variance of times, so that they are not mixed.
        self._rounds_differ = False
        #: The number of the current tasks, and how many of them are done.
        self._runs_planned = self._runs_done = 0
        #: Steps that ran to their end in the current tasks without a sample, with their cells and rounds.
        self._without_sample: list[tuple[str, str, int]] = []
        for name in self.cells:
            self._find_missing(name)

    def name(self, cell: Cell) -> str:
        """Return the name of a cell in results: ``ext4:6.1``."""
        boot = f" (boot {cell.boot + 1})" if self.boots > 1 else ""
        return stack_on(cell.stack, cell.kernel) + boot

    def _new_results(self) -> ChainResults:
        policy, (first, plan) = self.policy, next(iter(self._plans.items()))
        results = ChainResults(
            plan.id,
            list(dict.fromkeys(plan.device for plan in self._plans.values())),
            self.name(Cell(plan.baseline, *first)),
            policy.looks_of(plan),
            policy.seed,
            remarks=list(plan.remarks),
            tables=list(plan.tables),
            budgets_sharing=policy.sharing,
            judges_emulated=policy.judges_emulated,
        )
        for plan in self._plans.values():
            results.steps += [step for step in plan.steps if step not in results.steps]
            results.groups |= plan.groups
        for name, cell in self.cells.items():
            plan = self._plans[cell.kernel_boot]
            planned = plan.stacks[cell.stack]
            results.stacks[name] = StackInfo(
                name,
                planned.spec,
                kernel=cell.kernel,
                encrypts=planned.encrypts,
                settings=planned.settings,
                emulated=plan.emulated,
                name=cell.stack,
                named=planned.named,
                kernel_cipher=planned.kernel_cipher,
            )
            if len(self._plans) > 1:
                results.against[name] = self.name(Cell(plan.baseline, *cell.kernel_boot))
            if cell.stack == plan.control:
                results.controls.append(name)
        return results

    def _questions(self) -> list[Question]:
        """Return the comparisons with the baseline, then those with the first kernel if rounds decide these."""
        pairs = [(name, self.chain.reference(name)) for name in self.cells]
        if self.policy.limit is not None and self._rounds_judge_kernels and not self.policy.once:
            pairs += [
                (name, stack_on(cell.stack, self.kernels[0]))
                for name, cell in self.cells.items()
                if cell.kernel != self.kernels[0] and name not in self.chain.controls
            ]
        return [Question(*pair, step) for pair in pairs for step in self._steps[pair[0]]]

    @property
    def _rounds_judge_kernels(self) -> bool:
        """Whether rounds decide the limit between kernels. Otherwise boots do."""
        return self.boots == 1 and self.policy.judges_one_boot

    def _has_sanity_limits_only(self, step: str) -> bool:
        budgets = [budget for (of, _), test in self._tests.items() if of == step for budget in test.budgets]
        return bool(budgets) and self.policy.limit is None and all(budget.sanity for budget in budgets)

    def _is_judged(self, question: Question) -> bool:
        """Whether the test has a budget over the reference, or the limit between kernels applies."""
        if question.reference != self.chain.reference(question.cell):
            return True
        test = self._tests.get((question.step, question.cell))
        return bool(test and test.budgets) and not self.policy.once

    # -- the plan ------------------------------------------------------------------------------------------------------

    def next_tasks(self) -> list[Task]:
        """Return the runs of the next round, or of several mixed ones, in random order. Empty at the end."""
        cells = self._planned() or self._confirming()
        if not cells:
            return []
        left = next(end for end in self.planner.looks.rounds if end > self.chain.rounds_of_phase)
        left -= self.chain.rounds_of_phase
        # What the first round shows, such as impossible budgets, should be known soon. One disturbance should not
        # discard several rounds.
        mixes = self.chain.rounds > 0 and not self._rounds_differ and not self.policy.discard
        self._start = self.chain.rounds
        numbers = self.chain.begin(rounds_to_mix(len(cells), left) if mixes else 1)
        tasks = [self._task(number, name, steps) for number in numbers for name, steps in cells.items()]
        self._runs_planned, self._runs_done = len(tasks), 0
        return self._rng.sample(tasks, len(tasks))

    def _task(self, number: int, name: str, required: Collection[str]) -> Task:
        """Return a run of a cell up to the last of the required steps."""
        steps = self._steps[name]
        last = max((index for index, step in enumerate(steps) if step in required), default=-1)
        repetitions = {step: repeated.count for step, repeated in self._repeated.items()}
        return Task(self.cells[name], number, steps[: last + 1], repetitions)

    def _planned(self) -> dict[str, set[str]]:
        over = self.chain.too_many_discarded or self.chain.rounds_of_phase >= self.planner.looks.max_rounds
        return {} if over else self.planner.next_round()

    @property
    def confirming(self) -> Looks | None:
        """Return the plan for confirming failures, or None if that is over or not wanted."""
        if self.policy.sharing <= 1 or self.chain.confirmation or self.policy.once:
            return None
        return self.chain.looks.confirming(confirmation_level(self.policy.sharing))

    def _confirming(self) -> dict[str, set[str]]:
        """Start fresh rounds for what seems to break a budget, if failures need confirmation. Return steps by cell."""
        if self.chain.too_many_discarded or not self.confirming:
            return {}
        self._judge()
        ended = self.planner.ended
        suspects = {
            question
            for question, judgements in self._judgements()
            if not ended.intersection((question.cell, question.reference))
            and any(judgement.outcome == "fail" and judgement.budget.overhead is not None for judgement in judgements)
        }
        if not suspects:
            return {}
        self.chain.confirmation = Confirmation(self.chain.rounds, confirmation_level(self.policy.sharing))
        states: dict[Question, State] = {**self.planner.states, **dict.fromkeys(suspects, "running")}
        self.planner = Planner(
            self.chain.confirming, self.planner.questions, judged=self.planner.judged, states=states, ended=ended
        )
        return self.planner.next_round()

    def can_run(self, task: Task) -> bool:
        """Whether a task is still to be done. A single round goes on with its other cells if one of them fails."""
        name = self.name(task.cell)
        if len(self._rounds) == 1:
            return name not in self.planner.ended
        return not self.stopped and name in self.planner.next_round()

    # -- what was measured ---------------------------------------------------------------------------------------------

    def add(self, task: Task, run: CellRun) -> None:
        """Record a run."""
        cell, name = task.cell, self.name(task.cell)
        self.chain.begin_run(task.number, name)
        self._runs_done += 1
        lasts = [step for step in run.steps if step.ending != "left out"]
        for step in run.steps:
            self._add_step(name, task.number, step)
        if lasts:
            self.chain.stacks[name] = structs.replace(
                self.chain.stacks[name], mounts=list(run.mounts), commands=list(run.commands), tools=dict(run.tools)
            )
        for repeated in self._repeated.values():
            repeated.end(run.seconds)
        if not lasts or lasts[-1].ending:
            self.planner.ended.add(name)
        if run.steps and run.steps[0].in_setup and task.number == 0 and cell.stack == self._plan_of(name).baseline:
            self._drop_without_baseline(cell, run.steps[0].reason)

    def _add_step(self, name: str, number: int, run: StepRun) -> None:
        if repeated := self._repeated.get(run.step):
            repeated.add(name, number, run.samples, run.seconds)
        # A median of fewer repetitions would not be comparable with that of other stacks.
        if run.ending != "left out" and len(run.samples) == (repeated.count if repeated else 1):
            self.chain.add(run.step, name, combined(run.samples), number, self.cells[name].boot)
        elif run.ending == "":
            self._without_sample.append((run.step, name, number))
        self.endings.add(name, number, run)

    def _plan_of(self, name: str) -> ChainPlan:
        return self._plans[self.cells[name].kernel_boot]

    def _label(self, name: str) -> str:
        return f"{self.cells[name].stack} on {self._plan_of(name).device}"

    def _find_missing(self, name: str) -> None:
        """Drop a cell if the machine does not meet its requirements, or those of its baseline."""
        plan, cell = self._plan_of(name), self.cells[name]
        lacks = plan.stacks[cell.stack].lacks
        text = "; ".join(lacks)
        if not lacks and plan.baseline in plan.stacks and (lacks := plan.stacks[plan.baseline].lacks):
            text = f"the baseline {self._label(self.chain.reference(name))} cannot run here ({'; '.join(lacks)})"
            text += ": name another one with --fsstack-baseline"
        if lacks:
            self.drop(cell, End("not run", f"{self._label(name)}: {text}", Note("cannot run", text), "lacking"))

    def _drop_without_baseline(self, cell: Cell, reason: str) -> None:
        """Drop all cells of a kernel whose baseline fails in setup: nothing could be compared with it."""
        note = Note("without baseline", reason, self._label(self.name(cell)))
        for other in self.cells.values():
            if other.kernel_boot == cell.kernel_boot and other != cell:
                self.drop(other, End("not run", note_in_words(note), note, "baseline"))

    def drop(self, cell: Cell, end: End) -> None:
        """Drop a cell that cannot run any more."""
        self.planner.ended.add(self.name(cell))
        self.endings.drop(self.name(cell), end)

    def lose(self, kernel_boot: KernelBoot) -> None:
        """Drop all cells of a kernel that went down, unless the course is over."""
        note = Note("kernel went down", cause=kernel_boot.kernel)
        for cell in self.cells.values():
            if cell.kernel_boot == kernel_boot and not self._concluded:
                self.drop(cell, End("not run", note_in_words(note), note))

    def _forget(self) -> None:
        """Forget what was computed from earlier rounds."""
        for attribute in ("_progress", "rounds_left", "readings"):
            self.__dict__.pop(attribute, None)

    # -- judging -------------------------------------------------------------------------------------------------------

    def end_tasks(self, conditions: Conditions) -> None:
        """End the current tasks. The rules decide by `conditions` whether their rounds count or are discarded."""
        self._runs_planned = self._runs_done = 0
        if len(self._rounds) > 1:
            self.chain.end_early()
        self._forget()
        for step, name, number in self._without_sample:
            if step in self.chain.measured:
                self.chain.add(step, name, Sample({}), number, self.cells[name].boot)
        self._without_sample.clear()
        if not self._rounds:
            # Of mixed rounds, none had a run.
            return
        if rule := first_broken(self.policy.discard, conditions):
            self.chain.discard(str(rule), conditions)
            return
        self.chain.conditions += [conditions] * len(self._rounds)
        for repeated in self._repeated.values():
            repeated.end_round()
        if self.chain.rounds == 1 and not self.policy.once:
            self._find_impossible()
        if self.chain.rounds_of_phase in self.planner.looks.rounds:
            self._judge()
            self.planner.look(self.chain.rounds_of_phase, self._verdicts())
            # A single block is judged as one, so no order may depend on its figures.
            if self.chain.rounds == self.chain.looks.rounds[0] < self.chain.looks.max_rounds:
                self._rounds_differ = rounds_differ(self.chain)
            if not self.chain.repeated:
                self.chain.repeated = {
                    step: repetition.settle(self._reference) for step, repetition in self._repeated.items()
                }

    @property
    def _rounds(self) -> range:
        """Return the rounds of the current or the last tasks."""
        return range(self._start, self.chain.rounds)

    def _find_impossible(self) -> None:
        """Find budgets that no round can judge, such as those with a typo in the metric. Cells need no rounds for them.

        If there are no others in the chain, its figures serve no budget, and it ends.
        """
        decidable, in_vain = set[str](), set[str]()
        for (step, name), test in self._tests.items():
            for budget in test.budgets if self.chain.measures(step, name) else ():
                judgement = judge(self.chain, step, name, budget)
                # A stack may record later what others record now.
                lacking = judgement.unjudged is Unjudged.NO_METRIC and budget.metric not in self.chain.metrics(step)
                if lacking or judgement.unjudged is Unjudged.UNFIT:
                    in_vain.add(name)
                    self.impossible[judgement_in_words(self.chain, step, name, judgement)] = None
                else:
                    decidable.add(name)
        for question in self.planner.questions if in_vain else ():
            is_own = question.reference == self.chain.reference(question.cell)
            if is_own and (question.cell in in_vain - decidable or not decidable):
                self.planner.states[question] = "given up" if question.cell in in_vain else "measured"

    def _reference(self, name: str) -> str:
        """Return the reference of a cell: the baseline on its kernel, or the same stack on the first kernel."""
        reference = self.chain.reference(name)
        return stack_on(self.cells[name].stack, self.kernels[0]) if reference == name else reference

    def _judge(self) -> None:
        """Judge all budgets with the samples so far."""
        if self.policy.once:
            return
        for (step, name), test in self._tests.items():
            if self.chain.measures(step, name):
                judge_all(self.chain, step, name, *test.budgets)
        self.views.judge()

    def _judgements(self) -> Iterable[tuple[Question, list[Judgement]]]:
        """Yield all judgements so far with their questions."""
        between = [self.views.between()] if self._rounds_judge_kernels and self.views.judgements else []
        for view in (self.chain, *between):
            for step, name, judgements in view.all_judgements():
                yield Question(name, view.reference(name), step), judgements

    def _verdicts(self) -> dict[Question, list[Verdict | None]]:
        """Return the verdicts so far on the budgets of each question. During confirmation, use fresh rounds only."""
        verdicts: dict[Question, list[Verdict | None]] = {}
        for question, judgements in self._judgements():
            # On an emulated CPU, budgets on time are as if there were none.
            judgements = [judgement for judgement in judgements if judgement.unjudged is not Unjudged.EMULATED]
            planned = [judgement.verdict for judgement in judgements]
            fresh = [judgement.confirmed for judgement in judgements if judgement.confirmed]
            verdicts.setdefault(question, []).extend(fresh if self.chain.confirmation else planned)
        return verdicts

    def conclude(self, comparisons: int = 0) -> None:
        """Judge the final samples, and add notices for readers. `comparisons` counts those of the whole session."""
        if self._concluded:
            return
        if self._runs_planned:
            self.chain.end_early()
        self._judge()
        self._concluded = True
        results = self.chain
        for (step, name), test in self._tests.items():
            measured = results.measures(step, name) or self.endings.only_prepares(step, name)
            if test.budgets and not (measured or self.policy.once):
                # Otherwise reports would leave out that these budgets were not judged.
                judge_all(results, step, name, *test.budgets)
        results.carry_over = find_carry_over(results)
        self.views.find_carry_over()
        self._forget()
        results.notices = self.views.notices([*doubts(self.readings), *notices(self.readings, comparisons)])

    @property
    def judged(self) -> int:
        """Return the number of judged budgets, decided or not."""
        return self.chain.judged + self.views.judged

    @property
    def budgets(self) -> int:
        """Return the number of budgets that had to be judged."""
        return sum(len(test.budgets) for test in self._tests.values()) - self.waived + self.views.budgets

    @property
    def waived(self) -> int:
        """Return the number of budgets of preparing tests, which have no timed block."""
        return sum(len(test.budgets) for key, test in self._tests.items() if self.endings.only_prepares(*key))

    # -- progress ------------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> ProgressState:
        """Return the progress of the chain after the last round."""
        confirming = self.chain.confirmation is not None
        return self._progress._replace(
            round=max(1, self.chain.rounds_of_phase),
            mixed=len(self._rounds) or 1,
            phase="confirming" if confirming else "planned",
            cells_run=self._runs_done,
            cells=self._runs_planned,
        )

    @property
    def _has_ended_rounds(self) -> bool:
        return bool(self.chain.conditions or self.chain.discarded)

    @cached_property
    def readings(self) -> Readings:
        """Return the readings so far of the tests' own figures. They are computed anew after each round."""
        return Readings(self.chain)

    @cached_property
    def _progress(self) -> ProgressState:
        results = self.chain if self.policy.limit is None or len(self.kernels) == 1 else self.views.between()
        return ProgressState(
            self.chain.id,
            self.chain.device,
            1,
            self.planner.max_rounds,
            decides=self.planner.max_rounds > self.planner.looks.rounds[0],
            stacks=tuple(standings(Readings(results), self.planner.cell_states())) if self._has_ended_rounds else (),
            decided=self.planner.decided,
            costliest=costliest(self.readings),
            results=self.chain if self._has_ended_rounds else None,
        )

    @property
    def runs_left(self) -> RoundsLeft:
        """Return the remaining runs of all cells together."""
        counts = self.rounds_left.values()
        expectations = [count.expected for count in counts if count.expected is not None]
        expected = sum(expectations) - self._runs_done if len(expectations) == len(counts) else None
        return RoundsLeft(expected, sum(count.maximum for count in counts) - self._runs_done)

    @cached_property
    def rounds_left(self) -> dict[str, RoundsLeft]:
        """Return the remaining rounds of each cell, with the current one."""
        ended = self.chain.rounds_of_phase - (len(self._rounds) if self._runs_planned else 0)
        return self.planner.rounds_left(ended, self.confirming)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def decision(self, step: str, cell: Cell, rerun_command: Callable[[], str] = str) -> Decision:
        """Return the decision on a test. `rerun_command` returns the command that runs it alone."""
        return self._decisions.of(step, self.name(cell), rerun_command)

    @property
    def _decisions(self) -> Decisions:
        return Decisions(self.readings, self.endings, self.policy, self.stopped)

    def figures(self, step: str, cell: Cell, *, full: bool = False) -> Figures | None:
        """Return a test's figures for other programs, or None if nothing was measured."""
        return programs.figures(self.readings, step, self.name(cell), full=full)

    def decisions_between(self) -> Iterable[tuple[str, Decision]]:
        """Yield each verdict between kernels as a node id with a decision."""
        readings = Readings(self.views.between())
        for step, stack, _ in readings.chain.all_judgements():
            nodeid = f"{readings.chain.id}::{step} on {stack} against {readings.chain.reference(stack)}"
            yield nodeid, self._decisions.of_budgets(readings, step, stack, str)
