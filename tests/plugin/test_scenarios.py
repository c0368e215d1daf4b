"""Shipped scenarios by name, from any directory, with ids that JUnit and a second run can use."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack import options
from pytest_fsstack.options import scenarios


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "no:cacheprovider", *arguments)
    assert result.ret == pytest.ExitCode.OK, result.stdout.str() + result.stderr.str()
    return [line for line in result.outlines if "::" in line]


def test_the_names_are_those_of_the_scenarios() -> None:
    files = {path.name for path in scenarios.directory().glob("test_*.py")}
    assert {scenarios.file_of(name) for name in options.SCENARIOS} == files


def test_a_scenario_is_collected_by_its_name(pytester: pytest.Pytester) -> None:
    ids = collected(pytester, "--fsstack-scenario=encryption_overhead", "-k", "du and ext4")
    assert "test_encryption_overhead.py::TestEncryptionOverhead::test_du[ext4]" in ids
    assert all(each.startswith("test_encryption_overhead.py::") for each in ids)


def test_its_ids_run_one_test_again_beside_another_scenario(pytester: pytest.Pytester) -> None:
    again = "test_encryption_overhead.py::TestEncryptionOverhead::test_du[ext4]"
    ids = collected(pytester, f"--fsstack-scenario={again}", "--fsstack-scenario=filesystems")
    assert [each for each in ids if "encryption" in each] == [again]
    assert any(each.startswith("test_filesystems.py::") for each in ids)


@pytest.mark.parametrize("beside", [[], ["--fsstack-scenario=bit_rot"], ["--fsstack-dry-run", "-k", "ext4"]])
def test_an_id_of_no_test_is_a_mistake(pytester: pytest.Pytester, beside: list[str]) -> None:
    result = pytester.runpytest_subprocess("--collect-only", "--fsstack-scenario=bit_rot::nothing", *beside)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-scenario: * 'test_bit_rot.py::nothing'; *"])


def test_the_tests_of_the_user_are_run_beside_it(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_own="def test_it():\n    pass\n")
    ids = collected(pytester, str(path), "--fsstack-scenario=filesystems", "-k", "test_it or test_after_format")
    assert "test_own.py::test_it" in ids
    assert len(ids) > 1


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("filesistems", ("filesystems",)),
        ("crypt", ("encryption_overhead", "ssd_encryption", "stacked_encryption", "dmcrypt_block_size")),
        ("", options.SCENARIOS),
        ("xyz", options.SCENARIOS),
    ],
)
def test_an_unknown_scenario_is_a_mistake_with_the_nearest_name(
    pytester: pytest.Pytester, name: str, near: tuple[str, ...]
) -> None:
    with pytest.raises(pytest.UsageError) as caught:
        pytester.parseconfigure(f"--fsstack-scenario={name}")
    option, given, hint = str(caught.value).partition(f" {name!r}; ")
    assert option.startswith("--fsstack-scenario: ")
    assert given
    assert tuple(word for word in re.findall(r"\w+", hint) if word in options.SCENARIOS) == near


@pytest.mark.parametrize(
    ("part", "name"),
    [("encryption", "encryption_overhead"), ("ssd", "ssd_encryption"), ("rot", "bit_rot"), ("posix", "posix")],
)
def test_a_part_of_a_name_is_enough_if_it_is_the_only_one(part: str, name: str) -> None:
    assert options.named("scenario").read(part) == name
    assert (
        options.named("scenario").read(f"test_{name}.py::TestIt::test_it[x]") == f"test_{name}.py::TestIt::test_it[x]"
    )


@pytest.mark.parametrize(
    ("scenario", "controls"),
    [
        ("power_cut", ["ext4-nobarrier", "ext4-eatmydata"]),
        ("bit_rot", ["ext4"]),
        ("posix", ["control-root-only"]),
        ("contents", ["control"]),
    ],
)
def test_the_controls_stay_beside_own_stacks(pytester: pytest.Pytester, scenario: str, controls: list[str]) -> None:
    ids = collected(pytester, f"--fsstack-scenario={scenario}", "--fsstack-stacks=xfs | gocryptfs")
    # A database is a parameter behind the stack.
    names = [each.partition("[")[2] for each in ids if "::test_database[" not in each]
    assert list(dict.fromkeys(names)) == [f"{name}]" for name in ["xfs+gocryptfs", *controls]]
