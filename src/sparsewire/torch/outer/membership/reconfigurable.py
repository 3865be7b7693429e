"""Membership that keeps a process group of torch's in step: whoever takes part in rounds is in it.

Torch leaves open who decides about members, so that another membership does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from sparsewire.errors import Error, InputError
from sparsewire.torch.outer.membership.membership import Epoch, Membership


class ReconfigurableMembership(Membership):
    """Reconfigures `process_group` for each epoch that `who` yields; ranks are the epoch's.

    The group is one of `init_process_group(..., enable_reconfigure=True)`, on torch 2.14 and newer,
    of any backend that can do it; None is the default group. Calls on it that are in flight when
    members change raise. `timeout`: seconds that its members wait for each other.

    Raises InputError if the group cannot be reconfigured.
    """

    def __init__(
        self, who: Membership, process_group: Any = None, *, timeout: float = 60.0
    ) -> None:
        self._who = who
        self._group = process_group or dist.group.WORLD
        self._timeout = timedelta(seconds=timeout)
        if not _can_change(self._group):
            raise InputError(
                "this process group cannot change its members: make it by "
                "torch.distributed.init_process_group(..., enable_reconfigure=True), on torch 2.14 "
                "or newer"
            )

    def reconfigure(self, last: Epoch | None, lost: Collection[str]) -> Epoch:
        epoch = self._who.reconfigure(last, lost)
        torch_dist: Any = dist
        try:
            handles = self._handles(epoch, torch_dist._get_reconfigure_handle(self._group))
            uuid = _uuid(epoch, handles)
            torch_dist._reconfigure(uuid, handles, self._group, self._timeout).wait()
        except Error:
            raise
        except RuntimeError as error:
            raise Error(f"could not reconfigure the process group: {error}") from error
        return epoch

    def _handles(self, epoch: Epoch, own: str) -> list[str]:
        """The handles of all members, in rank order."""
        epoch.store.set(f"handle/{epoch.rank}", own)
        keys = [f"handle/{rank}" for rank in range(len(epoch.members))]
        epoch.store.wait(keys, self._timeout)
        return [epoch.store.get(key).decode() for key in keys]

    def wishes(self, epoch: Epoch) -> bool:
        return self._who.wishes(epoch)

    def close(self) -> None:
        self._who.close()


def _can_change(group: Any) -> bool:
    try:
        return bool(getattr(group, "supports_reconfigure", False))
    except RuntimeError:  # Torch's answer for groups of several backends.
        return False


def _uuid(epoch: Epoch, handles: Sequence[str]) -> int:
    """A number that no other epoch of the group's store has, 0 to 2**62 - 1."""
    told = json.dumps([epoch.number, *epoch.members, *handles]).encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:8], "little") >> 2
