"""Plots as inline SVG: lines over a linear or logarithmic axis, and bars over time.

Colours are classes, c0 to c7, which the page defines for light and dark screens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 12, 40
_TICK = 4
_BAR, _LANE = 9, 13
_SHORT = 200


@dataclass(frozen=True)
class Scale:
    """A map from values to pixels, `first` to `last`, with the values that get a label."""

    first: float
    last: float
    low: float
    high: float
    is_log: bool
    ticks: Sequence[float]
    text: Callable[[float], str]

    def at(self, value: float) -> float:
        """The pixel of a value; those out of range stand at the end."""
        low, high, here = map(self._grown, (self.low, self.high, value))
        share = (here - low) / (high - low) if high > low else 0.5
        return self.first + min(max(share, 0.0), 1.0) * (self.last - self.first)

    def _grown(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.is_log else value


def log_ticks(low: float, high: float) -> list[float]:
    """The powers of ten between them; where these are few, twice and five times them, too."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high) + 1e-9)
    factors = (1, 2, 5) if high < _SHORT * low else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    return [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]


def linear_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between them, `most` at most."""
    step = 10 ** math.floor(math.log10(max(high - low, 1e-12)))
    for factor in (0.1, 0.2, 0.5, 1, 2, 5, 10):
        if (high - low) / (step * factor) < most:
            step *= factor
            break
    return [at * step for at in range(math.ceil(low / step), math.floor(high / step) + 1)]


@dataclass(frozen=True)
class Line:
    """A line through points, with its colour's number and dots; a legend stands elsewhere."""

    title: str
    color: int
    points: Sequence[tuple[float, float]]
    dots: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Mark:
    """A vertical line at a value, with what it says."""

    at: float
    text: str
    color: int


@dataclass(frozen=True)
class Axis:
    """An axis that shows values from `low` to `high`."""

    title: str
    low: float
    high: float
    text: Callable[[float], str]
    is_log: bool = False

    def scale(self, first: float, last: float) -> Scale:
        """Between two pixels."""
        ticks = (log_ticks if self.is_log else linear_ticks)(self.low, self.high)
        return Scale(first, last, self.low, self.high, self.is_log, ticks, self.text)


@dataclass(frozen=True)
class Plot:
    """Lines over two axes; `told` describes it for people who do not see it."""

    told: str
    x: Axis
    y: Axis
    lines: Sequence[Line]
    marks: Sequence[Mark] = ()

    def svg(self) -> str:
        """The drawing."""
        x = self.x.scale(_LEFT, WIDTH - _RIGHT)
        y = self.y.scale(HEIGHT - _BOTTOM, _TOP)
        parts = [*_grid(x, y, self.x.title, self.y.title)]
        parts += [part for number, mark in enumerate(self.marks) for part in _mark(mark, number, x)]
        parts += [part for line in self.lines for part in _line(line, x, y)]
        return _drawing(self.told, HEIGHT, parts)


def _grid(x: Scale, y: Scale, x_title: str, y_title: str) -> Iterator[str]:
    bottom = HEIGHT - _BOTTOM
    for value in y.ticks:
        at = y.at(value)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>'
        yield _text(_LEFT - 6, at + 4, y.text(value), "end")
    for value in x.ticks:
        at = x.at(value)
        yield f'<path class="grid" d="M{at:.1f} {bottom}v{_TICK}"/>'
        is_last = at > WIDTH - 2 * _RIGHT
        yield _text(at, bottom + 17, x.text(value), "end" if is_last else "middle")
    yield f'<path class="axis" d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}"/>'
    yield _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, x_title, "middle", "title")
    yield (
        f'<text class="title" text-anchor="middle" transform="translate(12 '
        f'{(_TOP + bottom) / 2}) rotate(-90)">{escape(y_title)}</text>'
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _mark(mark: Mark, number: int, x: Scale) -> Iterator[str]:
    at = x.at(mark.at)
    is_right = at > (_LEFT + WIDTH) / 2
    yield f'<path class="mark c{mark.color}" d="M{at:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
    place, anchor = (at - 5, "end") if is_right else (at + 5, "start")
    yield _text(place, _TOP + 10 + 13 * number, mark.text, anchor)


def _line(line: Line, x: Scale, y: Scale) -> Iterator[str]:
    places = [(x.at(a), y.at(b)) for a, b in line.points]
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    yield f'<path class="line c{line.color}" d="M{path}"><title>{escape(line.title)}</title></path>'
    for a, b in line.dots:
        told = escape(f"{line.title}: {x.text(a)}, {y.text(b)}")
        yield (
            f'<circle class="dot c{line.color}" cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="3.5">'
            f"<title>{told}</title></circle>"
        )


@dataclass(frozen=True)
class Bar:
    """Something that goes on from one moment to another, and what it is."""

    begin_s: float
    end_s: float
    color: int
    told: str


@dataclass(frozen=True)
class Lane:
    """Bars beside each other that do not overlap; `title` stands above the first of some lanes."""

    title: str
    bars: Sequence[Bar]


def bars_svg(told: str, lanes: Sequence[Lane], end_s: float, text: Callable[[float], str]) -> str:
    """Lanes from top to bottom over a common time from 0 to `end_s`."""
    tops, y = [], 4.0
    for lane in lanes:
        y += 19 if lane.title else 0
        tops.append(y)
        y += _LANE
    height = round(y + 44)
    x = Axis("", 0.0, end_s, text).scale(10, WIDTH - _RIGHT)
    parts = [part for value in x.ticks for part in _time_tick(x, value, y + 4)]
    for lane, top in zip(lanes, tops, strict=True):
        if lane.title:
            parts.append(_text(10, top - 5, lane.title, "start", "name"))
        parts += [_bar(bar, x, top) for bar in lane.bars]
    parts.append(_text(WIDTH / 2, height - 6, "time since the step before", "middle", "title"))
    return _drawing(told, height, parts)


def _time_tick(x: Scale, value: float, bottom: float) -> Iterator[str]:
    yield f'<path class="grid" d="M{x.at(value):.1f} 4V{bottom:.1f}"/>'
    anchor = "start" if value == 0 else "middle"
    yield _text(x.at(value), bottom + 14, x.text(value) if value else "0", anchor)


def _bar(bar: Bar, x: Scale, top: float) -> str:
    left, right = x.at(bar.begin_s), x.at(bar.end_s)
    return (
        f'<rect class="bar c{bar.color}" x="{left:.2f}" y="{top:.1f}" rx="1" '
        f'width="{max(right - left - 0.6, 0.8):.2f}" height="{_BAR}">'
        f"<title>{escape(bar.told)}</title></rect>"
    )


def _drawing(told: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(told)}">'
        f"{''.join(parts)}</svg>"
    )
