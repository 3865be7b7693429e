"""What acceptance checks record becomes the table and the plots of benchmarks/proofs.sh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from acceptance import Check

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "proofs.py"


@pytest.mark.timeout(180)
def test_records_become_a_table_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEWIRE_RECORD", str(tmp_path / "proofs.jsonl"))
    check = Check(5, "mushrooms")
    check.at_most("error", 1e-22, 1e-20)
    check.at_most("error", 1e-21, 1e-20)
    check.holds("same bits", True)
    with pytest.raises(AssertionError, match="slope is 4"):
        check.between("slope", 4, 1, 3)
    with pytest.raises(AssertionError, match="nan"):
        Check(6, "a9a").at_least("floor", float("nan"), 1)
    check.curve("DIANA, rand-k", [1, 0.1, 0.01], 10)
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True, timeout=170)
    table = (tmp_path / "proofs.md").read_text()
    assert "| error | ≤ 1e-20 |  | 1e-21 |" in table
    assert "| same bits | yes |  | yes |" in table
    assert "| slope | 1 to 3 |  | **4** |" in table
    assert "5 measurements, of which 2 fail" in table
    for name in ("diana", "vr-diana", "isega"):
        assert (tmp_path / f"proofs-{name}.png").read_bytes().startswith(b"\x89PNG")
