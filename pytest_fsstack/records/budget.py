"""The budget of a test."""

from __future__ import annotations

import msgspec

from pytest_fsstack.records.sample import Better


class Budget(msgspec.Struct, frozen=True, gc=False):
    """The allowed overhead of one metric over the baseline (0.3 is 30 %), or an absolute limit in its unit.

    `limit` is a maximum if less is better, and a minimum if more is better. Exactly one of overhead and limit is set.
    """

    metric: str = "seconds"
    overhead: float | None = None
    limit: float | None = None
    #: Why the budget is expected to be broken, or None.
    xfail: str | None = None
    #: Whether the budget is a sanity limit of a scenario, which any healthy machine keeps, and no requirement of the
    #: user.
    sanity: bool = False
    #: The better direction by the sign of a written limit, or None: ``<=`` means lower.
    better: Better | None = None

    def __post_init__(self) -> None:
        if (self.overhead is None) == (self.limit is None):
            raise ValueError(f"a budget for {self.metric} needs an overhead or a limit, and one only")

    def wrong_sign(self, better: Better) -> str:
        """Return the mistake in the sign of the limit, if figures are better in that direction. Empty if none."""
        if self.better in (None, better):
            return ""
        less, maximum, sign = ("less", "maximum", "<=") if better == "lower" else ("more", "minimum", ">=")
        return (
            f"{less} {self.metric} is better, so its limit is a {maximum}; write '{self.metric} {sign} {self.limit:g}'"
        )
