"""Comparisons of runs: verdicts by run, and reasons why runs are not comparable."""

from __future__ import annotations

import random
import re
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from pytest_fsstack.judging.describe import notice_in_words
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.options.budgets import percentage
from pytest_fsstack.over_time import comparison, text as report
from pytest_fsstack.over_time.comparison import ONE_RUN_EACH, Comparison, compare, differences
from pytest_fsstack.over_time.plugin import refusals
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results, StackInfo
from pytest_fsstack.records.sample import Better, Metric, Sample
from tests.chains import a_chain

THIS = "0" * 32


def run(
    overhead: float = 0.5,
    *,
    base: float = 1.0,
    machine: str | None = THIS,
    stacks: tuple[str, ...] = ("ext4", "luks"),
    kernel: str = "6.1",
    rounds: int = 3,
    **environment: Any,
) -> Results:
    """Return a run in which every stack but the first costs `overhead` over the first."""
    costs = {name: base * (1 if name == stacks[0] else 1 + overhead) for name in stacks}
    series = {name: [cost * (1 + number / 100) for number in range(rounds)] for name, cost in costs.items()}
    environment = {"devices": [{"spec": "loop", "model": "a disk"}], **environment}
    if machine:
        environment["machine_id"] = machine
    chain = a_chain({"write": series}, work={"write": {"bytes": 10}})
    return chain.results(environment, scale="small", labels={"kernel": kernel})


def reasons(now: Results, then: Results) -> list[str]:
    return refusals({Path("now.json"): now}, {Path("then.json"): then})


def only(found: Comparison) -> comparison.Change:
    (change,) = found.compared
    return change


# -- how many runs -----------------------------------------------------------------------------------------------------


def test_one_run_each_gives_figures_without_a_verdict_and_says_what_is_not_in_it() -> None:
    change = only(compare([run(0.65)], [run(0.5)], limit=0.05))
    assert (change.outcome, change.estimate) == (None, None)
    assert change.shift == pytest.approx(0.1)
    assert change.explanation == ONE_RUN_EACH


def test_three_runs_a_side_are_judged_by_the_exact_test() -> None:
    then = [run(0.50), run(0.51), run(0.49)]
    slower = only(compare([run(0.65), run(0.66), run(0.64)], then, limit=0.05))
    assert (slower.outcome, re.findall(r"\d+", slower.explanation)) == ("fail", ["3", "3"])
    assert slower.estimate is not None
    assert slower.estimate.overhead == pytest.approx(0.1, abs=0.01)
    same = only(compare([run(0.50), run(0.51), run(0.49)], then, limit=0.05))
    assert same.outcome == "pass"
    close = only(compare([run(0.56), run(0.59), run(0.57)], then, limit=0.05))
    assert close.outcome == "inconclusive"


def test_one_or_two_runs_are_judged_against_the_spread_of_five_earlier_ones() -> None:
    then = [run(0.5 + step / 100) for step in (-1, 0, 1, 0, -1)]
    for now in ([run(0.65)], [run(0.65), run(0.66)]):
        change = only(compare(now, then, limit=0.05))
        assert change.outcome == "fail"
        assert re.findall(r"\d+", change.explanation) == [str(len(now)), "5"]
    assert only(compare([run(0.5)], then, limit=0.05)).outcome == "pass"
    assert only(compare([run(0.65)], then[:4], limit=0.05)).outcome is None


@pytest.mark.parametrize("machine", [None, "1" * 32])
def test_earlier_runs_of_another_machine_or_one_that_is_not_known_do_not_count(machine: str | None) -> None:
    then = [run(0.5 + step / 100) for step in (-1, 0, 1, 0)]
    change = only(compare([run(0.65)], [*then, run(0.5, machine=machine)], limit=0.05))
    assert change.outcome is None
    # Of 5 earlier runs, 4 are of this machine; it takes 3 a side, or one against 5.
    assert re.findall(r"\d+", change.explanation) == ["1", "5", "4", "3", "5"]
    unknown = [run(0.5 + step / 100, machine=None) for step in range(6)]
    assert only(compare([run(0.65, machine=None)], unknown, limit=0.05)).outcome is None


def test_three_runs_a_side_of_several_machines_are_judged_and_the_machines_counted() -> None:
    now, then = ([run(cost + step / 1000) for step in range(5)] for cost in (0.65, 0.5))
    assert "machine" not in only(compare(now, then, limit=0.05)).explanation
    change = only(compare([*now[1:], run(0.65, machine="1" * 32)], then, limit=0.05))
    assert change.outcome == "fail"
    assert change.explanation.endswith("5 runs of 2 machines")


def test_those_of_this_machine_alone_are_compared_with_if_they_are_enough() -> None:
    then = [run(0.5 + step / 100) for step in (-1, 0, 1, 0, -1)]
    found = compare([run(0.65)], [*then, run(0.9, machine="1" * 32)], limit=0.05)
    assert only(found).outcome == "fail"
    assert len(only(found).then) == 5


def test_without_a_limit_there_is_an_interval_and_no_verdict() -> None:
    change = only(compare([run(0.65)] * 3, [run(0.5)] * 3))
    assert change.outcome is None
    assert change.estimate is not None


def test_the_error_rate_of_a_session_is_shared_among_its_verdicts() -> None:
    stacks = ("ext4", "luks", "xfs", "btrfs")
    then = [run(0.50 + step / 1000, stacks=stacks) for step in range(3)]
    now = [run(0.65 + step / 1000, stacks=stacks) for step in range(3)]
    assert {change.outcome for change in compare(now, then, limit=0.05).compared} == {"fail"}
    shared = compare(now, then, limit=0.05, session=True).compared
    assert {change.outcome for change in shared} == {None}
    assert re.findall(r"\d[\d.]*", shared[0].explanation) == ["3", "3", "0.0167", "4"]


def test_a_side_without_runs_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\b0 .*\b1 "):
        compare([], [run()])


# -- what is compared --------------------------------------------------------------------------------------------------


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(-0.5, 3), st.floats(-0.5, 3))
def test_a_machine_that_is_faster_as_a_whole_changes_nothing_but_the_figures_beside(
    base_now: float, base_then: float, now: float, then: float
) -> None:
    found = compare([run(now, base=base_now)], [run(then, base=base_then)])
    change = only(found)
    assert change.shift is not None
    assert log(1 + change.shift) == pytest.approx(log(1 + now) - log(1 + then), abs=1e-6)
    assert comparison.Change.figure(change.now) == pytest.approx(base_now * (1 + now) * 1.01)
    baselines = [each for each in found.changes if each.shift is None]
    assert [each.key.stack for each in baselines] == ["ext4"]
    assert comparison.Change.figure(baselines[0].then) == pytest.approx(base_then * 1.01)


def test_more_rounds_make_it_no_more_certain_because_the_unit_is_the_run() -> None:
    found = []
    for rounds in (3, 60):
        then = [run(0.5 + step / 50, rounds=rounds) for step in (-1, 0, 1, 0, -1)]
        found.append(only(compare([run(0.51, rounds=rounds)], then, limit=0.0)))
    few, many = found
    assert few.outcome == many.outcome == "inconclusive"
    assert few.estimate is not None
    assert many.estimate is not None
    assert many.estimate.high == pytest.approx(few.estimate.high)


def test_what_is_on_one_side_only_is_reported() -> None:
    found = compare([run(stacks=("ext4", "luks", "new"))], [run(stacks=("ext4", "luks", "old"))], limit=0.05)
    assert [place.stack for place in found.only_now] == ["new"]
    assert [place.stack for place in found.only_then] == ["old"]
    shown = report.lines(found, [run()], [run()])
    for when, stack in ("now", "new"), ("then", "old"):
        assert any(re.fullmatch(rf"\* .*\b{when}\b.*: T write on {stack}", line) for line in shown)


def test_work_that_was_not_done_is_compared_with_nothing() -> None:
    broken = run()
    broken.chains[0].orders.append([])
    broken.chains[0].add("write", "luks", Sample({"seconds": 0.1}, incomplete="no space"))
    found = compare([broken], [run()], limit=0.05)
    assert found.compared == []
    assert [place.stack for place in found.only_then] == ["luks"]


def test_metrics_with_a_budget_are_compared_beside_the_time() -> None:
    sides = [run(), run()]
    for results in sides:
        chain = results.chains[0]
        for stack in chain.stacks:
            for (_, number), sample in chain.of("write", stack).items():
                values = {**sample.values, "written_bytes": 4096.0 * (1 + number)}
                chain.add("write", stack, Sample(values), number)
    assert {change.key.metric for change in compare(sides[:1], sides[1:]).changes} == {"seconds"}
    chain = sides[0].chains[0]
    judge_all(chain, "write", "luks", Budget("written_bytes", overhead=0.1))
    found = compare(sides[:1], sides[1:])
    assert {str(change.key) for change in found.compared} == {
        "T write on luks",
        "T write on luks (written_bytes)",
    }


def of_kernel(kernel: str, overhead: float) -> ChainResults:
    """Return the chain of one kernel from a comparison of kernels."""
    (chain,) = run(overhead).chains
    names = {name: f"{name}:{kernel}" for name in chain.stacks}
    chain.stacks = {full: StackInfo(full, name, kernel=kernel, name=name) for name, full in names.items()}
    chain.samples = {
        step: {names[stack]: found for stack, found in each.items()} for step, each in chain.samples.items()
    }
    chain.baseline = names[chain.baseline]
    return chain


def with_bytes(reference: float, stack: float, **more: Any) -> Results:
    """Return a run whose stacks write so many bytes."""
    results = run(**more)
    (chain,) = results.chains
    for name, figure in (("ext4", reference), ("luks", stack)):
        for (_, number), sample in chain.of("write", name).items():
            chain.add("write", name, Sample({**sample.values, "written_bytes": figure}), number)
    return results


def test_a_metric_is_compared_only_on_the_steps_that_have_a_budget_for_it() -> None:
    now, then = with_bytes(1e6, 2e6), with_bytes(1e6, 3e6)
    chain = now.chains[0]
    chain.steps.append("read")
    for results in (now, then):
        for stack in ("ext4", "luks"):
            samples = results.chains[0].samples
            samples.setdefault("read", {})[stack] = dict(samples["write"][stack])
    then.chains[0].steps.append("read")
    judge_all(chain, "read", "luks", Budget("written_bytes", overhead=0.1))
    compared = {(change.key.step, change.key.metric) for change in compare([now], [then]).compared}
    assert compared == {("write", "seconds"), ("read", "seconds"), ("read", "written_bytes")}


def test_the_time_of_a_step_is_judged_unless_its_budgets_are_in_other_metrics() -> None:
    then, now = [with_bytes(1e6, 2e6) for _ in range(6)], with_bytes(1e6, 2e6, overhead=2.0)
    assert [change.key.metric for change in compare([now], then, limit=0.05).regressions] == ["seconds"]
    for results in (now, *then):
        chain = results.chains[0]
        judge_all(chain, "write", "luks", Budget("written_bytes", overhead=3.0))
    found = compare([now], then, limit=0.05)
    assert not found.regressions
    assert [change.key.metric for change in found.judged] == ["written_bytes"]
    assert {change.key.metric for change in found.compared} == {"seconds", "written_bytes"}
    assert [series.key.metric for series in comparison.outlook(then, 0.05)] == ["written_bytes"]


def test_figures_of_nothing_have_no_ratio() -> None:
    """A step that writes nothing but the background writes of the filesystem."""
    now, then = with_bytes(0.0, 4096.0), with_bytes(4096.0, 0.0)
    chain = now.chains[0]
    judge_all(chain, "write", "luks", Budget("written_bytes", overhead=0.1))
    found = compare([now], [then] * 6, limit=0.05)
    assert {change.key.metric for change in found.compared} == {"seconds"}
    assert not found.regressions
    assert not found.judged
    assert not any("%" in line or " x" in line for line in report.table(found) if "written_bytes" in line)


@pytest.mark.parametrize(("now", "then"), [(9e6, 0.0), (0.0, 9e6)])
def test_figures_of_nothing_on_one_side_are_undecided(now: float, then: float) -> None:
    results = with_bytes(8e6, now)
    judge_all(results.chains[0], "write", "luks", Budget("written_bytes", overhead=9.0))
    found = compare([results], [with_bytes(8e6, then)] * 6, limit=0.05)
    (change,) = found.judged
    assert (change.key.metric, change.outcome, change.explanation) == ("written_bytes", None, comparison.NO_RATIO)
    assert report.describe(change, found).startswith("inconclusive: luks: ")


def in_unit(unit: str, better: Better, *, budget: bool = True, measured: bool = True) -> Results:
    """Return a run with a metric of its own."""
    results = run()
    (chain,) = results.chains
    metric = Metric("latency", unit, better)
    for stack in chain.stacks if measured else ():
        chain.add("write", stack, Sample({"latency": 5.0}, metrics={"latency": metric}))
    chain.own_metrics["write"] = {"latency": metric}
    if budget:
        judge_all(chain, "write", "luks", Budget("latency", overhead=9.0))
    return results


@pytest.mark.parametrize(
    ("then", "budget", "reason"),
    [
        (("ms", "lower"), True, r"latency of write .*\bms \(lower.* \bs \(lower"),
        (("s", "higher"), True, r"latency of write .*\bs \(higher.* \bs \(lower"),
        (("s", "lower"), True, ""),
        (("ms", "lower"), False, ""),
    ],
)
def test_a_metric_in_another_unit_or_direction_is_not_compared(then: Any, budget: bool, reason: str) -> None:
    now = in_unit("s", "lower", budget=budget)
    assert re.fullmatch(reason and f"{reason}.*", "".join(reasons(now, in_unit(*then, budget=budget))))
    assert not reasons(now, in_unit(*then, budget=budget, measured=False))


def test_a_stack_of_one_name_with_other_settings_is_not_compared() -> None:
    then, now = run(0.5), run(0.5)
    for side, value in (then, "bfq"), (now, "none"):
        info = side.chains[0].stacks["luks"]
        side.chains[0].stacks["luks"] = StackInfo(info.id, info.spec, settings={"queue/scheduler": value})
    (reason,) = reasons(now, then)
    assert all(word in reason for word in ("luks", "queue/scheduler=bfq", "queue/scheduler=none"))
    assert not reasons(now, now)


# -- what hits every stack ---------------------------------------------------------------------------------------------


def test_a_reference_that_moved_is_said_although_no_overhead_did() -> None:
    then = [run(0.5, base=0.176 * (1 + step / 100)) for step in (-1, 0, 1, 0, -1, 1)]
    found = compare([run(0.5, base=1.58)], then, limit=0.05)
    assert {change.outcome for change in found.compared} == {"pass"}
    assert [change.key.stack for change in found.moved] == ["ext4"]
    ((_, notice),) = report.warnings(found)
    assert re.match(r"ext4 .*\b178 ms .*\b1\.6 s, x8\.9", notice_in_words(notice))
    assert not compare([run(0.5, base=0.177)], then, limit=0.05).moved
    assert len(compare([run(0.5, base=0.1)], then).moved) == 1


def test_bytes_of_the_reference_are_judged_by_the_limit() -> None:
    then = [with_bytes(8e6 + step * 1000, 9e6) for step in range(6)]
    (change,) = compare([with_bytes(50.4e6, 56e6)], then, limit=0.05).regressions
    assert (change.key.stack, change.key.metric, change.outcome) == ("ext4", "written_bytes", "fail")
    found = compare([with_bytes(50.4e6, 56e6)], then, limit=0.05)
    first = report.describe(change, found).split("\n")[0]
    assert re.match(r"ext4: .*\bwritten_bytes x6\.3", first)
    assert len(first) <= 80
    assert not compare([with_bytes(8.1e6, 9e6)], then, limit=0.05).regressions
    # A filesystem's own housekeeping, and a session without a limit.
    assert not compare([with_bytes(5e5, 6e5)], [with_bytes(4096, 4096)] * 6, limit=0.05).regressions
    assert not compare([with_bytes(50.4e6, 56e6)], then).regressions


def test_earlier_runs_that_follow_each_other_are_said() -> None:
    noise, level, then = random.Random(1), 0.0, []
    for _ in range(40):
        level = 0.8 * level + noise.gauss(0, 0.02)
        then.append(run(0.5 * (1 + level)))
    found = compare([run(0.5)], then, limit=0.05)
    assert only(found).correlation > 0.5
    assert "write on luks" in notice_in_words(report.warnings(found)[0][1])
    assert not report.warnings(compare([run(0.5)], [run(0.5 + noise.gauss(0, 0.01)) for _ in range(40)], limit=0.05))


# -- over time ---------------------------------------------------------------------------------------------------------


def test_runs_are_compared_with_the_latest_and_with_the_first_ones_by_their_time() -> None:
    dates = [f"2026-01-{day:02}T00:00:00+00:00" for day in range(1, 21)]
    then = [
        replace(run(0.5 + (0.001 if day % 2 else 0) - (0.15 if day >= 10 else 0)), start=date)
        for day, date in enumerate(dates)
    ]
    found = compare([run(0.5)], then[::-1], limit=0.05)
    change = only(found)
    assert (change.outcome, len(change.then)) == ("fail", 3)
    assert re.findall(r"\d+|first|last", change.explanation) == ["1", "last", "3", "20"]


# -- before a session --------------------------------------------------------------------------------------------------


def test_the_outlook_counts_runs_of_one_machine_and_says_what_is_missing() -> None:
    few = comparison.outlook([run(0.5 + step / 100) for step in (0, 1, 0)], 0.05)
    assert [(each.key.stack, each.runs, each.power, each.decides) for each in few] == [("luks", 3, None, False)]
    assert re.fullmatch(r"5\.0 % .*\bwrite on luks: 3 .*\b5", report.plan_in_short(few, 0.05))
    then = [run(0.5 + step / 20) for step in (-1, 0, 1, 0, -1, 1)]
    noisy = comparison.outlook([*then, run(machine="1" * 32)], 0.05, machine=THIS)
    assert [(each.runs, each.decides) for each in noisy] == [(6, False)]
    (power,) = [each.power for each in noisy]
    assert power is not None
    said = re.fullmatch(r"5\.0 % .*\bwrite on luks: .* ([\d.]+ %)", report.plan_in_short(noisy, 0.05))
    assert said
    assert power.smallest <= percentage(said[1]) <= power.smallest + 0.001
    assert report.plan_in_short(comparison.outlook(then, 1.0), 1.0) == ""
    assert report.plan_in_short([], 0.05)


def test_one_kernel_is_compared_with_another_and_several_each_with_itself() -> None:
    assert len(compare([run(kernel="6.12")], [run(kernel="6.1")]).compared) == 1
    both = run()
    both.chains = [of_kernel("6.1", 0.5), of_kernel("6.12", 0.8)]
    found = compare([both], [run(kernel="6.12")])
    assert [str(change.key) for change in found.compared] == ["T write on luks 6.12"]
    assert only(found).shift == pytest.approx(0.2)
    assert {place.kernel for place in found.only_now} == {"6.1"}


# -- what differs ------------------------------------------------------------------------------------------------------


def test_what_differs_in_the_environment_is_listed_and_what_always_does_is_not() -> None:
    then = run(date="monday", load=[1], versions={"fio": "3.33", "tar": "1"}, memory=1, cpu={"count": 2})
    now = run(date="tuesday", load=[2], versions={"fio": "3.36", "tar": "1"}, cpu={"count": 2, "governor": "powersave"})
    now.chains[0].stacks["luks"] = StackInfo("luks", "luks(key_size=256)")
    found = dict(text.split(": ", 1) for text in differences([now], [then]))
    assert found.keys() == {"versions.fio", "stack.luks", "cpu.governor"}
    assert found["versions.fio"] == "3.33 -> 3.36"
    assert found["stack.luks"] == "luks -> luks(key_size=256)"
    assert found["cpu.governor"].endswith(" -> powersave")


def test_of_several_runs_all_values_are_listed() -> None:
    then = [run(memory=size) for size in (1, 2, 1)]
    assert differences([run(memory=2)], then) == ["memory: 1, 2 -> 2"]


def other_work(results: Results) -> None:
    results.chains[0].work["write"] = {"bytes": 20}


def other_reference(results: Results) -> None:
    chain = results.chains[0]
    chain.stacks["xfs"] = StackInfo("xfs", "xfs")
    chain.baseline = "xfs"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda results: setattr(results, "scale", "paper"), r"scale .*\bsmall .*\bpaper"),
        (
            lambda results: results.environment.update(devices=[{"spec": "loop", "model": "other"}]),
            r"device .*\bloop \(a disk\) .*\bloop \(other\)",
        ),
        (
            lambda results: results.environment.update(devices=[{"spec": "/dev/sdb1", "model": "a disk"}]),
            r"device .*\bloop \(a disk\) (?!.*loop).* \(a disk\)",
        ),
        (
            lambda results: results.environment.update(corpus={"name": "linux", "files": 9, "bytes": 1}),
            r"corpus .*\bmail \(5 files, 1 bytes\) .*\blinux \(9 files, 1 bytes\)",
        ),
        (other_work, r"write .* \(bytes: 10 .*\b20\)"),
        (other_reference, r"luks .*\bext4 .*\bxfs"),
    ],
)
def test_what_makes_a_comparison_meaningless_refuses_it(change: Any, reason: str) -> None:
    corpus = {"name": "mail", "files": 5, "bytes": 1}
    then, now = run(corpus=corpus), run(corpus=corpus)
    assert reasons(now, then) == []
    change(now)
    assert any(re.search(reason, text) for text in reasons(now, then))


def test_a_disk_at_another_path_is_no_reason() -> None:
    devices = [run(devices=[{"spec": spec, "model": "a disk"}]) for spec in ("/dev/sdb1", "/dev/sdc1")]
    assert reasons(*devices) == []
    assert differences(devices[:1], devices[1:]) == ["devices.0.spec: /dev/sdc1 -> /dev/sdb1"]


def test_what_an_older_form_does_not_say_is_no_reason() -> None:
    then = run()
    then.scale, then.environment, then.chains[0].work = "", {}, {}
    assert reasons(run(), then) == []
    unknown = run(devices=[{}])
    assert reasons(unknown, unknown) == []


# -- in words ----------------------------------------------------------------------------------------------------------


def test_a_regression_says_all_in_its_first_line_within_80_columns() -> None:
    then = [run(0.5 + step / 100) for step in (-1, 0, 1, 0, -1)]
    found = compare([run(0.65)], then, limit=0.05)
    first, *rest = report.describe(only(found), found).split("\n")
    low, high = (100 * (exp(log(1.1) + sign * 0.0125) - 1) for sign in (-1, 1))
    assert first.startswith("luks: seconds +10.")
    assert low < float(first.split("+")[1].split()[0]) < high
    assert re.search(r"\b5 [^,]*, limit 5 %$", first)
    assert len(first) <= 80
    assert any(line.endswith("s: 1.505 1.515 1.525 1.515 1.505") for line in rest)


def test_the_table_has_the_absolute_seconds_beside_and_the_verdict() -> None:
    then = [run(0.5 + step / 100) for step in (-1, 0, 1, 0, -1)]
    now = [run(0.65, base=2.0)]
    found = compare(now, then, limit=0.05)
    shown = report.lines(found, now, then)
    base = next(line for line in shown if line.startswith("write on ext4"))
    luks = next(line for line in shown if line.startswith("write on luks"))
    assert "1.01 s" in base
    assert "2.02 s" in base
    assert "+100 % (100 to 100 %)" in base
    assert "1.52 s, +50.0 %" in luks
    assert "3.33 s, +65.0 %" in luks
    assert luks.endswith("FAIL")
    assert any(re.match(r"limit .*\b5 %", line) for line in shown)


def test_a_limit_has_a_power_for_boots_that_are_not_paired() -> None:
    then = [run(0.5 + step / 100) for step in (-1, 0, 1, 0, -1)]
    for results in then:
        results.chains[0].paired = False
    (series,) = comparison.outlook(then, 0.05)
    assert series.power


def test_a_run_that_lacks_figures_on_one_side_is_undecided_and_earlier_ones_do_not_count() -> None:
    lacking = run(rounds=8)
    lacking.chains[0].samples["write"]["luks"][0][3] = Sample({})
    runs = [run(rounds=8) for _ in range(3)]
    assert only(compare(runs, runs, limit=0.05)).outcome == "pass"
    for now, then in ([lacking] * 3, runs), ([lacking] * 3, [lacking] * 3):
        # With --fsstack-strict, a series that is judged fails without an outcome.
        (change,) = compare(now, then, limit=0.05).judged
        assert (change.outcome, change.explanation) == (None, comparison.LACKS_ROUNDS)
    (change,) = compare(runs, [lacking] * 3, limit=0.05).judged
    assert change.outcome is None
