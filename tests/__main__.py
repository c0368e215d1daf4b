"""All tests, as CI runs them: ``python -m tests``. With arguments, one session of pytest with them.

Guests in emulation keep one CPU busy each, and share nothing: two of their files run at a time. All others need the
machine for themselves.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = (["--ignore=tests/kernel"], ["tests/kernel", "-n2", "--dist=loadfile"])


def main(arguments: list[str]) -> int:
    """Returns the highest exit code of pytest."""
    pytest = [sys.executable, "-m", "pytest", "-ra"]
    return max(subprocess.call([*pytest, *part]) for part in ([arguments] if arguments else PARTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
