"""The common part of hooks for any compressor: DDP's buckets go out as messages and come back as
means. It has the operators, their random draws and the step, and their saved states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from sparsewire.compress import CompressError, Compressor, Draws
from sparsewire.compress.message import Reader
from sparsewire.device.accelerator import is_on_device
from sparsewire.device.staging import Staging
from sparsewire.torch.device.device_work import DeviceWork
from sparsewire.torch.hooks.bucket_gradients import BucketGradients, is_zero
from sparsewire.torch.hooks.device_channel import channel_of
from sparsewire.torch.hooks.device_transfer import CodeTransfer, DeviceBucket
from sparsewire.torch.hooks.gradient_mean import GradientMean
from sparsewire.torch.hooks.means import Scratch, mean_of
from sparsewire.torch.hooks.parameter_map import (
    MakeCompressor,
    ParameterMap,
    ParameterVectors,
    maker_of,
    operator_for,
)
from sparsewire.torch.hooks.saved import Saved, own_state, states_of
from sparsewire.torch.hooks.sent import Coded, Exact, Record, Sent
from sparsewire.torch.hooks.transport import Gathering, transport_of
from sparsewire.torch.operators import TensorOperator, tensor_form


class CompressedState(ABC):
    """A hook's settings, and for each parameter an operator, draws and the vectors of subclasses.

    A subclass defines the vector that is compressed in place of a gradient, and the use of the
    mean. All vectors are float32, shape (elements of the parameter,), on the CPU. If a gradient is
    on another device and its operator has a form for tensors, its vectors are on that device, and
    `code` and `estimate` are not called. The first `warmup_steps` steps send everything.
    """

    owes: ClassVar[bool]
    """Whether ranks keep residuals. If no rank has a gradient, residuals stay: DDP gives the
    optimizer nothing for parameters that no rank has used, whatever a hook returns for them."""

    def __init__(
        self,
        process_group: dist.ProcessGroup | None,
        compressor: str | MakeCompressor,
        warmup_steps: int,
        overlap: bool,
        min_elements: int,
        seed: int,
    ) -> None:
        for name, setting in (("warmup_steps", warmup_steps), ("min_elements", min_elements)):
            if setting < 0:
                raise ValueError(f"{name} must not be negative, not {setting}")
        self._make = maker_of(compressor, self.adapt)
        self.warmup_steps = warmup_steps
        self.overlap = overlap
        self.min_elements = min_elements
        self.seed = seed
        self.step = 0
        self.waiting: list[tuple[BucketGradients, Future[Tensor]]] = []
        """Without overlap, the buckets of this step that wait for the last bucket."""
        self.waiting_on_device: list[tuple[DeviceBucket, Future[Tensor]]] = []
        """The same for buckets whose gradients stay on their device."""
        self.operators = ParameterMap(lambda parameter: operator_for(self._make, parameter))
        self._forms = ParameterMap(lambda parameter: tensor_form(self.operators.of(parameter)))
        self._process_group = process_group
        self._draws = ParameterMap(self._new_draws)
        self._draws_made = 0
        self._job = ""
        self._parameters: dict[str, Tensor] | None = None
        self._scratch = Scratch()
        self.transport = transport_of(process_group)

    @abstractmethod
    def turn(self, parameter: Tensor, gradient: Tensor) -> None:
        """Turn a gradient, in place, into the vector to compress."""

    @abstractmethod
    def code(self, operator: Compressor, parameter: Tensor, gradient: Tensor) -> Any:
        """The code, by an operator of float32, of a gradient after `turn`.

        May leave the gradient turned. Raises CompressError if the operator cannot express the
        vector; the gradient is turned then.
        """

    @abstractmethod
    def estimate(self, parameter: Tensor, mean: GradientMean, gradient: Tensor) -> None:
        """Make the gradient for the optimizer from the mean of the ranks' vectors."""

    @abstractmethod
    def learn(
        self, parameter: Tensor, mean: GradientMean, gradient: Tensor, dtype: torch.dtype
    ) -> None:
        """Like `estimate`, and update `vectors`; the optimizer gets `gradient` as `dtype`."""

    @abstractmethod
    def adapt(self, operator: Compressor) -> Compressor:
        """The operator as the method uses it; raises ValueError if the method cannot use it."""

    @abstractmethod
    def vectors(self) -> Mapping[str, ParameterVectors]:
        """The vectors that are kept from step to step, by their names in a saved state."""

    @abstractmethod
    def dealt(self, states: Sequence[Saved]) -> Mapping[str, Mapping[str, Tensor]]:
        """Vectors that this rank takes over from saved states, its own or all ranks' of a job."""

    def register(self, model: nn.Module) -> None:
        """Take the parameters' names from `model`; saving and loading of the state need them."""
        module = model.module if isinstance(model, DistributedDataParallel) else model
        self._parameters = dict(module.named_parameters())

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters by name; raises RuntimeError before `register`."""
        if self._parameters is None:
            raise RuntimeError(
                "the names of the parameters are not known: call state.register(model) first"
            )
        return self._parameters

    def average(self, bucket: GradBucket) -> Future[Tensor]:
        """Send a bucket now, or with the last bucket of the step; the future is the mean."""
        if bucket.index() == 0:
            # The previous step may have failed halfway.
            self.waiting.clear()
            self.waiting_on_device.clear()
        in_full = self.averages_in_full(bucket)
        self.step += bucket.is_last()
        if not in_full:
            self._make_draws(bucket)
        if in_full:
            future = self.transport.average(bucket.buffer())
        elif self._stays_on_device(bucket):
            future = self._average_on_device(DeviceBucket(bucket))
        elif self.overlap:
            return self._average_now(BucketGradients(bucket))
        else:
            future = Future()
            self.waiting.append((BucketGradients(bucket), future))
        if bucket.is_last():
            self._average_waiting()
        return future

    def averages_in_full(self, bucket: GradBucket) -> bool:
        """Whether a bucket is sent without compression: in the warm-up, or because it is sparse."""
        return self.step < self.warmup_steps or bucket.buffer().layout is torch.sparse_coo

    def _stays_on_device(self, bucket: GradBucket) -> bool:
        """Whether only codes cross to the host: if all operators have a form for tensors."""
        compressed = filter(self.is_compressed, bucket.parameters())
        return is_on_device(bucket.buffer()) and all(map(self._forms.of, compressed))

    def _make_draws(self, bucket: GradBucket) -> None:
        """Make draws now, in the caller's thread: here the order, which may name them, is fixed."""
        for parameter in filter(self.is_compressed, bucket.parameters()):
            self.draws_of(parameter)

    def _average_on_device(self, bucket: DeviceBucket) -> Future[Tensor]:
        if self.overlap:
            work = self._submit([bucket])
            return work.get_future().then(lambda done: done.value()[0])
        future: Future[Tensor] = Future()
        self.waiting_on_device.append((bucket, future))
        return future

    def _submit(self, buckets: Sequence[DeviceBucket]) -> DeviceWork:
        def prepare(staging: Staging) -> CodeTransfer:
            return CodeTransfer(staging, self, buckets)

        return channel_of(self._process_group).send_messages(buckets[-1].buffer, prepare)

    def _average_now(self, gradients: BucketGradients) -> Future[Tensor]:
        own, gathering = self._send([gradients])

        def finish(received: Sequence[bytes]) -> Tensor:
            self._settle([gradients], own, received)
            return gradients.store()

        return gathering.then(finish)

    def _average_waiting(self) -> None:
        # The backward pass is over, so waiting here costs nothing.
        if self.waiting_on_device:
            self._submit([bucket for bucket, _ in self.waiting_on_device]).get_future().wait()
            for bucket, future in self.waiting_on_device:
                future.set_result(bucket.buffer)
            self.waiting_on_device.clear()
        if self.waiting:
            self._average_waiting_on_host()

    def _average_waiting_on_host(self) -> None:
        buckets = [gradients for gradients, _ in self.waiting]
        own, gathering = self._send(buckets)
        self._settle(buckets, own, gathering.wait())
        for gradients, future in self.waiting:
            future.set_result(gradients.store())
        self.waiting.clear()

    def _send(
        self, buckets: Sequence[BucketGradients]
    ) -> tuple[list[Sent], Gathering[list[bytes]]]:
        own = [self.encode(parameter, part) for parameter, part, _ in _parts(buckets)]
        return own, self.transport.gather(b"".join(sent.record().encode() for sent in own))

    def _settle(
        self, buckets: Sequence[BucketGradients], own: Sequence[Sent], received: Sequence[bytes]
    ) -> None:
        """Put the means in place of the gradients; raises CompressError for malformed messages."""
        readers = [Reader(message) for message in received]
        for (parameter, part, dtype), sent in zip(_parts(buckets), own, strict=True):
            records = [Record.read(reader) for reader in readers]
            self.settle(parameter, part, sent, records, dtype)
        for reader in readers:
            reader.end()

    def encode(self, parameter: Tensor, gradient: Tensor) -> Sent:
        """This rank's data to send for a gradient, which this may turn in place."""
        if not self.is_compressed(parameter):
            return Exact(gradient.numpy())
        self.place(parameter, gradient.device)
        is_idle = is_zero(gradient)
        operator = self.operators.of(parameter)
        # Raised for parameters that are not finite; their gradients are not finite either.
        with suppress(CompressError):
            operator.follow(parameter)
        draws = self.draws_of(parameter)
        before = draws.place()
        try:
            return Coded(operator, self._code(operator, parameter, gradient), is_idle)
        except CompressError:
            # The vector is not finite, and all ranks must see it, as without compression; or it is
            # too large for the code. Operators differ in how much they draw before they find out.
            draws.return_to(before)
            return Exact(gradient.numpy(), is_idle)

    def _code(self, operator: Compressor, parameter: Tensor, gradient: Tensor) -> Any:
        if operator.dtype == np.float32:
            return self.code(operator, parameter, gradient)
        self.turn(parameter, gradient)
        return operator.code(gradient, self.draws_of(parameter))

    def settle(
        self,
        parameter: Tensor,
        gradient: Tensor,
        own: Sent,
        records: Sequence[Record],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Replace the gradient that `encode` left by the mean over all ranks, and learn from it.

        `own` is the result of `encode`; the gradient goes to the optimizer in `dtype`. Raises
        CompressError if a record is malformed.
        """
        is_compressed = self.is_compressed(parameter)
        if is_compressed and self.owes and all(record.is_idle for record in records):
            gradient.zero_()
            return
        rank = self.transport.rank
        sent = [own if i == rank else self._sent(parameter, r) for i, r in enumerate(records)]
        mean = mean_of(sent, rank, parameter.numel(), self._scratch)
        if not is_compressed:
            mean.write(gradient)
        elif mean.is_finite(dtype):
            self.learn(parameter, mean, gradient, dtype)
        else:
            # Values that are not finite would stay in the vectors for ever; loss scaling skips such
            # a step. The mean has the same bits on all ranks, so all ranks do the same.
            self.estimate(parameter, mean, gradient)

    def _sent(self, parameter: Tensor, record: Record) -> Sent:
        if record.is_exact:
            return Exact.read(record, parameter.numel())
        operator = self.operators.of(parameter)
        return Coded(operator, operator.read(record.payload))

    def draws_of(self, parameter: Tensor) -> Draws:
        """The draws for the random choices of a parameter."""
        return self._draws.of(parameter)

    def form_of(self, parameter: Tensor) -> TensorOperator[Any]:
        """The operator's form on tensors for a parameter that has one."""
        form = self._forms.of(parameter)
        assert form is not None, "the bucket stays on its device"
        return form

    def place(self, parameter: Tensor, device: torch.device) -> None:
        """Move the vectors of a parameter to a device."""
        for vectors in self.vectors().values():
            vectors.bring(parameter, device)

    def is_compressed(self, parameter: Tensor) -> bool:
        """Whether a parameter is large enough to be compressed."""
        return parameter.numel() >= max(self.min_elements, 1)

    def _new_draws(self, parameter: Tensor) -> Draws:
        """Draws of one parameter alone, so that they do not depend on the order of buckets."""
        self._draws_made += 1
        named = (self._parameters or {}).items()
        name = next((name for name, other in named if other is parameter), str(self._draws_made))
        return Draws(self.seed, self.transport.rank, f"{self._job}/{name}")

    def state_dict(self) -> Saved:
        """The state of this rank, for `torch.save`; every rank must save its own.

        Raises RuntimeError before `register`.
        """
        draws = self._draws.named(self.parameters)
        saved: Any = {
            "rank": self.transport.rank,
            "world_size": self.transport.size,
            "step": self.step,
            "job": self._job,
            "streams": {name: each.state() for name, each in draws.items()},
        }
        for name, vectors in self.vectors().items():
            saved[name] = vectors.named(self.parameters)
        return saved  # type: ignore[no-any-return]

    def load_state_dict(self, saved: Saved | Sequence[Saved]) -> None:
        """Go on from the state of this rank, or from a list of the states of all ranks of a job.

        With a list, the number of ranks may differ. The class then says which vectors each rank
        takes over, and random choices begin anew.

        Raises RuntimeError before `register`. Raises ValueError if a single state is of another
        rank or number of ranks, if a list lacks a rank, or if parameters differ.
        """
        states = states_of(saved, self.transport.rank, self.transport.size)
        dealt = self.dealt(states)
        for name, vectors in self.vectors().items():
            vectors.replace(dealt[name], self.parameters)
        self._restore_draws(states)

    def _restore_draws(self, states: Sequence[Saved]) -> None:
        """Take the step, and this rank's draws if the states have as many ranks as this job."""
        own = own_state(states, self.transport.rank, self.transport.size)
        saved = own.get("streams", {}) if own else {}
        draws = {name: Draws.from_state(state) for name, state in saved.items()}
        self._draws.replace(draws, self.parameters)
        self.step = states[0]["step"]
        # With an old name, ranks would repeat the draws from the start of the old job.
        before = states[0].get("job", "")  # Older saved states have no name of a job.
        resized = f"{before}/{self.transport.size} ranks after {self.step} steps"
        self._job = before if own else resized


def _parts(buckets: Sequence[BucketGradients]) -> Iterator[tuple[Tensor, Tensor, torch.dtype]]:
    """Parameters, their gradients, and the dtypes for the optimizer, in the order of sending."""
    for bucket in buckets:
        for parameter, part in zip(bucket.parameters, bucket.parts, strict=True):
            yield parameter, part, bucket.dtype
