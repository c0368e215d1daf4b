"""What other tools say of two series of figures that were measured one after the other.

Each rule follows the source of its tool; the versions read were pytest-benchmark 5.3, asv 0.6 and Apache Otava 0.8.
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Sequence

from scipy.stats import mannwhitneyu

Figures = Sequence[float]

#: Whether a tool calls the second series slower than the first by more than the limit (0.05 is 5 %).
Rule = Callable[[Figures, Figures, float], bool]

OTAVA = "Otava"


def known() -> dict[str, Rule]:
    """The rules by the name of their tool; Otava's only if it is installed."""
    found: dict[str, Rule] = {
        "compare-fail mean": _mean,
        "compare-fail median": _median,
        "Mann-Whitney 5 %": _mann_whitney,
        "asv": _asv,
    }
    if importlib.util.find_spec("otava") is not None:
        found[OTAVA] = _otava
    return found


def _mean(before: Figures, after: Figures, limit: float) -> bool:
    """As with ``--benchmark-compare-fail=mean:5%``."""
    return statistics.fmean(after) > statistics.fmean(before) * (1 + limit)


def _median(before: Figures, after: Figures, limit: float) -> bool:
    """As with ``--benchmark-compare-fail=median:5%``."""
    return statistics.median(after) > statistics.median(before) * (1 + limit)


def _mann_whitney(before: Figures, after: Figures, limit: float) -> bool:
    """One-sided, at 5 %, against the first series as slow as the limit allows."""
    scaled = [value * (1 + limit) for value in before]
    return bool(mannwhitneyu(after, scaled, alternative="greater").pvalue <= 0.05)


def _asv(before: Figures, after: Figures, limit: float) -> bool:
    """``asv continuous --factor``: medians that far apart, and a two-sided Mann-Whitney test with p below 0.002."""
    different = mannwhitneyu(before, after, method="exact").pvalue < 0.002
    return bool(different) and _median(before, after, limit)


def _otava(before: Figures, after: Figures, limit: float) -> bool:
    """Its change points with the default p of 0.001, of which one must be a rise by more than the limit."""
    from otava.analysis import compute_change_points

    found, _ = compute_change_points([*before, *after], max_pvalue=0.001, min_magnitude=limit)
    return any(point.stats.forward_rel_change() > limit for point in found)
