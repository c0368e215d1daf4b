"""Annotations for CI systems: GitHub's workflow commands, and GitLab's code quality report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from pytest_fsstack.records.results import Results, TestOutcome
from pytest_fsstack.report import markdown

#: GitHub's limits: annotations of one kind per step, and bytes of a summary.
GITHUB_ANNOTATIONS, GITHUB_SUMMARY = 10, 1 << 20


def github(failed: Iterable[TestOutcome], interrupted: str = "") -> list[str]:
    """Return ``::error`` lines (docs.github.com, "Workflow commands"). The last one has the number of the others.

    If no test failed, one says why the session was `interrupted`.
    """
    failures = list(failed)
    annotated = failures if len(failures) <= GITHUB_ANNOTATIONS else failures[: GITHUB_ANNOTATIONS - 1]
    lines = [_error(test) for test in annotated]
    if hidden := len(failures) - len(annotated):
        lines.append(f"::error title=fsstack::and {hidden} more tests failed")
    if interrupted and not failures:
        lines.append(f"::error title=fsstack::the session ended early: {_data(interrupted)}")
    return lines


def _error(test: TestOutcome) -> str:
    place = {"file": test.path, "line": str(test.line or 1), "title": test.id}
    words = [f"{key}={_property(value)}" for key, value in place.items() if test.path or key == "title"]
    return f"::error {','.join(words)}::{_data(test.text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def github_summary(results: Results, room: int) -> str:
    """Return the Markdown report in at most `room` bytes, because GitHub refuses a larger summary."""
    text = markdown.report(results)
    if len(text.encode()) <= room:
        return text
    end = "\n\nThe rest is too long for a summary; it is in the log.\n"
    cut = text.encode()[: max(0, room - len(end))].decode(errors="ignore")
    return cut[: cut.rfind("\n") + 1] + end if room > len(end) else ""


def gitlab(failed: Iterable[TestOutcome]) -> str:
    """Return GitLab's code quality report (docs.gitlab.com, "Code Quality report format"), a list of failures.

    The fingerprint depends only on the test, so that a repeated failure does not count as new.
    """

    entries = [
        {
            "description": f"{test.id}: {test.text}",
            "check_name": "fsstack",
            "fingerprint": hashlib.sha256(test.id.encode(errors="surrogateescape")).hexdigest(),
            "severity": "major",
            "location": {
                "path": test.path or test.id.partition("::")[0],
                "lines": {"begin": test.line or 1},
            },
        }
        for test in failed
    ]
    return json.dumps(entries, indent=2) + "\n"
