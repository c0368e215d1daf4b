"""Any command line as a step, without Python code."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import orphans
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


#: The beginning of a word that sets a variable in a shell.
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
#: What only a shell expands.
_EXPANDED = re.compile(r"[$`]")


def split(line: str) -> list[str]:
    """Split a command line as a shell does. Raises `ValueError`."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ValueError(f"{line!r} cannot be split into words: {str(error).lower()}") from None
    if not words:
        raise ValueError("there is no command")
    if ASSIGNMENT.match(words[0]):
        # `env` sets a variable to a value that needs no shell.
        env = "" if _EXPANDED.search(line) else f", or write 'env {line}'"
        raise ValueError(
            f"{words[0]!r} sets a variable, and only a shell does that: let a shell run the commands (--shell, "
            f"--fsstack-shell or shell=True){env}"
        )
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

    The line is split into words without a shell. `shell` runs it by ``sh -c`` instead. A relative path with a slash is
    a command on the stack. If the stack is a block device, the working directory is an empty one elsewhere. The
    commands of `setup` run before, and those of `check` after a remount, both untimed.

    The step fails if a command exits with a code other than 0, or leaves processes behind. Those are killed. Output is
    kept in memory.
    """
    is_device = fsstack.path.is_block_device()
    if is_device:
        fsstack.check()
    with contextlib.ExitStack() as undo:
        directory = undo.enter_context(fsstack.scratch()) if is_device else fsstack.path

        def words(text: str) -> list[str]:
            return _words(text, fsstack.path, shell=shell)

        for text in setup:
            with _alone(text) as environment:
                timed.run(*words(text), cwd=directory, env=environment)
        with _alone(line) as environment, timed():
            # Called here, because a remount may change the device's name.
            timed.run(*words(line), cwd=directory, env=environment)
        fsstack.remount()
        for text in check:
            with _alone(text) as environment:
                timed.run(*words(text), cwd=directory, env=environment)


def _words(line: str, path: Path, *, shell: bool) -> list[str]:
    if shell:
        return ["sh", "-c", line.replace("{}", shlex.quote(str(path)))]
    return [word.replace("{}", str(path)) for word in split(line)]


@contextlib.contextmanager
def _alone(line: str) -> Iterator[Mapping[str, str]]:
    """Yield the environment for a command, then kill its remaining processes. Raises `AssertionError` if any remain."""
    mark = os.urandom(16).hex()
    rest: list[str] = []
    try:
        yield {orphans.COMMAND: mark}
    finally:
        rest += orphans.end_marked(f"{orphans.COMMAND}={mark}")
    if rest:
        raise AssertionError(f"`{line}` left processes behind, which were ended: {', '.join(rest)}")
