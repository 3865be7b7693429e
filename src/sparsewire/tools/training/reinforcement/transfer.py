"""How new weights get from the trainer to the readers: what changed, or all of them.

A sender has `send`, which makes what the policy is now the next version. A reader's end has `get`,
which waits for a version beside the sampling, and `apply`, which puts it in place between batches.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, Store, Work

from sparsewire.weights import Publisher, Receiver, Staged

_PLACE = "publisher"


class Sender(Protocol):
    """The trainer's end."""

    def send(self) -> dict[str, object]:
        """Make the policy as it is now the next version; returns what there is to tell of it."""

    def close(self) -> None:
        """End it, once every reader has the last version."""


class Reader(Protocol):
    """A reader's end; `version` is the one that was applied last, 0 at first."""

    version: int

    def get(self) -> None:
        """Wait for the next version, and receive all of it; the policy stays as it is."""

    def apply(self) -> int:
        """Put what `get` received into the policy; returns the bytes that came for it."""

    def close(self) -> None:
        """End it."""


class DeltaSender:
    """Publishes what changed."""

    def __init__(self, policy: nn.Module, store: Store) -> None:
        self._policy = policy
        self._publisher = Publisher(f"{os.environ['MASTER_ADDR']}:0")
        self._publisher.publish(policy)
        store.set(_PLACE, str(self._publisher.address))

    def send(self) -> dict[str, object]:
        published = self._publisher.publish(self._policy)
        return {"changed": published.changed, "compare_s": published.seconds}

    def close(self) -> None:
        self._publisher.close()


class DeltaReader:
    """Stages and verifies what changed."""

    def __init__(self, policy: nn.Module, store: Store, timeout_s: float) -> None:
        self._receiver = Receiver(store.get(_PLACE).decode(), policy)
        self._timeout_s = timeout_s
        self.version = 0
        self._staged: Staged = self._receiver.stage(0, timeout_s)
        self.apply()

    def get(self) -> None:
        staged = self._receiver.stage(self.version + 1, self._timeout_s)
        self._staged = staged.verify()

    def apply(self) -> int:
        self.version = self._staged.apply().version
        return self._staged.nbytes

    def close(self) -> None:
        self._receiver.close()


class WholeSender:
    """Broadcasts all weights over gloo, beside the training's next step."""

    def __init__(self, policy: nn.Module, group: Any) -> None:
        self._policy, self._group = policy, group
        self._buffer = flat(policy).view(torch.uint8)
        self._work: Work | None = None

    def send(self) -> dict[str, object]:
        self._wait()
        self._buffer = flat(self._policy).view(torch.uint8)
        self._work = self._group.broadcast([self._buffer])
        return {}

    def close(self) -> None:
        self._wait()

    def _wait(self) -> None:
        if self._work is not None:
            self._work.wait()


class WholeReader:
    """Receives all weights into memory beside the policy, and copies them from there."""

    def __init__(self, policy: nn.Module, group: Any) -> None:
        self._parameters = list(policy.parameters())
        self._group = group
        self._buffer = flat(policy)
        self.version = 0

    def get(self) -> None:
        self._group.broadcast([self._buffer.view(torch.uint8)]).wait()

    def apply(self) -> int:
        sizes = [own.numel() for own in self._parameters]
        with torch.no_grad():
            for own, fresh in zip(self._parameters, torch.split(self._buffer, sizes), strict=True):
                own.copy_(fresh.view_as(own))
        self.version += 1
        return self._buffer.nbytes

    def close(self) -> None:
        pass


def flat(policy: nn.Module) -> Tensor:
    """All parameters behind each other, in new memory."""
    return torch.cat([own.detach().view(-1) for own in policy.parameters()])


def gloo(store: Store, rank: int, size: int, timeout_s: float) -> Any:
    """A group of the sender, rank 0, and the readers."""
    group: Any = dist.ProcessGroupGloo
    return group(PrefixStore("weights", store), rank, size, timedelta(seconds=timeout_s))
