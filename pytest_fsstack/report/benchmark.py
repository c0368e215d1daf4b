"""Records of pytest-benchmark, for its files, comparisons and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class _Record:
    """The attributes of pytest-benchmark's fixture that its `Metadata` reads."""

    def __init__(self, name: str, fullname: str, group: str | None, param: str, extra: dict[str, Any]) -> None:
        self.name, self.fullname, self.group, self.param, self.extra_info = name, fullname, group, param, extra
        self.params: dict[str, str] = {"fsstack": param}
        self.cprofile_stats = None
        self.has_error = False


_TIMER = "fsstack"


def hide_records(session: Any) -> None:
    """Remove our records from pytest-benchmark's tables, which would repeat ours. They stay in its files."""
    groups = [
        (name, [record for record in records if record["options"].get("timer") != _TIMER])
        for name, records in session.groups or []
    ]
    session.groups = [(name, records) for name, records in groups if records]


def add_record(
    session: Any,
    *,
    name: str,
    fullname: str,
    group: str | None,
    param: str,
    seconds: Sequence[float],
    extra: dict[str, Any],
) -> None:
    """Append the wall times of a step, one for each round in seconds, to pytest-benchmark's session."""
    if not seconds:
        return
    from pytest_benchmark.stats import Metadata

    metadata: Any = Metadata
    record = metadata(_Record(name, fullname, group, param, extra), iterations=1, options={"timer": _TIMER})
    for value in seconds:
        record.update(value)
    session.benchmarks.append(record)
