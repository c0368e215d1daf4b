"""Options in an ini, with the checks of the command line, and messages about mistakes."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from pytest_fsstack import options
from pytest_fsstack.options.settings import Settings
from pytest_fsstack.plugin.running import session_of
from tests.plugin.conftest import Project


def mistake(project: Project, ini: str, *arguments: str) -> str:
    """What pytest says instead of starting, with these lines in its ini."""
    pytester = project.pytester
    (pytester.path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")
    with pytest.raises(pytest.UsageError) as caught:
        pytester.parseconfigure(f"--fsstack-device=dir:{project.device}", *arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fsstack_vm_accel = KVM", "fsstack_vm_accel in pytest.ini: *auto, kvm *tcg *'KVM')"),
        ("fsstack_boots = two", "fsstack_boots in pytest.ini: * two)"),
        ("fsstack_boots = 0", "fsstack_boots in pytest.ini: * 1 * 0)"),
        ("fsstack_max_regression = 5", "fsstack_max_regression in pytest.ini: * 5% *'5')"),
        ("fsstack_vm_memory = lots", "fsstack_vm_memory in pytest.ini: 'lots' *"),
        ("fsstack_vm_memory = 2", "fsstack_vm_memory in pytest.ini: * 128M * 2)"),
        ("fsstack_vm_cpus = -1", "fsstack_vm_cpus in pytest.ini: * 1 * -1)"),
        ("fsstack_vm_timeout = nan", "fsstack_vm_timeout in pytest.ini: *seconds * 0 * nan)"),
        ("fsstack_strict = maybe", "fsstack_strict in pytest.ini: *maybe*; * true * false"),
        ("fsstack_if_unavailable = explode", "fsstack_if_unavailable in pytest.ini: *skip *fail *'explode')"),
        ("fsstack_scale = huge", "fsstack_scale in pytest.ini: *smoke, small *paper *'huge')"),
        ("fsstack_budget = lots", "fsstack_budget in pytest.ini: 'lots' *"),
        ("fsstack_stacks = crupt", "fsstack_stacks in pytest.ini: *'crupt'; * crypt*"),
        ("fsstack_scheduler = none", "fsstack_scheduler in pytest.ini: *block device* dir:*"),
        ("fsstack_roundz = 8", "fsstack_roundz in pytest.ini: *; * fsstack_rounds*"),
        ("fsstack-rounds = 8", "fsstack-rounds in pytest.ini: *; * fsstack_rounds*"),
        ("fsstack_overwrite = /dev/sdz", "fsstack_overwrite in pytest.ini: --fsstack-overwrite *"),
    ],
)
def test_a_mistake_in_an_ini_is_one_line_that_names_the_ini(project: Project, line: str, expected: str) -> None:
    assert fnmatch.fnmatchcase(mistake(project, line), expected)


def test_a_mistake_in_an_ini_is_one_line_for_a_person(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfsstack_device = sdb1\n")
    pytester.makepyfile("def test_it(fsstack): pass")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: fsstack_device in tox.ini: 'sdb1' *"])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_a_value_from_the_command_lines_o_is_named_so(project: Project) -> None:
    message = mistake(project, "", "-o", "fsstack_vm_accel=KVM")
    assert fnmatch.fnmatchcase(message, "-o fsstack_vm_accel: *auto, kvm *tcg *'KVM')")


@pytest.mark.parametrize("place", ["words", "file", "environment", "addopts", "override", "nothing"])
def test_an_option_is_declared_wherever_it_may_be_given(
    place: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = "--fsstack-rounds=7"
    pytester.makefile(".txt", words=flag)
    if place == "environment":
        monkeypatch.setenv("PYTEST_ADDOPTS", flag)
    if place == "addopts":
        pytester.makeini(f"[pytest]\naddopts = {flag}\n")
    words = {"words": [flag], "file": ["@words.txt"], "override": ["-o", "fsstack_rounds=7"]}
    config = pytester.parseconfig(*words.get(place, []))
    assert hasattr(config.option, "fsstack_rounds") == (place != "nothing")
    session_of(config)
    assert Settings.of(config).rounds == (None if place == "nothing" else 7)


def test_the_command_line_wins_over_the_ini(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfsstack_rounds = 2\nfsstack_strict = true\nfsstack_vm_cpus = 3\n")
    config = pytester.parseconfigure("--fsstack-rounds=1")
    names = ("rounds", "strict", "vm-cpus", "boots", "stacks", "device", "discard", "governor", "vm-memory")
    values = {name: Settings.of(config).value(name) for name in names}
    assert values == {
        **{"rounds": 1, "strict": True, "vm-cpus": 3, "boots": None, "stacks": [], "device": ["loop"]},
        **{"discard": False, "governor": None, "vm-memory": 2 << 30},
    }


def test_options_of_other_plugins_are_not_ours(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addini('fsstack_own', '')\n")
    pytester.makeini("[pytest]\nfsstack_own = x\n")
    assert not options.any_given(pytester.parseconfigure())


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_every_option_shows_its_help_and_default(option: options.Option, pytester: pytest.Pytester) -> None:
    assert option.help
    assert option.help[0].islower() or option.help.startswith("CPUs")
    if option.default is not None:
        option.read(option.default)
    assert not (option.flag and (option.many or option.choices or option.default))
    assert option.flag or option.metavar or option.choices
    if not option.flag:
        with pytest.raises(ValueError, match=r"\S"):
            option.read("")


def test_help_lists_every_option_with_its_default(pytester: pytest.Pytester) -> None:
    text = " ".join(pytester.runpytest_subprocess("--help").stdout.str().split())
    for option in options.OPTIONS:
        assert option.flags in text
    assert re.search(r"--fsstack-vm-memory=SIZE [^-]* 2G\) --", text)
    assert re.search(r"--fsstack-budget=BUDGET [^-]* '30%', 'luks\*: 30%'", text)


def test_the_command_line_has_the_same_checks(project: Project) -> None:
    checked = [option for option in options.OPTIONS if option.choices]
    assert {"error-rate-per", "if-unavailable", "doctor"} <= {option.name for option in checked}
    for option in checked:
        message = mistake(project, "", f"{option.flags}=explode")
        assert fnmatch.fnmatchcase(message, f"{option.flags}: *{'*'.join(option.choices)} *'explode')*")


def test_the_directory_of_an_option_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (option,) = [option for option in options.OPTIONS if option.name == "dir"]
    assert option.read("here") == tmp_path / "here"


NATIVE = pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 reads types of TOML")
IN_TOML = """
fsstack_rounds = 2
fsstack_alpha = 0.1
fsstack_timeout = 1e3
fsstack_size = 1073741824
fsstack_vm_memory = "1G"
fsstack_strict = true
fsstack_control = false
fsstack_stacks = ["plain", "crypt"]
"""
VALUES = {
    **{"rounds": 2, "alpha": 0.1, "timeout": 1000.0, "size": 1 << 30, "vm-memory": 1 << 30},
    **{"strict": True, "control": False, "stacks": ["plain", "crypt"]},
}


@pytest.mark.parametrize(
    ("file", "section"),
    [
        pytest.param("pytest.toml", "pytest", marks=NATIVE),
        pytest.param("pyproject.toml", "tool.pytest", marks=NATIVE),
        ("pyproject.toml", "tool.pytest.ini_options"),
    ],
)
def test_numbers_and_booleans_of_toml_are_values(project: Project, file: str, section: str) -> None:
    (project.pytester.path / file).write_text(f"[{section}]\n{IN_TOML}")
    config = project.pytester.parseconfigure()
    assert {name: Settings.of(config).value(name) for name in VALUES} == VALUES
    (project.pytester.path / file).write_text(f"[{section}]\nfsstack_rounds = 2\n")
    project.write("def test_it(): pass")
    project.pytester.runpytest_subprocess().assert_outcomes(passed=1)


@NATIVE
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fsstack_rounds = 0", "fsstack_rounds in pytest.toml: *1 * 0)"),
        ("fsstack_rounds = 2.5", "fsstack_rounds in pytest.toml: * 2.5)"),
        ("fsstack_rounds = true", "fsstack_rounds in pytest.toml: *bool*True*number"),
        ("fsstack_rounds = [2]", "fsstack_rounds in pytest.toml: *list*[[]2]*number"),
        ("fsstack_rounds = {a = 1}", "fsstack_rounds in pytest.toml: *dict*number"),
        ("fsstack_strict = 1", "fsstack_strict in pytest.toml: *int: 1*true * false"),
        ('fsstack_strict = "true"', "fsstack_strict in pytest.toml: *str*true * false"),
        ('fsstack_stacks = "plain"', "fsstack_stacks in pytest.toml: *plain*list*"),
        ("fsstack_stacks = [1]", "fsstack_stacks in pytest.toml: *int: 1*list*"),
        ("fsstack_scale = false", "fsstack_scale in pytest.toml: *bool*False*"),
        ("fsstack_roundz = 8", "fsstack_roundz in pytest.toml: *; * fsstack_rounds*"),
    ],
)
def test_a_wrong_type_in_toml_is_one_line(project: Project, line: str, expected: str) -> None:
    (project.pytester.path / "pytest.toml").write_text(f"[pytest]\n{line}\n")
    with pytest.raises(pytest.UsageError) as caught:
        project.pytester.parseconfigure(f"--fsstack-device=dir:{project.device}")
    assert fnmatch.fnmatchcase(str(caught.value), expected)
    assert "\n" not in str(caught.value)


def test_an_ini_names_the_checkout_of_the_scenario_xfstests(project: Project) -> None:
    (project.pytester.path / "pytest.ini").write_text("[pytest]\nfsstack_xfstests = .\n")
    result = project.run("--fsstack-scenario=xfstests", "--fsstack-stacks=plain", "--fsstack-scale=smoke", "-rs")
    result.assert_outcomes(skipped=1)
    # The directory is no checkout, and so the scenario skips for it.
    assert str(project.pytester.path) in result.stdout.str()
