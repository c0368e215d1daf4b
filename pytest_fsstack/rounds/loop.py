"""The round loop: chains run stack by stack in rounds, each item reported once with its verdict."""

from __future__ import annotations

import functools
import json
import os
import random
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack.judging import carry_over, saved
from pytest_fsstack.judging.conditions import Conditions, Rule, first_broken, given_up, summary
from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.notices import notices
from pytest_fsstack.judging.plan import Left, Planner, State, confirmation_level
from pytest_fsstack.judging.repetition import Repeated, combined
from pytest_fsstack.judging.results import (
    ChainResults,
    Confirmation,
    Results,
    StackInfo,
    Unjudged,
    describe_failure,
    describe_shortly,
    describe_undecided,
)
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.standing import costliest, standings
from pytest_fsstack.judging.verdict import Looks, Verdict
from pytest_fsstack.machine import load
from pytest_fsstack.machine.needs import Program, missing
from pytest_fsstack.options import CommandLine
from pytest_fsstack.options import value as option_value
from pytest_fsstack.options.studies import as_option
from pytest_fsstack.rounds.chains import Absence, Chain, ItemOutcome, StackParameter, parameter_of, step_of
from pytest_fsstack.rounds.moment import Moment
from pytest_fsstack.rounds.progress import Pace, Progress
from pytest_fsstack.rounds.protocol import Phase, Protocol, Reports, Run, nothing

if TYPE_CHECKING:
    from pytest_fsstack.rounds.budgets import Budgets
    from pytest_fsstack.stack.model import Stack

#: Where the `timed` fixture leaves what it measured.
SAMPLE = pytest.StashKey[Sample]()
#: The name of a step that is about to be repeated, for the `timed` fixture to see that it does not write.
REPEATED = pytest.StashKey[str]()

#: The number of the round that a test runs in, from 0 on, for the fixture `fsstack_seed`.
ROUND = pytest.StashKey[int]()

#: A chain that is run: gives the stacks of the next round, and takes others in their place.
Rounding = Generator[list[str], list[str] | None, None]


class Rounds:
    """The pytest plugin that runs groups; registered once there are any."""

    def __init__(
        self,
        config: pytest.Config,
        chains: dict[pytest.Item, Chain],
        found: Results,
        *,
        looks: Looks,
        seed: int,
        budgets: Budgets,
        strict: bool,
        discard: tuple[Rule, ...],
        missing_fails: bool,
        mounts: Callable[[], list[str]],
        commands: Callable[[], list[str]],
        progress: Progress,
        worker: dict[str, Any],
    ) -> None:
        self.config, self.chains, self.results = config, chains, found
        self.looks, self.seed, self.budgets = looks, seed, budgets
        self.strict, self.missing_fails = strict, missing_fails
        #: For what the machine did, rounds are discarded by these rules.
        self.discard = discard if not config.getoption("benchmark_disable", False) else ()
        self.mounts, self.commands, self.progress, self.worker = mounts, commands, progress, worker
        #: Each stack runs once, to see whether it runs at all, and nothing is judged.
        self.once = bool(config.getoption("benchmark_disable", False))
        #: What is decided of the chain that runs, and what each of its stacks has yet to run.
        self.planner: Planner | None = None
        self.left: dict[str, Left] = {}
        #: What the progress says of the chain that runs.
        self._moment = Moment("", "", 0, 0)
        self._states: dict[str, State] = {}
        self._pace = Pace()
        self.protocol = Protocol(config, self._before)
        config.pluginmanager.register(self.protocol, "fsstack-protocol")

    def _before(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Run the whole chain of an item, before the first of its items is reported."""
        chain = self.chains.get(item)
        if chain is not None and chain.timed and not chain.done:
            self._run(chain)
            self._end(chain)
            self._tear_down_to(item, chain, nextitem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        chain = self.chains.get(item)
        if chain is None or not chain.done:
            return None
        # Only now, so that the lines of the progress do not tear the item's own line apart.
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, chain):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _end(self, chain: Chain) -> None:
        chain.done = True
        chain.results.carry_over = chain.results.find_carry_over()
        if remark := carry_over.remark(chain.results.carry_over):
            chain.results.remarks.append(remark)
        self.budgets.waive(chain, [item for item in chain.selected if self._only_prepares(item, chain)])

    def _only_prepares(self, item: pytest.Item, chain: Chain) -> bool:
        """Whether a test has no timed block, beside others of its chain that have: it was promised no verdict."""
        parameter, results = parameter_of(item), chain.results
        outcome = chain.outcomes.get(item)
        if parameter is None or outcome is None or outcome.run is None or outcome.ended or outcome.run.left_out:
            return False
        assert isinstance(item, pytest.Function)
        step, measured = step_of(item, parameter), results.measured
        return bool(measured) and step not in measured and not _promise(item, results)

    # -- running -------------------------------------------------------------------------------------------------------

    def _run(self, chain: Chain) -> None:
        try:
            for _ in self._all_rounds(chain):
                pass
        finally:
            self.progress.end()

    def pytest_enter_pdb(self) -> None:
        self.progress.leave()

    def _all_rounds(self, chain: Chain) -> Rounding:
        """Run a chain. Gives before each round the stacks that are to run in it; others may be sent in their place."""
        looks = Looks.fixed(1, self.looks.alpha) if self.once else self.looks
        kernel = self.worker.get("kernel", "")
        results = chain.results = ChainResults(
            chain.id, chain.device.spec, chain.baseline, looks, self.seed, kernel=kernel
        )
        results.budgets_sharing = self.budgets.confirmed
        self.results.chains.append(results)
        self._moment, self._states, self._pace = Moment(chain.id, chain.device.spec, 1, looks.most), {}, Pace()
        stacks = [name for name in chain.stacks if chain.needed(name)]
        for name in stacks:
            stack = chain.stacks[name].stack
            results.stacks[name] = StackInfo(name, stack.spec)
            for step, item in chain.needed(name):
                if step not in results.steps:
                    results.steps.append(step)
                mark = item.get_closest_marker("benchmark")
                results.groups[step] = (mark.kwargs.get("group") if mark else None) or step
        results.steps.sort(key=chain.steps.index)
        some = next(iter(chain.examples()))
        results.remarks = [str(mark.args[0]) for mark in some.iter_markers("fsstack_remark")][::-1]
        results.tables = [(mark.args[0], dict(mark.kwargs)) for mark in some.iter_markers("fsstack_table")][::-1]
        # Workers of kernels know nothing of each other's figures.
        wishes = {} if self.once else chain.wishes()
        chain.repeated = {step: Repeated(wish, looks, fixed=bool(self.worker)) for step, wish in wishes.items()}
        # What is missing is found in the order of the stacks, so that it is reported so.
        able = {name: chain.baseline for name in stacks if not self._missing(chain, name)}
        planner = Planner(looks, able, control=chain.control)
        results.controls = [name for name in results.stacks if name == chain.control]
        # One seed for the session, but not one order for all of its chains.
        rng = random.Random(f"{self.seed} {chain.id} {chain.device.id}")
        yield from self._run_rounds(chain, planner, rng)
        if len(results.discarded) >= looks.most:
            results.remarks.append(given_up(results.discarded))
        elif self.budgets.confirmed > 1 and not self._ends_the_session(chain):
            yield from self._confirm(chain, planner, rng)
        # Of kernels' controls, the controller sees all rounds.
        results.remarks += [*([] if self.worker else doubts(results)), *notices(results, self._comparisons)][:3]

    def _run_rounds(self, chain: Chain, planner: Planner, rng: random.Random) -> Rounding:
        """Run rounds until the planner has no stack left, then judge what there is."""
        results, first = chain.results, chain.results.rounds
        self.planner = planner
        while results.rounds - first < planner.looks.most and (alive := planner.next_round()):
            stacks = (yield alive) or alive
            seen = load.watch(any(rule.name.startswith("psi") for rule in self.discard))
            for name in self._run_round(chain, stacks, rng):
                planner.end(name)
            self._pace.add(len(results.orders[-1]))
            kept = self._keeps(results, load.conditions(*seen, load.read()))
            run = results.rounds - first
            if kept and planner.due(run):
                self._judge(chain)
                planner.look(run, self._verdicts(results))
                if not results.repeated:
                    results.repeated = {step: each.settle(chain.baseline) for step, each in chain.repeated.items()}
            self.left = planner.left(run, confirms=self._will_confirm(results))
            self._look_at(results, planner)
            self._show(results)
            if self._ends_the_session(chain) or len(results.discarded) >= results.looks.most:
                break
        self._judge(chain)

    def _keeps(self, results: ChainResults, conditions: Conditions) -> bool:
        """Note what the machine did around the round that has run, and whether the round counts."""
        rule = first_broken(self.discard, conditions)
        if rule is not None:
            results.discard(str(rule), conditions)
        elif not self.worker:
            # Of kernels, the controller watches the machine that they share.
            results.conditions.append(conditions)
        return rule is None

    def _run_round(self, chain: Chain, stacks: list[str], rng: random.Random) -> list[str]:
        """Run each of the stacks once, in random order; returns those that cannot go on to the next round."""
        order = rng.sample(stacks, len(stacks))
        chain.results.orders.append(order)
        ended = []
        for name in order:
            started = time.monotonic()
            if not self._run_stack(chain, name):
                ended.append(name)
            for repeated in chain.repeated.values():
                repeated.end(time.monotonic() - started)
            if self._baseline_is_broken(chain):
                return stacks
        return ended

    def _baseline_is_broken(self, chain: Chain) -> bool:
        """Whether the baseline could not be built, so that measuring further would be for nothing."""
        steps = chain.needed(chain.baseline) if chain.baseline in chain.results.stacks else []
        first = chain.outcomes.get(steps[0][1]) if steps else None
        if chain.results.rounds > 1 or first is None or first.run is None or not first.run.broke_in_setup:
            return False
        text = f"the chain was ended in round 1, because the baseline {chain.label(chain.baseline)} cannot be built"
        for step, name, item in chain.members():
            if name != chain.baseline:
                chain.results.notes.setdefault((step, name), text)
                chain.absent.setdefault(item, Absence(text, of_baseline=True))
        return True

    def _confirm(self, chain: Chain, planner: Planner, rng: random.Random) -> Rounding:
        """Run fresh rounds of the stacks that seem to break a budget over the baseline, and of the baseline."""
        results = chain.results
        suspects = {
            stack
            for (_, stack), judgements in results.judgements.items()
            for each in judgements
            if each.outcome == "fail" and each.budget.overhead is not None and planner.states[stack] != "ended"
        }
        if not suspects or planner.states[chain.baseline] == "ended":
            return
        level = confirmation_level(self.budgets.confirmed)
        results.confirmation = Confirmation(results.rounds, level)
        names = [name for name in chain.stacks if name in suspects or name == chain.baseline]
        again = Planner(results.confirming, dict.fromkeys(names, chain.baseline))
        again.states[chain.baseline] = "measured"
        yield from self._run_rounds(chain, again, rng)

    def _missing(self, chain: Chain, name: str) -> bool:
        reasons = own = _lacks(chain.stacks[name])
        text = "; ".join(reasons)
        if not reasons and chain.baseline in chain.stacks and (reasons := _lacks(chain.stacks[chain.baseline])):
            text = f"the baseline {chain.label(chain.baseline)} cannot run here ({'; '.join(reasons)})"
            text += ": name another one with --fsstack-baseline"
        if reasons:
            for step, item in chain.needed(name):
                chain.results.notes[step, name] = text
                chain.absent[item] = Absence(f"{chain.label(name)}: {text}", lacking=True, of_baseline=not own)
        return bool(reasons)

    def _tools(self, stack: Stack) -> dict[str, str]:
        """The executables that the stack names, with their versions, for which they were asked before the first one."""
        versions = self.results.environment.get("versions", {})
        return {need.command: versions.get(need.command, "") for need in stack.needs() if isinstance(need, Program)}

    def _run_stack(self, chain: Chain, name: str) -> bool:
        """Run the chain of one stack once; whether the stack may go on to the next round."""
        results, steps = chain.results, chain.needed(name)
        last: pytest.Item | None = None
        for index, (step, item) in enumerate(steps):
            self._show(results, name, step)
            following = steps[index + 1][1] if index + 1 < len(steps) else chain.parent
            run, sample = self._run_step(chain, step, name, following)
            outcome = chain.outcomes[item]
            if run.left_out:
                # Only this step: what skips it says nothing about the others.
                results.notes[step, name] = "skipped"
                continue
            last = item
            if sample is not None:
                results.add(step, name, sample)
            results.stacks[name] = StackInfo(
                name,
                results.stacks[name].spec,
                self.mounts(),
                tools=self._tools(chain.stacks[name].stack),
                commands=self.commands(),
            )
            if outcome.ended:
                what = "failed" if run.failed else "was skipped"
                results.notes[step, name] = f"{what} in round {len(results.orders)}"
                for later, other in steps[index + 1 :]:
                    results.notes.setdefault((later, name), f"{step} {what} in round {len(results.orders)}")
                    chain.absent.setdefault(other, Absence(f"not run: {step} {what} on {chain.label(name)}"))
                if run.failed and item not in chain.selected:
                    # It has no report of its own: those that it is a part of say what went wrong.
                    chain.causes[name] = (
                        chain.steps.index(step),
                        f"{step} {what} on {chain.label(name)}:\n{run.cause}",
                    )
                if index + 1 < len(steps):
                    self._tear_down(item, chain, chain.parent)
                return False
        return last is not None

    def _run_step(self, chain: Chain, step: str, name: str, following: Any) -> tuple[Run, Sample | None]:
        """Run a step of a stack, as often as a round wants it; its last run, and the sample of the round.

        There is none if only some of the repetitions have measured: it would not be like that of the other stacks.
        """
        item, repeated = chain.items[step][name], chain.repeated.get(step)
        count, started = repeated.count if repeated else 1, time.monotonic()
        outcome, samples = chain.outcomes.setdefault(item, ItemOutcome()), []
        item.stash[ROUND] = chain.results.rounds - 1
        for number in range(1, count + 1):
            item.stash[REPEATED] = step if repeated and number == 1 else ""
            # In between, the stack must stand on.
            run = self.protocol.run(item, following if number == count else item.parent)
            outcome.add(run)
            if sample := _take(item, SAMPLE) or _benchmark_sample(self.config, item):
                samples.append(sample)
            if outcome.ended or len(samples) < number:
                break
        if number < count:
            self._tear_down(item, chain, following)
        if repeated:
            repeated.add(name, chain.results.rounds, samples, time.monotonic() - started)
        return run, combined(samples) if len(samples) == count else None

    def _tear_down_to(self, item: pytest.Item, chain: Chain, nextitem: pytest.Item | None) -> None:
        """Tear down what the next item that really runs does not share; its fixtures may be those of a module."""
        following: Any = nextitem
        if nextitem is not None and self.chains.get(nextitem) is chain:
            items = item.session.items
            rest = items[items.index(nextitem) :]
            following = next((other for other in rest if not getattr(self.chains.get(other), "done", False)), None)
        self._tear_down(item, chain, following)

    def _tear_down(self, item: pytest.Item, chain: Chain, following: Any) -> None:
        call = self.protocol.tear_down(item, following)
        if call.excinfo:
            chain.outcomes.setdefault(item, ItemOutcome()).add_teardown(call)

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _judge(self, chain: Chain) -> None:
        results = chain.results
        for step, name, item in () if self.once else chain.members():
            if results.of(step, name) and item in chain.selected:
                budgets = self.budgets.of(item, name, name == chain.baseline)
                results.judgements[step, name] = [results.judge(step, name, budget) for budget in budgets]

    def _verdicts(self, results: ChainResults) -> dict[str, list[Verdict | None]]:
        """The verdicts on all budgets of each stack so far."""
        found: dict[str, list[Verdict | None]] = {}
        for (_, stack), judgements in results.judgements.items():
            confirming = results.confirmation is not None
            found.setdefault(stack, []).extend(
                each.confirmed if confirming else each.verdict
                for each in judgements
                if not confirming or each.confirmed is not None
            )
        return found

    @property
    def _comparisons(self) -> int:
        """How many timed steps are compared with a baseline in this session."""
        compared = ((parameter_of(item), chain) for item, chain in self.chains.items() if chain.timed)
        return sum(parameter is not None and parameter.id != chain.baseline for parameter, chain in compared)

    def _ends_the_session(self, chain: Chain) -> bool:
        """Whether there are as many failures as end a session (-x)."""
        limit = self.config.getoption("maxfail", 0)
        return bool(limit) and chain.failures >= limit

    def _look_at(self, results: ChainResults, planner: Planner) -> None:
        """Note for the progress what is known after a round."""
        # Those that need no fresh rounds stay as they are.
        self._states |= planner.states
        self._moment = self._moment._replace(
            stacks=tuple(standings(results, self._states)),
            decided=planner.summary(),
            costliest=costliest(results),
            left=self._pace.left(self.left.values()),
        )

    def _show(self, results: ChainResults, running: str = "", step: str = "") -> None:
        """Say where the loop is. This is before a step and after a round, so that nothing that is measured waits."""
        confirmation = results.confirmation
        self._moment = self._moment._replace(
            round=max(1, results.rounds - (confirmation.start if confirmation else 0)),
            phase="confirming" if confirmation else "planned",
            running=running,
            step=step,
            elapsed=self._pace.elapsed,
        )
        self.progress(self._moment)

    def _will_confirm(self, results: ChainResults) -> bool:
        """Whether what fails will run again, in fresh rounds."""
        return self.budgets.confirmed > 1 and results.confirmation is None

    # -- reporting -----------------------------------------------------------------------------------------------------

    def _reports(self, item: pytest.Item, chain: Chain) -> Reports:
        outcome = chain.outcomes.get(item)
        if cause := chain.cause(item):
            return self._broken(item, cause)
        if outcome is None or (item in chain.absent and not outcome.ended):
            return self._never_ran(item, chain)
        phases = outcome.phases()
        record: dict[str, Any] = {}
        if not outcome.ended:
            parameter = parameter_of(item)
            assert parameter is not None
            assert isinstance(item, pytest.Function)
            step, stack = step_of(item, parameter), parameter.id
            record = self._describe(item, chain.results, step, parameter)
            if expected := chain.results.expected(step, stack, strict=self.strict):
                # pytest decides what the verdict means then, with its ini option for the strict ones.
                item.add_marker(pytest.mark.xfail(reason=expected))
            judge = functools.partial(self._verdict, item, chain.results, step, stack)
            phases = [Phase("call", judge, outcome.seconds) if phase.when == "call" else phase for phase in phases]
        reports = self.protocol.report(item, phases)
        if self.worker and record:
            of_call = next(report for report in reports if report.when == "call")
            of_call.fsstack_record = json.dumps(record)  # type: ignore[attr-defined]
        return reports

    def _broken(self, item: pytest.Item, cause: str) -> Reports:
        def end() -> None:
            pytest.fail(cause, pytrace=False)

        return self.protocol.report(item, [Phase("setup", end), Phase("teardown", nothing)])

    def _never_ran(self, item: pytest.Item, chain: Chain) -> Reports:
        absence = chain.absent.get(item, Absence("not run: the session was stopped before"))

        def end() -> None:
            if self.missing_fails and absence.lacking:
                pytest.fail(f"{absence.text} (--fsstack-missing=fail)", pytrace=False)
            if absence.of_baseline and (self.strict or not absence.lacking) and self._compares(item, chain):
                why = " (--fsstack-strict)" if absence.lacking else ""
                pytest.fail(f"its budget has nothing to compare with: {absence.text}{why}", pytrace=False)
            pytest.skip(absence.text)

        return self.protocol.report(item, [Phase("setup", end), Phase("teardown", nothing)])

    def _compares(self, item: pytest.Item, chain: Chain) -> bool:
        """Whether a test has a budget over the baseline that is to be judged."""
        parameter = parameter_of(item)
        if self.once or parameter is None:
            return False
        budgets = self.budgets.of(item, parameter.id, parameter.id == chain.baseline)
        return any(budget.overhead is not None for budget in budgets)

    def _verdict(self, item: pytest.Item, results: ChainResults, step: str, stack: str) -> None:
        """Raise what a test would raise: the failure of a broken budget, or the skip of an undecided one."""
        if results.discarded and not results.rounds:
            # Nothing else is wrong with it, but nothing was judged.
            text = f"inconclusive: no round counts: {summary(results.discarded)}"
            if self.strict and _promise(item, results):
                pytest.fail(f"{step} on {stack}: {text} (--fsstack-strict)", pytrace=False)
            pytest.skip(text)
        if not self.once and not results.of(step, stack) and (found := _promise(item, results)):
            pytest.fail(
                f"this test {found}, but measured nothing: put its work in `with timed(): ...`, or use the benchmark "
                "fixture",
                pytrace=False,
            )
        if reason := results.incomplete(step, stack):
            pytest.fail(
                f"{step} on {stack} did not do the work, so it is compared with nothing: {reason}", pytrace=False
            )
        for judgement in results.judgements.get((step, stack), []):
            # Skipped, a gate would be open without anybody noticing.
            if judgement.unjudged in (Unjudged.NO_METRIC, Unjudged.NO_BASELINE):
                pytest.fail(f"{stack}: {judgement.text}", pytrace=False)
        worst = results.worst(step, stack)
        if worst == "fail":
            again = "" if self.worker else self._again(item, results.seed)
            doubted = doubts(results)
            pytest.fail("\n".join([describe_failure(results, step, stack, again), *doubted]), pytrace=False)
        if worst == "inconclusive":
            text = describe_undecided(results, step, stack)
            if self.strict or (results.expected(step, stack) and not self.config.getoption("runxfail")):
                # One that is expected to be broken counts as expected.
                why = " (--fsstack-strict)" if self.strict else ""
                pytest.fail(f"{step} on {stack}: {text}{why}", pytrace=False)
            pytest.skip(text)
        if self.strict and (doubt := results.doubt(step, stack)):
            pytest.fail(f"{step} on {stack}: {worst}, but {doubt} (--fsstack-strict)", pytrace=False)

    def _again(self, item: pytest.Item, seed: int) -> str:
        """Return the command that runs one test alone."""
        config, typed = self.config, self.config.invocation_params
        test = as_option(item) if config.getoption("fsstack_study") else None
        here = os.path.relpath(item.path, typed.dir) + item.nodeid[item.nodeid.index("::") :]
        return CommandLine.of(config).again(test or here, typed.args, seed)

    def _describe(
        self, item: pytest.Item, results: ChainResults, step: str, parameter: StackParameter
    ) -> dict[str, Any]:
        """Add the figures to JUnit's properties and to pytest-benchmark's records; returns the record."""
        facts = saved.facts(results, step, parameter.id)
        if not facts:
            return {}
        if (detail := option_value(self.config, "junit")) != "none":
            properties = [
                *saved.flat(facts, full=detail == "full"),
                ("summary", describe_shortly(results, step, parameter.id)),
            ]
            item.user_properties += [(f"fsstack_{name}", value) for name, value in properties if value != ""]
        benchmarks = self.config.pluginmanager.get_plugin("pytest-benchmark")
        record: dict[str, Any] = {
            "name": item.name,
            "fullname": item.nodeid,
            "group": results.groups[step],
            "param": parameter.test_id,
            "seconds": results.series(step, parameter.id, "seconds"),
            "extra": facts,
        }
        if benchmarks is not None and not benchmarks.disabled:
            from pytest_fsstack.report.benchmark import add_record

            add_record(benchmarks, **record)
        return record


def _promise(item: pytest.Item, results: ChainResults) -> str:
    """Why a test should have measured something; empty if it need not.

    The budget of a class is that of its steps which measure, as long as there is one.
    """
    if item.get_closest_marker("benchmark"):
        return "is marked as a benchmark"
    own = any(mark.name == "fsstack_budget" for mark in item.own_markers)
    return "has a budget" if own or (item.get_closest_marker("fsstack_budget") and not results.samples) else ""


def _lacks(parameter: StackParameter) -> list[str]:
    return missing([*parameter.device.needs(), *parameter.stack.needs()])


def _take(item: pytest.Item, key: pytest.StashKey[Sample]) -> Sample | None:
    found = item.stash.get(key, None)
    if found is not None:
        del item.stash[key]
    return found


def _benchmark_sample(config: pytest.Config, item: pytest.Item) -> Sample | None:
    """What pytest-benchmark's own fixture measured in this round: the median of its calls, in seconds.

    Its record of the round is taken out: the item gets one for all its rounds.
    """
    session: Any = config.pluginmanager.get_plugin("pytest-benchmark")
    taken = [record for record in getattr(session, "benchmarks", []) if record.fullname == item.nodeid and record]
    if not taken:
        return None
    session.benchmarks[:] = [record for record in session.benchmarks if record not in taken]
    return Sample({"seconds": float(taken[-1].stats.median)})


def seed_of_round(seed: int, number: int) -> int:
    """What a test draws from in a round, given the session's seed; rounds are numbered from 0."""
    return random.Random(f"{seed} round {number}").getrandbits(64)
