"""The command that a failure prints, which runs its test alone."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.hooks import PARSER
from pytest_fsstack.options import OPTIONS, Option, declare, read, rerun_command
from tests.plugin.conftest import Project

DEAR = """
import pytest

@pytest.mark.fsstack("plain", "dear = crypt(cost=150)")
@pytest.mark.fsstack_budget(overhead=0.10, metric="cost")
def test_it(fsstack, timed, cost):
    with timed(cold=False):
        pass
    timed.record("cost", cost)
"""


@pytest.fixture(scope="session")
def parser(pytestconfig: pytest.Config) -> pytest.Parser:
    declare(pytestconfig)
    return pytestconfig.stash[PARSER]


def words_of(option: Option) -> st.SearchStrategy[list[str]]:
    """The ways to give one option a text that its parser of words accepts."""
    if option.flag:
        return st.just([option.flags])
    text = st.text("az09 =:'\"*|", min_size=1).filter(lambda text: not option.bare or text.strip())
    one = st.builds(lambda text, two: [option.flags, text] if two else [f"{option.flags}={text}"], text, st.booleans())
    several = st.lists(one, min_size=1, max_size=3 if option.many else 1)
    return several.map(lambda found: [word for words in found for word in words])


#: Words of pytest and of other plugins, and some that no plugin knows.
OTHERS = st.sampled_from(
    [["-x"], ["-vv"], ["-k", "x or y"], ["t.py"], ["--unknown"], ["--unknown", "t.py"], ["--unknown=1"], ["-n", "2"]]
)
OF_PYTEST = st.sampled_from([["-p", "no:cacheprovider"], ["-o", "fsstack_rounds=3"], ["-c", "other.ini"]])
WORDS = st.lists(st.one_of(OTHERS, OF_PYTEST, *map(words_of, OPTIONS)), max_size=8).map(
    lambda found: [word for words in found for word in words]
)


@given(words=WORDS, seed=st.integers(0, 2**32 - 1))
def test_it_repeats_the_marked_options_and_none_of_the_others(
    parser: pytest.Parser, words: list[str], seed: int
) -> None:
    before = read(parser, words)
    program, *printed = shlex.split(rerun_command(parser, "t.py::test_x[xfs]", words, seed))
    after, nothing = read(parser, printed), read(parser, [])
    assert program == "pytest"
    assert after["file_or_dir"] == ["t.py::test_x[xfs]"]
    for name in ("plugins", "override_ini", "inifilename", *(option.ini_name for option in OPTIONS if option.repeated)):
        assert after[name] == before[name], name
    for option in OPTIONS:
        if option.name == "seed":
            assert after["fsstack_seed"] == str(seed)
        elif not option.repeated:
            assert after[option.ini_name] == nothing[option.ini_name], option.name


def printed(result: pytest.RunResult) -> list[str]:
    line = next(line for line in result.outlines if line.startswith("  again:"))
    return shlex.split(line.partition(":")[2])[1:]


def test_the_printed_command_runs_and_fails_again(project: Project) -> None:
    project.write(DEAR)
    history = project.pytester.mkdir("history")
    first = project.run(f"--fsstack-history={history}", "--fsstack-max-regression=5%", "--unknown-to-nobody")
    assert first.ret == pytest.ExitCode.USAGE_ERROR
    options = ["-o", "fsstack_rounds=8", f"--fsstack-history={history}", f"--fsstack-json={history / 'all.json'}"]
    first = project.run(*options)
    first.assert_outcomes(passed=1, failed=1)
    lines = len(list(history.glob("*.jsonl"))) and next(history.glob("*.jsonl")).read_text().count("\n")
    second = project.pytester.runpytest_subprocess(*printed(first))
    second.assert_outcomes(failed=1)
    second.stdout.fnmatch_lines(["fsstack: *; 8 rounds; *"])
    assert next(history.glob("*.jsonl")).read_text().count("\n") == lines == 1


def test_it_names_the_test_from_where_the_session_was_started(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(DEAR)
    project.pytester.makeini("[pytest]\n")
    monkeypatch.chdir(project.pytester.mkdir("below"))
    first = project.run("..", "--fsstack-rounds=8")
    assert printed(first)[0] == "../test_it.py::test_it[dear]"
    project.pytester.runpytest_subprocess(*printed(first)).assert_outcomes(failed=1)
