"""The channel for hooks' messages from gradients on a device: a group's own, or one beside it."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, finalize

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from sparsewire.lifetime import disown_in_child
from sparsewire.torch.backend import member_of
from sparsewire.torch.calls.futures import Callbacks
from sparsewire.torch.calls.work import Health
from sparsewire.torch.device.device_queue import Prepare
from sparsewire.torch.device.device_work import DeviceWork
from sparsewire.torch.device.message_channel import MessageChannel
from sparsewire.torch.member import Member

_CPU = torch.device("cpu")


class ChannelBeside:
    """The channel of a group of another backend; it does not outlive this group."""

    def __init__(self, group: Any) -> None:
        self._callbacks = Callbacks(1)
        self._health = Health()
        store = PrefixStore("sparsewire_hooks_device", group.get_group_store())
        limit = limit_of(group)
        self._channel = MessageChannel(store, group.rank(), group.size(), limit)
        # At exit communicators close by themselves.
        finalize(group, self.close).atexit = False
        disown_in_child(self)

    def send_messages(self, tensor: torch.Tensor, prepare: Prepare) -> DeviceWork:
        """Like `Member.send_messages`."""
        handle = self._channel.submit(tensor, prepare)
        return DeviceWork([handle], [tensor], self._callbacks, self._health)

    def close(self) -> None:
        """Fail messages in flight, and end the threads."""
        self._channel.close()
        self._callbacks.close()

    def disown(self) -> None:
        """In a forked child: leave all to the parent."""
        self._callbacks = Callbacks(1)
        self._channel.disown()


_made: WeakKeyDictionary[Any, ChannelBeside] = WeakKeyDictionary()


def channel_of(process_group: dist.ProcessGroup | None) -> Member | ChannelBeside:
    """The channel of a group; None is the default group."""
    group: Any = process_group if process_group is not None else dist.group.WORLD
    member = member_of(group)
    if member is not None:
        return member
    if group not in _made:
        _made[group] = ChannelBeside(group)
    return _made[group]


def limit_of(group: Any) -> Any:
    """A function that returns a group's timeout in seconds, and does not keep the group alive."""
    # A group of NCCL has no backend for the CPU.
    device = _CPU if _CPU in group._device_types else torch.device("cuda")
    options = group._get_backend(device).options
    return lambda: options._timeout.total_seconds()
