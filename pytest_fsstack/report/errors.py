"""The error of a report."""

from __future__ import annotations


class ReportError(Exception):
    """A report cannot be written; the message says where and why, in one line."""
