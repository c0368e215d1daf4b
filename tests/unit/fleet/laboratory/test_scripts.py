"""Scripts on hosts: they pass on all arguments unchanged."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.fleet.laboratory import run, slurm
from pytest_fsstack.fleet.laboratory.run import Host, Task
from pytest_fsstack.fleet.laboratory.settings import Settings

#: What a shell would act on, and anything else that argv can hold.
WORDS = st.one_of(
    st.sampled_from(
        ["$(touch bad)", "`touch bad`", "; touch bad;", "' touch bad '", '"; touch bad; "', "\n touch bad\n"]
    ),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])),
)
#: In place of Python: it writes down its words.
RECORDER = '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done >>"${0%/*}/words"\n'


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("host") / "it's $(touch bad) here"
    (directory / "runs/r/python/bin").mkdir(parents=True)
    (directory / "runs/r/files").mkdir()
    (directory / "runs/r/python/bin/python").write_text(RECORDER)
    (directory / "runs/r/python/bin/python").chmod(0o755)
    return directory


@given(words=st.lists(WORDS), kernels=st.lists(WORDS, max_size=3), index=st.integers(0, 2))
def test_pytest_gets_its_words_and_the_kernel_of_the_task(
    host: Path, words: list[str], kernels: list[str], index: int
) -> None:
    index = min(index, max(0, len(kernels) - 1))
    recorded = host / "runs/r/python/bin/words"
    recorded.unlink(missing_ok=True)
    results = host / "runs/r/results" / str(index)
    shutil.rmtree(results.parent, ignore_errors=True)
    argv = [*map(str, ("sh", run.SCRIPTS / "session.sh", host, "r", len(kernels))), *kernels, *words]
    result = subprocess.run(argv, cwd=host, env={**os.environ, "SLURM_ARRAY_TASK_ID": str(index)})
    assert result.returncode == 0
    given = recorded.read_bytes().decode().split("\0")[:-1]
    kernel = [f"--fsstack-kernel={kernels[index]}"] if kernels and kernels[index] else []
    assert given[: 4 + len(words) + len(kernel)] == ["-m", "pytest", "-p", "no:cacheprovider", *words, *kernel]
    assert all(word.startswith(("--fsstack-", "--junitxml=")) for word in given[4 + len(words) + len(kernel) :])
    assert (results / "exit").read_text() == "0\n"
    assert not list(host.parent.rglob("bad"))


def test_a_session_that_has_begun_is_not_begun_again(host: Path) -> None:
    words = ["sh", str(run.SCRIPTS / "session.sh"), str(host), "r", "0"]
    codes = [
        subprocess.run(words, env={**os.environ, "SLURM_ARRAY_TASK_ID": "7"}, capture_output=True).returncode
        for _ in range(2)
    ]
    assert codes == [0, 125]
    assert re.findall(r"\bmkdir\b.*\bexists", (host / "runs/r/results/7.errors").read_text())


def test_the_reason_why_no_session_begins_is_sent(tmp_path: Path) -> None:
    words = ["sh", str(run.SCRIPTS / "session.sh"), str(tmp_path), "r", "0"]
    assert subprocess.run(words, env={**os.environ, "SLURM_ARRAY_TASK_ID": "0"}).returncode == 125
    shutil.copytree(tmp_path / "runs/r/results", tmp_path / "results/node1")
    host = Host("node1", "loop", "/", {}, [Task(state="FAILED")], job="1", fetched=True)
    lab = run.Run(tmp_path, run.State("r", Settings([]), [], [host]))
    assert re.match(r"not begun: .*\bfiles\b", lab.outcome(host, host.tasks[0]))


@given(words=st.lists(WORDS))
def test_sbatch_gets_the_script_and_its_words(words: list[str]) -> None:
    given: list[tuple[str, ...]] = []

    def record(*argv: str) -> str:
        given.append(argv)
        return "12;cluster\n"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurm, "_run", record)
        assert slurm.submit("name", "node1", 3, ["--time=5"], Path("session.sh"), words) == "12"
    (argv,) = given
    place = argv.index("session.sh")
    assert list(argv[place + 1 :]) == words
    assert "--export=NONE" in argv[:place], "nothing of this environment goes with a job"
    assert {"--array=0-2%1", "--nodelist=node1", "--exclusive"} <= set(argv[:place])


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Install a shell script as a command of Slurm."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def install(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return install


def collect() -> bytes:
    return slurm.on_host("node1", run.SCRIPTS / "collect.sh", [], name="run")


def test_a_program_that_waits_for_a_drained_host_ends_with_its_job(
    install: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The real one cancels its job then. After SIGKILL, the job would hold the host.
    install("srun", f"trap 'echo cancelled >{tmp_path}/job; exit 1' TERM; while :; do sleep 0.01; done")
    monkeypatch.setattr(slurm, "_CHECK_SECONDS", 0.5)
    monkeypatch.setattr(slurm, "unavailable", lambda hosts: {"node1": "drain: disk replaced"})
    with pytest.raises(slurm.HostError, match="disk replaced"):
        collect()
    assert (tmp_path / "job").read_text() == "cancelled\n"


@pytest.mark.parametrize(
    ("text", "silent"),
    [("Unable to contact slurm controller (connect failure)", True), ("Invalid partition specified", False)],
)
def test_a_controller_that_does_not_answer_is_told_from_a_command_that_fails(
    install: Callable[[str, str], None], text: str, silent: bool
) -> None:
    for name in "squeue", "srun":
        install(name, f"echo '{name}: error: {text}' >&2; exit 1")
    for ask in (lambda: slurm.jobs("run")), collect:
        with pytest.raises((slurm.SlurmError, slurm.HostError), match=re.escape(text)) as raised:
            ask()
        assert isinstance(raised.value, slurm.NoAnswerError) is silent


def test_an_archive_is_sent_even_if_no_session_has_begun(host: Path) -> None:
    shutil.rmtree(host / "runs/r/results", ignore_errors=True)
    result = subprocess.run(["sh", run.SCRIPTS / "collect.sh", host, "r"], stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(result.stdout)) as archive:
        assert archive.getnames() == ["."]


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        *(("idle", ""), ("mix", ""), ("alloc", ""), ("unk", ""), ("unk*", "")),
        *(("idle*", "idle*"), ("down", "down"), ("drng", "drng: new disk"), ("maint", "maint")),
    ],
)
def test_hosts_that_run_nothing_have_a_problem(state: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = problem.partition(": ")[2] or "none"
    monkeypatch.setattr(slurm, "_run", lambda *words: f"node1|{state}|{reason}\nnode2|idle|none\n")
    assert slurm.unavailable(["node1", "node2"]) == ({"node1": problem} if problem else {})
    assert set(slurm.unavailable(["node3"])) == {"node3"}
