"""The round loop: chains of pytest items, run stack by stack in rounds, reported once with their verdict."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pytest

from pytest_fsstack import results
from pytest_fsstack.budget import Budget
from pytest_fsstack.measure import Sample
from pytest_fsstack.needs import missing
from pytest_fsstack.results import ArmInfo, Chain
from pytest_fsstack.stack import Device, Stack
from pytest_fsstack.verdict import Looks, percent

#: Where the `timed` fixture leaves what it measured.
SAMPLE = pytest.StashKey[Sample]()

Reports = list[pytest.TestReport]


@dataclass(frozen=True)
class Arm:
    """The parameter of the `fsstack` fixture: a stack on a device, and the id of the stack that it is compared with."""

    stack: Stack
    device: Device
    baseline: str
    #: As it stands in the names of tests: the stack's id, and the device's where there are several.
    test_id: str

    @cached_property
    def id(self) -> str:
        return self.stack.id

    @cached_property
    def parameter(self) -> Any:
        """What `parametrize` takes: one for all tests, of which there may be thousands."""
        return pytest.param(self, id=self.test_id)


@dataclass
class Outcome:
    """What became of an item over all rounds: its last reports, or those of the round in which it ended."""

    reports: Reports = field(default_factory=list)
    duration: float = 0.0

    @property
    def failed(self) -> bool:
        return any(report.failed for report in self.reports)

    @property
    def ended(self) -> bool:
        """Whether it raised, so that its own reports say it all."""
        return any(not report.passed for report in self.reports)

    def add(self, reports: Reports) -> None:
        self.reports = reports
        self.duration += sum(report.duration for report in reports if report.when == "call")


@dataclass(eq=False)
class Group:
    """The items of one chain on one device, by (step, stack id): the selected ones and those that they stand on.

    `parent` is the collector around the chain: what a stack's fixtures are torn down to.
    """

    id: str
    device: Device
    baseline: str
    parent: pytest.Item | pytest.Collector
    steps: list[str] = field(default_factory=list)
    arms: dict[str, Arm] = field(default_factory=dict)
    items: dict[tuple[str, str], pytest.Item] = field(default_factory=dict)
    selected: set[pytest.Item] = field(default_factory=set)
    #: Whether there is a benchmark among the tests; other chains run as pytest runs them.
    timed: bool = False
    done: bool = False
    #: Whether the controller of a worker has been told of the results.
    sent: bool = False
    outcomes: dict[pytest.Item, Outcome] = field(default_factory=dict)
    #: Why an item has not run at all, or not to the end.
    absent: dict[pytest.Item, str] = field(default_factory=dict)
    chain: Chain = field(init=False)

    def add(self, place: _Place, selected: bool) -> None:
        step, arm, item = place.step, place.arm, place.item
        if step not in self.steps:
            self.steps.append(step)
            # On other stacks the test has the same marks.
            self.timed = self.timed or item.get_closest_marker("benchmark") is not None
        self.arms.setdefault(arm.id, arm)
        self.items.setdefault((step, arm.id), item)
        if selected:
            self.selected.add(item)

    def examples(self) -> Iterable[pytest.Item]:
        """One selected item of each step, for its marks."""
        return {step: item for (step, _), item in self.items.items() if item in self.selected}.values()

    def of_step(self, example: pytest.Item) -> list[pytest.Item]:
        """The selected items of the step that an item stands for, on all stacks."""
        chosen = next(step for (step, _), item in self.items.items() if item is example)
        return [item for (step, _), item in self.items.items() if step == chosen and item in self.selected]

    def needed(self, arm: str) -> list[tuple[str, pytest.Item]]:
        """The steps that must run on a stack: all up to the last one of which somebody wants to know."""
        wanted = list(self.arms) if arm == self.baseline else [arm]
        last = max(
            (
                self.steps.index(step)
                for (step, of), item in self.items.items()
                if of in wanted and item in self.selected
            ),
            default=-1,
        )
        return [(step, self.items[step, arm]) for step in self.steps[: last + 1] if (step, arm) in self.items]

    def label(self, arm: str) -> str:
        return f"{arm} on {self.device.spec}"


def arm_of(item: pytest.Item) -> Arm | None:
    """The stack that an item is parametrized with, if it is."""
    callspec = getattr(item, "callspec", None)
    arm = callspec.params.get("fsstack") if callspec else None
    return arm if isinstance(arm, Arm) else None


def step_of(item: pytest.Function, arm: Arm) -> str:
    """The item's name without ``test_`` and without the stack: ``untar``, ``write[4k]``."""
    name = item.originalname.removeprefix("test_")
    if item.callspec.id == arm.test_id:
        return name
    words = f"-{item.callspec.id}-".replace(f"-{arm.test_id}-", "-", 1).strip("-")
    return f"{name}[{words}]"


def group_items(
    known: Iterable[pytest.Item], selected: Iterable[pytest.Item], complete: bool
) -> dict[pytest.Item, Group]:
    """The group of every selected item. `known` are the collected items, deselected ones included.

    Where the session did not collect everything (`complete` is false: node ids, --last-failed), the parents are asked
    for the items that the selected ones stand on.
    """
    # By identity, because pytest computes the hash of an item in Python, and there may be thousands.
    wanted = {id(item): place for item in selected if (place := _Place.of(item))}
    ordered = {id(item): item for item in [*known, *selected]}
    if not complete:
        # The siblings come first, because their order is that of the file, and so that of the steps.
        names = {item.nodeid: item for item in ordered.values()}
        found = [names.get(item.nodeid, item) for item in _siblings(place.item for place in wanted.values())]
        ordered = {id(item): item for item in [*found, *ordered.values()]}
    groups: dict[tuple[str, str], Group] = {}
    for place in wanted.values():
        if place.chain not in groups:
            groups[place.chain] = place.new_group()
    for key, item in ordered.items():
        here = wanted.get(key) or _Place.of(item)
        if here and here.chain in groups:
            groups[here.chain].add(here, selected=key in wanted)
    return {place.item: groups[place.chain] for place in wanted.values()}


class _Place(NamedTuple):
    """Where an item belongs. Found once for each, as there may be thousands."""

    item: pytest.Function
    arm: Arm
    step: str
    #: The name of the chain, and the device.
    chain: tuple[str, str]

    @classmethod
    def of(cls, item: pytest.Item) -> _Place | None:
        arm = arm_of(item)
        if arm is None:
            return None
        assert isinstance(item, pytest.Function)
        assert item.parent is not None
        step, parent = step_of(item, arm), item.parent
        chain = parent.nodeid if isinstance(parent, pytest.Class) else f"{parent.nodeid}::test_{step}"
        return cls(item, arm, step, (chain, arm.device.id))

    def new_group(self) -> Group:
        parent = self.item.parent
        top = parent if isinstance(parent, pytest.Class) else self.item
        assert top is not None
        assert top.parent is not None
        return Group(self.chain[0], self.arm.device, self.arm.baseline, top.parent)


def _siblings(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    for parent in dict.fromkeys(item.parent for item in items):
        # Past the collector's own `collect`, which would register its setup functions a second time.
        if isinstance(parent, pytest.Class):
            nodes = super(pytest.Class, parent).collect()
        elif isinstance(parent, pytest.Module):
            nodes = super(pytest.Module, parent).collect()
        else:
            continue
        yield from (node for node in nodes if isinstance(node, pytest.Item))


class StandIn:
    """The pytest plugin of a worker without its kernel: each test fails with the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        def say() -> None:
            pytest.fail(self.reason, pytrace=False)

        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for work, when in (say, "setup"), (lambda: None, "teardown"):
            report = report_of(item, pytest.CallInfo.from_call(work, when=when))  # type: ignore[arg-type]
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


class Rounds:
    """The pytest plugin that runs groups; registered once there are any."""

    def __init__(
        self,
        config: pytest.Config,
        groups: dict[pytest.Item, Group],
        found: results.Results,
        *,
        looks: Looks,
        seed: int,
        budgets: Callable[[pytest.Item, str, bool], list[Budget]],
        strict: bool,
        missing_fails: bool,
        mounts: Callable[[], list[str]],
        progress: Callable[[str, bool], None],
        worker: dict[str, Any],
    ) -> None:
        self.config, self.groups, self.results = config, groups, found
        self.looks, self.seed, self.budgets = looks, seed, budgets
        self.strict, self.missing_fails = strict, missing_fails
        self.mounts, self.progress, self.worker = mounts, progress, worker
        # The module of pytest's own runner, by its plugin's name rather than by a private import.
        self.runner: Any = config.pluginmanager.get_plugin("runner")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        group = self.groups.get(item)
        if group is None or not group.timed:
            return None
        if not group.done:
            self._run(group)
            group.done = True
            self._tear_down_to(item, group, nextitem)
        # Only now, so that the lines of the progress do not tear the item's own line apart.
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self._reports(item, group)
        if self.worker and not group.sent:
            # The controller gets everything with the first report: a guest may not live to its last.
            content = {"chain": results.dump(group.chain), "environment": self.results.environment}
            reports[-1].fsstack_chain = json.dumps({**content, "boot": self.worker["boot"]})  # type: ignore[attr-defined]
            group.sent = True
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    # -- running -------------------------------------------------------------------------------------------------------

    def _run(self, group: Group) -> None:
        once = self.config.getoption("benchmark_disable", False)
        looks = Looks.fixed(1, self.looks.alpha) if once else self.looks
        kernel = self.worker.get("kernel", "")
        chain = group.chain = Chain(group.id, group.device.spec, group.baseline, looks, self.seed, kernel=kernel)
        self.results.chains.append(chain)
        arms = [name for name in group.arms if group.needed(name)]
        for name in arms:
            stack = group.arms[name].stack
            chain.arms[name] = ArmInfo(name, stack.spec)
            for step, item in group.needed(name):
                if step not in chain.steps:
                    chain.steps.append(step)
                mark = item.get_closest_marker("benchmark")
                chain.groups[step] = (mark.kwargs.get("group") if mark else None) or step
        chain.steps.sort(key=group.steps.index)
        some = next(iter(group.examples()))
        chain.remarks = [str(mark.args[0]) for mark in some.iter_markers("fsstack_remark")][::-1]
        chain.tables = [(mark.args[0], dict(mark.kwargs)) for mark in some.iter_markers("fsstack_table")][::-1]
        alive = [name for name in arms if not self._missing(group, name)]
        # One seed for the session, but not one order for all of its chains.
        rng = random.Random(f"{self.seed} {group.id} {group.device.id}")
        so_far = ""
        while alive and len(chain.orders) < looks.rounds[-1]:
            order = rng.sample(alive, len(alive))
            chain.orders.append(order)
            for name in order:
                self.progress(self._state(group, name) + so_far, False)
                if not self._run_arm(group, name):
                    alive.remove(name)
            so_far = self._dearest(group.chain)
            self.progress(self._state(group, "") + so_far, True)
            if not self._worthwhile(group, alive):
                break
            if len(chain.orders) in looks.rounds:
                self._judge(group)
                if self._decided(group):
                    break
        self._judge(group)
        self.progress("", True)

    def _missing(self, group: Group, name: str) -> bool:
        arm = group.arms[name]
        reasons = missing([*arm.device.needs(), *arm.stack.needs()])
        if reasons:
            text = "; ".join(reasons)
            for step, item in group.needed(name):
                group.chain.notes[step, name] = text
                group.absent[item] = f"{group.label(name)}: {text}"
        return bool(reasons)

    def _run_arm(self, group: Group, name: str) -> bool:
        """Run the chain of one stack once; whether the stack may go on to the next round."""
        chain, steps = group.chain, group.needed(name)
        for index, (step, item) in enumerate(steps):
            following = steps[index + 1][1] if index + 1 < len(steps) else group.parent
            reports = self._run_item(item, following)
            outcome = group.outcomes.setdefault(item, Outcome())
            outcome.add(reports)
            sample = _take(item, SAMPLE) or _benchmark_sample(self.config, item)
            if sample is not None:
                chain.add(step, name, sample)
            chain.arms[name] = ArmInfo(name, chain.arms[name].spec, self.mounts())
            if outcome.ended:
                what = "failed" if any(report.failed for report in reports) else "was skipped"
                chain.notes[step, name] = f"{what} in round {len(chain.orders)}"
                for later, other in steps[index + 1 :]:
                    chain.notes.setdefault((later, name), f"{step} {what} in round {len(chain.orders)}")
                    group.absent.setdefault(other, f"not run: {step} {what} on {group.label(name)}")
                if index + 1 < len(steps):
                    self._tear_down(item, group, group.parent)
                return False
        return True

    def _run_item(self, item: pytest.Item, following: Any) -> Reports:
        # A second run of an item starts with what the first one left; only its last run's output is of interest.
        getattr(item, "_report_sections", []).clear()
        return list(self.runner.runtestprotocol(item, log=False, nextitem=following))

    def _tear_down_to(self, item: pytest.Item, group: Group, nextitem: pytest.Item | None) -> None:
        """Tear down what the next item that really runs does not share; its fixtures may be those of a module."""
        following: Any = nextitem
        if nextitem is not None and self.groups.get(nextitem) is group:
            if hasattr(self.config, "workerinput"):
                following = item.session  # what a worker gets next is not known yet
            else:
                items = item.session.items
                rest = items[items.index(nextitem) :]
                following = next((other for other in rest if not getattr(self.groups.get(other), "done", False)), None)
        self._tear_down(item, group, following)

    def _tear_down(self, item: pytest.Item, group: Group, following: Any) -> None:
        call = pytest.CallInfo.from_call(lambda: self.runner.pytest_runtest_teardown(item, following), when="teardown")
        if call.excinfo:
            group.outcomes.setdefault(item, Outcome()).reports.append(report_of(item, call))

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _judge(self, group: Group) -> None:
        chain = group.chain
        for (step, name), item in group.items.items():
            if chain.of(step, name) and item in group.selected:
                budgets = self.budgets(item, name, name == group.baseline)
                chain.judgements[step, name] = [chain.judge(step, name, budget) for budget in budgets]

    def _decided(self, group: Group) -> bool:
        judged = [each for judgements in group.chain.judgements.values() for each in judgements]
        return all(judgement.verdict is None or judgement.outcome != "inconclusive" for judgement in judged)

    def _worthwhile(self, group: Group, alive: list[str]) -> bool:
        """Whether a further round can tell anything: a stack is left, and no failure ends the session (-x)."""
        limit = self.config.getoption("maxfail", 0)
        return bool(alive) and not (limit and sum(outcome.failed for outcome in group.outcomes.values()) >= limit)

    def _state(self, group: Group, name: str) -> str:
        """Where the loop is, for the progress line."""
        chain = group.chain
        now = f": {name}" if name else " done"
        rounds = f"round {max(1, len(chain.orders))} of at most {chain.looks.rounds[-1]}"
        return f"{group.id.partition('::')[2] or group.id} on {group.device.spec}: {rounds}{now}"

    def _dearest(self, chain: Chain) -> str:
        """What is known so far, for the progress line."""
        worst = [
            (estimate.overhead, f"{step} on {arm} {percent(estimate.overhead)}")
            for step in chain.steps
            for arm in chain.arms
            if (estimate := chain.estimate(step, arm)) and estimate.rounds > 1
        ]
        return f"; dearest so far: {max(worst)[1]}" if worst else ""

    # -- reporting -----------------------------------------------------------------------------------------------------

    def _reports(self, item: pytest.Item, group: Group) -> Reports:
        outcome = group.outcomes.get(item)
        if outcome is None or (item in group.absent and not outcome.ended):
            return self._never_ran(item, group)
        reports = outcome.reports
        if not outcome.ended:
            arm = arm_of(item)
            assert arm is not None
            assert isinstance(item, pytest.Function)
            step = step_of(item, arm)
            record = self._describe(item, group.chain, step, arm)
            call = pytest.CallInfo.from_call(lambda: self._verdict(item, group.chain, step, arm.id), when="call")
            judged = report_of(item, call)
            for index, report in enumerate(reports):
                if report.when == "call":
                    judged.sections = report.sections
                    judged.duration = outcome.duration
                    if self.worker and record:
                        judged.fsstack_record = json.dumps(record)  # type: ignore[attr-defined]
                    reports[index] = judged
        for report in reports:
            report.user_properties = list(item.user_properties)
        return reports

    def _never_ran(self, item: pytest.Item, group: Group) -> Reports:
        reason = group.absent.get(item, "not run: the session was stopped before")
        fails = self.missing_fails and not reason.startswith("not run")

        def say() -> None:
            if fails:
                pytest.fail(f"{reason} (--fsstack-missing=fail)", pytrace=False)
            pytest.skip(reason)

        reports = [report_of(item, pytest.CallInfo.from_call(say, when="setup"))]
        return [*reports, report_of(item, pytest.CallInfo.from_call(lambda: None, when="teardown"))]

    def _verdict(self, item: pytest.Item, chain: Chain, step: str, arm: str) -> None:
        """Raise what a test would raise: the failure of a broken budget, or the skip of an undecided one."""
        if item.get_closest_marker("benchmark") and not chain.of(step, arm):
            pytest.fail(
                "this test is marked as a benchmark, but measured nothing: put its work in `with timed(): ...`, or use "
                "the benchmark fixture",
                pytrace=False,
            )
        if reason := chain.incomplete(step, arm):
            pytest.fail(f"{step} on {arm} did not do the work, so it is compared with nothing: {reason}", pytrace=False)
        unknown = [
            each for each in chain.judgements.get((step, arm), []) if each.verdict is None and "no metric" in each.text
        ]
        if unknown:
            pytest.fail(f"{arm}: {unknown[0].text}", pytrace=False)
        worst = chain.worst(step, arm)
        if worst == "fail":
            pytest.fail(results.describe_failure(chain, step, arm), pytrace=False)
        if worst == "inconclusive":
            text = results.describe_undecided(chain, step, arm)
            if self.strict:
                pytest.fail(f"{step} on {arm}: {text} (--fsstack-strict)", pytrace=False)
            pytest.skip(text)

    def _describe(self, item: pytest.Item, chain: Chain, step: str, arm: Arm) -> dict[str, Any]:
        """Add the figures to JUnit's properties and to pytest-benchmark's records; returns the record."""
        facts = results.facts(chain, step, arm.id)
        if not facts:
            return {}
        item.user_properties += [(f"fsstack_{name}", value) for name, value in results.flat(facts)]
        benchmarks = self.config.pluginmanager.get_plugin("pytest-benchmark")
        record: dict[str, Any] = {
            "name": item.name,
            "fullname": item.nodeid,
            "group": chain.groups[step],
            "param": arm.test_id,
            "seconds": chain.series(step, arm.id, "seconds"),
            "extra": facts,
        }
        if benchmarks is not None and not benchmarks.disabled:
            results.add_benchmark_record(benchmarks, **record)
        return record


def _take(item: pytest.Item, key: pytest.StashKey[Sample]) -> Sample | None:
    found = item.stash.get(key, None)
    if found is not None:
        del item.stash[key]
    return found


def report_of(item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
    """A report of something that is said about an item when it does not run any more."""
    item.funcargs = {}  # type: ignore[attr-defined]  # pytest-benchmark looks into it
    report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
    if report.skipped and isinstance(report.longrepr, tuple):
        # Where the test stands, as for a skip mark: nobody looks for the reason in this file.
        path, line = item.reportinfo()[:2]
        report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
    return report


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
