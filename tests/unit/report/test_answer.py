"""The answer: which stack costs least in each group, whether limits are kept, and what needs attention."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import islice

import pytest
from msgspec.structs import replace

from benchmarks import winners
from pytest_fsstack.judging.judge import judge, judge_all
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import Note, Results, TestOutcome
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.report import BUILT_IN, answer, brief, consoles, findings, html, markdown, terminal
from pytest_fsstack.report.model import View
from tests.unit.report.results import COSTS, emulated, made, measured, on_kernels


def answered(results: Results) -> list[str]:
    return list(map(str, answer.answer(results)))


def named(sentence: answer.Sentence) -> list[str]:
    """Return the stacks that a headline names, in their order."""
    return re.findall("|".join(map(re.escape, sorted(COSTS, key=len, reverse=True))), sentence.headline)


def test_each_group_of_stacks_has_a_sentence_on_which_costs_least() -> None:
    encrypted, others = answer.answer(measured())
    assert "encrypted" in encrypted.headline
    assert (named(encrypted), named(others)) == (["ext4+fscrypt"], ["ext4", "xfs"])
    assert all("least" in sentence.headline for sentence in (encrypted, others))
    assert re.fullmatch(
        r"2\.60\b[^.]*\bext4 .*\(2\.60 to 2\.60\), .*\b1\.06\b.* delete .*\b6\.40\b.* write\. "
        r"luks\+ext4 [^.]*: this kernel \(6\.1\) has no device-mapper\.",
        encrypted.details,
    )
    assert re.match(r"1\.50\b.* ext4 .*\(1\.50 to 1\.50\)", others.details)


@pytest.mark.parametrize("stack", ["xfs", "btrfs"])
def test_a_cost_of_too_few_rounds_says_so(stack: str) -> None:
    (sentence,) = answer.answer(measured({"ext4": COSTS["ext4"], stack: COSTS[stack]}, rounds=1))
    assert "too few rounds" in str(sentence)


def test_weights_change_the_order_and_are_shown() -> None:
    costs = {"ext4": COSTS["ext4"], "xfs": {"write": 4.0, "delete": 1.0}, "btrfs": {"write": 1.5, "delete": 2.0}}
    results = measured(costs)
    assert named(answer.answer(results)[0]) == ["ext4", "btrfs"]
    assert "--fsstack-weights" in answer.notes_on_answer(results)[0]
    results.environment["settings"] = {"weights": {"write": 0}}
    assert named(answer.answer(results)[0]) == ["xfs", "ext4"]
    assert "write=0" in answer.notes_on_answer(results)[0]


def test_all_stacks_that_may_cost_least_are_named() -> None:
    results = measured({"ext4": COSTS["xfs"], "xfs": COSTS["ext4"], "btrfs": COSTS["ext4"], "jfs": COSTS["btrfs"]})
    (sentence,) = answer.answer(results)
    assert named(sentence) == ["xfs", "btrfs"]
    assert re.match(r"xfs 0\.67 times ext4\b.*\(0\.67 to 0\.67\)", sentence.details)
    assert "jfs" not in str(sentence)


def test_a_baseline_that_may_cost_least_is_named_and_so_are_all_that_may_be_next() -> None:
    like = {"ext4": COSTS["ext4"], "xfs": COSTS["ext4"], "btrfs": COSTS["btrfs"]}
    assert named(answer.answer(measured(like))[0]) == ["xfs", "ext4"]
    (sentence,) = answer.answer(measured({"ext4": COSTS["ext4"], "xfs": COSTS["xfs"], "btrfs": COSTS["xfs"]}))
    assert named(sentence) == ["ext4", "xfs", "btrfs"]
    assert sentence.headline.index("Next") > sentence.headline.index("ext4")


def test_four_rounds_name_all_and_five_can_name_one() -> None:
    costs = {"ext4": COSTS["ext4"], "ext4+fscrypt": COSTS["ext4+fscrypt"], "ext4+gocryptfs": COSTS["ext4+gocryptfs"]}
    for rounds, names in (4, ["ext4+fscrypt", "ext4+gocryptfs"]), (5, ["ext4+fscrypt"]):
        assert named(answer.answer(measured(costs, rounds))[0]) == names


def test_a_stack_that_shares_no_rounds_with_the_first_may_cost_least() -> None:
    results = measured({"ext4": COSTS["xfs"], "xfs": COSTS["ext4"], "btrfs": COSTS["btrfs"]}, 16)
    (chain,) = results.chains
    for step in chain.steps:
        for stack, rounds in (("xfs", range(8)), ("btrfs", range(8, 16))):
            chain.samples[step][stack][0] = {number: chain.samples[step][stack][0][number] for number in rounds}
    assert named(answer.answer(results)[0]) == ["xfs", "btrfs"]


def sessions_of(truths: tuple[float, ...], rounds: int, seed: int, competes: bool = False) -> Iterator[winners.Named]:
    """Yield simulated sessions of stacks that cost so much more than a baseline."""
    rng = random.Random(seed)
    while True:
        yield winners.Named(Readings(winners.chain_of(rng, truths, 0.10, rounds)), competes)


def test_of_equal_stacks_the_interval_of_the_lowest_covers_its_truth() -> None:
    sessions = list(islice(sessions_of((0.2,) * 6, 8, seed=8), 25))
    assert not any(session.is_one for session in sessions)
    # The plain interval of the lowest covers in about three of four.
    assert sum(covers(session.cost(), 0.2) for session in sessions) >= 22


@pytest.mark.parametrize(("truths", "rounds"), [((0.2, 0.2), 6), ((0.0, 1.0), 8)])
def test_a_stack_that_is_named_alone_by_chance_may_cost_as_much_as_its_rival(
    truths: tuple[float, ...], rounds: int
) -> None:
    sessions = sessions_of(truths, rounds, seed=3, competes=0.0 in truths)
    costs = [session.cost() for session in islice((session for session in sessions if session.is_one), 5)]
    assert all(covers(cost, truths[0]) for cost in costs)


@pytest.mark.parametrize(("cost", "rounds", "names"), [(-0.3, 6, ["s0", "base"]), (-0.3, 8, ["s0"]), (-0.6, 6, ["s0"])])
def test_few_rounds_name_the_baseline_too_unless_it_is_far(cost: float, rounds: int, names: list[str]) -> None:
    session = next(sessions_of((cost, 1.0), rounds, seed=4, competes=True))
    assert session.names == names


def covers(cost: Estimate, truth: float) -> bool:
    return cost.low <= truth <= cost.high


def test_a_stack_with_a_far_rival_keeps_its_interval() -> None:
    readings = Readings(winners.chain_of(random.Random(5), (0.2, 1.4), 0.10, 6))
    session = winners.Named(readings)
    assert session.is_one
    assert session.cost() == readings.costs({})["s0"]


def test_a_stack_that_lacks_a_step_is_not_ranked() -> None:
    results = measured()
    del results.chains[0].samples["write"]["ext4+fscrypt"]
    results.chains[0].notes.setdefault("write", {})["ext4+fscrypt"] = Note("failed", round=0)
    (encrypted, _) = answer.answer(results)
    assert named(encrypted) == ["ext4+gocryptfs"]
    of_fscrypt, of_luks = re.findall(r"\b(?:ext4\+fscrypt|luks\+ext4) [^.]*\.", encrypted.details)
    assert of_fscrypt.endswith(": failed in round 1.")
    # Nothing at all was measured on LUKS.
    assert ("incomplete" in of_fscrypt, "incomplete" in of_luks) == (True, False)


def test_a_stack_that_failed_in_a_late_round_is_not_ranked() -> None:
    results = measured()
    results.chains[0].notes["write"]["ext4+fscrypt"] = Note("failed", round=7)
    (encrypted, _) = answer.answer(results)
    assert named(encrypted) == ["ext4+gocryptfs"]
    assert "ext4+fscrypt is incomplete: failed in round 8." in encrypted.details
    results.chains[0].notes["write"]["ext4+gocryptfs"] = Note("failed", round=6)
    assert "No cost is known" in answer.answer(results)[0].headline


def test_a_reason_is_shown_up_to_what_to_do_about_it() -> None:
    results = measured()
    reason = "needs a daemon (needs zfs-fuse: apt install zfs-fuse; or zfs: none)"
    results.chains[0].notes["write"]["luks+ext4"] = Note("cannot run", f"{reason}: install one of them")
    assert answered(results)[0].endswith(f": {reason}.")


def test_the_only_stack_with_a_cost_like_that_of_the_baseline() -> None:
    (sentence,) = answer.answer(measured({"ext4": COSTS["ext4"], "xfs": COSTS["ext4"]}))
    assert re.findall(r"xfs|ext4|\d\.\d+", sentence.headline) == ["xfs", "1.00", "ext4", "1.00", "1.00"]
    assert re.fullmatch(r"over all steps, no [^.]*\bxfs\b[^.]*\bext4\b[^.]*\.", sentence.details)


def test_limits_of_the_user_come_first_and_sanity_limits_give_no_title() -> None:
    results = measured()
    (chain,) = results.chains
    sanity = [judge(chain, "write", "xfs", Budget(overhead=20.0, sanity=True))]
    chain.judgements.setdefault("write", {})["xfs"] = sanity
    assert "limit" not in answered(results)[0]
    assert re.search("sanity.*kept", answer.notes_on_answer(results)[-1])
    judge_all(chain, "write", "btrfs", Budget(overhead=0.1))
    assert re.search(r"broken \(write on btrfs\)", answered(results)[0])
    (failed, *_) = answer.problems(results)
    assert (failed.kind, failed.what) == ("failed", "write on btrfs")
    # In the unit of the table, where another stack costs more than x4.
    assert "budget x1.1" in failed.reason


@pytest.mark.parametrize(
    "render", [html.report, markdown.report, lambda found: "\n".join(terminal.answer_lines(found))]
)
def test_a_session_that_broke_says_so_first_with_its_first_error(render: object) -> None:
    results = measured()
    results.interrupted = "ended with exit code 3"
    results.tests["t.py::test_x"] = TestOutcome("t.py::test_x", "failed", "the disk was full", "t.py")
    assert callable(render)
    text = render(results)
    assert text.index("ended with exit code 3") < text.index("the disk was full") < text.index("2.60")


def test_a_session_that_measured_nothing_names_its_failure_first() -> None:
    results = measured()
    results.chains[0].samples.clear()
    results.tests["t.py::test_x"] = TestOutcome("t.py::test_x", "failed", "mkfs failed", "t.py")
    assert answered(results)[0] == "1 of 1 test failed (test_x: mkfs failed)."


def test_limits_that_are_broken_are_named() -> None:
    headline = answer.limits(made(steps=["write"]))
    assert re.findall(r"\d+ [a-z]+|\(.*\)", headline) == [
        "3 limits",
        "1 broken",
        "(write on ext4+gocryptfs), 1 undecided (write on same)",
        "1 kept",
    ]


def test_a_broken_limit_is_named_with_its_kernel() -> None:
    results = on_kernels().with_budget("write", "luks:6.12", overhead=0.05).results()
    assert answer.limits(results) == "The limit is broken (write on luks:6.12)."


def test_the_limits_of_a_stack_are_named_together() -> None:
    results = measured()
    (chain,) = results.chains
    for step in ("write", "delete"):
        judge_all(chain, step, "btrfs", Budget(overhead=0.001))
    assert answer.limits(results).count("on btrfs") == 1
    assert "write, delete on btrfs" in answer.limits(results)


def test_a_test_that_strict_fails_because_it_is_undecided_has_one_line() -> None:
    results = made(steps=["write"])
    (chain,) = results.chains
    assert chain.worst("write", "same") == "inconclusive"
    test = outcome(results, "same", "failed", "undecided", by_limits=True)
    found = [problem.kind for problem in answer.problems(results) if "same" in problem.what or problem.what == test.id]
    assert found == ["undecided"]


def test_an_error_of_a_test_is_named_beside_its_undecided_budget() -> None:
    results = made(steps=["write"])
    test = outcome(results, "same", "failed", "RuntimeError: its fixture could not end")
    (error,) = [problem for problem in answer.problems(results) if problem.what == test.id]
    assert error.reason == test.text


def test_work_that_was_not_done_is_neither_unmeasured_nor_undecided() -> None:
    results = measured()
    (chain,) = results.chains
    chain.add("write", "xfs", Sample({"seconds": 1.0}, incomplete="3 of 7 links failed"))
    judge_all(chain, "write", "xfs", Budget(overhead=0.1))
    kinds = {problem.reason.partition(":")[0]: problem.kind for problem in answer.problems(results)}
    assert (kinds["xfs"], kinds["luks+ext4"]) == ("incomplete", "not measured")
    assert "not judged" in answer.limits(results)
    assert ">limit x1.1 not judged<" in html.report(results)


def outcome(results: Results, stack: str, ended: str, text: str = "", *, by_limits: bool = False) -> TestOutcome:
    """Add the outcome of the test of the step `write` on a stack."""
    (chain,) = results.chains
    name = f"t.py::TestIt::test_write[{stack}]"
    results.tests[name] = TestOutcome(name, ended, text, "t.py", 1, chain.id, chain.device, "write", stack, by_limits)
    return results.tests[name]


def test_a_test_that_fails_by_itself_is_named_beside_its_broken_budget() -> None:
    results = measured()
    (chain,) = results.chains
    judge_all(chain, "write", "btrfs", Budget(overhead=0.1))
    chain.notes["write"]["btrfs"] = Note("failed", round=7)
    test = outcome(results, "btrfs", "failed", "AssertionError: a file is gone")
    budget, error = [problem for problem in answer.problems(results) if problem.kind == "failed"]
    assert (budget.what, budget.remedy) == ("write on btrfs", "")
    assert (error.what, error.reason) == (test.id, test.text)


def test_a_broken_budget_of_a_test_that_skips_itself_later_has_one_line() -> None:
    results = measured()
    (chain,) = results.chains
    judge_all(chain, "write", "btrfs", Budget(overhead=0.1))
    chain.notes["write"]["btrfs"] = Note("skipped", round=7)
    outcome(results, "btrfs", "failed", by_limits=True)
    (budget,) = [problem for problem in answer.problems(results) if problem.kind == "failed"]
    assert (budget.what, "again:" in budget.remedy) == ("write on btrfs", True)


def test_a_failed_test_without_samples_is_named_though_its_budget_is_not_judged() -> None:
    results = measured({"ext4": COSTS["ext4"], "xfs": {"delete": 1.5}})
    judge_all(results.chains[0], "write", "xfs", Budget(overhead=0.1))
    test = outcome(results, "xfs", "failed", "has a budget, but measured nothing")
    assert [problem.what for problem in answer.problems(results) if problem.kind == "failed"] == [test.id]


def test_a_failure_that_pytest_expects_is_one_in_no_report() -> None:
    results = measured()
    judge_all(results.chains[0], "write", "btrfs", Budget(overhead=0.1))
    outcome(results, "btrfs", "xfailed")
    assert answer.limits(results) == "The limit is broken as expected."
    assert "failed" not in [problem.kind for problem in answer.problems(results)]
    assert "limit x1.1 broken as expected<" in html.report(results)
    assert "not ok" not in consoles.ktap(results)
    assert "RESULT=fail" not in consoles.lava(results)


def test_only_a_broken_budget_with_its_own_reason_counts_as_broken_as_expected() -> None:
    results = measured()
    (chain,) = results.chains
    reason = Budget(overhead=0.1, xfail="BUG-1")
    judge_all(chain, "write", "btrfs", reason)
    judge_all(chain, "delete", "btrfs", replace(reason, metric="latency"), Budget(overhead=0.1))
    judge_all(chain, "delete", "luks+ext4", reason)
    counts = ["4 limits", "1 broken ", "1 broken as expected", "2 not judged"]
    assert re.findall(r"\d+ [a-z ]+", answer.limits(results)) == counts
    cells = [cell for row in View(chain, results).grid("seconds").rows for cell in row]
    verdicts = {line for cell in cells for line in cell.beside.splitlines() if "FAIL" in line}
    assert verdicts == {"FAIL, expected (max x1.1)", "FAIL (max x1.1)"}
    short = measured(rounds=2)
    judge_all(short.chains[0], "write", "btrfs", reason)
    assert "undecided (write on btrfs)" in answer.limits(short)


def test_each_kind_of_problem_has_a_line_with_its_reason() -> None:
    found = answer.problems(made(steps=["write"]))
    assert [problem.kind for problem in found] == ["failed", "undecided", "not measured", "incomplete"]
    assert all(problem.reason for problem in found)
    assert str(found[2]).startswith("[1] absent: needs no-such-tool")


@pytest.mark.parametrize(
    ("machine", "note"),
    [
        ({"cpu": {"aes_instructions": False}}, "processor"),
        ({"crypto": {"xts(aes)": {"driver": "xts(ecb(aes-generic))"}}}, "xts(ecb(aes-generic))"),
        ({"cpu": {"aes_instructions": True}, "crypto": {"xts(aes)": {"driver": "xts-aes-aesni"}}}, ""),
        ({}, ""),
    ],
)
def test_what_makes_aes_slow_is_said_once_if_a_stack_that_encrypts_was_measured(
    machine: dict[str, object], note: str
) -> None:
    chain = measured().chains[0]
    notes = [problem for problem in answer.problems(Results(machine, [chain, chain])) if problem.kind == "note"]
    assert [note in problem.reason for problem in notes] == ([True] if note else [])
    daemons = measured({stack: costs for stack, costs in COSTS.items() if "fscrypt" not in stack})
    by_daemons = [
        problem for problem in answer.problems(replace(daemons, environment=machine)) if problem.kind == "note"
    ]
    assert bool(by_daemons) == (note == "processor")
    plain = measured({stack: costs for stack, costs in COSTS.items() if "fs" not in stack.partition("+")[2]})
    assert not [problem for problem in answer.problems(replace(plain, environment=machine)) if problem.kind == "note"]


def test_many_problems_of_a_kind_are_counted() -> None:
    results = measured()
    for number in range(answer.MAX_PROBLEMS + 3):
        name = f"t.py::test_{number}"
        results.tests[name] = TestOutcome(name, "failed", "boom", "t.py")
    failed = [problem for problem in answer.problems(results) if problem.kind == "failed"]
    assert len(failed) == answer.MAX_PROBLEMS + 1
    assert (failed[-1].what, re.findall(r"\d+", str(failed[-1]))) == ("", ["3"])


def test_each_number_in_a_table_has_its_line_however_many_there_are() -> None:
    absent = {f"absent{number}": dict[str, float]() for number in range(answer.MAX_PROBLEMS + 3)}
    results = measured({"ext4": COSTS["ext4"], **absent})
    lines = terminal.answer_lines(results)
    for number, name in enumerate(absent, 1):
        assert any(line.startswith(f"not measured: [{number}] {name}: ") for line in lines)


def test_a_budget_that_nothing_records_is_not_judged() -> None:
    results = measured()
    (chain,) = results.chains
    judge_all(chain, "write", "xfs", Budget("own", overhead=0.1))
    (problem,) = [problem for problem in answer.problems(results) if problem.kind == "not judged"]
    assert problem.what == "write on xfs"
    assert "own" in problem.reason
    assert "not judged" in answer.limits(results)


def test_several_chains_are_told_apart() -> None:
    results = measured()
    results.chains.append(replace(results.chains[0], devices=["/dev/sdb1"]))
    lines = answered(results)
    assert [line.partition(":")[0] for line in lines] == [
        *["TestIt on loop"] * 2,
        *["TestIt on /dev/sdb1"] * 2,
    ]


def test_kernels_are_compared_with_the_first_one() -> None:
    (line,) = answered(on_kernels(growth=(1.2, 1.0)).results())
    assert line.startswith(
        "6.12 against 6.1: ext4 x1.20, luks x1.00; the interval of ext4 shows a difference for these boots: "
    )
    assert line.endswith("ext4 (1.20 to 1.20), luks (1.00 to 1.00).")


def test_a_first_kernel_that_did_not_boot_leaves_the_comparison_without_a_cost() -> None:
    results = on_kernels(growth=(1.2, 1.0)).results()
    (chain,) = results.chains
    for stack in [name for name in chain.stacks if name.endswith(":6.1")]:
        del chain.stacks[stack], chain.samples["write"][stack]
    (line,) = answered(results)
    assert line.startswith("6.12 against ")
    assert "ext4" in line
    assert "x1" not in line


def test_a_chain_that_only_counts_says_how_many_stacks_passed() -> None:
    results = measured()
    (chain,) = results.chains
    chain.tables = [("counts", {}), ("coverage", {})]
    for stack, ended in (("ext4", "passed"), ("xfs", "failed"), ("luks+ext4", "skipped")):
        outcome(results, stack, ended)
    failed, passed, untested = answer.answer(results)
    assert "1 of 3 tests failed (write on xfs)" in failed.headline
    assert re.findall(r"\d+|passed", passed.headline) == ["1", "3", "passed"]
    assert "tested" in untested.headline
    assert untested.details == "luks+ext4."


def test_expected_faults_do_not_count_as_passed() -> None:
    results = measured()
    (chain,) = results.chains
    chain.tables = [("counts", {})]
    outcome(results, "ext4", "passed")
    outcome(results, "xfs", "xfailed")
    chain.add("write", "xfs", Sample({"seconds": 1.0}, incomplete="lost a file"), 0)
    passed, faulty = answer.answer(results)
    assert re.findall(r"\d+|passed", str(passed)) == ["1", "2", "passed"]
    assert "faults" in faulty.headline
    assert faulty.details == "xfs."


def test_a_page_names_the_tests_of_each_remark_if_there_are_several() -> None:
    first, second = (measured().chains[0] for _ in range(2))
    first.id, second.id = "t.py::TestIt", "t.py::TestOther"
    first.remarks = second.remarks = ["the machine was not at rest"]
    page = html.report(Results({}, [first, second]))
    assert re.findall(r"(Test\w+): the machine was not at rest", page) == ["TestIt", "TestOther"]
    assert ": the machine was not at rest" not in html.report(Results({}, [first]))


def test_a_reason_that_is_a_sentence_ends_with_one_point() -> None:
    results = measured()
    results.tests["t.py::test_x"] = failing("t.py::test_x", "Timeout (>3.0s) from pytest-timeout.")
    (line,) = [line for line in terminal.answer_lines(results) if line.startswith("failed")]
    assert ".." not in line
    assert ".." not in str(answer.Problem("failed", "test_x", "Timeout.", "Look there."))


# -- the worst comes first ---------------------------------------------------------------------------------------------


def kept(results: Results) -> Results:
    """Let all limits be kept."""
    (chain,) = results.chains
    judge_all(chain, "write", "xfs", Budget(overhead=9.0))
    judge_all(chain, "write", "btrfs", Budget(overhead=9.0))
    assert answer.limits(results) == "All 2 limits are kept."
    return results


def failing(name: str, text: str) -> TestOutcome:
    return TestOutcome(name, "failed", text, "t.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.py::TestIt::write on luks:new against luks:old", "luks:new: seconds +50 %, limit 5 %"),
        ("t.py::TestIt::write on xfs against earlier runs", "xfs: seconds +50 % over 6 earlier runs, limit 5 %"),
        ("t.py::TestIt::test_write[jfs]", "mkfs.jfs failed"),
    ],
    ids=["between kernels", "earlier runs", "without a budget"],
)
def test_kept_limits_are_no_headline_if_a_test_failed(name: str, text: str) -> None:
    results = kept(measured())
    results.tests[name] = failing(name, text)
    first = answered(results)[0]
    assert first.startswith(f"1 of 1 test failed ({name.rpartition('::')[2]}: {text}).")
    assert first.index("failed") < first.index("All 2 limits are kept")


def test_what_failed_beside_the_stacks_comes_before_kept_limits() -> None:
    results = kept(measured())
    results.failures = ["t.py::test_plain"]
    first = answered(results)[0]
    assert first.index("t.py::test_plain") < first.index("kept")
    assert "t.py::test_plain" in markdown.report(results).split("\n")[0]


def test_an_early_end_comes_before_all_else() -> None:
    results = kept(measured())
    results.interrupted = "interrupted"
    results.tests["t.py::test_x"] = failing("t.py::test_x", "boom")
    first = answered(results)[0]
    assert first.index("ended early (interrupted)") < first.index("boom") < first.index("kept")


def test_a_broken_sanity_limit_is_in_the_first_line() -> None:
    results = kept(measured())
    chain = results.chains[0]
    chain.judgements["write"]["xfs"].append(judge(chain, "write", "xfs", Budget(overhead=0.1, sanity=True)))
    assert "sanity limit is broken (write on xfs)" in answered(results)[0]
    assert not any("sanity" in note for note in answer.notes_on_answer(results))


def test_a_control_that_differs_is_in_the_first_line() -> None:
    results = kept(measured())
    results.chains[0].controls = ["btrfs"]
    assert re.match(r"Doubt.*\bext4\b", answered(results)[0])
    results.chains[0].controls = []
    assert "Doubt" not in answered(results)[0]


def test_an_unexpected_pass_is_named() -> None:
    results = kept(measured())
    outcome(results, "xfs", "xpassed")
    assert "unexpectedly: write on xfs" in answered(results)[0]


def test_limits_say_how_many_are_kept_beside_those_not_judged() -> None:
    results = kept(measured())
    judge_all(results.chains[0], "delete", "xfs", Budget("own", overhead=0.1))
    assert answer.limits(results) == "Of 3 limits: 2 kept, 1 not judged."


# -- emulated CPUs -----------------------------------------------------------------------------------------------------


TEXTS: dict[str, Callable[[Results], str]] = {
    "terminal": lambda results: "\n".join(terminal.answer_lines(results)),
    "bench": lambda results: "\n".join(brief.lines(results, width=200)),
    "markdown": markdown.report,
    "summary": lambda results: findings.github_summary(results, 1 << 20),
    "html": lambda results: html.report(results).partition("<title>")[2],
    "ktap": lambda results: consoles.ktap(results).partition("\n")[2],
}


@pytest.mark.parametrize("report", TEXTS)
def test_reports_begin_with_what_an_emulated_cpu_shows(report: str) -> None:
    text = TEXTS[report](emulated(measured()))
    assert re.match(r"\W*Emulated: shows function, not speed", text)
    assert "costs least" not in text


@pytest.mark.parametrize("report", ["csv", "tables", "bencher", "github-benchmark", "otava", "openmetrics", "lava"])
def test_each_row_of_an_emulated_stack_is_marked(report: str) -> None:
    results = emulated(measured())
    rows = [line for line in BUILT_IN[report](results).splitlines() if "xfs" in line]
    assert rows
    assert all("emulated" in row or row.endswith(",yes") for row in rows)


def test_tables_mark_the_stacks_of_emulated_kernels_alone() -> None:
    results = emulated(on_kernels("within").results(), "ext4:6.12", "luks:6.12")
    first, *others = answered(results)
    assert first == "Emulated on 6.12: shows function, not speed."
    assert [line.partition(":")[0] for line in others] == ["On 6.1"]
    labels = [row[0].text for row in View(results.chains[0], results).grid("seconds").rows]
    assert labels == ["ext4:6.1", "luks:6.1", "ext4:6.12 (emulated)", "luks:6.12 (emulated)"]
    assert ">luks:6.12 (emulated)<" in html.report(results)


def test_a_failure_on_an_emulated_cpu_is_in_the_first_line_too() -> None:
    results = emulated(measured())
    outcome(results, "xfs", "failed", "lost a file")
    assert re.match(r"Emulated: .*1 of 1 test failed \(write on xfs: lost a file\)", answered(results)[0])


def test_no_difference_is_shown_is_said_of_encrypted_stacks_too() -> None:
    costs = {"ext4": COSTS["ext4"], "luks+ext4": COSTS["ext4"], "ext4+gocryptfs": COSTS["ext4+gocryptfs"]}
    (sentence,) = answer.answer(measured(costs))
    assert re.search(r"no difference between luks\+ext4 and ext4 is shown", str(sentence), re.I)


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_kernels_that_show_no_difference() -> None:
    (line,) = answered(on_kernels(growth=(1.0, 1.0)).results())
    assert line.startswith("6.12 against 6.1: ext4 x1.00, luks x1.00; no difference is shown")


def test_a_stack_that_is_missing_on_a_kernel_is_named_after_the_others() -> None:
    chain = on_kernels(growth=(1.2, 1.0)).built
    del chain.samples["write"]["luks:6.12"]
    chain.notes["write"] = {"luks:6.12": Note("failed", "no space left")}
    (line,) = answered(Results({}, [chain]))
    assert re.match(r"6\.12 against 6\.1: ext4 x1\.20; .*\bluks .*failed in round 1", line)
