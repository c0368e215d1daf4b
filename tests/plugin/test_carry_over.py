"""A stack that leaves something behind for the run after it: what sessions say, and when they fail."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import Project

TEST = """
import random
import pytest

rng, before = random.Random(7), []

@pytest.mark.fsstack("plain", "dear = crypt(cost=102)")
class TestCost:
    @pytest.mark.benchmark
    @pytest.mark.fsstack_budget("{budget}", metric="cost")
    def test_step(self, fsstack, timed, cost):
        with timed(cold=False):
            pass
        if before[-1:] == ["dear"]:
            cost *= 1.2
        before.append(fsstack.stack.id)
        timed.record("cost", cost * rng.gauss(1, 0.01), unit="coins")
"""
WORDS = ("--fsstack-rounds=40", "--fsstack-seed=3", "--fsstack-error-rate-per=budget", "--fsstack-json=all.json")


@pytest.mark.parametrize(
    ("budget", "strict", "doubtful"),
    [("10%", (), True), ("10%", ("--fsstack-strict",), True), ("100%", ("--fsstack-strict",), False)],
)
def test_a_verdict_that_carry_over_could_change_is_doubtful_and_fails_a_strict_session(
    project: Project, budget: str, strict: tuple[str, ...], doubtful: bool
) -> None:
    project.write(TEST.format(budget=budget))
    result = project.run(*WORDS, *strict, "--junitxml=all.xml")
    fails = bool(doubtful and strict)
    result.assert_outcomes(passed=1 if fails else 2, failed=int(fails))
    assert ("pass, doubtful" in result.stdout.str()) == doubtful
    result.stdout.fnmatch_lines(["*step (cost)*dear*--fsstack-settle*"])
    (chain,) = json.loads((project.pytester.path / "all.json").read_text())["chains"]
    assert [(carry["step"], carry["metric"], carry["after"]) for carry in chain["carry_over"]] == [
        ("step", "cost", "dear")
    ]
    assert ('name="fsstack_doubt"' in (project.pytester.path / "all.xml").read_text()) == doubtful
    if fails:
        result.stdout.fnmatch_lines(["*step*dear: pass*dear*--fsstack-strict*"])
