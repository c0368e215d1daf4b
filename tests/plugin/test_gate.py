"""A gate that measured nothing, or that judges nothing, is never silent."""

from __future__ import annotations

import re
import shlex
from collections import Counter

import pytest

from pytest_fsstack.records import saved
from tests.plugin.conftest import Project

UNMARKED = """
import random
import pytest

rng = random.Random(7)

@pytest.mark.fsstack("plain", "dear = crypt(cost=150)", "same = crypt(cost=100)", "near = crypt(cost=107)")
class TestCost:
    @pytest.mark.fsstack_budget(overhead=0.10, metric="cost")
    def test_step(self, fsstack, timed, cost, log):
        log("ran")
        with timed(cold=False):
            pass
        timed.record("cost", cost * rng.gauss(1, 0.02), unit="coins")
"""


def test_a_test_with_timed_is_measured_without_any_mark(project: Project) -> None:
    project.write(UNMARKED.replace('    @pytest.mark.fsstack_budget(overhead=0.10, metric="cost")\n', ""))
    project.run("-k", "dear").assert_outcomes(passed=1, deselected=3)
    assert Counter(project.log) == {"ran dear": 6, "ran plain": 6}


@pytest.mark.parametrize(("mark", "promise"), [("fsstack_budget(overhead=0.1)", "budget"), ("benchmark", "benchmark")])
def test_a_budget_or_a_benchmark_without_a_timed_block_fails(project: Project, mark: str, promise: str) -> None:
    project.write(UNTIMED.replace("def", f"@pytest.mark.{mark}\ndef"))
    result = project.run("--fsstack-rounds=1")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"*{promise}*with timed()*"])


@pytest.mark.parametrize("unit", ["fsstack.stack.id", "str(fsstack_seed)"], ids=["stacks", "rounds"])
def test_a_figure_whose_unit_changes_fails_its_test(project: Project, unit: str) -> None:
    test = UNMARKED.replace('unit="coins"', f"unit={unit}").replace("timed, cost", "timed, fsstack_seed, cost")
    project.write(test)
    result = project.run("--fsstack-rounds=2", "-k", "dear")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*MeasureError: timed.record('cost', ...) has unit=*"])


LAYERED = """
import pytest

@pytest.mark.fsstack("plain", "plain | slow")
class TestIt:
    def test_first(self, fsstack, timed):
        with timed(cold=False):
            pass
    def test_last(self, fsstack, timed):
        with timed(cold=False):
            pass
"""
SLOW = """
import time
from conftest import Plain
class Slow(Plain):
    name = "slow"
    def create(self, below, context):
        time.sleep(0.05)
        super().create(below, context)
def pytest_fsstack_layers():
    return [Slow]
"""


@pytest.mark.parametrize(
    ("metric", "broken"),
    [
        ("slow_make_seconds <= 0.05", ["first", "last"]),
        ("slow_make_seconds <= 3600", []),
        ("stack_make_seconds <= 0.05", ["first", "last"]),
        ("plain_open_seconds <= 3600", []),
        ("work_seconds <= 3600", []),
        ("sync_seconds <= 1e-9", ["first", "last"]),
    ],
)
def test_budgets_may_name_the_parts_of_the_time_and_actions_on_layers(
    project: Project, metric: str, broken: list[str]
) -> None:
    project.write(LAYERED)
    project.pytester.makepyfile(slow=SLOW)
    result = project.run("-p", "slow", f"--fsstack-budget=*slow: {metric}", "--fsstack-rounds=5")
    result.assert_outcomes(passed=4 - len(broken), failed=len(broken))


def test_a_stack_is_made_for_all_steps_and_closed_after_the_last_one(project: Project) -> None:
    project.write(LAYERED)
    project.pytester.makepyfile(slow=SLOW)
    project.run("-p", "slow", "--fsstack-rounds=2", "--fsstack-json=out.json").assert_outcomes(passed=4)
    (chain,) = saved.loads((project.pytester.path / "out.json").read_text()).chains
    actions = {
        step: [(metric.action, metric.layer) for metric in chain.metrics(step).values() if metric.action]
        for step in chain.steps
    }
    layers = ["", "plain", "slow"]
    built = {(action, layer) for action in ("make", "open") for layer in layers}
    assert set(actions["first"]) == built
    assert set(actions["last"]) == built | {("close", layer) for layer in layers}
    for key, sample in chain.of("last", "plain+slow").items():
        assert sample["slow_make_seconds"] >= 0.05
        assert sample["stack_make_seconds"] == pytest.approx(
            sample["plain_make_seconds"] + sample["slow_make_seconds"], abs=1e-9
        )
        assert chain.of("first", "plain+slow")[key]["slow_make_seconds"] == sample["slow_make_seconds"]


UNTIMED = "import pytest\n\n@pytest.mark.fsstack('plain', 'crypt')\ndef test_it(fsstack):\n    pass\n"
WITHOUT_STACKS = "\n@pytest.mark.fsstack_budget('10%')\ndef test_none():\n    pass\n"


@pytest.mark.parametrize(
    ("test", "options", "error"),
    [
        (UNMARKED.replace("0.10", "{'daer': 0.1}"), [], "*'daer'*'dear'*"),
        (UNMARKED, ["--fsstack-budget=daer: cost 30%"], "*'daer'*'dear'*"),
        (UNMARKED.replace("0.10", "{'plain': 0.1}"), [], "*'plain'*baseline*limit*"),
        (UNMARKED, ["--fsstack-budget=pl*: cost 30%"], "*'pl[*]'*baseline*limit*"),
        (UNTIMED, ["--fsstack-budget=5%"], "*--fsstack-budget*timed*"),
        (UNMARKED + WITHOUT_STACKS, [], "*test_none: fsstack_budget*fsstack*"),
        (UNTIMED.replace("(fsstack)", "()"), [], "*test_it: fsstack: *timed*"),
    ],
)
def test_a_budget_that_nothing_can_judge_is_refused(
    project: Project, test: str, options: list[str], error: str
) -> None:
    project.write(test)
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([error])


def test_a_budget_of_another_baseline_is_doubted_and_one_of_all_stacks_is_not(project: Project) -> None:
    project.write(UNMARKED.replace("0.10", "{'dear': 0.9, '*': 0.1}"))
    result = project.run("--fsstack-baseline=dear", "--fsstack-budget=plain: cost 30%", "-k", "plain")
    result.assert_outcomes(passed=1, deselected=3, warnings=1)
    result.stdout.fnmatch_lines(["*fsstack_budget: 'dear'*baseline*"])


def test_budgets_that_were_all_skipped_are_said_last_and_fail_a_strict_gate(project: Project) -> None:
    project.write(UNMARKED.replace("dear = crypt(cost=150)", "dear = absent"))
    result = project.run("-k", "dear")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines(["The limit is not judged", r"fsstack: \D*\b1 budgets?\b"])
    result = project.run("-k", "dear", "--fsstack-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["fsstack: 0 of 1 budget *"])


def test_a_budget_whose_baseline_is_skipped_is_an_error_that_names_it(project: Project) -> None:
    project.write(
        UNMARKED.replace(
            "with timed", "if fsstack.stack.id == 'plain':\n            pytest.skip('no moon')\n        with timed"
        )
    )
    result = project.run("-k", "plain or same")
    result.assert_outcomes(failed=1, skipped=1, deselected=2)
    result.stdout.fnmatch_lines(["*same: cost: *plain: *skipped*round 1*no moon*"])


@pytest.mark.parametrize("mark", ["fsstack_budget('300%', metric='cost')", "fsstack_rounds(8)"])
def test_marks_that_a_conftest_adds_to_all_tests_are_meant_for_those_that_measure(project: Project, mark: str) -> None:
    project.write(f"{UNMARKED}\n    def test_check(self, fsstack):\n        pass\n\ndef test_none():\n    pass\n")
    hook = (
        "\ndef pytest_collection_modifyitems(items):\n    for item in items:\n        item.add_marker(pytest.mark.{})\n"
    )
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write(hook.format(mark))
    project.run("-k", "same or plain or none").assert_outcomes(passed=5, deselected=4)


SKIP = "if fsstack.stack.id == 'dear':\n            {}\n        with timed"


@pytest.mark.parametrize(
    ("skip", "options", "failed", "text"),
    [
        ("pytest.skip('no moon')", [], 0, "*dear*no moon*"),
        ("pytest.skip('no moon')", ["--fsstack-strict"], 1, "*dear*no moon (--fsstack-strict)*"),
        ("require(Tool('lunar'))", ["--fsstack-if-unavailable=fail"], 1, "*lunar*(--fsstack-if-unavailable=fail)*"),
        ("pytest.xfail('slow')", [], 0, "*dear*slow*"),
    ],
)
def test_a_test_that_skips_itself_leaves_no_gate_open(
    project: Project, skip: str, options: list[str], failed: int, text: str
) -> None:
    imported = "from pytest_fsstack import Tool\nfrom pytest_fsstack.machine.needs import require\n"
    project.write(imported + UNMARKED.replace("with timed", SKIP.format(skip)).replace("0.10", "9.0"))
    result = project.run("-k", "same or dear", "-rsxE", *options)
    assert result.parseoutcomes().get("errors", 0) == failed
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK)
    result.stdout.fnmatch_lines([text])


@pytest.mark.parametrize(("options", "errors"), [([], 0), (["--fsstack-strict"], 1)])
def test_a_budget_after_a_step_that_failed_as_expected_leaves_no_strict_gate_open(
    project: Project, options: list[str], errors: int
) -> None:
    project.write("""
import pytest

@pytest.mark.fsstack("plain", "same = plain", "crypt")
class TestIt:
    def test_write(self, fsstack):
        if fsstack.stack.id == "crypt":
            pytest.xfail("BUG-1")

    @pytest.mark.fsstack_budget("50%", metric="cost")
    def test_read(self, fsstack, timed, cost):
        with timed(cold=False):
            pass
        timed.record("cost", cost, unit="coins")
""")
    result = project.run("--fsstack-rounds=5", *options)
    result.assert_outcomes(passed=4, xfailed=1, errors=errors, skipped=1 - errors)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if errors else pytest.ExitCode.OK)


def test_a_budget_whose_baseline_was_not_collected_is_refused(project: Project) -> None:
    project.write(UNMARKED)
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write(
            """
@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    report = yield
    report.result = [node for node in report.result if "plain" not in node.name]
    return report
"""
        )
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *budget*baseline plain*"])


def test_the_budget_of_a_class_is_none_of_its_steps_that_only_prepare(project: Project) -> None:
    test = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget(overhead=90.0)
class TestIt:
    def test_prepare(self, fsstack):
        (fsstack.path / "file").write_text("text")

    def test_read(self, fsstack, timed):
        with timed(cold=False):
            (fsstack.path / "file").read_text()
"""
    project.write(test)
    result = project.run("--fsstack-rounds=6", "--fsstack-budget=crypt: seconds <= 9", "--fsstack-exit=bisect")
    result.assert_outcomes(passed=4)
    assert result.ret == 0
    result.stdout.no_re_match_line(r"fsstack: .*\d budgets?\b")
    result.stdout.fnmatch_lines(["fsstack: *bisect*good*"])
    project.write(test.replace('"crypt")', '"crypt", "gone = absent")'))
    result = project.run("--fsstack-rounds=6")
    result.stdout.re_match_lines([r"Of 2 limits: 1\b.* not", r"fsstack: 1 of the 2 budgets\b"])


@pytest.mark.parametrize("marker", ["", "@pytest.mark.fsstack_budget(overhead=1e6)"])
def test_a_step_with_timed_that_measures_nothing_breaks_the_budget_of_its_class(project: Project, marker: str) -> None:
    project.write(f"""
import pytest

@pytest.mark.fsstack("plain", "crypt")
{marker}
class TestIt:
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            pass

    def test_read(self, fsstack, timed):
        if fsstack.stack.id == "plain":
            with timed(cold=False):
                pass
""")
    result = project.run("--fsstack-rounds=5", *([] if marker else ["--fsstack-budget=100000000%"]))
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*budget*measured nothing*with timed()*"])


@pytest.mark.parametrize("strict", [False, True])
def test_a_budget_whose_baseline_this_machine_lacks_is_skipped_and_counted(project: Project, strict: bool) -> None:
    lacking = UNMARKED.replace('"plain"', '"none = absent"').replace("TestCost", "TestOther")
    project.write(UNMARKED + lacking)
    result = project.run("-k", "same or (TestOther and dear)", "-rs", *(["--fsstack-strict"] if strict else []))
    if strict:
        result.assert_outcomes(passed=1, errors=2, deselected=5)
        result.stdout.fnmatch_lines(["*budget*none *no-such-tool*--fsstack-strict*"])
    else:
        result.assert_outcomes(passed=1, skipped=2, deselected=5)
    result.stdout.re_match_lines([r"fsstack: 2 \D*\b3 budgets\b\D*$"])


def test_budgets_that_are_undecided_are_counted_beside_those_that_were_not_judged(project: Project) -> None:
    lacking = UNMARKED.replace('"plain"', '"none = absent"').replace("TestCost", "TestOther")
    project.write(UNMARKED + lacking)
    result = project.run("-k", "same or (TestOther and dear)", "--fsstack-rounds=2")
    result.assert_outcomes(skipped=3, deselected=5)
    result.stdout.re_match_lines([r"fsstack: 2 \D*\b3 budgets\b\D*\b1 undecided"])


INI = "[pytest]\nfsstack_budget = {}"


def test_an_ini_with_a_budget_for_no_stack_at_all_is_refused(project: Project) -> None:
    project.write(UNMARKED)
    project.pytester.makeini(INI.format("daer: cost 30%"))
    result = project.run("-k", "same", "--collect-only")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*fsstack_budget in *: *'daer'*'dear'*"])
    # A session that collects a part of the project does not know all stacks.
    project.run("-k", "same", "test_it.py", "--fsstack-rounds=5").assert_outcomes(passed=1, deselected=3)


@pytest.mark.parametrize(
    ("budget", "words", "fails"),
    [
        ("daer: cost 30%", [], True),
        # No test has it, but tests of other sessions may.
        ("absent*: cost 30%", [], False),
        # It is collected, and deselected.
        ("dear: cost 30%", [], False),
        ("daer: cost 30%", ["--fsstack-allow-unjudged=*daer*"], False),
        ("daer: cost 30%", ["--fsstack-stacks=plain", "--fsstack-stacks=same = crypt"], True),
    ],
)
def test_a_strict_session_with_a_part_of_the_tests_fails_for_a_budget_in_the_ini_that_no_stack_can_have(
    project: Project, budget: str, words: list[str], fails: bool
) -> None:
    project.write(UNMARKED.replace("0.10", "9.0"))
    project.pytester.makeini(INI.format(f"{budget}\n    plain: cost <= 900"))
    result = project.run("-k", "same", "test_it.py", "--fsstack-rounds=8", "--fsstack-strict", *words)
    assert result.parseoutcomes()["passed"] == 1
    assert result.ret == fails
    assert any(re.search("fsstack_budget in .*: daer: .*--fsstack-strict", line) for line in result.outlines) == fails


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("option", "allowed"),
    [
        ("--benchmark-disable", "*benchmark-disable"),
        ("--setup-only", "--setup-only"),
        ("--benchmark-skip", "*benchmark-skip*"),
    ],
)
def test_an_option_with_which_nothing_is_judged_fails_a_strict_gate(
    project: Project, option: str, allowed: str, strict: bool
) -> None:
    project.write(UNMARKED)
    words = ["-k", "same", option, *(["--fsstack-strict"] if strict else [])]
    result = project.run(*words)
    assert result.ret == strict
    if strict and option != "--benchmark-skip":
        answer = result.stdout.str().partition(" answer ")[2]
        assert option in next(line for line in answer.splitlines()[1:] if line)
    if option != "--benchmark-skip":
        assert project.run(*words, f"--fsstack-allow-unjudged={allowed}").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(("words", "status"), [([], 0), (["--fsstack-strict"], 1)])
def test_a_strict_budget_on_the_command_line_needs_a_test_that_measures(
    project: Project, words: list[str], status: int
) -> None:
    project.write("def test_plain():\n    pass")
    assert project.run("--fsstack-budget=30%", *words).ret == status
    project.pytester.makeini(f"[pytest]\naddopts = --fsstack-budget=30% {' '.join(words)}")
    assert project.run().ret == pytest.ExitCode.OK


SUSPECT = """
import pytest

@pytest.mark.fsstack("plain", "lucky = crypt(cost=100)", "dear = crypt(cost=150)", "same = crypt(cost=100)")
class TestCost:
    runs = {}

    @pytest.mark.fsstack_budget(overhead=0.10, metric="cost")
    def test_step(self, fsstack, timed, cost, log):
        name = fsstack.stack.id
        log(name)
        runs = self.runs[name] = self.runs.get(name, 0) + 1
        with timed(cold=False):
            pass
        # A stack that is slow by chance in its first block, and never again.
        timed.record("cost", cost * (1 + runs / 1000) * (1.5 if name == "lucky" and runs <= 6 else 1), unit="coins")
"""


def test_a_failure_of_one_of_many_budgets_counts_once_fresh_rounds_confirm_it(project: Project) -> None:
    project.write(SUSPECT)
    result = project.run("--fsstack-error-rate-per=session")
    result.assert_outcomes(failed=1, passed=3)
    result.stdout.fnmatch_lines(
        [
            "*fail:*cost: overhead *10 %, 6 rounds*6*6*: 50.0 %",
            "*3 budgets*FAIL*5 %*",
        ]
    )
    ran = Counter(line.split()[0] for line in project.log)
    # Only suspects run again, and what they are compared with.
    assert ran == {"plain": 12, "lucky": 12, "dear": 12, "same": 6}


MANY = """
import pytest

@pytest.mark.fsstack("plain", "one = crypt", "two = crypt", "three = crypt")
@pytest.mark.fsstack_budget(overhead=0.10)
@pytest.mark.parametrize("number", range(11))
class TestMany:
    def test_step(self, timed, number):
        with timed(cold=False):
            pass
"""


@pytest.mark.parametrize("words", ["--fsstack-rounds=5 --fsstack-strict", "--fsstack-scale=smoke SESSION"])
def test_more_budgets_than_the_rounds_can_confirm_are_refused(project: Project, words: str) -> None:
    project.write(MANY)
    words = words.replace("SESSION", "--fsstack-error-rate-per=session")
    result = project.run(*words.split(), "--fsstack-dry-run")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    first, last = (word.partition("=")[0] for word in words.split())
    result.stderr.fnmatch_lines([f"*{first}: 33 budgets*{last}*5 rounds*--fsstack-rounds=6*=budget"])


@pytest.mark.parametrize(
    "words",
    [
        "--fsstack-rounds=6 --fsstack-strict",
        "--fsstack-rounds=5",
        "--fsstack-strict",
        # The header says that these are too few for any verdict.
        "--fsstack-rounds=2 --fsstack-strict",
        "--fsstack-rounds=5 --fsstack-strict -k one",
        "--fsstack-rounds=5 --fsstack-strict --fsstack-error-rate-per=budget",
    ],
)
def test_budgets_that_the_rounds_can_confirm_are_not_refused(project: Project, words: str) -> None:
    project.write(MANY)
    assert project.run(*words.split(), "--fsstack-dry-run").ret == pytest.ExitCode.OK


def test_each_budget_has_its_own_error_rate_unless_the_gate_is_strict(project: Project) -> None:
    project.write(SUSPECT)
    project.run().assert_outcomes(failed=2, passed=2)
    project.run("--fsstack-strict").assert_outcomes(failed=1, passed=3)


@pytest.mark.parametrize(
    "mark", ["skip(reason='not today')", "skipif(True, reason='not today')", "xfail(run=False, reason='not today')"]
)
@pytest.mark.parametrize(
    ("allowed", "status"), [("", 1), ("*another*", 1), ("*not today*", 0), ("*::test_other[[]*", 0)]
)
def test_a_strict_gate_needs_each_budget_judged_or_its_reason_allowed(
    project: Project, mark: str, allowed: str, status: int
) -> None:
    other = """
@pytest.mark.{mark}
@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget("900%", metric="cost")
def test_other(fsstack, timed):
    pass
"""
    project.write(UNMARKED + other.format(mark=mark))
    words = ["-k", "same or plain or other", "--fsstack-budget=* : cost 900%", "--fsstack-strict"]
    result = project.run("--fsstack-rounds=8", *words, *([f"--fsstack-allow-unjudged={allowed}"] if allowed else []))
    assert result.ret == status
    assert any("--fsstack-strict" in line and "not today" in line for line in result.outlines) == bool(status)


@pytest.mark.parametrize(("allowed", "status"), [("", 1), ("*not today*", 0)])
def test_an_expected_failure_before_the_verdict_opens_no_strict_gate(
    project: Project, allowed: str, status: int
) -> None:
    project.write(
        UNMARKED
        + """
@pytest.mark.xfail(reason="not today")
@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget("900%", metric="cost")
def test_other(fsstack, timed, cost):
    with timed(cold=False):
        pass
    timed.record("cost", cost, unit="coins")
    assert False
"""
    )
    words = ["-k", "same or plain or other", "--fsstack-budget=* : cost 900%", "--fsstack-strict"]
    result = project.run("--fsstack-rounds=8", *words, *([f"--fsstack-allow-unjudged={allowed}"] if allowed else []))
    assert result.ret == status
    assert any("--fsstack-strict" in line and "not today" in line for line in result.outlines) == bool(status)


@pytest.mark.parametrize(("mark", "runs"), [("'5%', metric='cots'", 1), ("{'dear': 0.1}, metric='cots'", 8)])
def test_a_typo_in_a_metric_is_told_after_the_first_round_and_costs_no_more(
    project: Project, mark: str, runs: int
) -> None:
    project.write(UNMARKED.replace('overhead=0.10, metric="cost"', mark))
    result = project.run("--fsstack-rounds=8", *(["--fsstack-budget=same: cost 900%"] if runs > 1 else []))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # `plain` is compared with the stack that has another budget.
    expected = {"plain": runs, "dear": 1, "same": runs, "near": runs}
    assert Counter(line.split()[1] for line in project.log) == expected
    told = next(index for index, line in enumerate(result.outlines) if "'cots'" in line)
    assert "cost" in result.outlines[told]
    assert told < next(index for index, line in enumerate(result.outlines) if line.startswith("test_it.py"))


@pytest.mark.parametrize("skip", ["require(Tool('lunar'))", "pytest.xfail('lunar')", "pytest.importorskip('lunar')"])
def test_a_strict_gate_says_how_to_allow_a_test_that_leaves_its_budget_without_a_verdict(
    project: Project, skip: str
) -> None:
    imported = "from pytest_fsstack import Tool\nfrom pytest_fsstack.machine.needs import require\n"
    project.write(imported + UNMARKED.replace("with timed", SKIP.format(skip)).replace("0.10", "9.0"))
    words = ["--fsstack-rounds=8", "-k", "same or dear", "--fsstack-strict"]
    result = project.run(*words)
    result.assert_outcomes(passed=1, errors=1, deselected=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    [allowing] = [line.split("allow:")[1] for line in result.outlines if line.startswith("  allow:")]
    assert "lunar" in allowing
    result = project.run(*words, *shlex.split(allowing))
    assert "errors" not in result.parseoutcomes()
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("content", "words", "status"),
    [
        ("@pytest.mark.fsstack_budget(limit=9)\n@pytest.mark.fsstack('plain')\ndef test_it(timed): pass", "", 1),
        ("@pytest.mark.fsstack('plain')\ndef test_it(timed): pass", "", 0),
        ("@pytest.mark.fsstack('plain')\ndef test_it(timed): pass", "--fsstack-budget=* : cost 900%", 1),
        ("def test_plain(): pass", "--fsstack-budget=* : cost 900%", 0),
        ("pytestmark = pytest.mark.fsstack_budget(limit=9)", "--fsstack-allow-unjudged=*test_a.py", 0),
        ("pytestmark = pytest.mark.fsstack_budget(limit=9)", "--fsstack-allow-unjudged=*no_such_module*", 0),
    ],
)
@pytest.mark.parametrize("skip", ["importorskip('no_such_module')", "skip('no_such_module', allow_module_level=True)"])
def test_a_module_with_budgets_that_skips_itself_fails_a_strict_gate(
    project: Project, skip: str, content: str, words: str, status: int
) -> None:
    """The module is collected before the first test on a stack."""
    project.write(UNMARKED)
    project.pytester.makepyfile(test_a=f"import pytest\npytest.{skip}\n{content}\n")
    result = project.run("--fsstack-rounds=8", "--fsstack-strict", *filter(None, [words]), "-k", "not dear")
    assert result.ret == status
    assert any("test_a.py" in line and "no_such_module" in line for line in result.outlines) == bool(status)


@pytest.mark.parametrize("strict", [False, True])
def test_a_budget_of_a_mark_whose_stack_is_replaced_is_named_and_fails_a_strict_gate(
    project: Project, strict: bool
) -> None:
    project.write(UNMARKED.replace("0.10", "{'dear': 0.1}"))
    words = ["--fsstack-stacks=plain", "--fsstack-stacks=same = crypt", "--fsstack-budget=same: cost 900%"]
    result = project.run("--fsstack-rounds=8", *words, *(["--fsstack-strict"] if strict else []))
    assert result.ret == strict
    result.stdout.fnmatch_lines(["fsstack: *test_step*'dear'*"])
