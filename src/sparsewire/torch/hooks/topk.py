"""Quantised TopK SGD with error feedback, as a DDP communication hook.

Renggli et al., SparCML: High-performance sparse communication for machine learning, SC 2019. Of
every few hundred elements of a gradient, only the elements of largest magnitude are sent, in a few
bits each; the rest is added to the next gradient.
"""

# Without `from __future__ import annotations`: DDP compares a hook's annotations with the types.
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, PrefixStore

from sparsewire.compress import Compressor, KeptComposition, Rounded, SpanTopK
from sparsewire.device.accelerator import is_on_device
from sparsewire.torch.backed_group import BackedGroup
from sparsewire.torch.backend import callee_of, join
from sparsewire.torch.hooks.device_channel import limit_of
from sparsewire.torch.hooks.error_feedback import ErrorFeedbackState
from sparsewire.torch.hooks.saved import Saved
from sparsewire.torch.member import Member

_BITS = {None: None, "int8": 8, "int4": 4, "int2": 2}
_LARGEST_SPAN = 2**16

_made: WeakKeyDictionary[dist.ProcessGroup, Member] = WeakKeyDictionary()


class TopKState(ErrorFeedbackState):
    """The state of `topk_hook` on one rank, kept from step to step.

    Of each `span` consecutive elements (1 to 65536) of a parameter's gradient, the `k` largest are
    sent (1 to `span`). They are sent as float32 if `precision` is None, else as "int8", "int4" or
    "int2": rounded to the nearest multiple of a power of two that they share. The first
    `warmup_steps` steps send everything.

    `process_group` is the model's; None is the default group. For a group of another backend, this
    makes a communicator beside it, so all ranks must make their states together.

    Raises ValueError for settings out of range, and `sparsewire.Error` if the ranks do not meet.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        k: int = 4,
        span: int = 512,
        precision: str | None = "int4",
        warmup_steps: int = 0,
    ) -> None:
        if precision not in _BITS:
            raise ValueError(f"precision {precision!r} is not known: use None, int8, int4 or int2")
        if not 1 <= span <= _LARGEST_SPAN:
            raise ValueError(f"span must be 1 to {_LARGEST_SPAN} elements, not {span}")
        bits = _BITS[precision]

        def make(elements: int) -> Compressor:
            largest = SpanTopK(elements, k, span)
            if bits is None:
                return largest
            return KeptComposition(Rounded(largest.most_elements, bits, k), largest)

        make(span)
        group: Any = engine_group(process_group)
        self.group: Member | BackedGroup = group
        super().__init__(group, make, warmup_steps, min_elements=0)

    def state_dict(self) -> Saved:
        """The state of this rank, for `torch.save`; every rank must save its own.

        Raises RuntimeError before `register`.
        """
        saved = super().state_dict()
        # This hook draws nothing at random.
        del saved["job"], saved["streams"]
        return saved


def topk_hook(state: TopKState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average the largest elements of a bucket's gradients; for `model.register_comm_hook`.

    This is `error_feedback_hook` with a special operator, which loses no bit: the sent values and
    the residuals of a rank add up to its gradients.

    Raises TypeError for gradients other than float32, float16 and bfloat16, and ValueError for
    gradients on devices other than CPU and CUDA; the future raises the errors of the engine.
    """
    gradients = bucket.buffer()
    is_reached = gradients.is_cpu or is_on_device(gradients)
    if not is_reached and not state.averages_in_full(bucket):
        raise ValueError(f"topk_hook takes gradients on CPU and CUDA, not on {gradients.device}")
    return state.average(bucket)


def engine_group(process_group: dist.ProcessGroup | None) -> Member | BackedGroup:
    """`process_group` if it is of sparsewire, else a group of the same ranks, made once.

    None is the default group. A collective call; raises `sparsewire.Error` if ranks do not come.
    """
    of_user: Any = process_group if process_group is not None else dist.group.WORLD
    callee: Member | BackedGroup | None = callee_of(of_user)
    if callee is not None:
        return callee
    if of_user not in _made:
        timeout = timedelta(seconds=limit_of(of_user)())
        store = PrefixStore("sparsewire_hooks", of_user.get_group_store())
        _made[of_user] = join(store, of_user.rank(), of_user.size(), timeout)
    return _made[of_user]
