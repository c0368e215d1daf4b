"""Commands and files of fio jobs as tests: their ids, what else runs on them, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_fsstack.command import USAGE_ERROR
from pytest_fsstack.judging.overall import main_metric
from pytest_fsstack.machine import commands
from tests.plugin.conftest import Project
from tests.toolkit import chains_of

STACKS = ("--fsstack-stacks=plain", "--fsstack-stacks=crypt")


@pytest.fixture
def words(project: Project) -> list[str]:
    """Two steps on two stacks, of which the second one needs the first."""
    return [
        *STACKS,
        "--fsstack-setup=mkdir doc",
        "--fsstack-setup=touch doc/a",
        "--fsstack-command=pack=tar -cf {}/all.tar doc",
        "--fsstack-command=list=tar -tf all.tar",
        "--fsstack-check=test -s all.tar",
    ]


def ids(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("command::")]


def test_commands_are_steps_of_one_chain(project: Project, words: list[str]) -> None:
    result = project.run(*words, "--fsstack-rounds=2", "--fsstack-json=run.json", "--junitxml=junit.xml")
    assert result.ret == pytest.ExitCode.OK, result.stdout.str() + result.stderr.str()
    result.assert_outcomes(passed=4)
    (chain,) = json.loads(Path("run.json").read_text())["chains"]
    assert (chain["id"], list(chain["steps"])) == ("command", ["pack", "list"])
    cases = ElementTree.parse("junit.xml").iter("testcase")
    assert {(case.get("classname"), case.get("name")) for case in cases} == {
        ("command", f"{step}[{stack}]") for step in ("pack", "list") for stack in ("plain", "crypt")
    }


def test_a_selected_step_runs_with_those_before_it(project: Project, words: list[str]) -> None:
    result = project.run(*words, "--fsstack-rounds=1", "--collect-only", "-q", "-k", "list and crypt")
    assert ids(result) == ["command::list[crypt]"]
    result = project.run(*words, "--fsstack-rounds=1", "command::list[crypt]", "-v")
    assert result.ret == pytest.ExitCode.OK, result.stdout.str() + result.stderr.str()
    result.assert_outcomes(passed=1, deselected=3)


def test_tests_of_the_user_run_beside_commands(project: Project, words: list[str]) -> None:
    project.write("def test_own():\n    pass\n")
    alone = project.run(*words, "--collect-only", "-q")
    assert len(ids(alone)) == 4
    assert "test_own" not in alone.stdout.str()
    beside = project.run(*words, "--collect-only", "-q", "test_it.py")
    assert len(ids(beside)) == 4
    assert "test_own" in beside.stdout.str()


def test_a_scenario_runs_beside_commands(project: Project, words: list[str]) -> None:
    result = project.run(*words, "--collect-only", "-q", "--fsstack-scenario=hardlink_backup")
    assert len(ids(result)) == 4
    assert any(line.startswith("test_hardlink_backup.py::") for line in result.outlines)


def test_a_failure_shows_stderr_and_a_command_that_runs_it_again(project: Project, words: list[str]) -> None:
    result = project.run(*words, "--fsstack-check=list=ls no-such-file", "--fsstack-rounds=1")
    result.assert_outcomes(passed=2, failed=2)
    text = result.stdout.str()
    assert re.search(r"`ls no-such-file`.*\bexit code 2\b", text)
    assert "No such file" in text
    assert "Traceback" not in text
    assert "workloads/command.py" not in text


def test_a_budget_judges_and_its_failure_can_be_run_again(project: Project) -> None:
    slow = "--fsstack-command=nap=sh -c 'case {} in *crypt) sleep 0.2;; esac'"
    result = project.run(*STACKS, slow, "--fsstack-budget=crypt: seconds <= 0.1", "--fsstack-rounds=5")
    result.assert_outcomes(passed=1, failed=1)
    (again,) = [line.partition("again: ")[2] for line in result.outlines if "again: " in line]
    pytest_, test, *rest = shlex.split(again)
    assert (pytest_, test) == ("pytest", "command::nap[crypt]")
    assert slow in rest
    result = project.run(*[word for word in (test, *rest) if word != "-p no:cacheprovider"])
    result.assert_outcomes(failed=1, deselected=1)


def test_children_left_behind_are_ended_and_named(project: Project) -> None:
    result = project.run(
        *STACKS, "--fsstack-command=bg=setsid sleep 987 & sleep 0.2", "--fsstack-shell", "--fsstack-rounds=1"
    )
    result.assert_outcomes(failed=2)
    named = re.search(r"`setsid sleep 987 & .*`.* sleep \(\D*(\d+)\)", result.stdout.str())
    assert named
    number = int(named[1])
    assert commands.wait_until(lambda: not os.path.exists(f"/proc/{number}"), 60.0)


def test_a_shell_runs_only_if_asked_for(project: Project) -> None:
    line = "--fsstack-command=w=sh -c 'true' | false"
    # Without a shell the bar is an argument.
    project.run(*STACKS, line, "--fsstack-rounds=1").assert_outcomes(passed=2)
    project.run(*STACKS, line, "--fsstack-rounds=1", "--fsstack-shell").assert_outcomes(failed=2)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--fsstack-command=tar 'x"], ["--fsstack-command", "tar 'x", "quotation"]),
        (["--fsstack-command="], ["--fsstack-command: ", "''"]),
        (["--fsstack-command=pack="], ["--fsstack-command: ", "'pack='"]),
        (["--fsstack-command=true", "--fsstack-command=true a"], ["'true'", "first="]),
        (["--fsstack-command=no-such-program a"], ["no-such-program"]),
        (["--fsstack-command=true", "--fsstack-check=no-such-program a"], ["no-such-program"]),
        (["--fsstack-command=true", "--fsstack-check=other=true"], ["--fsstack-check", "'other'", "true"]),
        (["--fsstack-command=true", "--fsstack-setup=tar 'x"], ["--fsstack-setup", "quotation"]),
        (["--fsstack-check=false"], ["--fsstack-check", "--fsstack-command"]),
        (["--fsstack-command=SKIP=true tar -cf x ."], ["--fsstack-command", "SKIP", "env"]),
        (["--fsstack-command=pack=SKIP=true tar -cf x ."], ["--fsstack-command", "'SKIP=true'", "--shell", "env"]),
        (["--fsstack-command=true", "--fsstack-setup=a=1 true"], ["--fsstack-setup", "'a=1'", "--shell"]),
    ],
)
def test_mistakes_end_the_session_before_round_1(project: Project, words: list[str], facts: list[str]) -> None:
    result = project.run(*STACKS, *words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = result.stderr.str()
    assert all(fact in errors for fact in facts), errors
    assert "Traceback" not in errors


def test_commands_need_stacks(project: Project) -> None:
    result = project.run("--fsstack-command=true")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--fsstack-stacks" in result.stderr.str()


def test_the_doctor_and_the_dry_run_know_the_commands(project: Project) -> None:
    words = [*STACKS, "--fsstack-command=a=no-such-program x", "--fsstack-command=b=true"]
    result = project.run(*words, "--fsstack-doctor")
    assert result.ret == 1
    assert any(line.split()[:2] == ["step", "a"] and "no-such-program" in line for line in result.outlines)
    result = project.run(*words, "--fsstack-dry-run")
    assert result.ret == 0
    assert "command" in result.stdout.str()


def test_workers_of_xdist_skip_commands(project: Project, words: list[str]) -> None:
    pytest.importorskip("xdist")
    result = project.run(*words, "-p", "xdist", "-n1", "-rs")
    result.assert_outcomes(skipped=4)
    result.stdout.fnmatch_lines(["SKIPPED * -n 0 *"])


# -- fsstack bench -----------------------------------------------------------------------------------------------------


#: The last line: a sentence with the time on the baseline.
ANSWER = re.compile(r"^plain \D*[\d.]+ \S*s\b.*\.$", re.MULTILINE)


def bench(project: Project, *words: str) -> tuple[int, str]:
    """Return the exit code and the output of a process of its own."""
    command = [sys.executable, "-m", "pytest_fsstack.command", "bench", f"--fsstack-device=dir:{project.device}"]
    done = subprocess.run([*command, "-p", "no:cacheprovider", *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_bench_ends_with_a_table_and_a_sentence(project: Project) -> None:
    words = ["--stack", "plain", "--stack", "crypt", "--fsstack-rounds=5", "--setup", "touch a"]
    code, output = bench(project, *words, "--", "cp", "a", "b c")
    assert code == 0, output
    lines = output.strip().splitlines()
    assert ANSWER.match(lines[-1])
    assert "crypt" in lines[-1]
    assert any(line.startswith("seconds") and "cp" in line for line in lines)
    assert not any("::" in line or "passed" in line for line in lines)
    shown = re.findall(r"\bround(?:s \d to)? (\d) of 5\b", output)
    assert (shown[0], shown[-1]) == ("1", "5")


def test_bench_fails_by_a_budget_and_says_why(project: Project) -> None:
    words = ["--stack=plain", "--stack=crypt", "--budget", "crypt: seconds <= 0.1", "--fsstack-rounds=5", "--shell"]
    code, output = bench(project, *words, "--", "case {} in *crypt) sleep 0.2;; esac")
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert "FAIL" in output
    assert re.search(r"\bcrypt \D*\d", output.strip().splitlines()[-1])


def test_bench_shows_a_failure_once(project: Project) -> None:
    words = ["--stack=plain", "--fsstack-rounds=2", "--check", "ls no-such-file"]
    code, output = bench(project, *words, "--", "true")
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert output.count("No such file") == 1
    assert not ANSWER.search(output)


@pytest.mark.parametrize("words", [(), ("--", "")])
def test_bench_without_a_command_is_wrong(project: Project, words: tuple[str, ...]) -> None:
    code, output = bench(project, "--stack", "plain", *words)
    assert code == USAGE_ERROR
    assert re.fullmatch("fsstack: bench: .*\n", output)


@pytest.mark.parametrize(
    ("line", "name", "code"),
    [
        ("SKIP=true tar -cf a.tar /nonexistent", "tar", 1),
        ("files=$(cat list); test -n $files", "command", 0),
        ("n=1 m=2; test $n$m = 12", "test", 0),
    ],
)
def test_the_words_behind_two_dashes_are_one_command(project: Project, line: str, name: str, code: int) -> None:
    words = ["--stack", "plain", "--shell", "--fsstack-rounds=1", "--fsstack-json=r.json", "--setup=echo true > list"]
    ended, output = bench(project, *words, "--", line)
    assert ended == code, output
    (chain,) = chains_of(Path("r.json"))
    assert chain.steps == [name]


def test_a_shell_may_set_variables_in_a_check(project: Project) -> None:
    words = ["--stack", "plain", "--shell", "--fsstack-rounds=1", "--check", "n=$(ls | wc -l); test $n = 1"]
    code, output = bench(project, *words, "--", "touch one")
    assert code == 0, output


def test_an_assignment_without_a_shell_is_refused(project: Project) -> None:
    code, output = bench(project, "--stack", "plain", "--", "SKIP=true", "tar", "-cf", "a.tar", "/nonexistent")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert all(fact in output for fact in ("'SKIP=true'", "--shell", "env SKIP=true"))


def test_measured_commands_have_the_locale_of_the_user(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "LC_ALL", "LANG":
        monkeypatch.setenv(name, "C.UTF-8")
    lines = [f"{option}=test $LC_ALL-$LANG = C.UTF-8-C.UTF-8" for option in ("--setup", "--check")]
    words = ["--stack", "plain", "--shell", "--fsstack-rounds=1", *lines]
    code, output = bench(project, *words, "--", "test $LC_ALL-$LANG = C.UTF-8-C.UTF-8")
    assert code == 0, output


# -- files of fio jobs -------------------------------------------------------------------------------------------------

FIO = """
[global]
filename=data
size=64k
ioengine=psync
rw=randread
stonewall
[bs4k]
bs=4k
[bs16k]
bs=16k
[w]
bs=4k
rw=write
"""


@pytest.fixture
def jobs(project: Project) -> Path:
    path = project.pytester.path / "jobs/rand read.fio"
    path.parent.mkdir()
    path.write_text(FIO)
    return path


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_a_fio_file_is_a_test_whose_sections_are_metrics(project: Project, jobs: Path) -> None:
    result = project.run(
        *STACKS, jobs, "--fsstack-rounds=2", "--fsstack-report=html=page.html", "--fsstack-json=r.json"
    )
    assert result.ret == pytest.ExitCode.OK, result.stdout.str()
    result.assert_outcomes(passed=2)
    assert any(line.split()[:5] == ["iops", "bs4k", "read", "bs16k", "read"] for line in result.outlines)
    assert re.search(r"rand_read: randread: [^<]*\biops\b[^<]*\bbs\b", Path("page.html").read_text())
    (chain,) = chains_of(Path("r.json"))
    assert chain.id == "jobs/rand read.fio::rand_read"
    for metric in "fio_bs4k_read_iops", "fio_bs16k_read_latency_p99", "fio_w_write_bandwidth", "fio_read_iops":
        assert chain.median("rand_read", "crypt", metric), metric
    assert main_metric(chain, "rand_read") == "fio_read_iops"


def test_fio_files_are_collected_by_their_names(project: Project, jobs: Path) -> None:
    shutil.copy(jobs, jobs.with_suffix(".job"))

    def collected(*words: str) -> list[str]:
        return [line for line in project.run("--collect-only", "-q", *words).outlines if "::" in line]

    one = "jobs/rand read.fio::rand_read"
    assert collected("jobs/rand read.fio", *STACKS) == [f"{one}[plain]", f"{one}[crypt]"]
    assert collected(f"{one}[crypt]", *STACKS) == [f"{one}[crypt]"]
    assert collected("jobs", *STACKS) == []
    assert collected("jobs", "--fsstack-stacks=plain", "-o", "fsstack_fio=jobs/*.job") == [
        "jobs/rand read.job::rand_read[plain]"
    ]
    assert collected("jobs/rand read.fio") == [one]
    result = project.run("jobs", "--fsstack-fio=*.job", "--fsstack-fio=*.ini")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-fio=[*].ini: *"])


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("filename=/dev/loop0", "4:10"),
        ("exec_prerun=touch x", "4:13"),
        ("directory=../..", "4:11"),
        ("ioengine=net", "4:10"),
    ],
)
def test_a_fio_file_that_leads_out_is_refused_before_round_1(project: Project, line: str, place: str) -> None:
    path = project.pytester.path / "bad.fio"
    path.write_text(f"[a]\nrw=write\nsize=4k\n{line}\n")
    result = project.run(*STACKS, "bad.fio")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = result.stdout.str()
    assert f"bad.fio:{place}: " in text
    assert "Traceback" not in text
    assert not list(project.device.iterdir())


@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_bench_runs_a_fio_file(project: Project, jobs: Path) -> None:
    words = ["jobs/rand read.fio", "--stack", "plain", "--stack", "crypt", "--fsstack-rounds=1"]
    code, output = bench(project, *words)
    assert code == 0, output
    assert re.match(r"plain \D*\d.*\(fio read iops\)", output.strip().splitlines()[-1])
