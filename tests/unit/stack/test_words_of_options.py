"""Every text option of every layer is looked through, when a stack is read and when it is built."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.model import BuildContext, Directory, Layer, Place, Stack, option
from pytest_fsstack.stack.spec import SpecError

#: A path that is outside of any stack.
ELSEWHERE = "/etc/hostname-of-nobody"


@dataclass(frozen=True)
class Foreign(Layer):
    """As somebody else's package might have it."""

    name: ClassVar = "foreign"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    words: str | None = option(None, "words")

    def create(self, below: Place, context: BuildContext) -> None:
        (below.path / "made").touch()

    @contextlib.contextmanager
    def opened(self, below: Place, context: BuildContext) -> Iterator[Directory]:
        yield Directory(below.path)


TEXTS = [
    (layer.name, name)
    for layer in BUILT_IN.values()
    for name, field in layer.options().items()
    if isinstance(field.default, str) and not field.metadata["choices"]
    # It may name a file elsewhere, which is run: see test_program.py.
    if name != "binary"
]


@pytest.mark.parametrize(("layer", "name"), TEXTS, ids=lambda word: str(word))
def test_each_text_option_of_each_layer(layer: str, name: str) -> None:
    more = ", kind='thin'" if name == "virtual_size" else ""
    with pytest.raises(SpecError, match=f"{layer}: {name}: .*{ELSEWHERE}"):
        Stack.parse(f"{layer}({name}='x={ELSEWHERE}'{more})", BUILT_IN)


@pytest.mark.parametrize("word", [r"\0", r"-L a\0b", r"\ud800", r"a=\udfff,b"])
def test_what_no_command_can_be_given_is_refused(word: str) -> None:
    with pytest.raises(SpecError, match=r"ext4: mkfs: .*\bbyte\b"):
        Stack.parse(f"ext4(mkfs='{word}')", BUILT_IN)


def test_a_word_of_hundreds_of_parts_is_refused_and_not_looked_through_for_minutes() -> None:
    with pytest.raises(SpecError, match=r"ext4: mkfs: .*\b5000\b"):
        Stack.parse(f"ext4(mkfs='--new {'a=b,' * 300}')", BUILT_IN)


def test_what_appears_after_the_stack_was_read_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "here", "device", "site", "journal":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    stack = Stack.parse("foreign(words='--log later')", {"foreign": Foreign})
    (tmp_path / "here/later").touch()
    context = BuildContext(tmp_path / "site", Journal(tmp_path / "journal", RealMachine()))
    with (
        pytest.raises(BuildError, match=r"foreign: words: .*\blater\b"),
        build(stack, DirectoryDevice(tmp_path / "device"), context),
    ):
        pytest.fail("it was built")
    assert list((tmp_path / "device").iterdir()) == []
