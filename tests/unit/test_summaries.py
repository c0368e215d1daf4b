"""Summaries of steps from the docstrings of their workloads."""

from __future__ import annotations

import pytest

from pytest_fsstack.session.state import first_sentence
from pytest_fsstack.workloads.hardlinks import extract_backup
from pytest_fsstack.workloads.latency import create_files
from pytest_fsstack.workloads.tree import extract


@pytest.mark.parametrize("workload", [extract, extract_backup])
def test_a_name_of_an_argument_is_replaced_by_its_value(workload: object) -> None:
    assert first_sentence(workload, {"into": "mail"}).endswith("into the new directory mail of the stack")


def test_numbers_are_shown_and_long_or_unknown_values_are_not() -> None:
    assert "1,000 files" in first_sentence(create_files, {"count": 1000})
    assert "count files" in first_sentence(create_files, {"count": None})
    assert "count files" in first_sentence(create_files, {"count": "x" * 99})
