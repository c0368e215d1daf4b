"""Results in, text out. To add a report: write its function in a file of this package and name it below."""

from __future__ import annotations

from collections.abc import Callable

from pytest_fsstack.report import csvfile, html, jsonfile, markdown, tablesfile
from pytest_fsstack.results import Results

BUILT_IN: dict[str, Callable[[Results], str]] = {
    "json": jsonfile.report,
    "markdown": markdown.report,
    "csv": csvfile.report,
    "tables": tablesfile.report,
    "html": html.report,
}
