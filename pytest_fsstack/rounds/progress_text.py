"""Log lines about a running chain."""

from __future__ import annotations

from pytest_fsstack.judging.standing import ProgressState, TimeLeft
from pytest_fsstack.units import OverheadUnit


def chain_on_device(state: ProgressState) -> str:
    """Return the chain and its device: ``TestA on loop``."""
    return f"{state.chain.partition('::')[2] or state.chain} on {state.device}"


def rounds(state: ProgressState) -> str:
    """Return the round: ``round 8 of 8``, ``rounds 5 to 8 of 8``, or with budgets ``round 8 of at most 78``."""
    fresh, why = ("fresh ", " (to confirm)") if state.phase == "confirming" else ("", "")
    number = f"rounds {state.round - state.mixed + 1} to {state.round}" if state.mixed > 1 else f"round {state.round}"
    return f"{fresh}{number} of {'at most ' if state.decides else ''}{state.max_rounds}{why}"


def time_left(remaining: TimeLeft | None) -> str:
    """Return the remaining time if it may exceed a minute: ``about 3 min left, at most 2.5 h``."""
    if remaining is None or remaining.maximum < 60:
        return ""
    longest = in_words(remaining.maximum)
    if remaining.expected is None:
        return f"at most {longest} left"
    expected = in_words(remaining.expected)
    return f"about {expected} left" if expected == longest else f"about {expected} left, at most {longest}"


def in_words(seconds: float) -> str:
    """Format a duration in a fitting unit: ``20 s``, ``3 min``, ``2.5 h``."""
    if seconds < 55:
        return f"{max(10, round(seconds, -1)):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def findings_so_far(state: ProgressState) -> list[str]:
    """Return the verdicts so far, and the costliest step."""
    texts, dear = [state.decided] if state.decided else [], state.costliest
    if dear and dear.estimate:
        overhead = dear.estimate.overhead
        cost = OverheadUnit.fitting([overhead]).signed(overhead)
        texts.append(f"costliest so far: {dear.step} on {dear.stack} {cost}")
    return texts


def line(state: ProgressState) -> str:
    """Return the progress as a log line."""
    ran = f", {state.cells_run} of {state.cells} done" if state.cells_run else ""
    now = f"{ran}: {state.running}" if state.running else " done"
    return "; ".join(
        [
            f"{chain_on_device(state)}: {rounds(state)}{now}",
            *findings_so_far(state),
            *filter(None, [time_left(state.time_left)]),
        ]
    )
