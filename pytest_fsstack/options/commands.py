"""Command lines as option values: ``--fsstack-command='pack=tar -cf all.tar doc'``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from pytest_fsstack.workloads.command import ASSIGNMENT

#: Only a shell knows where a word with these ends.
_QUOTING = re.compile(r"[$`'\"(]")
_NAME = re.compile(r"([\w.+-]+)=(?=\S|$)")


def parse(text: str) -> tuple[str, str]:
    """Parse the name of a step and its command line. Raises `ValueError`."""
    match = _NAME.match(text)
    if match is None:
        return named(text)
    name, line = match[1], text[match.end() :]
    if not line.strip():
        raise ValueError(f"there is no command in {text!r}")
    if name.isidentifier() and name.isupper():
        raise ValueError(
            f"{name}= could name a step or set a variable: name a step in small letters, and set a variable by "
            f"'step=env {text}'"
        )
    return name, line


def named(line: str) -> tuple[str, str]:
    """Return a step that runs this whole line, named after its first program. Raises `ValueError`."""
    words = line.split()
    if not words:
        raise ValueError(f"there is no command in {line!r}")
    program = next((word for word in words if not ASSIGNMENT.match(word) or _QUOTING.search(word)), "")
    name = "" if ASSIGNMENT.match(program) else re.sub(r"[^\w.+-]", "", os.path.basename(program))
    return name or "command", line.strip()


def parse_check(text: str, names: Sequence[str], *, shell: bool) -> tuple[str, str]:
    """Parse a check: the step that it follows (empty for each step) and its command line. Raises `ValueError`.

    A `shell` may set a variable where the name of a step would stand.
    """
    match = _NAME.match(text)
    if match is None or (shell and match[1] not in names):
        return "", text
    if match[1] not in names:
        raise ValueError(f"there is no step {match[1]!r}; there are: {', '.join(names)}")
    return match[1], text[match.end() :]
