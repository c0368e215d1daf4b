"""The scenarios at their smallest scale on loop devices: every stack that this kernel has, and every step."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from pytest_fsstack.judging.describe import note_in_words
from pytest_fsstack.records.results import ChainResults
from tests.toolkit import chains_of
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
#: The table of each scenario, by a line that is in it.
SCENARIOS = {
    "test_ssd_encryption": "real, user, sys:",
    "test_stacked_encryption": "advantage:",
    "test_dmcrypt_block_size": "dmcrypt against plain:",
    "test_filesystems": "space used:",
    "test_hardlink_backup": "longest single unlink:",
    "test_images": "size of the image:",
    "test_databases": "transactions per second:",
    "test_degraded": "rebuild:",
}


def smoke(scenario: str, directory: Path, *options: str) -> tuple[list[ChainResults], str]:
    """The chains of a scenario at its smallest scale, and what its session printed."""
    file = directory / "found.json"
    alone = (
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--fsstack-scale=smoke",
        "--fsstack-rounds=1",
        "--fsstack-size=512M",
    )
    reports = (f"--fsstack-json={file}", f"--fsstack-report=html={directory / 'page.html'}")
    result = run_pytest(*alone, *reports, *options, ROOT / "scenarios" / f"{scenario}.py", cwd=ROOT)
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr
    return chains_of(file), result.stdout


def unmeasured(chains: list[ChainResults]) -> dict[str, str]:
    """The stacks that were not measured in some step, and why."""
    return {
        stack: note_in_words(chain.note(step, stack))
        for chain in chains
        for step in chain.steps
        for stack in chain.stacks
        if not chain.of(step, stack) or chain.incomplete(step, stack)
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_runs_on_everything_that_the_kernel_has(scenario: str, tmp_path: Path) -> None:
    chains, output = smoke(scenario, tmp_path)
    assert SCENARIOS[scenario] in output
    missing = unmeasured(chains)
    for stack, why in missing.items():
        assert f"({platform.release()})" in why, f"{stack}: {why}"
    measured = {stack for chain in chains for stack in chain.stacks} - set(missing)
    assert {chain.baseline for chain in chains} <= measured
    page = (tmp_path / "page.html").read_text()
    assert all(f"{stack}</span></th>" in page or f'<th scope="row">{stack}</th>' in page for stack in measured)


def test_a_size_that_cannot_fit_the_device_is_refused_before_anything_starts(tmp_path: Path) -> None:
    words = ("-p", "no:cacheprovider", "--fsstack-scale=paper", "--fsstack-size=1G", "scenarios/test_ssd_encryption.py")
    result = run_pytest(*words, cwd=ROOT)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    errors = result.stderr.splitlines()
    pattern = r"test_ssd_encryption.*--fsstack-scale=paper\b.*\b150\.0 GiB\b"
    assert any(re.search(pattern, line) for line in errors), errors
    assert "Traceback" not in result.stdout + result.stderr
