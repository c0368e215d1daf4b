"""Errors of estimates, verdicts with coarse clocks, and the results of following the advice of rounds."""

from __future__ import annotations

import random
import statistics
from math import exp, floor, log1p

from benchmarks.machines import (
    BUDGET,
    CVS,
    MACHINES,
    Table,
    above,
    log_ratios,
    rates,
    share,
    share_of,
    sigma_of,
    stopped,
)
from pytest_fsstack.judging.verdict import bounds, judge, log_ratios as log_ratios_of, rounds_advised
from pytest_fsstack.records.verdicts import Looks, Verdict

_TROUBLE = MACHINES["outliers x3, 5 %"]


def coverage(sessions: int, seed: int) -> Table:
    """Compare the estimate at the decision with that of all rounds, which may run for other budgets."""
    rows = []
    sessions = max(2, sessions // 4)
    for cv in CVS:
        for truth in (0.0, BUDGET, above(0.10)):
            rng, early, late = random.Random(f"{seed} coverage {cv} {truth}"), list[Verdict](), list[Verdict]()
            for _ in range(sessions):
                ratios = log_ratios(rng, _TROUBLE, cv, truth, Looks().max_rounds)
                early.append(stopped(ratios, Looks()))
                late.append(judge(ratios, BUDGET, Looks()))
            rows.append(
                [f"{cv:.0%}", f"{truth:.1%}", *_quality(early, truth), *_quality(late, truth), _contradictions(late)]
            )
    headers = [
        *("CV", "truth", "error at the decision", "90 % interval covers", "error of 78 rounds", "interval covers"),
        "contradictions",
    ]
    return Table(f"Estimates: {sessions} sessions a cell, outliers, budget 5 %.", headers, rows)


def _quality(verdicts: list[Verdict], truth: float) -> list[str]:
    """Return the root mean square error of the log-ratio, and how often the interval contains the truth."""
    errors = [log1p(verdict.estimate.overhead) - log1p(truth) for verdict in verdicts]
    covered = [verdict.estimate.low <= truth <= verdict.estimate.high for verdict in verdicts]
    return [f"{100 * statistics.fmean(error**2 for error in errors) ** 0.5:.1f} %", share(covered)]


def _contradictions(verdicts: list[Verdict]) -> str:
    count = 0
    for verdict in verdicts:
        numbers = verdict.estimate
        says = "fail" if numbers.low > BUDGET else "pass" if numbers.high <= BUDGET else "inconclusive"
        count += says != verdict.outcome
    return str(count)


def ticks(sessions: int, seed: int) -> Table:
    """Judge runs of a few ticks of the clock."""
    rows = []
    sessions = max(1, sessions // 4)
    for count in (5, 20, 200):
        for cv in (0.05,):
            for budget in (BUDGET, 0.50):
                rng = random.Random(f"{seed} ticks {count} {cv} {budget}")
                at = [_of_ticks(rng, count, cv, budget, budget) for _ in range(sessions)]
                within, twice = (
                    [_of_ticks(rng, count, cv, budget, truth) for _ in range(sessions)] for truth in (0.0, 1.0)
                )
                rows.append(
                    [
                        *(str(count), f"{cv:.1%}", f"{budget:.0%}"),
                        *rates(at),
                        share_of("pass", within),
                        share_of("fail", twice),
                    ]
                )
    headers = ["ticks", "CV", "budget", "false fails", "false passes", "passes at 0 %", "fails at 100 %"]
    return Table(f"Coarse clocks: {sessions} sessions a cell.", headers, rows)


def _of_ticks(rng: random.Random, count: int, cv: float, budget: float, truth: float) -> str:
    """Return the outcome of a session with runs of about `count` ticks. The clock counts whole ticks."""
    looks, sigma = Looks(), sigma_of(cv)
    # The true time lies somewhere between two ticks, at the same place in every round.
    start = count + rng.random()
    pairs = [
        (float(floor(start * (1 + truth) * exp(rng.gauss(0, sigma)))), float(floor(start * exp(rng.gauss(0, sigma)))))
        for _ in range(looks.max_rounds)
    ]
    ratios = dict(enumerate(log_ratios_of(*zip(*pairs), resolution=1.0)))
    known_to = dict(enumerate(bounds(*zip(*pairs), resolution=1.0)))
    for end in looks.rounds:
        verdict = judge({number: ratios[number] for number in range(end)}, budget, looks, bounds=known_to)
        if verdict.settled:
            break
    return verdict.outcome


#: The distance of the truth above the budget. With None it is drawn for each session, up to 30 % on either side.
_PARTS = (0.05, 0.10, 0.20, None)


def advice(sessions: int, seed: int) -> Table:
    """Follow the advice of inconclusive sessions: run the advised number of rounds, and look once."""
    rows = []
    sessions = max(1, sessions // 4)
    for name, looks in (("default", Looks()), ("8 rounds", Looks.fixed(8)), ("16 rounds", Looks.fixed(16))):
        for cv in (0.10, 0.20):
            for part in _PARTS:
                rng = random.Random(f"{seed} advice {name} {cv} {part}")
                distance = "drawn" if part is None else f"{part:.0%}"
                rows.append(
                    [name, f"{cv:.0%}", distance, *_followed(rng, _inconclusive(rng, looks, cv, part, sessions), cv)]
                )
    kinds = [
        f"{name} {of}" for of in ("one of two", "four of five") for name in ("advised", "median for", "settled of")
    ]
    headers = ["plan", "CV", "above", "inconclusive", *kinds]
    return Table(f"Advice: {sessions} sessions a row.", headers, rows)


def _inconclusive(
    rng: random.Random, looks: Looks, cv: float, part: float | None, sessions: int
) -> list[tuple[float, Verdict]]:
    """Return the true overheads and the verdicts of inconclusive sessions."""
    ended = []
    for _ in range(sessions):
        truth = above(rng.uniform(-0.3, 0.3) if part is None else part)
        ended.append((truth, stopped(log_ratios(rng, _TROUBLE, cv, truth, looks.max_rounds), looks)))
    return [(truth, verdict) for truth, verdict in ended if verdict.outcome == "inconclusive"]


def _followed(rng: random.Random, sessions: list[tuple[float, Verdict]], cv: float) -> list[str]:
    """Return the number of sessions, and for each chance how many get advice, its median, and how many it settles."""
    cells = [str(len(sessions))]
    for chance in (0.5, 0.8):
        advised = [(truth, rounds) for truth, verdict in sessions if (rounds := rounds_advised(verdict, chance))]
        settled = [
            judge(log_ratios(rng, _TROUBLE, cv, truth, rounds), BUDGET, Looks.fixed(rounds)).outcome != "inconclusive"
            for truth, rounds in advised
        ]
        median = f"{statistics.median(rounds for _, rounds in advised):.0f}" if advised else "-"
        cells += [str(len(advised)), median, share(settled) if settled else "-"]
    return cells
