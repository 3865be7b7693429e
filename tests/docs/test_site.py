"""The site of the docs, as mkdocs.yml and .ci/docs have it: what is found, and what is listed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "mkdocs.yml").read_text()


def separator() -> re.Pattern[str]:
    (quoted,) = re.findall(r"^ +separator: '(.+)'$", SETTINGS, re.MULTILINE)
    return re.compile(quoted.replace("''", "'"))


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("model.register_comm_hook(hooks.DianaState(), hooks.diana_hook)", "register_comm_hook"),
        ("SPARSEWIRE_IFNAME=eth0,eth1", "SPARSEWIRE_IFNAME"),
        ("`sparsewire.torch.stats(group)`", "stats"),
        ("operation 17 has not ended after 5.0 s", "ended"),
    ],
)
def test_a_search_finds_names_wherever_they_stand_in_code(code: str, name: str) -> None:
    assert name in separator().split(code)


def test_no_words_are_left_out_of_a_search() -> None:
    (pipeline,) = re.findall(r"^ +pipeline: \[(.*)\]$", SETTINGS, re.MULTILINE)
    assert not {"stemmer", "stopWordFilter"} & set(pipeline.split(", "))


def test_error_texts_are_looked_for_where_they_are_explained() -> None:
    heads = runpy.run_path(str(ROOT / ".ci" / "docs"))["HEADS"]
    assert "boost" in heads["docs/troubleshooting.md"]
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    for text in ("has not ended after", "belongs to the parent process", "torch is missing"):
        assert text in page


def test_the_sidebar_lists_every_page() -> None:
    """With navigation.indexes a README.md stands for its section, and is not listed."""
    (features,) = re.findall(r"^ +features: \[(.*)\]$", SETTINGS, re.MULTILINE)
    listed = re.findall(r": ([\w/.-]+\.md)$", SETTINGS, re.MULTILINE)
    assert [page for page in listed if page.endswith("/README.md")]
    assert "navigation.indexes" not in features
    patterns = runpy.run_path(str(ROOT / ".ci" / "docs"))["SOURCES"]
    pages = {str(page.relative_to(ROOT)) for each in patterns for page in ROOT.glob(each)}
    assert pages == set(listed)
