"""Comparison of new runs with earlier ones, by the overhead of each stack over its reference.

Rounds of one run share the deviation of that run (docs/statistics.md), so each run gives one figure for a stack: the
typical log ratio of its rounds. `judging.runs` compares three or more runs a side. `spread` compares one or two runs
with five or more earlier ones of the same machine. Fewer runs give figures without a verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import expm1, log, log1p
from statistics import median
from typing import Any, NamedTuple

from pytest_fsstack.judging import runs
from pytest_fsstack.judging.describe import NOT_ON_EMULATED
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.over_time import changes, spread
from pytest_fsstack.records.names import kind_of, name_of
from pytest_fsstack.records.readings import Ratios, Reading
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Estimate, Outcome
from pytest_fsstack.units import counted

ONE_RUN_EACH = "one run each, so it is unknown how much runs differ"
NO_RATIO = "figures of 0 on one side: there is no ratio to judge"
LACKS_ROUNDS = "in some rounds, only the stack or its reference has a figure: there is no ratio of all rounds to judge"
NO_BUDGET = "not judged: this step has budgets, and none in this metric"
REFERENCE_BYTES = "the bytes of the reference itself, against its earlier runs of this machine"
#: The error rate of warnings, shared among all series.
_WARNING_RATE = 0.01
#: The change of a reference (0.05 is 5 %) from which on there is a warning.
_MOVED_SHARE = 0.05
#: Bytes of a reference below this are housekeeping of the filesystem, and count as equal.
_MIN_BYTES = float(1 << 20)
#: A test, a step of it, and a metric.
Measure = tuple[str, str, str]


class RunFigure(NamedTuple):
    """The reading of one run for a metric of a step on a stack.

    `ratio` is the typical logarithm of the stack over its reference. More is worse. It is None for the reference
    itself, and if nothing compares. `is_emulated`: it is a time of an emulated CPU, which is not judged.
    """

    reading: Reading
    ratio: float | None
    is_emulated: bool = False


class SeriesKey(NamedTuple):
    """The key of a series. Kernel and device are empty if all runs have one each, and so match any."""

    test: str
    step: str
    stack: str
    metric: str
    name: str
    kernel: str
    device: str

    @property
    def measure(self) -> Measure:
        return (self.test, self.step, self.metric)

    @property
    def name_in_test(self) -> str:
        """Return the name of the series within its test."""
        words = [self.step, "on", self.stack, self.kernel, self.device]
        over = "over the first kernel" if self.name.endswith("::kernel_overhead") else ""
        return " ".join(filter(None, [*words, over, "" if self.metric == "seconds" else f"({self.metric})"]))

    def __str__(self) -> str:
        test = self.test.rpartition("::")[2]
        return self.name_in_test if test == f"test_{self.step}" else f"{test} {self.name_in_test}"


def row_names(keys: Sequence[SeriesKey]) -> list[str]:
    """Return names for the rows of a table. They have the test only if there are several."""
    is_one_test = len({key.test for key in keys}) == 1
    return [key.name_in_test if is_one_test else str(key) for key in keys]


@dataclass(frozen=True)
class Change:
    """A series on both sides, with its verdict."""

    key: SeriesKey
    now: tuple[RunFigure, ...]
    then: tuple[RunFigure, ...]
    #: The change of the overhead. For a reference, it is the change of its own cost. None if there are too few runs.
    estimate: Estimate | None = None
    #: None without a limit, or with too few runs. A reference only has *fail*, for its bytes.
    outcome: Outcome | None = None
    #: How it was judged, or why not, as text.
    explanation: str = ""
    #: Whether a limit applies to it.
    is_judged: bool = True
    #: Whether it is a reference whose time changed by more than its earlier runs explain.
    moved: bool = False
    #: The lag-1 correlation of the earlier runs, or 0 if none is proven.
    correlation: float = 0.0

    @property
    def unit(self) -> str:
        """Return the unit of the metric."""
        return self.now[0].reading.metric.unit

    @property
    def reference(self) -> str:
        """Return the stack that overheads are over. Empty for a reference itself."""
        return self.now[0].reading.reference

    @property
    def is_reference(self) -> bool:
        """Whether the stack is a reference itself."""
        return not self.reference

    @property
    def shift(self) -> float | None:
        """Return the change of the ratio to the reference (0.1 is 10 %), with or without an interval."""
        if self.is_reference:
            return None
        if self.estimate:
            return self.estimate.overhead
        then, now = self.overhead(self.then), self.overhead(self.now)
        return (1 + now) / (1 + then) - 1 if then is not None and now is not None else None

    @staticmethod
    def overhead(runs: Iterable[RunFigure]) -> float | None:
        """Return the median overhead of some runs."""
        ratios = _ratios(runs)
        return expm1(median(ratios)) if ratios else None

    @staticmethod
    def figure(runs: Iterable[RunFigure]) -> float:
        """Return the median figure of some runs, in the metric's unit."""
        return median(run.reading.median for run in runs)


@dataclass(frozen=True)
class Comparison:
    """The result of comparing runs. `limit` is the allowed change of an overhead (0.05 is 5 %; None: not judged)."""

    now: int
    then: int
    limit: float | None
    alpha: float
    changes: list[Change] = field(default_factory=list)
    only_now: list[SeriesKey] = field(default_factory=list)
    only_then: list[SeriesKey] = field(default_factory=list)
    #: Differences of the environments, a line each.
    differences: list[str] = field(default_factory=list)

    @property
    def compared(self) -> list[Change]:
        """Return the changes of an overhead. The others are baselines, which only have absolute figures."""
        return [change for change in self.changes if change.shift is not None]

    @property
    def judged(self) -> list[Change]:
        """Return the changes of an overhead to which the limit applies, with or without a verdict."""
        limited = self.changes if self.limit is not None else ()
        return [change for change in limited if change.is_judged and not change.is_reference]

    @property
    def moved(self) -> list[Change]:
        """Return the references whose time changed. No limit on an overhead notices that."""
        return [change for change in self.changes if change.moved]

    @property
    def regressions(self) -> list[Change]:
        return [change for change in self.changes if change.outcome == "fail"]


def compare(
    now: Sequence[Results],
    then: Sequence[Results],
    *,
    limit: float | None = None,
    alpha: float = 0.05,
    session: bool = False,
) -> Comparison:
    """Compare the overheads of runs now with those of runs then, in time and in metrics that have budgets now.

    `alpha` is the error rate of each verdict, or with `session` of all verdicts together. Call `plugin.refusals`
    first, which says whether the runs are comparable. Raises ValueError if a side has no run.
    """
    if not now or not then:
        raise ValueError(f"each side needs a run (got {len(now)} now and {len(then)} then)")
    # Sorting is stable, so runs without a known time keep their order.
    then = sorted(then, key=lambda results: results.start)
    measures = budgeted(now)
    sides = _sides(now, then, measures)
    shared = [key for key in sides[0] if key in sides[1]]
    judged = [key for key in shared if _is_judged(key, sides[0][key].values(), sides[1][key].values(), measures)]
    level = alpha / max(1, len(judged)) if session else alpha
    judge = _Judge(
        [[results.environment.get("machine_id") for results in side] for side in (now, then)],
        limit,
        level,
        _WARNING_RATE / max(1, len(shared)),
    )
    series = [judge.change(key, sides[0][key], sides[1][key], key in judged) for key in shared]

    def is_listed(key: SeriesKey) -> bool:
        return is_compared(key.measure, measures)

    return Comparison(
        len(now),
        len(then),
        limit,
        alpha,
        [change for change in series if change.outcome or is_listed(change.key)],
        [key for key in sides[0] if key not in sides[1] and is_listed(key)],
        [key for key in sides[1] if key not in sides[0] and is_listed(key)],
        differences(now, then),
    )


def _sides(
    now: Iterable[Results], then: Iterable[Results], measures: Collection[Measure]
) -> tuple[dict[SeriesKey, dict[int, RunFigure]], dict[SeriesKey, dict[int, RunFigure]]]:
    runs_now, runs_then = ([_entries(results, measures) for results in side] for side in (now, then))
    same = dict.fromkeys({"kernel", "device"} - varying([*runs_now, *runs_then]), "")
    return _by_key(runs_now, same), _by_key(runs_then, same)


# -- figures of a run --------------------------------------------------------------------------------------------------


def budgeted(runs: Iterable[Results]) -> set[Measure]:
    """Return the measures that have budgets in any of the runs."""
    return {
        (chain.id, step, judgement.budget.metric)
        for results in runs
        for chain in results.chains
        for step, _, judgements in chain.all_judgements()
        for judgement in judgements
    }


def is_compared(measure: Measure, measures: Collection[Measure]) -> bool:
    """Whether an overhead is compared: in time, or in one of the `measures` with budgets."""
    return measure[2] == "seconds" or measure in measures


def is_limited(measure: Measure, measures: Collection[Measure]) -> bool:
    """Whether a limit judges a metric: one of the step's budgets on any stack, or the time if there are none."""
    has_budgets = any(other[:2] == measure[:2] for other in measures)
    return measure in measures if has_budgets else measure[2] == "seconds"


def _is_judged(
    key: SeriesKey, now: Iterable[RunFigure], then: Iterable[RunFigure], measures: Collection[Measure]
) -> bool:
    """Whether a limit judges a series. For a reference, it judges the bytes."""
    if any(not figure.reading.reference for figure in now):
        return any(figure.reading.metric.unit == "B" for figure in now)
    has_ratio = any(figure.ratio is not None or _lacks_rounds(figure.reading) for figure in (*now, *then))
    return has_ratio and is_limited(key.measure, measures)


def _lacks_rounds(reading: Reading) -> bool:
    """Whether only one side of a ratio has a figure in some rounds."""
    return reading.estimate is not None and reading.estimate.missing > 0


def _entries(results: Results, measures: Collection[Measure]) -> dict[SeriesKey, RunFigure]:
    """Return the figures of a run by key, with kernel and device. Stacks that did not do the work have none."""
    entries: dict[SeriesKey, RunFigure] = {}
    for readings in map(Readings, results.chains):
        chain = readings.chain
        for step in chain.steps:
            for stack in chain.stacks:
                if stack in chain.controls or chain.incomplete(step, stack):
                    continue
                for metric in chain.metrics(step).values():
                    counted = metric.unit == "B" and stack == chain.reference(stack)
                    if not counted and not is_compared((chain.id, step, metric.name), measures):
                        continue
                    key = series_key(results, chain, step, stack, metric.name)
                    if metric.is_of_time and chain.is_emulated(stack):
                        key = key._replace(stack=f"{key.stack} (emulated)")
                    reading = readings.of(step, stack, metric.name)
                    if reading and (key not in entries or entries[key].ratio is None):
                        entries[key] = _run_figure(readings, step, stack, reading)
    return entries


def series_key(results: Results, chain: ChainResults, step: str, stack: str, metric: str) -> SeriesKey:
    """Return the key of a series in a run, with its kernel and device."""
    info = chain.stacks[stack]
    name = name_of(chain, step, stack, metric, kind_of(chain, stack))
    kernel = info.kernel or results.labels.get("kernel", "")
    return SeriesKey(chain.id, step, info.name, metric, name, kernel, chain.device)


def _run_figure(readings: Readings, step: str, stack: str, reading: Reading) -> RunFigure:
    chain, base = readings.chain, readings.of(step, readings.chain.reference(stack), reading.metric.name)
    is_emulated = reading.metric.is_of_time and chain.is_emulated(stack) and not chain.judges_emulated
    return RunFigure(reading, _ratio(readings, reading, base), is_emulated)


def _ratio(readings: Readings, reading: Reading, base: Reading | None) -> float | None:
    """Return the typical logarithm of a stack over its reference.

    None if one of them is only noise, or has no figure in some rounds.
    """
    if not reading.reference or base is None or reading.is_noise_beside(base):
        return None
    if reading.estimate is None or reading.estimate.missing:
        return None
    if not readings.chain.paired:
        # Boots of two stacks are not paired, so there are no ratios of rounds.
        estimate = reading.estimate
        return log1p(estimate.overhead) if estimate and estimate.overhead > -1 else None
    return reading.ratios.typical if reading.ratios else None


def varying(runs: Iterable[Collection[SeriesKey]]) -> set[str]:
    """Return which of ``kernel`` and ``device`` have several values for a series of one run."""
    return {
        part
        for keys in runs
        for names in [{key.name for key in keys}]
        for part in ("kernel", "device")
        if len({(key.name, getattr(key, part)) for key in keys}) > len(names)
    }


def _by_key(
    side: Iterable[Mapping[SeriesKey, RunFigure]], same: Mapping[str, str]
) -> dict[SeriesKey, dict[int, RunFigure]]:
    """Return the figures by key, then by the number of the run on its side. `same` replaces parts of the keys."""
    series: dict[SeriesKey, dict[int, RunFigure]] = {}
    for number, entries in enumerate(side):
        for key, entry in entries.items():
            series.setdefault(key._replace(**same), {})[number] = entry
    return series


# -- judging -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    """The judge of series: the machines of the runs of both sides, the limit, and the error rates."""

    machines: Sequence[Sequence[str | None]]
    limit: float | None
    alpha: float
    warning_rate: float

    def change(
        self, key: SeriesKey, now: Mapping[int, RunFigure], then: Mapping[int, RunFigure], is_judged: bool = True
    ) -> Change:
        change = Change(key, tuple(now.values()), tuple(then.values()))
        is_emulated = any(run.is_emulated for run in (*change.now, *change.then))
        if change.is_reference:
            return change if is_emulated else self._reference(change, self._of_this_machine(now, then))
        if is_emulated and self.limit is not None:
            return replace(replace(self, limit=None).change(key, now, then), explanation=f"{key}: {NOT_ON_EMULATED}")
        if not is_judged and self.limit is not None:
            compared = replace(self, limit=None).change(key, now, then)
            return replace(compared, is_judged=False, explanation=f"{key}: {NO_BUDGET}" if compared.explanation else "")
        ratios_now, ratios_then = _ratios(change.now), _ratios(change.then)
        if any(_lacks_rounds(run.reading) for run in change.now):
            return replace(change, explanation=LACKS_ROUNDS)
        if not ratios_now or not ratios_then:
            return replace(change, explanation=NO_RATIO if ratios_now or ratios_then else "")
        if min(len(ratios_now), len(ratios_then)) >= runs.MIN_RUNS:
            machines = {self.machines[side][number] for side, facts in enumerate((now, then)) for number in facts}
            return self._by_runs(change, ratios_now, ratios_then, len(machines))
        earlier = [run for run in self._of_this_machine(now, then) if run.ratio is not None]
        if len(earlier) >= spread.MIN_EARLIER_RUNS:
            return self._by_spread(change, ratios_now, earlier)
        if len(ratios_now) == len(ratios_then) == 1:
            return replace(change, explanation=ONE_RUN_EACH)
        of_this = f" ({len(earlier)} of this machine)" if len(earlier) < len(ratios_then) else ""
        explanation = (
            f"{counted(len(ratios_now), 'run')} against {len(ratios_then)}{of_this}: "
            f"a verdict takes {runs.MIN_RUNS} a side, "
            f"or one against {spread.MIN_EARLIER_RUNS} earlier ones of the same machine"
        )
        return replace(change, explanation=explanation)

    def _of_this_machine(self, now: Mapping[int, RunFigure], then: Mapping[int, RunFigure]) -> list[RunFigure]:
        machine = _single_machine([self.machines[0][number] for number in now])
        return [fact for number, fact in then.items() if machine and self.machines[1][number] == machine]

    def _by_runs(
        self, change: Change, ratios_now: Sequence[float], ratios_then: Sequence[float], machines: int
    ) -> Change:
        verdict = runs.judge(ratios_now, ratios_then, self.limit, self.alpha) if self.limit is not None else None
        # Several machines are no mistake. But then they may be the cause of a proven difference.
        of_machines = f" of {machines} machines" if machines > 1 else ""
        explanation = f"exact test of {len(ratios_now)} against {len(ratios_then)} runs{of_machines}"
        if self.limit is not None and verdict is None:
            count = runs.min_runs(self.alpha)
            explanation = (
                f"{len(ratios_now)} against {len(ratios_then)} runs; at alpha {self.alpha:.3g} it takes {count} a side"
            )
        estimate = runs.estimate(ratios_now, ratios_then, self.alpha, around=self.limit or 0.0)
        return replace(change, estimate=estimate, outcome=verdict.outcome if verdict else None, explanation=explanation)

    def _by_spread(self, change: Change, logs: Sequence[float], earlier: Sequence[RunFigure]) -> Change:
        ratios = _ratios(earlier)
        judged = spread.judge(logs, ratios, self.limit, self.alpha)
        window = judged.window
        of = f"of {len(earlier)} " if len(window.runs) < len(earlier) else ""
        sides = f"{counted(len(logs), 'run')} against {window.name} {of}earlier runs"
        return replace(
            change,
            then=tuple(earlier[number] for number in window.runs),
            estimate=judged.estimate,
            outcome=judged.outcome,
            explanation=f"{sides} of this machine, by the spread of all",
            correlation=changes.correlation(ratios, self.warning_rate),
        )

    def _reference(self, change: Change, earlier: Sequence[RunFigure]) -> Change:
        """Judge a reference: its bytes by the limit. A changed time only gives a warning, as all stacks share it."""
        counted = change.unit == "B"  # bytes do not depend on the speed of the machine
        floor = _MIN_BYTES if counted else 0.0
        sides = [[max(run.reading.median, floor) for run in side] for side in (change.now, earlier)]
        if len(earlier) < spread.MIN_EARLIER_RUNS or min(map(min, sides)) <= 0:
            return change
        logs_now, logs_then = ([log(figure) for figure in side] for side in sides)
        judged = spread.judge(logs_now, logs_then, self.limit, self.alpha if counted else self.warning_rate)
        change = replace(change, then=tuple(earlier[number] for number in judged.window.runs))
        if counted and judged.outcome == "fail":
            return replace(change, estimate=judged.estimate, outcome="fail", explanation=REFERENCE_BYTES)
        if counted:
            return change
        return replace(change, estimate=judged.estimate, moved=self._has_moved(logs_now, logs_then))

    def _has_moved(self, logs_now: Sequence[float], logs_then: Sequence[float]) -> bool:
        """Whether runs differ from earlier ones by more than these explain, and by more than 5 % up or down."""
        # A faster reference makes every stack look worse, so both directions count.
        for sign in (1, -1):
            signed = [[sign * value for value in side] for side in (logs_now, logs_then)]
            if spread.judge(signed[0], signed[1], _MOVED_SHARE, self.warning_rate / 2).outcome == "fail":
                return True
        return False


def _ratios(runs: Iterable[RunFigure]) -> list[float]:
    return [run.ratio for run in runs if run.ratio is not None]


def _single_machine(machines: Sequence[str | None]) -> str | None:
    """Return the machine of the runs, or None if there are several or it is unknown."""
    return machines[0] if len(set(machines)) == 1 else None


# -- before a session --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outlook:
    """The power of a limit for the next run of a series. `power` is None if there are too few earlier runs."""

    key: SeriesKey
    runs: int
    power: spread.Power | None

    @property
    def decides(self) -> bool:
        """Whether the limit passes nearly all unchanged runs."""
        return self.power is not None and self.power.decides

    @property
    def is_hopeless(self) -> bool:
        """Whether most unchanged runs would stay undecided."""
        return self.power is None or self.power.decided < 0.5


def outlook(
    then: Sequence[Results],
    limit: float,
    *,
    alpha: float = 0.05,
    session: bool = False,
    machine: str | None = None,
    rounds: int | None = None,
) -> list[Outlook]:
    """Return the power of a limit for one more run, by series.

    `machine` and `rounds` default to those of the newest run. The other parameters are those of `compare`. With
    `session`, all series share alpha, and also the rate of undecided runs, because one of these fails a strict session.
    """
    then = sorted(then, key=lambda results: results.start)
    machine = machine or next((results.environment.get("machine_id") for results in then[::-1]), None)
    of_machine = [results for results in then if machine and results.environment.get("machine_id") == machine]
    measures = budgeted(then[-1:])
    series, _ = _sides(of_machine, [], measures)
    ratios = {
        key: [run for run in side.values() if run.ratio is not None]
        for key, side in series.items()
        if _is_judged(key, side.values(), (), measures) and any(run.reading.reference for run in side.values())
    }
    sharing = len(ratios) if session else 1

    def power(runs: Sequence[RunFigure]) -> spread.Power | None:
        if len(runs) < spread.MIN_EARLIER_RUNS:
            return None
        within = [(run.reading.ratios or Ratios(0.0, 1)) for run in runs]
        deviation = median(ratios.deviation or 0.0 for ratios in within)
        decided = 1 - (1 - spread.DECIDED_SHARE) / sharing
        return spread.power(_ratios(runs), deviation, rounds or within[-1].rounds, limit, alpha / sharing, decided)

    return [Outlook(key, len(runs), power(runs)) for key, runs in ratios.items()]


# -- differences -------------------------------------------------------------------------------------------------------

#: Facts of the environment that differ between any two runs, or that have a message of their own.
_VARYING = ("date", "load", "kernel.version", "corpus", "kernels")


def mismatches(now: Results, then: Results, *, devices: bool = True) -> list[str]:
    """Return the reasons why two runs are not comparable. Facts that one of them lacks are no reason.

    Other models of `devices` are a reason, except for runs of several hosts.
    """
    reasons = []
    scales = (then.scale, now.scale)
    if all(scales) and len(set(scales)) > 1:
        reasons.append("the scale was {} and is {}".format(*scales))
    models = (_devices(then), _devices(now))
    if devices and all(models) and models[0] != models[1]:
        reasons.append("the device was {} and is {}".format(*(", ".join(sorted(names)) for names in models)))
    corpora = [results.environment.get("corpus") for results in (then, now)]
    if all(corpora) and corpora[0] != corpora[1]:
        reasons.append("the corpus was {} and is {}".format(*map(_value_text, corpora)))
    chains = [{(chain.id, chain.view): chain for chain in results.chains} for results in (then, now)]
    for key, chain_now in chains[1].items():
        if chain_then := chains[0].get(key):
            reasons += _differing(chain_then, chain_now)
    return list(dict.fromkeys(reasons))


def _differing(then: ChainResults, now: ChainResults) -> Iterator[str]:
    """Yield steps with other work, budgets in other units, and stacks with other settings or another reference."""
    measures = budgeted([Results(chains=[then, now])])
    for step in now.steps:
        works = (then.work.get(step), now.work.get(step))
        if all(works) and works[0] != works[1]:
            changed = [
                f"{name}: {_value_text(a)} and {_value_text(b)}"
                for name, a, b in _changed_values(*map(_flattened, works))
            ]
            yield f"{step} was asked for other work ({', '.join(changed)})"
        for name in now.own_metrics.get(step, {}):
            metrics = [chain.metrics(step).get(name) for chain in (then, now)]
            if all(metrics) and (now.id, step, name) in measures:
                yield from other_unit(step, name, *((metric.unit, metric.better) for metric in metrics if metric))
    for info in now.stacks.values():
        before = then.stacks.get(info.id)
        if before and before.settings != info.settings:
            texts = (", ".join(f"{key}={value}" for key, value in each.settings.items()) for each in (before, info))
            yield "{} had the settings ({}) and has ({})".format(info.name, *texts)
    references = [
        {
            info.name: chain.stacks[ref].name
            for stack, info in chain.stacks.items()
            if (ref := chain.reference(stack)) in chain.stacks
        }
        for chain in (then, now)
    ]
    for name, before, after in _changed_values(*references):
        if name in references[0] and name in references[1]:
            yield f"{name} was compared with {before} and is with {after}"


def other_unit(step: str, metric: str, then: tuple[str, Better], now: tuple[str, Better]) -> Iterator[str]:
    """Yield the change of a metric's unit, or of the direction that is better."""
    if then != now:
        texts = (f"{unit or 'no unit'} ({better} is better)" for unit, better in (then, now))
        yield "{} of {} was in {} and is in {}".format(metric, step, *texts)


def run_id(results: Results) -> Hashable:
    """Return what identifies a run in any file, or None if its time is not known."""
    chains = tuple((chain.id, chain.view, chain.device, chain.seed) for chain in results.chains)
    return (results.start, results.environment.get("machine_id"), chains) if results.start else None


def differences(now: Sequence[Results], then: Sequence[Results]) -> list[str]:
    """Return the differences of environments and stacks: ``kernel.release: 6.1 -> 6.12``.

    A group of facts that one side lacks, such as its memory, is no difference. Stacks on one side only are in the
    result of `compare`.
    """
    sides = []
    for side in (then, now):
        values: dict[str, dict[str, None]] = {}
        for results in side:
            for name, value in {**_environment(results.environment), **_stacks(results)}.items():
                values.setdefault(name, {})[_value_text(value)] = None
        sides.append({name: ", ".join(texts) for name, texts in values.items()})
    groups = set.intersection(*({_group(name) for name in side} for side in sides))
    return [f"{name}: {before} -> {after}" for name, before, after in _changed_values(*sides) if _group(name) in groups]


def _group(name: str) -> str:
    return name if name.startswith("stack.") else name.partition(".")[0]


def _environment(environment: Mapping[str, Any]) -> dict[str, Any]:
    facts = _flattened({name: value for name, value in environment.items() if name != "devices"})
    for number, device in enumerate(environment.get("devices", ())):
        words = {name: value for name, value in device.items() if name != "model"}
        facts.update((f"devices.{number}.{name}", value) for name, value in _flattened(words).items())
    for name, of_kernel in (environment.get("kernels") or {}).items():
        facts.update((f"{name}: {key}", value) for key, value in _environment(of_kernel).items())
    return {name: value for name, value in facts.items() if not any(_is_part_of(name, varying) for varying in _VARYING)}


def _is_part_of(name: str, varying: str) -> bool:
    return name.rpartition(": ")[2] == varying or name.rpartition(": ")[2].startswith(f"{varying}.")


def _stacks(results: Results) -> dict[str, str]:
    return {f"stack.{info.name}": info.spec for chain in results.chains for info in chain.stacks.values()}


def _devices(results: Results) -> set[str]:
    """Return kind and model of each device. Paths are left out, because they may change with each boot."""
    return {
        f"{_kind(device.get('spec', ''))} ({device.get('model', 'of no known model')})"
        for device in results.environment.get("devices", ())
    }


def _kind(spec: str) -> str:
    return "a directory" if spec.startswith("dir:") else "a disk" if spec.startswith("/") else spec


def _flattened(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested dictionaries and lists. Keys are the names of all levels, joined by dots."""
    inner = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else None
    )
    if inner is None:
        return {name: value}
    flat: dict[str, Any] = {}
    for key, part in inner:
        flat.update(_flattened(part, f"{name}.{key}" if name else str(key)))
    return flat


def _changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    names = dict.fromkeys([*before, *after])
    return [
        (name, before.get(name, "nothing"), after.get(name, "nothing"))
        for name in names
        if before.get(name, "nothing") != after.get(name, "nothing")
    ]


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping) and {"name", "files", "bytes"} <= value.keys():
        return f"{value['name']} ({value['files']} files, {value['bytes']} bytes)"
    return str(value)
