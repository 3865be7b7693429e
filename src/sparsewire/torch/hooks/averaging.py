"""The way of compressed gradients: buckets of DDP go out as one message and come back as means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch._C._distributed_c10d import GradBucket

from sparsewire.compress.message import Reader
from sparsewire.torch.hooks.bucket_gradients import BucketGradients
from sparsewire.torch.hooks.compressed_state import CompressedState
from sparsewire.torch.hooks.gathering import Gathering
from sparsewire.torch.hooks.records import Record
from sparsewire.torch.hooks.sent import Sent


def average_compressed(
    state: CompressedState, bucket: GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """What every hook does that compresses: send a bucket now, or with the last one of the step."""
    if bucket.index() == 0:
        # A step before may have failed halfway.
        state.waiting.clear()
    if state.begin(bucket):
        future = state.transport.average(bucket.buffer())
    elif state.overlap:
        return _average_now(state, BucketGradients(bucket))
    else:
        future = torch.futures.Future()
        state.waiting.append((BucketGradients(bucket), future))
    if bucket.is_last() and state.waiting:
        _average_waiting(state)
    return future


def _average_now(
    state: CompressedState, gradients: BucketGradients
) -> torch.futures.Future[torch.Tensor]:
    own = _encode(state, [gradients])

    def finish(received: Sequence[bytes]) -> torch.Tensor:
        _settle(state, [gradients], own, received)
        return gradients.store()

    return _send(state, own).then(finish)


def _average_waiting(state: CompressedState) -> None:
    buckets = [gradients for gradients, _ in state.waiting]
    own = _encode(state, buckets)
    # The backward pass is over, so that nothing is lost by waiting here.
    _settle(state, buckets, own, _send(state, own).wait())
    for gradients, future in state.waiting:
        future.set_result(gradients.store())
    state.waiting.clear()


def _encode(state: CompressedState, buckets: Sequence[BucketGradients]) -> list[Sent]:
    return [state.encode(parameter, part) for parameter, part, _ in _parts(buckets)]


def _send(state: CompressedState, own: Sequence[Sent]) -> Gathering[list[bytes]]:
    return state.transport.gather(b"".join(sent.record().encode() for sent in own))


def _settle(
    state: CompressedState,
    buckets: Sequence[BucketGradients],
    own: Sequence[Sent],
    received: Sequence[bytes],
) -> None:
    """Put the means in place of the gradients; raises CompressError for malformed messages."""
    readers = [Reader(message) for message in received]
    for (parameter, part, dtype), sent in zip(_parts(buckets), own, strict=True):
        records = [Record.read(reader) for reader in readers]
        state.settle(parameter, part, sent, records, dtype)
    for reader in readers:
        reader.end()


def _parts(
    buckets: Sequence[BucketGradients],
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.dtype]]:
    """Parameters, their gradients and what these are rounded to, in the order of sending."""
    for bucket in buckets:
        for parameter, part in zip(bucket.parameters, bucket.parts, strict=True):
            yield parameter, part, bucket.dtype
