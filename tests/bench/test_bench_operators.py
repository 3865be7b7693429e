"""`sparsewire bench operators`: every operator is measured, and what it prints and writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from sparsewire.compress import Compressor, names
from sparsewire.errors import ExperimentError
from sparsewire.tools.bench.operators import OPERATORS, gaussian, measure_operators
from sparsewire.tools.cli.bench import bench


def still(name: str, done: float, total: float, state: str = "") -> None:
    """Move no bar."""


def test_every_operator_is_among_the_usual_ones() -> None:
    parts = {part for text in OPERATORS for part in text.replace("|", "+").split("+")}
    measured = {part.split("*")[-1].split(":")[0] for part in parts}
    assert measured == set(names())


def test_the_command_measures_all(tmp_path: Path) -> None:
    file = tmp_path / "operators.json"
    arguments = ["operators", "--elements", "20k", "--repetitions", "2", "--json", str(file)]
    result = CliRunner().invoke(bench, arguments)
    assert result.exit_code == 0, result.output
    record = json.loads(file.read_text())
    assert [speed["operator"] for speed in record["results"]] == list(OPERATORS)
    for speed in record["results"]:
        assert speed["operator"] in result.output
        assert len(speed["encode_times_s"]) == len(speed["decode_times_s"]) == 2
        assert speed["encode_bytes_per_s"] == pytest.approx(4 * 20_000 / speed["encode_s"])
    assert record["conditions"]["cpu"]


def test_sizes_and_qualities_are_those_of_the_operator() -> None:
    x = gaussian(10_000, 1)
    rand_k, sign = measure_operators(["rand-k:0.1", "sign"], x, 3, still)
    assert rand_k.bits_per_element == pytest.approx((64 + 32 * 1000) / 10_000)
    assert rand_k.omega == pytest.approx(9)
    assert sign.omega is None
    assert sign.contraction == pytest.approx(1e-4)


def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = Compressor.decode
    monkeypatch.setattr(Compressor, "decode", lambda self, payload: decode(self, payload) * 2)
    with pytest.raises(ExperimentError, match="decodes to another vector"):
        measure_operators(["identity"], np.ones(5, np.float32), 1, still)


@pytest.mark.parametrize("arguments", [["--operator", "rank-k:3"], ["--elements", "x"]])
def test_bad_requests_are_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(bench, ["operators", *arguments])
    assert result.exit_code == 1
    assert "error:" in result.output
