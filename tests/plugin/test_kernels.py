"""Kernels as a parameter, with workers on this kernel in place of guests: how they are collected, run and judged."""

from __future__ import annotations

import json
import random
import re
import signal
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from pytest_fsstack.over_time.comparison import ONE_RUN_EACH
from pytest_fsstack.over_time.history import read
from pytest_fsstack.over_time.trend import select_comparable, trends
from pytest_fsstack.records import saved
from pytest_fsstack.report.series import series as saved_series
from tests.chains import a_chain
from tests.plugin.conftest import LAYERS, Project
from tests.toolkit import chains_of

pytest.importorskip("xdist", reason="needs pytest-xdist: pip install pytest-fsstack[kernel]")

pytestmark = pytest.mark.plugins("xdist")

# Two names for the running kernel; `slow` costs eight times as much, as a test may ask for by the name of its kernel.
TWO = (
    LAYERS
    + """
def pytest_cmdline_main(config):
    from pytest_fsstack.kernels import controller
    from pytest_fsstack.kernels.images import Kernel

    controller.resolve = lambda text, cache: Kernel(text)
    Kernel.can_boot = property(lambda self: self.name != "host")


@pytest.fixture
def kernel(request):
    return request.config.workerinput["fsstack"]["kernel"]
"""
)
TEST = """
import os, random
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestFirst:
    @pytest.mark.benchmark
    def test_step(self, fsstack, timed, kernel, log):
        log(f"first {kernel}")
        with timed(cold=False):
            end = random.Random().gauss(0.05, 0.002) * (8 if kernel == "slow" and fsstack.stack.id == "crypt" else 1)
            import time
            time.sleep(end)
        if kernel == "dying":
            os._exit(1)

@pytest.mark.fsstack("plain", "crypt")
class TestSecond:
    @pytest.mark.benchmark
    def test_step(self, fsstack, timed, kernel, log):
        log(f"second {kernel}")
        with timed(cold=False):
            pass
"""


#: With a control.
STACKS = ("plain", "crypt", "control")


@pytest.fixture
def kernels(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    project.pytester.makeconftest(
        TWO.replace("def pytest_cmdline_main", "@pytest.hookimpl(tryfirst=True)\ndef pytest_cmdline_main")
    )
    project.write(TEST)
    return project


#: With it, rounds of one boot judge the limit between kernels.
ONE_BOOT = "--fsstack-judge-one-boot"


def run(kernels: Project, *arguments: str, names: tuple[str, ...] = ("old", "new")) -> pytest.RunResult:
    return kernels.run("--fsstack-rounds=6", *(f"--fsstack-kernel={name}" for name in names), *arguments)


def test_the_kernel_is_in_ids_table_json_and_records(kernels: Project) -> None:
    history = kernels.pytester.mkdir("history")
    words = ("--fsstack-json=out.json", "--benchmark-json=b.json", f"--fsstack-history={history}")
    result = run(kernels, "-v", *words)
    result.assert_outcomes(passed=8)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "fsstack:* old (baseline), new",
            "*PASSED test_it.py::TestFirst::test_step?crypt:new?*",
            "plain:old *baseline*",
            "plain:new *",
        ]
    )
    data = json.loads((kernels.pytester.path / "out.json").read_text())
    # Of the machine that both kernels share.
    assert all(each["load"] >= 0 for each in data["chains"][0]["conditions"])
    assert len(data["chains"][0]["conditions"]) == 6
    assert list(data["chains"][0]["stacks"]) == ["plain:old", "plain:new", "crypt:old", "crypt:new"]
    import jsonschema

    jsonschema.Draft202012Validator(saved.schema()).validate(data)
    # What each kernel told of itself, beside this machine.
    assert {name: "versions" in own for name, own in data["environment"]["kernels"].items()} == {
        "old": True,
        "new": True,
    }
    assert data["environment"]["devices"][0]["spec"].startswith("dir:")
    assert "kernel" not in data["labels"]
    stack = data["chains"][0]["stacks"]["crypt:new"]
    assert (stack["kernel"], data["chains"][0]["against"]["crypt:new"]) == ("new", "crypt:old")
    series = {
        each.name
        for each in saved_series(saved.loads(json.dumps(data)))
        if each.stack == "crypt" and each.metric == "seconds"
    }
    name = "test_it.py::TestFirst::step::crypt::seconds"
    assert {each for each in series if "First" in each} == {name, f"{name}::overhead", f"{name}::kernel_overhead"}
    names = {record["name"] for record in json.loads((kernels.pytester.path / "b.json").read_text())["benchmarks"]}
    assert names == {f"test_step[{stack}:{kernel}]" for stack in ("plain", "crypt") for kernel in ("old", "new")}
    assert kernels.log == drawn("TestFirst", 6) + drawn("TestSecond", 6)
    (file,) = history.iterdir()
    check_history(file)


def check_history(file: Path) -> None:
    """Find a line for the session, which makes a series on each kernel if there are two of it."""
    assert file.read_text().count("\n") == 1
    file.write_text(file.read_text() * 2)
    runs, problems = read(file)
    assert problems == []
    chosen = select_comparable(runs)
    assert chosen.left_out == {}
    found = {each.key.name_in_test: len(each.points) for each in trends(chosen.runs) if each.key.stack == "crypt"}
    assert {"step on crypt old": 2, "step on crypt new": 2}.items() <= found.items()


def test_several_kernels_are_each_compared_with_themselves_in_an_earlier_run(kernels: Project) -> None:
    costs = {f"{name}:{kernel}": 0.01 for kernel in ("old", "new") for name in ("plain", "crypt")}
    then = a_chain({"step": costs}, 1, id="test_it.py::TestSecond").on_kernels("within")
    (kernels.pytester.path / "then.json").write_text(saved.dumps(then.results()))
    result = run(kernels, "--fsstack-rounds=1", "-k", "Second", "--fsstack-compare=then.json")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines_random(
        [f"step on {stack} {kernel} *" for stack in ("plain", "crypt") for kernel in ("old", "new")]
    )
    assert f"* {ONE_RUN_EACH}" in result.outlines
    # Between kernels nothing was compared then.
    remarks = [line for line in result.outlines if line.startswith("* ") and "TestSecond step on" in line]
    assert len(remarks) == 2
    for remark, stack in zip(remarks, ("plain", "crypt")):
        assert re.search(rf"\bnow\b.* TestSecond step on {stack} new .*kernel", remark)


def test_a_mistake_that_only_a_worker_finds_is_one_message_and_exit_code_4(kernels: Project) -> None:
    kernels.write("""
        import pytest

        @pytest.mark.fsstack("plain")
        @pytest.mark.fsstack_sizes()
        @pytest.mark.benchmark
        def test_step(fsstack, timed):
            pass
    """)
    result = run(kernels)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    # Both workers find it. Which of them reports it first is a race.
    [message] = [line for line in result.errlines if line.startswith("ERROR: ")]
    assert re.search(r"kernel (old|new): \S*::test_step: fsstack_sizes: .* smoke, small", message)
    assert not any("INTERNALERROR" in line for line in result.outlines)


def test_repetitions_are_as_many_on_all_kernels(kernels: Project) -> None:
    kernels.write("""
        import pytest

        @pytest.mark.fsstack("plain")
        class TestRead:
            @pytest.mark.fsstack_repeat("auto")
            def test_read(self, fsstack, timed, kernel, log):
                log(kernel)
                with timed(cold=False):
                    pass
    """)
    result = run(kernels, "-v", "--fsstack-json=out.json")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["repeated *read runs * in a round (auto)*"])
    chain = chains_of(kernels.pytester.path / "out.json")[0]
    (step,) = chain.steps
    old, new = ([sample.repetitions for sample in chain.of(step, name).values()] for name in ("plain:old", "plain:new"))
    # The first round shows what a repetition costs.
    assert old == new
    assert (old[0], len(old)) == (1, 6)
    assert Counter(kernels.log) == {"old plain": sum(old), "new plain": sum(new)}


def test_each_kernel_has_its_own_control(kernels: Project) -> None:
    kernels.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        def test_step(fsstack, timed, kernel, log):
            log(kernel)
            with timed(cold=False):
                pass
            strange = kernel == "new" and fsstack.stack.id == "control"
            timed.record("cost", 40 if strange else 10)
    """)
    words = ("--fsstack-control", "--fsstack-budget=*: cost 10%", "--fsstack-max-regression=900000%")
    result = run(kernels, ONE_BOOT, *words, "--fsstack-rounds=8", "--fsstack-json=out.json")
    # Those of the tests, and of the regressions: none is about a control.
    result.assert_outcomes(passed=6)
    assert Counter(kernels.log) == {f"{kernel} {stack}": 8 for kernel in ("old", "new") for stack in STACKS}
    between, within = json.loads((kernels.pytester.path / "out.json").read_text())["chains"]
    assert between["controls"] == within["controls"] == ["control:old", "control:new"]
    assert "ControlDiffers" not in [notice["kind"] for notice in between["notices"]]
    (notice,) = [notice for notice in within["notices"] if notice["kind"] == "ControlDiffers"]
    assert (notice["baseline"], notice["control"]) == ("plain:new", "control:new")
    ((metric, overhead),) = [(one["metric"], one["estimate"]["overhead"]) for one in notice["differences"]]
    assert (metric, round(overhead)) == ("cost", 3)


def rounds_of(kernels: Project) -> dict[str, list[int]]:
    """The rounds in which each stack was measured on each kernel, in the first step."""
    chain = chains_of(kernels.pytester.path / "out.json")[0]
    (step, *_) = chain.steps
    return {name: [key.number for key in chain.of(step, name)] for name in chain.samples[step]}


CELLS = [(stack, kernel) for stack in ("plain", "crypt") for kernel in ("old", "new")]


def drawn(chain: str, rounds: int) -> list[str]:
    """Return the turns as the seed 1 has them; each is a stack on a kernel."""
    rng = random.Random(f"1 test_it.py::{chain} 0")
    cells = [cell for _ in range(rounds) for cell in rng.sample(CELLS, len(CELLS))]
    name = chain.lower().removeprefix("test").strip("_")
    return [f"{name} {kernel} {stack}" for stack, kernel in cells]


def test_a_test_outside_of_a_class_is_a_chain_by_itself(kernels: Project) -> None:
    kernels.write(
        """
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_first(fsstack, timed, kernel, log):
            log(f"first {kernel}")
            with timed(cold=False):
                pass

        def test_without_stacks(request):
            with open(request.config.rootpath / "other", "a") as file:
                print(request.config.workerinput["fsstack"]["kernel"], file=file)

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_second(fsstack, timed, kernel, log):
            log(f"second {kernel}")
            with timed(cold=False):
                pass
        """
    )
    run(kernels).assert_outcomes(passed=10)
    assert kernels.log == drawn("test_first", 6) + drawn("test_second", 6)
    assert sorted((kernels.pytester.path / "other").read_text().split()) == ["new", "old"]


#: A budget that is kept, beside one whose test is left out.
LEFT_OUT = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget("900000%")
def test_kept(fsstack, timed):
    with timed(cold=False):
        pass

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget("900000%")
def test_other(fsstack, timed):
    with timed(cold=False):
        pass
"""


@pytest.mark.parametrize(
    ("end", "ends"),
    [
        ("@pytest.mark.skip(reason='not today')\ndef test_other", {"errors": 2, "skipped": 2}),
        ("@pytest.mark.xfail(run=False, reason='not today')\ndef test_other", {"errors": 2, "xfailed": 2}),
    ],
)
def test_a_strict_gate_needs_each_budget_judged_in_each_kernel(
    kernels: Project, end: str, ends: dict[str, int]
) -> None:
    kernels.write(LEFT_OUT.replace("def test_other", end))
    words = ["--fsstack-strict", "--fsstack-rounds=8"]
    result = run(kernels, *words)
    result.assert_outcomes(passed=4, **ends)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result = run(kernels, *words, "--fsstack-allow-unjudged=*not today*")
    assert "errors" not in result.parseoutcomes()
    assert result.ret == pytest.ExitCode.OK


def test_a_budget_of_a_mark_whose_stack_is_replaced_is_named_for_kernels_too(kernels: Project) -> None:
    kernels.write(LEFT_OUT.replace('"900000%"', "{'crypt': 9000.0}"))
    stacks = ["--fsstack-stacks=plain", "--fsstack-stacks=same = crypt", "--fsstack-budget=same: 900000%"]
    result = run(kernels, *stacks, "--fsstack-strict", "--fsstack-rounds=8")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for test in "test_kept", "test_other":
        result.stdout.fnmatch_lines([f"fsstack: test_it.py::{test}: *'crypt'*--fsstack-strict*"])


def test_a_typo_in_a_metric_ends_the_rounds_of_all_kernels_after_the_first(kernels: Project) -> None:
    kernels.write(TEST.replace("@pytest.mark.benchmark", "@pytest.mark.fsstack_budget('9%', metric='secnods')"))
    result = run(kernels)
    result.assert_outcomes(failed=4, passed=4)
    assert len(kernels.log) == 8


FAILING = """
import pytest

@pytest.fixture(scope="module")
def module(request, kernel):
    yield
    with open(request.config.rootpath / "torn down", "a") as file:
        print(kernel, file=file)

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.benchmark
def test_step(module, fsstack, timed, kernel, log, request):
    log(f"first {kernel}")
    count = request.config.stash.setdefault("count", 0) + 1
    request.config.stash["count"] = count
    with timed(cold=False):
        pass
    if kernel == "new" and count == 5:
        END

@pytest.fixture(scope="module")
def kernel(request):
    return request.config.workerinput["fsstack"]["kernel"]

def test_other():
    pass
"""


def test_a_failure_in_a_round_ends_a_session_that_is_to_end_with_the_first(kernels: Project) -> None:
    kernels.write(FAILING.replace("END", "assert False, 'in round 3'"))
    result = run(kernels, "-x", "--fsstack-json=out.json")
    assert result.ret != pytest.ExitCode.OK
    assert result.parseoutcomes()["failed"] == 1
    result.stdout.fnmatch_lines(["*AssertionError: in round 3*", "*stopping after 1 failures*"])
    assert sorted((kernels.pytester.path / "torn down").read_text().split()) == ["new", "old"]
    samples = {name: len(rounds) for name, rounds in rounds_of(kernels).items()}
    assert samples["plain:old"] == samples["crypt:old"] == 3
    assert {samples["plain:new"], samples["crypt:new"]} == {2, 3} or set(samples.values()) == {3}


def test_a_kernel_that_goes_down_in_a_round_keeps_its_earlier_rounds(kernels: Project) -> None:
    kernels.write(FAILING.replace("END", "__import__('os')._exit(1)"))
    result = run(kernels, "--fsstack-json=out.json", "--max-worker-restart=0")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 3
    assert outcomes["failed" if "failed" in outcomes else "errors"] == 3
    result.stdout.fnmatch_lines(["*kernel new: *Not properly terminated*"])
    rounds = rounds_of(kernels)
    assert rounds["plain:old"] == rounds["crypt:old"] == [0, 1, 2, 3, 4, 5]
    assert rounds["plain:new"] == rounds["crypt:new"] == [0, 1]


def test_a_signal_ends_the_session_and_keeps_the_rounds_so_far(kernels: Project) -> None:
    kernels.write(
        FAILING.replace("END", "os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)").replace(
            "import pytest", "import os, signal, time\nimport pytest", 1
        )
    )
    result = run(kernels, "--fsstack-json=out.json")
    assert result.ret == 128 + signal.SIGTERM
    result.stdout.fnmatch_lines(["*fsstack: *SIGTERM*"])
    rounds = {name: found[:2] for name, found in rounds_of(kernels).items()}
    assert rounds == {f"{stack}:{kernel}": [0, 1] for stack in ("plain", "crypt") for kernel in ("old", "new")}


BUSY = """
from pytest_fsstack.measuring import load

rounds = iter(range(1, 10**6))

def watch(before):
    reading = load.Reading(0.0, load=5.0 if next(rounds) in (ROUNDS) else 0.5)
    return reading, reading

load.watch = watch
"""

GATES = ("--fsstack-max-regression=900%", "--fsstack-budget=900%")
DROPPING = (ONE_BOOT, *GATES, "--fsstack-drop-rounds=load>2", "-k", "First")


def test_rounds_in_which_the_machine_is_busy_are_discarded_on_all_kernels(kernels: Project) -> None:
    conftest = kernels.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + BUSY.replace("ROUNDS", "1, 4"))
    result = run(kernels, "--fsstack-json=out.json", *DROPPING)
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["figures * 6 rounds (2 *load>2 (2))*"])
    result.stdout.no_fnmatch_line("fsstack: *budgets*")
    assert set(Counter(kernels.log).values()) == {8}
    both, within = chains_of(kernels.pytester.path / "out.json")
    assert both.judged == within.judged == 2
    assert both.rounds == within.rounds == 6
    assert [each.replaced_by for each in both.discarded] == [0, 2]
    everywhere = {f"{stack}:{kernel}" for stack in ("plain", "crypt") for kernel in ("old", "new")}
    for each in both.discarded:
        assert set(each.order) == everywhere
        assert set().union(*each.samples.values()) == everywhere
    assert all(rounds == [0, 1, 2, 3, 4, 5] for rounds in rounds_of(kernels).values())


def test_kernels_on_a_machine_that_is_always_busy_end_after_as_many_rounds_as_planned(kernels: Project) -> None:
    conftest = kernels.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + BUSY.replace("ROUNDS", "*range(1000), 0"))
    result = run(kernels, "--fsstack-json=out.json", *DROPPING)
    result.stdout.fnmatch_lines(["[*] 6 *load>2 (6)*"])
    # Of each kernel's own, and between them.
    result.stdout.fnmatch_lines(["fsstack: *3 budgets*"])
    assert [chain.judged for chain in chains_of(kernels.pytester.path / "out.json")] == [0, 0]
    assert set(Counter(kernels.log).values()) == {6}


def test_both_comparisons_are_shown_kernel_against_kernel_and_stack_against_baseline(kernels: Project) -> None:
    words = ("--fsstack-budget=crypt: 900%", "--fsstack-json=out.json", "-k", "First")
    result = run(kernels, *words, names=("old", "slow"))
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(
        [
            "cost *",
            "crypt:old *baseline*",
            "*TestFirst (in each kernel) on *",
            "cost * plain *",
            "plain:old *baseline*",
            "plain:slow *baseline*",
        ]
    )
    across, within = chains_of(kernels.pytester.path / "out.json")
    assert across.against == {f"{stack}:{on}": f"{stack}:old" for stack in ("plain", "crypt") for on in ("old", "slow")}
    assert within.against == {f"{stack}:{on}": f"plain:{on}" for stack in ("plain", "crypt") for on in ("old", "slow")}
    (stacks,) = within.derived.values()
    assert {name: found.verdict for name, found in stacks.items()} == {
        "plain:old": None,
        "plain:slow": None,
        "crypt:old": "pass",
        "crypt:slow": "pass",
    }
    slow, old = (stacks[f"crypt:{kernel}"].readings["seconds"].estimate for kernel in ("slow", "old"))
    assert slow is not None
    assert old is not None
    assert slow.overhead > old.overhead + 1


def test_a_slower_kernel_fails_once_fresh_rounds_confirm_it(kernels: Project) -> None:
    words = (ONE_BOOT, "--fsstack-max-regression=150%", "-k", "First", "--junitxml=j.xml")
    result = run(kernels, *words, "--fsstack-error-rate-per=session", names=("old", "slow"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        [
            "TestFirst on dir:*: round 1 * 6 *",
            "TestFirst on dir:*: round 6 * 6 *; 1 pass, 1 fail; *step on crypt:slow *",
            # Fresh rounds of two cells, which are mixed.
            "TestFirst on dir:*: * rounds 4 to 6 * 6 *; 1 pass, 1 fail; *",
            "*crypt:slow: seconds x?.* crypt:old, * x2.5",
            "*fail:*seconds: * x2.5,*; * 6 *x?.*",
            "FAILED test_it.py::TestFirst::step on crypt:slow against crypt:old*",
        ]
    )
    cases = ElementTree.parse(kernels.pytester.path / "j.xml").findall(".//testcase")
    failed = [case.get("name") for case in cases if case.find("failure") is not None]
    assert failed == ["step on crypt:slow against crypt:old"]
    # Only the suspect runs again, on both kernels.
    assert Counter(kernels.log) == {
        **{f"first {kernel} plain": 6 for kernel in ("old", "slow")},
        **{f"first {kernel} crypt": 12 for kernel in ("old", "slow")},
    }


def test_the_progress_ends_at_all_tests(kernels: Project) -> None:
    kernels.pytester.makeini("[pytest]\nconsole_output_style = count")
    result = run(kernels, ONE_BOOT, "--fsstack-max-regression=150%", "-v", names=("old", "dying"))
    shown = re.findall(r"\[ *(\d+)/(\d+)\]", result.stdout.str())
    assert len(shown) >= 8
    assert all(int(done) <= int(total) for done, total in shown)
    assert len(set(shown[-1])) == 1


def test_a_limit_between_kernels_is_judged_by_three_boots_of_each(kernels: Project) -> None:
    words = ("--fsstack-rounds=2", "--fsstack-max-regression=150%", "-k", "First")
    result = run(kernels, *words, names=("old", "slow"))
    result.stdout.fnmatch_lines(["*old (baseline), slow, 3 boots*", "*3 * 3 boots*", "figures * 2 rounds *3 boots*"])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--fsstack-boots=1"], ("old", "slow")),
        (["-o", "fsstack_boots=1"], ("old", "slow")),
        (["--fsstack-boots=2"], ("old", "slow")),
        (["--fsstack-alpha=0.01", "--fsstack-boots=3"], ("old", "slow")),
        # The running kernel cannot boot again.
        ([], ("host", "slow")),
    ],
)
def test_too_few_boots_are_no_gate_and_the_header_says_so(
    kernels: Project, words: list[str], names: tuple[str, ...]
) -> None:
    words = [*words, "--fsstack-max-regression=5%", "-k", "First"]
    result = run(kernels, *words, "--fsstack-strict", names=names)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-max-regression *boot*(--fsstack-strict)"])
    assert not (kernels.pytester.path / "log").exists()
    if names[0] == "host" or "-o" in words:
        result = run(kernels, *words, "--fsstack-rounds=2", names=names)
        assert result.ret == pytest.ExitCode.OK
        result.assert_outcomes(passed=4 if "-o" in words else 8, skipped=2)
        result.stdout.fnmatch_lines(["fsstack: --fsstack-max-regression *boot*--fsstack-judge-one-boot*"])
        assert not re.search(r"crypt:slow .*\bFAIL\b", result.stdout.str())


def test_a_strict_gate_whose_verdicts_need_more_boots_ends_before_its_first_round(kernels: Project) -> None:
    # Two verdicts share the error rate.
    result = run(kernels, "--fsstack-max-regression=5%", "--fsstack-strict", "-k", "First")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-max-regression: 2 *0.025: *--fsstack-boots=4*"])
    assert not (kernels.pytester.path / "log").exists()


def test_budgets_of_all_kernels_are_counted_before_the_first_round(kernels: Project) -> None:
    # One test on two stacks and two kernels, and a verdict between the kernels for each stack.
    words = ["--fsstack-budget=500%", "--fsstack-max-regression=500%", ONE_BOOT, "-k", "First"]
    words += ["--fsstack-alpha=0.4", "--fsstack-rounds=2", "--fsstack-error-rate-per=session"]
    stacks = ["plain", *(f"s{number} = crypt" for number in range(2))]
    result = run(kernels, *words, *(f"--fsstack-stacks={stack}" for stack in stacks))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    # 2 on each kernel, and 3 between them. One kernel's alone could be confirmed.
    result.stderr.fnmatch_lines(["ERROR: --fsstack-rounds: 7 budgets*--fsstack-rounds=3*"])
    assert not (kernels.pytester.path / "log").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fsstack-kernel=a", "--fsstack-kernel=a"], "--fsstack-kernel: * a; *"),
        (["--fsstack-kernel=a", "--fsstack-boots=0"], "--fsstack-boots: * 1 * 0)"),
        (["--fsstack-kernel=a", "--fsstack-max-regression=lots"], "--fsstack-max-regression: * 5% *'lots')"),
        (["--fsstack-kernel=a", "--fsstack-max-regression=5%"], "--fsstack-max-regression * second --fsstack-kernel*"),
        (["--fsstack-boots=3"], "--fsstack-boots *without --fsstack-kernel: *"),
        (["--fsstack-kernel=a", ONE_BOOT], f"{ONE_BOOT} * without --fsstack-max-regression *"),
        (
            ["--fsstack-kernel=a", "--fsstack-kernel=b", "--fsstack-max-regression=5%", ONE_BOOT, "--fsstack-boots=3"],
            f"{ONE_BOOT} *--fsstack-boots=3*",
        ),
        (["--fsstack-kernel=a", "-n2"], "--fsstack-kernel * -n * --tx *"),
        (["--fsstack-kernel=a", "-p", "no:xdist"], "* pytest-xdist *: pip install pytest-fsstack?kernel?"),
    ],
)
def test_mistakes_are_told(kernels: Project, arguments: list[str], message: str) -> None:
    result = run(kernels, *arguments, names=())
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_limit_between_kernels_on_which_nothing_is_measured_fails(kernels: Project) -> None:
    kernels.write("import pytest\n\n@pytest.mark.fsstack('plain', 'crypt')\ndef test_it(fsstack):\n    pass\n")
    result = run(kernels, ONE_BOOT, "--fsstack-max-regression=5%")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["fsstack: *0 comparisons*"])


def test_a_file_that_is_no_kernel_is_told(project: Project) -> None:
    project.write(TEST)
    result = project.run("--fsstack-kernel=test_it.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-kernel: *test_it.py *bzImage*"])


@pytest.mark.plugins("xdist", "pytest_rerunfailures")
def test_what_would_connect_to_the_host_is_left_out_of_workers_and_the_header_says_so(kernels: Project) -> None:
    kernels.write(
        TEST.replace('log(f"first {kernel}")', 'assert not hasattr(request.config, "failures_db")').replace(
            "def test_step(self, fsstack, timed, kernel, log):",
            "def test_step(self, fsstack, timed, kernel, log, request):",
        )
    )
    result = run(kernels, "--reruns=1")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["fsstack: --reruns: pytest-rerunfailures *"])
