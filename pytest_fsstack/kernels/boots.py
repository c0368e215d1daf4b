"""The boots of each kernel, and whether they are enough for verdicts between kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_fsstack.kernels.images import is_host
from pytest_fsstack.units import counted

if TYPE_CHECKING:
    from pytest_fsstack.options.settings import Settings


def boots_of(kernel: str, boots: int) -> int:
    """Return how often a kernel boots. The running one, ``host``, cannot boot again."""
    return 1 if is_host(kernel) else boots


def check(settings: Settings) -> None:
    """Check the options about boots. Raises `pytest.UsageError`, also if a strict gate could not judge kernels."""
    boots = settings.value("boots")
    if settings.is_typed("boots") and not settings.kernels:
        raise pytest.UsageError("--fsstack-boots does nothing without --fsstack-kernel: add one")
    if settings.is_typed("judge-one-boot") and not settings.judges_kernels:
        raise pytest.UsageError(
            "--fsstack-judge-one-boot judges nothing without --fsstack-max-regression and a second --fsstack-kernel: "
            "add them"
        )
    if settings.judges_one_boot and boots not in (None, 1):
        raise pytest.UsageError(f"--fsstack-judge-one-boot does nothing with --fsstack-boots={boots}: remove one")
    if settings.strict and (reason := why_no_gate(settings)):
        raise pytest.UsageError(f"{reason} (--fsstack-strict)")


def why_no_gate(settings: Settings) -> str:
    """Return why the limit between kernels gives no verdicts, or an empty text."""
    from pytest_fsstack.judging.runs import min_runs

    boots, needed = settings.boots, min_runs(settings.looks.alpha)
    if not settings.judges_kernels or settings.judges_one_boot:
        return ""
    if boots < needed:
        text, remedy = f"with {counted(boots, 'boot')} of each kernel there are", f"add --fsstack-boots={needed}"
    elif any(map(is_host, settings.kernels)):
        text, remedy = "the running kernel cannot boot again, and by one boot there are", "name others"
    else:
        return ""
    return (
        f"--fsstack-max-regression is no gate between kernels: {text} figures without a verdict: {remedy}, or judge "
        "these boots only, with --fsstack-judge-one-boot"
    )
