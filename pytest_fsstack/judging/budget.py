"""A budget of a test: what its verdicts are about."""

from __future__ import annotations

import msgspec


class Budget(msgspec.Struct, frozen=True):
    """The allowed overhead of one metric over the baseline (0.3 is 30 %), or an absolute limit in its unit.

    `limit` is the most where less is better, the least where more is better. Exactly one of the two is given.
    """

    metric: str = "seconds"
    overhead: float | None = None
    limit: float | None = None
    #: Why it is expected to be broken, if it is.
    xfail: str | None = None
    #: Whether it finds what is broken on any machine, as those of scenarios. It is no requirement of the user.
    sanity: bool = False

    def __post_init__(self) -> None:
        if (self.overhead is None) == (self.limit is None):
            raise ValueError(f"a budget for {self.metric} needs an overhead or a limit, and one only")
