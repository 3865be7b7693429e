"""Transfers of buckets on a device: codes are made on the device, and only codes cross to the host.

The codes of the other ranks come back, and the means are made on the device. The bytes on the wire
are the same as those of the host's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C._distributed_c10d import GradBucket

from sparsewire.compress import CompressError, Draws
from sparsewire.compress.message import Reader
from sparsewire.device.accelerator import Event
from sparsewire.device.staging import Staging
from sparsewire.device.transfer import Transfer
from sparsewire.torch.hooks.bucket_gradients import check_dtype
from sparsewire.torch.hooks.device_mean import DeviceMean, Source
from sparsewire.torch.hooks.packed import bytes_of, dtype_of, fill, joined, spans_of
from sparsewire.torch.hooks.parameter_map import ParameterVectors
from sparsewire.torch.hooks.sent import Exact, Record
from sparsewire.torch.hooks.transport import Transport
from sparsewire.torch.operators import TensorCode, TensorOperator

T = TypeVar("T")
Arrays = list[NDArray[Any]]


class Method(Protocol):
    """The part of a state that transfers use; `CompressedState` describes each method."""

    @property
    def owes(self) -> bool: ...

    @property
    def transport(self) -> Transport: ...

    def is_compressed(self, parameter: Tensor) -> bool: ...

    def form_of(self, parameter: Tensor) -> TensorOperator[Any]: ...

    def draws_of(self, parameter: Tensor) -> Draws: ...

    def vectors(self) -> Mapping[str, ParameterVectors]: ...

    def place(self, parameter: Tensor, device: torch.device) -> None: ...

    def turn(self, parameter: Tensor, gradient: Tensor) -> None: ...

    def learn(
        self, parameter: Tensor, mean: DeviceMean, gradient: Tensor, dtype: torch.dtype
    ) -> None: ...


class DeviceBucket:
    """A bucket whose gradients stay on their device.

    Raises TypeError for gradients other than float32, float16 and bfloat16.
    """

    def __init__(self, bucket: GradBucket) -> None:
        self.buffer: Tensor = bucket.buffer()
        check_dtype(self.buffer.dtype)
        self.parameters: list[Tensor] = bucket.parameters()
        self._flat = self.buffer

    def parts(self, state: Method) -> list[Part]:
        """One part for each parameter, flat float32: DDP's own memory if that is float32."""
        self._flat = self.buffer.to(torch.float32)
        gradients = torch.split(self._flat, [parameter.numel() for parameter in self.parameters])
        return [
            Part(state, parameter, gradient, self.buffer.dtype)
            for parameter, gradient in zip(self.parameters, gradients, strict=True)
        ]

    def store(self) -> None:
        """Copy the gradients to the memory where DDP expects them."""
        if self._flat is not self.buffer:
            self.buffer.copy_(self._flat)


class Part:
    """One parameter's gradient, and this rank's data to send for it.

    The optimizer gets the gradient rounded to `dtype`.
    """

    def __init__(
        self, state: Method, parameter: Tensor, gradient: Tensor, dtype: torch.dtype
    ) -> None:
        """Turn the gradient into the vector to compress (`Method.turn`), and make its code."""
        self.parameter = parameter
        self.gradient = gradient
        self.dtype = dtype
        self._is_idle = False
        self.operator: TensorOperator[Any] | None = None
        self.own = Source(None, [gradient])
        if not state.is_compressed(parameter):
            return
        state.place(parameter, gradient.device)
        self.operator = operator = state.form_of(parameter)
        is_idle = gradient.any().logical_not()
        state.turn(parameter, gradient)
        self._draws = state.draws_of(parameter)
        self._before = self._draws.place()
        self._code: TensorCode = operator.draw(gradient, self._draws)
        self._flags = torch.stack((is_idle, self._code.is_refused)).to(torch.uint8)

    @property
    def crossing(self) -> list[Tensor]:
        """The tensors that the host needs: the code, and flags if it is idle or refused."""
        return [self.gradient] if self.operator is None else [self._flags, *self._code.parts]

    def record(self, arrays: Arrays) -> Record | None:
        """The record to send, from the crossed tensors; None: the exact gradient must be sent."""
        if self.operator is None:
            return self.exact(arrays)
        self._is_idle, is_refused = map(bool, arrays[0])
        if is_refused:
            # The vector is not finite, and all ranks must see it, as without compression; or it is
            # too large for the code.
            self._draws.return_to(self._before)
            return None
        code = self.operator.code_of(arrays[1:], self._code.known)
        self.own = Source(self.operator, self._code.parts, self.operator.kept_elements(code))
        return Record(False, self._is_idle, self.operator.operator.pack(code))

    def exact(self, arrays: Arrays) -> Record:
        """The record of the exact gradient, which crossed as `arrays[0]`."""
        return Exact(arrays[0], self._is_idle).record()

    def arrays_of(self, record: Record) -> tuple[Arrays, int | None]:
        """The arrays of another rank's record for the device, and its `kept_elements`.

        Raises CompressError if the record is malformed.
        """
        if record.is_exact:
            return [Exact.read(record, self.parameter.numel()).vector], None
        if self.operator is None:
            raise CompressError("malformed message: a code of what is sent as it is")
        code = self.operator.operator.read(record.payload)
        return self.operator.arrays_of(code), self.operator.kept_elements(code)


class Settlement:
    """The ranks' data for one part. It is empty if all ranks are idle and their residuals stay.

    `arrays` are the arrays of the other ranks, one after another.
    """

    def __init__(self, part: Part, records: Sequence[Record], rank: int, owes: bool) -> None:
        self.part = part
        self.arrays: Arrays = []
        self._rank = rank
        self._of_others: list[tuple[bool, int, int | None]] = []
        self._ranks = len(records)
        is_owed = owes and part.operator is not None
        self.is_idle = is_owed and all(record.is_idle for record in records)
        if not self.is_idle:
            for record in (*records[:rank], *records[rank + 1 :]):
                arrays, kept = part.arrays_of(record)
                self._of_others.append((record.is_exact, len(arrays), kept))
                self.arrays += arrays

    def mean(self, uploaded: Iterator[Tensor]) -> DeviceMean:
        """The mean over all ranks; takes the tensors of `arrays` on the device from `uploaded`."""
        sources = []
        for is_exact, count, kept in self._of_others:
            parts = [next(uploaded) for _ in range(count)]
            sources.append(Source(None if is_exact else self.part.operator, parts, kept))
        sources.insert(self._rank, self.part.own)
        return DeviceMean(sources, self.part.own, self.part.gradient)


class CodeTransfer(Transfer):
    """Buckets of one message. `receive` takes the messages of all ranks."""

    def __init__(self, staging: Staging, state: Method, buckets: Sequence[DeviceBucket]) -> None:
        super().__init__(staging, buckets[0].buffer)
        self._state = state
        self._buckets = buckets
        self._parts: list[Part] = []

    def send(self) -> Any:
        """The message of this rank. Blocks for the device."""
        buffers = [bucket.buffer for bucket in self._buckets]
        self.staging.down.hold(*buffers)
        self.staging.up.hold(*buffers)
        self._parts = self.staging.down.run(self._encode)
        crossing = [part.crossing for part in self._parts]
        records = self._brought([each for tensors in crossing for each in tensors], self._records)
        return b"".join(map(self._encoded, self._parts, records))

    def receive(self, received: Sequence[bytes]) -> Event:
        settlements = self._read(received)
        arrays = [array for each in settlements for array in each.arrays]
        spans = spans_of([(array.size, dtype_of(array)) for array in arrays])
        up, nbytes = self.staging.up, bytes_of(spans)
        with up.loan() as loan:
            memory = loan.take(nbytes)
            fill(memory, spans, arrays)
            return up.enqueue(partial(self._settle, settlements, memory[:nbytes], spans))

    def drop(self) -> None:
        super().drop()
        self._parts = []

    @torch.no_grad()
    def _encode(self) -> list[Part]:
        return [part for bucket in self._buckets for part in bucket.parts(self._state)]

    def _records(self, arrays: Arrays) -> list[Record | None]:
        left = iter(arrays)
        return [part.record([next(left) for _ in part.crossing]) for part in self._parts]

    def _encoded(self, part: Part, record: Record | None) -> bytes:
        # Only now, after the loan has ended: a thread with a loan may wait for ever for another.
        return (record or self._brought([part.gradient], part.exact)).encode()

    def _brought(self, tensors: Sequence[Tensor], use: Callable[[Arrays], T]) -> T:
        """The result of `use` on the tensors as arrays on the host, valid only during the call."""
        down = self.staging.down
        flat, spans = down.run(lambda: joined(tensors))
        with down.loan() as loan:
            memory = loan.take(flat.numel())
            down.enqueue(partial(_move, memory[: flat.numel()], flat)).synchronize()
            return use([span.of(memory).numpy() for span in spans])

    def _read(self, received: Sequence[bytes]) -> list[Settlement]:
        """The ranks' data for each part; raises CompressError for malformed messages."""
        readers = [Reader(message) for message in received]
        rank, owes = self._state.transport.rank, self._state.owes
        settlements = [
            Settlement(part, [Record.read(reader) for reader in readers], rank, owes)
            for part in self._parts
        ]
        for reader in readers:
            reader.end()
        return settlements

    @torch.no_grad()
    def _settle(
        self, settlements: Sequence[Settlement], memory: Tensor, spans: Sequence[Any]
    ) -> None:
        """On the device: put the means in place of the gradients, and learn from them."""
        on_device = torch.empty(len(memory), dtype=torch.uint8, device=self.staging.device)
        on_device.copy_(memory, non_blocking=True)
        uploaded = iter([span.of(on_device) for span in spans])
        for settlement in settlements:
            self._hold(settlement.part)
            if settlement.is_idle:
                settlement.part.gradient.zero_()
            else:
                self._learn(settlement.part, settlement.mean(uploaded))
        for bucket in self._buckets:
            bucket.store()

    def _learn(self, part: Part, mean: DeviceMean) -> None:
        if part.operator is None:
            return mean.write(part.gradient)
        vectors = [each.of(part.parameter) for each in self._state.vectors().values()]
        before = [vector.clone() for vector in vectors]
        is_finite = mean.finite(part.dtype)
        self._state.learn(part.parameter, mean, part.gradient, part.dtype)
        # A value that is not finite would stay in these vectors for ever. To ask the device for
        # `is_finite` would mean to wait for it.
        for vector, former in zip(vectors, before, strict=True):
            torch.where(is_finite, vector, former, out=vector)

    def _hold(self, part: Part) -> None:
        """Keep memory from the way down until the way up is done with it."""
        self.staging.up.hold(part.gradient, *part.own.parts)
        if part.operator is not None:
            vectors = self._state.vectors().values()
            self.staging.up.hold(*(each.of(part.parameter) for each in vectors))


def _move(target: Tensor, source: Tensor) -> None:
    target.copy_(source, non_blocking=True)
