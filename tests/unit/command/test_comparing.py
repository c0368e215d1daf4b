"""`fsstack compare`: two sides of saved runs, the exit codes, and a sentence for what cannot be compared or judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_fsstack.over_time.comparison import ONE_RUN_EACH
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from tests.unit.command.conftest import RunCommand
from tests.unit.over_time.test_comparison import run

COMMAND = ("compare",)


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five runs then, in which luks cost about 50 % over ext4, and three now at about 65 %."""
    monkeypatch.chdir(tmp_path)
    for side, overheads in {"then": (0.49, 0.50, 0.51, 0.50, 0.49), "now": (0.64, 0.65, 0.66)}.items():
        Path(side).mkdir()
        for number, overhead in enumerate(overheads):
            Path(side, f"{number}.json").write_text(saved.dumps(run(overhead)))


def test_two_files_are_figures_and_the_older_one_is_first(run_command: RunCommand) -> None:
    out = run_command("then/1.json", "now/1.json", code=0)
    assert "+50.0 %" in out
    assert "+10.0 %" in out
    assert f"* {ONE_RUN_EACH}" in out.splitlines()
    assert "-9.1 %" in run_command("now/1.json", "then/1.json", code=0)


@pytest.mark.parametrize(
    "words",
    [
        ("then", "now"),
        ("then/0.json", "then/1.json", "then/2.json", "--now", "now"),
        ("then/0.json", "then/1.json", "then/2.json", "--now", "now/0.json", "now/1.json", "now/2.json"),
        ("then", "now/0.json"),
    ],
)
@pytest.mark.parametrize("option", ["--limit", "--max-regression"])
def test_a_regression_is_exit_code_1_and_a_line(run_command: RunCommand, words: tuple[str, ...], option: str) -> None:
    out = run_command(*words, option, "5%", code=1)
    assert "FAIL" in out
    assert "fsstack: luks: seconds +" in out.splitlines()[-1]
    assert out.splitlines()[-1].endswith("limit 5 %")


def test_what_keeps_to_the_limit_passes(run_command: RunCommand) -> None:
    assert " pass" in run_command("then", "now", "--limit", "20%", code=0)


def test_what_is_not_decided_fails_only_if_that_is_asked_for(run_command: RunCommand) -> None:
    assert "inconclusive" not in run_command("then", "now/0.json", "--limit", "9.8%", code=0)
    out = run_command("then", "now/0.json", "--limit", "9.8%", "--strict", code=1)
    assert "fsstack: inconclusive: luks: seconds +" in out
    assert out.endswith("limit 9.8 % (--strict)\n")


def test_a_gate_that_could_judge_nothing_does_not_pass(run_command: RunCommand) -> None:
    out = run_command("then/0.json", "now/0.json", "--limit", "5%", code=4)
    assert re.fullmatch(rf"fsstack: compare: .*--limit: {re.escape(ONE_RUN_EACH)}", out.splitlines()[-1])


def test_what_is_gone_is_told_and_fails_if_that_is_asked_for(run_command: RunCommand) -> None:
    for number in range(3):
        Path("then", f"{number}.json").write_text(saved.dumps(run(0.64, stacks=("ext4", "luks", "xfs"))))
    out = run_command("then", "now", "--limit", "50%", code=0)
    assert re.search(r"^\* .*\bthen\b.*: T write on xfs$", out, re.MULTILINE)
    out = run_command("then", "now", "--limit", "50%", "--strict", code=1)
    assert re.search(r"^fsstack: xfs: seconds .*\(--strict\)$", out, re.MULTILINE)


def test_what_makes_it_meaningless_is_a_sentence_each_and_may_be_overridden(run_command: RunCommand) -> None:
    for number in (0, 1):
        other = run(0.5, devices=[{"spec": "loop", "model": "another disk"}])
        other.scale = "paper"
        Path("then", f"{number}.json").write_text(saved.dumps(other))
    scale, device = run_command("then", "now", "--limit", "5%", code=4).splitlines()
    assert re.fullmatch(r"fsstack: .*\bscale .*\bpaper .*\bsmall \[0\.json, 1\.json\]", scale)
    assert re.fullmatch(
        r"fsstack: .*\bdevice .*\bloop \(another disk\) .*\bloop \(a disk\) \[0\.json, 1\.json\]", device
    )
    run_command("then", "now", "--limit", "50%", "--anyway", code=0)
    assert re.search(r"\bpaper .*\bsmall \[0\.json, 1\.json\]", run_command("--plan", "then", "--limit", "50%", code=4))
    run_command("--plan", "then", "--limit", "50%", "--anyway", code=0)


@pytest.mark.parametrize("name", ["then/1.json", "now/1.json"])
def test_a_run_that_ended_early_is_refused_on_either_side(run_command: RunCommand, name: str) -> None:
    Path(name).write_text(saved.dumps(replace(run(0.5), interrupted="by a failure")))
    out = run_command("then", "now", "--limit", "50%", code=4)
    assert re.fullmatch(r"fsstack: not compared: .*\(by a failure\) \[1\.json\]\n", out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), r"compare: .*\bOLD\.json"),
        (("then",), r"compare: .*--now NEW\.json"),
        (("then", "now", "now"), r"compare: .*--now NEW\.json"),
        (("then", "absent.json"), r"compare: absent\.json: No such file or directory"),
        (("then", "then/1.json"), r"compare: then/1\.json [^:]*\bboth\b"),
        (("then", "copy.json"), r"compare: copy\.json [^:]*\bboth\b"),
        (("then", "now", "--limit", "much"), "compare: argument --max-regression/--limit: "),
        (("then", "now", "--alpha", "2"), r"compare: argument --alpha: .*\b0 .*\b0\.5"),
        (("then", "other.json"), r".*\boverhead\b"),
        (("then", "nothing.json"), r"compare: nothing\.json: .*\bmeasurements"),
    ],
)
def test_wrong_usage_is_a_sentence_and_exit_code_4(
    run_command: RunCommand, words: tuple[str, ...], message: str
) -> None:
    Path("other.json").write_text(saved.dumps(run(stacks=("xfs", "btrfs"))))
    Path("nothing.json").write_text(saved.dumps(Results()))
    for name in "then/0.json", "copy.json":
        Path(name).write_text(saved.dumps(replace(run(), start="2026-01-01T00:00:00+00:00")))
    out = run_command(*words, code=4)
    assert re.match(f"fsstack: {message}", out)
    assert len(out.splitlines()) == 1


def test_the_plan_says_what_a_limit_can_tell_of_one_more_run(run_command: RunCommand) -> None:
    out = run_command("--plan", "then", "--max-regression=5%", code=0)
    assert "write on luks" in out
    assert run_command("--plan", "then", "--max-regression=0.5%", "--rounds=8", code=1) != out
    out = run_command("--plan", "then/0.json", "then/1.json", "--max-regression=5%", code=1)
    assert re.search(r"write on luks +2 +.*\b5\b", out)
    assert "--max-regression" in run_command("--plan", "then", code=4)
