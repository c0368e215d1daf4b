"""The version of this package, with its commit unless it is a release. A build of the package calls `full`."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import subprocess
from pathlib import Path

__version__ = "0.1.0"


@functools.cache
def full() -> str:
    """Return the version. Code from a checkout has its commit as a local label: ``0.1.0+g1a3f5e6``.

    A release (the tag ``v0.1.0``) has none. ``.dirty`` says that files were changed since the commit. Without git, the
    commit is left out.
    """
    root = Path(__file__).parents[1]
    if (root / ".git").exists():
        return __version__ + _label(root)
    if (root / "PKG-INFO").exists():
        # An unpacked source distribution, whose wheel must have the same version.
        match = re.search(r"^Version: (\S+)$", (root / "PKG-INFO").read_text(encoding="utf-8"), re.MULTILINE)
        return match[1] if match else __version__
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("pytest-fsstack")
    return __version__


def _label(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=7", "--dirty", "--tags"]
    # Inside a hook of git, variables name another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        result = subprocess.run(
            [*command, f"--match=v{__version__}"],
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=15,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"(?:^|-g)([0-9a-f]{7,})(-dirty)?$", result.stdout.strip())
    return f"+g{match[1]}{'.dirty' if match[2] else ''}" if match else ""
