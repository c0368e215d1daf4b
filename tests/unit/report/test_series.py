"""Series: names that stay, and labels that tell the runs apart."""

from __future__ import annotations

import pytest

from pytest_fsstack.judging.cells import CellRun, ChainPlan, KernelBoot, PlannedStack, Policy, StepRun
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.report.series import series
from tests.chains import a_chain, wobbling

COSTS = {"ext4": 1.0, "luks": 1.5, "control": 1.0}


def chain(rounds: int = 8) -> ChainResults:
    costs = {name: wobbling(cost, 0.1) for name, cost in COSTS.items()}
    return a_chain({"write": costs}, rounds, controls=["control"]).built


def test_a_run_has_its_figures_and_overheads_by_name() -> None:
    made = chain()
    judge_all(made, "write", "luks", Budget(overhead=0.1))
    found = {each.name: each for each in series(Results({}, [made], labels={"commit": "c0ffee"}))}
    assert list(found) == [
        "t.py::T::write::ext4::seconds",
        "t.py::T::write::luks::seconds",
        "t.py::T::write::luks::seconds::overhead",
    ]
    figure, overhead = (
        found["t.py::T::write::luks::seconds"],
        found["t.py::T::write::luks::seconds::overhead"],
    )
    assert figure.samples == tuple(1.5 * (1 + number % 3 / 10) for number in range(8))
    assert (figure.unit, figure.rounds, figure.outcome) == ("s", 8, None)
    assert overhead.value == pytest.approx(0.5, abs=0.01)
    assert overhead.low is not None
    assert overhead.high is not None
    assert overhead.low <= overhead.value <= overhead.high
    assert (overhead.kind, overhead.reference, overhead.outcome) == ("overhead", "ext4", "fail")
    assert overhead.labels == {"commit": "c0ffee", "device": "loop"}


def test_an_open_interval_has_no_ends() -> None:
    (overhead,) = [each for each in series(Results({}, [chain(rounds=1)])) if each.kind == "overhead"]
    assert (overhead.low, overhead.high) == (None, None)


def test_work_that_was_not_done_is_in_no_series() -> None:
    made = chain()
    made.orders.append([])
    made.add("write", "luks", Sample({"seconds": 0.1}, incomplete="no space"))
    assert {each.stack for each in series(Results({}, [made]))} == {"ext4"}


def test_names_do_not_change_with_kernels_and_labels_tell_them() -> None:
    stacks = {name: PlannedStack(name, ("write",)) for name in ("ext4", "luks")}
    plan = ChainPlan(chain().id, "loop", "ext4", ("write",), stacks)
    course = Course({KernelBoot("6.1"): plan, KernelBoot("6.12"): plan}, Policy(), "", ("6.1", "6.12"))
    while tasks := course.next_tasks():
        for task in tasks:
            course.add(task, CellRun((StepRun("write", (Sample({"seconds": COSTS[task.cell.stack]}),)),)))
        course.end_tasks({})
    course.conclude()
    all_of_them = series(Results({}, course.views.final(), labels={"commit": "c"}))
    luks = [(each.name.removeprefix("t.py::T::write::luks::"), each.labels["kernel"]) for each in all_of_them]
    assert [found for found in luks if not found[0].startswith("t.py")] == [
        ("seconds", "6.1"),
        ("seconds", "6.12"),
        ("seconds::kernel_overhead", "6.12"),
        ("seconds::overhead", "6.1"),
        ("seconds::overhead", "6.12"),
    ]
    assert {each.name for each in all_of_them if each.labels["kernel"] == "6.1"} == {
        each.name for each in series(Results({}, [chain()]))
    }
