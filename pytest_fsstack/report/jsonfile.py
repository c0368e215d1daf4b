"""Everything that is known, for programs and for later sessions."""

from __future__ import annotations

from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.saved import dumps


def report(results: Results) -> str:
    """All samples in order, with their verdicts, orders, mounts and notes, and the environment."""
    return dumps(results)
