"""The answer as the terminal shows it, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from sparsewire.tools.advise.answer import Answer, OnLink, Row
from sparsewire.tools.advise.report import words
from sparsewire.tools.experiment.report import Column, number, table
from sparsewire.tools.measure.sizes import speed_text

_COLUMNS = (
    Column[Row]("method", lambda row: row.method.title, is_text=True),
    Column[Row]("step\nms", lambda row: number(row.step_s, 1e3)),
    Column[Row]("speed-up", lambda row: f"{number(row.speedup)}x"),
    Column[Row]("exact", lambda row: "yes" if row.method.is_lossless else "no", is_text=True),
    Column[Row]("range\nms", lambda row: f"{number(row.low_s, 1e3)} - {number(row.high_s, 1e3)}"),
    Column[Row]("sent per host\nMB", lambda row: number(row.bytes, 1e-6)),
)


def printed(answer: Answer) -> Iterator[RenderableType]:
    """Everything, from top to bottom."""
    yield from words.about(answer)
    for on_link in answer.links:
        yield ""
        yield _table(on_link)
        yield words.verdict(on_link, answer)
    yield ""
    yield "To mind:"
    yield from (f"  {limit}" for limit in words.limits(answer))
    yield ""
    yield from map(words.break_even_text, answer.curves)
    for row in words.chosen(answer):
        yield ""
        yield f"{row.method.title}, in your script:"
        yield from (f"    {line}" for line in words.lines(row, answer))
        yield f"  Promised: {row.method.promise}"
        if row.method.watch:
            yield f"  To watch: {row.method.watch}"


def _table(on_link: OnLink) -> Table:
    best = on_link.lossless
    title = f"at {speed_text(on_link.link_bits_s)}"
    columns = [*_COLUMNS, *map(_hosts_column, best.more_hosts)]
    return table(columns, on_link.rows, title, stands_out=lambda row: row is best)


def _hosts_column(hosts: int) -> Column[Row]:
    return Column(f"{hosts} hosts\nms", lambda row: number(row.more_hosts[hosts], 1e3))


def as_json(answer: Answer) -> dict[str, Any]:
    """Times in seconds, sizes in bytes, links in bits per second."""
    network = answer.model.network
    return {
        "hosts": network.hosts,
        "ranks": network.ranks,
        "cores": network.cores,
        "backend": answer.recorded.ranks[0].backend,
        "computed_s": answer.model.computed_s,
        "embeddings": [table.name for table in answer.model.tables],
        "links": [_link_json(on_link, answer) for on_link in answer.links],
        "curves": [
            {
                "method": curve.method.name,
                "link_bits_per_s": curve.bits_s,
                "speedups": curve.speedups,
                "break_even_bits_per_s": curve.break_even,
            }
            for curve in answer.curves
        ],
        "lines": {row.method.name: words.lines(row, answer) for row in words.chosen(answer)},
        "limits": list(words.limits(answer)),
    }


def _link_json(on_link: OnLink, answer: Answer) -> dict[str, Any]:
    return {
        "link_bits_per_s": on_link.link_bits_s,
        "methods": [_row_json(row) for row in on_link.rows],
        "fastest": on_link.fastest.method.name,
        "best_lossless": on_link.lossless.method.name,
        "best_without_sparsewire": on_link.without.method.name,
        "gain": on_link.gain.value,
        "worth_a_loss": on_link.lossy.method.name if on_link.lossy else None,
        "verdict": words.verdict(on_link, answer),
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "method": row.method.name,
        "lossless": row.method.is_lossless,
        "step_s": row.step_s,
        "low_s": row.low_s,
        "high_s": row.high_s,
        "bytes_per_host": row.bytes,
        "speedup": row.speedup,
        "more_hosts_s": {str(hosts): step_s for hosts, step_s in row.more_hosts.items()},
        "promise": row.method.promise,
        "watch": row.method.watch,
    }
