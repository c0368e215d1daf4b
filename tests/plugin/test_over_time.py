"""A session against earlier ones: --fsstack-compare, --fsstack-max-regression, --fsstack-save-reference."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_fsstack.machine import identity
from pytest_fsstack.over_time.comparison import ONE_RUN_EACH
from pytest_fsstack.over_time.history import append, file_of, read
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import FORMAT, Results
from pytest_fsstack.records.sample import Sample
from tests.chains import a_chain
from tests.plugin.conftest import Project

# Whatever the machine does: crypt costs 100 % more.
TEST = """
import msgspec
import pytest

@pytest.mark.fsstack("plain", "crypt")
def test_step(fsstack, timed, log):
    log("ran")
    with timed(cold=False):
        pass
    seconds = 0.02 if fsstack.stack.id == "plain" else 0.04
    timed._sample = msgspec.structs.replace(timed._sample, values={**timed._sample.values, "seconds": seconds})
"""

MACHINE = identity.machine_id()
needs_machine_id = pytest.mark.skipif(MACHINE is None, reason="this machine has no /etc/machine-id")


def earlier(overhead: float, *, scale: str = "small", stacks: tuple[str, ...] = ("plain", "crypt")) -> Results:
    """Return an earlier run in which every stack but the first cost that much over it."""
    costs = {name: 0.02 * (1 if name == "plain" else 1 + overhead) for name in stacks}
    chain = a_chain({"step": costs}, 2, id="test_it.py::test_step")
    return chain.results({"machine_id": MACHINE} if MACHINE else {}, scale=scale)


def save(path: Path, results: Results) -> Path:
    path.write_text(saved.dumps(results))
    return path


@pytest.fixture
def history(project: Project) -> Path:
    """Five earlier runs, in which crypt cost about 20 % over plain; it costs 100 % now."""
    project.write(TEST)
    directory: Path = project.pytester.mkdir("history")
    for number, overhead in enumerate((0.19, 0.20, 0.21, 0.20, 0.19)):
        save(directory / f"{number}.json", earlier(overhead))
    return directory


@needs_machine_id
def test_a_regression_fails_the_session_and_its_first_line_says_all(project: Project, history: Path) -> None:
    words = (f"--fsstack-compare={history}", "--fsstack-max-regression=5%", "--fsstack-save-reference=new.json")
    result = project.run("--fsstack-rounds=2", *words, "--junitxml=out.xml", "-rf")
    result.assert_outcomes(passed=2, failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*= * 5 * =*",
            "now  *1 run; 20*",
            "then  *5 runs*",
            "limit  * 5 %*",
            "step on plain  *20 ms  *20 ms",
            "step on crypt  *24 ms, +20.0 %  *40 ms, +100 %  *+6?.? % (* %)*FAIL",
            "[*] 1 run * 5 *",
            "FAILED test_it.py::test_step::step on crypt against earlier runs - crypt: *",
            "fsstack: * new.json *",
        ]
    )
    assert not (project.pytester.path / "new.json").exists()
    cases = {case.get("name"): case for case in ElementTree.parse(project.pytester.path / "out.xml").iter("testcase")}
    failure = cases["step on crypt against earlier runs"].find("failure")
    assert failure is not None
    first = (failure.get("message") or failure.text or "").split("\n")[0]
    assert re.fullmatch(r"crypt: seconds \+.* 5 .* 5 %", first)
    assert len(first) <= 80


@needs_machine_id
def test_what_costs_no_more_passes_and_becomes_the_reference(project: Project, history: Path) -> None:
    words = (
        f"--fsstack-compare={history}",
        "--fsstack-max-regression=400%",
        "--fsstack-save-reference=history/new.json",
    )
    result = project.run("--fsstack-rounds=2", *words)
    result.assert_outcomes(passed=3)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["step on crypt  *pass", "fsstack: *history/new.json"])
    assert saved.loads((history / "new.json").read_text()).environment["machine_id"] == MACHINE


@needs_machine_id
def test_one_run_each_gives_figures_and_no_verdict_and_is_refused_only_if_strict(
    project: Project, history: Path
) -> None:
    words = ("--fsstack-rounds=2", f"--fsstack-compare={history / '0.json'}", "--fsstack-max-regression=5%")
    result = project.run(*words, "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["step on crypt  *+* %  *-", f"[*] {ONE_RUN_EACH}", f"*crypt: {ONE_RUN_EACH}*"])
    rounds = len((project.pytester.path / "log").read_text().splitlines())
    strict = project.run(*words, "--fsstack-strict")
    assert strict.ret == pytest.ExitCode.USAGE_ERROR
    strict.stderr.fnmatch_lines(["ERROR: --fsstack-max-regression*--fsstack-strict*5.0 % *step on crypt*"])
    assert len((project.pytester.path / "log").read_text().splitlines()) == rounds


@needs_machine_id
@pytest.mark.parametrize(("limit", "status"), [("1%", pytest.ExitCode.USAGE_ERROR), ("150%", pytest.ExitCode.OK)])
def test_a_strict_gate_is_refused_if_its_limit_decides_too_little(
    project: Project, history: Path, limit: str, status: pytest.ExitCode
) -> None:
    words = ("--fsstack-rounds=2", f"--fsstack-compare={history}", f"--fsstack-max-regression={limit}")
    assert project.run(*words, "--fsstack-strict").ret == status


@needs_machine_id
@pytest.mark.parametrize("hopeless", ["test_it.py::TestIt", "test_it.py::test_other"])
def test_a_strict_gate_is_refused_only_for_a_test_that_runs(project: Project, history: Path, hopeless: str) -> None:
    imports, function = TEST.split("\n\n", 1)
    method = textwrap.indent(function.replace("(fsstack", "(self, fsstack"), "    ")
    project.write(f"{imports}\nclass TestIt:\n{method}")
    for number, path in enumerate(sorted(history.iterdir())):
        results, noisy = earlier(0.2), earlier(0.5 * (number % 2))
        noisy.chains[0].id = hopeless
        results.chains[0].id = ({"test_it.py::TestIt", "test_it.py::test_other"} - {hopeless}).pop()
        results.chains += noisy.chains
        save(path, results)
    words = ("--fsstack-rounds=2", f"--fsstack-compare={history}", "--fsstack-max-regression=150%", "--fsstack-strict")
    refused = project.run(*words).ret == pytest.ExitCode.USAGE_ERROR
    assert refused == hopeless.endswith("TestIt")


def slower(history: Path, factor: float) -> None:
    """Let every stack have cost that much less in the earlier runs."""
    for path in history.iterdir():
        results = saved.loads(path.read_text())
        (chain,) = results.chains
        for step, stack, samples in list(chain.all_samples()):
            for (_, number), sample in samples.items():
                chain.add(step, stack, Sample({"seconds": sample["seconds"] / factor}), number)
        path.write_text(saved.dumps(results))


@needs_machine_id
def test_a_failure_and_a_reference_that_moved_are_in_all_reports(
    project: Project, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slower(history, 10)
    reports = [f"--fsstack-report={name}=out.{name}" for name in ("html", "markdown", "json")]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.pytester.path / "summary"))
    words = (f"--fsstack-compare={history}", "--fsstack-max-regression=5%", "--junitxml=out.xml")
    result = project.run("--fsstack-rounds=2", *words, *reports)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for name in ("out.html", "out.markdown", "out.json", "summary", "out.xml"):
        text = (project.pytester.path / name).read_text()
        assert re.search("plain [^:]*: step 2 ms .* 20 ms", text), name
        assert re.search("crypt: seconds .* 5 [^,]*, [^,]* 5 %", text) or name == "out.json", name


@needs_machine_id
def test_bisecting_asks_for_the_metrics_only_that_the_limit_judges(project: Project, history: Path) -> None:
    project.write(TEST.replace('"seconds": seconds', '"seconds": seconds, "cpu_seconds": seconds'))
    for path in history.iterdir():
        results = saved.loads(path.read_text())
        (chain,) = results.chains
        for step, stack, samples in list(chain.all_samples()):
            for (_, number), sample in samples.items():
                chain.add(step, stack, Sample({**sample.values, "cpu_seconds": sample["seconds"]}), number)
        save(path, results)
    words = ("--fsstack-rounds=5", f"--fsstack-compare={history}", "--fsstack-max-regression=400%")
    result = project.run(*words, "--fsstack-budget=crypt: cpu_seconds 900%", "--fsstack-exit=bisect")
    assert result.ret == pytest.ExitCode.OK


@needs_machine_id
def test_the_header_says_if_the_limit_cannot_be_decided(project: Project, history: Path) -> None:
    words = ("--fsstack-rounds=2", f"--fsstack-compare={history}")
    line = "fsstack: --fsstack-max-regression: *step on crypt*"
    project.run(*words, "--fsstack-max-regression=1%").stdout.fnmatch_lines([line])
    project.run(*words, "--fsstack-max-regression=50%").stdout.no_fnmatch_line(line)
    for name in ("0.json", "1.json", "2.json"):
        (history / name).unlink()
    project.run(*words, "--fsstack-max-regression=50%").stdout.fnmatch_lines([f"{line}: 2 * 5"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "OLD.json: *JSON: *"),
        (saved.dumps(earlier(0.1, scale="paper")), "OLD.json: * paper* small*--fsstack-scale=paper*"),
        (None, "OLD.json *"),
    ],
)
def test_what_cannot_be_compared_with_ends_the_session_before_anything_is_measured(
    project: Project, content: str | None, message: str
) -> None:
    project.write(TEST)
    path = project.pytester.path / "OLD.json"
    if content is not None:
        path.write_text(content)
    result = project.run(f"--fsstack-compare={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --fsstack-compare: *{message}"])
    assert not (project.pytester.path / "log").exists()


def test_what_makes_it_meaningless_fails_the_session_unless_it_is_wanted_anyway(
    project: Project, history: Path
) -> None:
    other = earlier(0.2)
    other.chains[0].work["step"] = {"bytes": 5, "direction": "write", "cold": False}
    path = save(project.pytester.path / "other.json", other)
    words = ("--fsstack-rounds=2", f"--fsstack-compare={path}")
    result = project.run(*words, "-rf")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*: step * (bytes: 5 *) [[]other.json]",
            "FAILED fsstack-compare - *: step *",
        ]
    )
    result = project.run(*words, "--fsstack-compare-anyway")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["step on crypt  *"])


@needs_machine_id
def test_what_is_on_one_side_only_is_reported_and_fails_a_strict_gate(project: Project, history: Path) -> None:
    for path in history.iterdir():
        save(path, earlier(0.2, stacks=("plain", "crypt", "gone")))
    words = ("--fsstack-rounds=2", f"--fsstack-compare={history}", "--fsstack-max-regression=900%")
    result = project.run(*words)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["[*] * then: step on gone"])
    result = project.run(*words, "--fsstack-strict", "-rf")
    result.stdout.fnmatch_lines(["gone: seconds * (--fsstack-strict)", "FAILED *on gone against earlier runs*"])


def test_a_session_that_has_nothing_in_common_with_the_earlier_ones_fails(project: Project, history: Path) -> None:
    # Anyway, so it is not refused as another kind of run.
    words = ("--fsstack-rounds=2", f"--fsstack-compare={history}", "--fsstack-compare-anyway")
    result = project.run(*words, "--fsstack-stacks=plain", "-rf")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED fsstack-compare - *overhead*"])
    result = project.run(f"--fsstack-compare={history}", "-k", "no_such_test")
    assert result.ret != pytest.ExitCode.OK


def test_a_run_is_accepted_only_if_nothing_failed(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(TEST + "\ndef test_other():\n    import os\n    assert 'BREAK' not in os.environ\n")
    path = project.pytester.path / "reference.json"
    result = project.run("--fsstack-rounds=2", "--fsstack-save-reference=reference.json")
    assert result.ret == pytest.ExitCode.OK
    first = path.read_text()
    assert json.loads(first)["format"] == FORMAT
    monkeypatch.setenv("BREAK", "1")
    result = project.run("--fsstack-rounds=2", "--fsstack-save-reference=reference.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["fsstack: * reference.json *"])
    assert path.read_text() == first
    monkeypatch.delenv("BREAK")
    result = project.run("--benchmark-skip", "--fsstack-save-reference=reference.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert path.read_text() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fsstack-save-reference=no/such/file.json"], "--fsstack-save-reference: *no/such*"),
        (
            ["--fsstack-save-reference=a.json", "--benchmark-disable"],
            "--fsstack-save-reference: *--benchmark-disable*",
        ),
        (["--fsstack-compare=test_it.py", "--setup-only"], "--fsstack-compare: *--setup-only*"),
        (["--fsstack-max-regression=5%"], "--fsstack-max-regression*--fsstack-compare=FILE*"),
        (["--fsstack-compare-anyway"], "--fsstack-compare-anyway * --fsstack-compare=FILE"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_measured(project: Project, words: list[str], message: str) -> None:
    project.write(TEST)
    result = project.run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert not (project.pytester.path / "log").exists()


# -- the history -------------------------------------------------------------------------------------------------------


@pytest.fixture
def machines_file(project: Project) -> Path:
    """Where a session with --fsstack-history=runs adds itself."""
    project.write(TEST)
    return file_of(project.pytester.mkdir("runs"), MACHINE)


def test_every_run_is_added_whether_it_passed_or_not(project: Project, machines_file: Path) -> None:
    for budget, status in ("900%", 0), ("10%", 1):
        words = ("--fsstack-rounds=5", "--fsstack-history=runs", f"--fsstack-budget=crypt: {budget}")
        result = project.run(*words, "--fsstack-json=run.json", f"--fsstack-label=budget={budget}")
        assert result.ret == status
        result.stdout.fnmatch_lines([f"fsstack: * runs/{machines_file.name}"])
    found = read(machines_file)
    assert found.problems == []
    assert [results.labels["budget"] for results in found.runs] == ["900%", "10%"]
    assert saved.dumps(found.runs[1]) == (project.pytester.path / "run.json").read_text()


def test_the_directory_of_a_history_is_made(project: Project) -> None:
    project.write(TEST)
    directory = project.pytester.path / "deep/runs"
    assert project.run("--fsstack-history=deep/runs", "--fixtures").ret == pytest.ExitCode.OK
    assert not directory.exists()
    project.run("--fsstack-rounds=2", "--fsstack-history=deep/runs")
    assert len(read(file_of(directory, MACHINE)).runs) == 1


def test_an_interrupted_run_is_added_and_marked(project: Project, machines_file: Path) -> None:
    project.write(TEST + "\ndef test_later():\n    raise KeyboardInterrupt\n")
    result = project.run("--fsstack-rounds=2", "--fsstack-history=runs")
    result.stdout.fnmatch_lines(["fsstack: * runs/*.jsonl, *interrupted"])
    assert [results.interrupted for results in read(machines_file).runs] == ["interrupted"]


def test_a_torn_line_is_told_by_the_next_run_and_only_once(project: Project, machines_file: Path) -> None:
    append(machines_file, saved.line(earlier(0.2)))
    with machines_file.open("a") as file:
        file.write('{"format": 3, "inter')
    line = "fsstack: * 20 bytes * runs/*.torn"
    project.run("--fsstack-rounds=2", "--fsstack-history=runs").stdout.fnmatch_lines([line])
    project.run("--fsstack-rounds=2", "--fsstack-history=runs").stdout.no_fnmatch_line(line)
    assert len(read(machines_file).runs) == 3


def test_what_measured_nothing_is_not_added_and_fails(project: Project, machines_file: Path) -> None:
    project.write("def test_it():\n    pass\n")
    result = project.run("--fsstack-history=runs")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["fsstack: * runs/*.jsonl: *"])
    project.run("--fsstack-history=runs", "--collect-only").stdout.no_fnmatch_line("fsstack: * runs/*.jsonl*")
    project.run("--fsstack-history=runs", "--fsstack-doctor").stdout.no_fnmatch_line("fsstack: * runs/*.jsonl*")
    assert not machines_file.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fsstack-history=test_it.py"], "--fsstack-history: test_it.py *directory"),
        (
            ["--fsstack-history=runs", "--benchmark-disable"],
            "--fsstack-history: *--benchmark-disable*",
        ),
        (["--fsstack-history=runs"], "--fsstack-history: history=runs/*.jsonl: *directory"),
    ],
)
def test_a_history_that_cannot_be_is_said_before_anything_is_measured(
    project: Project, machines_file: Path, words: list[str], message: str
) -> None:
    machines_file.mkdir()
    result = project.run(*words)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert not (project.pytester.path / "log").exists()
