"""An earlier build of the project, to compare with: the one in which each report estimated the overheads again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMIT = "1a3f5e6"


@contextmanager
def earlier_tree() -> Iterator[Path]:
    """Check out the earlier build from the repository's history."""
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", name, COMMIT], check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", name], check=True)


def run_in(tree: Path, program: str, *arguments: object) -> str:
    """Run a program of Python with the package of a tree. Return its output."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv.pop(1))\n{program}"]
    words = map(str, (tree, *arguments))
    return subprocess.run([*command, *words], check=True, stdout=subprocess.PIPE, text=True).stdout
