"""Run the stacks of a chain through pytest's own protocol, and report their tests. Nothing is judged here."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol as Interface, get_args

import msgspec
import pytest

from pytest_fsstack.judging.cells import CellRun, EndKind, StepRun, Task
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.decisions import Decision
from pytest_fsstack.judging.programs import Figures
from pytest_fsstack.machine.needs import Program
from pytest_fsstack.options.settings import Settings
from pytest_fsstack.records.sample import Action, Metric, Sample, metric_of_action
from pytest_fsstack.rounds.chains import Chain, ItemRuns, parameter_of, step_of
from pytest_fsstack.rounds.protocol import BY_LIMITS, Phase, Protocol, Reports, Run, succeed

if TYPE_CHECKING:
    from pytest_fsstack.records.results import Results
    from pytest_fsstack.stack.build import LayerAction
    from pytest_fsstack.stack.model import Stack

#: The `timed` fixture stores its sample here.
SAMPLE = pytest.StashKey[Sample]()
#: The name of a step that will be repeated. The `timed` fixture then checks that it writes nothing.
REPEATED = pytest.StashKey[str]()
#: The seconds in which the `timed` fixture checked that.
CHECKING = pytest.StashKey[float]()
#: The metrics that the step has recorded so far.
METRICS = pytest.StashKey[dict[str, Metric]]()
#: The current round from 0, for the fixture `fsstack_seed`.
ROUND = pytest.StashKey[int]()

#: Called with an item before its protocol.
BeforeProtocol = Callable[[pytest.Item], None]


class LastStack(Interface):
    """The last stack: its mounts, the commands that built it, and the seconds of actions on its layers."""

    mounts: list[str]
    commands: list[str]
    seconds: dict[LayerAction, float]


class Runner:
    """A runner for items of chains.

    `after_round` is called after each round with the course of the chain.
    """

    def __init__(
        self,
        config: pytest.Config,
        chains: Mapping[pytest.Item, Chain],
        results: Results,
        last: LastStack,
        after_round: Callable[[Course], None],
    ) -> None:
        self.config, self.chains, self.results, self.after_round = config, chains, results, after_round
        self._last = last
        self._protocol: Protocol

    def start(self, before: BeforeProtocol) -> None:
        """Register with pytest."""
        self._protocol = Protocol(self.config, before)
        self.config.pluginmanager.register(self._protocol, "fsstack-protocol")

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, chain: Chain, task: Task, show: Callable[[str], None]) -> CellRun:
        """Build a stack, run its steps, and take it down. `show` is called with each step before it runs."""
        started, runs, stack = time.monotonic(), list[StepRun](), task.cell.stack
        steps = [(step, item) for step, item in chain.required_steps(stack) if step in task.steps]
        for index, (step, item) in enumerate(steps):
            show(step)
            following = steps[index + 1][1] if index + 1 < len(steps) else chain.parent
            run = self._run_step(chain, step, item, following, task)
            runs.append(self._with_seconds(run, is_last=item is chain.required_steps(stack)[-1][1]))
            if runs[-1].ending in ("failed", "skipped"):
                if index + 1 < len(steps):
                    self.tear_down(item, chain, chain.parent)
                break
        checking = sum(item.stash.get(CHECKING, 0.0) for _, item in steps[: len(runs)])
        return CellRun(
            tuple(runs),
            time.monotonic() - started - checking,
            tuple(self._last.mounts),
            tuple(self._last.commands),
            self._tools(chain.stacks[stack].stack),
        )

    def _run_step(self, chain: Chain, step: str, item: pytest.Item, following: Any, task: Task) -> StepRun:
        """Run a step on a stack, with the repetitions of the round."""
        count, seconds = task.repetitions.get(step, 1), 0.0
        runs, samples = chain.runs.setdefault(item, ItemRuns()), list[Sample]()
        item.stash[CHECKING] = 0.0
        item.stash[ROUND] = task.number
        item.stash[METRICS] = chain.metrics.setdefault(step, {})
        for number in range(1, count + 1):
            # Checking once is enough, and checking in each round would take longer than most steps.
            item.stash[REPEATED] = step if step in task.repetitions and task.number == 0 and number == 1 else ""
            # Keep the stack between repetitions.
            run = self._protocol.run(item, following if number == count else item.parent)
            runs.add(run)
            seconds += run.seconds
            sample, measured = _pop_sample(item), _benchmark_sample(self.config, item)
            if sample and measured:
                sample = msgspec.structs.replace(sample, values={**measured.values, **sample.values})
            if sample := sample or measured:
                samples.append(sample)
            if runs.ended or len(samples) < number:
                break
        if number < count:
            self.tear_down(item, chain, following)
        return StepRun(
            step,
            tuple(samples),
            seconds - item.stash[CHECKING],
            _ending_of(run),
            run.cause,
            run.broke_in_setup,
            run.lacking,
            run.reason,
        )

    def _with_seconds(self, run: StepRun, *, is_last: bool) -> StepRun:
        """Add the seconds of actions on the layers of its stack to the samples of a step.

        Each step has those that made and opened the stack, because its figures depend on them. It has its own checks.
        The last one of a chain alone has those that closed the stack, because these depend on the steps before.
        """
        values, metrics, seconds = dict[str, float](), dict[str, Metric](), self._last.seconds
        layers = {layer for _, layer in seconds}
        for action in get_args(Action):
            of_action = {key.layer: took for key, took in seconds.items() if key.action == action}
            if action == "close" and (not is_last or len(of_action) < len(layers)):
                continue  # another step follows in other rounds, or a layer was not closed
            of_all = {"": sum(of_action.values())} if of_action or action != "check" else {}
            for layer, took in {**of_all, **of_action}.items():
                metric = metric_of_action(action, layer)
                values[metric.name], metrics[metric.name] = took, metric
        for key in [key for key in seconds if key.action == "check"]:
            del seconds[key]
        samples = tuple(
            msgspec.structs.replace(
                sample, values={**sample.values, **values, **sample.values}, metrics={**sample.metrics, **metrics}
            )
            for sample in run.samples
            if sample.values
        )
        return msgspec.structs.replace(run, samples=samples) if len(samples) == len(run.samples) else run

    def _tools(self, stack: Stack) -> dict[str, str]:
        """Return the executables that a stack names, with their versions (cached since before the first stack)."""
        versions = self.results.environment.get("versions", {})
        return {need.command: versions.get(need.command, "") for need in stack.needs() if isinstance(need, Program)}

    def tear_down(self, item: pytest.Item, chain: Chain, following: Any) -> None:
        call = self._protocol.tear_down(item, following)
        if call.excinfo:
            chain.runs.setdefault(item, ItemRuns()).torn_down.append(call)

    # -- reporting -----------------------------------------------------------------------------------------------------

    def cell_of(self, item: pytest.Item) -> tuple[Chain, str, str] | None:
        """Return the chain, step and stack of an item whose chain has run, or None."""
        chain, parameter = self.chains.get(item), parameter_of(item)
        if chain is None or not chain.has_run or parameter is None:
            return None
        assert isinstance(item, pytest.Function)
        return chain, step_of(item, parameter), parameter.id

    def report(
        self,
        item: pytest.Item,
        nextitem: pytest.Item | None,
        chain: Chain,
        decision: Decision,
        figures: Figures | None,
    ) -> None:
        """Report a test with the decision on it, after tearing down the fixtures that `nextitem` does not share.

        pytest does that after each test. The tests of a chain may be far from each other, with other tests between.
        """
        self.tear_down(item, chain, nextitem)
        # Not earlier: lines of progress would split the item's own line.
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        run = chain.runs[item].run if item in chain.runs else None
        for report in [*(run.subtests if run else ()), *self._reports(item, chain, decision, figures)]:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _reports(self, item: pytest.Item, chain: Chain, decision: Decision, figures: Figures | None) -> Reports:
        if not decision.in_setup and item not in chain.runs:
            decision = Decision("skipped", "not run: it was collected twice, and the other one ran", in_setup=True)

        def end() -> None:
            if decision.outcome == "failed":
                failure = pytest.fail.Exception(decision.text, pytrace=False)
                vars(failure)[BY_LIMITS] = decision.by_limits
                raise failure
            if decision.outcome == "skipped":
                pytest.skip(decision.text)

        if decision.in_setup:
            torn_down = chain.runs[item].teardowns() if item in chain.runs else []
            reports = self._protocol.report(item, [Phase("setup", end), *(torn_down or [Phase("teardown", succeed)])])
            if decision.overrules:
                _fail(reports[0], decision.text)
            return reports
        ran = chain.runs[item]
        if decision.as_run:
            return self._protocol.report(item, ran.phases())
        if decision.expected:
            # pytest interprets the verdict, with its ini option for strict expected failures.
            item.add_marker(pytest.mark.xfail(reason=decision.expected))
        record = self._describe(item, figures) if figures else {}
        phases = [Phase("call", end, ran.seconds) if phase.when == "call" else phase for phase in ran.phases()]
        reports = self._protocol.report(item, phases)
        if record and hasattr(self.config, "workerinput"):
            of_call = next(report for report in reports if report.when == "call")
            of_call.fsstack_record = json.dumps(record)  # type: ignore[attr-defined]
        return reports

    def _describe(self, item: pytest.Item, figures: Figures) -> dict[str, Any]:
        """Add the figures to JUnit's properties and pytest-benchmark's records. Return the record."""
        if Settings.of(self.config).junit != "none":
            item.user_properties += [(f"fsstack_{name}", value) for name, value in figures.properties if value != ""]
        parameter = parameter_of(item)
        assert parameter is not None
        record: dict[str, Any] = {
            "name": item.name,
            "fullname": item.nodeid,
            "group": figures.group,
            "param": parameter.test_id,
            "seconds": figures.seconds,
            "extra": figures.facts,
        }
        benchmarks = self.config.pluginmanager.get_plugin("pytest-benchmark")
        if benchmarks is not None and not benchmarks.disabled:
            from pytest_fsstack.report.benchmark import add_record

            add_record(benchmarks, **record)
        return record


def _fail(report: pytest.TestReport, text: str) -> None:
    """Let a report of a skip or an expected failure be one of a failure."""
    report.outcome, report.longrepr = "failed", text
    vars(report).pop("wasxfail", None)


def _ending_of(run: Run) -> EndKind:
    if run.left_out:
        return "left out"
    if not run.raised:
        return ""
    return "failed" if run.failed else "skipped"


def _pop_sample(item: pytest.Item) -> Sample | None:
    sample = item.stash.get(SAMPLE, None)
    if sample is not None:
        del item.stash[SAMPLE]
    return sample


def _benchmark_sample(config: pytest.Config, item: pytest.Item) -> Sample | None:
    """Return the median of the calls that pytest-benchmark's fixture measured in this round, in seconds.

    Its record of the round is removed, because the item gets one record for all rounds.
    """
    session: Any = config.pluginmanager.get_plugin("pytest-benchmark")
    records = [record for record in getattr(session, "benchmarks", []) if record.fullname == item.nodeid and record]
    if not records:
        return None
    session.benchmarks[:] = [record for record in session.benchmarks if record not in records]
    return Sample({"seconds": float(records[-1].stats.median)})


def seed_of_round(seed: int, number: int) -> int:
    """Return a test's seed in a round, from the session's seed. Rounds count from 0."""
    return random.Random(f"{seed} round {number}").getrandbits(64)
