"""The command `fsstack`: each subcommand does what pytest's options do, and says in one line what is wrong."""

from __future__ import annotations

import configparser
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack import command, options
from pytest_fsstack.command import main, parser, subcommands
from pytest_fsstack.fleet.pooling import command as pooled
from pytest_fsstack.records import saved as saving
from pytest_fsstack.records.results import Results, TestOutcome
from tests.plugin.conftest import Project
from tests.unit.report.results import made

ROOT = Path(__file__).parents[2]

TEST = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.fsstack_budget("900%")
class TestIt:
    def test_write(self, timed, fsstack):
        with timed(bytes=4096):
            (fsstack.path / "file").write_bytes(bytes(4096))
"""


@pytest.fixture(autouse=True)
def _here(pytester: pytest.Pytester) -> Path:
    return pytester.path


def said(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a subcommand prints, on both streams."""
    capfd.readouterr()
    found = main(words)
    out, err = capfd.readouterr()
    assert found == code, out + err
    return out + err


@pytest.fixture
def saved() -> Path:
    path = Path("run.json")
    path.write_text(saving.dumps(made(3, ["write"])))
    return path


def test_ctrl_c_is_an_exit_code_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(files: object) -> tuple[list[object], dict[str, str]]:
        signal.raise_signal(signal.SIGINT)
        return [], {}

    monkeypatch.setattr(pooled, "_read", interrupted)
    assert main(["pool", "run.json"]) == 130


# -- report ------------------------------------------------------------------------------------------------------------


def test_reports_are_those_that_the_session_writes(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    project.write(TEST)
    result = project.run("--fsstack-rounds=5", "--fsstack-json=run.json", "--fsstack-report=csv=session.csv")
    assert result.ret == 0
    out = said(capfd, "report", "run.json", "--csv", "late.csv", "--json", "late.json", "--html", "late.html")
    for name in "csv", "json", "html":
        assert re.search(rf"\b{name} .*late\.{name}$", out, re.MULTILINE)
    assert Path("late.csv").read_text() == Path("session.csv").read_text()
    assert Path("late.json").read_text() == Path("run.json").read_text()
    assert "test_it.py::TestIt" in Path("late.html").read_text()


def test_without_a_format_it_prints_the_tables(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "| luks+ext4" in said(capfd, "report", str(saved))


def test_a_report_weighs_the_steps_as_it_is_told(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    saved.write_text(saving.dumps(made(3, ["write", "delete"])))
    assert "write=3" not in said(capfd, "report", str(saved))
    assert "write=3" in said(capfd, "report", str(saved), "--weights=write=3")
    unknown = said(capfd, "report", str(saved), "--weights=wriet=3", code=4)
    assert re.search("--weights: .*'wriet'.*'write'", unknown)
    for wrong in "write", "":
        out = said(capfd, "report", str(saved), f"--weights={wrong}", code=4)
        assert re.search("--weights: .*STEP=WEIGHT.*write", out)


def test_several_runs_stand_side_by_side(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("other").mkdir()
    for name in "server.json", "other/run.json":
        Path(name).write_text(saved.read_text())
    out = said(capfd, "report", str(saved), "server.json")
    headings = [line for line in out.splitlines() if line.startswith("## ") and " loop of " in line]
    assert [line.split()[-1] for line in headings] == ["run", "server"]
    assert "report: --json " in said(capfd, "report", str(saved), "server.json", "--json", "x.json", code=4)
    assert not Path("x.json").exists()
    assert re.search(r"report: .*\brun,", said(capfd, "report", str(saved), "other/run.json", code=4))


def test_a_session_that_failed_before_it_measured_has_the_report_of_its_end(
    saved: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saved.write_text(saving.dumps(Results(tests={"t": TestOutcome("t", "failed", "mkfs failed")})))
    assert "mkfs failed" in said(capfd, "report", str(saved))
    saved.write_text(saving.dumps(Results()))
    assert "nothing was measured" in said(capfd, "report", str(saved), code=4)


@pytest.mark.parametrize("addopts", ["", "-p no:fsstack"])
def test_reports_of_the_project_are_known(saved: Path, capfd: pytest.CaptureFixture[str], addopts: str) -> None:
    Path("pytest.ini").write_text(f"[pytest]\naddopts = {addopts}\n")
    hook = "def pytest_fsstack_reports():\n    return {'count': lambda results: f'{len(results.chains)} chain'}\n"
    Path("conftest.py").write_text(hook)
    said(capfd, "report", str(saved), "--count", "count.txt")
    assert Path("count.txt").read_text() == "1 chain"


def test_a_table_whose_plugin_is_gone_fails_its_report_only(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content = json.loads(saved.read_text())
    content["chains"][0]["tables"] = [["lost", {}]]
    saved.write_text(json.dumps(content))
    out = said(capfd, "report", str(saved), "--markdown", "a.md", "--csv", "a.csv", code=1)
    assert "'lost'" in out
    assert "Traceback" not in out
    assert Path("a.csv").exists()
    assert not Path("a.md").exists()
    assert "'lost'" in said(capfd, "report", str(saved), code=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report"], r"report: .*RUN\.json"),
        (["report", "absent.json"], r"absent\.json: No such file or directory"),
        (["report", "text.txt"], r"text\.txt: .*JSON"),
        (["report", "empty.json"], r"empty\.json: .*`format`"),
        (["report", "empty.json", "--pdf", "x"], "report: .*--pdf x"),
        (["run"], "run: .*encryption_overhead"),
        (["run", "-v"], "run: .*encryption_overhead"),
        (["stacks"], "stacks: .*explain"),
        (["stacks", "explain"], r"stacks explain: .*'luks \| ext4'"),
        (["new"], "new: .*kind"),
        (["new", "stack", "x"], "new: .*kind.*'stack'"),
        (["new", "layer", "Größe"], "new: 'Größe' .*layer"),
        (["new", "layer", "class"], "new: 'class' .*layer"),
        (["new", "layer", "ext4"], "new: .*layer 'ext4'"),
        (["new", "workload", "extract"], "new: .*workload 'extract'"),
        (["new", "workload", "timed"], "new: .*'timed'"),
        (["new", "workload", "bytes"], "new: .*'bytes'"),
        (["clean"], ".*COMMAND: .*'clean'"),
        (["--fsstack-json"], ".*COMMAND"),
        (["trend", ".", "--every"], "trend: .*--every"),
    ],
)
def test_wrong_usage_is_a_sentence_and_exit_code_4(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("text.txt").write_text("no JSON")
    Path("empty.json").write_text("{}")
    out = said(capfd, *words, code=4)
    assert re.match(f"fsstack: {message}", out)
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "filesistems"], r"--fsstack-scenario: .*'filesistems'[^,]* filesystems\?"),
        (["stacks", "explain", "exr4"], r".*'exr4'[^,]* ext4\?"),
        (["stacks", "explain", "encfs"], "encfs .*directory.* loop .*block device"),
        (["stacks", "explain", "ext4", "--fsstack-size=many"], "--fsstack-size: 'many'"),
    ],
)
def test_what_pytest_refuses_is_its_sentence_and_exit_code(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    out = said(capfd, *words, code=4)
    assert re.search(f"^ERROR: {message}", out, re.MULTILINE)
    assert "Traceback" not in out


def test_a_report_that_would_go_nowhere_is_refused(saved: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert re.search("report: --csv: .*no/such$", said(capfd, "report", str(saved), "--csv", "no/such/file", code=4))
    assert "report: csv=.: " in said(capfd, "report", str(saved), "--csv", ".", code=4)
    assert re.search("report: html=x: .*csv", said(capfd, "report", str(saved), "--csv", "x", "--html", "x", code=4))
    assert not Path("x").exists()


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_scenario_is_collected_by_its_name_from_anywhere(capfd: pytest.CaptureFixture[str]) -> None:
    out = said(capfd, "run", "filesystems", "--collect-only", "-q")
    assert "test_filesystems.py::TestFilesystems::test_write_file[ext4]" in out


def test_the_doctor_and_the_cleanup_are_those_of_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def session(words: list[str], plugins: object) -> int:
        seen.append(words)
        return 0

    monkeypatch.setattr(pytest, "main", session)
    assert main(["doctor", "install", "--fsstack-stacks=ext4"]) == 0
    assert main(["doctor", "tests"]) == 0
    assert main(["cleanup"]) == 0
    assert seen == [
        ["--fsstack-doctor=install", "--fsstack-stacks=ext4"],
        ["--fsstack-doctor=show", "tests"],
        ["--fsstack-cleanup"],
    ]


def test_a_layer_of_the_project_is_explained(project: Project, capfd: pytest.CaptureFixture[str]) -> None:
    out = said(capfd, "stacks", "explain", "crypt", f"--fsstack-device=dir:{project.device}")
    assert f"mkdir {project.device}/fsstack-XXXXXXXX/data/crypt\n" in out
    assert list(project.device.iterdir()) == []
    assert "ls /no/such/file" in said(capfd, "stacks", "explain", "broken", f"--fsstack-device=dir:{project.device}")


def test_a_kernel_in_the_ini_is_not_booted_to_explain_a_stack(
    pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    pytester.makeini("[pytest]\nfsstack_kernel = /no/such/kernel\n")
    assert "mkfs.ext4" in said(capfd, "stacks", "explain", "ext4")


# -- new ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["workload", "layer", "scenario"])
def test_what_new_writes_passes_as_it_is_in_a_directory(
    kind: str, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    out = said(capfd, "new", kind, "my_thing")
    Path("place").mkdir()
    scale = ["--fsstack-scale=smoke", "--fsstack-rounds=1"] if kind == "scenario" else ["--fsstack-rounds=2"]
    assert "pytest test_my_thing.py --fsstack-device=dir:." in out
    result = pytester.runpytest_subprocess("test_my_thing.py", "--fsstack-device=dir:place", *scale, "-q")
    passed = {"workload": 2, "layer": 3, "scenario": 8}[kind]
    result.assert_outcomes(passed=passed)
    # Clean by the project's own rules for style.
    for file in pytester.path.glob("*.py"):
        compile(file.read_text(), str(file), "exec")
        assert max(map(len, file.read_text().splitlines())) <= 120


def test_new_overwrites_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_mine.py").write_text("mine")
    assert "test_mine.py" in said(capfd, "new", "layer", "mine", code=4)
    assert Path("test_mine.py").read_text() == "mine"
    assert not Path("mine_layer.py").exists()


def test_a_conftest_that_is_there_is_left_and_the_lines_for_it_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    Path("conftest.py").write_text("# mine\n")
    out = said(capfd, "new", "layer", "mine")
    assert "from mine_layer import Mine" in out
    assert Path("conftest.py").read_text() == "# mine\n"


# -- the command itself ------------------------------------------------------------------------------------------------


def test_every_subcommand_has_its_function_and_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    commands = subcommands(parser())
    assert "stacks explain" in commands
    for name, each in commands.items():
        module, _, function = each.get_default("place").partition(":")
        assert callable(getattr(importlib.import_module(module, "pytest_fsstack.command"), function))
        assert f"usage: fsstack {name}" in said(capfd, *name.split(), "--help")
        assert name.split()[0] in said(capfd, "--help")


def test_what_a_subcommand_is_short_for_exists() -> None:
    flags = {option.flags for option in options.OPTIONS}
    short = [each.epilog.split() for each in subcommands(parser()).values() if each.epilog]
    assert short
    for words in short:
        assert "pytest" in words
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= flags


def test_without_words_the_overview_and_exit_code_4(capfd: pytest.CaptureFixture[str]) -> None:
    assert "usage: fsstack" in said(capfd, code=4)


def test_the_entry_point_is_the_function() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"].split("\n")
    assert "fsstack = pytest_fsstack.command:main" in scripts
    assert command.main is main


def test_it_runs_as_a_module_and_imports_no_pytest_for_its_help() -> None:
    code = "import sys; from pytest_fsstack.command import main; main(['--help']); print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    done = subprocess.run([sys.executable, "-m", "pytest_fsstack.command", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("pytest-fsstack 0.")


@pytest.mark.parametrize("words", [("stacks", "explain", "ext4"), ("report", "run.json")])
def test_a_reader_that_has_read_enough_is_no_error(saved: Path, words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", "pytest_fsstack.command", *words]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
