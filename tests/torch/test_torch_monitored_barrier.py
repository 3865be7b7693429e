"""The barrier that names missing ranks, over a store that one process may host."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

from torch._C._distributed_c10d import HashStore

from sparsewire.torch.monitored_barrier import MonitoredBarrier

LIMIT = timedelta(seconds=20)


class Late(MonitoredBarrier):
    """Looks a while after rank 0 has told that all have come."""

    read = False

    def _has_come(self, key: str, limit: timedelta) -> bool:
        time.sleep(0.5)
        found = super()._has_come(key, limit)
        self.read = True
        return found


def test_rank_0_leaves_once_all_have_read_that_it_passed() -> None:
    store = HashStore()
    first, late = MonitoredBarrier(store, 0, 2), Late(store, 1, 2)
    thread = threading.Thread(target=late.wait, args=(LIMIT, LIMIT, False))
    thread.start()
    first.wait(LIMIT, LIMIT, False)
    assert late.read
    thread.join(20)
    assert store.num_keys() == 1, "the verdict alone is left"
