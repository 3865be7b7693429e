"""Runs the Python of a page: `python run_page.py PAGE`. Tracebacks name the page's own lines."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path

from blocks import program


def main() -> None:
    page = Path(sys.argv[1])
    source = program(page.read_text())
    linecache.cache[str(page)] = (len(source), None, source.splitlines(keepends=True), str(page))
    exec(compile(source, str(page), "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
