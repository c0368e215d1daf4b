"""Format and parse sizes, figures, overheads, errors and lists of names."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isclose, isfinite, nan

#: The largest ratio of figures that is shown as a number. Its reciprocal is the smallest.
LARGEST = 1e15
#: From this overhead on, a ratio is easier to read: x13.4 instead of +1240 %.
RATIOS_FROM = 3.0

_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text: str) -> int:
    """Return the bytes in ``512M``, ``4G``, ``1.5T`` or a plain number, in powers of 1024. Raise ValueError."""
    # Longer numbers are no sizes, and overflow a float.
    if len(text) > 40:
        raise ValueError(f"{text[:20]!r}... is not a size: it has {len(text)} characters")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size; write 512M, 4G or a number of bytes")
    size = int(float(match[1]) * _FACTORS[match[2].upper()])
    if size >= 1 << 63:
        raise ValueError(f"{text!r} is more than a file can have: write less than 8388608T")
    return size


def format_size(size: float) -> str:
    """Format a size: ``4.0 GiB``, ``512 B``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_quantity(value: float, unit: str) -> str:
    """Format a figure with a scaled unit: bytes in powers of 1024, seconds from µs to s.

    >>> [format_quantity(value, "s") for value in (0.00012, 0.0009996, 0.0123, 0.9996, 4.567, 999.6)]
    ['120 µs', '1 ms', '12.3 ms', '1 s', '4.57 s', '1000 s']
    """
    if unit == "B":
        return format_size(value)
    if unit == "B/s":
        return f"{format_size(value)}/s"
    # From 999.5 on, three digits round to 1e+03.
    if unit == "s" and 0 < abs(value * 1e3) < 999.5:
        return f"{value * 1e3:.3g} ms" if abs(value * 1e6) >= 999.5 else f"{value * 1e6:.3g} µs"
    number = f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
    return f"{number} {unit}".rstrip()


#: Shown in place of an interval.
NO_INTERVAL = "(too few rounds)"


@dataclass(frozen=True)
class OverheadUnit:
    """The unit of all overheads (0.3 is 30 %) in a table or line: percent, or ratios to the baseline.

    >>> OverheadUnit().signed(1.34), OverheadUnit().interval(0.98, 2.2), OverheadUnit().limit(0.3)
    ('+134 %', '(98.0 to 220 %)', '30 %')
    >>> OverheadUnit(True).signed(12.4), OverheadUnit(True).interval(-0.03, 12.4), OverheadUnit(True).limit(0.3)
    ('x13.4', '(x0.97 to x13.4)', 'x1.3')
    """

    ratios: bool = False

    @classmethod
    def fitting(cls, overheads: Iterable[float]) -> OverheadUnit:
        """Return ratios if any overhead is 300 % or more."""
        return cls(any(overhead >= RATIOS_FROM for overhead in overheads if isfinite(overhead)))

    def signed(self, overhead: float, budgets: Iterable[float] = ()) -> str:
        """Return ``+12.3 %``, ``-3.0 %`` or ``x13.4``. An overhead near 0 or near a budget is not rounded to it."""
        number = self._number(overhead, budgets)
        if self.ratios:
            return number
        return f"{number} %" if number.startswith("-") or number == "0.0" else f"+{number} %"

    def interval(self, low: float, high: float, budgets: Iterable[float] = ()) -> str:
        """Return ``(10.1 to 14.0 %)``, with ends rounded as by `signed`. Return `NO_INTERVAL` if there is none."""
        if not isfinite(high):
            return NO_INTERVAL
        ends = " to ".join(self._number(end, budgets) for end in (low, high))
        return f"({ends})" if self.ratios else f"({ends} %)"

    def limit(self, overhead: float) -> str:
        """Format a budget with all of its digits."""
        return f"x{1 + overhead:g}" if self.ratios else f"{overhead * 100:g} %"

    def _number(self, overhead: float, budgets: Iterable[float]) -> str:
        ratio = 1 + overhead
        if ratio >= LARGEST * (1 - 1e-9):
            return f"{'x' if self.ratios else ''}\N{INFINITY}"
        decimals = 2 if ratio < 9.995 else 1 if ratio < 99.95 else 0
        if not self.ratios:
            decimals = 0 if abs(overhead) >= 1 else 1
        value = ratio if self.ratios else overhead * 100
        limits = [1 + limit if self.ratios else limit * 100 for limit in (0.0, *budgets)]
        nearest = min(limits, key=lambda limit: abs(limit - value))
        number = rounded(value, decimals, nearest)
        # Adding 0.0 turns -0.0 into 0.0.
        return f"{'x' if self.ratios else ''}{number + 0.0:.{decimals}f}"


def percent(overhead: float, *budgets: float) -> str:
    """Return an overhead without a plus sign: percent below 300 %, otherwise the ratio to the baseline.

    >>> percent(0.412), percent(-0.03), percent(12.4), percent(0.30004, 0.3)
    ('41.2 %', '-3.0 %', 'x13.4', '30.1 %')
    """
    return OverheadUnit(overhead >= RATIOS_FROM).signed(overhead, budgets).removeprefix("+")


def rounded(value: float, decimals: int, limit: float = nan) -> float:
    """Round a value so that it stays on its side of a limit.

    >>> rounded(130.4, 0), rounded(130.4, 0, 130), rounded(129.6, 0, 130), rounded(130, 0, 130)
    (130.0, 131.0, 129.0, 130.0)
    """
    scale, number = 10.0**decimals, round(value, decimals)
    if isclose(value, limit, rel_tol=1e-9, abs_tol=1e-6 / scale):
        return float(number)  # removes floating-point noise
    if value > limit >= number:
        return (floor(limit * scale) + 1) / scale
    if value < limit <= number:
        return (ceil(limit * scale) - 1) / scale
    return float(number)


def counted(number: int, noun: str) -> str:
    """Return a number of things: ``1 run``, ``2 runs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_names(names: Sequence[str]) -> str:
    """Return the first three names, and the number of the others."""
    first = ", ".join(names[:3])
    return f"{first} and {len(names) - 3} more" if len(names) > 3 else first


def shortened(name: str, width: int) -> str:
    """Shorten a name to a number of columns by leaving out its middle."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}\N{HORIZONTAL ELLIPSIS}{name[len(name) - tail :]}"


def reason_of(error: BaseException) -> str:
    """Return the text of an error. For an `OSError`, leave out the number and put the file in brackets."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror} ({error.filename})" if error.filename else error.strerror
    return str(error)


#: Control characters except tabs and newlines, and characters that change the direction of text.
_INVISIBLE = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"


def visible(text: str) -> str:
    """Escape control characters in a text as Python does, so that no terminal or browser obeys them."""
    return re.sub(f"[{_INVISIBLE}]", lambda match: repr(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Escape control characters and newlines as Python does."""
    return visible(text).replace("\n", "\\n")


def show(text: str, *, error: bool = False) -> None:
    """Print a text that may come from another user or machine, with its control characters escaped."""
    print(visible(text), file=sys.stderr if error else sys.stdout, flush=True)
