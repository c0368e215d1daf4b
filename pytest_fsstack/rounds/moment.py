"""Where a chain is while its rounds run: a record, and what a log says of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pytest_fsstack.judging.standing import Standing
from pytest_fsstack.judging.verdict import percent

Phase = Literal["planned", "confirming"]


class TimeLeft(NamedTuple):
    """Seconds that a chain has yet to run: at most, and if all trends hold (None while some show none)."""

    expected: float | None
    most: float


class Moment(NamedTuple):
    """Where a chain is.

    `round` counts from 1 those of its phase, of which there are at most `most`. `running` is the stack that runs now,
    or the kernel if kernels are compared; it is empty once the round is over. `decided` is as of `plan.in_words`.
    `elapsed` is in seconds.
    """

    chain: str
    device: str
    round: int
    most: int
    phase: Phase = "planned"
    running: str = ""
    step: str = ""
    stacks: tuple[Standing, ...] = ()
    decided: str = ""
    costliest: Standing | None = None
    elapsed: float = 0.0
    left: TimeLeft | None = None


def place(moment: Moment) -> str:
    """The chain and its device: ``TestA on loop``."""
    return f"{moment.chain.partition('::')[2] or moment.chain} on {moment.device}"


def rounds(moment: Moment) -> str:
    """The round: ``round 8 of at most 80``."""
    fresh, why = ("fresh ", " (to confirm)") if moment.phase == "confirming" else ("", "")
    return f"{fresh}round {moment.round} of at most {moment.most}{why}"


def time_left(left: TimeLeft | None) -> str:
    """Return the time left, if it may be more than a minute: ``about 3 min left, at most 2.5 h``."""
    if left is None or left.most < 60:
        return ""
    most = in_words(left.most)
    if left.expected is None:
        return f"at most {most} left"
    expected = in_words(left.expected)
    return f"about {expected} left" if expected == most else f"about {expected} left, at most {most}"


def in_words(seconds: float) -> str:
    """Return a length of time in the unit that fits: ``20 s``, ``3 min``, ``2.5 h``."""
    if seconds < 55:
        return f"{max(10, round(seconds, -1)):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def known(moment: Moment) -> list[str]:
    """What is known so far: what is decided, and the costliest step."""
    found, dear = [moment.decided] if moment.decided else [], moment.costliest
    if dear and dear.estimate:
        found.append(f"costliest so far: {dear.step} on {dear.stack} {percent(dear.estimate.overhead)}")
    return found


def line(moment: Moment) -> str:
    """A moment as a line of a log."""
    now = f": {moment.running}" if moment.running else " done"
    return "; ".join(
        [f"{place(moment)}: {rounds(moment)}{now}", *known(moment), *filter(None, [time_left(moment.left)])]
    )
