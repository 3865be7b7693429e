"""Blocks of code in Markdown pages, and what comments around them say of how they are run.

Blocks of one page are run in order, as one program. In front of one may stand, where no reader of
the page sees it, what the page takes for granted, or why the block is left out:

    <!--given                       <!--not run: needs four hosts-->
    values = np.ones(3)
    -->

A block with a title is a file, which commands of the page use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]

PIECE = re.compile(
    r"^<!--given\n(?P<given>.*?)^-->$"
    r"|(?:^<!--not run: (?P<reason>[^\n]+)-->\n)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"\n]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block with the number of its first line of code on the page."""

    language: str
    line: int
    code: str
    title: str | None = None
    reason: str | None = None
    """Why it is not run."""


def blocks_of(text: str) -> Iterator[Block]:
    """All blocks of a page, what is given among them."""
    for found in PIECE.finditer(text):
        part = "given" if found["given"] is not None else "code"
        line = text.count("\n", 0, found.start(part)) + 1
        language = "python" if part == "given" else found["language"]
        yield Block(language, line, found[part], found["title"], found["reason"])


def program(text: str) -> str:
    """What the page's Python does, each line where it stands on the page."""
    lines = [""] * (text.count("\n") + 1)
    for block in blocks_of(text):
        if block.language in {"python", "diff"} and not (block.title or block.reason):
            code = block.code if block.language == "python" else changed(block.code)
            written = code.splitlines()
            lines[block.line - 1 : block.line - 1 + len(written)] = written
    return "\n".join(lines)


def changed(diff: str) -> str:
    """The code that a diff leaves."""
    return "".join(
        "\n" if line.startswith("-") else f"{line[1:]}" for line in diff.splitlines(keepends=True)
    )


def files(text: str) -> dict[str, str]:
    """The files that commands of the page use, by their names."""
    return {block.title: block.code for block in blocks_of(text) if block.title}


def commands(text: str) -> str:
    """What the page's reader types."""
    shell = (block for block in blocks_of(text) if block.language == "bash" and not block.reason)
    return "\n".join(block.code for block in shell)
