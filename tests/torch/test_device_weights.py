"""New versions of weights that cross from a device by its own streams and pinned memory."""

from __future__ import annotations

import numpy as np
import torch
from device_double import cpu_as_device

from sparsewire.weights.shards.on_device import crossing


def test_what_crosses_is_there_when_it_is_handed_out() -> None:
    base = torch.zeros(3000, dtype=torch.bfloat16)
    fresh = base.clone()
    fresh[[7, 1999]] = 3.0
    with cpu_as_device() as double:
        # The program's own work, which is still to come when the versions are compared.
        double.current(base.device).put(lambda: None)
        (few,) = crossing(base, fresh)
        (all_of_it,) = crossing(base, base + 1)
    assert few.positions is not None
    assert few.positions.tolist() == [7, 1999]
    np.testing.assert_array_equal(few.bits, [0x4040] * 2)
    assert all_of_it.positions is None
    np.testing.assert_array_equal(all_of_it.bits, [0x3F80] * 3000)
