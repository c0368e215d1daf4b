"""Steps that only read and are repeated in a round, each time from cold."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.rounds.marks import wrong_repeat
from tests.plugin.conftest import Project
from tests.toolkit import chains_of

CHAIN = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestChain:
    def test_fill(self, fsstack, timed, log):
        log("fill")
        with timed(cold=False):
            (fsstack.path / "file").write_text("x")

    @pytest.mark.fsstack_repeat({repeat})
    def test_read(self, fsstack, timed, log, tmp_path):
        log("read")
        assert not list(tmp_path.iterdir()), "each repetition has fixtures of its own"
        (tmp_path / "used").touch()
        with timed(cold=False):
            text = (fsstack.path / "file").read_text()
        timed.record("seen", 7)
        assert text == "x"
{more}
"""


def write(project: Project, repeat: str = "3", more: str = "") -> None:
    project.write(CHAIN.format(repeat=repeat, more=more))


def test_a_repeated_step_runs_so_often_on_every_stack_of_one_build(project: Project) -> None:
    write(project)
    result = project.run("--fsstack-rounds=2", "-v", "--fsstack-json=all.json")
    result.assert_outcomes(passed=4)
    stacks = ("plain", "crypt")
    assert Counter(project.log) == {f"fill {each}": 2 for each in stacks} | {f"read {each}": 6 for each in stacks}
    assert all(line.startswith("read") for start in range(0, 16, 4) for line in project.log[start + 1 : start + 4])
    result.stdout.fnmatch_lines(["repeated *read * 3 *: * % *"])
    (chain,) = chains_of(project.pytester.path / "all.json")
    assert repetitions(chain, "read", "crypt") == repetitions(chain, "read", "plain") == [3, 3]
    assert repetitions(chain, "fill", "crypt") == [1, 1]
    assert [*chain.repeated] == ["read"]
    assert (chain.repeated["read"].count, chain.repeated["read"].auto) == (3, False)
    assert chain.series("read", "crypt", "seen") == [7.0, 7.0]


def test_a_repetition_costs_neither_the_build_of_the_stack_nor_the_check_that_it_writes_nothing(
    project: Project,
) -> None:
    project.write("""
        import time
        import pytest
        from pytest_fsstack.measuring import watch

        files_of = watch._files

        @pytest.fixture(scope="module", autouse=True)
        def slow_check():
            watch._files = lambda top: time.sleep(0.5) or files_of(top)

        @pytest.fixture(scope="class")
        def slow_build(fsstack):
            time.sleep(0.5)

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.usefixtures("slow_build")
        class TestChain:
            @pytest.mark.fsstack_repeat("auto")
            def test_read(self, timed):
                with timed(cold=False):
                    pass
    """)
    project.run("--fsstack-json=all.json", "--fsstack-rounds=1").assert_outcomes(passed=2)
    (chain,) = chains_of(project.pytester.path / "all.json")
    cost = chain.repeated["read"].cost
    assert cost is not None
    # The step is the only one, so all but a fiftieth of a round would be its own.
    assert cost < 0.98


def repetitions(chain: ChainResults, step: str, stack: str) -> list[int]:
    return [sample.repetitions for _, sample in sorted(chain.of(step, stack).items())]


def test_auto_chooses_after_round_1_and_the_first_look_the_same_for_all_stacks(project: Project) -> None:
    project.write("""
        import pytest

        ROUNDS = []

        @pytest.mark.fsstack("plain", "crypt")
        class TestChain:
            def test_begin(self, fsstack):
                ROUNDS.append(fsstack.stack.id)

            @pytest.mark.fsstack_repeat("auto")
            @pytest.mark.fsstack_budget("0%", metric="cost")
            def test_read(self, fsstack, timed):
                with timed(cold=False):
                    pass
                # Decided at the second look, not at the first.
                changed = fsstack.stack.id == "crypt"
                timed.record("cost", (11 if ROUNDS.count("crypt") <= 2 else 5) if changed else 10)
    """)
    project.run("--fsstack-json=all.json", "-k", "read").assert_outcomes(passed=2, deselected=2)
    (chain,) = chains_of(project.pytester.path / "all.json")
    plain, crypt = (repetitions(chain, "read", stack) for stack in ("plain", "crypt"))
    first, chosen = chain.looks.rounds[0], chain.repeated["read"].count
    assert plain == crypt
    assert plain[0] == 1
    assert len(plain) > first
    assert set(plain[1:first]) == {plain[1]}
    assert set(plain[first:]) == {chosen}


def test_a_mark_on_a_class_is_for_its_steps_that_measure_and_a_step_may_override_it(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.fsstack_repeat(2)
        class TestChain:
            def test_prepare(self, fsstack, log):
                log("prepare")
                (fsstack.path / "file").write_text("x")

            @pytest.mark.fsstack_repeat(1)
            def test_write(self, fsstack, timed, log):
                log("write")
                with timed(cold=False):
                    (fsstack.path / "file").write_text("xy")

            def test_read(self, fsstack, timed, log):
                log("read")
                with timed(cold=False):
                    (fsstack.path / "file").read_text()
    """)
    project.run("--fsstack-rounds=1").assert_outcomes(passed=6)
    assert Counter(line.split()[0] for line in project.log) == {"prepare": 2, "write": 2, "read": 4}


def test_a_step_that_nobody_asks_for_is_not_repeated(project: Project) -> None:
    write(
        project,
        more="""
    def test_last(self, fsstack, timed, log):
        log("last")
        with timed(cold=False):
            pass
""",
    )
    project.run("--fsstack-rounds=1", "-k", "last").assert_outcomes(passed=2, deselected=4)
    assert Counter(line.split()[0] for line in project.log) == {"fill": 2, "read": 2, "last": 2}


def test_a_repeated_step_that_writes_is_an_error_that_names_it(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        class TestChain:
            @pytest.mark.fsstack_repeat(3)
            def test_change(self, fsstack, timed):
                with timed(cold=False):
                    (fsstack.path / "file").touch()
    """)
    result = project.run("--fsstack-rounds=1")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*MeasureError: change * (file *"])


def test_what_a_step_writes_before_its_block_is_its_own_affair(project: Project) -> None:
    write(
        project,
        more="""
    @pytest.mark.fsstack_repeat(2)
    def test_prepared(self, fsstack, timed):
        (fsstack.path / "own").write_text("x")
        with timed(cold=False):
            (fsstack.path / "own").read_text()
        (fsstack.path / "own").unlink()
""",
    )
    project.run("--fsstack-rounds=1").assert_outcomes(passed=6)


def test_a_repetition_that_fails_ends_its_stack_and_the_round_has_no_sample_of_it(project: Project) -> None:
    project.write("""
        import pytest

        RUNS = []

        @pytest.mark.fsstack("plain", "crypt")
        class TestChain:
            @pytest.mark.fsstack_repeat(3)
            def test_read(self, fsstack, timed, log):
                log("read")
                RUNS.append(fsstack.stack.id)
                with timed(cold=False):
                    pass
                assert fsstack.stack.id == "plain" or RUNS.count("crypt") < 5, "the fifth run"
    """)
    result = project.run("--fsstack-rounds=3", "--fsstack-json=all.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: the fifth run*"])
    assert Counter(project.log) == {"read plain": 9, "read crypt": 5}
    (chain,) = chains_of(project.pytester.path / "all.json")
    assert [key.number for key in chain.of(chain.steps[0], "crypt")] == [0]
    # The stack was taken down before the next one was built.
    assert not [path for path in project.device.iterdir() if path.is_dir() and any(path.iterdir())]


ALONE = """
import pytest

@pytest.mark.fsstack("plain")
@pytest.mark.fsstack_repeat(3)
def test_alone(fsstack, timed):
    with timed(cold=False):
        pass
"""
WITHOUT_TIMED = """
    @pytest.mark.fsstack_repeat(2)
    def test_plain(self, fsstack):
        pass
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CHAIN.format(repeat="'often'", more=""), "*test_read*: fsstack_repeat: * 1 * 100, *'auto' *'often')"),
        (ALONE, "*test_alone: fsstack_repeat: *class*"),
        (CHAIN.format(repeat=3, more=WITHOUT_TIMED), "*test_plain: fsstack_repeat: * timed"),
    ],
)
def test_a_wrong_mark_is_refused_before_anything_runs(project: Project, text: str, message: str) -> None:
    project.write(text)
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert not (project.pytester.path / "log").exists()


@pytest.mark.parametrize(
    ("mark", "given"),
    [
        (pytest.mark.fsstack_repeat(0), "0"),
        (pytest.mark.fsstack_repeat(times=3), "times=3"),
        (pytest.mark.fsstack_repeat(2, 3), "2, 3"),
        (pytest.mark.fsstack_repeat(True), "True"),
        (pytest.mark.fsstack_repeat(), ""),
    ],
)
def test_what_is_no_number_is_told(mark: pytest.MarkDecorator, given: str, request: pytest.FixtureRequest) -> None:
    assert re.fullmatch(rf".* 1 .* 100, .*'auto' .*{given}\)", wrong_repeat(mark.mark, request.node))


def test_benchmark_disable_runs_it_once(project: Project) -> None:
    write(project)
    project.run("--benchmark-disable").assert_outcomes(passed=4)
    assert Counter(line.split()[0] for line in project.log) == {"fill": 2, "read": 2}
