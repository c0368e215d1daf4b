"""Error rates of verdicts over hosts, and coverage of the interval for the next host.

Hosts are random effects: the typical overhead of a host differs from that of all hosts by a deviation *between hosts*.
Each host is measured in 8, 16 or 40 rounds with a CV of 10 % per run. Verdict, interval, prediction and Q are those of
`fsstack pool`. They are compared with the prediction of Higgins, Thompson & Spiegelhalter with the variance of
DerSimonian & Laird, the interval of Hartung & Knapp, and Q without Welch's correction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import expm1, inf, log, log1p, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.stats import chi2

from benchmarks.machines import BUDGET, MACHINES, STEP, Table, above, rates, session_of, share, share_of, sigma_of
from pytest_fsstack.fleet.pooling import effects
from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.judging.verdict import judge
from pytest_fsstack.records.verdicts import Looks, Outcome, Verdict

HOSTS = (3, 5, 8, 12, 20)
ALPHA, CV = 0.05, 0.10
_ROUNDS = (8, 16, 40)
_TROUBLE = MACHINES["outliers, drift 20 % per 60 runs"]

#: Draws the difference of a host from all hosts, as a logarithm.
Between = Callable[[random.Random], float]


def _normal(deviation: float) -> Between:
    return lambda rng: rng.gauss(0, deviation)


def _at(difference: float) -> Between:
    return lambda _: difference


def _skewed(centre: float) -> Between:
    """Return a distribution in which most hosts are alike and some cost far more. The deviation is 5 %."""
    return lambda rng: 0.05 * (rng.expovariate(1) - centre)


#: The median and the pseudo-median of an exponential distribution. The latter is the median of the mean of two draws.
_MEDIAN, _PSEUDO_MEDIAN = log(2), 0.8392
BETWEEN: dict[str, Between] = {
    "none": _normal(0.0),
    "2 %": _normal(0.02),
    "5 %": _normal(0.05),
    "5 %, skewed": _skewed(_PSEUDO_MEDIAN),
    "5 %, skewed, by the median": _skewed(_MEDIAN),
}


class Measured(NamedTuple):
    """The figures of the hosts of one experiment."""

    ratios: list[float]
    errors: list[float]
    rounds: list[int]


def measured(rng: random.Random, hosts: int, between: Between, truth: float) -> Measured:
    """Simulate the measurement of an overhead on some hosts."""
    result = Measured([], [], [])
    for _ in range(hosts):
        centre = log1p(truth) + between(rng)
        rounds = rng.choice(_ROUNDS)
        ratios = [rng.gauss(centre, sqrt(2) * sigma_of(CV)) for _ in range(rounds)]
        result.ratios.append(fmean(ratios))
        result.errors.append(stdev(ratios) / sqrt(rounds))
        result.rounds.append(rounds)
    return result


def table(sessions: int, seed: int) -> Table:
    """Judge the budget over hosts."""
    rows = []
    for name, between in BETWEEN.items():
        for hosts in HOSTS:
            rng = random.Random(f"{seed} {name} {hosts}")
            outcomes = (
                [_judged(measured(rng, hosts, between, truth)) for _ in range(sessions)]
                for truth in (BUDGET, above(0.05), above(0.10))
            )
            rows.append([name, str(hosts), *rates(*outcomes)])
    headers = ["between hosts", "hosts", "false fails", "false passes", "finds 5 %", "finds 10 %"]
    return Table(f"Hosts: {sessions} experiments a cell, CV {CV:.0%}, budget 5 %.", headers, rows)


def _judged(hosts: Measured) -> Outcome:
    return judge(dict(enumerate(hosts.ratios)), BUDGET, Looks.fixed(len(hosts.ratios), ALPHA)).outcome


def intervals(sessions: int, seed: int) -> Table:
    """Count how often intervals of 90 % contain the true value."""
    rows = []
    for name, between in BETWEEN.items():
        for hosts in HOSTS:
            rng = random.Random(f"{seed} intervals {name} {hosts}")
            rows.append([name, str(hosts), *_coverage(rng, sessions, hosts, between)])
    headers = [
        *("between hosts", "hosts", "interval", "Hartung & Knapp", "next host measures", "next host is"),
        *("Higgins: measures", "Higgins: is", "width to Higgins", "Q differs", "Q, uncorrected"),
    ]
    title = f"Intervals of 90 % over hosts: {sessions} experiments a cell, CV {CV:.0%}. Q differs at p below 5 %."
    return Table(title, headers, rows)


def _coverage(rng: random.Random, sessions: int, hosts: int, between: Between) -> list[str]:
    truth = log1p(BUDGET)
    hits: list[list[bool]] = [[] for _ in range(8)]
    widths = []
    for _ in range(sessions):
        now, centre = measured(rng, hosts, between, BUDGET), between(rng)
        following = measured(rng, 1, _at(centre), BUDGET).ratios[0]
        signed = judge(dict(enumerate(now.ratios)), BUDGET, Looks.fixed(hosts, ALPHA)).estimate
        low, high = (log1p(end) if -1 < end < inf else end for end in (signed.low, signed.high))
        own, higgins = effects.predicted(now.ratios, ALPHA), _higgins(now)
        assert own is not None
        spread = effects.heterogeneity(*now)
        assert spread is not None
        widths.append((own.high - own.low) / (higgins.high - higgins.low))
        for hit, value in zip(
            hits,
            (
                low - 1e-9 <= truth <= high + 1e-9,
                _within(_hartung_knapp(now), truth),
                _within(own, following),
                _within(own, truth + centre),
                _within(higgins, following),
                _within(higgins, truth + centre),
                spread.p < 0.05,
                chi2.sf(_weighted(now)[1], hosts - 1) < 0.05,
            ),
            strict=True,
        ):
            hit.append(value)
    *covered, corrected, plain = map(share, hits)
    return [*covered, f"{fmean(widths):.2f}", corrected, plain]


def _within(ends: effects.Range, value: float) -> bool:
    return ends.low <= value <= ends.high


#: The sessions of the hosts, and whether all of their rounds count or only those up to the first look.
_KINDS = {
    "default plan, all rounds": (Looks(), False),
    "default plan": (Looks(), True),
    "`--fsstack-rounds=16`": (Looks.fixed(16), True),
}


def stopped(sessions: int, seed: int) -> Table:
    """Pool sessions that stop once their budget is judged. The limit over hosts is their true overhead."""
    pools, rows = max(1, sessions // 6), []
    for truth in (0.0, above(0.05), above(0.10)):
        for cv in (0.05, 0.10):
            for kind, (looks, first) in _KINDS.items():
                rng = random.Random(f"{seed} stopped {truth} {cv}")
                judged = [_pooled(rng, cv, truth, looks, first=first) for _ in range(pools)]
                rows.append([f"{100 * truth:.3g} %", f"{cv:.0%}", kind, *_stopped_cells(judged, truth)])
    headers = ["truth", "CV", "sessions", "bias", "false fails", "false passes", "interval covers"]
    title = f"Hosts whose sessions stop: {pools} pools of {_POOLED} hosts a row, 1 % between hosts, budget 5 %."
    return Table(title, headers, rows)


_POOLED = 20


def _pooled(rng: random.Random, cv: float, truth: float, looks: Looks, *, first: bool) -> Verdict:
    """Judge hosts by the overheads that the plugin's own course has measured on each."""
    ratios = []
    for _ in range(_POOLED):
        course = session_of(rng, _TROUBLE, cv, expm1(log1p(truth) + rng.gauss(0, 0.01)), looks)
        reading = Readings(course.chain).of(STEP, "stack")
        measured = reading and (reading.first_ratios if first else reading.ratios)
        assert measured
        ratios.append(measured.typical)
    return judge(dict(enumerate(ratios)), truth, Looks.fixed(_POOLED, ALPHA))


def _stopped_cells(verdicts: Sequence[Verdict], truth: float) -> list[str]:
    outcomes = [verdict.outcome for verdict in verdicts]
    bias = fmean(verdict.estimate.overhead for verdict in verdicts) - truth
    covers = [verdict.estimate.low - 1e-9 <= truth <= verdict.estimate.high + 1e-9 for verdict in verdicts]
    return [f"{100 * bias:+.2f} %", share_of("fail", outcomes), share_of("pass", outcomes), share(covers)]


def odd(sessions: int, seed: int) -> Table:
    """Count how often a host is named as different among equals, and how often the right one is named."""
    rows = []
    for hosts in (4, *HOSTS[1:]):
        for name in ("2 %", "5 %", "5 %, skewed"):
            rng, between = random.Random(f"{seed} odd {hosts} {name}"), BETWEEN[name]
            cells = []
            for more in (0.0, 0.30, 1.0):
                named = []
                for _ in range(sessions):
                    now = measured(rng, hosts, between, BUDGET)
                    now.ratios[0] += log1p(more)
                    other = effects.farthest(now.ratios)
                    assert other is not None
                    named.append(other.p < 0.01 and (other.host == 0 or not more))
                cells.append(share(named))
            rows.append([name, str(hosts), *cells])
    headers = ["between hosts", "hosts", "names one of equals", "names the one of 30 % more", "of 100 % more"]
    return Table(f"The host that differs, at 1 % for one series: {sessions} experiments a cell.", headers, rows)


# -- the methods of others ---------------------------------------------------------------------------------------------


def _weighted(hosts: Measured, between: float = 0.0) -> tuple[float, float, list[float]]:
    """Return the weighted mean, Q around it, and the weights. `between` is the variance between hosts."""
    weights = [1 / (error**2 + between) for error in hosts.errors]
    mean = sum(weight * ratio for weight, ratio in zip(weights, hosts.ratios)) / sum(weights)
    return mean, sum(weight * (ratio - mean) ** 2 for weight, ratio in zip(weights, hosts.ratios)), weights


def _variance_between(hosts: Measured) -> float:
    """Estimate the variance between hosts (R. DerSimonian & N. Laird, Controlled Clinical Trials 7 (1986) 177)."""
    _, q, weights = _weighted(hosts)
    total = sum(weights)
    return max(0.0, (q - len(weights) + 1) / (total - sum(weight**2 for weight in weights) / total))


def _higgins(hosts: Measured) -> effects.Range:
    """Return the interval for the next host.

    J. Higgins, S. Thompson & D. Spiegelhalter, Journal of the Royal Statistical Society A 172 (2009) 137.
    """
    between = _variance_between(hosts)
    mean, _, weights = _weighted(hosts, between)
    reach = student_quantile(1 - ALPHA, len(weights) - 2) * sqrt(between + 1 / sum(weights))
    return effects.Range(mean - reach, mean + reach)


def _hartung_knapp(hosts: Measured) -> effects.Range:
    """Return the interval over hosts (J. Hartung & G. Knapp, Statistics in Medicine 20 (2001) 3875)."""
    mean, q, weights = _weighted(hosts, _variance_between(hosts))
    freedom = len(weights) - 1
    reach = student_quantile(1 - ALPHA, freedom) * sqrt(q / freedom / sum(weights))
    return effects.Range(mean - reach, mean + reach)
