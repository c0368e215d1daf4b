"""Files that are no block devices, and odd names: one line says so."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import guard
from tests import guarding


def _file(path: Path) -> None:
    path.write_bytes(bytes(1 << 20))


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))


KINDS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "file": _file,
    "directory": Path.mkdir,
    "fifo": os.mkfifo,
    "socket": _socket,
    "character device": lambda path: path.symlink_to("/dev/null"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "link to nothing": lambda path: path.symlink_to("nothing-there"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a file": lambda path: path.symlink_to(__file__),
    "link to a directory": lambda path: path.symlink_to("/"),
    "descriptor": lambda path: path.symlink_to("/proc/self/fd/0"),
}
NAMES = (
    *("stick", "two words", " ", "größe", "a,b", "a:b", "a'b", 'a"b', "$HOME", "*", "-F", "a\tb", "a\\b", "a=b", "a;b"),
    *("a\xa0b", "a\u2028b", "a\udcff", "x" * 255),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["stick", "a b"])
def test_what_is_no_block_device(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    KINDS[kind](path)
    if path.exists() and stat.S_ISBLK(path.stat().st_mode):
        pytest.skip("standard input is a block device here")
    with pytest.raises(guard.Refused) as caught, guarding.claimed(path, overwrite=True):
        pytest.fail("it was claimed")
    assert "\n" not in str(caught.value)
    assert caught.value.device == path
    assert str(caught.value).startswith(f"{path} ")


@pytest.mark.parametrize("name", NAMES)
def test_odd_names(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.touch()
    with pytest.raises(guard.Refused, match=r"\bblock\b"):
        guarding.check_idle(path)
