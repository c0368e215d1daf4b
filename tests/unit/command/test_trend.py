"""`fsstack trend` and `fsstack prune`: the changes of a history and no others, and what of it is kept."""

from __future__ import annotations

import io
import random
import re
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.command import main
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.over_time.changes import MIN_RUNS
from pytest_fsstack.over_time.history import append, aside_of, file_of, read
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import Results
from tests.chains import a_chain
from tests.unit.command.conftest import RunCommand

FIRST = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)
#: The line of a change: its direction, the time of its first run, and the commit.
CHANGE = re.compile(r"^  .*: ([+-])[\d.]+ % .*(2026-01-[\dT:+-]+), commit (\d+): ", re.MULTILINE)


def night(number: int, overheads: dict[str, float], **of_results: str) -> Results:
    """Return the run of a night. `overheads` is what each stack cost over ext4 (0.3 is 30 %)."""
    costs = {
        stack: [{"seconds": (1 + overhead) * (1 + place / 100), "used_bytes": 4096.0} for place in range(8)]
        for stack, overhead in {"ext4": 0.0, **overheads}.items()
    }
    start = (FIRST + timedelta(days=number)).isoformat(timespec="seconds")
    facts: dict[str, Any] = {"start": start, "scale": "small", "labels": {"commit": f"{number:02}" * 20}}
    chain = a_chain({"write": costs}, id="t.py::test_write", work={"write": {"bytes": 10}})
    return chain.results({"kernel": {"release": "6.1" if number < 10 else "6.12"}}, **facts | of_results)


def write(directory: Path, runs: Sequence[Results], machine: str = "a" * 32) -> Path:
    path = file_of(directory, machine)
    for results in runs:
        append(path, saved.line(results))
    return path


@pytest.mark.parametrize("seed", range(3))
def test_thirty_nights_with_two_changes_show_the_two_and_no_other(
    tmp_path: Path, run_command: RunCommand, seed: int
) -> None:
    """One stack gets slower in the eleventh night, another faster in the twenty-first; a third stays as it is."""
    noise = random.Random(seed)
    nights = [
        {"luks": 0.3 if number < 10 else 0.43, "xfs": 0.2 if number < 20 else 0.1, "btrfs": 0.5} for number in range(30)
    ]
    runs = [
        night(number, {name: (1 + cost) * noise.gauss(1, 0.01) - 1 for name, cost in each.items()})
        for number, each in enumerate(nights)
    ]
    write(tmp_path, runs)
    out = run_command("trend", tmp_path, "--smallest", "2%")
    assert CHANGE.findall(out) == [
        ("+", "2026-01-11T02:00:00+00:00", "101010101010"),
        ("-", "2026-01-21T02:00:00+00:00", "202020202020"),
    ]
    assert [len(CHANGE.findall(section)) for section in out.split("\n\n")[1:4]] == [1, 1, 0]


def test_identical_runs_have_no_change_and_no_warning(tmp_path: Path, run_command: RunCommand) -> None:
    write(tmp_path, [night(number, {"luks": 0.3}) for number in range(12)])
    assert not CHANGE.search(run_command("trend", tmp_path))


def test_a_change_has_its_size_date_commit_figures_and_what_differs(tmp_path: Path, run_command: RunCommand) -> None:
    write(tmp_path, [night(number, {"luks": 0.3 if number < 10 else 0.43}) for number in range(20)])
    expected = [
        r"machine a{32}: 20 \w+ 20 runs",
        r"",
        r"write on luks: \+43\.0 % .*\b20 runs",
        r"  ▁▁▁▁▁▁▁▁▁▁██████████  \+30\.0 % .*\+43\.0 %",
        r"            \^",
        r"  .*: \+10\.0 % .*2026-01-11T02:00:00\+00:00, commit 101010101010: \+30\.0 % -> \+43\.0 %",
        r"    .*\bkernel\.release: 6\.1 -> 6\.12",
        r"",
    ]
    lines = run_command("trend", tmp_path).splitlines()
    assert len(lines) == len(expected)
    assert [line for line, pattern in zip(lines, expected) if not re.fullmatch(pattern, line)] == []
    out = run_command("trend", tmp_path, "--figures")
    assert re.search(r"^write on ext4: 1\.04 s .*\b20 runs$", out, re.MULTILINE)
    assert "commit 101010101010: 1.35 s -> 1.48 s" in out


def test_the_metrics_are_those_of_a_comparison_unless_all_are_wanted(tmp_path: Path, run_command: RunCommand) -> None:
    runs = [night(number, {"luks": 0.3}) for number in range(2)]
    write(tmp_path, runs)
    assert "used_bytes" not in run_command("trend", tmp_path)
    used = r"^write on luks \(used_bytes\): 0\.0 % .*\b{} runs$"
    assert re.search(used.format(2), run_command("trend", tmp_path, "--all"), re.MULTILINE)
    (chain,) = runs[1].chains
    judge_all(chain, "write", "luks", Budget("used_bytes", overhead=0.5))
    write(tmp_path, runs[1:])
    assert re.search(used.format(3), run_command("trend", tmp_path), re.MULTILINE)


def test_what_does_not_belong_to_it_is_left_out_with_the_reason(tmp_path: Path, run_command: RunCommand) -> None:
    runs = [night(number, {"luks": 0.3}) for number in range(4)]
    runs += [night(5, {"luks": 9.0}, interrupted="Ctrl-C"), night(0, {"luks": 9.0}, scale="paper")]
    path = write(tmp_path, runs)
    with path.open("a") as file:
        file.write('{"torn')
    out = run_command("trend", tmp_path)
    for pattern in (
        r"machine a{32}: 4 \w+ 6 runs",
        r"  .*: 1, .*\bearly\b.*",
        r"  .*: 1, .*\bscale .*\bpaper .*\bsmall",
        rf"  [^:]*: .*\b{MIN_RUNS}",
        r"fsstack: a{32}\.jsonl: .*\b7\b.*",
    ):
        assert re.search(f"^{pattern}$", out, re.MULTILINE), pattern
    assert "x10" not in out


def test_machines_are_apart_and_a_terminal_without_unicode_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in ("a" * 32, "b" * 32):
        write(tmp_path, [night(number, {"luks": 0.3 + number / 100}) for number in range(8)][:5], machine)
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["trend", str(tmp_path)]) == 0
    sys.stdout.flush()
    out = raw.getvalue().decode("ascii")
    assert re.findall(r"^machine (\w+): 5 ", out, re.MULTILINE) == ["a" * 32, "b" * 32]
    assert len(re.findall(r"^write on luks: .*\b5 runs$", out, re.MULTILINE)) == 2
    assert "_:=+#" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trend"], r"trend: .*\bDIR$"),
        (["trend", "absent"], r"trend: [^:]*\babsent$"),
        (["trend", "empty"], r"trend: [^:]*\bempty: --fsstack-history=empty\b"),
        (["trend", "full", "--smallest", "much"], "trend: argument --smallest: "),
        (["prune", "full"], r"prune: .* --keep$"),
        (["prune", "absent", "--keep=1d"], r"prune: [^:]*\babsent$"),
        (["prune", "empty", "--keep=1d"], r"prune: [^:]*\bempty: --fsstack-history=empty\b"),
        (["prune", "full", "--keep=1y"], r"prune: argument --keep: .*\b365d\b.*\b1y\b"),
        (["prune", "full", "--keep=0d"], r"prune: argument --keep: .*\b365d\b.*\b0d\b"),
    ],
)
def test_wrong_usage_is_a_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_command: RunCommand
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "full"):
        Path(name).mkdir()
    write(Path("full"), [night(0, {"luks": 0.3})])
    out = run_command(*words, code=4)
    assert re.match(f"fsstack: {message}", out)
    assert len(out.splitlines()) == 1


def test_a_history_without_an_overhead_is_told(tmp_path: Path, run_command: RunCommand) -> None:
    write(tmp_path, [night(0, {})])
    assert re.search(
        rf"^fsstack: trend: {tmp_path}: .*\boverhead\b", run_command("trend", tmp_path, code=4), re.MULTILINE
    )


def test_what_is_old_is_removed_and_the_rest_stays_as_it_is(tmp_path: Path, run_command: RunCommand) -> None:
    now = datetime.now(timezone.utc)
    runs = [
        night(0, {"luks": 0.3}, start=(now - timedelta(days=days)).isoformat(timespec="seconds") if days else "")
        for days in (400, 364, 0, 366)
    ]
    path = write(tmp_path, runs)
    newer = '{"format": 99, "é": 1}'
    with path.open("a") as file:
        file.write(f"no JSON\n{newer}\ntorn")
    lines = path.read_text().splitlines()
    report = rf"{path}: 2 \D+, 3 \D+; 12 bytes .* {aside_of(path)}\n"
    assert re.fullmatch(report, run_command("prune", tmp_path, "--keep", "365d"))
    assert path.read_text().splitlines() == [lines[1], lines[2], newer]
    assert aside_of(path).read_text() == "no JSON\ntorn\n"
    before = path.stat()
    assert re.fullmatch(rf"{path}: 0 \D+, 3 [^;\d]+\n", run_command("prune", tmp_path, "--keep", "365d"))
    assert path.stat().st_ino == before.st_ino
    append(path, saved.line(runs[1]))
    assert len(read(path).runs) == 3


@pytest.mark.parametrize("seed", range(2))
def test_the_gate_is_red_in_the_night_of_the_regression_and_green_in_the_others(
    tmp_path: Path, run_command: RunCommand, seed: int
) -> None:
    """The regression is accepted by a new directory, which judges again from its sixth run on."""
    noise = random.Random(seed)
    reference = tmp_path / "reference"
    reference.mkdir()
    verdicts: dict[int, int] = {}
    for number in range(30):
        costs = {"luks": 1.3 if number < 10 else 1.43, "xfs": 1.2 if number < 20 else 1.1}
        run = night(number, {name: cost * noise.gauss(1, 0.01) - 1 for name, cost in costs.items()})
        run.environment["machine_id"] = "a" * 32
        new = tmp_path / f"{number:02}.json"
        new.write_text(saved.dumps(run))
        if len(list(reference.iterdir())) >= 5:
            verdicts[number] = main(["compare", str(reference), str(new), "--limit", "5%"])
            if verdicts[number] == 1:
                reference = tmp_path / "accepted"
                reference.mkdir()
        new.rename(reference / new.name)
    assert verdicts == {number: int(number == 10) for number in range(5, 30) if number not in range(11, 15)}
