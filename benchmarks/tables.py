"""Keeps the figures in README and docs those of the records.

python benchmarks/tables.py --write           # writes the records' figures into the pages
python benchmarks/tables.py --check           # fails where a page quotes what no record holds
python benchmarks/tables.py --collect FILE    # makes the record of what a command left as JSON
python benchmarks/tables.py --pending         # what the pages ask for and no record holds yet

A figure in a text has its source behind it, in a comment that no reader of the page sees:
`32.8x<!--is RECORD ROW VALUE-->`. A row of a table has one for its last cells, in the last of them:
`<!--row RECORD ROW VALUE - PART:VALUE-->`, where "-" stands for a cell that was not measured, such
as a target, and PART:VALUE is the value of the row ROW/PART. Between `<!--table RECORD-->` and
`<!--end-->` stands all of a record. `*Intel Xeon, avx512*<!--cpu RECORD-->` is the processor that a
record was measured on. In place of a figure that was not measured yet stand the words "not yet":
--write puts it there as soon as a record holds it. Whatever else looks measured must be in
quoted.txt, which says whose figure it is.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import records

ROOT = Path(__file__).resolve().parents[1]
QUOTED = Path(__file__).parent / "quoted.txt"

TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
UNITS = TIMES | {"MB": 1e6, "GB": 1e9, "MiB": 2.0**20, "GB/s": 1e9, "%": 0.01, "x": 1.0}
# The units of figures that stand in a table without one, by the ends of their names.
BARE = {"_bytes_per_s": 1e9, "_s": 1e-3, "_bytes": 1e6}

# How a figure is written first, by the end of its name: its unit, and digits as many as here.
FIRST = {"_s": (" ms", "1,000"), "_share": ("%", "100"), "speedup": ("x", "100"), "": ("", "")}

# Below this, figures are written with an exponent.
SMALL = 1e-4

NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
UNIT = r" ?(?:ms|us|µs|ns|s|MB|MiB|GB/s|GB)\b|%|x\b|"
FIGURE = re.compile(rf"(?<![\w.,])(?P<sign>[-+]?)(?P<number>{NUMBER})(?P<unit>{UNIT})")
PENDING = "not yet"
SOURCE = r"(?P<mark>\**)<!--is (?P<source>\S+ \S+ \S+?)-->"
IN_TEXT = re.compile(rf"(?:{FIGURE.pattern}|{PENDING}){SOURCE}")
FIGURE_OR_PENDING = re.compile(f"{FIGURE.pattern}|{PENDING}")
PROCESSOR = re.compile(r"\*[^*]+\*<!--cpu (\S+)-->")
IN_ROW = re.compile(r"<!--row (?P<record>\S+) (?P<row>\S+) (?P<values>.+?)-->")
TABLE = re.compile(r"<!--table (\S+)-->\n.*?<!--end-->", re.DOTALL)
# What looks measured: factors, short times, rates, and shares that compare.
MEASURED = re.compile(
    rf"(?<![\w.,]){NUMBER}(?: times\b|x\b| ?(?:ms|us|µs|ns|GB/s)\b"
    r"|% (?:of the (?:wire|limit)|higher|lower|faster|slower|more|less|fewer|of its rate))"
)
# What is not scanned: code, and tables that are checked as a whole.
APART = re.compile(rf"^```.*?^```$|`[^`\n]+`|{TABLE.pattern}", re.MULTILINE | re.DOTALL)


class Unknown(Exception):
    """A source that no record holds, or that stands behind no figure."""


@dataclass
class Page:
    """A page with its figures as the records have them, and what is wrong with it as it is."""

    path: Path
    records: dict[str, dict[str, Any]]
    problems: list[str] = field(default_factory=list)
    unsourced: list[tuple[int, str]] = field(default_factory=list)
    """Lines, and figures there that look measured."""
    pending: list[str] = field(default_factory=list)
    """RECORD ROW VALUE of figures that no record holds yet."""

    def rewritten(self) -> str:
        """The text with the records' figures; notes where it differs, and figures of no source."""
        text = TABLE.sub(self._table, self.path.read_text())
        hidden = APART.sub(lambda apart: re.sub(r"\S", "`", apart[0]), text)
        lines = zip(text.split("\n"), hidden.split("\n"), strict=True)
        return "\n".join(self._line(number, *line) for number, line in enumerate(lines, 1))

    def _table(self, found: re.Match[str]) -> str:
        name = found[1]
        if name not in self.records:
            self.problems.append(f"{self.path.name}: no record {name}")
            return found[0]
        written = f"<!--table {name}-->\n{whole(self.records[name]['figures'])}\n<!--end-->"
        if written != found[0]:
            self.problems.append(f"{self.path.name}: not the record {name}")
        return written

    def _line(self, number: int, line: str, hidden: str) -> str:
        try:
            if "<!--is" in IN_TEXT.sub("", line):
                raise Unknown("no figure right before its source")
            written = PROCESSOR.sub(self._processor, IN_TEXT.sub(self._in_text, line))
            if found := IN_ROW.search(written):
                written = self._row(written, found)
        except Unknown as problem:
            self.problems.append(f"{self.path.name}:{number}: {problem}")
            return line
        if written != line:
            self.problems.append(f"{self.path.name}:{number}: not of its record: {line.strip()}")
        found_here = MEASURED.findall(without_sourced(hidden))
        self.unsourced += [(number, figure) for figure in found_here]
        return written

    def _in_text(self, found: re.Match[str]) -> str:
        record, row, name = found["source"].split()
        figure = self._figure(record, row, name, found)
        return f"{figure}{found['mark']}<!--is {found['source']}-->"

    def _processor(self, found: re.Match[str]) -> str:
        if found[1] not in self.records:
            raise Unknown(f"no record {found[1]}")
        return f"*{records.processor(self.records[found[1]])}*<!--cpu {found[1]}-->"

    def _row(self, line: str, found: re.Match[str]) -> str:
        names = found["values"].split()
        # The row ends in a bar, behind which there is nothing.
        cells = line.split("|")
        for place, name in enumerate(names, len(cells) - 1 - len(names)):
            if name != "-":
                source = source_of(found["record"], found["row"], name)
                cells[place] = self._cell(cells[place], *source)
        return "|".join(cells)

    def _cell(self, cell: str, record: str, row: str, name: str) -> str:
        text, mark, source = cell.partition("<!--")
        found = FIGURE_OR_PENDING.search(text)
        if found is None:
            raise Unknown(f"no figure for {record} {row} {name}")
        written = self._figure(record, row, name, found)
        return text[: found.start()] + written + text[found.end() :] + mark + source

    def _figure(self, record: str, row: str, name: str, found: re.Match[str]) -> str:
        """The value as the page writes it: in the same unit, with a sign where it has one."""
        value = self.records.get(record, {}).get("figures", {}).get(row, {}).get(name)
        if found["number"] is None:
            return self._first(f"{record} {row} {name}", value)
        if value is None:
            raise Unknown(f"no record holds {record} {row} {name}")
        unit = found["unit"]
        factor = scale(name, unit.strip())
        text = written_as(value if factor == 1 else value / factor, found["number"]) + unit
        return f"+{text}" if found["sign"] and value > 0 else text

    def _first(self, source: str, value: Any) -> str:
        """The figure where none was before: its name says its unit."""
        if value is None:
            self.pending.append(source)
            return PENDING
        unit, number = next(form for end, form in FIRST.items() if source.endswith(end))
        text = written_as(value / scale(source, unit.strip()), number) if unit else f"{value:,}"
        return f"+{text}{unit}" if source.endswith("loss_share") and value > 0 else text + unit


def source_of(record: str, row: str, name: str) -> tuple[str, str, str]:
    """Record, row and value of a cell of a table's row."""
    part, _, value = name.rpartition(":")
    return record, f"{row}/{part}" if part else row, value


def whole(figures: dict[str, dict[str, Any]]) -> str:
    """A record as a table, without its summary, and without the commands of its rows."""
    rows = {name: row for name, row in figures.items() if name != "all"}
    named = dict.fromkeys(name for row in rows.values() for name in row)
    columns = [name for name in named if name != "command"]
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [
        [name, *(str(row.get(column, "")) for column in columns)] for name, row in rows.items()
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def scale(name: str, unit: str) -> float:
    """What one of this unit is in that of the record."""
    if unit:
        return UNITS[unit]
    return next((factor for end, factor in BARE.items() if name.endswith(end)), 1.0)


def written_as(value: float, number: str) -> str:
    """The value with as many digits as the page gives the number that is there."""
    if isinstance(value, int):
        return f"{value:,}" if "," in number else str(value)
    digits = max(1, len(re.sub(r"e.*|\D", "", number).lstrip("0")))
    if 0 < abs(value) < SMALL:
        return f"{value:.{digits - 1}e}".replace("e-0", "e-")
    # Of the rounded value: 99.98 with three digits is 100.
    magnitude = (
        math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}")))) if value else digits - 1
    )
    places = max(0, digits - 1 - magnitude)
    return f"{value:{',' if ',' in number else ''}.{places}f}"


def without_sourced(line: str) -> str:
    """The line without the figures that have a source, or are told not to be measured."""
    if found := IN_ROW.search(line):
        bare = line.split("|")
        line = "|".join(bare[: len(bare) - 1 - len(found["values"].split())])
    return IN_TEXT.sub("", line)


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def problems(paths: list[Path], known: dict[str, dict[str, Any]], quoted: str) -> Iterator[str]:
    """What is wrong in these pages, but for what `quoted` allows."""
    allowed = {line.split("#")[0].strip() for line in quoted.splitlines()} - {""}
    used = set()
    for path in paths:
        page = Page(path, known)
        page.rewritten()
        yield from page.problems
        for number, figure in page.unsourced:
            entry = f"{path.name}: {figure}"
            used.add(entry)
            if entry not in allowed:
                yield f"{path.name}:{number}: {figure!r} has no source"
    yield from (f"quoted.txt: not quoted any more: {entry}" for entry in sorted(allowed - used))


def pending(paths: list[Path], known: dict[str, dict[str, Any]]) -> list[str]:
    """What these pages ask for and no record holds yet."""
    found = [Page(path, known) for path in paths]
    for page in found:
        page.rewritten()
    return sorted({source for page in found for source in page.pending})


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Figures in README and docs, and their records.")
    parser.add_argument("--collect", type=Path, metavar="FILE", help="make a record of this")
    parser.add_argument("--write", action="store_true", help="write figures into the pages")
    parser.add_argument("--check", action="store_true", help="fail where a page has others")
    parser.add_argument("--pending", action="store_true", help="list what is to be measured")
    options = parser.parse_args(arguments)
    if options.collect:
        records.collect(options.collect)
    known = records.load()
    if options.write:
        for path in pages():
            path.write_text(Page(path, known).rewritten())
    if options.pending:
        print("\n".join(pending(pages(), known)))
    found = list(problems(pages(), known, QUOTED.read_text())) if options.check else []
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
