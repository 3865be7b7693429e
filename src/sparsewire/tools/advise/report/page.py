"""The report as one static HTML file: no scripts, no fonts, no network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from sparsewire.errors import InputError
from sparsewire.tools.advise.answer import Answer, OnLink, Row
from sparsewire.tools.advise.prediction.parameters import Seen
from sparsewire.tools.advise.report import plots, words
from sparsewire.tools.experiment.report import number
from sparsewire.tools.measure.sizes import speed_text

_TEMPLATE = Path(__file__).with_name("report.html")
_LISTED = 20


def write_page(answer: Answer, file: Path) -> None:
    """Write the report; raises InputError where that cannot be."""
    try:
        file.write_text(page(answer), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror}") from None


def page(answer: Answer) -> str:
    """The whole document."""
    first = answer.links[0]
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        about=_paragraphs(words.about(answer)),
        verdicts=_list(words.verdict(link, answer) for link in answer.links),
        tables="".join(_link_table(link) for link in answer.links),
        speedup=plots.speedup_plot(answer),
        speedup_legend=_legend((m.title, n) for n, m in enumerate(answer.model.methods)),
        break_even=_list(map(words.break_even_text, answer.curves)),
        timeline=plots.timeline_plot(answer, first),
        timeline_link=escape(speed_text(first.link_bits_s)),
        density=plots.density_plot(answer),
        density_legend=_legend(
            (seen.name, n) for n, seen in enumerate(plots.shown_parameters(answer))
        ),
        parameters=_parameter_table(answer),
        changes="".join(_change(row, answer) for row in words.chosen(answer))
        or "<p>Nothing: leave your script as it is.</p>",
        limits=_list(words.limits(answer)),
    )


def _paragraphs(texts: Iterator[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _list(texts: Iterator[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _legend(entries: Iterator[tuple[str, int]]) -> str:
    spans = (f'<span><i class="key c{color}"></i>{escape(name)}</span>' for name, color in entries)
    return f'<p class="legend">{"".join(spans)}</p>'


def _link_table(on_link: OnLink) -> str:
    head = ["method", "step, ms", "speed-up", "exact", "range, ms", "sent per host, MB"]
    head += [f"{hosts} hosts, ms" for hosts in on_link.plain.more_hosts]
    rows = (_row(row, row is on_link.lossless) for row in on_link.rows)
    title = f"At {speed_text(on_link.link_bits_s)}"
    return _table(title, head, rows)


def _row(row: Row, is_best: bool) -> tuple[bool, Sequence[str]]:
    return is_best, (
        row.method.title,
        number(row.step_s, 1e3),
        f"{number(row.speedup)}x",
        "yes" if row.method.is_lossless else "no",
        f"{number(row.low_s, 1e3)} to {number(row.high_s, 1e3)}",
        number(row.bytes, 1e-6),
        *(number(step_s, 1e3) for step_s in row.more_hosts.values()),
    )


def _parameter_table(answer: Answer) -> str:
    head = ("parameter", "shape", "elements", "not zero", "blocks")
    largest = sorted(answer.model.parameters, key=lambda seen: -seen.size)
    title = f"The largest of {len(largest)} parameters, on one rank"
    return _table(title, head, (_parameter(seen) for seen in largest[:_LISTED]))


def _parameter(seen: Seen) -> tuple[bool, Sequence[str]]:
    shape = " x ".join(map(str, seen.shape)) or "scalar"
    return seen.looks_like_table, (
        seen.name,
        shape,
        f"{seen.size:,}",
        f"{100 * seen.elements:.3g}%",
        f"{100 * seen.blocks:.3g}%",
    )


def _table(title: str, head: Sequence[str], rows: Iterator[tuple[bool, Sequence[str]]]) -> str:
    """Rows that stand out come with True."""
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr{' class=best' if stands_out else ''}>"
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for stands_out, cells in rows
    )
    return (
        f'<div class="wide"><table><caption>{escape(title)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _change(row: Row, answer: Answer) -> str:
    code = escape("\n".join(words.lines(row, answer)))
    watch = f"<p><b>To watch.</b> {escape(row.method.watch)}</p>" if row.method.watch else ""
    return (
        f"<h3>{escape(row.method.title)}</h3><pre>{code}</pre>"
        f"<p><b>Promised.</b> {escape(row.method.promise)}</p>{watch}"
    )
