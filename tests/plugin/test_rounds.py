"""Runs of chains in rounds, stack by stack, reported once."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.plugin.conftest import Project
from tests.toolkit import chains_of

CHAIN = """
import pytest

@pytest.mark.fsstack("plain", "crypt", "plain | crypt")
class TestChain:
    @pytest.mark.benchmark
    def test_first(self, fsstack, timed, cost, log):
        log("first")
        assert not (fsstack.path / "file").exists(), "the stack is not fresh"
        with timed(cold=False):
            (fsstack.path / "file").write_text("x")

    @pytest.mark.benchmark
    def test_second(self, fsstack, timed, log):
        log("second")
        with timed(cold=False):
            (fsstack.path / "file").unlink()
"""


def orders(log: list[str]) -> list[str]:
    return [line.split()[1] for line in log if line.startswith("first")]


def test_steps_after_the_last_open_one_are_not_run_again(project: Project) -> None:
    project.write(CLEAR_AT_LAST)
    result = project.run("--fsstack-json=out.json")
    result.assert_outcomes(passed=3, skipped=1)
    ran, (chain,) = Counter(project.log), chains_of(project.pytester.path / "out.json")
    assert ran["second plain"] == ran["second crypt"] == 6
    assert ran["first plain"] == ran["first crypt"] == chain.rounds > 30
    assert {step: estimate.rounds for step in chain.steps if (estimate := chain.overhead(step, "crypt", "cost"))} == {
        "first": chain.rounds,
        "second": 6,
    }
    result.stdout.fnmatch_lines([f"figures * 6 to {chain.rounds} of at most 78 rounds*"])


CLEAR_AT_LAST = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget("10%", metric="cost")
class TestChain:
    def test_first(self, fsstack, fsstack_seed, timed, log):
        log("first")
        with timed(cold=False):
            pass
        # Above and below the budget in turn.
        near = 96 + fsstack_seed % 9 if fsstack.stack.id == "plain" else 110
        timed.record("cost", near, unit="coins")

    def test_second(self, fsstack, timed, log):
        log("second")
        with timed(cold=False):
            pass
        timed.record("cost", 100, unit="coins")
"""


def test_every_stack_runs_its_chain_once_a_round_on_one_fresh_build(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=4")
    result.assert_outcomes(passed=6)
    assert Counter(project.log) == {
        f"{step} {stack}": 4 for step in ("first", "second") for stack in ("plain", "crypt", "plain+crypt")
    }
    # The steps of a chain follow each other.
    assert all(
        first.split()[0] == "first" and second == first.replace("first", "second")
        for first, second in zip(project.log[::2], project.log[1::2])
    )
    assert len(set(orders(project.log)[:3])) == 3


def test_with_four_stacks_a_round_ends_before_the_next_one_begins(project: Project) -> None:
    project.write(CHAIN.replace('"plain | crypt"', '"plain | crypt", "crypt | plain"'))
    project.run("--fsstack-rounds=4")
    names = orders(project.log)
    assert all(len(set(names[index : index + 4])) == 4 for index in range(0, 16, 4))


@pytest.mark.parametrize(
    ("options", "rounds"),
    [
        ((), 1),
        (("--fsstack-scale=smoke",), 1),
        (("--fsstack-rounds=3",), 3),
        (("--fsstack-scale=smoke", "--fsstack-budget=crypt: 900%"), 5),
    ],
)
def test_a_marker_names_the_rounds_unless_options_need_others(
    options: tuple[str, ...], rounds: int, project: Project
) -> None:
    project.write(CHAIN.replace("class TestChain", "@pytest.mark.fsstack_rounds(1)\nclass TestChain"))
    project.run(*options)
    assert Counter(project.log)["first plain"] == rounds


def test_a_limit_on_changes_overrides_the_rounds_of_a_marker(project: Project) -> None:
    project.write(CHAIN.replace("class TestChain", "@pytest.mark.fsstack_rounds(1)\nclass TestChain"))
    project.run("--fsstack-scale=smoke", "--fsstack-json=then.json")
    project.run("--fsstack-scale=smoke", "--fsstack-compare=then.json", "--fsstack-max-regression=5%")
    assert Counter(project.log)["first plain"] == 1 + 5


@pytest.mark.parametrize("arguments", ["", "0", "'auto'", "True", "1, 2"])
def test_a_marker_without_a_number_of_rounds_is_refused(arguments: str, project: Project) -> None:
    project.write(CHAIN.replace("class TestChain", f"@pytest.mark.fsstack_rounds({arguments})\nclass TestChain"))
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_it.py::TestChain::test_first * 1 *: fsstack_rounds: *"])


def test_the_seed_replays_the_order_and_what_a_test_draws_for_all_stacks_of_a_round(project: Project) -> None:
    drawing = CHAIN.replace("cost, log", "fsstack_seed, log").replace('log("first")', 'log(f"first {fsstack_seed}")')
    project.write(drawing)
    seen, orders = [], []
    for seed in (1, 1, 2):
        (project.pytester.path / "log").unlink(missing_ok=True)
        project.run("--fsstack-rounds=6", f"--fsstack-seed={seed}").stdout.fnmatch_lines([f"*--fsstack-seed={seed}"])
        lines = [line.split() for line in project.log if line.startswith("first")]
        rounds = {drawn: {stack for _, other, stack in lines if other == drawn} for _, drawn, _ in lines}
        assert all(len(stacks) == 3 for stacks in rounds.values())
        seen.append(sorted(rounds))
        orders.append([stack for _, _, stack in lines])
    assert seen[0] == seen[1]
    assert len({*seen[0], *seen[2]}) == 12
    assert orders[0] == orders[1] != orders[2]


def test_one_item_per_test_and_stack_is_reported_in_their_collected_order(project: Project) -> None:
    project.write(CHAIN)
    collected = project.run("--collect-only", "-q").stdout.lines
    names = [line for line in collected if "::" in line]
    reported = [
        line.split(" ")[0]
        for line in project.run("--fsstack-rounds=2", "-v").stdout.lines
        if line.startswith("test_it.py::") and "PASSED" in line
    ]
    assert len(names) == 6
    assert reported == names


def test_a_deselected_baseline_and_earlier_steps_run_but_are_not_reported(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=2", "-k", "second and crypt and not plain", "-v")
    result.assert_outcomes(passed=1, deselected=5)
    assert Counter(project.log) == {
        "first plain": 2,
        "first crypt": 2,
        "second plain": 2,
        "second crypt": 2,
    }


def test_a_node_id_brings_its_baseline_and_earlier_steps_too(project: Project) -> None:
    project.write(CHAIN)
    project.run("--fsstack-rounds=2", "test_it.py::TestChain::test_second[crypt]").assert_outcomes(passed=1)
    assert set(project.log) == {"first plain", "first crypt", "second plain", "second crypt"}


def test_a_test_that_is_collected_twice_runs_once_and_says_so(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=2", "--keep-duplicates", "-rs", "-k", "plain", "test_it.py", "test_it.py")
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == outcomes["skipped"] == 4
    result.stdout.fnmatch_lines(["SKIPPED*test_it.py:*twice*"])
    assert Counter(project.log)["first plain"] == 2


def test_a_failing_step_ends_its_stack_with_its_own_error_and_no_other_stack(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        class TestChain:
            @pytest.mark.benchmark
            def test_first(self, fsstack, timed, log):
                log("first")
                with timed(cold=False):
                    pass

            @pytest.mark.benchmark
            def test_second(self, fsstack, timed, log):
                log("second")
                with timed(cold=False):
                    assert fsstack.stack.id != "crypt", "this disk is full"

            @pytest.mark.benchmark
            def test_third(self, fsstack, timed, log):
                log("third")
                with timed(cold=False):
                    pass
    """)
    result = project.run("--fsstack-rounds=3", "-rs")
    result.assert_outcomes(passed=4, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["*AssertionError: this disk is full*", "SKIPPED*test_it.py:*: second * crypt*"])
    assert Counter(project.log) == {
        **{f"{step} plain": 3 for step in ("first", "second", "third")},
        "first crypt": 1,
        "second crypt": 1,
    }


def test_class_and_function_fixtures_are_set_up_and_torn_down_each_round(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.fixture(scope="session")
        def once(request):
            with open(request.config.rootpath / "log", "a") as file:
                print("session", file=file)

        @pytest.fixture(scope="class")
        def prepared(fsstack, request):
            path = request.config.rootpath / "log"
            with open(path, "a") as file:
                print("up", fsstack.stack.id, file=file)
            yield
            assert fsstack.path.exists(), "the stack went before what stands on it"
            with open(path, "a") as file:
                print("down", fsstack.stack.id, file=file)

        @pytest.mark.fsstack("plain", "crypt")
        class TestChain:
            @pytest.mark.benchmark
            def test_first(self, once, prepared, timed):
                with timed(cold=False):
                    pass

            def test_second(self, prepared, fsstack):
                pass

        def test_other(once):
            pass
    """)
    project.run("--fsstack-rounds=3").assert_outcomes(passed=5)
    assert Counter(project.log) == {
        "session": 1,
        **{f"{way} {name}": 3 for way in ("up", "down") for name in ("plain", "crypt")},
    }
    ups = [line for line in project.log if line != "session"]
    assert all(down == up.replace("up", "down") for up, down in zip(ups[::2], ups[1::2]))


def test_tests_without_a_benchmark_run_once_as_pytest_runs_them(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        def test_it(fsstack, log):
            log("ran")
    """)
    project.run().assert_outcomes(passed=2)
    assert project.log == ["ran plain", "ran crypt"]


def test_a_function_is_a_chain_of_its_own_for_each_of_its_parameters(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.parametrize("size", ["4k", "64k"])
        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_write(fsstack, timed, size):
            with timed(cold=False):
                pass
    """)
    file = project.pytester.path / "out.json"
    project.run("--fsstack-rounds=2", f"--fsstack-json={file}").assert_outcomes(passed=4)
    chains = chains_of(file)
    assert [chain.steps for chain in chains] == [["write[4k]"], ["write[64k]"]]
    assert all(list(chain.stacks) == ["plain", "crypt"] for chain in chains)


def test_pytest_benchmarks_own_fixture_is_a_step_too(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark(min_rounds=1, max_time=0.001)
        def test_it(fsstack, benchmark):
            benchmark(fsstack.path.stat)
    """)
    project.run("--fsstack-rounds=3", "--benchmark-json=bench.json").assert_outcomes(passed=2)
    records = json.loads((project.pytester.path / "bench.json").read_text())["benchmarks"]
    assert {record["fullname"]: record["stats"]["rounds"] for record in records} == {
        "test_it.py::test_it[plain]": 3,
        "test_it.py::test_it[crypt]": 3,
    }


def test_a_stack_that_cannot_be_built_errs_with_the_command_and_without_a_traceback(project: Project) -> None:
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=2", "--fsstack-stacks=plain", "--fsstack-stacks=broken")
    result.assert_outcomes(passed=2, errors=1, skipped=1)
    result.stdout.fnmatch_lines(["*`broken` * dir:* broken: `ls /no/such/file` *2)*"])
    for words in "*Traceback*", "*contextlib.py*", "*direct cause*", "*another exception*":
        result.stdout.no_fnmatch_line(words)
    # Once where it happened. The other lines are summaries.
    errors = result.stdout.str().partition(" ERRORS ")[2].partition(" answer ")[0]
    assert errors.count("`broken`") == 1


def test_dash_x_stops_the_rounds_at_the_first_failure(project: Project) -> None:
    project.write("""
        import pytest

        @pytest.mark.fsstack("crypt", "plain")
        @pytest.mark.benchmark
        def test_it(fsstack, timed, log):
            log("ran")
            with timed(cold=False):
                assert fsstack.stack.id != "crypt"
    """)
    project.run("-x").assert_outcomes(failed=1)
    assert Counter(project.log)["ran plain"] == 1


def test_an_interrupted_session_tears_down_and_shows_what_it_has(project: Project) -> None:
    project.write("""
        import os, signal
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_it(request, fsstack, timed, log):
            log("ran")
            with timed(cold=False):
                pass
            if len((request.config.rootpath / "log").read_text().splitlines()) == 5:
                os.kill(os.getpid(), getattr(signal, os.environ["SIGNAL"]))
    """)
    for name, status in ("SIGINT", 130), ("SIGTERM", 143):
        (project.pytester.path / "log").unlink(missing_ok=True)
        project.pytester._monkeypatch.setenv("SIGNAL", name)
        result = project.run()
        assert result.ret == status
        assert len(project.log) == 5
        assert list(project.device.iterdir()) == []
        # The tables, although pytest has no summary with such an exit code.
        result.stdout.fnmatch_lines(["crypt *"])


BUSY = """
from pytest_fsstack.measuring import load

readings = iter(range(10**6))

def read():
    # Two in each round, and one when the options are read.
    number = (next(readings) + 1) // 2
    return load.Reading(float(number), load=5.0 if number in BUSY else 0.5, ticks=number, stolen=0)

load.read = read
"""


def test_rounds_in_which_the_machine_is_busy_are_discarded_for_all_stacks_and_replaced(project: Project) -> None:
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + BUSY.replace("BUSY", "(2, 3)"))
    project.write(CHAIN)
    result = project.run("--fsstack-rounds=4", "--fsstack-drop-rounds=load>2, steal>5%", "--fsstack-json=out.json")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["figures * 4 rounds (2 *load>2 (2))*"])
    assert set(Counter(project.log).values()) == {6}
    (chain,) = chains_of(project.pytester.path / "out.json")
    assert chain.rounds == len(chain.conditions) == 4
    assert [each.conditions["load"] for each in chain.discarded] == [5.0, 5.0]
    assert [each.replaced_by for each in chain.discarded] == [1, 1]
    assert all(sum(map(len, each.samples.values())) == 6 for each in chain.discarded)
    assert all([key.number for key in chain.of(step, "crypt")] == [0, 1, 2, 3] for step in chain.steps)


def test_a_machine_that_is_always_busy_ends_the_chain_after_as_many_rounds_as_planned(project: Project) -> None:
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + BUSY.replace("BUSY", "range(10**6)"))
    project.write(CHAIN)
    words = ("--fsstack-rounds=3", "--fsstack-drop-rounds=load>2", "--fsstack-budget=50%", "-rs")
    result = project.run(*words, "--fsstack-json=out.json")
    result.assert_outcomes(skipped=6)
    result.stdout.fnmatch_lines(["[*] 3 *load>2 (3)*", "fsstack: *4 budgets*", "SKIPPED*inconclusive: * 3 *load>2 (3)"])
    (chain,) = chains_of(project.pytester.path / "out.json")
    assert chain.judged == 0
    assert set(Counter(project.log).values()) == {3}
    assert project.run(*words, "--fsstack-strict").parseoutcomes()["failed"] >= 4


INTERLEAVED = """
import pytest

@pytest.fixture(scope="module", autouse=True)
def module(request):
    with open(request.config.rootpath / "scopes", "a") as file:
        print("up", request.node.name, file=file, flush=True)
        yield
        print("down", request.node.name, file=file, flush=True)

class Steps:
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            (fsstack.path / "file").touch()

    def test_read(self, fsstack, timed):
        with timed(cold=False):
            assert (fsstack.path / "file").exists()

@pytest.mark.fsstack("plain", "crypt")
class TestOne(Steps):
    pass

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.usefixtures("size")
@pytest.mark.parametrize("size", [1, 2])
class TestTwo(Steps):
    def test_size(self, fsstack, timed, size):
        with timed(cold=False):
            assert (fsstack.path / "file").exists()

class TestWithoutStacks:
    def test_it(self):
        pass

    def test_more(self):
        pass

def test_function():
    pass
"""
ORDER = """
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    order = {order}
    items.sort(key=order)
"""


@pytest.mark.parametrize(
    "order",
    [
        # Classes of a module are interleaved, then those of both modules.
        "lambda item: (item.path.name, len(item.name))",
        "lambda item: (item.originalname, item.callspec.id if hasattr(item, 'callspec') else '', item.path.name)",
        *(f"lambda item, rng=__import__('random').Random({seed}): rng.random()" for seed in range(3)),
    ],
)
def test_tests_in_any_order_run_once_and_tear_down_their_modules(project: Project, order: str) -> None:
    project.write(INTERLEAVED)
    project.pytester.makepyfile(test_other=INTERLEAVED, test_zero="def test_last():\n    pass\n")
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write(ORDER.format(order=order))
    result = project.run("--fsstack-rounds=2")
    result.assert_outcomes(passed=2 * (4 + 12 + 3) + 1)
    scopes = (project.pytester.path / "scopes").read_text().splitlines()
    # No module begins before the last one has ended.
    assert all(down == up.replace("up", "down") for up, down in zip(scopes[::2], scopes[1::2]))
    assert len(scopes) % 2 == 0


def test_an_error_of_a_modules_fixture_is_that_of_its_last_test(project: Project) -> None:
    project.write(INTERLEAVED.replace('        print("down"', '        assert not "broken"\n        print("down"'))
    project.pytester.makepyfile(test_zero="def test_last():\n    pass\n")
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write(ORDER.format(order="lambda item: (item.path.name, item.cls is not None, len(item.name))"))
    result = project.run("--fsstack-rounds=2", "-rE")
    result.assert_outcomes(passed=4 + 12 + 3 + 1, errors=1)
    result.stdout.fnmatch_lines(["ERROR *test_it.py::TestTwo::*"])


SESSION_FIXTURE = """

@pytest.fixture(scope="session", autouse=True)
def of_session():
    yield
    pytest.fail("broken")
"""

LEFT_OUT = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    def test_first(self, fsstack, timed):
        pytest.skip("not today")

    def test_second(self, fsstack, timed):
        pass
"""


def test_an_error_of_a_sessions_fixture_has_no_frame_of_the_plugin(project: Project) -> None:
    project.write(LEFT_OUT)
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write(SESSION_FIXTURE)
    result = project.run("--fsstack-rounds=2")
    result.assert_outcomes(skipped=4, errors=1)
    assert "pytest_fsstack/" not in result.stdout.str()
