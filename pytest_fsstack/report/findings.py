"""What CI shows beside the code: failures as GitHub's workflow commands, and as GitLab's code quality report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_fsstack.judging.results import Results
from pytest_fsstack.report import markdown

#: GitHub shows no more of one kind for a step, and takes no larger summary of it.
GITHUB_ANNOTATIONS, GITHUB_SUMMARY = 10, 1 << 20


@dataclass(frozen=True)
class Finding:
    """A test that failed: its id, where it is in the repository (line 0: not known), and what is wrong, in a line.

    `path` is empty if the test is not in the repository.
    """

    name: str
    path: str
    line: int
    text: str


def github(failed: Iterable[Finding]) -> list[str]:
    """``::error`` lines (docs.github.com, "Workflow commands"); the last of them says how many more there are."""
    found = list(failed)
    shown = found if len(found) <= GITHUB_ANNOTATIONS else found[: GITHUB_ANNOTATIONS - 1]
    lines = [_error(finding) for finding in shown]
    if left := len(found) - len(shown):
        lines.append(f"::error title=fsstack::and {left} more tests failed")
    return lines


def _error(finding: Finding) -> str:
    place = {"file": finding.path, "line": str(finding.line or 1), "title": finding.name}
    words = [f"{key}={_property(value)}" for key, value in place.items() if finding.path or key == "title"]
    return f"::error {','.join(words)}::{_data(finding.text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def github_summary(results: Results, room: int) -> str:
    """The Markdown report, in at most so many bytes: a larger summary would be refused as a whole."""
    text = markdown.report(results)
    if len(text.encode()) <= room:
        return text
    end = "\n\nThe rest is too long for a summary; it is in the log.\n"
    cut = text.encode()[: max(0, room - len(end))].decode(errors="ignore")
    return cut[: cut.rfind("\n") + 1] + end if room > len(end) else ""


def gitlab(failed: Iterable[Finding]) -> str:
    """GitLab's code quality report (docs.gitlab.com, "Code Quality report format"); a list, empty without failures.

    The fingerprint is of the test and not of its figures, so that a failure that is still there is no new one.
    """

    def place(finding: Finding) -> dict[str, object]:
        path = finding.path or finding.name.partition("::")[0]
        return {"path": path, "lines": {"begin": finding.line or 1}}

    found = [
        {
            "description": f"{finding.name}: {finding.text}",
            "check_name": "fsstack",
            "fingerprint": hashlib.sha256(finding.name.encode(errors="surrogateescape")).hexdigest(),
            "severity": "major",
            "location": {
                "path": finding.path or finding.name.partition("::")[0],
                "lines": {"begin": finding.line or 1},
            },
        }
        for finding in failed
    ]
    return json.dumps(found, indent=2) + "\n"
