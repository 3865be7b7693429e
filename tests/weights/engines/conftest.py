"""What tests of engines share: a policy, and its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from policies import Tensors


@pytest.fixture
def weights() -> Tensors:
    import policies

    return policies.policy()


@pytest.fixture
def checkpoint(weights: Tensors, tmp_path: Path) -> str:
    import policies

    return str(policies.save(weights, tmp_path / "checkpoint"))
