"""Messages of different lengths in one collective of the engine, whose ranks agree on the lengths.

A message is the rows of a sparse tensor, as workers of compressed methods send it.
"""

from __future__ import annotations

import torch

from sparsewire.compress.framing import framed, unframed
from sparsewire.torch.backed_group import BackedGroup
from sparsewire.torch.hooks.gathering import Gathering
from sparsewire.torch.member import Member


def gather(group: Member | BackedGroup, message: bytes) -> Gathering[list[bytes]]:
    """Give everybody this rank's message; collective. Does not block."""
    rows = framed(message)
    tensor = torch.sparse_coo_tensor(
        torch.from_numpy(rows.indices)[None],
        torch.from_numpy(rows.values),
        rows.shape,
        is_coalesced=True,
        check_invariants=False,
    )
    received = [torch.empty_like(tensor) for _ in range(group.size())]
    work = group.allgather([received], [tensor])

    def read() -> list[bytes]:
        return [unframed(each.indices()[0].numpy(), each.values().numpy()) for each in received]

    return Gathering(work, read)
