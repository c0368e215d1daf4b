"""The Python that the pages show, on loop devices; what needs no root, tests/plugin/test_blocks.py runs."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from tests.pages import ONLY_COLLECTED, ROOTLESS, blocks, write
from tests.real.test_scenarios import unmeasured
from tests.sessions import FEW_PLUGINS
from tests.toolkit import chains_of
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root


def test_python_for_loop_devices_runs_on_every_stack_that_the_kernel_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FEW_PLUGINS.items():
        monkeypatch.setenv(name, value)
    plugins = write(tmp_path, [block for block in blocks("python") if block.page not in ROOTLESS])
    file = tmp_path / "found.json"
    alone = ["-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={tmp_path}"]
    small = ["--fsstack-rounds=1", "--fsstack-scale=smoke", "--fsstack-size=512M", f"--fsstack-json={file}"]
    words = [*alone, *small, *(word for name in plugins for word in ("-p", name))]
    words += ["-k", " and ".join(f"not {name}" for name in ONLY_COLLECTED)]
    result = run_pytest(*words, *tmp_path.glob("test_*.py"), cwd=tmp_path)
    assert result.returncode == pytest.ExitCode.OK, result.stdout + result.stderr
    chains = chains_of(file)
    assert len(chains) > 5
    for stack, why in unmeasured(chains).items():
        # Two versions of a tool, which nobody has there.
        assert f"({platform.release()})" in why or "/opt/" in why, f"{stack}: {why}"
