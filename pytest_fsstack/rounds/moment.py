"""Log lines about a running chain."""

from __future__ import annotations

from pytest_fsstack.judging.standing import ProgressState, TimeLeft
from pytest_fsstack.units import percent


def place(moment: ProgressState) -> str:
    """Return the chain and its device: ``TestA on loop``."""
    return f"{moment.chain.partition('::')[2] or moment.chain} on {moment.device}"


def rounds(moment: ProgressState) -> str:
    """Return the round: ``round 8 of at most 80``."""
    fresh, why = ("fresh ", " (to confirm)") if moment.phase == "confirming" else ("", "")
    return f"{fresh}round {moment.round} of at most {moment.most}{why}"


def time_left(remaining: TimeLeft | None) -> str:
    """Return the remaining time if it may exceed a minute: ``about 3 min left, at most 2.5 h``."""
    if remaining is None or remaining.most < 60:
        return ""
    longest = in_words(remaining.most)
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


def known(moment: ProgressState) -> list[str]:
    """Return the verdicts so far, and the costliest step."""
    texts, dear = [moment.decided] if moment.decided else [], moment.costliest
    if dear and dear.estimate:
        texts.append(f"costliest so far: {dear.step} on {dear.stack} {percent(dear.estimate.overhead)}")
    return texts


def line(moment: ProgressState) -> str:
    """Return the progress as a log line."""
    now = f": {moment.running}" if moment.running else " done"
    return "; ".join(
        [f"{place(moment)}: {rounds(moment)}{now}", *known(moment), *filter(None, [time_left(moment.left)])]
    )
