"""Command lines as option values: ``--fsstack-command='pack=tar -cf all.tar doc'``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

_NAME = re.compile(r"([\w.+-]+)=(?=\S|$)")


def parse(text: str) -> tuple[str, str]:
    """Parse the name of a step and its command line. Raises `ValueError`."""
    match = _NAME.match(text)
    line = text[match.end() :] if match else text
    if not line.strip():
        raise ValueError(f"there is no command in {text!r}")
    name = match[1] if match else re.sub(r"[^\w.+-]", "", os.path.basename(line.split()[0])) or "command"
    return name, line


def parse_check(text: str, names: Sequence[str]) -> tuple[str, str]:
    """Parse a check: the step that it follows (empty for each step) and its command line. Raises `ValueError`."""
    match = _NAME.match(text)
    if match is None:
        return "", text
    if match[1] not in names:
        raise ValueError(f"there is no step {match[1]!r}; there are: {', '.join(names)}")
    return match[1], text[match.end() :]
