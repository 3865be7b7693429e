"""Networks that count what their local workers send, to compare it with what methods say."""

from __future__ import annotations

from collections.abc import Sequence

from sparsewire.tools.optimize.methods.network import Distributed, Simulated


class CountedSimulated(Simulated):
    """`bytes_sent`: of all messages so far, without framing."""

    bytes_sent = 0

    def all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        self.bytes_sent += sum(map(len, messages))
        return super().all_gather(messages)


class CountedDistributed(Distributed):
    """The same over ranks."""

    bytes_sent = 0

    def all_gather(self, messages: Sequence[bytes]) -> list[bytes]:
        self.bytes_sent += sum(map(len, messages))
        return super().all_gather(messages)
