"""Sizes and densities as users write them."""

from __future__ import annotations

import pytest

from sparsewire.errors import ExperimentError
from sparsewire.tools.measure.sizes import parse_density, parse_elements, size_text, split_list


@pytest.mark.parametrize(
    ("text", "elements"),
    [("1", 1), ("25e6", 25_000_000), ("1.5k", 1500), ("64Ki", 65536), ("4KiB", 1024), ("8B", 2)],
)
def test_sizes_mean_elements(text: str, elements: int) -> None:
    assert parse_elements(text, 4) == elements


def test_sizes_can_be_in_bytes() -> None:
    assert parse_elements("4096", 4, unit="bytes") == 1024


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "1.5", "6B", "4XB", "1e", "1..2", "1e400"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ExperimentError):
        parse_elements(text, 4)


@pytest.mark.parametrize("text", ["0", "-0.1", "1.01", "nan", "x", ""])
def test_densities_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ExperimentError):
        parse_density(text)


def test_lists_have_no_empty_entries() -> None:
    assert split_list("1, 2") == ["1", "2"]
    with pytest.raises(ExperimentError):
        split_list("1,,2")


@pytest.mark.parametrize(
    ("size", "text"), [(1024, "1 KiB"), (1 << 23, "8 MiB"), (100_000_000, "100 MB")]
)
def test_sizes_have_units(size: int, text: str) -> None:
    assert size_text(size) == text
