"""Scripts of counterexamples, run by themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from itertools import starmap
from pathlib import Path

import pytest

from pytest_fsstack.truth.correctness.calls import data
from pytest_fsstack.truth.correctness.contents import Comparison
from pytest_fsstack.truth.correctness.drawing import REMOUNT, THEMES, Call, Theme, draw
from pytest_fsstack.truth.correctness.exploring import steps_of
from pytest_fsstack.truth.correctness.scripts import c, python
from pytest_fsstack.workloads.build import LIBC


def run(script: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "script.py"
    path.write_text(script)
    words = [sys.executable, "-I", str(path), str(tmp_path), "true"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


COMPILES = shutil.which("gcc") is not None and LIBC.missing() is None
ALONE = [theme for theme in THEMES if theme.name != "figures" and not theme.at_once]


def run_c(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    (tmp_path / "program.c").write_text(program)
    flags = ["-Wall", "-Wextra", "-Werror", "-Wno-format-truncation"]
    subprocess.run(["gcc", *flags, "-o", tmp_path / "program", tmp_path / "program.c"], check=True)
    return subprocess.run([tmp_path / "program", tmp_path, "true"], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("theme", ALONE, ids=lambda theme: theme.name)
def test_programs_give_the_answers_of_the_model(tmp_path: Path, theme: Theme) -> None:
    calls = [*draw(theme, "1"), REMOUNT]
    comparison = Comparison(tmp_path / "stack", tmp_path / "model", lambda: None)
    for call in calls:
        comparison.make(call)
    answers = comparison.answers
    comparison.dispose()
    result = run(python(calls, answers, "", {"kind": "directory"}, 'a \\ title with "quotes"'), tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith(": kind directory\n")
    program = c(calls, answers, "", {"kind": "directory"}, "a title")
    assert bool(program) == (theme.name not in ("locks of processes", "mappings of processes", "syncs"))
    if program and COMPILES:
        result = run_c(program, tmp_path)
        assert result.returncode == 0, result.stdout
        assert result.stdout.endswith(": kind: directory\n")


@pytest.mark.parametrize("theme", [theme for theme in THEMES if theme.at_once], ids=lambda theme: theme.name)
def test_a_script_of_two_processes_knows_all_possible_answers(tmp_path: Path, theme: Theme) -> None:
    comparison = Comparison(tmp_path / "stack", tmp_path / "model", lambda: None)
    calls = [*draw(theme, "1")]
    for step in steps_of(calls):
        if not step[0].at_once:
            comparison.make(*step)
    answers, histories = (
        comparison.answers,
        [[call for call in calls if call.process == number and call.at_once] for number in (1, 2)],
    )
    possible = comparison._possible(histories)
    comparison.dispose()
    result = run(python(calls, answers, "", {}, "", possible), tmp_path)
    assert result.returncode == 0
    assert result.stdout.endswith("]\n")
    result = run(python(calls, answers, "", {}, "", [["other"]]), tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    # Words follow the list of the answers.
    assert not result.stdout.endswith("]\n")


def test_a_directory_has_no_positions_and_mappings_since_its_size_is_the_filesystems_choice(tmp_path: Path) -> None:
    asked = (
        ("lseek", (0, "END", 0)),
        ("seek_data", (0, 4097)),
        ("mmap_read", (0, 4079, 100)),
        ("mmap_write", (0, 0, 9, 1)),
    )
    calls = [Call("mkdir", ("d", 0o755)), Call("open", (0, "d", "RDONLY DIRECTORY", 0)), *starmap(Call, asked)]
    answers = ["done", "done", *["EISDIR"] * len(asked)]
    assert run(python(calls, answers, "", {"kind": "directory"}, ""), tmp_path).returncode == 0
    program = c(calls, answers, "", {"kind": "directory"}, "")
    assert program
    assert not COMPILES or run_c(program, tmp_path).returncode == 0


def test_a_script_fails_where_an_answer_or_the_state_is_another(tmp_path: Path) -> None:
    calls = [Call("open", (0, "a", "RDWR CREAT", 0o644)), Call("pwrite", (0, 0, 10, 1))]
    result = run(python(calls, ["done", "9"], "a", {"size": 10, "content": b"x"}, ""), tmp_path)
    assert result.returncode == 1
    assert re.search(r"pwrite\(0, 0, 10, 1\): 10 .*\b9\n", result.stdout)
    assert "a: size 10\n" in result.stdout
    assert re.search(r"a: content 10 bytes, crc32 \w+ .*\b1 bytes, crc32 ", result.stdout)
    assert result.stderr == ""
    assert run(python(calls, ["done", "10"], "b", {"size": 1}, ""), tmp_path).returncode == 1


@pytest.mark.skipif(not COMPILES, reason="needs a C compiler: apt install gcc libc6-dev")
def test_a_program_in_c_fails_where_an_answer_or_the_state_is_another(tmp_path: Path) -> None:
    calls = [Call("open", (0, "a", "RDWR CREAT", 0o644)), Call("pwrite", (0, 0, 10, 1)), Call("symlink", ("a", "s"))]
    expected = {"size": 10, "content": data(10, 1), "links": 1, "mode": "644", "owner": f"{os.getuid()}:{os.getgid()}"}
    result = run_c(c(calls, ["done", "10", "done"], "a", {**expected, "kind": "file", "mtime": "now"}, ""), tmp_path)
    assert result.returncode == 0, result.stdout
    result = run_c(c(calls, ["done", "9", "done"], "s", {"target": "b"}, ""), tmp_path)
    assert result.returncode == 1
    assert re.search(r"pwrite\(.*\): 10 .*\b9\n", result.stdout)
    assert re.search(r"s: target: a .*\bb\n", result.stdout)
