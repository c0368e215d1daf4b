"""Sessions on emulated CPUs: what their reports say first, and which budgets are judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plugin.conftest import LAYERS, Project

#: The CPU is emulated, on the kernels with this name or everywhere.
EMULATED = """
from pytest_fsstack.rounds import plans

def pytest_configure(config):
    kernel = getattr(config, "workerinput", {}).get("fsstack", {}).get("kernel", "")
    plans.is_emulated = lambda: kernel in ("", "emulated")
"""
TEST = """
import time
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    @pytest.mark.fsstack_budget("5000%")
    def test_write(self, timed):
        with timed(cold=False):
            time.sleep(0.001)

    @pytest.mark.fsstack_budget(metric="files", limit=7)
    def test_count(self, timed):
        with timed(cold=False):
            pass
        timed.record("files", FILES)
"""
SAID = "Emulated: shows function, not speed"
FILES = {"html": "page.html", "markdown": "page.md", "ktap": "ktap.txt", "csv": "samples.csv", "lava": "lava.txt"}


@pytest.fixture
def emulated(project: Project) -> Project:
    project.pytester.makeconftest(LAYERS + EMULATED)
    project.write(TEST.replace("FILES", "5"))
    return project


def test_every_report_says_so_first(emulated: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = Path("summary.md").absolute()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    reports = [f"--fsstack-report={name}={file}" for name, file in FILES.items()]
    result = emulated.run("--fsstack-rounds=6", "--junitxml=junit.xml", *reports)
    result.assert_outcomes(passed=3, skipped=1)
    lines = result.outlines[next(index for index, line in enumerate(result.outlines) if " answer " in line) :]
    assert next(line for line in lines[1:] if line).startswith(SAID)
    texts = {name: Path(file).read_text() for name, file in FILES.items()}
    assert all(text.startswith(f"**{SAID}") for text in (texts["markdown"], summary.read_text()))
    assert SAID in re.findall("<h1>.*?</h1>", texts["html"])[0]
    assert SAID in texts["ktap"].splitlines()[1]
    assert all(line.endswith(",yes") for line in texts["csv"].splitlines()[1:])
    assert all("emulated" in line for line in texts["lava"].splitlines() if "MEASUREMENT" in line)
    junit = Path("junit.xml").read_text()
    assert SAID in junit
    assert 'name="fsstack_emulated"' in junit


@pytest.mark.parametrize(
    ("words", "outcomes", "files"),
    [
        ([], {"passed": 3, "skipped": 1}, 5),
        (["--fsstack-strict"], {"passed": 3, "failed": 1}, 5),
        (["--fsstack-strict", "--fsstack-judge-emulated"], {"passed": 4}, 5),
        # A count is judged in any case.
        ([], {"passed": 1, "skipped": 1, "failed": 2}, 9),
    ],
)
def test_time_is_judged_only_with_the_option(
    emulated: Project, words: list[str], outcomes: dict[str, int], files: int
) -> None:
    emulated.write(TEST.replace("FILES", str(files)))
    result = emulated.run("--fsstack-rounds=6", "-rs", *words)
    result.assert_outcomes(**outcomes)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if "failed" in outcomes else pytest.ExitCode.OK)
    told = any("write on crypt" in line and "--fsstack-judge-emulated" in line for line in result.outlines)
    assert told == ("--fsstack-judge-emulated" not in words)


def test_times_of_emulated_runs_are_not_judged_against_earlier_ones(emulated: Project) -> None:
    emulated.pytester.mkdir("earlier")
    for number in range(5):
        emulated.run("--fsstack-rounds=2", f"--fsstack-json=earlier/{number}.json", "-k", "write")
    words = ("--fsstack-compare=earlier", "--fsstack-max-regression=5000%", "--fsstack-rounds=2", "-rs", "-k", "write")
    result = emulated.run(*words)
    assert result.ret == pytest.ExitCode.OK
    skips = [line for line in result.outlines if line.startswith("SKIPPED")]
    assert any("not judged" in line and "--fsstack-judge-emulated" in line for line in skips)
    assert any(line.startswith("write on crypt (emulated) ") for line in result.outlines)


@pytest.mark.plugins("xdist")
def test_only_the_emulated_kernel_of_several_is_not_judged(emulated: Project) -> None:
    pytest.importorskip("xdist")
    emulated.pytester.makeconftest(
        LAYERS
        + EMULATED
        + """
@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    from pytest_fsstack.kernels import controller
    from pytest_fsstack.kernels.images import Kernel

    controller.resolve = lambda text, cache: Kernel(text)
"""
    )
    words = ("--fsstack-kernel=real", "--fsstack-kernel=emulated", "--fsstack-max-regression=5000%", "-k", "write")
    result = emulated.run("--fsstack-rounds=6", "--fsstack-judge-one-boot", "--fsstack-report=markdown=page.md", *words)
    assert result.ret == pytest.ExitCode.OK
    first, *others = [line for line in Path("page.md").read_text().splitlines() if line.startswith("**")]
    assert first.startswith("**Emulated on emulated: shows function, not speed")
    # The budget on the real kernel is judged; that on the other one, and the limits between both, are not.
    assert "Of 4 limits: 1 kept, 3 not judged" in first
    assert not any("emulated against real" in line for line in others)
    assert any(line.startswith("**TestIt (in each kernel): On real: ") for line in others)
