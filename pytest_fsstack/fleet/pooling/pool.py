"""Pooled sessions of several hosts: a figure for each host, and figures over all hosts.

Hosts are replicates. Overheads are ratios on one machine, so hosts may have different hardware. All sessions of one
machine are one host, whose figure is their average.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import expm1, hypot, inf
from statistics import fmean
from typing import NamedTuple

import msgspec
from msgspec import structs

from pytest_fsstack.fleet.pooling import effects
from pytest_fsstack.fleet.pooling.hosts import HostReading, SessionFile
from pytest_fsstack.judging import runs, verdict
from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.over_time.comparison import Measure, SeriesKey, is_limited, mismatches, other_unit, run_id, varying
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import worst
from pytest_fsstack.records.verdicts import Estimate, Looks, Outcome

#: The probability that a report names a differing host if none differs.
_DIFFERING_RATE = 0.01
#: Up to this number of hosts, each is left out once.
_MAX_LEFT_OUT = 20


class Host(msgspec.Struct, frozen=True):
    """A machine and its sessions. `name` is the label ``host``, or the name of its first file."""

    name: str
    machine_id: str
    files: list[str]
    kernels: list[str] = []
    devices: list[str] = []
    #: Problems of its sessions, a sentence each.
    problems: list[str] = []


class HostFigure(msgspec.Struct, frozen=True, gc=False):
    """The figure of a host in a series: its overhead, and the standard error of log(1 + overhead).

    The interval is that of its rounds up to the first look. `median` is in the metric's unit. `outcome` is the worst of
    the verdicts of its sessions. `left_out` is the number of its other rounds.
    """

    host: str
    estimate: Estimate
    error: float | None
    median: float
    outcome: Outcome | None = None
    left_out: int = 0


class LeftOutHost(msgspec.Struct, frozen=True, gc=False):
    """The pooled overhead and I squared without a host."""

    host: str
    overhead: float
    i_squared: float | None


class Pooled(msgspec.Struct, frozen=True, gc=False):
    """A series over all hosts that measured it. `kernel` is empty if no host has several."""

    series: str
    test: str
    step: str
    stack: str
    metric: str
    kernel: str
    reference: str
    unit: str
    hosts: list[HostFigure]
    #: Reasons why other hosts have no figure, by name.
    missing: dict[str, str]
    #: The typical overhead of a host. It has an interval from five hosts on.
    estimate: Estimate
    #: The mean of the hosts, and the range in which the next host will be.
    prediction: Estimate | None = None
    heterogeneity: effects.Heterogeneity | None = None
    without: list[LeftOutHost] = []
    #: The host that differs from the others.
    differs: str = ""
    budget: float | None = None
    #: The verdict over hosts. It is null without a budget, and if the budget cannot be judged.
    outcome: Outcome | None = None
    #: Whether the budget is expected to be broken.
    expected: bool = False
    #: Why there is no verdict.
    why_no_verdict: str = ""

    @property
    def label(self) -> str:
        """Return the name of the series in reports."""
        return self.title(self.kernel)

    def title(self, kernel: str = "") -> str:
        """Return the name of the series, by default without its kernel."""
        return str(SeriesKey(self.test, self.step, self.stack, self.metric, self.series, kernel, ""))


class Pool(msgspec.Struct, frozen=True, tag_field="format", tag="fsstack pool 2"):
    """Sessions of several hosts, pooled. `alpha` is the error rate of each verdict."""

    hosts: list[Host]
    series: list[Pooled]
    alpha: float
    #: Files that hold no session, with the reason.
    unreadable: dict[str, str] = {}
    #: Series that no host measured, with the reason of the first.
    unmeasured: dict[str, str] = {}

    @property
    def judged(self) -> list[Pooled]:
        """Return the series with a verdict over hosts."""
        return [series for series in self.series if series.outcome]

    @property
    def budgeted(self) -> list[Pooled]:
        """Return the series with a budget, on any host or over all of them."""
        return [series for series in self.series if series.budget is not None or series.why_no_verdict]


def refusals(sessions: Sequence[SessionFile]) -> list[str]:
    """Return the reasons why these sessions cannot be pooled, a sentence each, with the files.

    Each session is compared with the first one, and with the first one that has each of its series. Devices may differ.
    """
    firsts: dict[str, tuple[SessionFile, HostReading]] = {}
    files: dict[tuple[str, str], dict[str, None]] = {}
    for session in sessions:
        others, reasons = {sessions[0].path: sessions[0]}, []
        for key, reading in session.readings.items():
            other, first = firsts.setdefault(key.name, (session, reading))
            others[other.path] = other
            units = [(one.unit, one.better) for one in (first, reading)]
            for reason in other_unit(key.step, key.metric, *units):
                reasons.append((reason, other))
        for other in others.values():
            reasons += [(reason, other) for reason in mismatches(session.metadata, other.metadata, devices=False)]
        for reason, other in reasons:
            files.setdefault((reason, other.path.name), {})[session.path.name] = None
    return [f"{reason} [{first} and {', '.join(names)}]" for (reason, first), names in files.items()]


def pool(
    sessions: Sequence[SessionFile],
    unreadable: Mapping[str, str] = {},
    *,
    limit: float | None = None,
    alpha: float = 0.05,
    shared_alpha: bool = False,
) -> Pool:
    """Pool sessions by host. `limit` (0.05 is 5 %) replaces the budgets of the sessions in all series.

    `alpha` is the error rate of each verdict over hosts, or of all of them if `shared_alpha`.
    """
    by_host = _by_host(sessions)
    rows = _table(by_host, limit)
    table = [row for row in rows if row.hosts]
    unmeasured = {str(row.key): next(iter(row.missing.values())) for row in rows if not row.hosts}
    share = max(1, sum(row.budget is not None for row in table)) if shared_alpha else 1
    rates = _ErrorRates(alpha / share, _DIFFERING_RATE / max(1, len(table)))
    names = list(by_host)
    hosts = [_host(name, of_host) for name, of_host in by_host.items()]
    return Pool(hosts, [_pooled(row, names, rates) for row in table], rates.alpha, dict(unreadable), unmeasured)


# -- hosts -------------------------------------------------------------------------------------------------------------


def _by_host(sessions: Iterable[SessionFile]) -> dict[str, list[SessionFile]]:
    """Return the sessions of each machine, under the name of the host."""
    machines: dict[str, dict[object, SessionFile]] = {}
    for session in sessions:
        of_machine = machines.setdefault(session.machine, {})
        key = run_id(session.metadata) or session.path
        # A log may be beside the JSON of its session.
        if key not in of_machine or of_machine[key].metadata.interrupted:
            of_machine[key] = session
    hosts: dict[str, list[SessionFile]] = {}
    for machine, by_run in machines.items():
        files = list(by_run.values())
        name = files[0].name
        hosts[f"{name} ({machine[:8]})" if name in hosts else name] = files
    return hosts


def _host(name: str, sessions: Sequence[SessionFile]) -> Host:
    problems = [
        f"{session.path.name}: {session.metadata.interrupted}" for session in sessions if session.metadata.interrupted
    ]
    environments = [session.metadata.environment for session in sessions]
    devices = [
        f"{device.get('spec', '')} ({device['model']})" if "model" in device else str(device.get("spec", ""))
        for environment in environments
        for device in environment.get("devices", ())
    ]
    kernels = [environment.get("kernel", {}).get("release") for environment in environments]
    return Host(
        name,
        sessions[0].machine,
        [str(session.path) for session in sessions],
        list(dict.fromkeys(filter(None, kernels))),
        list(dict.fromkeys(devices)),
        problems if sessions[0].machine else [*problems, "it does not say on which machine it ran"],
    )


# -- series ------------------------------------------------------------------------------------------------------------


@dataclass
class _Row:
    """A series with the readings of each host, and the reasons why other hosts have none."""

    key: SeriesKey
    hosts: dict[str, list[HostReading]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    budget: Budget | None = None
    #: Whether all of the sessions' budgets are expected to be broken, and no limit replaces them.
    expected: bool = False
    why_no_verdict: str = ""


class _ErrorRates(NamedTuple):
    """The error rates of a verdict, and of finding a differing host in a series."""

    alpha: float
    differing: float


def _table(hosts: Mapping[str, Sequence[SessionFile]], limit: float | None) -> list[_Row]:
    by_kernel = "kernel" in varying([key for file in files for key in file.readings] for files in hosts.values())
    rows: dict[SeriesKey, _Row] = {}

    @cache
    def row(key: SeriesKey) -> _Row:
        key = key._replace(device="", kernel=key.kernel if by_kernel else "")
        return rows.setdefault(key, _Row(key))

    for name, sessions in hosts.items():
        for session in sessions:
            for key, reading in session.readings.items():
                row(key).hosts.setdefault(name, []).append(reading)
    for name, sessions in hosts.items():
        for session in sessions:
            for key, note in session.notes.items():
                if name not in (missing := row(key)).hosts:
                    missing.missing[name] = note
    table = list(rows.values())
    measures = {entry.key.measure for entry in table if _budgets(entry)}
    for entry in table:
        entry.missing = {
            name: entry.missing.get(name, "not in its session") for name in hosts if name not in entry.hosts
        }
        _find_budget(entry, limit, measures)
    return table


def _find_budget(row: _Row, limit: float | None, measures: Collection[Measure]) -> None:
    """Set the budget of a series, which is the limit or the common budget of all hosts. Otherwise set the reason."""
    budgets = _budgets(row)
    if limit is not None:
        if is_limited(row.key.measure, measures):
            row.budget = Budget(row.key.metric, overhead=limit)
        return
    row.expected = bool(budgets) and all(budget.xfail for budget in budgets)
    overheads = {budget.overhead for budget in budgets if budget.overhead is not None}
    if len(overheads) == 1:
        row.budget = Budget(row.key.metric, overhead=overheads.pop())
    elif overheads:
        row.why_no_verdict = (
            f"hosts have different budgets: {', '.join(f'{value * 100:g} %' for value in sorted(overheads))}"
        )
    elif budgets and not all(budget.sanity for budget in budgets):
        row.why_no_verdict = "limits in a unit are judged on each host only"


def _budgets(row: _Row) -> list[Budget]:
    return [budget for readings in row.hosts.values() for reading in readings for budget in reading.budgets]


def _pooled(row: _Row, names: Collection[str], rates: _ErrorRates) -> Pooled:
    hosts = [name for name in names if name in row.hosts]
    ratios = [_ratio(row.hosts[name]) for name in hosts]
    figures = [_figure(name, row.hosts[name], ratio, rates.alpha) for name, ratio in zip(hosts, ratios)]
    first = next(iter(row.hosts.values()))[0]
    key, other = row.key, effects.farthest(ratios)
    outcome, estimate = _verdict(ratios, row.budget, rates.alpha)
    prediction = effects.predicted(ratios, rates.alpha)
    return Pooled(
        key.name,
        key.test,
        key.step,
        key.stack,
        key.metric,
        key.kernel,
        first.reference,
        first.unit,
        figures,
        row.missing,
        estimate,
        _estimate(fmean(prediction), prediction, len(ratios), rates.alpha) if prediction else None,
        _heterogeneity(figures, ratios),
        _without(figures, ratios),
        figures[other.host].host if other and other.p < rates.differing else "",
        row.budget.overhead if row.budget else None,
        outcome,
        row.expected,
        row.why_no_verdict or ("" if outcome or row.budget is None else _too_few(len(ratios), rates.alpha)),
    )


def _figure(name: str, readings: Sequence[HostReading], ratio: float, alpha: float) -> HostFigure:
    """Return the figure of a host, which is the average of its sessions."""
    errors = [reading.error for reading in readings]
    error = None if None in errors else hypot(*filter(None, errors)) / len(errors)
    rounds = sum([reading.rounds for reading in readings])
    ends = None
    if error is not None and rounds > 1:
        reach = student_quantile(1 - alpha, rounds - 1) * error
        ends = effects.Range(ratio - reach, ratio + reach)
    return HostFigure(
        name,
        _estimate(ratio, ends, rounds, alpha),
        error,
        sum([reading.median for reading in readings]) / len(readings),
        worst([reading.outcome for reading in readings]),
        sum([reading.left_out for reading in readings]),
    )


def _ratio(readings: Sequence[HostReading]) -> float:
    """Return the ratio of a host, which is the average of its sessions, as a logarithm."""
    return sum([reading.ratio for reading in readings]) / len(readings)


def _estimate(centre: float, ends: effects.Range | None, number: int, alpha: float) -> Estimate:
    """Return the overhead of a log-ratio, with these ends of its interval or none."""
    low, high = map(effects.overhead_of, ends) if ends else (-1.0, inf)
    return Estimate(expm1(centre), low, high, 1 - 2 * alpha, number)


def _verdict(ratios: Sequence[float], budget: Budget | None, alpha: float) -> tuple[Outcome | None, Estimate]:
    """Return the verdict over hosts with the pooled overhead, by the exact signed-rank test."""
    looks, numbered = Looks.fixed(len(ratios), alpha), dict(enumerate(ratios))
    around = budget.overhead if budget and budget.overhead is not None else 0.0
    judged = verdict.judge(numbered, around, looks)
    if len(ratios) < max(effects.MIN_HOSTS, looks.minimum_rounds):
        return None, structs.replace(judged.estimate, low=-1.0, high=inf)
    return judged.outcome if budget else None, judged.estimate


def _too_few(hosts: int, alpha: float) -> str:
    fewest = max(effects.MIN_HOSTS, Looks.fixed(1, alpha).minimum_rounds)
    return f"no verdict over {hosts} host{'' if hosts == 1 else 's'}: it takes {fewest} at alpha {alpha:.3g}"


def _heterogeneity(figures: Sequence[HostFigure], ratios: Sequence[float]) -> effects.Heterogeneity | None:
    errors = [figure.error for figure in figures if figure.error is not None]
    if len(errors) < len(figures):
        return None
    return effects.heterogeneity(ratios, errors, [figure.estimate.rounds for figure in figures])


def _without(figures: Sequence[HostFigure], ratios: Sequence[float]) -> list[LeftOutHost]:
    """Return the pooled figures without one host, for each host. For many hosts, only without the lowest or highest.

    These two change the estimate most.
    """
    number = len(figures)
    if number < effects.MIN_PREDICTED:
        return []
    order = sorted(range(number), key=ratios.__getitem__)
    left_out = range(number) if number <= _MAX_LEFT_OUT else (order[0], order[-1])
    entries = []
    for host in left_out:
        others = [*ratios[:host], *ratios[host + 1 :]]
        spread = _heterogeneity([*figures[:host], *figures[host + 1 :]], others)
        overhead = expm1(runs.pseudo_median(others))
        entries.append(LeftOutHost(figures[host].host, overhead, spread.i_squared if spread else None))
    return entries
