"""What pages name is there: links, files of the project, and options of its commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sparsewire.compress import registry
from sparsewire.tools.cli.main import app
from sparsewire.tools.optimize.compare.registry import METHODS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
WIDTH = 120
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!\w+://|mailto:)([^)\s]*)\)")
OURS = re.compile(r"(?:benchmarks|bindings|core|docs|examples|src|tests)/[\w./-]+")


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings are linked to."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in LINK.findall(INLINE.sub("", FENCED.sub("", page.read_text()))):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{page.name}: {link}")
    return dead


def missing_files(page: Path) -> list[str]:
    """Paths of the project that code on the page names, and that do not exist."""
    named = (path for code in code_of(page) for path in OURS.findall(code))
    return [f"{page.name}: {path}" for path in named if not (ROOT / path).exists()]


def code_of(page: Path) -> list[str]:
    """Each line of code on the page, and each piece of code in a text."""
    text = page.read_text()
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    return lines + INLINE.findall(FENCED.sub("", text))


def unknown_options(page: Path) -> list[str]:
    """Options of `sparsewire` in the page's code that the command does not have."""
    unknown = []
    for code in code_of(page):
        for command in re.findall(r"\bsparsewire ((?:[a-z_]+ ?)+.*)", code.split("  #")[0]):
            found, words = command_of(command.split())
            known = {option for parameter in found.params for option in parameter.opts}
            known |= {option for parameter in found.params for option in parameter.secondary_opts}
            asked = [word.partition("=")[0] for word in words if word.startswith("--")]
            unknown += [
                f"{page.name}: {command}: {o}" for o in asked if o not in {*known, "--help"}
            ]
    return unknown


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that these words name, and those behind it that are its own."""
    command: Any = app
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    end = words.index("--") if "--" in words else len(words)
    return command, words[:end]


def wide_lines(page: Path) -> list[str]:
    """Lines of prose that are too wide. Tables and code are not prose."""
    prose = re.sub(r"<!--.*?-->", "", FENCED.sub("", page.read_text()), flags=re.DOTALL)
    lines = (line for line in prose.splitlines() if not line.startswith(("|", "<", "    ")))
    return [f"{page.name}: {line}" for line in lines if len(line) > WIDTH]


def test_prose_wraps() -> None:
    assert not [line for page in [*PAGES, ROOT / "bpf/README.md"] for line in wide_lines(page)]


def test_links_lead_somewhere() -> None:
    assert not [link for page in PAGES for link in dead_links(page)]


def test_files_are_there() -> None:
    assert not [path for page in PAGES for path in missing_files(page)]


def test_commands_have_the_options_they_are_given() -> None:
    assert not [option for page in PAGES for option in unknown_options(page)]


def test_operators_and_methods_are_described() -> None:
    text = (ROOT / "docs" / "compression.md").read_text()
    described = set(re.findall(r"`([\w-]+)", text))
    assert {*registry.names(), *METHODS} <= described


def test_what_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One two\n[a](#one-two) [b](#three) [c](none.md) [d](page.md#one-two) `[e](f)`\n"
        "`docs/sparse.md` `docs/dense.md`\n```\nsparsewire bench grid --ranks 2 --rank 3\n```\n"
    )
    assert dead_links(page) == ["page.md: #three", "page.md: none.md"]
    assert missing_files(page) == ["page.md: docs/dense.md"]
    assert unknown_options(page) == ["page.md: bench grid --ranks 2 --rank 3: --rank"]
