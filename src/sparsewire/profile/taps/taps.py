"""Taps where gradients pass: in DDP's process group, in a user's hook, at the parameters.

A tap tells a sink of each complete bucket, and when its communication has ended. It changes no bit
of what the training computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import ref

import torch
import torch.distributed as dist

from sparsewire.profile.records.clock import Moment
from sparsewire.profile.records.step_record import Noted, Vector
from sparsewire.profile.taps.sink import Sink

# Bytes of DDP's buckets: the first is small, so that communication begins early.
_FIRST_BYTES, _BUCKET_BYTES = 2**20, 25 * 2**20


class Tap(Protocol):
    def install(self) -> None:
        """Begin to see gradients."""

    def begin(self) -> None:
        """A backward pass begins."""

    def end(self) -> None:
        """Note that the communication has ended."""

    def remove(self) -> None:
        """See no more; nothing is left that costs time."""


class GroupTap:
    """Between DDP and its process group: DDP's own division and its order of buckets stay.

    A communication hook would cost a pass over all gradients, for DDP divides while it copies, and
    hooks divide afterwards; and a hook could not be taken away again.
    """

    def __init__(self, ddp: Any, numbers: dict[int, int], sink: Sink) -> None:
        self._ddp, self._numbers, self._sink = ref(ddp), numbers, sink
        self._layout: list[list[int]] = []
        self._next = 0
        self._group: ObservedGroup | None = None

    def install(self) -> None:
        ddp = self._ddp()
        if ddp is not None:
            self._layout = layout_of(ddp, self._numbers)
            self._group = ObservedGroup(ddp.process_group, self)
            ddp.reducer._update_process_group(self._group)

    def begin(self) -> None:
        self._next = 0

    def end(self) -> None:
        """Buckets have been noted as they came."""

    def remove(self) -> None:
        ddp = self._ddp()
        if ddp is not None and self._group is not None:
            ddp.reducer._update_process_group(ddp.process_group)
        self._group = None

    def arrives(self, tensors: list[torch.Tensor]) -> Noted | None:
        """Note the tensors of an all_reduce of DDP, unless they are no bucket."""
        with self._sink.guarded():
            number, self._next = self._next, self._next + 1
            # Behind the buckets goes a map of the parameters that were used.
            if number < len(self._layout):
                noted = self._sink.ready(Vector.of(tensors[0]), self._layout[number])
                if noted is not None and not tensors[0].is_sparse:
                    noted.result = tensors[0]
                return noted
        return None

    def sent(self, noted: Noted | None, work: Any) -> None:
        with self._sink.guarded():
            future = work.get_future()
            if noted is not None and noted.counted and noted.result is None:
                noted.future = future
            self._sink.sent(noted, lambda: future)


class ObservedGroup(dist.ProcessGroup):
    """The group that DDP's reducer calls instead of its own: all_reduce, and sizes' broadcast."""

    def __init__(self, group: Any, tap: GroupTap) -> None:
        super().__init__(group.rank(), group.size())  # type: ignore[call-arg]
        self._inner, self._tap = group, tap

    def allreduce(self, tensors: list[torch.Tensor], *options: Any) -> Any:  # type: ignore[override]
        noted = self._tap.arrives(tensors)
        work = self._inner.allreduce(tensors, *options)
        self._tap.sent(noted, work)
        return work

    def broadcast(self, tensors: list[torch.Tensor], *options: Any) -> Any:  # type: ignore[override]
        return self._inner.broadcast(tensors, *options)

    def getBackendName(self) -> str:
        return str(self._inner.name())


def layout_of(ddp: Any, numbers: dict[int, int]) -> list[list[int]]:
    """The parameters in each of DDP's buckets, by their numbers."""
    told = ddp._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
    if told:
        return [[int(number) for number in bucket.split()] for bucket in told.split(",")]
    # DDP does not tell unless it forms buckets anew. This call makes zeros of all sizes.
    buckets = ddp.reducer._get_zeros_like_grad_buckets()
    return [[numbers[id(each)] for each in bucket.parameters()] for bucket in buckets]


class HookTap:
    """Around a communication hook of the user's, whenever that is registered."""

    def __init__(self, ddp: Any, numbers: dict[int, int], sink: Sink) -> None:
        self._ddp, self._numbers, self._sink = ref(ddp), numbers, sink
        self._is_recording = False
        register = ddp.register_comm_hook
        # The method is replaced on this model alone, and until the profile is over.
        ddp.register_comm_hook = lambda state, hook: register(state, self.around(hook))

    def install(self) -> None:
        self._is_recording = True

    def begin(self) -> None:
        """Buckets say their numbers themselves."""

    def end(self) -> None:
        """They have been noted as they came."""

    def remove(self) -> None:
        self._is_recording = False
        ddp = self._ddp()
        if ddp is not None:
            vars(ddp).pop("register_comm_hook", None)

    def around(self, hook: Callable[..., Any]) -> Callable[..., Any]:
        """A hook that does the same, and notes it while steps are recorded."""

        @functools.wraps(hook)
        def observed(state: Any, bucket: Any) -> Any:
            if not self._is_recording:
                return hook(state, bucket)
            noted = self._arrives(bucket)
            future = hook(state, bucket)
            self._sink.sent(noted, lambda: future)
            return future

        return observed

    def _arrives(self, bucket: Any) -> Noted | None:
        with self._sink.guarded():
            parameters = [self._numbers[id(each)] for each in bucket.parameters()]
            return self._sink.ready(Vector.of(bucket.buffer()), parameters)
        return None


class GradientTap:
    """A tap at the parameters of a model that communicates nothing, with buckets as DDP's."""

    def __init__(self, parameters: Sequence[torch.Tensor], sink: Sink) -> None:
        self._parameters, self._sink = parameters, sink
        self._ready: dict[int, Moment] = {}
        self._layout: list[list[int]] = []
        self._handles: list[Any] = []

    def install(self) -> None:
        for number, parameter in enumerate(self._parameters):
            note = functools.partial(self._note, number)
            register: Any = parameter.register_post_accumulate_grad_hook
            self._handles.append(register(note))

    def _note(self, number: int, parameter: torch.Tensor) -> None:
        with self._sink.guarded():
            self._ready[number] = self._sink.now()

    def begin(self) -> None:
        self._ready = {}

    def end(self) -> None:
        self._layout = self._layout or self._filled(list(self._ready))
        for numbers in self._layout:
            moments = [self._ready[number] for number in numbers if number in self._ready]
            if moments:
                noted = self._sink.ready(self._vector(numbers), numbers, moments[-1])
                if noted is not None:
                    # Nobody waited for the look at it.
                    noted.begin = noted.ready

    def _vector(self, numbers: list[int]) -> Vector:
        parameters = [self._parameters[number] for number in numbers]
        elements = sum(parameter.numel() for parameter in parameters)
        return Vector(elements, parameters[0].dtype, lambda: _joined(parameters))

    def _filled(self, numbers: list[int]) -> list[list[int]]:
        """Buckets of gradients of one dtype in their order; sparse ones have their own."""
        layout: list[list[int]] = []
        kind, room = None, 0
        for number in numbers:
            parameter = self._parameters[number]
            sparse = parameter.grad is not None and parameter.grad.is_sparse
            if sparse or room <= 0 or kind is not parameter.dtype:
                room = _BUCKET_BYTES if layout else _FIRST_BYTES
                layout.append([])
            layout[-1].append(number)
            kind = None if sparse else parameter.dtype
            room -= parameter.numel() * parameter.element_size()
        return layout

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._parameters = ()


def _joined(parameters: Sequence[torch.Tensor]) -> torch.Tensor:
    gradients = [
        each.grad if each.grad is not None else torch.zeros_like(each) for each in parameters
    ]
    if len(gradients) == 1:
        return gradients[0]
    return torch.cat([gradient.reshape(-1) for gradient in gradients])
