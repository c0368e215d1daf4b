"""The recorded arguments of a workload, so that other work is not compared with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built
from pytest_fsstack.workloads.base import workload


@dataclass(frozen=True)
class Files:
    name: str
    count: int
    archive: Path


class Curve:
    """What JSON cannot hold."""


@workload()
def work(timed: Timed, fsstack: Built, source: Any, *, share: float = 0.5, into: str = "tree") -> None:
    """Do nothing."""


class Noted(Timed):
    """A clock that only notes."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, dict[str, Any]]] = []

    def working(self, workload: str, options: Any) -> None:
        self.noted.append((workload, dict(options)))


@pytest.mark.parametrize(
    ("source", "noted"),
    [
        (3, 3),
        (None, None),
        (Path("/somewhere/else/each/time/linux.tar"), "linux.tar"),
        ([1, "a", Path("/x/y")], [1, "a", "y"]),
        ({"depth": (1, 2)}, {"depth": [1, 2]}),
        (Files("mail", 5, Path("/cache/1")), {"name": "mail", "count": 5}),
        (Curve(), "Curve"),
    ],
)
def test_options_are_noted_without_what_changes_from_run_to_run(source: object, noted: object) -> None:
    timed, stack = Noted(), object.__new__(Built)
    work(timed, stack, source, share=0.7)
    assert timed.noted == [("work", {"source": noted, "share": 0.7, "into": "tree"})]
    json.dumps(timed.noted, allow_nan=False)


def test_a_wrong_call_is_the_error_that_it_was() -> None:
    with pytest.raises(TypeError, match=r"work\(\) got an unexpected keyword argument 'shares'"):
        work(Noted(), object.__new__(Built), 1, shares=1)  # type: ignore[call-arg]


Mode = Literal["fast", "safe"]


@workload()
def choose(timed: Timed, fsstack: Built, *, mode: Mode = None) -> None:  # type: ignore[assignment]
    """Do nothing. The default means that the workload chooses."""


def test_a_default_may_be_none_of_the_values() -> None:
    timed = Noted()
    choose(timed, object.__new__(Built))
    with pytest.raises(ValueError, match=r"choose: mode .*fast, safe .*None"):
        choose(timed, object.__new__(Built), mode=None)  # type: ignore[arg-type]
    assert timed.noted == [("choose", {"mode": None})]
