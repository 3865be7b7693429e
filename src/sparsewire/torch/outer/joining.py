"""The copy of the shared state that a newcomer gets, beside the rounds of the others."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sparsewire.collectives.communicator import Communicator
from sparsewire.errors import MismatchError, ProtocolError
from sparsewire.torch.outer.state import ReplicaState

_WORD = 8
_WORDS = 16
"""The most words for an element: those of the point and of the outer optimizer."""
_HEAD_WORDS = 1 << 14
"""The most words beside, for a parameter."""
# What readers of JSON and makers of tensors raise for heads that are none.
_MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Snapshot(NamedTuple):
    """The shared state after `rounds` rounds: tensors, numbers and the digest of each fragment."""

    rounds: int
    tensors: list[dict[str, Tensor]]
    numbers: list[dict[str, Any]]
    digests: list[str]

    @classmethod
    def of(cls, state: ReplicaState) -> Snapshot:
        """A copy of the shared state, on the host."""
        with state.lock:
            shared = [each.shared for each in state.fragments]
            return cls(
                state.rounds,
                [{k: v.detach().cpu().clone() for k, v in s.tensors().items()} for s in shared],
                [s.numbers() for s in shared],
                [s.digest().hex() for s in shared],
            )

    def load_into(self, state: ReplicaState) -> None:
        """Take over the state, and see that its bits arrived; raises MismatchError if not."""
        if len(self.tensors) != len(state.fragments):
            raise MismatchError(
                f"the shared state has {len(self.tensors)} fragments, and here are "
                f"{len(state.fragments)}: give all replicas the same settings"
            )
        with state.lock:
            for i, each in enumerate(state.fragments):
                each.keep_base()
                each.shared.load(self.tensors[i], self.numbers[i])
                if each.shared.digest().hex() != self.digests[i]:
                    raise MismatchError(
                        "the shared state that arrived is not what was sent: do all replicas run "
                        "the same versions, with the same outer optimizer?"
                    )
            state.rounds = self.rounds

    def encode(self) -> NDArray[np.int64]:
        """The snapshot as words: the length of a head in JSON, the head, and the tensors."""
        kinds = [
            {k: [str(v.dtype).removeprefix("torch."), list(v.shape)] for k, v in named.items()}
            for named in self.tensors
        ]
        head = json.dumps([self.rounds, kinds, self.numbers, self.digests]).encode()
        parts = [len(head).to_bytes(_WORD, "little"), head]
        parts += [_bytes_of(tensor) for named in self.tensors for tensor in named.values()]
        whole = b"".join(parts)
        return np.frombuffer(whole + bytes(-len(whole) % _WORD), np.int64)

    @classmethod
    def decode(cls, words: NDArray[np.int64]) -> Snapshot:
        """The snapshot again; raises ProtocolError if the words are none."""
        memory = words.view(np.uint8).data
        length = int.from_bytes(memory[:_WORD], "little")
        try:
            rounds, kinds, numbers, digests = json.loads(bytes(memory[_WORD : _WORD + length]))
            rounds = int(rounds)
            if not len(kinds) == len(numbers) == len(digests):
                raise ValueError("its parts are of different numbers of fragments")
            tensors: list[dict[str, Tensor]] = []
            at = _WORD + length
            for named in kinds:
                tensors.append({})
                for name, (dtype, shape) in named.items():
                    tensors[-1][name], at = _tensor(memory, at, dtype, shape)
        except _MALFORMED as error:
            raise ProtocolError(f"this is no shared state of an outer optimizer: {error}") from None
        return cls(rounds, tensors, numbers, digests)


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _tensor(memory: memoryview, at: int, dtype: str, shape: list[int]) -> tuple[Tensor, int]:
    kind = getattr(torch, dtype)
    end = at + int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if not at <= end <= len(memory):
        raise ValueError("a tensor is longer than the message")
    flat = torch.frombuffer(bytearray(memory[at:end]) or bytearray(kind.itemsize), dtype=kind)
    return flat[: (end - at) // kind.itemsize].reshape(shape), end


def give(communicator: Communicator, snapshot: Snapshot, timeout: float) -> None:
    """Give the snapshot to the other member of a communicator of two, as its rank 0."""
    words = snapshot.encode()
    communicator.broadcast(np.array([words.size], np.int64), timeout=timeout)
    communicator.broadcast(np.array(words), timeout=timeout)


def take(communicator: Communicator, timeout: float, limit: int) -> Snapshot:
    """Take the snapshot that rank 0 gives, of at most `limit` words; raises ProtocolError."""
    size = int(communicator.broadcast(np.zeros(1, np.int64), timeout=timeout)[0])
    if not 0 < size <= limit:
        raise ProtocolError(
            f"a shared state of {size} words is not one of this model, which has at most {limit}: "
            "give all replicas the same model and outer optimizer"
        )
    return Snapshot.decode(communicator.broadcast(np.empty(size, np.int64), timeout=timeout))


def most_words(state: ReplicaState) -> int:
    """More words than the state of any outer optimizer for this model has."""
    fragments = [each.fragment for each in state.fragments]
    slots = sum(len(each.slots) for each in fragments)
    return _WORDS * sum(each.elements for each in fragments) + _HEAD_WORDS * (1 + slots)


class Copying:
    """A thread that gives, or takes, a copy; `snapshot` is the future of what it took.

    `limit`: the most words that it takes.
    """

    def __init__(
        self,
        connect: Callable[[], Communicator],
        snapshot: Snapshot | None,
        timeout: float,
        limit: int = 0,
    ) -> None:
        self.snapshot: Future[Snapshot | None] = Future()
        self._connect = connect
        self._given = snapshot
        self._timeout = timeout
        self._limit = limit
        threading.Thread(target=self._run, name="sparsewire-copy", daemon=True).start()

    def _run(self) -> None:
        try:
            with self._connect() as communicator:
                if self._given is None:
                    self.snapshot.set_result(take(communicator, self._timeout, self._limit))
                else:
                    give(communicator, self._given, self._timeout)
                    self.snapshot.set_result(None)
                communicator.barrier(self._timeout)
        except BaseException as error:
            if not self.snapshot.done():
                self.snapshot.set_exception(error)
