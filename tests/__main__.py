"""All tests, as CI runs them: ``python -m tests``. With arguments, one session of pytest with them.

Guests in emulation keep one CPU busy each, and share nothing: two of their files or classes run at a time, the longest
first. All others need the machine for themselves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LONGEST = Path("tests/kernel/test_scenarios_in_guest.py")
GUESTS = map(str, dict.fromkeys([LONGEST, *sorted(LONGEST.parent.glob("test_*.py"))]))
PARTS = (["--ignore=tests/kernel"], [*GUESTS, "-n2", "--dist=loadscope", "--no-loadscope-reorder"])


def main(arguments: list[str]) -> int:
    """Returns the highest exit code of pytest."""
    pytest = [sys.executable, "-m", "pytest", "-ra"]
    return max(subprocess.call([*pytest, *part]) for part in ([arguments] if arguments else PARTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
