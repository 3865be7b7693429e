"""What acceptance checks record becomes the record and the plots of benchmarks/proofs.sh."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from acceptance import Check

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "proofs.py"


def cells(target: str, mushrooms: str) -> dict[str, str]:
    """A row with nothing measured on the other data."""
    others = {"constructed": "", "a9a": "", "phishing": "", "w8a": ""}
    return {"target": target, "mushrooms": mushrooms, **others}


@pytest.mark.timeout(180)
def test_checks_become_a_record_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    Check(16, "w8a").at_most("plateau", 0.99, 1)
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path)], check=True, timeout=170)
    rows = json.loads((tmp_path / "proofs.json").read_text())["figures"]
    assert rows["all"] == {"measurements": 5, "failed": 2}
    assert rows["error"] == cells("≤ 1e-20", "1e-21")
    assert rows["same bits"] == cells("yes", "yes")
    assert rows["slope"] == cells("1 to 3", "**4**")
    local = json.loads((tmp_path / "proofs-local.json").read_text())["figures"]
    assert local["all"] == {"measurements": 1, "failed": 0}
    assert "plateau" in local
    assert "plateau" not in rows
    for name in ("diana", "vr-diana", "isega", "local"):
        assert (tmp_path / f"proofs-{name}.png").read_bytes().startswith(b"\x89PNG")
