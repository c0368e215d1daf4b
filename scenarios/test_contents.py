"""Does each stack keep what it is given, call by call?

Calls are drawn from the seed of the round and made twice: on the stack, and on a model of it in memory. Files and
directories are made, written at offsets, appended to, truncated, renamed over others, linked, unlinked while they are
open, given attributes, mapped, allocated, punched, synced, and all is remounted. Each answer must be the model's, and
at each check all names, contents, sizes, links, modes and attributes. What a layer documents not to have may be refused
(docs/layers.md). The same once more on a filesystem that is nearly full, where calls may fail for lack of space, and
must then have changed nothing else. And fsx, on one file. Differences fail the test, each with the fewest calls that
lead to it.

The controls must fail, or the tests see nothing: on them a byte is changed behind the model's back.

    cargo install fsx; pip install 'pytest-fsstack[truth]'
    pytest scenarios/test_contents.py --fsstack-rounds=3              on a loop device
    pytest scenarios/test_contents.py --fsstack-kernel=KERNEL         in a VM of a kernel that has more of the stacks

Another round draws other calls; --fsstack-seed replays them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import Built, Sizes, Timed
from pytest_fsstack.correctness import exploring, fsxfile, verdict

MiB = 1 << 20
CONTROL = "control"


@dataclass(frozen=True)
class Drawn(Sizes):
    """`examples` begin with nothing, and have up to `steps` calls each; `operations` are fsx's."""

    examples: int
    steps: int
    operations: int


@pytest.mark.fsstack(
    "ext4",
    "xfs",
    "btrfs",
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
    f"{CONTROL} = ext4 | bind",
    baseline="ext4",
    keep=(CONTROL,),
)
@pytest.mark.fsstack_sizes(
    smoke=Drawn(space=384 * MiB, examples=2, steps=30, operations=300),
    small=Drawn(space=384 * MiB, examples=10, steps=60, operations=10_000),
    paper=Drawn(space=384 * MiB, examples=100, steps=100, operations=100_000),
)
@pytest.mark.fsstack_table(
    "counts",
    columns={
        "calls": "contents_calls",
        "differences": "contents_differences",
        "without space": "contents_refused",
        "which": "kept contents",
    },
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
            examples=sizes.examples,
            steps=sizes.steps,
            spoil=spoiling(fsstack),
        )
        judge(request, fsstack, timed, *map(str, differences))

    @pytest.mark.benchmark(group="fsx")
    def test_fsx(
        self, fsstack: Built, timed: Timed, sizes: Drawn, fsstack_seed: int, request: pytest.FixtureRequest
    ) -> None:
        spoiled = is_control(fsstack)
        wrong = fsxfile.fsx(timed, fsstack, seed=fsstack_seed, operations=sizes.operations, spoiled=spoiled)
        judge(request, fsstack, timed, *filter(None, [wrong]))

    @pytest.mark.benchmark(group="nearly full")
    def test_nearly_full(
        self, fsstack: Built, timed: Timed, sizes: Drawn, fsstack_seed: int, request: pytest.FixtureRequest
    ) -> None:
        differences = exploring.explore(
            timed,
            fsstack,
            seed=fsstack_seed,
            examples=sizes.examples,
            steps=sizes.steps,
            leave=256 * 1024,
            spoil=spoiling(fsstack),
        )
        judge(request, fsstack, timed, *map(str, differences))


def is_control(fsstack: Built) -> bool:
    return fsstack.stack.id == CONTROL


def spoiling(fsstack: Built) -> Callable[[Path], None] | None:
    return change_a_byte if is_control(fsstack) else None


def change_a_byte(directory: Path) -> None:
    """Change a byte of the first file with contents, or write a file of one byte."""
    path = next((path for path in sorted(directory.rglob("*")) if path.is_file() and path.stat().st_size), None)
    if path is None:
        (directory / "changed").write_bytes(b"1")
        return
    with path.open("r+b", buffering=0) as file:
        byte = file.read(1)
        file.seek(0)
        file.write(bytes([byte[0] ^ 1]))


def judge(request: pytest.FixtureRequest, fsstack: Built, timed: Timed, *differences: str) -> None:
    """Fail with the differences; and without one where a control must have one."""
    if is_control(fsstack):
        assert differences, "the control passed: a byte was changed, and the test did not see it"
    else:
        verdict.conclude(request.node, timed, fsstack, " | ".join(differences))
