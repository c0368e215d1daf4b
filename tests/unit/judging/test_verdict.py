from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import accumulate, product
from math import exp, inf, isfinite, log, log1p, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings, strategies as st
from msgspec.structs import replace
from scipy.stats import t, wilcoxon

from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.judging.verdict import (
    advice,
    boundaries,
    describe,
    expected_rounds,
    judge,
    log_ratios,
    rounds_advised,
)
from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Estimate, Looks, Outcome, Verdict
from pytest_fsstack.units import percent

ORDER = ("fail", "inconclusive", "pass")

seconds = st.floats(1e-3, 1e4)
pairs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=30)
continuous = st.lists(st.floats(-2, 2), min_size=1, max_size=30)
budgets = st.floats(-0.9, 20)
# Sums and halves of eighths are exact, so that zeros and ties are zeros and ties.
with_ties = st.lists(st.integers(-8, 8).map(lambda eighths: eighths / 8), min_size=1, max_size=30)


def estimate(ratios: dict[int, float], looks: Looks) -> Estimate:
    return judge(ratios, 0.0, looks).estimate


def numbered(d: list[float]) -> dict[int, float]:
    return dict(enumerate(d))


def first(d: dict[int, float], rounds: int) -> dict[int, float]:
    return {number: ratio for number, ratio in d.items() if number < rounds}


def walsh_averages(d: list[float]) -> list[float]:
    return [(d[i] + d[j]) / 2 for j in range(len(d)) for i in range(j + 1)]


def interval_says(verdict: Verdict) -> str:
    if verdict.estimate.low > verdict.budget:
        return "fail"
    return "pass" if verdict.estimate.high <= verdict.budget else "inconclusive"


# log_ratios


@pytest.mark.parametrize(
    ("samples", "baseline", "options", "ratios"),
    [
        ([2.0, 1.0], [1.0, 2.0], {}, [log(2), -log(2)]),
        ([80.0], [100.0], {"better": "higher"}, [log(1.25)]),
        ([0, 511, 1024], [0, 0, 512], {"resolution": 512}, [0, 0, log(2)]),
    ],
)
def test_more_is_worse_and_values_below_the_resolution_are_equal(
    samples: list[float], baseline: list[float], options: Any, ratios: list[float]
) -> None:
    assert log_ratios(samples, baseline, **options) == pytest.approx(ratios)


@given(pairs, st.sampled_from(["lower", "higher"]))
def test_swapping_sample_and_baseline_negates(pairs: list[tuple[float, float]], better: Better) -> None:
    samples, baseline = zip(*pairs, strict=True)
    swapped = log_ratios(baseline, samples, better=better)
    assert log_ratios(samples, baseline, better=better) == [-d for d in swapped]


@given(pairs, st.floats(1e-6, 1e6))
def test_unit_of_the_metric_does_not_matter(pairs: list[tuple[float, float]], factor: float) -> None:
    samples, baseline = zip(*pairs, strict=True)
    scaled = log_ratios([s * factor for s in samples], [b * factor for b in baseline])
    assert scaled == pytest.approx(log_ratios(samples, baseline), abs=1e-9)


@pytest.mark.parametrize(
    ("samples", "baseline", "resolution", "message"),
    [
        ([1.0], [1.0, 2.0], 0.0, r"\b1 .*\b2 "),
        ([0.0], [1.0], 0.0, r"^0\.0 .*\bresolution .*\b0\b"),
        ([1.0], [-1.0], 0.0, r"\bvalue .*-1\.0"),
        ([-1.0], [1.0], 4096.0, r"\bvalue .*-1\.0"),
        ([nan], [1.0], 1.0, r"\bvalue .*\bnan\b"),
        ([1.0], [inf], 1.0, r"\bvalue .*\binf\b"),
        ([1.0], [1.0], -1.0, r"^resolution .*-1\.0"),
    ],
)
def test_values_without_a_logarithm_are_refused(
    samples: list[float], baseline: list[float], resolution: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        log_ratios(samples, baseline, resolution=resolution)


# Looks and boundaries


def test_the_default_plan_has_a_first_look_after_six_rounds_and_the_published_boundaries() -> None:
    looks, sizes = Looks(), ((6,), *((8,),) * 9)
    assert looks.rounds == (6, 14, 22, 30, 38, 46, 54, 62, 70, 78)
    found = boundaries(sizes, tuple(looks.spent(rounds) for rounds in looks.rounds))
    assert found == (0, 7, 20, 32, 47, 61, 76, 91, 107, 122)
    assert size(sizes, found) == pytest.approx(0.0496, abs=1e-4)


def test_blocks_of_eight_spend_alpha_gradually() -> None:
    looks = Looks(tuple(range(8, 81, 8)))
    found = boundaries(((8,),) * 10, tuple(looks.spent(rounds) for rounds in looks.rounds))
    assert found == (1, 12, 25, 39, 53, 69, 83, 99, 115, 131)
    assert looks.spent(8) == pytest.approx(0.05 * log(1 + (exp(1) - 1) / 10))


@given(st.floats(1e-6, 0.49))
@example(0.05)
@example(3 / 64)
@example(3 / 128)
def test_the_first_look_can_decide_and_takes_no_more_than_a_third_of_alpha(alpha: float) -> None:
    looks = Looks(alpha=alpha)
    first, *later = looks.rounds
    assert looks.minimum_rounds == first >= 6
    assert 0.5**first <= alpha / 3
    assert first == 6 or 0.5 ** (first - 1) > alpha / 3
    assert len(later) == 9
    assert judge(numbered([0.1] * first), 0.0, looks).outcome == "fail"
    assert judge(numbered([-0.1] * first), 0.0, looks).outcome == "pass"


@given(st.floats(1e-6, 0.49), st.lists(st.integers(1, 90), min_size=1, max_size=9, unique=True))
def test_all_looks_together_spend_what_the_plan_allows_and_at_its_end_all_of_it(
    alpha: float, rounds: list[int]
) -> None:
    for looks in Looks(alpha=alpha), Looks(tuple(sorted(rounds)), alpha):
        spent = [looks.spent(number) for number in range(1, 100)]
        assert spent == sorted(spent)
        assert spent[looks.max_rounds - 1] == spent[-1] == alpha


def test_a_first_look_that_takes_more_than_a_third_of_alpha_gets_nothing_extra() -> None:
    looks = Looks((4, 12, 20))
    assert looks.spent(4) == pytest.approx(0.05 * log(1 + (exp(1) - 1) / 5))
    assert judge(numbered([0.1] * 4), 0.0, looks).outcome == "inconclusive"


def size(blocks: Sequence[Sequence[int]], found: Sequence[int]) -> float:
    """The chance that signs of fair coins cross a boundary, by going through the distribution in floats."""
    alive, crossed = {0: 1.0}, 0.0
    for parts, boundary in zip(blocks, found, strict=True):
        for part in parts:
            for rank in range(1, part + 1):
                following: dict[int, float] = {}
                for count, chance in alive.items():
                    for value in count, count + rank:
                        following[value] = following.get(value, 0.0) + chance / 2
                alive = following
        crossed += sum(chance for count, chance in alive.items() if count <= boundary)
        alive = {count: chance for count, chance in alive.items() if count > boundary}
    return crossed


block_sizes = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(lambda sizes: 0 < sum(sizes) <= 12)


@given(block_sizes, st.floats(0.01, 0.4))
@settings(max_examples=60, deadline=None)
def test_boundaries_are_those_of_brute_force_over_all_sign_patterns(sizes: Sequence[int], alpha: float) -> None:
    ends = list(accumulate(sizes))
    spent = tuple(alpha * end / ends[-1] for end in ends)
    found = boundaries(tuple((each,) for each in sizes), spent)
    alive = list(product((-1, 1), repeat=ends[-1]))
    total, crossed = len(alive), 0
    for end, allowed, boundary in zip(ends, spent, found, strict=True):

        def above(signs: Sequence[int], end: int = end) -> int:
            # Walsh averages of sizes 1, 2, 3, ... within each block: the sign of the larger one decides.
            start, count = 0, 0
            for each in sizes:
                if start < end:
                    block = [sign * (rank + 1) for rank, sign in enumerate(signs[start : start + each])]
                    count += sum(one + other > 0 for i, one in enumerate(block) for other in block[i:])
                start += each
            return count

        counts = {signs: above(signs) for signs in alive}
        best = -1
        for candidate in sorted(set(counts.values())):
            if (crossed + sum(count <= candidate for count in counts.values())) / total <= allowed:
                best = candidate
            else:
                break
        stopped = {signs for signs, count in counts.items() if count <= best}
        assert stopped == {signs for signs, count in counts.items() if count <= boundary}
        crossed += len(stopped)
        alive = [signs for signs in alive if signs not in stopped]
    assert crossed / total <= alpha


@pytest.mark.parametrize("alpha", [0.4, 0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("sizes", [(8,) * 10, (8, 7, 8, 0, 5), (30,), (1,), (64, 64)])
def test_the_size_never_exceeds_alpha(sizes: Sequence[int], alpha: float) -> None:
    ends = list(accumulate(sizes))
    blocks = tuple((each,) for each in sizes)
    found = boundaries(blocks, tuple(Looks(tuple(range(1, ends[-1] + 1)), alpha).spent(end) for end in ends))
    assert size(blocks, found) <= alpha


@pytest.mark.parametrize("rounds", [5, 8, 12, 20, 40])
@pytest.mark.parametrize("alpha", [0.01, 0.025, 0.05, 0.1])
def test_one_block_has_the_boundary_of_scipys_exact_test(rounds: int, alpha: float) -> None:
    (boundary,) = boundaries(((rounds,),), (alpha,))

    def p_value(statistic: int) -> float:
        # Ranks whose positive ones have this sum.
        signed = []
        for rank in range(rounds, 0, -1):
            take = rank <= statistic
            statistic -= rank if take else 0
            signed.append(rank if take else -rank)
        return float(wilcoxon(signed, alternative="less", method="exact").pvalue)

    if boundary >= 0:
        assert p_value(boundary) <= alpha
    assert p_value(boundary + 1) > alpha


@pytest.mark.parametrize(("alpha", "rounds"), [(0.05, 5), (0.03125, 5), (0.03, 6), (0.01, 7), (0.4, 2)])
def test_minimum_rounds_is_the_fewest_that_can_decide(alpha: float, rounds: int) -> None:
    assert Looks.fixed(30, alpha).minimum_rounds == rounds
    for enough, outcomes in (rounds, ("fail", "pass")), (rounds - 1, ("inconclusive", "inconclusive")):
        looks = Looks.fixed(enough, alpha)
        assert judge(numbered([0.1] * enough), 0, looks).outcome == outcomes[0]
        assert judge(numbered([-0.1] * enough), 0, looks).outcome == outcomes[1]


def test_minimum_rounds_of_a_plan_are_those_of_its_first_look_that_can_decide() -> None:
    assert Looks().minimum_rounds == 6
    assert Looks(tuple(range(8, 81, 8)), 0.01).minimum_rounds == 16


@pytest.mark.parametrize(
    ("rounds", "alpha"), [((0, 10), 0.05), ((20, 10), 0.05), ((10, 10), 0.05), ((10,), 0), ((10,), 0.5)]
)
def test_senseless_looks_are_refused(rounds: tuple[int, ...], alpha: float) -> None:
    with pytest.raises(ValueError, match="alpha .*0.5" if rounds == (10,) else f"looks .*{re.escape(str(rounds))}"):
        Looks(rounds, alpha)


# estimate


def test_estimate_matches_one_computed_by_hand() -> None:
    # Walsh averages: -1 0 0.5 1 1 1.5 2 2 2.5 3 3.5 4.5 5 5.5 8. With five rounds P(T <= 0) = 1/32, P(T <= 1) = 2/32,
    # P(T <= 2) = 3/32; so at a level of 0.1 the third from either end is the interval's end.
    found = estimate(numbered([-1.0, 1.0, 2.0, 3.0, 8.0]), Looks.fixed(5, 0.1))
    assert found.rounds == 5
    assert found.confidence == pytest.approx(0.8)
    assert [found.overhead, found.low, found.high] == pytest.approx([exp(2) - 1, exp(0.5) - 1, exp(5) - 1])


def test_averages_are_formed_within_blocks_only() -> None:
    # Of the blocks (0, 4) and (10, 20) together: 0 2 4 10 15 20.
    assert estimate(numbered([0.0, 4.0, 10.0, 20.0]), Looks((2, 4))).overhead == pytest.approx(exp(7) - 1)


def test_interval_of_too_few_rounds_is_unbounded() -> None:
    found = estimate(numbered([0.3] * 4), Looks.fixed(4))
    assert (found.low, found.high, found.rounds) == (-1.0, inf, 4)
    assert [found.overhead, found.confidence] == pytest.approx([exp(0.3) - 1, 0.9])
    assert estimate(numbered([0.3] * 5), Looks.fixed(5)).high < inf


@given(continuous, st.randoms(use_true_random=False))
def test_order_of_the_rounds_within_a_block_does_not_matter(d: list[float], random: random.Random) -> None:
    looks = Looks.fixed(len(d))
    shuffled = random.sample(d, len(d))
    assert judge(numbered(shuffled), 0.05, looks) == judge(numbered(d), 0.05, looks)


@given(continuous)
def test_swapped_estimate_is_the_reciprocal(d: list[float]) -> None:
    there, back = (estimate(numbered(each), Looks()) for each in (d, [-x for x in d]))
    assert (1 + there.overhead) * (1 + back.overhead) == pytest.approx(1)
    if there.high < inf:
        assert (1 + there.low) * (1 + back.high) == pytest.approx(1)


@given(continuous, st.floats(0.1, 10))
def test_estimate_scales_with_the_overhead(d: list[float], factor: float) -> None:
    found, scaled = (estimate(numbered(each), Looks()) for each in (d, [x + log(factor) for x in d]))
    assert 1 + scaled.overhead == pytest.approx((1 + found.overhead) * factor)


@pytest.mark.parametrize("d", [[], [nan], [inf, 0.1]])
def test_log_ratios_that_are_not_measured_are_refused(d: list[float]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(d))):
        estimate(numbered(d), Looks())
    with pytest.raises(ValueError, match=re.escape(str(d))):
        judge(numbered(d), 0.3, Looks())


# judge


@given(st.lists(st.floats(-2, 2).map(lambda x: round(x, 6)), min_size=1, max_size=30, unique_by=abs), budgets)
def test_one_block_is_judged_as_by_scipy_on_data_without_ties(d: list[float], budget: float) -> None:
    excess = np.asarray(d) - log1p(budget)
    sizes = np.sort(np.abs(excess))
    assume(sizes[0] > 1e-7 and (len(d) == 1 or np.diff(sizes).min() > 1e-7))
    outcome = judge(numbered(d), budget, Looks.fixed(len(d))).outcome
    above, below = (wilcoxon(excess, alternative=way, method="exact").pvalue for way in ("greater", "less"))
    assert outcome == ("fail" if above <= 0.05 else "pass" if below <= 0.05 else "inconclusive")


# 25/1024 is P(T <= 8) with ten rounds: a level that a tail meets exactly.
@given(with_ties, st.floats(0.01, 0.49) | st.just(25 / 1024))
def test_verdict_is_what_the_interval_says_with_zeros_and_ties(d: list[float], alpha: float) -> None:
    verdict = judge(numbered(d), 0.0, Looks.fixed(len(d), alpha))
    assert verdict.outcome == interval_says(verdict)


@given(st.integers(1, 40), st.integers(1, 2000), st.integers(-99, 2000))
def test_verdict_and_interval_agree_to_the_last_bit_at_the_budget(rounds: int, base: int, percents: int) -> None:
    # In every round exactly at the budget: log(sample) - log(baseline) and log1p(budget) differ in their last bits.
    budget = percents / 100
    d = log_ratios([base * (1 + budget)] * rounds, [base] * rounds)
    verdict = judge(numbered(d), budget, Looks.fixed(rounds))
    assert verdict.outcome == interval_says(verdict) == ("pass" if rounds >= 5 else "inconclusive")
    assert verdict.estimate.overhead == budget


@given(continuous, budgets, budgets)
def test_a_larger_budget_is_never_harder_to_keep(d: list[float], one: float, other: float) -> None:
    looks = Looks.fixed(len(d))
    tight, loose = (judge(numbered(d), budget, looks) for budget in sorted([one, other]))
    assert ORDER.index(tight.outcome) <= ORDER.index(loose.outcome)


@pytest.mark.parametrize(
    "magnitudes", [(0, 0, 0, 1, 1, 1, 2, 2, 3), (1, 1, 1, 1, 1, 1, 1, 1), (0, 0, 0, 0, 1, 2, 3, 4)]
)
@pytest.mark.parametrize("level", [0.02, 0.05, 0.1])
@pytest.mark.parametrize(("centre", "wrong"), [(0.0, "fail"), (1.0, "pass")])
def test_zeros_and_ties_keep_the_error_rates(
    magnitudes: Sequence[int], level: float, centre: float, wrong: Outcome
) -> None:
    signs = list(product((-1, 1), repeat=len(magnitudes)))
    for looks in Looks.fixed(len(magnitudes), level), Looks((5, len(magnitudes)), level):
        each = [numbered((centre + np.multiply(s, magnitudes)).tolist()) for s in signs]
        assert sum(judge(d, 0.0, looks).outcome == wrong for d in each) / len(signs) <= level


def test_the_first_verdict_stands_whatever_comes_later() -> None:
    verdict = judge(numbered([0.2] * 6 + [-0.5] * 72), 0.0, Looks())
    assert (verdict.outcome, verdict.look, verdict.decided_after) == ("fail", 1, 6)
    assert verdict.stopped_early
    # All later looks contradict it, so they move the estimate to the nearest end of the interval only.
    assert verdict.estimate.rounds == 78
    assert verdict.estimate.overhead == verdict.estimate.low > 0


def test_rounds_after_a_decision_move_the_estimate_and_never_widen_the_interval() -> None:
    early, late = (judge(numbered([0.1, 0.5] * 3 + [0.2] * more), 0.05, Looks()) for more in (0, 72))
    assert (late.outcome, late.decided_after) == (early.outcome, early.decided_after) == ("fail", 6)
    assert late.estimate.overhead == pytest.approx(exp(0.2) - 1)
    assert early.estimate.low <= late.estimate.low <= late.estimate.high <= early.estimate.high


def test_what_was_given_up_is_decided_by_later_rounds_if_these_can() -> None:
    # The first of each pair is as far above the limit as the second is below it.
    balanced = [sign * (1 + number) / 100 for number in range(19) for sign in (1, -1)]
    early, late = (judge(numbered(balanced + [0.2] * more), 0.0, Looks()) for more in (0, 40))
    assert early.given_up
    assert (late.outcome, late.given_up) == ("fail", False)
    assert late.decided_after is not None
    assert late.decided_after > 38


@given(st.lists(st.floats(-1, 1), min_size=78, max_size=78), st.sampled_from(Looks().rounds))
@settings(max_examples=50)
def test_a_verdict_at_one_look_is_the_verdict_at_all_later_ones(d: list[float], rounds: int) -> None:
    early, late = (judge(numbered(each), 0.1, Looks()) for each in (d[:rounds], d))
    if early.outcome != "inconclusive":
        assert (early.outcome, early.look, early.decided_after) == (late.outcome, late.look, late.decided_after)


@pytest.mark.parametrize(("lost", "sizes"), [((), (6, 8)), ((1, 2), (4, 8)), ((6, 7, 8, 13), (6, 4)), ((13,), (6, 7))])
def test_lost_pairs_change_the_sizes_of_blocks_and_so_the_boundary(lost: tuple[int, ...], sizes: Sequence[int]) -> None:
    looks = Looks()
    d = {number: (-1) ** number * (1 + number) / 100 for number in range(14) if number not in lost}
    first, second = ([d[number] for number in range(*ends) if number in d] for ends in ((0, 6), (6, 14)))
    assert (len(first), len(second)) == sizes
    averages = sorted(walsh_averages(first) + walsh_averages(second))
    boundary = boundaries(tuple((each,) for each in sizes), (looks.spent(6), looks.spent(14)))[-1]
    verdict = judge(d, 0.0, looks, run=14)
    assert verdict.look == 2
    alone = judge(dict(enumerate(first)), 0.0, looks).estimate
    assert log1p(verdict.estimate.low) == pytest.approx(max(averages[boundary], log1p(max(alone.low, -0.9))), abs=1e-8)
    assert log1p(verdict.estimate.high) == pytest.approx(min(averages[-1 - boundary], log1p(alone.high)), abs=1e-8)


def test_an_interrupted_block_is_judged_as_it_is() -> None:
    verdict = judge(numbered([0.2, -0.1] * 6), 0.0, Looks())
    assert (verdict.outcome, verdict.look) == ("inconclusive", 2)
    assert isfinite(verdict.estimate.high)


def test_what_is_hopeless_is_given_up_from_the_middle_of_the_plan_on() -> None:
    d = [0.01 * (-1) ** (number // 2) * (1 + number % 5) for number in range(78)]
    at = [judge(numbered(d[:rounds]), 0.0, Looks()) for rounds in (30, 38, 78)]
    assert [(verdict.outcome, verdict.given_up, verdict.look) for verdict in at] == [
        ("inconclusive", False, 4),
        ("inconclusive", True, 5),
        ("inconclusive", True, 5),
    ]
    assert re.search(", 30 rounds$", describe(at[0]))
    assert re.search(", 38 rounds, given up", describe(at[1]))
    assert not judge(numbered(d[:40]), 0.0, Looks.fixed(40)).given_up


@pytest.mark.parametrize("budget", [-1.0, -2.0, inf, nan])
def test_a_budget_that_is_no_overhead_is_refused(budget: float) -> None:
    with pytest.raises(ValueError, match=rf"\bbudget .*{re.escape(str(budget))}"):
        judge(numbered([0.1] * 10), budget, Looks())


def test_many_rounds_are_counted_in_blocks_that_can_be() -> None:
    d = [0.01 * (-1) ** number + 0.004 for number in range(200)]
    verdict = judge(numbered(d), 0.0, Looks.fixed(200))
    assert verdict.outcome == "fail"
    assert verdict.estimate.rounds == 200


# advice, describe, percent


def spread(centre: float, width: float, rounds: int = 30) -> dict[int, float]:
    evenly = np.linspace(centre - width, centre + width, rounds)
    return numbered(np.random.default_rng(1).permutation(evenly).tolist())


def judged(d: dict[int, float], budget: float) -> Verdict:
    return judge(d, budget, Looks.fixed(len(d)))


def test_no_advice_for_a_verdict_that_is_settled() -> None:
    assert advice(judge(numbered([0.1] * 10), 0.3, Looks())) == ""


def test_advice_names_the_least_rounds_when_there_are_fewer() -> None:
    for verdict, figures in (
        (judged(numbered([0.1] * 3), 0.3), ["3", "0.05", "5"]),
        (judge(numbered([0.1]), 0.3, Looks()), ["1", "0.05", "6"]),
    ):
        assert re.findall(r"\d[\d.]*", advice(verdict)) == figures


def test_following_the_advice_would_have_been_enough() -> None:
    verdict = judged(spread(0.25, 0.3), 0.22)
    assert verdict.outcome == "inconclusive"
    said = advice(verdict)
    needed = int(said.split("--fsstack-rounds=")[1].split(")")[0])
    assert 30 < needed < 800
    assert re.search(rf" {needed / 30:.1f}\b", said)
    assert judged(spread(0.25, 0.3, needed), 0.22).outcome == "fail"


@pytest.mark.parametrize("chance", [0.5, 0.8])
def test_advice_settles_as_many_as_it_says_if_nothing_is_known_of_the_overhead(chance: float) -> None:
    rng, settled = random.Random(5), list[bool]()
    while len(settled) < 60:
        excess = rng.uniform(-0.3, 0.3)
        verdict = judged({number: log1p(0.05) + rng.gauss(excess, 0.28) for number in range(14)}, 0.05)
        if verdict.outcome == "inconclusive":
            needed = rounds_advised(verdict, chance)
            assert needed
            fresh = {number: log1p(0.05) + rng.gauss(excess, 0.28) for number in range(needed)}
            settled.append(judged(fresh, 0.05).outcome != "inconclusive")
    # Two and a half standard errors.
    assert sum(settled) / len(settled) == pytest.approx(chance, abs=2.5 * (chance * (1 - chance) / 60) ** 0.5)


def test_advice_asks_for_more_the_closer_the_budget_is() -> None:
    far, near = (judged(spread(log(1.3), 0.3), budget) for budget in (0.36, 0.34))
    assert (rounds_advised(far) or 0) < (rounds_advised(near) or 0)


@pytest.mark.parametrize(("budget", "rounds"), [(0.3, 300), (0.301, 300)])
def test_advice_is_to_move_a_budget_that_the_estimate_sits_on(budget: float, rounds: int) -> None:
    verdict = judged(spread(log(1.3), 0.3, rounds), budget)
    assert rounds_advised(verdict) is None
    assert "budget" in advice(verdict)
    assert "--fsstack-rounds" not in advice(verdict)


def test_the_budgets_that_advice_offers_would_be_decided() -> None:
    d = spread(log(1.3), 0.3, 300)
    found = judged(d, 0.3).estimate
    low, high = (re.escape(percent(end)) for end in (found.low, found.high))
    assert re.search(rf"{high} .*\bpass\b.*{low} .*\bfail\b", advice(judged(d, 0.3)))
    assert judged(d, found.high + 0.001).outcome == "pass"
    assert judged(d, found.low - 0.001).outcome == "fail"


@given(continuous, budgets)
def test_every_verdict_can_be_put_into_words(d: list[float], budget: float) -> None:
    verdict = judge(numbered(d), budget, Looks())
    assert bool(advice(verdict)) == (verdict.outcome == "inconclusive")
    words = describe(verdict) + advice(verdict)
    assert "inf" not in words
    assert "nan" not in words


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=90), budgets, st.floats(0, 0.5), st.sampled_from([0.05, 0.25]))
def test_verdict_and_interval_never_contradict_each_other(
    d: list[float], budget: float, width: float, failing: float
) -> None:
    looks = Looks(alpha_of_fail=failing)
    bounds = {number: (ratio - width, ratio + width) for number, ratio in enumerate(d)} if width else {}
    verdict = judge(numbered(d), budget, looks, bounds=bounds)
    numbers = verdict.estimate
    assert interval_says(verdict) == verdict.outcome
    assert numbers.low <= numbers.overhead <= numbers.high
    assert numbers.rounds == len(d)


@pytest.mark.parametrize(("vanished", "budget"), [(5, -0.5), (5, 0.0)])
def test_advice_survives_a_metric_that_all_but_vanishes(vanished: int, budget: float) -> None:
    # A log-ratio of -50 is an overhead of exactly -1, which has no logarithm any more.
    assert advice(judged(numbered([-50.0] * vanished + [1.0] * (10 - vanished)), budget))


def test_a_look_that_contradicts_those_before_decides_nothing() -> None:
    # The first block says that it is above the budget, but does not decide. The others are below it.
    rng = random.Random(1)
    for _ in range(300):
        up, down = rng.uniform(0.02, 0.1), rng.uniform(0.05, 0.3)
        verdict = judge({number: rng.gauss(up if number < 6 else -down, 0.08) for number in range(78)}, 0.0, Looks())
        assert interval_says(verdict) == verdict.outcome


def verdict_of(overhead: float, low: float, high: float, budget: float, look: int = 10) -> Verdict:
    looks = Looks()
    estimate = Estimate(overhead, low, high, looks.confidence, 80)
    return Verdict("fail", estimate, budget, looks, look, decided_after=looks.rounds[look - 1])


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (
            verdict_of(0.412, 0.36, 0.459, 0.3),
            r"overhead 41\.2 % \(90\.0 % .*36\.0 to 45\.9 %\), budget 30 %, 80 rounds",
        ),
        (
            verdict_of(0.412, 0.36, 0.459, 0.3, look=1),
            r"overhead 41\.2 % \(90\.0 % .*36\.0 to 45\.9 %\), budget 30 %, 80 rounds, .*\b6",
        ),
        (
            verdict_of(12.4, 11.96, 13.0, 12.0),
            r"overhead x13\.4 \(90\.0 % .*x12\.9 to x14\.0\), budget x13, 80 rounds",
        ),
        (
            verdict_of(2.9, 2.5, 3.2, 0.075),
            r"overhead 290 % \(90\.0 % .*250 to 320 %\), budget 7\.5 %, 80 rounds",
        ),
        (
            verdict_of(0.1, -1.0, inf, 0.3),
            r"overhead 10\.0 % \(\D*90\.0 %\D*\), budget 30 %, 80 rounds",
        ),
    ],
)
def test_a_verdict_is_described_in_one_line(verdict: Verdict, line: str) -> None:
    assert re.fullmatch(line, describe(verdict))


@pytest.mark.parametrize(
    ("overhead", "text"),
    [(0.412, "41.2 %"), (-0.03, "-3.0 %"), (-0.0001, "-0.1 %"), (2.999, "300 %"), (3.0, "x4.00"), (12.4, "x13.4")],
)
def test_overheads_are_percentages_and_large_ones_ratios(overhead: float, text: str) -> None:
    assert percent(overhead) == text


def test_judging_imports_neither_scipy_nor_numpy() -> None:
    program = (
        "import sys; from pytest_fsstack.judging.verdict import Looks, judge; judge({0: 0.1}, 0.3, Looks.fixed(1)); "
        "import pytest_fsstack.report.layouts, pytest_fsstack.workloads.latency; "
        "assert not {'numpy', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30])
@pytest.mark.parametrize("share", [0.6, 0.9, 0.975, 0.995])
def test_students_quantile_is_that_of_scipy(share: float, freedom: int) -> None:
    assert student_quantile(share, freedom) == pytest.approx(t.ppf(share, freedom), rel=1e-10)


@given(st.floats(-0.3, 0.3), st.integers(1, 9), st.integers(0, 99))
def test_the_look_that_is_expected_to_decide_is_one_of_the_plan(truth: float, look: int, seed: int) -> None:
    rng = random.Random(seed)
    found = judge({number: rng.gauss(truth, 0.1) for number in range(8 * look - 2)}, 0.0, Looks())
    expected = expected_rounds(found)
    if found.settled:
        assert expected == found.looks.rounds[found.look - 1]
    else:
        assert 8 * look - 2 < expected <= 78
        # The clearer, the sooner.
        assert expected_rounds(replace(found, z=5.0)) == 8 * look + 6
        assert expected_rounds(replace(found, z=0.0)) == max(38, 8 * look + 6)


def test_trends_decide_about_when_they_are_expected_to() -> None:
    rng, apart = random.Random(1), []
    for _ in range(60):
        d = {number: rng.gauss(0.06, 0.14) for number in range(78)}
        early = judge({number: d[number] for number in range(14)}, 0.0, Looks())
        if not early.settled:
            apart.append(expected_rounds(early) - expected_rounds(judge(d, 0.0, Looks())))
    assert len(apart) > 20
    assert abs(sum(apart) / len(apart)) < 12
