"""The marks and selections of pytest beside chains, and the owner of an error when something breaks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from pytest_fsstack.judging.describe import judgement_in_words
from pytest_fsstack.records.results import Unjudged
from tests.plugin.conftest import Project
from tests.toolkit import chains_of

CHAIN = """
import pytest

@pytest.mark.fsstack("plain", "crypt", "dear = crypt(cost=300)")
class TestChain:
    def test_fill(self, fsstack, log):
        log("fill")
        assert fsstack.stack.id != FAILS, "this disk is full"

    @pytest.mark.fsstack_budget("30%", metric="cost")
    def test_read(self, fsstack, timed, cost, log):
        log("read")
        with timed(cold=False):
            pass
        timed.record("cost", cost, unit="coins")
"""


def test_ciphers_that_the_session_uses_first_are_in_the_results(project: Project) -> None:
    project.write("""
        import pytest
        from pytest_fsstack.session import environment

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_step(fsstack, timed):
            with timed(cold=False):
                pass
            cipher = "name : xts(aes)\\ndriver : soft\\npriority : 1"
            environment._read = lambda path: cipher if path == "/proc/crypto" else None
    """)
    project.run("--fsstack-rounds=1", "--fsstack-json=out.json").assert_outcomes(passed=2)
    data = json.loads((project.pytester.path / "out.json").read_text())
    assert data["environment"]["crypto"]["xts(aes)"]["driver"] == "soft"


@pytest.mark.parametrize("fails", ["plain", "crypt"])
@pytest.mark.parametrize(
    "selection", [["-k", "read and crypt and not dear"], ["test_it.py::TestChain::test_read[crypt]"]]
)
def test_what_breaks_a_selected_test_without_being_selected_is_its_error(
    project: Project, fails: str, selection: list[str]
) -> None:
    project.write(CHAIN.replace("FAILS", repr(fails)))
    result = project.run("--fsstack-rounds=2", *selection)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes()["errors"] == 1
    result.stdout.fnmatch_lines([f"fill *{fails} *dir:*", "*this disk is full*"])


@pytest.mark.parametrize("stacks", ["broken, crypt", "crypt, broken"])
def test_a_stack_that_cannot_be_built_is_the_error_of_the_selected_test(project: Project, stacks: str) -> None:
    baseline, other = stacks.split(", ")
    project.write(CHAIN.replace("FAILS", "''").replace('"plain", "crypt"', f'"{baseline}", "{other}"'))
    # Of the first step nothing is selected, and of the baseline neither.
    result = project.run("--fsstack-rounds=2", "-k", f"read and {other} and not dear")
    assert result.parseoutcomes()["errors"] == 1
    result.stdout.fnmatch_lines(["*/no/such/file*"])


def test_a_baseline_that_cannot_be_built_ends_its_chain_in_round_1(project: Project) -> None:
    project.write(CHAIN.replace("FAILS", "''").replace('"plain"', '"broken"'))
    result = project.run("--fsstack-rounds=5", "-rs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # The baseline, and the two budgets that have nothing to compare with.
    assert result.parseoutcomes()["errors"] == 3
    result.stdout.fnmatch_lines(["*round 1*baseline broken *"])
    result.stdout.fnmatch_lines(["*budget*baseline broken * failed in setup*"])
    # Of the five rounds that there were to be, the first, in which the baseline came last.
    assert project.log == ["fill crypt", "read crypt", "fill dear", "read dear"]


@pytest.mark.parametrize("mark", ["skip(reason='not today')", "xfail(run=False, reason='not today')"])
def test_a_step_that_a_mark_skips_is_left_out_and_the_others_keep_their_rounds(project: Project, mark: str) -> None:
    step = "    def test_fill"
    project.write(CHAIN.replace("FAILS", "''").replace(step, f"    @pytest.mark.{mark}\n{step}"))
    result = project.run("--fsstack-rounds=8")
    result.assert_outcomes(passed=2, failed=1, **{"skipped" if mark.startswith("skip") else "xfailed": 3})
    assert Counter(project.log) == {f"read {stack}": 8 for stack in ("plain", "crypt", "dear")}


def test_a_stack_that_did_not_do_the_work_is_not_blamed_on_the_baseline(project: Project) -> None:
    lines = '        timed.record("cost", cost, unit="coins")\n'
    partial = '        if fsstack.stack.id == "crypt":\n            timed.incomplete("3 of 7 links failed")\n'
    project.write(CHAIN.replace("FAILS", "''").replace(lines, lines + partial))
    result = project.run("--fsstack-rounds=8", f"--fsstack-report=json={project.pytester.path}/r.json")
    (chain,) = chains_of(project.pytester.path / "r.json")
    (judgement,) = chain.judgements_of("read", "crypt")
    assert judgement.unjudged is Unjudged.NOT_DONE
    assert "3 of 7 links failed" in judgement_in_words(chain, "read", "crypt", judgement)
    assert not chain.note("read", "plain")
    result.stdout.fnmatch_lines(["read*crypt*3 of 7 links failed"])
    result.stdout.no_fnmatch_line("*plain*3 of 7 links failed*")


DEAR = CHAIN.replace("FAILS", "''")


def test_an_expected_failure_is_measured_and_judged_before_it_is_one(project: Project) -> None:
    mark = "    @pytest.mark.xfail(strict=True, reason='BUG-1')\n    @pytest.mark.fsstack_budget"
    project.write(DEAR.replace("    @pytest.mark.fsstack_budget", mark))
    result = project.run("-k", "read and dear", "-rx")
    result.assert_outcomes(xfailed=1, deselected=5)
    assert Counter(project.log)["read dear"] == 6


@pytest.mark.parametrize(
    ("xfail", "outcomes"),
    [
        ("{'dear': 'BUG-1'}", {"passed": 5, "xfailed": 1}),
        ("{'dear': 'BUG-1', 'crypt': 'BUG-2'}", {"passed": 4, "xfailed": 1, "xpassed": 1}),
        ("{'crypt': 'BUG-2'}", {"passed": 4, "xpassed": 1, "failed": 1}),
    ],
)
def test_a_budget_may_be_expected_to_be_broken_on_one_stack(
    project: Project, xfail: str, outcomes: dict[str, int]
) -> None:
    project.write(DEAR.replace('metric="cost")', f'metric="cost", xfail={xfail})'))
    project.run("--fsstack-rounds=8").assert_outcomes(**outcomes)


def test_without_benchmarks_each_stack_runs_once_and_nothing_is_judged(project: Project) -> None:
    project.write(DEAR)
    result = project.run("--benchmark-disable")
    result.assert_outcomes(passed=6)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["fsstack: --benchmark-disable: *"])
    assert set(Counter(project.log).values()) == {1}


def test_setups_are_shown_of_one_round_and_nothing_is_judged(project: Project) -> None:
    project.write(DEAR)
    result = project.run("--setup-only")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["fsstack: --setup-only: *"])
    assert sum(" SETUP    C fsstack" in line for line in result.outlines) == 3


@pytest.mark.parametrize("flag", ["--setup-plan", "--fixtures", "--fixtures-per-test"])
@pytest.mark.parametrize("kernel", [[], ["--fsstack-kernel=host", "-p", "xdist"]], ids=["loop", "controller"])
@pytest.mark.plugins("xdist")
def test_options_of_pytest_that_only_look_measure_nothing(project: Project, flag: str, kernel: list[str]) -> None:
    project.write(DEAR)
    result = project.run(flag, "--fsstack-strict", "--fsstack-json=out.json", *kernel)
    assert result.ret == pytest.ExitCode.OK
    assert not (project.pytester.path / "out.json").exists()
    result.stdout.no_re_match_line(r"fsstack: .*(budget|nothing measured)|.*round \d|bringing up nodes")


def test_the_plugin_for_skips_and_expected_failures_may_be_missing(project: Project) -> None:
    project.write("import pytest\n\n@pytest.mark.fsstack('plain')\ndef test_it(fsstack):\n    pass\n")
    project.run("-p", "no:skipping").assert_outcomes(passed=1)


CLASS = """
import pytest

@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.fsstack("plain", "crypt")
class TestChain:
    @pytest.mark.parametrize("mode", "ab")
    def test_fill(self, fsstack, mode, size):
        assert not (fsstack.path / f"file-{mode}").exists()
        (fsstack.path / f"file-{mode}").write_text(str(size))

    @pytest.mark.benchmark
    def test_read(self, fsstack, timed, size, record_property):
        record_property("mine", size)
        with timed(cold=False):
            assert (fsstack.path / "file-b").read_text() == str(size)
"""


def test_each_value_of_a_class_is_a_chain_of_its_own(project: Project) -> None:
    project.write(CLASS)
    result = project.run("--fsstack-rounds=2")
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(["*test_it.py::TestChain[[]1[]] *dir:*"])
    result.stdout.fnmatch_lines(["*test_it.py::TestChain[[]2[]] *dir:*"])
    assert [line.split() for line in result.stdout.lines if line.startswith("seconds ")] == [["seconds", "read"]] * 2


FIXTURE = """
import pytest

@pytest.fixture(scope="class", params=["1k", "4k"])
def block(request):
    return request.param

@pytest.mark.fsstack("plain", "crypt")
class TestChain:
    def test_write(self, fsstack, log{write}):
        log("write{write}")

    def test_read(self, fsstack, timed, log, block):
        with timed(cold=False):
            log(f"read {{block}}")
"""


@pytest.mark.parametrize(
    ("write", "chains", "order"),
    [
        (", block", ["TestChain[1k]", "TestChain[4k]"], ["write, block", "read 1k", "write, block", "read 4k"]),
        # A step with one value runs before those with several.
        ("", ["TestChain"], ["write", "read 1k", "read 4k"]),
    ],
)
def test_each_value_of_a_fixture_of_all_tests_of_a_class_is_a_chain(
    project: Project, write: str, chains: list[str], order: list[str]
) -> None:
    project.write(FIXTURE.format(write=write))
    result = project.run("--fsstack-rounds=1", "--fsstack-json=out.json")
    assert result.ret == pytest.ExitCode.OK
    assert [chain.id for chain in chains_of(Path("out.json"))] == [f"test_it.py::{name}" for name in chains]
    assert [line.removesuffix(" plain") for line in project.log if line.endswith(" plain")] == order


def test_steps_repeat_no_value_of_their_chain(project: Project) -> None:
    text = FIXTURE.format(write=", block").replace("self, fsstack", "self, fsstack, size")
    project.write(text.replace("@pytest.mark.fsstack", '@pytest.mark.parametrize("size", [1])\n@pytest.mark.fsstack'))
    assert project.run("--fsstack-rounds=1", "--fsstack-json=out.json").ret == pytest.ExitCode.OK
    chains = {chain.id.partition("::")[2]: chain.steps for chain in chains_of(Path("out.json"))}
    assert chains == {f"TestChain[1-{block}]": ["write", "read"] for block in ("1k", "4k")}


def test_a_property_is_recorded_once_and_not_in_each_round(project: Project) -> None:
    project.write(CLASS)
    project.run("--fsstack-rounds=3", "--junit-xml=report.xml")
    assert (project.pytester.path / "report.xml").read_text().count('name="mine"') == 4


def test_who_cannot_be_given_a_stack_is_told_so_in_a_sentence(project: Project) -> None:
    project.write("""
        import unittest
        import pytest

        @pytest.mark.usefixtures("fsstack")
        class TestOld(unittest.TestCase):
            def test_it(self):
                pass

        @pytest.mark.fsstack("plain")
        class TestMarked:
            def test_by_name(self, request):
                request.getfixturevalue("fsstack")

            def test_late(self, fsstack, request):
                request.getfixturevalue("timed")

        @pytest.mark.fsstack("plain")
        class TestMeasured:
            def test_late(self, fsstack, request):
                with request.getfixturevalue("timed")(cold=False):
                    pass

            def test_early(self, fsstack, timed):
                with timed(cold=False):
                    pass

        @pytest.mark.fsstack("plain")
        def test_well(fsstack):
            pass
    """)
    result = project.run("--fsstack-rounds=1")
    assert result.parseoutcomes() == {"passed": 3, "failed": 2, "errors": 1}
    result.stdout.no_fnmatch_line("*AttributeError*")
    assert sum("fsstack" in line and "timed" in line and "argument" in line for line in result.outlines) >= 2
    result.stdout.fnmatch_lines(["*timed *argument*measured*"])


def test_a_test_without_stacks_is_an_error_of_this_test_alone(project: Project) -> None:
    project.write("""
        import pytest

        def test_without(fsstack):
            pass

        @pytest.mark.fsstack("plain")
        def test_well(fsstack):
            pass
    """)
    result = project.run()
    assert result.parseoutcomes() == {"passed": 1, "errors": 1}
    result.stdout.fnmatch_lines(["*@pytest.mark.fsstack('ext4', *--fsstack-stacks*"])


def test_a_failure_has_no_frames_of_the_plugin(project: Project) -> None:
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write("""
@pytest.fixture
def broken_before():
    raise ValueError(3)

@pytest.fixture
def broken_after():
    yield
    raise ValueError(3)
""")
    project.write("""
import pytest

def test_plain(broken_before):
    pass

def test_plain_after(broken_after):
    pass

@pytest.mark.fsstack("plain")
def test_on_a_stack(fsstack, broken_before):
    pass

@pytest.mark.fsstack("plain")
def test_timed(fsstack, timed, broken_before):
    pass

@pytest.mark.fsstack("plain")
def test_timed_after(fsstack, timed, broken_after):
    pass
""")
    project.pytester.makepyfile(
        test_absent="import pytest\n\n@pytest.mark.fsstack('absent')\ndef test_it(fsstack):\n    pass\n"
    )
    result = project.run("--fsstack-rounds=1", "--fsstack-if-unavailable=fail")
    result.assert_outcomes(errors=6, passed=2)
    result.stdout.fnmatch_lines(["absent on *no-such-tool*(--fsstack-if-unavailable=fail)"])
    result.stdout.no_fnmatch_line("*pytest_fsstack/*.py:*")
