"""Which stacks go on: each until its budgets are decided, the baseline for as long as anybody needs it."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, strategies as st

from pytest_fsstack.judging.plan import Planner, Question, RoundsLeft, confirmation_level, longer, rounds_to_confirm
from pytest_fsstack.judging.verdict import judge
from pytest_fsstack.records.verdicts import Looks, Verdict

STACKS = ("base", "one", "two", "free")
BASE, ONE, TWO, FREE = QUESTIONS = [Question(stack, "base", "s") for stack in STACKS]


def verdict(centre: float, rounds: int, noise: float = 0.01, seed: int = 1) -> Verdict:
    rng = random.Random(seed)
    return judge({number: rng.gauss(centre, noise) for number in range(rounds)}, 0.0, Looks())


def test_decided_stacks_stop_and_the_baseline_goes_on_while_anybody_needs_it() -> None:
    planner = Planner(Looks(), QUESTIONS)
    assert list(planner.next_round()) == list(STACKS)
    open_one = verdict(0.0, 6)
    assert open_one.outcome == "inconclusive"
    planner.look(6, {ONE: [verdict(1.0, 6)], TWO: [open_one]})
    assert list(planner.next_round()) == ["base", "two"]
    assert planner.states == {BASE: "measured", ONE: "fail", TWO: "running", FREE: "measured"}
    planner.look(14, {ONE: [verdict(1.0, 6)], TWO: [verdict(-1.0, 14)]})
    assert not planner.next_round()
    assert planner.decided == "1 pass, 1 fail"


def test_a_stack_goes_on_until_all_of_its_budgets_are_decided() -> None:
    planner = Planner(Looks(), QUESTIONS)
    planner.look(6, {ONE: [verdict(1.0, 6), verdict(0.0, 6)]})
    assert list(planner.next_round()) == ["base", "one"]
    planner.look(14, {ONE: [verdict(1.0, 6), verdict(-1.0, 14)]})
    assert planner.states[ONE] == "fail"


def test_a_stack_runs_up_to_its_last_open_step_and_the_baseline_up_to_the_longest() -> None:
    open_one, broken, kept = verdict(0.0, 6), verdict(1.0, 6), verdict(-1.0, 6)
    questions = [Question(stack, "base", step) for stack in (*STACKS, "control") for step in "abc"]
    planner = Planner(Looks(), questions, ["control"])
    every = {"a", "b", "c"}
    assert planner.next_round() == dict.fromkeys([*STACKS, "control"], every)
    one_a, one_c, two_a, two_b = (
        Question(*pair)
        for pair in (("one", "base", "a"), ("one", "base", "c"), ("two", "base", "a"), ("two", "base", "b"))
    )
    planner.look(6, {one_a: [open_one], one_c: [broken], two_a: [kept], two_b: [open_one]})
    assert planner.next_round() == {"base": {"a", "b"}, "one": {"a"}, "two": {"b"}, "control": {"a", "b"}}
    assert planner.cell_states()["one"] == planner.cell_states()["two"] == "running"
    planner.look(14, {one_a: [verdict(-1.0, 14)], one_c: [broken], two_a: [kept], two_b: [verdict(0.0, 14)]})
    assert planner.next_round() == {"base": {"b"}, "two": {"b"}, "control": {"b"}}
    assert planner.decided == "1 fail"
    assert planner.rounds_left(14) == {cell: planner.rounds_left(14)["two"] for cell in ("base", "two", "control")}


def test_what_nothing_can_decide_does_not_keep_a_stack_running() -> None:
    planner = Planner(Looks(), QUESTIONS)
    planner.look(6, {ONE: [None], TWO: [None, verdict(1.0, 6)]})
    assert not planner.next_round()
    assert planner.states[ONE] == "given up"


def test_what_is_given_up_stops() -> None:
    planner = Planner(Looks(), QUESTIONS)
    hopeless = next(each for seed in range(99) if (each := verdict(0.0, 38, seed=seed)).given_up)
    planner.look(38, {ONE: [hopeless]})
    assert not planner.next_round()
    assert planner.decided == "1 given up"


def test_a_baseline_with_a_limit_of_its_own_runs_for_itself() -> None:
    planner = Planner(Looks(), QUESTIONS)
    planner.look(6, {BASE: [verdict(0.0, 6)], ONE: [verdict(1.0, 6)]})
    assert list(planner.next_round()) == ["base"]


def test_a_stack_that_failed_runs_no_more_and_the_others_do() -> None:
    planner = Planner(Looks(), QUESTIONS)
    planner.ended.add("base")
    planner.ended.add("one")
    assert list(planner.next_round()) == ["two", "free"]
    # Of what it was compared with, there will be no more rounds.
    planner.look(6, {TWO: [verdict(0.0, 6)]})
    assert not planner.next_round()
    assert planner.cell_states() == {"base": "ended", "one": "ended", "two": "given up", "free": "measured"}


def test_a_cell_runs_beside_what_its_open_questions_are_about() -> None:
    own = [Question(f"{stack}:{kernel}", f"a:{kernel}", "s") for stack in "ab" for kernel in ("old", "new")]
    between = [Question(f"{stack}:new", f"{stack}:old", "s") for stack in "ab"]
    planner = Planner(Looks(), [*own, *between])
    assert list(planner.next_round()) == ["a:old", "a:new", "b:old", "b:new"]
    planner.look(6, {between[0]: [verdict(1.0, 6)], between[1]: [verdict(0.0, 6)]})
    assert list(planner.next_round()) == ["b:old", "b:new"]
    assert planner.cell_states() == {"a:old": "measured", "a:new": "fail", "b:old": "measured", "b:new": "running"}


@given(st.lists(st.sampled_from([-0.3, -0.01, 0.0, 0.01, 0.3]), min_size=1, max_size=4), st.integers(0, 99))
def test_every_plan_ends_by_its_last_look_and_survives_json(truths: list[float], seed: int) -> None:
    rng = random.Random(seed)
    looks, names = Looks(), [str(number) for number in range(len(truths))]
    d = {name: {} for name in names}  # type: dict[str, dict[int, float]]
    questions = {name: Question(name, "base", "s") for name in ["base", *names]}
    planner, rounds = Planner(looks, list(questions.values())), 0
    while stacks := planner.next_round():
        for name, truth in zip(names, truths, strict=True):
            if name in stacks:
                d[name][rounds] = rng.gauss(truth, 0.1)
        rounds += 1
        if rounds in looks.rounds:
            planner.look(rounds, {questions[name]: [judge(d[name], 0.0, looks, rounds)] for name in names})
    assert rounds <= looks.max_rounds
    for name in names:
        # What it was decided on is all that was run of it: the first verdict stood.
        assert judge(d[name], 0.0, looks, rounds).estimate.rounds == len(d[name])


@pytest.mark.parametrize("budgets", [1, 2, 5, 20, 21, 30, 1000])
@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_confirmed_failures_of_any_number_of_budgets_keep_one_error_rate(budgets: int, alpha: float) -> None:
    level = confirmation_level(budgets)
    assert 0 < level < 0.5
    assert budgets * alpha * level <= alpha * (1 + 1e-12)
    # From four budgets on, nothing of it is left.
    assert budgets < 4 or budgets * level == pytest.approx(1)


@given(budgets=st.integers(2, 3000), rounds=st.integers(1, 14), fixed=st.booleans())
@example(budgets=32, rounds=5, fixed=True)
@example(budgets=33, rounds=5, fixed=True)
def test_failures_can_be_confirmed_from_the_computed_number_of_rounds_on(
    budgets: int, rounds: int, fixed: bool
) -> None:
    plan, level = (rounds,) if fixed else tuple(range(1, rounds + 1)), confirmation_level(budgets)
    looks = Looks(plan, min(0.05, level), level)
    # No ratios speak more clearly against the budget than these.
    worst = judge(dict.fromkeys(range(rounds), 1.0), 0.0, looks, rounds)
    assert (worst.outcome == "fail") == (rounds >= rounds_to_confirm(budgets))


def test_a_single_budget_needs_no_confirmation() -> None:
    assert rounds_to_confirm(1) == rounds_to_confirm(0) == 0


def test_what_is_left_is_what_runs_until_the_trends_decide_and_at_most_the_plan() -> None:
    planner = Planner(Looks(), QUESTIONS)
    assert planner.rounds_left(3)["one"] == planner.rounds_left(3)["base"] == RoundsLeft(None, 75)
    nearly = Verdict("inconclusive", verdict(0.0, 6).estimate, 0.0, Looks(), 1, z=1.4)
    planner.look(6, {ONE: [verdict(1.0, 6)], TWO: [nearly]})
    assert planner.rounds_left(10) == {"base": RoundsLeft(12, 68), "two": RoundsLeft(12, 68)}
    # A failure that has to be confirmed runs again, for one block if it is as clear as before.
    assert planner.rounds_left(10, planner.looks) == {
        "base": RoundsLeft(12, 146),
        "one": RoundsLeft(6, 78),
        "two": RoundsLeft(12, 146),
    }


def test_of_a_plan_with_one_look_all_is_left() -> None:
    planner = Planner(Looks.fixed(30), [BASE, ONE])
    assert planner.rounds_left(10) == {"base": RoundsLeft(20, 20), "one": RoundsLeft(20, 20)}


def test_what_a_stack_is_wanted_for_twice_is_left_for_the_longer_of_both() -> None:
    assert longer(RoundsLeft(3, 10), RoundsLeft(5, 8)) == RoundsLeft(5, 10)
    assert longer(RoundsLeft(None, 10), RoundsLeft(5, 8)) == RoundsLeft(None, 10)


def test_a_control_runs_for_as_long_as_any_stack_and_keeps_none_running() -> None:
    planner = Planner(Looks(), [*QUESTIONS, Question("control", "base", "s")], ["control"])
    assert list(planner.next_round()) == [*STACKS, "control"]
    assert planner.rounds_left(3)["control"] == planner.rounds_left(3)["base"]
    planner.look(6, {ONE: [verdict(0.0, 6)], TWO: [verdict(1.0, 6)]})
    assert list(planner.next_round()) == ["base", "one", "control"]
    planner.look(14, {ONE: [verdict(-1.0, 14)]})
    assert not planner.next_round()
    planner.states[ONE] = "running"
    planner.ended.add("control")
    assert list(planner.next_round()) == ["base", "one"]


def test_questions_without_a_budget_end_with_the_first_block() -> None:
    """`fsstack bench` announced 80 rounds and the time for them, and stopped after the first block."""
    planner = Planner(Looks(), [BASE, ONE, TWO], judged=())
    assert planner.max_rounds == 6
    assert planner.rounds_left(3) == dict.fromkeys(["base", "one", "two"], RoundsLeft(3, 3))
    planner = Planner(Looks(), [BASE, ONE, TWO], judged=[TWO])
    assert planner.max_rounds == 78
    assert planner.rounds_left(3, planner.looks) == {
        "base": RoundsLeft(None, 153),
        "one": RoundsLeft(3, 3),
        "two": RoundsLeft(None, 153),
    }
