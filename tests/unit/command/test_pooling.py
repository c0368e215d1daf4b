"""`fsstack pool`: hosts and their verdict together, the exit codes, and what is wrong with hosts by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_fsstack.fleet.pooling.effects import MIN_HOSTS
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.judging.readings import dumps
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import Note, Results, StackInfo
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import Looks
from tests.unit.command.conftest import RunCommand
from tests.unit.over_time.test_comparison import in_unit, run

COMMAND = ("pool",)
#: The overhead of luks over ext4 on eight hosts.
OVERHEADS = (0.44, 0.47, 0.48, 0.50, 0.51, 0.53, 0.55, 0.56)


def session(host: int, overhead: float, budget: float | None = None, **environment: Any) -> Results:
    results = run(overhead, machine=f"{host:032x}", rounds=8, devices=[{"spec": "/dev/sdb", "model": str(host)}])
    results.environment.update(environment)
    results.start = f"2026-01-01T00:00:{host:02}+00:00"
    if budget is not None:
        judge_all(results.chains[0], "write", "luks", Budget(overhead=budget))
    return results


def save(name: str, results: Results) -> str:
    Path(name).write_text(dumps(results))
    return name


@pytest.fixture(autouse=True)
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with the sessions of eight hosts, without a budget."""
    monkeypatch.chdir(tmp_path)
    Path("hosts").mkdir()
    for number, overhead in enumerate(OVERHEADS):
        save(f"hosts/host{number}.json", session(number, overhead))


def pooled() -> dict[str, Any]:
    (series,) = json.loads(Path("pool.json").read_text())["series"]
    return dict(series)


def test_without_a_budget_there_are_figures_and_exit_code_0(run_command: RunCommand) -> None:
    out = run_command("hosts", "--json", "pool.json", code=0)
    assert re.search(r"\b8: host0, host1, host2 .*\b5\b", out)
    series = pooled()
    assert series["estimate"]["overhead"] == pytest.approx(0.505, abs=0.01)
    assert series["estimate"]["low"] < 0.505 < series["estimate"]["high"]
    assert series["prediction"]["low"] < series["estimate"]["low"]
    assert series["outcome"] is None
    assert [figure["host"] for figure in series["hosts"]] == [f"host{number}" for number in range(8)]
    assert [figure["estimate"]["overhead"] for figure in series["hosts"]] == pytest.approx(OVERHEADS)


@pytest.mark.parametrize(
    ("limit", "code", "outcome"), [("40%", 1, "fail"), ("60%", 0, "pass"), ("50%", 0, "inconclusive")]
)
def test_a_limit_is_judged_over_hosts(run_command: RunCommand, limit: str, code: int, outcome: str) -> None:
    run_command("hosts", "--limit", limit, "--json", "pool.json", code=code)
    assert pooled()["outcome"] == outcome
    strict = run_command("hosts", "--limit", limit, "--strict", code=int(outcome != "pass"))
    assert bool(re.match(r"fsstack: pool: .*\b8 hosts\b", strict.splitlines()[-1])) == (outcome != "pass")


def test_a_host_with_figures_on_one_side_only_in_some_rounds_does_not_count(run_command: RunCommand) -> None:
    results = session(0, OVERHEADS[0])
    results.chains[0].samples["write"]["luks"][0][3] = Sample({})
    save("hosts/host0.json", results)
    assert "1 round" in run_command("hosts", "--limit", "60%", "--json", "pool.json", code=0)
    assert [figure["host"] for figure in pooled()["hosts"]] == [f"host{number}" for number in range(1, 8)]
    run_command("hosts", "--limit", "60%", "--strict", code=1)


def test_a_limit_is_judged_on_stacks_without_a_budget_of_their_own(run_command: RunCommand) -> None:
    for number, overhead in enumerate(OVERHEADS):
        results = session(number, overhead, 0.9)
        (chain,) = results.chains
        chain.stacks["btrfs"] = StackInfo("btrfs", "btrfs")
        chain.samples["write"]["btrfs"] = chain.samples["write"]["luks"]
        save(f"hosts/host{number}.json", results)
    assert "fsstack: pool: T write on btrfs: " in run_command("hosts", "--limit", "40%", code=1)


@pytest.mark.parametrize(
    ("looks", "rounds", "left_out"), [(Looks((8, 16, 24)), 8, 8), (Looks.fixed(16), 16, 0), (Looks.fixed(8), 8, 8)]
)
def test_rounds_that_a_verdict_asked_for_are_not_in_the_figure_of_a_host(
    run_command: RunCommand, looks: Looks, rounds: int, left_out: int
) -> None:
    for number, overhead in enumerate(OVERHEADS):
        results = run(overhead, machine=f"{number:032x}", rounds=16)
        (chain,) = results.chains
        chain.looks = looks
        for key, sample in chain.of("write", "luks").items():
            # Rounds after the first look, or fresh rounds that confirm a failure.
            values = {"seconds": sample["seconds"] * (2 if key.number >= rounds else 1)}
            chain.add("write", "luks", Sample(values), key.number)
        save(f"hosts/host{number}.json", results)
    out = run_command("hosts", "--json", "pool.json", code=0)
    figures = pooled()["hosts"]
    assert [figure["estimate"]["overhead"] for figure in figures] == pytest.approx(OVERHEADS)
    assert {(figure["estimate"]["rounds"], figure["left_out"]) for figure in figures} == {(rounds, left_out)}
    assert ("--fsstack-rounds=16" in out) == bool(left_out)
    # A session that measured nothing up to its first look has no figure.
    chain.samples["write"]["luks"][0] = {n: s for n, s in chain.samples["write"]["luks"][0].items() if n >= rounds}
    if left_out:
        save("hosts/host7.json", results)
        assert re.search(r"\bhost7\.json: .*\bfirst look$", run_command("hosts", code=0), re.MULTILINE)


@pytest.mark.parametrize("number", range(1, MIN_HOSTS + 1))
def test_fewer_than_five_hosts_never_give_a_verdict_over_hosts(run_command: RunCommand, number: int) -> None:
    files = [f"hosts/host{host}.json" for host in range(number)]
    few = number < MIN_HOSTS
    out = run_command(*files, "--limit", "10%", "--json", "pool.json", code=4 if few else 1)
    assert not few or re.search(rf"\b{number} hosts?: .*\b{MIN_HOSTS}\b", out)
    assert pooled()["outcome"] == (None if few else "fail")
    assert (pooled()["estimate"]["high"] is None) == few
    run_command(*files, "--limit", "10%", "--alpha", "0.4", code=4 if few else 1)
    run_command(*files, "--limit", "10%", "--strict", code=1)


def test_a_smaller_error_rate_takes_more_hosts(run_command: RunCommand) -> None:
    assert re.search(
        r"\b8 hosts: .*\b10 .*\b0\.001\b", run_command("hosts", "--limit", "10%", "--alpha", "0.001", code=4)
    )


def test_budgets_of_the_sessions_are_judged_over_hosts_and_beside_the_hosts_own_verdicts(
    run_command: RunCommand,
) -> None:
    for number, overhead in enumerate(OVERHEADS):
        save(f"hosts/host{number}.json", session(number, overhead, 0.40))
    out = run_command("hosts", "--json", "pool.json", code=1)
    assert re.search("^fsstack: pool: T write on luks: .*, budget 40 %: fail$", out, re.MULTILINE)
    assert {figure["outcome"] for figure in pooled()["hosts"]} == {"fail"}
    files = [f"hosts/host{number}.json" for number in range(3)]
    assert "--each" in run_command(*files, code=4)
    assert "host0: fail" in run_command(*files, "--each", code=1)


def test_hosts_with_different_budgets_are_not_judged(run_command: RunCommand) -> None:
    for number, overhead in enumerate(OVERHEADS):
        save(f"hosts/host{number}.json", session(number, overhead, 0.40 if number else 0.45))
    assert "budgets: 40 %, 45 %" in run_command("hosts", code=4)
    run_command("hosts", "--limit", "40%", code=1)


def test_a_limit_is_judged_although_the_budget_that_it_replaces_is_expected_to_be_broken(
    run_command: RunCommand,
) -> None:
    for number, overhead in enumerate(OVERHEADS):
        results = session(number, overhead)
        judge_all(results.chains[0], "write", "luks", Budget(overhead=0.1, xfail="BUG-1"))
        save(f"hosts/host{number}.json", results)
    assert "10 %, expected" in run_command("hosts", code=0)
    run_command("hosts", "--limit", "40%", code=1)


def test_a_stack_that_no_host_measured_is_named_and_fails_a_strict_gate(run_command: RunCommand) -> None:
    for number, overhead in enumerate(OVERHEADS):
        results = session(number, overhead)
        (chain,) = results.chains
        chain.stacks["btrfs"] = StackInfo("btrfs", "btrfs")
        chain.notes["write"] = {"btrfs": Note("cannot run", "needs mkfs.btrfs")}
        # This step only prepares.
        chain.steps.append("prepare")
        save(f"hosts/host{number}.json", results)
    assert re.search(r"^\* [^:]*\(needs mkfs\.btrfs\): T write on btrfs$", run_command("hosts", code=0), re.MULTILINE)
    strict = run_command("hosts", "--limit", "60%", "--strict", code=1)
    assert re.findall(r"^fsstack: .*\(--strict\)$", strict, re.MULTILINE) == [strict.splitlines()[-1]]
    assert "T write on btrfs: " in strict.splitlines()[-1]


def test_a_metric_of_another_stacks_budget_is_missing_on_none(run_command: RunCommand) -> None:
    stalls = {"stalls": Metric("stalls")}
    for number, overhead in enumerate(OVERHEADS):
        results = session(number, overhead)
        (chain,) = results.chains
        chain.stacks["xfs"] = StackInfo("xfs", "xfs")
        chain.samples["write"]["xfs"] = {0: dict(chain.samples["write"]["ext4"][0])}
        for name in "ext4", "luks":
            for (_, index), sample in chain.of("write", name).items():
                chain.add("write", name, Sample({**sample.values, "stalls": 3.0 + index / 100}, stalls), index)
        judge_all(chain, "write", "luks", Budget("stalls", overhead=0.5))
        save(f"hosts/host{number}.json", results)
    assert "no host has a figure" not in run_command("hosts", "--strict", code=0)


@pytest.mark.parametrize(("limit", "code"), [(1.0, 1), (9.0, 0)])
def test_each_host_is_judged_by_limits_in_a_unit(run_command: RunCommand, limit: float, code: int) -> None:
    for number, overhead in enumerate(OVERHEADS):
        results = session(number, overhead)
        judge_all(results.chains[0], "write", "luks", Budget(limit=limit, sanity=True))
        save(f"hosts/host{number}.json", results)
    run_command("hosts", code=0)
    assert ("host7: fail" in run_command("hosts", "--each", code=code)) == code
    assert "--limit" in run_command("hosts", "--each", "--limit", "90%", code=4)


def test_two_sessions_of_a_machine_are_one_host(run_command: RunCommand) -> None:
    again = session(0, 0.60)
    again.start = "2026-01-02T00:00:00+00:00"
    save("hosts/again.json", again)
    run_command("hosts", "--json", "pool.json", code=0)
    (first, *others) = pooled()["hosts"]
    assert len(others) == 7
    assert first["estimate"]["overhead"] == pytest.approx((1.44 * 1.60) ** 0.5 - 1)
    # Four machines twice are four hosts.
    files = [f"hosts/host{number}.json" for number in range(4)]
    for number in range(4):
        twin = session(number, OVERHEADS[number])
        twin.start = "2026-01-03T00:00:00+00:00"
        files.append(save(f"twin{number}.json", twin))
    run_command(*files, "--limit", "10%", code=4)


def test_machines_without_an_id_are_one_host(run_command: RunCommand) -> None:
    for number, overhead in enumerate(OVERHEADS):
        results = session(number, overhead)
        del results.environment["machine_id"]
        save(f"hosts/host{number}.json", results)
    out = run_command("hosts", "--limit", "10%", "--json", "pool.json", code=4)
    assert len(pooled()["hosts"]) == 1
    assert re.search(r"^\* \w+: .*\bmachine\b", out, re.MULTILINE)


def test_the_log_of_a_session_beside_its_json_counts_once(run_command: RunCommand) -> None:
    results = session(0, OVERHEADS[0])
    Path("hosts/host0.jsonl").write_bytes(saved.log_line(results, 1, results.chains))
    run_command("hosts", "--json", "pool.json", "--strict", code=0)
    assert len(json.loads(Path("pool.json").read_text())["hosts"][0]["files"]) == 1


def test_what_is_wrong_with_a_host_is_named_and_fails_only_if_strict(run_command: RunCommand) -> None:
    Path("hosts/host1.json").write_text('{"format": 5, "chains"')
    save("hosts/host2.json", replace(session(2, 0.5), interrupted="interrupted"))
    save("hosts/host3.json", session(3, 0.5))
    lost = session(4, 0.5)
    lost.chains[0].samples["write"].pop("luks")
    lost.chains[0].samples["read"] = {
        name: {0: dict(lost.chains[0].samples["write"]["ext4"][0])} for name in ("ext4", "luks")
    }
    lost.chains[0].steps.append("read")
    save("hosts/host4.json", lost)
    save("hosts/host5.json", session(5, 0.5, devices=["a disk"]))
    words = ["hosts", "hosts/none.json", "--limit", "60%"]
    out = run_command(*words, code=0)
    for text in (
        r"host1\.json: .*JSON: Input data was truncated",
        r"none\.json: No such file",
        r"host2\.json: interrupted",
        r"host5\.json: .*`\$\.devices",
        r"\* host4 .*\bwrite on luks",
    ):
        assert re.search(text, out)
    strict = run_command(*words, "--strict", code=1)
    assert strict.count("(--strict)") >= 4


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scale": "paper"}, r"scale .*\bsmall .*\bpaper"),
        ({"environment": {"corpus": {"name": "linux", "files": 1, "bytes": 2}}}, r"corpus .*\b1 bytes\b.*\b2 bytes\b"),
    ],
)
def test_other_scales_corpora_and_work_are_refused_and_not_other_devices(
    run_command: RunCommand, change: dict[str, Any], text: str
) -> None:
    first = session(0, 0.44, corpus={"name": "linux", "files": 1, "bytes": 1})
    save("hosts/host0.json", first)
    other = session(1, 0.47)
    other.scale = change.get("scale", "small")
    other.environment.update(change.get("environment", {}))
    save("hosts/host1.json", other)
    out = run_command("hosts", code=4)
    assert re.search(rf"^fsstack: .*\b{text}\b.*\bhost1\.json", out, re.MULTILINE)
    run_command("hosts", "--anyway", code=0)


def test_a_metric_in_other_units_is_refused(run_command: RunCommand) -> None:
    for name, unit in ("host0", "ms"), ("host1", "s"):
        save(f"hosts/{name}.json", in_unit(unit, "lower"))
    assert re.search(r"latency of write .*\bms .*\bs .* \[host0\.json and host1\.json\]", run_command("hosts", code=4))


def test_other_work_in_a_test_that_the_first_host_lacks_is_refused(run_command: RunCommand) -> None:
    for number in range(1, 4):
        results = session(number, 0.5)
        other = replace(results.chains[0], id="t.py::Other", work={"write": {"bytes": number // 2}})
        save(f"hosts/host{number}.json", replace(results, chains=[*results.chains, other]))
    assert "(bytes: 0 and 1) [host1.json and host2.json, host3.json]" in run_command("hosts", code=4)


def test_a_host_that_differs_is_named_with_what_is_without_it(run_command: RunCommand) -> None:
    save("hosts/host3.json", session(3, 4.0))
    out = run_command("hosts", "--json", "pool.json", code=0)
    series = pooled()
    assert series["differs"] == "host3"
    (without,) = (entry for entry in series["without"] if entry["host"] == "host3")
    assert without["overhead"] == pytest.approx(0.506, abs=0.01)
    assert re.search(r"^\* host3 .*\bwrite on luks \(x5\.00, \+5\d\.\d % ", out, re.MULTILINE)


def test_nothing_to_pool_is_wrong_usage(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    run_command("empty", code=4)
    run_command("nothing.json", code=4)


def test_all_reports_name_each_host_and_the_verdict(run_command: RunCommand) -> None:
    save("hosts/host3.json", session(3, 4.0))
    hostile = session(9, 0.5)
    hostile.labels["host"] = "<b>|evil\x1b[31m"
    save("hosts/host9.json", hostile)
    words = ["--html", "pool.html", "--markdown", "pool.md", "--json", "pool.json"]
    run_command("hosts", "--limit", "40%", *words, code=1)
    page, text = Path("pool.html").read_text(), Path("pool.md").read_text()
    for number in range(8):
        assert f">host{number}<" in page
    assert "<b>|evil" not in page + text
    assert "\x1b" not in page + text
    assert "FAIL (40 %)" in page
    assert "FAIL (40 %)" in text
    assert page.count("<svg") == 1
    assert "next host" in page
    assert re.search(r"\bhost3 [^<]*\bwrite on luks \(x5\.00, ", page)
    Path("pool.html").unlink()
    assert re.search(r"\bhtml .*\bpool\.html$", run_command("hosts", *words, code=0), re.MULTILINE)
    assert Path("pool.html").exists()
    run_command("hosts", "--html", "no/such/page", code=1)


@pytest.mark.parametrize(
    ("fact", "figure"),
    [
        (("estimate", "overhead"), 1e308),
        (("ratios", "deviation"), 1e308),
        (("ratios", "typical"), 1e308),
        (("estimate", "rounds"), 2**40),
    ],
)
def test_a_file_with_absurd_figures_is_named(run_command: RunCommand, fact: tuple[str, str], figure: float) -> None:
    content = json.loads(Path("hosts/host1.json").read_text())
    content["chains"][0]["derived"]["write"]["luks"]["readings"]["seconds"][fact[0]][fact[1]] = figure
    Path("hosts/host1.json").write_text(json.dumps(content))
    assert re.search(r"host1\.json: .*\bExpected\b", run_command("hosts", "--html", "pool.html", code=0))


def test_a_baseline_that_is_no_stack_gives_no_figure(run_command: RunCommand) -> None:
    content = json.loads(Path("hosts/host1.json").read_text())
    (chain,) = content["chains"]
    chain["baseline"], chain["derived"]["write"]["xfs"] = "xfs", chain["derived"]["write"]["ext4"]
    Path("hosts/host1.json").write_text(json.dumps(content))
    assert re.search(r"host1\.json: no overhead", run_command("hosts", code=0))


def test_hosts_that_have_nothing_in_common_are_pooled(run_command: RunCommand) -> None:
    for number in range(3):
        save(f"hosts/host{number}.json", session(number, 1e190 if number else 0.0))
    run_command(*(f"hosts/host{number}.json" for number in range(3)), "--html", "pool.html", code=0)


@pytest.mark.parametrize("number", [3, 60])
def test_kernels_are_rows_and_hosts_are_columns_while_they_fit(run_command: RunCommand, number: int) -> None:
    for host in range(number):
        for kernel in "6.1", "6.12":
            results = session(host, 0.5)
            results.labels["kernel"], results.start = kernel, f"{results.start} {kernel}"
            save(f"hosts/host{host}-{kernel}.json", results)
    files = sorted(str(path) for path in Path("hosts").glob("host*-*"))
    run_command(*files, "--html", "pool.html", "--json", "pool.json", code=0)
    series = json.loads(Path("pool.json").read_text())["series"]
    assert [(entry["kernel"], len(entry["hosts"])) for entry in series] == [("6.1", number), ("6.12", number)]
    page = Path("pool.html").read_text()
    assert ('<th scope="col">kernel</th>' in page) == (number <= 40)
    assert len(page) < 1 << 20
