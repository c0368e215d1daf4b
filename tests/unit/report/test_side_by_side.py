"""Results of several machines side by side: what each says is what it says alone."""

from __future__ import annotations

from pytest_fsstack.records.results import TestOutcome
from pytest_fsstack.report import html, markdown
from pytest_fsstack.report.answer import Problem, problems
from pytest_fsstack.report.figures import families, rows
from pytest_fsstack.report.layouts import BUILT_IN
from pytest_fsstack.report.model import View, heading
from pytest_fsstack.report.side_by_side import side_by_side
from tests.unit.report.results import made


def machine(release: str, size: int) -> dict[str, object]:
    return {"kernel": {"release": release}, "devices": [{"spec": "loop", "size": size, "filesystem": "ext4"}]}


def test_each_chain_keeps_its_figures_and_what_they_depend_on() -> None:
    alone = {"laptop": made(3, ["write"]), "server": made(4, ["write"])}
    alone["laptop"].environment, alone["server"].environment = machine("6.1", 1 << 30), machine("6.12", 2 << 30)
    alone["server"].interrupted = "interrupted by SIGINT"
    found = side_by_side(alone)
    assert [chain.device for chain in found.chains] == ["loop of laptop", "loop of server"]
    assert found.interrupted == "server: interrupted by SIGINT"
    for name, chain in zip(alone, found.chains):
        (before,) = alone[name].chains
        assert View(chain).grid("seconds") == View(before).grid("seconds")
        here, there = heading(found, chain), heading(alone[name], before)
        assert here["kernel"] == there["kernel"]
        assert here["device"] == there["device"].replace("loop:", f"loop of {name}:")
        assert "ext4" in here["device"]


def test_a_test_has_a_facet_for_each_machine() -> None:
    found = side_by_side({"laptop": made(3, ["write"]), "server": made(4, ["write"])})
    (family,) = families(found.chains)
    assert {row.facet for row in rows(found, family)} == {"loop of laptop", "loop of server"}
    found.table_layouts = BUILT_IN
    for page in html.report(found), markdown.report(found):
        assert "loop of laptop" in page
        assert "loop of server" in page


def test_a_failed_test_of_one_machine_is_reported_with_its_name() -> None:
    run = made(3, ["write"])
    (chain,) = run.chains
    chain.devices = ["loop", "ram"]
    test = TestOutcome("t.py::test", "failed", "device gone", chain=chain.id, device="ram", step="write", stack="luks")
    run.tests = {test.id: test}
    found = side_by_side({"laptop": made(3, ["write"]), "server": run})
    assert Problem("failed", "server: t.py::test", "device gone") in [
        problem._replace(remedy="") for problem in problems(found)
    ]
    outcomes = [found.test(chain, "write", "luks") for chain in found.chains]
    assert [outcome and outcome.id for outcome in outcomes] == [None, "server: t.py::test"]


def test_what_was_read_is_left_as_it_was() -> None:
    run = made(3, ["write"])
    device = run.chains[0].device
    side_by_side({"a": run, "b": run})
    assert run.chains[0].device == device
    assert run.chains[0].environment is None
