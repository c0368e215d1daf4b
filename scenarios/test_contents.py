"""Does each stack answer every call correctly?

Random calls are made twice: on the stack, and in a directory in memory, the model. Both must give the same answers.
After each call, all names, contents, sizes, links, modes, owners and attributes must be the same too, also those of
open files. Calls are drawn by themes, such as names, holes, offsets beyond 4 GiB, ACLs, locks or directories of 1,000
names. Each run has all themes, and after each turn the stack is remounted. In some themes two processes make calls at
once, and at least one order of these must explain all answers. A layer may refuse calls that it documents as
unsupported (docs/layers.md).

A second step does the same on a full filesystem, or one whose quota is used up. Calls may fail there for lack of space,
and must then have changed nothing else. A third one runs fsx on one file. Differences fail the test, with the fewest
calls that lead to them. The controls must have differences: on them a byte is changed on the stack alone.

    cargo install fsx
    pytest scenarios/test_contents.py --fsstack-rounds=3              on a loop device
    pytest scenarios/test_contents.py --fsstack-kernel=KERNEL         in a VM of a kernel that has more of the stacks

Each round draws other calls. --fsstack-seed replays them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import BuildError, Built, Finding, Settings, Sizes, Timed
from pytest_fsstack.truth.correctness import drawing, exploring, fsxfile, scripts, verdict

MiB = 1 << 20
CONTROL = "control"
#: What the arguments of calls are.
LEGEND = (
    "slot: the number of an open file; fill: the first byte of the data, of which each further byte is one more; "
    "offset, length, size: bytes",
    "--fsstack-counterexamples=DIR writes a script for each finding",
)


@dataclass(frozen=True)
class Drawn(Sizes):
    """`seconds` is the time for random calls, `operations` the number of fsx's operations."""

    seconds: float
    operations: int


@pytest.mark.fsstack(
    "ext4",
    "xfs",
    "btrfs",
    "quota = btrfs(quota='64M')",
    "f2fs",
    "bcachefs",
    "luks = luks | ext4",
    "overlay = ext4 | overlay",
    "squashfs = ext4 | squashfs | overlay",
    "erofs = ext4 | erofs | overlay",
    "fscrypt = ext4 | fscrypt",
    "ecryptfs = ext4 | ecryptfs",
    "gocryptfs = ext4 | gocryptfs",
    "encfs = ext4 | encfs",
    "cryfs = ext4 | cryfs",
    "securefs = ext4 | securefs",
    "sshfs = ext4 | sshfs",
    "nfs = ext4 | nfs",
    "samba = ext4 | samba",
    f"{CONTROL} = ext4 | bind",
    baseline="ext4",
    keep=(CONTROL,),
)
@pytest.mark.fsstack_sizes(
    smoke=Drawn(space=384 * MiB, seconds=3, operations=300),
    small=Drawn(space=384 * MiB, seconds=20, operations=10_000),
    paper=Drawn(space=384 * MiB, seconds=600, operations=100_000),
)
@pytest.mark.fsstack_rounds(1)
@pytest.mark.fsstack_table(
    "counts",
    columns={
        "calls": "contents_calls",
        "differences": "contents_differences",
        "without space": "contents_refused",
    },
)
@pytest.mark.fsstack_table("findings")
@pytest.mark.fsstack_table("coverage", kept="contents_met")
@pytest.mark.fsstack_remark(
    "on the stack `control` the scenario changes a byte, so its tests pass if they find differences"
)
class TestContents:
    @pytest.mark.benchmark(group="calls")
    def test_calls(
        self, fsstack: Built, timed: Timed, sizes: Drawn, fsstack_seed: int, request: pytest.FixtureRequest
    ) -> None:
        differences = exploring.explore(
            timed,
            fsstack,
            seed=fsstack_seed,
            seconds=sizes.seconds,
            spoil=spoiling(fsstack),
            expected=verdict.expecting(request.node, fsstack),
        )
        judge(request, fsstack, timed, *differences)

    @pytest.mark.benchmark(group="nearly full")
    def test_nearly_full(
        self, fsstack: Built, timed: Timed, sizes: Drawn, fsstack_seed: int, request: pytest.FixtureRequest
    ) -> None:
        differences = exploring.explore(
            timed,
            fsstack,
            seed=fsstack_seed,
            themes=drawing.FULL,
            seconds=sizes.seconds / 2,
            leave=4 * MiB,
            spoil=spoiling(fsstack),
            expected=verdict.expecting(request.node, fsstack),
        )
        judge(request, fsstack, timed, *differences)

    # Without fsx, a chain ends here.
    @pytest.mark.benchmark(group="fsx")
    def test_fsx(
        self, fsstack: Built, timed: Timed, sizes: Drawn, fsstack_seed: int, request: pytest.FixtureRequest
    ) -> None:
        spoiled = is_control(fsstack)
        wrong = fsxfile.fsx(timed, fsstack, seed=fsstack_seed, operations=sizes.operations, spoiled=spoiled)
        judge(request, fsstack, timed, *filter(None, [wrong]))


def is_control(fsstack: Built) -> bool:
    return fsstack.stack.id == CONTROL


def spoiling(fsstack: Built) -> Callable[[Path], None] | None:
    return change_a_byte if is_control(fsstack) else None


def change_a_byte(directory: Path) -> None:
    """Change a byte of the first file with contents, or write a file of one byte."""
    # Older versions of `Path.rglob` end with an error at a link to a long name.
    paths = sorted(Path(top, name) for top, _, names in os.walk(directory) for name in names)
    path = next((path for path in paths if not path.is_symlink() and path.is_file() and path.stat().st_size), None)
    if path is None:
        (directory / "changed").write_bytes(b"1")
        return
    with path.open("r+b", buffering=0) as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))


def judge(
    request: pytest.FixtureRequest, fsstack: Built, timed: Timed, *differences: exploring.Difference | str
) -> None:
    """Fail if a stack has differences that no fault explains, or a control has none. Show the worst as programs."""
    if is_control(fsstack):
        # That a stack cannot be mounted does not show that a change is seen.
        seen = [each for each in differences if isinstance(each, str) or not isinstance(each.error, BuildError)]
        assert seen, f"the control passed: a byte was changed, and the test did not see it ({differences})"
        return
    findings = [
        Finding(fsxfile.kind_of(difference), difference)
        if isinstance(difference, str)
        else difference.finding(fsstack.stack.id)
        for difference in differences
    ]
    directory = Settings.of(request.config).counterexamples
    explained = verdict.conclude(request.node, timed, fsstack, findings, scripts=directory)
    if explained.new:
        lines = [f"{finding.kind:<40} {finding.text}" for finding in explained.new]
        request.node.add_report_section("call", "findings", "\n".join([*lines, *LEGEND]))
    if explained.new and explained.new[0].program and not directory:
        for language, script in zip(("Python", "C"), scripts.programs(explained.new[0].program)):
            request.node.add_report_section("call", f"counterexample in {language}", script or "see that in Python")
