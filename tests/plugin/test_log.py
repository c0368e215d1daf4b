"""--fsstack-log: a line for each round, from which the same results are read as from --fsstack-json."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from tests.plugin.conftest import Project

TEST = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.parametrize("number", [1, 2])
def test_step(fsstack, timed, number):
    with timed(cold=False):
        pass
"""
#: A disk that is full after two lines.
FULL = """
import errno
from pytest_fsstack.session.round_log import RoundLog

write = RoundLog._write

def write_two_lines(log, descriptor, line):
    if log._lines == 2:
        raise OSError(errno.ENOSPC, "No space left on device")
    write(log, descriptor, line)

RoundLog._write = write_two_lines
"""
WORDS = ("--fsstack-rounds=3", "--fsstack-log=log.jsonl", "--fsstack-json=out.json")


def read(path: Path) -> Results:
    results = saved.loads(path.read_bytes())
    return replace(results, chains=[replace(chain, derived={}) for chain in results.chains])


@pytest.mark.parametrize("words", [[], ["--fsstack-kernel=host", "-p", "xdist"]], ids=["loop", "controller"])
@pytest.mark.plugins("xdist")
def test_a_finished_log_says_what_the_json_says(project: Project, words: list[str]) -> None:
    project.write(TEST)
    (project.pytester.path / "log.jsonl").write_text("of an earlier session")
    result = project.run(*WORDS, *words)
    assert result.ret == 0
    log, json = (read(project.pytester.path / name) for name in ("log.jsonl", "out.json"))
    assert log == json
    assert sum(chain.rounds for chain in log.chains) == 6
    lines = (project.pytester.path / "log.jsonl").read_bytes().splitlines()
    # Of three rounds, the last two are mixed.
    assert len(lines) == 5


def test_rounds_that_were_discarded_are_in_the_log(project: Project) -> None:
    project.write(TEST)
    project.run(*WORDS, "--fsstack-drop-rounds=load>0.0000001")
    log, json = (read(project.pytester.path / name) for name in ("log.jsonl", "out.json"))
    assert log == json
    assert all(chain.discarded for chain in log.chains)


def test_a_log_that_cannot_be_written_is_refused_before_the_first_round(project: Project) -> None:
    project.write(TEST)
    for words, text in (
        (["--fsstack-log=no/such/log"], "*no/such*"),
        (["--fsstack-log=out.json", "--fsstack-json=out.json"], "*json=out.json: * log *"),
        (["--fsstack-log=/dev/stdout"], "*--fsstack-log: log=/dev/stdout: *"),
    ):
        result = project.run("--fsstack-rounds=1", *words)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, words
        result.stderr.fnmatch_lines([f"ERROR: {text}"])


@pytest.mark.parametrize("words", [[], ["--fsstack-kernel=host", "-p", "xdist"]], ids=["loop", "controller"])
@pytest.mark.plugins("xdist")
def test_a_session_whose_log_cannot_be_written_ends_with_that_round(project: Project, words: list[str]) -> None:
    project.write(TEST)
    project.pytester.makepyfile(full_disk=FULL)
    result = project.run("-p", "full_disk", *WORDS, *words)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*log=log.jsonl: * 2: No space left on device*"])
    log, json = (read(project.pytester.path / name) for name in ("log.jsonl", "out.json"))
    assert sum(chain.rounds for chain in log.chains) == 3
    assert sum(chain.rounds for chain in json.chains) == 4
    assert json.interrupted


def test_a_session_without_rounds_leaves_the_earlier_log(project: Project) -> None:
    project.write(TEST)
    log = project.pytester.path / "log.jsonl"
    log.write_text("of an earlier session")
    project.run("--fsstack-log=log.jsonl", "--fsstack-rounds=1", "-k", "nothing")
    project.run("--fsstack-log=log.jsonl", "--fsstack-rounds=1", "--fsstack-dry-run")
    assert log.read_text() == "of an earlier session"


def test_the_log_keeps_its_mode_and_a_link_in_its_place_is_followed_only_if_it_is_ours(project: Project) -> None:
    project.write(TEST)
    directory = project.pytester.path
    (directory / "real.jsonl").touch(mode=0o640)
    (directory / "log.jsonl").symlink_to("real.jsonl")
    assert project.run(*WORDS).ret == 0
    assert (directory / "log.jsonl").is_symlink()
    assert (directory / "real.jsonl").stat().st_mode & 0o777 == 0o640
    assert read(directory / "real.jsonl") == read(directory / "out.json")
    if os.geteuid() == 0:
        os.lchown(directory / "log.jsonl", 12345, 12345)
        result = project.run(*WORDS)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert "12345" in result.stderr.str()
