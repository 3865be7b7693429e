"""What tests of weights share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparsewire.weights import Publisher


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with Publisher("127.0.0.1:0") as made:
        yield made
