"""The three plots of a report: densities by parameter, a step's timeline, speed-up by bandwidth."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from sparsewire.profile.records.recorded import Recorded
from sparsewire.tools.advise.answer import Answer, OnLink, Row
from sparsewire.tools.advise.prediction.methods import Method
from sparsewire.tools.advise.prediction.parameters import Seen, mean
from sparsewire.tools.advise.prediction.replay import spans
from sparsewire.tools.advise.prediction.timeline import Pass
from sparsewire.tools.advise.prediction.transfers import Transfer
from sparsewire.tools.advise.report.charts import Axis, Bar, Lane, Line, Mark, Plot, bars_svg
from sparsewire.tools.measure.sizes import seconds_text, speed_text

SHOWN = 6
"""Parameters that have a line of their own, the largest ones."""

_COMPUTE = 7
_LEAST_DENSITY = 1e-4


def color_of(method: Method, answer: Answer) -> int:
    """The number of a method's colour: the same in all plots."""
    return [each.name for each in answer.model.methods].index(method.name)


def shown_parameters(answer: Answer) -> list[Seen]:
    """The largest parameters."""
    return sorted(answer.model.parameters, key=lambda seen: -seen.size)[:SHOWN]


def density_plot(answer: Answer) -> str:
    """The share of elements that are not zero, by step: means over ranks."""
    lines = [
        Line(seen.name, number, points, points)
        for number, seen in enumerate(shown_parameters(answer))
        if (points := list(_densities(answer.recorded, seen.number)))
    ]
    steps = [step for line in lines for step, _ in line.points] or [0]
    x = Axis("step", min(steps), max(max(steps), min(steps) + 1), lambda step: f"{step:.0f}")
    y = Axis("elements that are not zero", _LEAST_DENSITY, 1, _percent, is_log=True)
    return Plot("Density of the largest parameters over steps", x, y, lines).svg()


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _densities(recorded: Recorded, parameter: int) -> Iterator[tuple[float, float]]:
    found: dict[int, list[float | None]] = {}
    for rank in recorded.ranks:
        for step in rank.steps:
            for density in step.parameters:
                if density.parameter == parameter:
                    found.setdefault(step.step, []).append(density.element_density)
    for number, densities in sorted(found.items()):
        average = mean(densities)
        if average is not None:
            yield number, average


def speedup_plot(answer: Answer) -> str:
    """Every method over the plain one, from slow links to fast ones."""
    curves = answer.curves
    speedups = [speedup for curve in curves for speedup in curve.speedups]
    lines = [
        Line(
            curve.method.title,
            color_of(curve.method, answer),
            list(zip(curve.bits_s, curve.speedups, strict=True)),
            [(link.link_bits_s, link.rows[place].speedup) for link in answer.links],
        )
        for place, curve in enumerate(curves, 1)
    ]
    plain = answer.model.methods[0].title
    ends = curves[0].bits_s
    lines.append(Line(f"{plain}: 1x", 0, [(ends[0], 1.0), (ends[-1], 1.0)]))
    x = Axis("link of a host", ends[0], ends[-1], _speed, is_log=True)
    low, high = min(0.5, *speedups), max(2.0, *speedups)
    y = Axis(f"speed-up over {plain}", low, high, lambda speedup: f"{speedup:.3g}x", is_log=True)
    marks = [
        Mark(curve.break_even, f"pays up to {_speed(curve.break_even)}", place)
        for place, curve in enumerate(curves, 1)
        if curve.break_even
    ]
    return Plot("Speed-up against bandwidth", x, y, lines, marks).svg()


def _speed(bits_s: float) -> str:
    return speed_text(float(f"{bits_s:.2g}")).removesuffix("bit/s")


def timeline_plot(answer: Answer, on_link: OnLink) -> str:
    """A typical step with each method: what is computed, and what is on the link."""
    lanes = [lane for row in on_link.rows for lane in _lanes(answer, on_link, row)]
    end_s = max(bar.end_s for lane in lanes for bar in lane.bars)
    told = f"A step at {speed_text(on_link.link_bits_s)}"
    return bars_svg(told, lanes, end_s, seconds_text)


def _lanes(answer: Answer, on_link: OnLink, row: Row) -> list[Lane]:
    model = answer.model
    transfers = model.transfers(row.method, on_link.link_bits_s)
    typical = _typical(model.timeline_for(row.method).passes)
    computed_s = typical.end + sum(transfer.hook_s for transfer in transfers)
    title = f"{row.method.title}: {seconds_text(row.step_s)}"
    told = f"computes until {seconds_text(computed_s)}"
    sent = list(_sent(typical, transfers, color_of(row.method, answer)))
    return [Lane(title, [Bar(0.0, computed_s, _COMPUTE, told)]), Lane("", sent)]


def _sent(typical: Pass, transfers: Sequence[Transfer], color: int) -> Iterator[Bar]:
    for number, (begin, end) in enumerate(spans(typical, transfers)):
        when = f"{seconds_text(begin)} to {seconds_text(end)}"
        yield Bar(begin, end, color, f"bucket {number}: {when}")


def _typical(passes: Sequence[Pass]) -> Pass:
    """The recorded pass of median length."""
    median = statistics.median_low(each.end for each in passes)
    return next(each for each in passes if each.end == median)
