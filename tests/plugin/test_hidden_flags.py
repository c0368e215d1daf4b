"""Ways to give --fsstack-overwrite without typing it: none of them gives a device over."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

ONE = """
import pytest

@pytest.mark.fsstack("plain")
def test_it(fsstack, request):
    assert not request.config.getoption("fsstack_overwrite")
"""

FLAG = "--fsstack-overwrite=/dev/loop7"
SET = "config.option.fsstack_overwrite = ['/dev/loop7']"

INIS = {
    "pytest.ini-addopts": ("pytest.ini", f"[pytest]\naddopts = {FLAG}\n"),
    "pytest.ini-addopts-in-two-words": ("pytest.ini", "[pytest]\naddopts = --fsstack-overwrite /dev/loop7\n"),
    "pytest.ini-own": ("pytest.ini", "[pytest]\nfsstack_overwrite = /dev/loop7\n"),
    "tox.ini-addopts": ("tox.ini", f"[pytest]\naddopts = {FLAG}\n"),
    "tox.ini-own": ("tox.ini", "[pytest]\nfsstack_overwrite = /dev/loop7\n"),
    "setup.cfg-addopts": ("setup.cfg", f"[tool:pytest]\naddopts = {FLAG}\n"),
    "setup.cfg-own": ("setup.cfg", "[tool:pytest]\nfsstack_overwrite = /dev/loop7\n"),
    "pyproject.toml-addopts": ("pyproject.toml", f'[tool.pytest.ini_options]\naddopts = ["{FLAG}"]\n'),
    "pyproject.toml-own": ("pyproject.toml", '[tool.pytest.ini_options]\nfsstack_overwrite = "/dev/loop7"\n'),
    "conftest-configure": ("conftest.py", f"def pytest_configure(config):\n    {SET}\n"),
    "conftest-initial": ("conftest.py", f"def pytest_load_initial_conftests(early_config):\n    early_{SET}\n"),
    "conftest-arguments": ("conftest.py", f"def pytest_cmdline_main(config):\n    {SET}\n"),
}


def unheard(result: pytest.RunResult) -> None:
    """Check that one line refuses the option, or that it was ignored. Then the test passes, which looks at it."""
    if result.ret == pytest.ExitCode.USAGE_ERROR:
        (line,) = [line for line in result.stderr.lines if line.startswith("ERROR: ")]
        assert "--fsstack-overwrite" in line
        # A device that was given over would be missing from --fsstack-device.
        assert "--fsstack-device" not in line
    else:
        assert result.ret == pytest.ExitCode.OK, result.stdout.str()


@pytest.mark.parametrize("way", INIS)
def test_in_a_file(project: Project, way: str) -> None:
    project.write(ONE)
    name, text = INIS[way]
    path = project.pytester.path / name
    path.write_text((path.read_text() if path.exists() else "") + "\n" + text)
    # The option is set for all of them but those that pytest knows nothing of, so the test itself would fail.
    unheard(project.run("--fsstack-rounds=1"))


@pytest.mark.parametrize("words", [FLAG, "--fsstack-overwrite /dev/loop7", f"-v {FLAG} --fsstack-device=/dev/loop7"])
def test_in_the_environment(project: Project, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(ONE)
    monkeypatch.setenv("PYTEST_ADDOPTS", words)
    result = project.run("--fsstack-rounds=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    unheard(result)


def test_by_an_ini_given_with_o(project: Project) -> None:
    project.write(ONE)
    unheard(project.run("--fsstack-rounds=1", "-o", f"addopts={FLAG}"))


def test_abbreviated(project: Project) -> None:
    project.write(ONE)
    result = project.run("--fsstack-rounds=1", "--fsstack-overw=/dev/loop7")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_typed_for_another_device_than_the_ini_says(project: Project) -> None:
    project.write(ONE)
    (project.pytester.path / "pytest.ini").write_text(f"[pytest]\naddopts = {FLAG}\n")
    result = project.run("--fsstack-rounds=1", "--fsstack-overwrite=/dev/loop8")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    unheard(result)
