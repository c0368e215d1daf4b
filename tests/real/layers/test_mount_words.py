"""Each word that a layer's mount option declares: a stack with it is also remounted, checked and taken down.

A word that the tool refuses is refused when the stack is built, before anything is measured. That is fine.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack import words
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.places import BuildContext, Directory
from pytest_fsstack.stack.spec import SpecError
from tests.real.conftest import built

pytestmark = pytest.mark.root

LAYERS = ("ext2", "ext4", "xfs", "btrfs", "f2fs", "overlay", "gocryptfs", "securefs")
SIZE = 384 << 20
CONTENT = b"content" * 10_000

#: Words of mount(8) and of these filesystems that need no declaration, because they are never paths.
WORDS = (
    *("noatime", "lazytime", "sync", "dirsync", "noexec", "nosuid", "nodev", "discard", "errors=continue"),
    *("noload", "nobarrier", "data=journal", "data=writeback", "journal_checksum", "usrquota", "prjquota", "noacl"),
    *("nodatacow", "nodatasum", "flushoncommit", "degraded", "commit=1", "userxattr", "metacopy=on", "redirect_dir=on"),
    *("volatile", "fsync=volatile", "checkpoint=disable", "disable_roll_forward", "idle=1s", "default_permissions"),
)
_VALUES = {words.NUMBER.pattern: "1", words.SIZE.pattern: "4096", words.KEYWORD.pattern: "on", words.TEXT.pattern: "x"}


def mount_options(layer: str) -> Iterator[str]:
    """Yield texts of the mount option: each declared word, and each of `WORDS`."""
    grammar = BUILT_IN[layer].grammar["mount"]
    if isinstance(grammar, words.Items):
        yield from _with_values(grammar, "{}", "{}={}")
        yield from WORDS
    elif isinstance(grammar, words.CommandLine):
        yield from _with_values(grammar, "{}", "{} {}")
        yield from (f"-o {word}" for word in WORDS)


def _with_values(grammar: words.Items | words.CommandLine, alone: str, with_value: str) -> Iterator[str]:
    for name, form in grammar._by_name.items():
        # Options of Go programs have one hyphen.
        if name.lstrip("-") == "wpanic":
            continue  # The daemon is to end at any warning, which a busy machine may cause.
        name = f"-{name.lstrip('-')}" if isinstance(grammar, words.CommandLine) and grammar._is_go else name
        if not isinstance(form, words.Value) or "*" in name:
            continue
        yield with_value.format(name, _VALUES[form.pattern]) if form.pattern in _VALUES else alone.format(name)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_stack_with_a_mount_option_survives_all_that_sessions_do(layer: str, tmp_path: Path) -> None:
    mounts.private_namespace()
    below = "ext4 | " if Directory in BUILT_IN[layer].takes else ""
    survived = 0
    for number, text in enumerate(dict.fromkeys(mount_options(layer))):
        (tmp_path / str(number)).mkdir()
        context = BuildContext(tmp_path / str(number), Journal(tmp_path / "journal", RealMachine()))
        try:
            stack = built(f"{below}{layer}(mount={text!r})", LoopDevice(SIZE), context)
        except SpecError:
            continue
        stage = "while it was built"
        try:
            with stack as fsstack:
                stage = "when it was written to"
                (fsstack.path / "file").write_bytes(CONTENT)
                fsstack.sync()
                stage = "when it was mounted again"
                fsstack.remount()
                assert (fsstack.path / "file").read_bytes() == CONTENT, f"mount={text!r}"
                stage = "when it was checked"
                assert [result.output for result in fsstack.fsck().values() if not result.clean] == []
                stage = "when it was taken down"
        except (BuildError, OSError, AssertionError) as error:
            read_only = isinstance(error, OSError) and error.errno == errno.EROFS
            if stage != "while it was built" and not read_only:
                pytest.fail(f"{layer}(mount={text!r}) failed {stage}: {error}")
            continue
        survived += 1
    assert survived > 5
