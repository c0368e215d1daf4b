"""Effects of a run on the next one, and the verdicts that they could change."""

from __future__ import annotations

import random
from math import exp

import pytest
from hypothesis import given, settings, strategies as st

from pytest_fsstack.judging.carry_over import LEVEL, Round, carry_overs
from pytest_fsstack.judging.judge import find_carry_over, judge_all
from pytest_fsstack.judging.readings import Readings, dumps
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import CarryOver
from pytest_fsstack.report import markdown, terminal
from tests.chains import a_chain

PLACE = ("write", "seconds", "")


def rounds_of(
    rng: random.Random, stacks: int, rounds: int, effect: float, *, cv: float = 0.05, costs: tuple[float, ...] = ()
) -> list[Round]:
    """Return rounds in which a run takes more after the last stack, on a machine that becomes slower all the time."""
    names = [f"s{number}" for number in range(stacks)]
    before, found = "", []
    for number in range(rounds):
        logs = {}
        for name in rng.sample(names, stacks):
            cost = costs[names.index(name)] if costs else 0.0
            logs[name] = number * 0.01 + cost + rng.gauss(0, cv) + (effect if before == names[-1] else 0.0)
            before = name
        found.append(Round(list(logs), {PLACE: [exp(value) for value in logs.values()]}))
    return found


def judged(rounds: list[Round], budget: float) -> ChainResults:
    """Return a chain with these rounds, whose last stack is judged over the first one."""
    names = sorted(rounds[0].order)
    series = {name: [dict(zip(one.order, one.figures[PLACE]))[name] for one in rounds] for name in names}
    orders = [list(figures.order) for figures in rounds]
    chain = a_chain({"write": series}, orders=orders).with_budget("write", names[-1], overhead=budget).built
    chain.carry_over = find_carry_over(chain)
    return chain


@pytest.mark.parametrize("stacks", [2, 3, 6])
def test_what_a_stack_leaves_behind_is_found_with_its_size_and_its_name(stacks: int) -> None:
    (carry,) = carry_overs(rounds_of(random.Random(1), stacks, 40, 0.10), "seed")
    assert (carry.step, carry.after) == ("write", f"s{stacks - 1}")
    assert carry.overhead == pytest.approx(exp(0.10) - 1, abs=0.05)
    assert carry.p <= LEVEL


@pytest.mark.parametrize("stacks", [2, 6, 12])
def test_what_is_far_above_the_noise_is_no_outlier(stacks: int) -> None:
    found = carry_overs(rounds_of(random.Random(1), stacks, 24, 0.30, cv=0.005), "seed")
    assert [carry.after for carry in found] == [f"s{stacks - 1}"]
    assert found[0].overhead == pytest.approx(exp(0.30) - 1, abs=0.15)


def test_without_carry_over_chance_is_the_explanation_in_99_of_100_chains() -> None:
    alarms = sum(bool(carry_overs(rounds_of(random.Random(number), 3, 16, 0.0), f"{number}")) for number in range(200))
    # Three standard errors above 1 %.
    assert alarms / 200 <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / 200) ** 0.5


def test_five_percent_are_found_in_most_chains_of_forty_rounds() -> None:
    assert sum(bool(carry_overs(rounds_of(random.Random(number), 3, 40, 0.05), "seed")) for number in range(20)) >= 15


def test_what_single_steps_hardly_show_is_found_in_all_steps_together() -> None:
    steps = [f"step {number}" for number in range(6)]
    rng, before, rounds = random.Random(1), "", []
    for _ in range(40):
        order, figures = rng.sample(["s0", "s1"], 2), dict[tuple[str, str, str], list[float]]()
        for name in order:
            for step in steps:
                seconds = exp(rng.gauss(0, 0.05) + (0.03 if before == "s1" else 0.0))
                figures.setdefault((step, "seconds", ""), []).append(seconds)
            before = name
        rounds.append(Round(order, figures))
    (carry,) = [carry for carry in carry_overs(rounds, "seed") if not carry.step]
    assert carry.after == "s1"
    assert carry.overhead == pytest.approx(0.03, abs=0.015)
    assert all(carry.concerns(step, "seconds", "s0", "") for step in steps)
    assert not carry.concerns(steps[0], "written_bytes", "s0", "")


def test_the_run_before_the_first_one_of_a_round_is_the_last_one_of_the_round_before() -> None:
    # Only the first run of a round takes more, and only after s1.
    rng, before, rounds = random.Random(5), "", []
    for _ in range(60):
        order = rng.sample(["s0", "s1"], 2)
        seconds = {order[0]: 1.2 if before == "s1" else 1.0, order[1]: 1.1}
        rounds.append(Round(order, {PLACE: [value * exp(rng.gauss(0, 0.02)) for value in seconds.values()]}))
        before = order[1]
    assert [carry.after for carry in carry_overs(rounds, "seed")] == ["s1"]


def test_a_discarded_round_has_a_last_run_too() -> None:
    rng = random.Random(3)
    chain = judged(rounds_of(rng, 2, 1, 0.0), 0.05)
    chain.orders, chain.samples, before = [], {}, ""
    for number in range(120):
        chain.orders.append(order := rng.sample(["s0", "s1"], 2))
        for name in order:
            chain.add("write", name, Sample({"seconds": (1.2 if before == "s1" else 1.0) * exp(rng.gauss(0, 0.02))}))
            before = name
        if number % 2:
            chain.discard("load>2", {})
    assert [(carry.after, round(carry.overhead, 1)) for carry in find_carry_over(chain)] == [("s1", 0.2)]


def test_the_judged_metric_is_looked_at_and_more_is_worse() -> None:
    rate = Metric("rate", "1/s", "higher")
    chain = judged(rounds_of(random.Random(1), 2, 40, 0.10), 0.05)
    for _, stack, samples in chain.all_samples():
        for (_, number), sample in samples.items():
            values = {"seconds": 1.0, "rate": 1 / sample.values["seconds"]}
            chain.add("write", stack, Sample(values, {"rate": rate}), number)
    judge_all(chain, "write", "s1", Budget(overhead=0.05, metric="rate"))
    assert [(carry.metric, carry.after, carry.overhead > 0.05) for carry in find_carry_over(chain)] == [
        ("rate", "s1", True)
    ]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 12))
def test_the_same_rounds_give_the_same_answer_whatever_the_stacks_cost(seed: int, stacks: int, rounds: int) -> None:
    costs = tuple(random.Random(seed).uniform(0, 3) for _ in range(stacks))
    cheap = carry_overs(rounds_of(random.Random(seed), stacks, rounds, 0.3), "seed")
    dear = carry_overs(rounds_of(random.Random(seed), stacks, rounds, 0.3, costs=costs), "seed")
    assert [(carry.after, carry.p) for carry in cheap] == [(carry.after, carry.p) for carry in dear]


def test_figures_that_are_all_the_same_or_missing_are_no_carry_over() -> None:
    assert not carry_overs([], "seed")
    assert not carry_overs([Round(["a", "b"], {PLACE: [1.0, 0.0]})] * 20, "seed")
    assert not carry_overs([Round(["a", "b"])] * 20, "seed")


def test_a_verdict_is_doubtful_if_the_carry_over_could_change_it_and_every_report_says_so() -> None:
    rounds = rounds_of(random.Random(2), 2, 40, 0.10, cv=0.02)
    doubtful, clear = judged(rounds, 0.05), judged(rounds, 1.0)
    for chain in doubtful, clear:
        assert chain.worst("write", "s1") == "pass"
        assert [carry.after for carry in chain.carry_over] == ["s1"]
    assert Readings(doubtful).doubts("write", "s1") == doubtful.carry_over
    assert not Readings(clear).doubts("write", "s1")
    read = saved.loads(saved.dumps(Results({}, [doubtful])))
    assert read.chains[0].carry_over == doubtful.carry_over
    for results in Results({}, [doubtful]), read:
        shown = "\n".join(terminal.lines(results, results.chains[0]))
        for text in shown, markdown.report(results):
            assert "pass, doubtful" in text
            assert "+9.7 % after s1" in text
    summary = saved.loads(dumps(read)).chains[0].derived["write"]
    assert summary["s1"].doubts == doubtful.carry_over
    assert summary["s0"].doubts == []


def test_carry_over_on_one_kernel_concerns_the_stacks_there_only() -> None:
    carry = CarryOver("write", "s1:6.12", 0.1, 0.001, kernel="6.12")
    assert carry.concerns("write", "seconds", "s0", "6.12")
    assert not carry.concerns("write", "seconds", "s0", "6.1")
    assert not carry.concerns("write", "written_bytes", "s0", "6.12")
