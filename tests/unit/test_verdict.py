from __future__ import annotations

import subprocess
import sys
from itertools import product
from math import exp, inf, log, log1p, nan

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import wilcoxon

from benchmarks.verdict_error_rate import Machine, logratios, naive_alarms, outcomes
from pytest_fsstack.verdict import Estimate, Looks, Verdict, advice, describe, estimate, judge, log_ratios, percent

LEVEL = Looks().level
ORDER = ("fail", "inconclusive", "pass")

seconds = st.floats(1e-3, 1e4)
pairs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=30)
continuous = st.lists(st.floats(-2, 2), min_size=1, max_size=30)
budgets = st.floats(-0.9, 20)
# Sums and halves of eighths are exact, so that zeros and ties are zeros and ties.
with_ties = st.lists(st.integers(-8, 8).map(lambda eighths: eighths / 8), min_size=1, max_size=30)


def walsh_averages(d: list[float]) -> list[float]:
    return [(d[i] + d[j]) / 2 for j in range(len(d)) for i in range(j + 1)]


def interval_says(verdict: Verdict) -> str:
    if verdict.estimate.low > verdict.budget:
        return "fail"
    return "pass" if verdict.estimate.high <= verdict.budget else "inconclusive"


# log_ratios


def test_log_ratio_of_a_slower_sample_is_positive():
    assert log_ratios([2.0, 1.0], [1.0, 2.0]) == pytest.approx([log(2), -log(2)])


def test_log_ratio_of_a_lower_throughput_is_positive():
    assert log_ratios([80.0], [100.0], better="higher") == pytest.approx([log(1.25)])


@given(pairs, st.sampled_from(["lower", "higher"]))
def test_swapping_sample_and_baseline_negates(pairs, better):
    samples, baseline = zip(*pairs, strict=True)
    swapped = log_ratios(baseline, samples, better=better)
    assert log_ratios(samples, baseline, better=better) == [-d for d in swapped]


@given(pairs, st.floats(1e-6, 1e6))
def test_unit_of_the_metric_does_not_matter(pairs, factor):
    samples, baseline = zip(*pairs, strict=True)
    scaled = log_ratios([s * factor for s in samples], [b * factor for b in baseline])
    assert scaled == pytest.approx(log_ratios(samples, baseline), abs=1e-9)


def test_values_below_the_resolution_are_equal():
    assert log_ratios([0, 511, 1024], [0, 0, 512], resolution=512) == pytest.approx([0, 0, log(2)])


@pytest.mark.parametrize(
    ("samples", "baseline", "resolution", "message"),
    [
        ([1.0], [1.0, 2.0], 0.0, "1 against 2"),
        ([0.0], [1.0], 0.0, "resolution above 0"),
        ([1.0], [-1.0], 0.0, "resolution above 0"),
        ([nan], [1.0], 1.0, "not a measured value"),
        ([1.0], [inf], 1.0, "not a measured value"),
        ([1.0], [1.0], -1.0, "resolution must be"),
    ],
)
def test_values_without_a_logarithm_are_refused(samples, baseline, resolution, message):
    with pytest.raises(ValueError, match=message):
        log_ratios(samples, baseline, resolution=resolution)


# Looks


def test_looks_share_alpha():
    looks = Looks()
    assert looks.level == pytest.approx(0.05 / 3)
    assert looks.confidence == pytest.approx(1 - 0.1 / 3)


def test_a_fixed_number_of_rounds_spends_the_whole_alpha_on_one_look():
    assert Looks.fixed(12, 0.01) == Looks((12,), 0.01)
    assert Looks.fixed(12, 0.01).level == 0.01


@pytest.mark.parametrize(("alpha", "rounds"), [(0.05, 5), (0.03125, 5), (0.03, 6), (0.01, 7), (0.4, 2)])
def test_minimum_rounds_is_the_fewest_that_can_decide(alpha, rounds):
    looks = Looks.fixed(30, alpha)
    assert looks.minimum_rounds == rounds
    assert judge([0.1] * rounds, 0, looks).outcome == "fail"
    assert judge([-0.1] * rounds, 0, looks).outcome == "pass"
    assert judge([0.1] * (rounds - 1), 0, looks).outcome == "inconclusive"


@pytest.mark.parametrize(
    ("rounds", "alpha"), [((), 0.05), ((0, 10), 0.05), ((20, 10), 0.05), ((10, 10), 0.05), ((10,), 0), ((10,), 0.5)]
)
def test_senseless_looks_are_refused(rounds, alpha):
    with pytest.raises(ValueError, match=r"looks must|alpha must"):
        Looks(rounds, alpha)


# estimate


def test_estimate_matches_one_computed_by_hand():
    # Walsh averages: -1 0 0.5 1 1 1.5 2 2 2.5 3 3.5 4.5 5 5.5 8. With five rounds P(T <= 0) = 1/32, P(T <= 1) = 2/32,
    # P(T <= 2) = 3/32; so at a level of 0.1 the third from either end is the interval's end.
    d = [-1.0, 1.0, 2.0, 3.0, 8.0]
    found = estimate(d, 0.1)
    assert found.rounds == 5
    assert found.confidence == pytest.approx(0.8)
    assert [found.overhead, found.low, found.high] == pytest.approx([exp(2) - 1, exp(0.5) - 1, exp(5) - 1])


def test_estimate_ignores_an_outlier():
    assert estimate([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 5.0], 0.05).overhead == pytest.approx(exp(0.1) - 1)


def test_interval_of_too_few_rounds_is_unbounded():
    assert estimate([0.3] * 5, LEVEL) == Estimate(
        pytest.approx(exp(0.3) - 1), -1.0, inf, pytest.approx(0.967, abs=1e-3), 5
    )
    assert estimate([0.3] * 6, LEVEL).high < inf


@given(continuous, st.floats(0.001, 0.49))
def test_interval_contains_the_estimate(d, level):
    found = estimate(d, level)
    assert found.low <= found.overhead <= found.high


@given(continuous, st.randoms(use_true_random=False))
def test_order_of_the_rounds_does_not_matter(d, random):
    shuffled = random.sample(d, len(d))
    assert judge(shuffled, 0.05, Looks()) == judge(d, 0.05, Looks())


@given(continuous)
def test_swapped_estimate_is_the_reciprocal(d):
    there, back = estimate(d, LEVEL), estimate([-x for x in d], LEVEL)
    assert (1 + there.overhead) * (1 + back.overhead) == pytest.approx(1)
    if there.high < inf:
        assert (1 + there.low) * (1 + back.high) == pytest.approx(1)


@given(continuous, st.floats(0.1, 10))
def test_estimate_scales_with_the_overhead(d, factor):
    found, scaled = estimate(d, LEVEL), estimate([x + log(factor) for x in d], LEVEL)
    assert 1 + scaled.overhead == pytest.approx((1 + found.overhead) * factor)


@pytest.mark.parametrize("d", [[], [nan], [inf, 0.1]])
def test_log_ratios_that_are_not_measured_are_refused(d):
    with pytest.raises(ValueError, match="one finite log-ratio a round"):
        estimate(d, LEVEL)
    with pytest.raises(ValueError, match="one finite log-ratio a round"):
        judge(d, 0.3, Looks())


@pytest.mark.parametrize("level", [0.0, 0.5])
def test_level_without_an_interval_is_refused(level):
    with pytest.raises(ValueError, match="level must be"):
        estimate([0.1], level)


# judge


def test_p_values_match_those_counted_by_hand():
    # The signed ranks of 0.1 -0.2 0.3 0.4 0.5 are 1 -2 3 4 5: T = 13. Of the 32 subsets of 1..5, the complements of {},
    # {1} and {2} have a sum of 13 or more: 3 of 32. All but the complements of {} and {1} have one of 13 or less: 30.
    d = [0.5, 0.1, -0.2, 0.4, 0.3]
    verdict = judge(d, 0.0, Looks())
    assert (verdict.p_above, verdict.p_below) == (3 / 32, 30 / 32)
    assert verdict.p_above == wilcoxon(d, alternative="greater", method="exact").pvalue
    assert verdict.p_below == wilcoxon(d, alternative="less", method="exact").pvalue


@given(st.lists(st.floats(-2, 2).map(lambda x: round(x, 6)), min_size=1, max_size=30, unique_by=abs), budgets)
def test_p_values_are_those_of_scipy_on_data_without_ties(d, budget):
    excess = np.asarray(d) - log1p(budget)
    sizes = np.sort(np.abs(excess))
    assume(sizes[0] > 1e-7 and (len(d) == 1 or np.diff(sizes).min() > 1e-7))
    verdict = judge(d, budget, Looks())
    assert verdict.p_above == pytest.approx(wilcoxon(excess, alternative="greater", method="exact").pvalue)
    assert verdict.p_below == pytest.approx(wilcoxon(excess, alternative="less", method="exact").pvalue)


@given(continuous, budgets)
def test_verdict_is_what_the_interval_says(d, budget):
    limit = log1p(budget)
    assume(all(abs(average - limit) > 1e-7 for average in walsh_averages(d)))
    verdict = judge(d, budget, Looks())
    assert verdict.outcome == interval_says(verdict)


@given(with_ties, st.floats(0.01, 0.49))
def test_verdict_is_what_the_interval_says_with_zeros_and_ties(d, alpha):
    verdict = judge(d, 0.0, Looks.fixed(len(d), alpha))
    assert verdict.outcome == interval_says(verdict)


# 25/1024 is P(T <= 8) with ten rounds: a level that a p-value meets exactly.
@given(st.lists(st.integers(-8, 8).map(lambda eighths: eighths / 8), min_size=10, max_size=10))
def test_verdict_is_what_the_interval_says_at_an_attainable_level(d):
    verdict = judge(d, 0.0, Looks.fixed(10, 25 / 1024))
    assert verdict.outcome == interval_says(verdict)


@given(continuous, budgets, budgets)
def test_a_larger_budget_is_never_harder_to_keep(d, one, other):
    tight, loose = (judge(d, budget, Looks()) for budget in sorted([one, other]))
    assert tight.p_above <= loose.p_above
    assert tight.p_below >= loose.p_below
    assert ORDER.index(tight.outcome) <= ORDER.index(loose.outcome)


@pytest.mark.parametrize(
    "magnitudes", [(0, 0, 0, 1, 1, 1, 2, 2, 3), (1, 1, 1, 1, 1, 1, 1, 1), (0, 0, 0, 0, 1, 2, 3, 4)]
)
@pytest.mark.parametrize("level", [0.02, 0.05, 0.1])
def test_zeros_and_ties_keep_the_error_rate_of_fail(magnitudes, level):
    looks = Looks.fixed(len(magnitudes), level)
    signs = list(product((-1, 1), repeat=len(magnitudes)))
    fails = sum(judge(np.multiply(s, magnitudes).tolist(), 0.0, looks).outcome == "fail" for s in signs)
    assert fails / len(signs) <= level


@pytest.mark.parametrize("magnitudes", [(1, 1, 1, 1, 2, 2, 3, 4), (1, 1, 1, 1, 1, 1, 1, 1), (2, 2, 1, 1, 1, 3, 3, 3)])
@pytest.mark.parametrize("level", [0.02, 0.05, 0.1])
def test_zeros_and_ties_keep_the_error_rate_of_pass(magnitudes, level):
    looks = Looks.fixed(len(magnitudes), level)
    signs = list(product((-1, 1), repeat=len(magnitudes)))
    passes = sum(judge((1.0 + np.multiply(s, magnitudes)).tolist(), 0.0, looks).outcome == "pass" for s in signs)
    assert passes / len(signs) <= level


def test_a_metric_without_noise_passes_a_budget_above_it():
    assert judge([0.0] * 10, 0.05, Looks()).outcome == "pass"


def test_a_metric_without_noise_fails_a_budget_below_it():
    assert judge(log_ratios([106.0] * 10, [100.0] * 10), 0.05, Looks()).outcome == "fail"


@pytest.mark.parametrize(
    ("sample", "baseline", "budget"),
    [(105, 100, 0.05), (110, 100, 0.1), (7, 7, 0.0), (1300, 100, 12.0), (97, 100, -0.03)],
)
def test_a_metric_without_noise_passes_a_budget_equal_to_it(sample, baseline, budget):
    assert judge(log_ratios([sample] * 10, [baseline] * 10), budget, Looks()).outcome == "pass"


def test_rounds_at_the_budget_are_no_evidence_that_it_is_broken():
    # Dropping the zeros, as scipy does by default, would leave nine values above the budget: p = 1/512.
    verdict = judge([0.0] * 9 + [0.2] * 9, 0.0, Looks())
    assert verdict.p_above > LEVEL
    assert verdict.outcome == "inconclusive"


@pytest.mark.filterwarnings("error")
def test_zeros_and_ties_do_not_warn():
    judge([0.0, 0.0, 0.1, 0.1, -0.1, 0.2], 0.0, Looks())
    judge([0.0], 0.0, Looks())


@pytest.mark.parametrize(("rounds", "look"), [(3, 1), (10, 1), (11, 2), (20, 2), (29, 3), (30, 3), (40, 3)])
def test_a_verdict_knows_its_look(rounds, look):
    assert judge([0.1] * rounds, 0.3, Looks()).look == look


@pytest.mark.parametrize("budget", [-1.0, -2.0, inf, nan])
def test_a_budget_that_is_no_overhead_is_refused(budget):
    with pytest.raises(ValueError, match="above -1"):
        judge([0.1] * 10, budget, Looks())


# advice, describe, percent


def spread(centre: float, width: float, rounds: int = 30) -> list[float]:
    return [float(x) for x in np.linspace(centre - width, centre + width, rounds)]


def test_no_advice_for_a_verdict_that_is_settled():
    assert advice(judge([0.1] * 10, 0.3, Looks())) == ""


def test_advice_names_the_least_rounds_when_there_are_fewer():
    assert (
        advice(judge([0.1] * 3, 0.3, Looks.fixed(3)))
        == "3 rounds cannot decide at alpha 0.05: at least 5 rounds are needed"
    )
    assert advice(judge([0.1], 0.3, Looks())) == "1 round cannot decide at alpha 0.05: at least 6 rounds are needed"


def test_following_the_advice_would_have_been_enough():
    d = spread(0.25, 0.3)
    verdict = judge(d, 0.22, Looks())
    assert verdict.outcome == "inconclusive"
    said = advice(verdict)
    needed = int(said.split("about ")[1].split()[0])
    assert 30 < needed < 300
    assert "times as long" in said
    assert judge(spread(0.25, 0.3, round(needed * 1.2)), 0.22, Looks()).outcome == "fail"


def test_advice_asks_for_more_the_closer_the_budget_is():
    far, near = (judge(spread(log(1.3), 0.3), budget, Looks()) for budget in (0.38, 0.35))
    rounds = [int(advice(verdict).split("about ")[1].split()[0]) for verdict in (far, near)]
    assert rounds[0] < rounds[1]


@pytest.mark.parametrize("budget", [0.3, 0.301])
def test_advice_is_to_move_a_budget_that_the_estimate_sits_on(budget):
    said = advice(judge(spread(log(1.3), 0.3), budget, Looks()))
    assert "no reasonable number of rounds" in said
    assert "move the budget" in said


def test_the_budgets_that_advice_offers_would_be_decided():
    d = spread(log(1.3), 0.3)
    found = judge(d, 0.3, Looks()).estimate
    assert f"above {percent(found.high)}" in advice(judge(d, 0.3, Looks()))
    assert judge(d, found.high + 0.001, Looks()).outcome == "pass"
    assert judge(d, found.low - 0.001, Looks()).outcome == "fail"


@given(continuous, budgets)
def test_every_verdict_can_be_put_into_words(d, budget):
    verdict = judge(d, budget, Looks())
    assert bool(advice(verdict)) == (verdict.outcome == "inconclusive")
    words = describe(verdict) + advice(verdict)
    assert "inf" not in words
    assert "nan" not in words


@pytest.mark.parametrize(("vanished", "budget"), [(5, -0.5), (3, 0.0)])
def test_advice_survives_a_metric_that_all_but_vanishes(vanished, budget):
    # A log-ratio of -50 is an overhead of exactly -1, which has no logarithm any more.
    assert advice(judge([-50.0] * vanished + [1.0] * (10 - vanished), budget, Looks()))


def verdict_of(overhead: float, low: float, high: float, budget: float) -> Verdict:
    looks = Looks()
    return Verdict("fail", Estimate(overhead, low, high, looks.confidence, 10), budget, 0.001, 1.0, looks, 1)


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (
            verdict_of(0.412, 0.36, 0.459, 0.3),
            "overhead 41.2 % (96.7 % interval 36.0 to 45.9 %), budget 30 %, 10 rounds",
        ),
        (
            verdict_of(12.4, 11.96, 13.0, 12.0),
            "overhead x13.4 (96.7 % interval x13.0 to x14.0), budget 1200 % = x13.0, 10 rounds",
        ),
        (
            verdict_of(2.9, 2.5, 3.2, 0.075),
            "overhead 290.0 % (96.7 % interval 250.0 % to x4.2), budget 7.5 %, 10 rounds",
        ),
        (
            verdict_of(0.1, -1.0, inf, 0.3),
            "overhead 10.0 % (too few rounds for a 96.7 % interval), budget 30 %, 10 rounds",
        ),
    ],
)
def test_a_verdict_is_described_in_one_line(verdict, line):
    assert describe(verdict) == line


@pytest.mark.parametrize(
    ("overhead", "text"),
    [(0.412, "41.2 %"), (-0.03, "-3.0 %"), (-0.0001, "0.0 %"), (2.999, "299.9 %"), (3.0, "x4.0"), (12.4, "x13.4")],
)
def test_overheads_are_percentages_and_large_ones_ratios(overhead, text):
    assert percent(overhead) == text


# The procedure as a whole, and the plugin's start-up


@pytest.mark.parametrize("cv", [0.05, 0.10, 0.20])
@pytest.mark.parametrize("overhead", [0.0, 0.3])
def test_false_alarms_at_the_budget_stay_below_alpha(cv, overhead):
    sessions = 2000
    d = logratios(Machine(cv), overhead, sessions, np.random.default_rng(20))
    fails = outcomes(d, overhead, Looks()).count("fail") / sessions
    three_standard_errors = 3 * (0.05 * 0.95 / sessions) ** 0.5
    assert fails <= 0.05 + three_standard_errors


@pytest.mark.parametrize("cv", [0.05, 0.10, 0.20])
def test_overhead_clearly_above_the_budget_fails(cv):
    d = logratios(Machine(cv), 1.3 * (1 + 2 * cv) - 1, 500, np.random.default_rng(21))
    assert outcomes(d, 0.3, Looks()).count("fail") / 500 > 0.95


@pytest.mark.parametrize("cv", [0.05, 0.10, 0.20])
def test_overhead_clearly_below_the_budget_passes(cv):
    d = logratios(Machine(cv), 1.3 / (1 + 2 * cv) - 1, 500, np.random.default_rng(22))
    assert outcomes(d, 0.3, Looks()).count("pass") / 500 > 0.95


def test_simulated_outcomes_are_those_of_judge():
    d = logratios(Machine(0.1), 0.35, 60, np.random.default_rng(23))
    looks = Looks()
    judged = []
    for session in d.tolist():
        verdicts = [judge(session[:rounds], 0.3, looks).outcome for rounds in looks.rounds]
        judged.append(next((outcome for outcome in verdicts if outcome != "inconclusive"), "inconclusive"))
    assert set(judged) == {"fail", "inconclusive"}
    assert judged == outcomes(d, 0.3, looks)


def test_comparing_means_of_one_after_the_other_raises_false_alarms():
    assert naive_alarms(Machine(0.05), 2000, np.random.default_rng(24)) > 0.2


def test_importing_the_module_does_not_import_scipy_or_numpy():
    program = "import sys, pytest_fsstack.verdict; assert not {'numpy', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_rounds_too_few_for_a_verdict_are_judged_without_scipy():
    program = (
        "import sys; from pytest_fsstack.verdict import Looks, judge; judge([0.1] * 4, 0.3, Looks.fixed(4)); "
        "assert 'scipy' not in sys.modules; judge([0.1] * 5, 0.3, Looks.fixed(5)); assert 'scipy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
