"""Budgets as people write them, in markers and on the command line."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack.options.budgets import BudgetError, applying, doubts, parse, percentage, rules, unmatched
from pytest_fsstack.records.budget import Budget


@pytest.mark.parametrize(
    "marker", [rules(0.3), rules("30%"), rules(overhead=" 30 % "), rules({"*": "30%"}), [parse("30%")]]
)
def test_a_percentage_and_a_share_are_the_same(marker: list[object]) -> None:
    assert marker == rules(0.3)


@pytest.mark.parametrize("text", ["30", "%", "lots", "-100%", "1e3%", ""])
def test_what_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(BudgetError):
        percentage(text)


@pytest.mark.parametrize(
    ("positional", "keywords", "facts"),
    [
        ((), {}, r"\boverhead='30%'.*\blimit="),
        ((0.3, 0.4), {}, r"\boverhead\b.*\bmetric=.*\blimit="),
        ((-2,), {}, "-200 %"),
        (("lots",), {}, "5%.*'lots'"),
        (({3: 0.3},), {}, r"'luks\*'.*\b3\b"),
        ((0.3,), {"metric": ["cost"]}, r"^metric .*\['cost'\]"),
        ((), {"overhed": 0.3}, r"'overhed'.*\boverhead="),
    ],
)
def test_a_wrong_argument_of_a_marker_is_named(
    positional: tuple[object, ...], keywords: dict[str, object], facts: str
) -> None:
    with pytest.raises(BudgetError, match=facts):
        rules(*positional, **keywords)


@pytest.mark.parametrize(("text", "sign"), [("throughput <= 5", ">="), ("plain: seconds >= 2.5", "<=")])
def test_a_limit_in_the_wrong_direction_is_refused(text: str, sign: str) -> None:
    with pytest.raises(BudgetError, match=rf"write '\w+ {sign} "):
        parse(text)


def test_the_last_rule_that_matches_wins_in_a_marker_as_on_the_command_line() -> None:
    marked = rules({"*": "10%", "luks*": "20%"})
    assert applying(marked, [], "luks+ext4") == [Budget(overhead=0.2)]
    assert applying(marked, [], "xfs") == [Budget(overhead=0.1)]
    commanded = [parse("30%"), parse("luks*: 40%")]
    assert applying([], commanded, "luks+ext4") == [Budget(overhead=0.4)]
    assert applying(marked, commanded, "xfs") == [Budget(overhead=0.3)]


def test_each_metric_and_kind_has_a_budget_of_its_own() -> None:
    marked = [*rules(0.1), *rules(limit=2), *rules("50%", metric="written_bytes")]
    assert len(applying(marked, [], "xfs")) == 3


def test_a_number_that_may_be_meant_in_percent_is_doubted() -> None:
    (doubt,) = doubts(30)
    assert re.search("^overhead=30 .*3000 %.*'30%'.*'3000%'", doubt)
    assert len(doubts({"a": 0.3, "b": 12.0})) == 1
    assert doubts("3000%") == doubts(10) == doubts(limit=30) == []


@pytest.mark.parametrize("pattern", ["xfs", "luks*", "*ext4", "ext4+luks", "gocrypt*", "dear"])
def test_a_pattern_that_names_a_layer_may_be_for_a_stack_that_is_elsewhere(pattern: str) -> None:
    budgets = [parse(f"{pattern}: 30%")]
    assert unmatched(budgets, ["plain", "dear"], possible=["ext4", "luks", "xfs", "gocryptfs"]) == ""


@pytest.mark.parametrize("pattern", ["daer", "lusk*", "ext", "ext4s+xf*"])
def test_a_pattern_that_names_no_layer_is_for_no_stack_anywhere(pattern: str) -> None:
    budgets = [parse(f"{pattern}: 30%")]
    reasons = unmatched(budgets, ["plain", "dear"], possible=["ext4", "luks", "xfs"])
    assert re.search(rf"{re.escape(repr(pattern))}.*\bplain, dear\b", reasons)
