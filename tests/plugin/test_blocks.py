"""Every block of code that the pages show works: command lines and inis are read by their parsers, Python is run.

What needs root, tests/real/test_blocks.py runs.
"""

from __future__ import annotations

import configparser

import pytest

from pytest_fsstack import options
from pytest_fsstack.command import CommandLineError
from tests.commands import Checker, commands
from tests.pages import ONLY_COLLECTED, ROOTLESS, blocks, write

#: On the layer that the tutorial writes.
UNION = """
import pytest


@pytest.mark.fsstack("union", "union(lower=2)", below="ext4")
def test_what_is_written_is_there_after_a_remount(fsstack):
    (fsstack.path / "file").write_text("text")
    fsstack.remount()
    assert (fsstack.path / "file").read_text() == "text"
    assert (fsstack.below / "branch0" / "file").read_text() == "text"
"""


@pytest.fixture
def checker(pytester: pytest.Pytester) -> Checker:
    return Checker(
        lambda words: pytester.parseconfig(*words), {"mytool", "myfs", "mirror", "minix", "union", "fuse_overlayfs"}
    )


def test_command_lines_are_right(checker: Checker) -> None:
    shown = [(block, words) for block in blocks("sh") for words in commands(block.text)]
    for block in blocks("console"):
        lines = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
        assert lines, f"{block.id}: no line begins with a prompt"
        shown += [(block, words) for line in lines for words in commands(line)]
    assert len(shown) > 60
    for block, words in shown:
        try:
            checker.check(words)
        except (AssertionError, ValueError, KeyError, pytest.UsageError, CommandLineError, SystemExit) as error:
            pytest.fail(f"{block.id}: {' '.join(words)}: {type(error).__name__}: {error}", pytrace=False)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("pytest --fsstack-roundz=8", "--fsstack-roundz"),
        ("sudo venv/bin/pytest --fsstack-rounds=many", "many"),
        ("git bisect run sh -c 'make || exec pytest --fsstack-budget=lots'", "budget"),
        ("pytest --fsstack-stacks='ext4 | xfz'", "'xfz'"),
        ("pytest --fsstack-report=htm=page.html", "no report htm"),
        ("pytest scenarios/test_nothing.py", "no scenarios/test_nothing.py"),
        ("fsstack run filesistem", "filesistem"),
        ("fsstack bench --stack 'ext4 | xfz' -- true", "'xfz'"),
        ("fsstack bench --stack ext4 --", "no command"),
        ("fsstack compare a.json b.json --limits 5%", "--limits"),
        ("pip install 'pytest-fsstack[picture]'", "no extra picture"),
        ("tox -e doc  # a comment", "no environment doc"),
        ("pytset --fsstack-rounds=8", "unknown program pytset"),
    ],
)
def test_a_command_line_that_is_wrong_is_found(checker: Checker, line: str, problem: str) -> None:
    shown = list(commands(line))
    with pytest.raises((AssertionError, ValueError, KeyError, pytest.UsageError, CommandLineError), match=problem):
        list(map(checker.check, shown))


def test_inis_are_right(checker: Checker) -> None:
    for block in blocks("ini"):
        ini = configparser.ConfigParser(interpolation=None)
        ini.read_string(block.text)
        assert ini.sections() == ["pytest"], block.id
        for name, text in ini["pytest"].items():
            if name == "addopts":
                checker.pytest(text.split())
                continue
            (option,) = (each for each in options.OPTIONS if each.ini and each.ini_name == name)
            if option.flag:
                assert text in ("true", "false"), f"{block.id}: {name}"
            for line in filter(None, text.splitlines()):
                checker.option(option, line)


def test_python_without_root_runs(pytester: pytest.Pytester) -> None:
    plugins = write(pytester.path, [block for block in blocks("python") if block.page in ROOTLESS])
    pytester.makepyfile(test_union=UNION)
    words = [word for name in plugins for word in ("-p", name)]
    device = pytester.mkdir("device")
    result = pytester.runpytest_subprocess(
        *words, f"--fsstack-device=dir:{device}", "--fsstack-rounds=1", "-p", "no:cacheprovider", "-rs"
    )
    assert result.ret == pytest.ExitCode.OK
    outcomes = result.parseoutcomes()
    # Those of the tutorial on plain directories run everywhere.
    assert outcomes["passed"] >= 3
    # One round decides no budget; what is not installed is another matter.
    skipped = [line for line in result.outlines if line.startswith("SKIPPED")]
    assert all("needs " in line or "too few" in line or "cannot decide" in line for line in skipped), skipped


def test_python_for_loop_devices_is_collected(pytester: pytest.Pytester) -> None:
    plugins = write(pytester.path, blocks("python"))
    words = [word for name in plugins for word in ("-p", name)]
    result = pytester.runpytest_subprocess(*words, "--collect-only", "-q", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.OK
    text = result.stdout.str()
    for path in pytester.path.glob("test_*.py"):
        assert ("def test_" in path.read_text()) == (f"{path.name}::" in text), path.name
    assert all(f"::{name}[" in text for name in ONLY_COLLECTED)
