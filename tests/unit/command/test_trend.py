"""`fsstack trend` and `fsstack prune`: the changes of a history and no others, and what of it is kept."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from msgspec.structs import replace

from pytest_fsstack.command import main
from pytest_fsstack.judging import saved
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks
from pytest_fsstack.over_time.history import append, aside_of, file_of, read

Said = Callable[..., str]
FIRST = datetime(2026, 1, 1, 2, tzinfo=timezone.utc)


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """What a subcommand prints, standard error last."""

    def run(*words: object, code: int = 0) -> str:
        found = main(list(map(str, words)))
        out, err = capfd.readouterr()
        assert found == code, out + err
        return out + err

    return run


def night(number: int, overheads: dict[str, float], **of_results: str) -> Results:
    """The run of a night: what each stack cost over ext4 (0.3 is 30 %)."""
    chain = ChainResults("t.py::test_write", "loop", "ext4", Looks.fixed(8), 1, steps=["write"])
    chain.stacks = {name: StackInfo(name, name) for name in ("ext4", *overheads)}
    for each in range(8):
        chain.orders.append(["ext4", *overheads])
        for name in chain.stacks:
            cost = (1 + overheads.get(name, 0.0)) * (1 + each / 100)
            chain.add("write", name, Sample({"seconds": cost, "used_bytes": 4096.0}, work={"bytes": 10}))
    environment = {"kernel": {"release": "6.1" if number < 10 else "6.12"}}
    start = (FIRST + timedelta(days=number)).isoformat(timespec="seconds")
    results = Results(environment, [chain], start=start, scale="small", labels={"commit": f"{number:02}" * 20})
    return replace(results, **of_results)


def write(directory: Path, runs: Sequence[Results], machine: str = "a" * 32) -> Path:
    path = file_of(directory, machine)
    for results in runs:
        append(path, saved.line(results))
    return path


@pytest.mark.parametrize("seed", range(3))
def test_thirty_nights_with_two_changes_show_the_two_and_no_other(tmp_path: Path, said: Said, seed: int) -> None:
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
    out = said("trend", tmp_path, "--smallest", "2%")
    changes = [line for line in out.splitlines() if " since " in line]
    assert len(changes) == 2
    luks, xfs = changes
    assert luks.strip().startswith("may have changed: +")
    assert "since 2026-01-11T02:00:00+00:00, commit 101010101010: " in luks
    assert xfs.strip().startswith("may have changed: -")
    assert "since 2026-01-21T02:00:00+00:00, commit 202020202020: " in xfs
    sections = out.split("\n\n")
    assert [any(change in section for change in changes) for section in sections[1:4]] == [True, True, False]


def test_identical_runs_have_no_change_and_no_warning(tmp_path: Path, said: Said) -> None:
    write(tmp_path, [night(number, {"luks": 0.3}) for number in range(12)])
    assert " since " not in said("trend", tmp_path)


def test_a_change_has_its_size_date_commit_figures_and_what_differs(tmp_path: Path, said: Said) -> None:
    write(tmp_path, [night(number, {"luks": 0.3 if number < 10 else 0.43}) for number in range(20)])
    assert said("trend", tmp_path).splitlines() == [
        f"machine {'a' * 32}: 20 of 20 runs",
        "",
        "write on luks: +43.0 % in the newest of 20 runs",
        "  ▁▁▁▁▁▁▁▁▁▁██████████  +30.0 % to +43.0 %",
        "            ^",
        "  may have changed: +10.0 % since 2026-01-11T02:00:00+00:00, commit 101010101010: +30.0 % -> +43.0 %",
        "    differs: kernel.release: 6.1 -> 6.12",
        "",
    ]
    out = said("trend", tmp_path, "--figures")
    assert "write on ext4: 1.04 s in the newest of 20 runs" in out
    assert "commit 101010101010: 1.35 s -> 1.48 s" in out


def test_the_metrics_are_those_of_a_comparison_unless_all_are_wanted(tmp_path: Path, said: Said) -> None:
    runs = [night(number, {"luks": 0.3}) for number in range(2)]
    write(tmp_path, runs)
    assert "used_bytes" not in said("trend", tmp_path)
    assert "write on luks (used_bytes): 0.0 % in the newest of 2 runs" in said("trend", tmp_path, "--all")
    (chain,) = runs[1].chains
    chain.judge_all("write", "luks", Budget("used_bytes", overhead=0.5))
    write(tmp_path, runs[1:])
    assert "write on luks (used_bytes): 0.0 % in the newest of 3 runs" in said("trend", tmp_path)


def test_what_does_not_belong_to_it_is_left_out_with_the_reason(tmp_path: Path, said: Said) -> None:
    runs = [night(number, {"luks": 0.3}) for number in range(4)]
    runs += [night(5, {"luks": 9.0}, interrupted="Ctrl-C"), night(0, {"luks": 9.0}, scale="paper")]
    path = write(tmp_path, runs)
    with path.open("a") as file:
        file.write('{"torn')
    out = said("trend", tmp_path)
    assert "4 of 6 runs" in out
    assert "  left out: 1, because ended early" in out
    assert "  left out: 1, because the scale was paper and is small" in out
    assert "too few runs to look for a change: it takes 6" in out
    assert "fsstack: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.jsonl: line 7 is left out: it was cut off" in out
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
    assert out.count("machine ") == out.count("in the newest of 5 runs") == 2
    assert "_:=+#" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trend"], "trend: the following arguments are required: DIR"),
        (["trend", "absent"], "trend: there is no directory absent"),
        (["trend", "empty"], "trend: there is no history in empty: --fsstack-history=empty makes one"),
        (["trend", "full", "--smallest", "much"], "trend: argument --smallest: "),
        (["prune", "full"], "prune: the following arguments are required: --keep"),
        (["prune", "absent", "--keep=1d"], "prune: there is no directory absent"),
        (["prune", "empty", "--keep=1d"], "prune: there is no history in empty"),
        (["prune", "full", "--keep=1y"], "prune: argument --keep: must be a number of days such as 365d (got 1y)"),
        (["prune", "full", "--keep=0d"], "prune: argument --keep: must be a number of days such as 365d (got 0d)"),
    ],
)
def test_wrong_usage_is_a_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "full"):
        Path(name).mkdir()
    write(Path("full"), [night(0, {"luks": 0.3})])
    out = said(*words, code=4)
    assert out.startswith(f"fsstack: {message}")
    assert len(out.splitlines()) == 1


def test_a_history_without_an_overhead_is_told(tmp_path: Path, said: Said) -> None:
    write(tmp_path, [night(0, {})])
    assert f"fsstack: trend: {tmp_path}: no run has an overhead to show" in said("trend", tmp_path, code=4)


def test_what_is_old_is_removed_and_the_rest_stays_as_it_is(tmp_path: Path, said: Said) -> None:
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
    assert f"{path}: 2 removed, 3 kept; 12 bytes of lines" in said("prune", tmp_path, "--keep", "365d")
    assert path.read_text().splitlines() == [lines[1], lines[2], newer]
    assert aside_of(path).read_text() == "no JSON\ntorn\n"
    before = path.stat()
    assert said("prune", tmp_path, "--keep", "365d") == f"{path}: 0 removed, 3 kept\n"
    assert path.stat().st_ino == before.st_ino
    append(path, saved.line(runs[1]))
    assert len(read(path).runs) == 3


@pytest.mark.parametrize("seed", range(2))
def test_the_gate_is_red_in_the_night_of_the_regression_and_green_in_the_others(
    tmp_path: Path, said: Said, seed: int
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
