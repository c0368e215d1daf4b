"""By which rules rounds are discarded, and what is said of restless ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.judging.conditions import NAMES, Rule, first_broken, parse, unrest
from pytest_fsstack.judging.describe import notice_in_words
from pytest_fsstack.judging.notices import notices
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.notices import Unrest
from tests.chains import a_chain

# As they are written: a share in tenths of a percent, a load in hundredths.
RULES = st.one_of(
    st.just(Rule("throttled")),
    st.builds(lambda most: Rule("load", most / 100), st.integers(0, 10_000)),
    st.builds(
        lambda name, most: Rule(name, most / 10 / 100),
        st.sampled_from([name for name in NAMES if name not in ("load", "throttled")]),
        st.integers(0, 1000),
    ),
)


@given(st.lists(RULES, min_size=1, max_size=4))
def test_what_is_written_is_what_is_read(rules: list[Rule]) -> None:
    assert parse(", ".join(map(str, rules))) == tuple(rules)
    assert parse(" ,".join(str(rule).replace(">", " > ") for rule in rules)) == tuple(rules)


@given(RULES, st.dictionaries(st.sampled_from(NAMES), st.floats(0, 100)))
def test_a_round_is_discarded_by_what_is_above_its_limit_and_by_nothing_else(
    rule: Rule, found: dict[str, float]
) -> None:
    others = {name: value for name, value in found.items() if name != rule.name}
    assert first_broken([rule], {**others, rule.name: rule.limit + 0.001}) is rule
    assert first_broken([rule], {**others, rule.name: rule.limit}) is None
    assert first_broken([rule], others) is None


@pytest.mark.parametrize(
    "text", ["", "load", "load>", "load>2%", "steal>5", "throttled>1", "lod>2", "load<2", "load>2;steal>5%", "load>-1"]
)
def test_what_is_no_rule_is_refused_with_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(repr(text))}.*'load>2'"):
        parse(text)


def test_what_is_conspicuous_is_said_and_nothing_of_a_machine_at_rest() -> None:
    rest = {"cpus": 2.0, "load": 1.5, "steal": 0.01, "throttled": 0.0, "frequency": 3000.0}
    assert unrest([rest] * 8) is None
    assert unrest([{}]) is None
    notice = unrest(
        [rest, {**rest, "steal": 0.07}, {**rest, "throttled": 3.0, "load": 5.25}, {**rest, "frequency": 1200.0}]
    )
    assert notice == Unrest(1, 0.07, 1, 1, 5.25, (1200.0, 3000.0))
    assert re.search(
        r"\b1 round, .*\b7%.*, .*throttled .*\b1 round, .*load .*\b5\.2 .*\b1 round, .*\b1200 .*\b3000 MHz",
        notice_in_words(notice),
    )


def test_at_most_three_lines_are_said_and_one_of_them_is_the_machines() -> None:
    chain = a_chain({"s": {"a": None, "b": None}}, 0, conditions=[{"steal": 0.5, "throttled": 1.0}] * 3).built
    assert notices(Readings(chain)) == [Unrest(3, 0.5, 3)]
    assert "--fsstack-drop-rounds" in notice_in_words(Unrest(3, 0.5, 3))
