"""Scripts of counterexamples, run by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.correctness.contents import Comparison
from pytest_fsstack.correctness.drawing import REMOUNT, THEMES, Call, Theme, draw
from pytest_fsstack.correctness.exploring import steps_of
from pytest_fsstack.correctness.scripts import python


def run(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(script)
    words = [sys.executable, "-I", str(path), str(tmp_path), "true"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


ALONE = [theme for theme in THEMES if theme.name != "figures" and not theme.at_once]


@pytest.mark.parametrize("theme", ALONE, ids=lambda theme: theme.name)
def test_a_script_gives_the_answers_of_the_model(tmp_path: Path, theme: Theme) -> None:
    calls = [*draw(theme, "1"), REMOUNT]
    comparison = Comparison(tmp_path / "stack", tmp_path / "model", lambda: None)
    for call in calls:
        comparison.make(call)
    answers = comparison.answers
    comparison.dispose()
    done = run(python(calls, answers, "", {"kind": "directory"}, 'a \\ title with "quotes"'), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("the directory: kind directory\n")


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme.at_once], ids=lambda theme: theme.name)
def test_a_script_of_two_processes_knows_all_possible_answers(tmp_path: Path, theme: Theme) -> None:
    comparison = Comparison(tmp_path / "stack", tmp_path / "model", lambda: None)
    calls = draw(theme, "1")
    for step in steps_of(calls):
        if not step[0].at_once:
            comparison.make(*step)
    answers, histories = (
        comparison.answers,
        [[call for call in calls if call.process == number and call.at_once] for number in (1, 2)],
    )
    possible = comparison._possible(comparison.calls, histories)
    comparison.dispose()
    assert run(python(calls, answers, "", {}, "", possible), tmp_path).returncode == 0
    done = run(python(calls, answers, "", {}, "", [["other"]]), tmp_path)
    assert done.returncode == 1
    assert "instead of any that is possible" in done.stdout


def test_a_script_fails_where_an_answer_or_the_state_is_another(tmp_path: Path) -> None:
    calls = [Call("open", (0, "a", "RDWR CREAT", 0o644)), Call("pwrite", (0, 0, 10, 1))]
    done = run(python(calls, ["done", "9"], "a", {"size": 10, "content": b"x"}, ""), tmp_path)
    assert done.returncode == 1
    assert "10 instead of 9" in done.stdout
    assert "a: size 10\n" in done.stdout
    assert "instead of 1 bytes, crc32" in done.stdout
    assert done.stderr == ""
    assert run(python(calls, ["done", "10"], "b", {"size": 1}, ""), tmp_path).returncode == 1
