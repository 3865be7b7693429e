"""What the top-k hook keeps on one rank: settings, residuals, and the group it sends over."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from sparsewire._core import TopK
from sparsewire.torch.hooks.engine_group import engine_group
from sparsewire.torch.hooks.hook_state import HookState
from sparsewire.torch.hooks.parameter_vectors import ParameterVectors
from sparsewire.torch.hooks.residuals import SavedResiduals, restore
from sparsewire.torch.hooks.saved import states_of
from sparsewire.torch.hooks.transport import EngineTransport

_BITS = {None: 32, "int8": 8, "int4": 4, "int2": 2}


class TopKState(HookState):
    """What `topk_hook` keeps from step to step on one rank.

    Of each `bucket` consecutive elements of a parameter's gradient (1 to 65536) the `k` largest are
    sent (1 to `bucket`), as float32 where `precision` is None, else as "int8", "int4" or "int2":
    rounded to the nearest multiple of a power of two that they share. The first `warmup_steps`
    steps send everything.

    `process_group` is that of the model, None for the default one. Where it is not of sparsewire, a
    communicator beside it is made, so that all ranks must make their states together.

    Raises ValueError for settings out of range; `sparsewire.Error` where the ranks do not meet.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        k: int = 4,
        bucket: int = 512,
        precision: str | None = "int4",
        warmup_steps: int = 0,
    ) -> None:
        super().__init__(warmup_steps)
        if precision not in _BITS:
            raise ValueError(f"precision {precision!r} is not known: use None, int8, int4 or int2")
        self.format = TopK(bucket, k, _BITS[precision])
        self.residuals = ParameterVectors()
        self.group = engine_group(process_group)
        self.transport = EngineTransport(self.group)

    def state_dict(self) -> SavedResiduals:
        """The state of this rank, for `torch.save`; every rank has one of its own.

        Raises RuntimeError before `register`.
        """
        return {**self._saved(), "residuals": self.residuals.named(self.parameters)}

    def load_state_dict(self, saved: SavedResiduals | Sequence[SavedResiduals]) -> None:
        """Go on from what this rank saved, or from a list of what all ranks of a job saved.

        With a list, the number of ranks may differ: rank r takes over from the old ranks r, r + n,
        r + 2n, ... of n, scaled so that the mean of all that is still owed stays the same.

        Raises RuntimeError before `register`; ValueError where a single state is of another rank or
        number of ranks, a list lacks a rank, or parameters differ.
        """
        rank, size = self.transport.rank, self.transport.size
        self.residuals.replace(restore(saved, rank, size), self.parameters)
        self.step = states_of(saved, rank, size)[0]["step"]
