"""What runs on which kernel in the next round: for its own budgets, and for the verdicts between kernels."""

from __future__ import annotations

import random
from math import exp

import pytest

from pytest_fsstack.judging import saved
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.plan import Left
from pytest_fsstack.judging.results import ChainResults, Confirmation, Results, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks
from pytest_fsstack.kernels.comparison import Boot, Course

STACKS = ["ext4", "luks+ext4"]
OLD, NEW = ("old", 0), ("new", 0)


def told(
    boot: Boot,
    number: int,
    cost: float,
    wanted: list[str],
    alive: list[str] = STACKS,
    looks: Looks | None = None,
    base: float = 1.0,
) -> dict[str, object]:
    """What a worker says after a round in which the second stack took `cost` seconds, and all others `base`."""
    chain = ChainResults("test_it.py::test_write", "loop", "ext4", looks or Looks(), 1, kernel=boot[0], steps=["write"])
    chain.stacks = {name: StackInfo(name, name) for name in STACKS}
    chain.orders = [STACKS] * number
    for name in alive:
        # Never twice the same: rounds that are equal have no sign.
        seconds = (cost if name == "luks+ext4" else base) + number * (1e-5 if boot == OLD else 2e-5)
        chain.add("write", name, Sample({"seconds": seconds}))
    results = saved.dump(Results({"machine": boot[0]}, [chain]))
    plan = {"states": dict.fromkeys(wanted, "running"), "left": {name: [None, 80 - number] for name in wanted}}
    return {"over": None, "results": results, "alive": alive, "wanted": wanted, "failed": 0, **plan}


def test_before_the_first_round_everything_runs() -> None:
    course = Course(["old", "new"], 1, 0.05)
    assert course.wanted(OLD) is None
    assert course.wanted(NEW) is None


def test_without_a_limit_between_kernels_each_kernel_runs_what_its_own_budgets_want() -> None:
    course = Course(["old", "new"], 1, None)
    assert course.hear(OLD, told(OLD, 1, 1.5, ["ext4", "luks+ext4"])) == {"machine": "old"}
    course.hear(NEW, told(NEW, 1, 1.5, []))
    course.end_round({})
    assert course.wanted(OLD) == ["ext4", "luks+ext4"]
    assert course.wanted(NEW) == []


def test_a_stack_runs_on_both_kernels_until_its_verdict_between_them_is_reached() -> None:
    course = Course(["old", "new"], 1, 0.05)
    noise = [0.98, 1.13, 1.01, 1.12, 0.99, 1.11, 1.02, 1.10]
    for number in range(1, 9):
        for boot in OLD, NEW:
            assert course.wanted(boot) in (None, STACKS)
            # ext4 is the same on both; luks+ext4 is now faster and now slower on the new kernel.
            course.hear(boot, told(boot, number, 1.5 * (noise[number - 1] if boot == NEW else 1.0), []))
        course.end_round({})
    assert course.wanted(OLD) == course.wanted(NEW) == ["luks+ext4"]
    chain = course.conclude()
    assert chain.worst("write", "ext4:new") == "pass"
    assert chain.worst("write", "luks+ext4:new") == "inconclusive"
    assert "of these boots" in chain.judgements["write", "ext4:new"][0].text


def test_what_failed_or_went_down_on_one_kernel_is_compared_with_nothing() -> None:
    course = Course(["old", "new"], 1, 0.05)
    course.hear(OLD, told(OLD, 1, 1.5, []))
    course.hear(NEW, told(NEW, 1, 1.5, [], alive=["ext4"]))
    course.end_round({})
    assert course.wanted(OLD) == course.wanted(NEW) == ["ext4"]
    course.lose(NEW)
    assert course.wanted(OLD) == course.wanted(NEW) == []
    assert list(course.conclude().stacks) == ["ext4:old", "ext4:new", "luks+ext4:old", "luks+ext4:new"]


@pytest.mark.parametrize(("later", "outcome"), [(1.0, "pass"), (1.5, "fail")])
def test_a_failure_between_kernels_is_confirmed_by_fresh_rounds_of_both(later: float, outcome: str) -> None:
    course = Course(["old", "new"], 1, 0.05, budgets=4)
    for number in range(1, 17):
        for boot in OLD, NEW:
            stacks = course.wanted(boot) or STACKS
            assert stacks == (STACKS if number <= 8 else ["luks+ext4"])
            cost = (1.5 if number <= 8 else later) if boot == NEW else 1.0
            course.hear(boot, told(boot, number, cost, [], looks=Looks.fixed(8)))
        course.end_round({})
        said = {8: "1 pass, 1 fail", 16: "2 pass" if outcome == "pass" else "1 pass, 1 fail"}
        assert course.decided() == said.get(number, "" if number < 8 else "1 pass")
        assert course.left() == [Left(8 - number % 8, 16 - number)] * 4 if number < 8 else True
        course.confirm()
    assert course.wanted(OLD) == course.wanted(NEW) == []
    chain = course.conclude()
    assert chain.confirmation == Confirmation(8, 0.25)
    (judged,) = chain.judgements["write", "luks+ext4:new"]
    assert judged.verdict is not None
    assert judged.verdict.outcome == "fail"
    assert judged.outcome == chain.worst("write", "luks+ext4:new") == outcome
    assert f"fresh rounds {'confirm' if outcome == 'fail' else 'refute'} what the first 8 say" in judged.text
    # What was read back says the same.
    (read,) = saved.loads(saved.dumps(Results({}, [chain]))).chains
    assert read.worst("write", "luks+ext4:new") == outcome


def test_fresh_rounds_of_a_kernels_own_budgets_stay_its_own() -> None:
    course = Course(["old", "new"], 1, None, budgets=4)
    for boot, start in (OLD, 8), (NEW, 16):
        message = told(boot, 1, 1.0, [])
        chain = ChainResults(
            "test_it.py::test_write", "loop", "ext4", Looks.fixed(8), 1, kernel=boot[0], steps=["write"]
        )
        chain.stacks = {name: StackInfo(name, name) for name in STACKS}
        for number in range(1, 25):
            chain.orders.append(STACKS)
            slow = 1.5 if number <= 8 else 1.0
            for name in STACKS:
                cost = slow if name == "luks+ext4" else 1.0
                chain.add("write", name, Sample({"seconds": cost + number * (1e-5 if name == "ext4" else 2e-5)}))
        chain.confirmation = Confirmation(start, 0.05)
        chain.judgements["write", "luks+ext4"] = [chain.judge("write", "luks+ext4", Budget(overhead=0.1))]
        message |= {"over": True, "results": saved.dump(Results({}, [chain]))}
        course.hear(boot, message)
    within = course.within()
    assert within is not None
    assert within.confirmation == Confirmation(
        24, 0.05, {"ext4:old": 8, "luks+ext4:old": 8, "ext4:new": 16, "luks+ext4:new": 16}
    )
    (read,) = saved.loads(saved.dumps(Results({}, [within]))).chains
    assert read.judgements == within.judgements
    assert read.worst("write", "luks+ext4:old") == "pass"


def test_rounds_of_several_boots_do_not_decide_between_kernels() -> None:
    course = Course(["old", "new"], 2, 0.05)
    for boot in 0, 1:
        for kernel in "old", "new":
            course.hear((kernel, boot), told((kernel, boot), 1, 1.5, []))
    course.end_round({})
    assert course.wanted(("new", 1)) == []
    assert course.conclude().looks == Looks.fixed(2)


@pytest.mark.parametrize(("budgets", "outcome"), [(0, "fail"), (2, "inconclusive")])
def test_boots_of_two_kernels_are_no_pairs_and_three_of_each_decide(budgets: int, outcome: str) -> None:
    course = Course(["old", "new"], 3, 0.05, budgets)
    for boot, factor in enumerate((1.0, 1.2, 1.1)):
        for kernel in "old", "new":
            cost = factor * (1.3 if kernel == "new" else 1.0)
            for number in 1, 2:
                course.hear((kernel, boot), told((kernel, boot), number, cost, []))
    course.end_round({})
    chain = course.conclude()
    (judged,) = chain.judgements["write", "luks+ext4:new"]
    assert judged.outcome == outcome
    if outcome == "fail":
        assert "3 against 3 boots" in judged.text
    else:
        assert judged.text.endswith(
            "3 against 3 boots are figures without a verdict: at alpha 0.025 it takes 4 of each (--fsstack-boots)"
        )
    found = chain.estimate("write", "luks+ext4:new")
    assert found is not None
    assert found.overhead == pytest.approx(0.3, abs=0.01)
    assert found.rounds == 3
    (read,) = saved.loads(saved.dumps(Results({}, [chain]))).chains
    assert read.judgements == chain.judgements


def test_boots_are_compared_by_the_rounds_that_all_of_them_have() -> None:
    course = Course(["old", "new"], 3, 0.05)
    for boot in range(3):
        for kernel in "old", "new":
            # The machine gets slower, and one boot goes down early.
            for number in (1, 2, 3) if (kernel, boot) != ("new", 0) else (1,):
                course.hear((kernel, boot), told((kernel, boot), number, float(number), []))
    found = course.conclude().estimate("write", "luks+ext4:new")
    assert found is not None
    assert found.overhead == pytest.approx(0, abs=1e-3)


def test_each_stack_on_each_kernel_stands_with_what_it_costs_more_than_on_the_first() -> None:
    course = Course(["old", "new"], 1, 0.05)
    for number in range(1, 9):
        for boot in OLD, NEW:
            course.hear(boot, told(boot, number, 3.0 if boot == NEW else 1.5, ["luks+ext4"] if boot == OLD else []))
        course.end_round({})
    found = {each.stack: each for each in course.standings()}
    slower = found["luks+ext4:new"]
    assert slower.state == "fail"
    assert slower.estimate is not None
    assert slower.estimate.overhead == pytest.approx(1.0, abs=0.01)
    assert slower.budget == 0.05
    # Its kernel's own budget keeps it running.
    assert found["luks+ext4:old"].state == "running"
    assert found["luks+ext4:old"].estimate is None


def chain_with_carry_over(effect: float, after: Boot, boots: int = 1, seed: int = 1) -> ChainResults:
    """Return forty rounds of two kernels, in which luks+ext4 takes more in the turn after one boot's."""
    rng, before = random.Random(seed), OLD
    course = Course(["old", "new"], boots, None)
    for number in range(1, 41):
        course.begin_round({}, ())
        for boot in rng.sample([(kernel, boot) for boot in range(boots) for kernel in ("old", "new")], 2 * boots):
            base, cost = exp(rng.gauss(0, 0.03)), exp(rng.gauss(0, 0.03) + (effect if before == after else 0.0))
            course.hear(boot, told(boot, number, cost, STACKS, base=base))
            before = boot
        course.end_round({})
    return course.conclude()


@pytest.mark.parametrize(("boots", "name"), [(1, "new"), (3, "new (boot 1)")])
def test_what_a_kernels_turn_adds_to_the_next_one_is_noticed(boots: int, name: str) -> None:
    chain = chain_with_carry_over(0.10, NEW, boots)
    (carry,) = chain.carry_over
    assert (carry.step, carry.stack, carry.after) == ("write", "luks+ext4", name)
    assert carry.overhead == pytest.approx(exp(0.10) - 1, abs=0.03)
    assert any(f"after {name}" in remark for remark in chain.remarks)


@pytest.mark.parametrize("boots", [1, 3])
def test_chance_explains_the_turns_of_kernels_that_add_nothing(boots: int) -> None:
    alarms = [seed for seed in range(5) if chain_with_carry_over(0.0, NEW, boots, seed).carry_over]
    assert alarms == []
