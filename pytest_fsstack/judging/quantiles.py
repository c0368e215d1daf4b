"""Student's t distribution without scipy."""

from __future__ import annotations

from functools import cache
from math import atan, cos, pi, sin, sqrt


@cache
def student_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t at `share`, by bisection of the exact distribution function.

    Raises ValueError if `share` is not above 0.5 and below 1, or if `freedom` is not positive.
    """
    if not 0.5 < share < 1 or freedom < 1:
        raise ValueError(f"needs a share between 0.5 and 1, and a degree of freedom (got {share}, {freedom})")
    low, high = 0.0, 1.0
    while student_share(high, freedom) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_share(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def student_share(t: float, freedom: int) -> float:
    """Return P(T <= t): Abramowitz & Stegun, 26.7.3 (odd degrees of freedom) and 26.7.4 (even ones)."""
    angle = atan(t / sqrt(freedom))
    squared = cos(angle) ** 2
    term, total = (cos(angle), 0.0) if freedom % 2 else (1.0, 0.0)
    for step in range(1 + freedom % 2, freedom, 2):
        total += term
        term *= squared * step / (step + 1)
    inside = 2 / pi * (angle + sin(angle) * total) if freedom % 2 else sin(angle) * total
    return (1 + inside) / 2
