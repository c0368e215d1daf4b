"""Reports: functions from results to text. To add one, write a module with `report` here, and name it below."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fsstack.records.results import Results


class ReportError(Exception):
    """A report that cannot be written. The message has the file and the reason, in one line."""


def _report(module: str, function: str = "report") -> Callable[[Results], str]:
    """Return a function that imports its module on the first call. Most sessions write one report or none."""

    def report(results: Results) -> str:
        text: str = getattr(import_module(module, __name__), function)(results)
        return text

    return report


BUILT_IN: dict[str, Callable[[Results], str]] = {
    "json": _report("..judging.readings", "dumps"),
    "markdown": _report(".markdown"),
    "csv": _report(".csvfile", "samples"),
    "tables": _report(".csvfile", "tables"),
    "html": _report(".html"),
    "heatmap": _report(".figures", "heat_maps"),
    "forest": _report(".figures", "forests"),
    "bencher": _report(".stores", "bencher"),
    "github-benchmark": _report(".stores", "github_benchmark"),
    "otava": _report(".stores", "otava"),
    "openmetrics": _report(".openmetrics"),
    "lava": _report(".consoles", "lava"),
    "ktap": _report(".consoles", "ktap"),
}
