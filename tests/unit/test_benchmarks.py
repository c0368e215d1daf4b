"""``python -m benchmarks`` runs what it is asked for, and nothing else."""

from __future__ import annotations

import random

import pytest

from benchmarks import __main__, changes, machines, nights, turns, verdict


def test_an_unknown_name_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["tunrs"]) == 2
    error = capsys.readouterr().err
    assert "'tunrs'" in error
    assert all(name in error for name in __main__.OTHERS)


def test_turns_is_one_that_prints_its_table_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["turns", "4", "1"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 2 * len(machines.CVS)
    assert turns.__name__.endswith(__main__.OTHERS["turns"])


@pytest.mark.parametrize("section", verdict.SECTIONS)
def test_each_section_of_the_verdict_prints_its_table(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["verdict", "2", section]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) > 2


def test_an_unknown_section_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["verdict", "4", "machines", "weather"]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    assert all(name in printed.err for name in verdict.SECTIONS)


def test_four_months_of_the_gate_by_both_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["nights", "2"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4 * len(nights.CASES)


@pytest.mark.parametrize("seed", range(3))
def test_what_grows_and_what_is_lost_again_is_red_and_what_does_not_change_is_not(seed: int) -> None:
    unchanged, _, _, creep, lost = (
        nights.red_nights(case, nights.new_rule, False, random.Random(seed)) for case in nights.CASES
    )
    assert len(unchanged) <= 1
    # Half a percent a night: at most 15 % in all.
    assert creep[0] <= 28
    assert nights.SLOWER <= lost[0] <= nights.SLOWER + 3
    assert len(nights.red_nights(nights.CASES[-1], nights.old_rule, False, random.Random(seed))) <= 1


def test_change_points_are_counted_for_each_noise(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["changes", "1"]) == 0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(changes.NOISES) * len(changes.detectors())
