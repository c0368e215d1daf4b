"""Small SVG pictures: intervals on a common axis, lines, and heat maps. A style sheet defines their colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, copysign, floor, isfinite, log, log10
from typing import NamedTuple

from pytest_fsstack.records.sample import saturated
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.units import shortened, visible

#: Colours of stacks that the colour-blind can distinguish (Okabe & Ito, then Tol): on white, and on dark gray.
LIGHT = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e5a50a", "#56b4e9", "#333333", "#882255"),
    *("#aa4499", "#2a8a7d", "#7a7a1f", "#c24e5e"),
)
DARK = (
    *("#4ba3e3", "#f0762b", "#2fc99b", "#eba6cf", "#ffd54a", "#b9e4ff", "#8a8f98", "#9a6fd6"),
    *("#d57fd0", "#7fd6c8", "#cccc66", "#f09aa5"),
)
#: Pixels: the width of a picture, the height of a row of an interval, and the height of a line chart.
WIDTH, ROW, HEIGHT = 360, 22, 150
#: Pixels for names left of the axis, and for figures right of it.
NAMES, FIGURES = 122, 56
#: The maximum number of points in a picture that are shown as dots.
_DOTS = 900

STYLE = """
.figure text { fill: var(--text); font: 12px system-ui, sans-serif; }
.figure .tick { fill: var(--muted); font-size: 11px; }
.figure .facet { font-weight: 600; paint-order: stroke; stroke: var(--card, white); stroke-width: 5px; }
.figure .grid { stroke: var(--line); }
.figure .one { stroke: var(--muted); stroke-dasharray: 3 3; }
.figure .span { stroke: var(--c); stroke-width: 3; stroke-linecap: round; opacity: .75; }
.figure .mark { fill: var(--c); }
.figure .limit { stroke: var(--text); stroke-width: 3; }
.figure .limit.fail { stroke: var(--bad); }
.figure .limit.pass { stroke: var(--good); }
.figure .run { fill: none; stroke: var(--c); stroke-width: 1.4; stroke-linejoin: round; }
.figure .dots { fill: none; stroke: var(--c); stroke-width: 5; stroke-linecap: round; }
.figure .dearer { fill: #e08214; }
.figure .cheaper { fill: #4393c3; }
.figure .hit { fill: transparent; }
"""


def colours(palette: Sequence[str]) -> str:
    """Return the CSS rules for the colour of each class."""
    return "\n".join(f".s{number} {{ --c: {colour}; }}" for number, colour in enumerate(palette))


def colour_class(number: int) -> str:
    return f"s{number % len(LIGHT)}"


@dataclass(frozen=True)
class Scale:
    """A logarithmic or linear scale between two ends of an axis, in pixels."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool

    @classmethod
    def covering(cls, values: Iterable[float], start: float, end: float, logarithmic: bool | None = None) -> Scale:
        """Return a scale that covers all values. By default, it is logarithmic if they are far apart."""
        # Saturated, so that the calculations below stay finite.
        every = [copysign(saturated(abs(value)), value) for value in values if isfinite(value)] or [1.0]
        low, high = min(every), max(every)
        if logarithmic is None:
            logarithmic = low > 0 and high / low > 4
        if logarithmic:
            room = max((high / low) ** 0.06, 1.02)
            return cls(low / room, high * room, start, end, True)
        pad = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
        return cls(low - pad if low else 0.0, high + pad, start, end, False)

    def at(self, value: float) -> float:
        """Return the position of a value in pixels. Values outside of the axis are at its end."""
        place: Callable[[float], float] = log if self.logarithmic else float
        share = (place(min(max(value, self.low), self.high)) - place(self.low)) / (place(self.high) - place(self.low))
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round figures along the axis."""
        if self.logarithmic:
            powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
            for digits in ((1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
                candidates = [digit * 10.0**power for power in powers for digit in digits]
                ticks = [tick for tick in candidates if self.low <= tick <= self.high]
                if len(ticks) <= most:
                    break
            if len(ticks) > 1:
                return ticks[:: ceil(len(ticks) / most)]
        raw = (self.high - self.low) / (most - 1)
        step = next(size for size in (_round_up(raw, digit) for digit in (1, 2, 5, 10)) if size >= raw)
        first, last = ceil(self.low / step), floor(self.high / step)
        return [number * step for number in range(first, last + 1)]


def _round_up(size: float, digit: int) -> float:
    return float(digit * 10.0 ** floor(log10(size)))


class Mark(NamedTuple):
    """A limit on an axis: its value, its text and its verdict."""

    at: float
    text: str
    outcome: str = ""


@dataclass(frozen=True)
class Interval:
    """A row of a picture: an estimate, or none, with its text and tooltip."""

    name: str
    colour: int
    facet: str = ""
    estimate: Estimate | None = None
    text: str = ""
    tip: str = ""
    limits: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Line:
    """A line of a picture: its points, and their tooltips."""

    name: str
    colour: int
    points: list[tuple[float, float]]
    tips: list[str]


def tag(name: str, content: str | None = None, /, **attributes: object) -> str:
    """Return an SVG element. The content is markup. Trailing underscores of attribute names are removed."""
    pairs = (f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"' for key, value in attributes.items())
    start = f"<{name}{''.join(pairs)}"
    return f"{start}/>" if content is None else f"{start}>{content}</{name}>"


def escaped(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return escape(visible(str(value)))


def _text(text: str, x: float, y: float, class_: str = "", anchor: str = "start") -> str:
    extra = {"class_": class_} if class_ else {}
    return tag("text", escaped(text), x=x, y=y, text_anchor=anchor, **extra)


def figure(title: str, width: float, height: float, content: str) -> str:
    """Return a whole picture. Screen readers read its title."""
    return tag("svg", content, class_="figure", viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title)


# -- intervals ---------------------------------------------------------------------------------------------------------


def intervals(title: str, rows: Sequence[Interval], width: float = WIDTH, names: float = NAMES) -> str:
    """Return a picture of intervals on one logarithmic axis: ratio, interval, limits and figure of each row."""
    figures = max(FIGURES, 7 * max((len(row.text) for row in rows), default=0) + 10)
    values = [value for row in rows if row.estimate for value in row.estimate.ratios if value]
    values += [mark.at for row in rows for mark in row.limits]
    scale = Scale.covering([1.0, *values], names, width - figures, logarithmic=True)
    parts, y, facet = [], 4.0, ""
    for row in rows:
        if row.facet != facet:
            facet, y = row.facet, y + ROW
            parts.append(_text(facet, 0, y - 6, "facet"))
        parts.append(_interval(row, scale, y, width, names))
        y += ROW
    return figure(title, width, y + 20, _ratio_axis(scale, y) + "".join(parts))


def _interval(row: Interval, scale: Scale, top: float, width: float, names: float) -> str:
    middle = top + ROW / 2
    label = shortened(row.name, int(names / 6.7))
    parts = [tag("rect", class_="hit", x=0, y=top, width=width, height=ROW), _text(label, 0, middle + 4)]
    ratio, low, high = row.estimate.ratios if row.estimate else (None, None, None)
    if low and high:
        parts.append(tag("line", class_="span", x1=scale.at(low), x2=scale.at(high), y1=middle, y2=middle))
    if ratio:
        parts.append(tag("circle", class_="mark", cx=scale.at(ratio), cy=middle, r=4.5))
    for limit in row.limits:
        x = scale.at(limit.at)
        parts.append(tag("line", class_=f"limit {limit.outcome}", x1=x, x2=x, y1=top + 3, y2=top + ROW - 3))
    parts.append(_text(row.text, width, middle + 4, "" if ratio else "tick", "end"))
    return tag("g", "".join(parts), class_=colour_class(row.colour), data_tip=row.tip, data_stack=row.name)


def _ratio_axis(scale: Scale, bottom: float) -> str:
    parts = []
    for tick in {1.0: None, **dict.fromkeys(scale.ticks(5))}:
        x = scale.at(tick)
        parts.append(tag("line", class_="one" if tick == 1 else "grid", x1=x, x2=x, y1=0, y2=bottom))
        parts.append(_text(f"x{tick:g}", x, bottom + 14, "tick", "middle"))
    return "".join(parts)


# -- lines -------------------------------------------------------------------------------------------------------------


def lines(
    title: str,
    series: Sequence[Line],
    quantity: Callable[[float], str],
    names: Sequence[str] = (),
    x_axis: str = "",
    logarithmic: bool | None = None,
) -> str:
    """Return a chart of lines over numbers, or over `names` from 0 on. `quantity` formats values on the left axis."""
    left, bottom = 62.0, HEIGHT - 34.0
    every = [point for line in series for point in line.points]
    y = Scale.covering([value for _, value in every], bottom, 8, logarithmic)
    if names:
        x = Scale(-0.3, len(names) - 0.7, left, WIDTH - 8, False)
        ticks = [(float(number), name) for number, name in enumerate(names)]
    else:
        x = Scale.covering([at for at, _ in every], left, WIDTH - 8, False)
        first = min((at for at, _ in every), default=0.0)
        ticks = [(tick, f"{tick:g}") for tick in x.ticks() if first <= tick and tick % 1 == 0]
    parts = [_y_axis(y, quantity, left), *(_x_tick(x.at(at), name, bottom, len(ticks)) for at, name in ticks)]
    parts += [_line(line, x, y, len(every) <= _DOTS) for line in series]
    parts.append(_text(x_axis, WIDTH - 8, HEIGHT - 4, "tick", "end"))
    return figure(title, WIDTH, HEIGHT, "".join(parts))


def _y_axis(scale: Scale, quantity: Callable[[float], str], left: float) -> str:
    parts = []
    for tick in scale.ticks(5):
        y = scale.at(tick)
        parts.append(tag("line", class_="grid", x1=left, x2=WIDTH, y1=y, y2=y))
        parts.append(_text(quantity(tick), left - 6, y + 4, "tick", "end"))
    return "".join(parts)


def _x_tick(x: float, name: str, bottom: float, number: int) -> str:
    return _text(shortened(name, max(4, 44 // max(number, 1))), x, bottom + 18, "tick", "middle")


def _line(line: Line, x: Scale, y: Scale, dots: bool) -> str:
    places = [f"{x.at(at):.1f} {y.at(value):.1f}" for at, value in line.points]
    parts = [tag("path", class_="run", d="M" + "L".join(places))]
    if dots:
        parts.append(tag("path", class_="dots", d="".join(f"M{place}h0" for place in places)))
    facts = {"data_stack": line.name, "data_tips": "|".join(line.tips)}
    return tag("g", "".join(parts), class_=colour_class(line.colour), **facts)


# -- squares -----------------------------------------------------------------------------------------------------------


class Square(NamedTuple):
    """A cell of a heat map: its text, its kind (``cheaper`` or ``dearer``), and its darkness from 0 to 1."""

    text: str
    kind: str
    share: float


def squares(title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Square]]]) -> str:
    """Return a heat map: a row of squares for each stack with its name, and a name above each column."""
    names, wide, high = 8 + 7 * max(len(name) for name, _ in rows), 104, 30
    parts = [_text(shortened(name, 15), names + (at + 0.5) * wide, 14, "", "middle") for at, name in enumerate(columns)]
    for number, (name, cells) in enumerate(rows):
        top = 22 + number * high
        parts.append(_text(name, 0, top + 19))
        for at, cell in enumerate(cells):
            box = {"x": names + at * wide, "y": top, "width": wide - 2, "height": high - 2}
            parts.append(tag("rect", class_=cell.kind or "grid", fill_opacity=f"{cell.share:.3f}", **box))
            parts.append(_text(cell.text, names + (at + 0.5) * wide - 1, top + 19, "", "middle"))
    return figure(title, names + wide * len(columns), 22 + high * len(rows), "".join(parts))


# -- documents ---------------------------------------------------------------------------------------------------------


def _size_of(picture: str) -> tuple[float, float]:
    """Return the width and the height of a picture, in pixels."""
    match = re.search(r'viewBox="0 0 (\S+) (\S+)"', picture)
    assert match is not None
    return float(match[1]), float(match[2])


def document(pictures: Sequence[tuple[str, str]]) -> str:
    """Return one SVG document of several pictures below each other, each with its title, on white."""
    head = 26
    width = max(_size_of(picture)[0] for _, picture in pictures) + 20
    parts, y = [], 10.0
    for title, picture in pictures:
        size, height = _size_of(picture)
        parts.append(tag("g", _text(title, 10, y + 14, "facet"), class_="figure"))
        placed = picture.replace("<svg ", f'<svg x="10" y="{y + head:g}" width="{size:g}" height="{height:g}" ', 1)
        parts.append(placed)
        y += head + height + 14
    colors = "--text: #1b1f24; --muted: #59636e; --line: #d9dee3; --good: #1a7f37; --bad: #cf222e"
    style = tag("style", f"svg {{ {colors}; }}{STYLE}{colours(LIGHT)}")
    background = tag("rect", width="100%", height="100%", fill="white")
    attributes = {"xmlns": "http://www.w3.org/2000/svg", "width": width, "height": y, "viewBox": f"0 0 {width:g} {y:g}"}
    return tag("svg", style + background + "".join(parts), **attributes) + "\n"
