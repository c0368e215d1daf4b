"""Kinds of findings, the known faults that explain them, and their order."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.zfs import needs_of
from pytest_fsstack.records.findings import Fault, Finding
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.report.layouts import findings
from pytest_fsstack.report.model import View
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.truth.correctness import known
from pytest_fsstack.truth.correctness.calls import Side
from pytest_fsstack.truth.correctness.contents import Comparison, DifferentError, Weight, limits_of
from pytest_fsstack.truth.correctness.drawing import THEMES, Call
from pytest_fsstack.truth.correctness.exploring import Difference, Search, related
from pytest_fsstack.truth.correctness.findings import KnownFault, explain, known_in, version_of
from pytest_fsstack.truth.correctness.scripts import programs
from tests.chains import a_chain
from tests.unit.truth.correctness.test_contents import PATIENT, calls, comparing

LINK = Fault("contents", ("*write*: content (linked*",), "an append after link() leaves zeros", ("mydaemon 1.4",))
SYNC = Fault("contents", ("f*sync: ENOENT (unlinked*",), "fsync of an unlinked file fails", ("mydaemon 1.4",))


def tool(directory: Path, name: str, output: str) -> str:
    path = directory / name
    path.write_text(f"#!/bin/sh\nprintf '{output}'\n")
    path.chmod(0o755)
    return str(path)


# -- known faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "version", "same"),
    [
        ("2.3", "2.3", True),
        ("2.3", "2.3.1", True),
        ("2.3", "2.31", False),
        ("2.3", "2.6.1", False),
        ("v2.3", "2.3", True),
        ("6.12", "6.12.9-amd64", True),
        ("6.1", "6.12.9-amd64", False),
        ("2.3", "", False),
    ],
)
def test_a_version_stands_for_its_corrections(seen: str, version: str, same: bool) -> None:
    assert Fault("contents", ("a: b",), "words", (f"tool {seen}",)).seen_in_version(version) is same


@pytest.mark.parametrize(
    ("kinds", "seen_in"),
    [
        (("*",), ("a 1",)),
        ((), ("a 1",)),
        ("fsync: *", ("a 1",)),
        (("a: b",), ()),
        (("a: b",), ("a",)),
        (("a: b",), ("a 1", "b 1")),
    ],
)
def test_a_fault_has_kinds_and_the_versions_of_one_program(kinds: Any, seen_in: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^Fault\('words'\): \S.*\(got "):
        Fault("contents", kinds, "words", seen_in)


def test_a_program_reports_its_version(tmp_path: Path) -> None:
    for name, output, version in (
        ("mydaemon", "mydaemon version 1.4.2; library 3.1\\n", "1.4.2"),
        ("mydaemon-old", "library version: 3.1.4\\nMyDaemon v1.2\\n", "1.2"),
        ("mydaemon-mute", "library 8.7\\n", ""),
    ):
        assert version_of("mydaemon", tool(tmp_path, name, output)) == version
    assert version_of("mydaemon", str(tmp_path / "none")) == ""
    assert version_of("Linux") == platform.release()


def test_the_faults_of_all_layers_are_known_with_the_version_of_the_binary(tmp_path: Path) -> None:
    binary = tool(tmp_path, "gocryptfs-2.6.1", "gocryptfs v2.6.1; go-fuse v2.8.0\\n")
    stack = Stack.parse(f"xfs | gocryptfs(binary={binary!r}) | overlay", BUILT_IN)
    faults = known_in(stack, known.FAULTS, "power_cut", "test_sync_of_all")
    assert [fault.fault.program for fault in faults] == ["Linux", "gocryptfs"]
    assert [fault.version for fault in faults] == [platform.release(), "2.6.1"]
    assert not faults[1].same_version
    assert [fault.fault.program for fault in known_in(stack, known.FAULTS, "power_cut", "test_power_cut")] == [
        "gocryptfs"
    ]
    assert known_in(stack, known.FAULTS, "bit_rot", "test_contents") == []


def test_a_fault_of_a_program_that_does_not_run_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack.parse("zfs", BUILT_IN)
    for in_kernel in True, False:
        needs = needs_of(in_kernel)
        monkeypatch.setattr(BUILT_IN["zfs"], "needs", lambda self, needs=needs: needs)
        assert bool(known_in(stack, known.FAULTS, "power_cut", "test_power_cut")) is not in_kernel


def test_built_in_faults_are_of_layers_and_scenarios_that_exist() -> None:
    scenarios = {path.stem.removeprefix("test_") for path in Path("scenarios").glob("test_*.py")}
    assert {*known.FAULTS} <= {*BUILT_IN}
    for faults in known.FAULTS.values():
        assert {fault.scenario.partition("::")[0] for fault in faults} <= scenarios


def test_only_findings_of_its_kind_are_explained_by_a_fault() -> None:
    findings_of_search = [
        Finding(kind, kind) for kind in ("pwrite: content (linked, open)", "fsync: EIO (unlinked)", "write: content")
    ]
    explained = explain(findings_of_search, [KnownFault(LINK, "1.4.1"), KnownFault(SYNC, "1.4.1")])
    assert [*explained.by_fault] == [LINK]
    assert [finding.kind for finding in explained.new] == ["fsync: EIO (unlinked)", "write: content"]
    assert [fault.fault for fault in explained.not_shown] == [SYNC]
    assert explained.comparison == ""


@pytest.mark.parametrize(
    ("kinds", "gone", "new"),
    [
        ([], 2, ""),
        (["write: content (linked)"], 1, ""),
        (["write: content (linked)", "read: names"], 1, r".*\b1 .*\bnew$"),
    ],
)
def test_another_version_is_compared_with_that_of_the_declaration(kinds: list[str], gone: int, new: str) -> None:
    faults = [KnownFault(LINK, "2.6.1"), KnownFault(SYNC, "2.6.1")]
    comparison = explain([Finding(kind, kind) for kind in kinds], faults).comparison
    assert re.search(rf"mydaemon 1\.4\b.* 2\.6\.1\b.*\b{gone} of 2\b[^,]*{new or '$'}", comparison)


def test_an_unknown_version_is_not_compared() -> None:
    assert explain([], [KnownFault(LINK, "")]).comparison == ""


# -- kinds and their weights -------------------------------------------------------------------------------------------


def different(comparison: Comparison, *steps: Call) -> Difference:
    """The difference that the last of these calls shows."""
    *begin, last = steps
    for call in begin:
        comparison.make(call)
    with pytest.raises(DifferentError) as caught:
        comparison.make(last)
    return Difference(None, caught.value, list(comparison.calls), list(comparison.answers), comparison.conditions)


def raising(number: int) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


MADE = ("open(0, 'a', 'RDWR CREAT', 0o644)", "pwrite(0, 0, 5000, 1)")


def flip(directory: Path, side: Side, *_: object) -> None:
    path = directory / "stack-0" / "a"
    path.write_bytes(path.read_bytes()[:-1] + b"!")


@pytest.mark.parametrize(
    ("texts", "does", "kind", "weight"),
    [
        (["unlink('a')", "fsync(0)"], raising(2), "fsync: ENOENT (unlinked)", Weight.FAILURES),
        (["link('a', 'b')", "fsync(0)"], flip, "fsync: content (linked)", Weight.CONTENTS),
        (
            ["fallocate(0, 'PUNCH_HOLE KEEP_SIZE', 0, 9)"],
            raising(95),
            "fallocate PUNCH_HOLE KEEP_SIZE: EOPNOTSUPP",
            Weight.REFUSALS,
        ),
        (["rmdir('a')"], lambda *_: None, "rmdir: no ENOTDIR", Weight.NAMES),
        (["readdir_removing('', 0)"], lambda *_: ["b REG"], "readdir_removing: names (directory)", Weight.NAMES),
        (["status('a', 'size')"], lambda *_: 5001, "status size: answer", Weight.ATTRIBUTES),
        (["read(0, 9)"], lambda *_: b"x" * 9, "read: content", Weight.CONTENTS),
    ],
    ids=lambda value: str(value) if isinstance(value, list) else "",
)
def test_a_kind_is_the_call_what_was_wrong_and_the_conditions(
    tmp_path: Path, texts: list[str], does: Callable[..., object], kind: str, weight: Weight
) -> None:
    comparison = comparing(tmp_path)()
    steps = calls(*MADE, *texts)
    act = partial(does, tmp_path, comparison._stack) if does is flip else does
    setattr(comparison._stack, steps[-1].name, act)
    difference = different(comparison, *steps)
    assert (difference.kind, difference.weight) == (kind, weight)
    assert difference.finding("stack").kind == kind
    comparison.dispose()


def test_the_worst_part_of_a_state_is_reported(tmp_path: Path) -> None:
    comparison = comparing(tmp_path)()

    def damage(*_: object) -> None:
        for name in "a", "b":
            os.chmod(tmp_path / "stack-0" / name, 0o600)
        (tmp_path / "stack-0" / "b").write_bytes(b"2")

    comparison._stack.fsync = damage  # type: ignore[method-assign,assignment]
    steps = calls(*MADE, "open(1, 'b', 'RDWR CREAT', 0o644)", "pwrite(1, 0, 1, 7)", "fsync(0)")
    assert different(comparison, *steps).kind == "fsync: content"
    comparison.dispose()


def test_a_wrong_size_alone_is_no_wrong_content(tmp_path: Path) -> None:
    comparison = comparing(tmp_path)()
    comparison._stack.fsync = lambda *_: os.truncate(tmp_path / "stack-0" / "a", 8192)  # type: ignore[method-assign]
    assert different(comparison, *calls(*MADE, "fsync(0)")).kind == "fsync: size"
    comparison.dispose()


def test_an_inode_number_is_described_by_the_other_name(tmp_path: Path) -> None:
    def copy(*_: object) -> None:
        (tmp_path / "stack-0" / "b").write_bytes((tmp_path / "stack-0" / "a").read_bytes())

    comparison = comparing(tmp_path)()
    comparison._stack.link = copy  # type: ignore[method-assign,assignment]
    comparison.limits[Limit.MODES] = "declared"
    steps = calls("open(0, 'a', 'RDWR CREAT', 0o644)", "link('a', 'b')")
    # Other parts show it too, and are worse.
    actual, expected = ({"": {}, "a": {"inode": 0}, "b": {"inode": number}} for number in (1, 0))
    words = comparison._unlike(actual, expected)
    assert words
    assert re.search(r"^'b': .*\binode\b.*'a'", words[0])
    assert words[2] == "inode"
    assert different(comparison, *steps).kind == "link: links"
    comparison.dispose()


@pytest.mark.parametrize(
    ("how", "limits"),
    [
        ("", [Limit.ALLOCATION]),
        ("KEEP_SIZE", [Limit.ALLOCATION]),
        ("PUNCH_HOLE KEEP_SIZE", [Limit.ALLOCATION, Limit.HOLES]),
    ],
)
def test_a_limit_of_holes_permits_only_holes_to_be_refused(tmp_path: Path, how: str, limits: list[Limit]) -> None:
    call = Call("fallocate", (0, how, 0, 10))
    assert [*limits_of(call)] == limits
    for number, limit in enumerate((Limit.ALLOCATION, Limit.HOLES)):
        comparison = Comparison(tmp_path / f"s{number}", tmp_path / f"m{number}", lambda: None, {limit: "declared"})
        comparison.make(calls(MADE[0])[0])
        comparison._stack.fallocate = raising(95)  # type: ignore[method-assign]
        if limit in limits:
            comparison.make(call)
        else:
            with pytest.raises(DifferentError) as caught:
                comparison.make(call)
            assert [*caught.value.limits] == limits
        comparison.dispose()


# -- rare conditions ---------------------------------------------------------------------------------------------------


def searched(compared: Callable[[], Comparison], theme: str, seed: int) -> list[str]:
    """The kinds of differences that one turn finds."""
    search = Search(compared, lambda: None, PATIENT)
    search.run([one_theme for one_theme in THEMES if one_theme.name == theme], seed, 0)
    return [difference.kind for difference in search.differences]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("bits", [32, 33, 40, 41])
def test_a_write_whose_offset_wraps_is_found_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, seed: int
) -> None:
    pwrite = Side.pwrite
    stacks = "/stack-"

    def wrapping(side: Side, slot: int, offset: int, length: int, fill: int) -> int:
        on_stack = stacks in os.readlink(f"/proc/self/fd/{side.fd(slot)}")
        return pwrite(side, slot, offset % (1 << bits) if on_stack else offset, length, fill)

    monkeypatch.setattr(Side, "pwrite", wrapping)
    assert searched(comparing(tmp_path), "farther", seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_directory_that_folds_case_is_found_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    at = Side.at

    def folding(side: Side, path: str) -> str:
        on_stack = "/stack-" in os.path.realpath(side.root)
        return at(side, path.lower() if on_stack else path)

    for name in "right", "wrong":
        (tmp_path / name).mkdir()
    assert searched(comparing(tmp_path / "right"), "cases", seed) == []
    monkeypatch.setattr(Side, "at", folding)
    assert any("other case" in kind for kind in searched(comparing(tmp_path / "wrong"), "cases", seed))


@pytest.mark.parametrize(
    ("which", "how", "times"),
    [
        ("atime", "SET", "1000002000 1000001000"),
        ("mtime", "SET", "1000000000 1000002000"),
        ("atime", "NOW", "now 1000001000"),
        ("mtime", "NOW", "1000000000 now"),
    ],
)
def test_one_time_is_set_alone(tmp_path: Path, which: str, how: str, times: str) -> None:
    (tmp_path / "a").touch()
    assert Side(str(tmp_path)).utime_one("a", which, how) == times


def test_a_theme_goes_on_after_a_known_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Side, "flock", raising(5))
    monkeypatch.setattr("pytest_fsstack.truth.correctness.contents.Model.flock", lambda *_: None)
    turns = list[int]()
    for expected in (lambda kind: True), (lambda kind: False):
        search = Search(comparing(tmp_path), lambda: None, PATIENT, expected=expected)
        search.run([theme for theme in THEMES if theme.name == "locks"], 1, 20.0 if not turns else 0.0)
        assert len(search.differences) == len({difference.kind for difference in search.differences}) >= 1
        turns.append(search.met["open", "made"])
    assert turns[0] > turns[1]


# -- reports -----------------------------------------------------------------------------------------------------------


def test_calls_of_other_files_are_left_out_of_what_was_seen_once() -> None:
    texts = [
        "open(0, 'a', 'RDWR', 0)",
        "open(1, 'b', 'RDWR', 0)",
        "rename('c', 'b')",
        "unlink('d')",
        "pwrite(1, 0, 1, 1)",
    ]
    way = calls(*texts)
    assert related(way) == [way[1], way[2], way[4]]
    difference = Difference(None, DifferentError("x", "answer", Weight.NAMES), way, [], again=False)
    assert "rename('c', 'b')" in str(difference)
    assert "unlink" not in str(difference)


def test_a_script_is_made_of_what_a_finding_keeps() -> None:
    way = [Call("open", (0, "d/x\udcff", "RDWR CREAT", 0o644)), Call("readlink", ("s",))]
    error = DifferentError("a title", "names", Weight.NAMES, path="d/x\udcff", expected={"size": 1, "content": b"x"})
    finding = Difference(None, error, way, ["done", "x\udcff"]).finding("my+stack")
    finding.program.encode()
    finding.text.encode()
    assert re.fullmatch(r"my\+stack-readlink-names-[0-9a-f]{8}\.py", finding.script)
    python, c = programs(finding.program)
    assert repr(way[0].arguments) in python
    assert "call_readlink" in c
    assert Difference(None, BuildError("gone"), way, []).finding("x").kind == "stack: unusable"


def kept(kind: str, fault: str = "", limits: Sequence[str] = (), weight: int = 0) -> dict[str, object]:
    return {
        "kind": kind,
        "text": f"text of {kind}",
        "fault": fault,
        "limits": [*limits],
        "weight": weight,
        "script": f"dir/{kind[:5]}.py",
    }


def test_each_finding_has_a_line_and_what_is_declared_or_refused_shares_one() -> None:
    lines = [
        *(
            kept("chmod: mode", weight=3),
            kept("write: content"),
            kept("link: EPERM", limits=["HARD_LINKS"]),
            kept("setxattr: EPERM", limits=["ATTRIBUTES"]),
        ),
        *(kept("fsync: ENOENT", "a 1: its issue 7"), kept("fdatasync: ENOENT", "a 1: its issue 7")),
    ]
    myfs = Sample({"seconds": 1.0}, kept={"findings": lines})
    results = a_chain({"calls": {"ext4": 1.0, "myfs": myfs}}, 1).results()
    (grid,) = findings(View(results.chains[0], results))
    texts = [[cell.text for cell in row] for row in grid.rows]
    assert [text[0] for text in texts] == ["myfs"] * 4
    assert "chmod: mode" in texts.pop(1)[1]
    assert "text of write: content" in texts[0][1]
    assert "dir/write.py" in texts[0][1]
    assert re.search(r"link: EPERM; setxattr: EPERM.*Limit\.HARD_LINKS, Limit\.ATTRIBUTES", texts[1][1])
    assert re.search(r"a 1: its issue 7: fsync: ENOENT; fdatasync: ENOENT", texts[2][1])
