"""``python -m pytest_fsstack.command`` is the command `fsstack`."""

from __future__ import annotations

import sys

from pytest_fsstack.command import main

if __name__ == "__main__":
    sys.exit(main())
