"""The rules of other tools for two series of figures that were measured one after the other.

Each rule follows the source of its tool: pytest-benchmark 5.3, asv 0.6 and Apache Otava 0.8.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Sequence

from scipy.stats import mannwhitneyu

Figures = Sequence[float]

#: Returns whether a tool calls the second series slower than the first by more than the limit (0.05 is 5 %).
Rule = Callable[[Figures, Figures, float], bool]

OTAVA = "Otava"


def by_tool() -> dict[str, Rule]:
    """Return the rules by the name of their tool. Otava's is missing if it is not installed."""
    rules: dict[str, Rule] = {
        "compare-fail mean": _mean,
        "compare-fail median": _median,
        "Mann-Whitney 5 %": _mann_whitney,
        "asv": _asv,
    }
    if importlib.util.find_spec("otava") is not None:
        rules[OTAVA] = _otava
    return rules


def _mean(before: Figures, after: Figures, limit: float) -> bool:
    """Compare the means, as ``--benchmark-compare-fail=mean:5%`` does."""
    return statistics.fmean(after) > statistics.fmean(before) * (1 + limit)


def _median(before: Figures, after: Figures, limit: float) -> bool:
    """Compare the medians, as ``--benchmark-compare-fail=median:5%`` does."""
    return statistics.median(after) > statistics.median(before) * (1 + limit)


def _mann_whitney(before: Figures, after: Figures, limit: float) -> bool:
    """Apply the one-sided Mann-Whitney test at 5 %, after slowing the first series down by the limit."""
    scaled = [value * (1 + limit) for value in before]
    return bool(mannwhitneyu(after, scaled, alternative="greater").pvalue <= 0.05)


def _asv(before: Figures, after: Figures, limit: float) -> bool:
    """Compare as ``asv continuous --factor``: by medians and a two-sided Mann-Whitney test with p below 0.002."""
    different = mannwhitneyu(before, after, method="exact").pvalue < 0.002
    return bool(different) and _median(before, after, limit)


def _otava(before: Figures, after: Figures, limit: float) -> bool:
    """Find change points with the default p of 0.001. One must be a rise by more than the limit."""
    from otava.analysis import compute_change_points

    points, _ = compute_change_points([*before, *after], max_pvalue=0.001, min_magnitude=limit)
    return any(point.stats.forward_rel_change() > limit for point in points)
