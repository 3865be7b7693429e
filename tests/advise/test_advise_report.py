"""The HTML report: well-formed, without anything from elsewhere, and drawn by a real browser."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import CHROMIUM, look
from recordings import recorded

from sparsewire.profile.records.recorded import Parameter, Recorded
from sparsewire.tools.advise.answer import Answer, answer
from sparsewire.tools.advise.prediction.network import Network
from sparsewire.tools.advise.report.charts import linear_ticks, log_ticks
from sparsewire.tools.advise.report.page import page, write_page

VOID = {"meta", "link", "br", "hr", "img", "input"}
PLOTS = ["Speed-up against bandwidth", "A step at", "Density of the largest parameters"]


class Nesting(HTMLParser):
    """Fails where tags are not closed in the order in which they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass


def sparse_answer() -> Answer:
    return answer(recorded(), Network(1.0, 4), [1e8, 1e9])


def dense_answer() -> Answer:
    return answer(recorded(density=1.0, union=1.0), Network(1.0, 8), [1e11])


ANSWERS = pytest.mark.parametrize("made", [sparse_answer, dense_answer])


@ANSWERS
def test_tags_are_nested(made) -> None:  # type: ignore[no-untyped-def]
    parser = Nesting()
    parser.feed(page(made()))
    parser.close()
    assert parser.open == []


@ANSWERS
def test_plots_are_drawings_with_numbers(made) -> None:  # type: ignore[no-untyped-def]
    drawings = re.findall(r"<svg.*?</svg>", page(made()), re.DOTALL)
    assert len(drawings) == len(PLOTS)
    for drawing, label in zip(drawings, PLOTS, strict=True):
        root = ElementTree.fromstring(drawing)
        assert root.attrib["aria-label"].startswith(label)
        assert "nan" not in drawing
        assert "inf" not in drawing


def test_nothing_comes_from_elsewhere() -> None:
    document = page(sparse_answer())
    assert not re.search(r"(https?:)?//|<script|@import|url\(", document)
    assert re.findall(r'(?:src|href)="([^"]*)"', document) == ["data:,"]


def test_names_of_parameters_are_text() -> None:
    profile = recorded(ranks=1)
    odd = [Parameter("<b>&\"'", [20_000, 64], "float32", False), profile.ranks[0].parameters[1]]
    changed = Recorded([type(profile.ranks[0])(**{**vars(profile.ranks[0]), "parameters": odd})])
    document = page(answer(changed, Network(1.0, 4), [1e8]))
    assert "<b>&" not in document
    assert "&lt;b&gt;&amp;" in document


def test_ticks_are_round_and_inside() -> None:
    assert linear_ticks(0, 4.5) == [0, 1, 2, 3, 4]
    assert linear_ticks(0, 0.37) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert log_ticks(1e7, 1e11) == [1e7, 1e8, 1e9, 1e10, 1e11]
    assert log_ticks(0.5, 21) == [0.5, 1, 2, 5, 10, 20]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("width", [390, 1400])
def test_a_browser_draws_it(tmp_path: Path, width: int) -> None:
    write_page(sparse_answer(), tmp_path / "report.html")
    seen = look(tmp_path / "report.html", width, tmp_path)
    assert seen.console == []
    assert seen.found["requests"] == []
    content, window = seen.found["page"]
    assert content <= window, "the page scrolls sideways"
    assert [plot["label"].startswith(label) for plot, label in zip(
        seen.found["plots"], PLOTS, strict=True
    )] == [True] * 3  # fmt: skip
    for plot in seen.found["plots"]:
        assert plot["size"][0] > 0.4 * min(width, 900)
        assert len(plot["marks"]) >= 4
        for mark in plot["marks"]:
            assert max(mark["size"]) > 0
            assert mark["paint"] not in ("nonenone", "nonergba(0, 0, 0, 0)")
        for text, left, right, height in plot["texts"]:
            assert min(left, right) >= -1, f"{text!r} is cut off"
            assert height > 8, f"{text!r} is too small to be read"
