"""Must all guests run again? ``python -m tests.guests`` says which change asks for it, and exits with 1 if one does.

`python -m tests kernels` notes in `.ci/kernels-passed` with which contents of which files it passed; whoever ran it
commits that file. What is not known to be of no concern to guests counts, and so does whatever prevents an answer.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PASSED = Path(".ci/kernels-passed")

#: What no test in a guest runs, or what the one guest of `tox -e test` runs as well: folders end in a slash.
OF_NO_CONCERN = (
    ".ci/",
    ".gitignore",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "benchmarks/",
    "docs/",
    "mypy.ini",
    "pytest_fsstack/judging/",
    "pytest_fsstack/report/",
    "ruff.toml",
    "scenarios/test_encryption_overhead.py",
    "tests/__main__.py",
    "tests/caused_elsewhere.py",
    "tests/commands.py",
    "tests/guests.py",
    "tests/layout.py",
    "tests/messages.py",
    "tests/pages.py",
    "tests/plugin/",
    "tests/real/",
    "tests/recorded/",
    "tests/terminal.py",
    "tests/torture/",
    "tests/unit/",
    "tests/warm.py",
    "tox.ini",
)


#: The SHA-256 of each file that guests may exercise, by its path in the checkout.
Contents = Mapping[str, str]


class UnknownError(Exception):
    """Why it cannot be told whether they must run."""


def contents(root: Path) -> Contents:
    """What is in the checkout at `root` now, committed or not. Raises `UnknownError`."""
    # CI may have cloned as another user than the one that runs it.
    argv = ["git", "-c", f"safe.directory={root.resolve()}", "-C", str(root), "ls-files", "-z"]
    listed = subprocess.run([*argv, "--cached", "--others", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode:
        raise UnknownError(f"git cannot tell what is in {root}: {listed.stderr.strip()}")
    paths = {path for path in listed.stdout.split("\0") if path and (root / path).is_file() and _concerns(path)}
    return {path: hashlib.sha256((root / path).read_bytes()).hexdigest() for path in sorted(paths)}


def _concerns(path: str) -> bool:
    return not any(path.startswith(known) if known.endswith("/") else path == known for known in OF_NO_CONCERN)


def due(root: Path) -> str:
    """Why the guests must run in the checkout at `root`; empty if they need not."""
    try:
        noted: Contents = json.loads((root / PASSED).read_text())
        now = contents(root)
    except (OSError, ValueError) as error:
        return f"nothing says with what they passed ({error})"
    except UnknownError as error:
        return str(error)
    passed = {path: digest for path, digest in noted.items() if _concerns(path)}
    changed = [path for path in sorted({*passed, *now}) if passed.get(path) != now.get(path)]
    return f"changed since they passed: {', '.join(changed)}" if changed else ""


def note(root: Path, before: Contents) -> str:
    """Note that they passed, if all is as it was `before` they began. Returns what to do, or why it was not noted."""
    if contents(root) != before:
        return f"not noted in {PASSED}: files were changed meanwhile"
    (root / PASSED).parent.mkdir(exist_ok=True)
    (root / PASSED).write_text(json.dumps(before, indent=0, sort_keys=True) + "\n")
    return f"noted in {PASSED}: commit that file"


def main() -> int:
    reason = due(ROOT)
    print(f"guests: {f'all run, {reason}' if reason else 'nothing that they exercise has changed, so they do not run'}")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
