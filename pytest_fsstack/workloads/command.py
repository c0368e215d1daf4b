"""Any command line as a step, without a file of Python."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import orphans
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


def split(line: str) -> list[str]:
    """Return the words of a command line, as a shell splits it. Raises `ValueError`."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ValueError(f"{line!r} cannot be split into words: {str(error).lower()}") from None
    if not words:
        raise ValueError("there is no command")
    return words


@workload()
def command(
    timed: Timed,
    fsstack: Built,
    line: str,
    *,
    setup: Sequence[str] = (),
    check: Sequence[str] = (),
    shell: bool = False,
) -> None:
    """Run the command `line` in the directory of the stack, from cold caches; ``{}`` in it is the path of the stack.

    The line is split into words, and no shell runs unless `shell` asks for ``sh -c``. A command with a slash is one of
    the stack unless its path is absolute. If the stack is a block device, the directory is an empty one elsewhere.
    The commands of `setup` run before, and those of `check` after a remount, both outside of the time.

    The step fails if a command has an exit code other than 0, or if it leaves processes behind, which are ended.
    What a command prints is held in memory.
    """
    is_device = fsstack.path.is_block_device()
    if is_device:
        fsstack.check()
    with contextlib.ExitStack() as undo:
        directory = undo.enter_context(fsstack.scratch()) if is_device else fsstack.path

        def words(text: str) -> list[str]:
            return _words(text, fsstack.path, directory, shell=shell)

        for text in setup:
            with _alone(text) as environment:
                timed.run(*words(text), cwd=directory, env=environment)
        with _alone(line) as environment, timed():
            # Asked for here: a device may have another name once its stack was mounted anew.
            timed.run(*words(line), cwd=directory, env=environment)
        fsstack.remount()
        for text in check:
            with _alone(text) as environment:
                timed.run(*words(text), cwd=directory, env=environment)


def _words(line: str, path: Path, directory: Path, *, shell: bool) -> list[str]:
    if shell:
        return ["sh", "-c", line.replace("{}", shlex.quote(str(path)))]
    words = [word.replace("{}", str(path)) for word in split(line)]
    # Joining keeps an absolute path as it is.
    return [str(directory / words[0]), *words[1:]] if os.sep in words[0] else words


@contextlib.contextmanager
def _alone(line: str) -> Iterator[Mapping[str, str]]:
    """Give the environment of a command, and end what is left of it. Raises `AssertionError` if anything is."""
    mark = os.urandom(16).hex()
    rest: list[str] = []
    try:
        yield {orphans.COMMAND: mark}
    finally:
        rest += orphans.end_marked(f"{orphans.COMMAND}={mark}")
    if rest:
        raise AssertionError(f"`{line}` left processes behind, which were ended: {', '.join(rest)}")
