"""The weight transfer protocol for miles: `--update-weight-transfer-mode external
--custom-weight-transfer-protocol-path sparsewire.weights.engines.miles.build_protocol`.

Its engines are those of SGLang, started with the loader of `sparsewire.weights.engines.sglang`.
SPARSEWIRE_WEIGHTS_ADDRESS tells both where to publish, and where to read.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import new_class
from typing import Any

from sparsewire.errors import InputError
from sparsewire.weights.engines.handover import Handover
from sparsewire.weights.engines.publishing import await_readers
from sparsewire.weights.engines.sglang import ADDRESS, LOAD_FORMAT, NO_TENSORS
from sparsewire.weights.publisher import Published, Publisher

Bucket = list[tuple[str, Any]]


def build_protocol(args: Namespace) -> Any:
    """What miles calls to have its protocol: an instance of its own WeightTransferProtocol."""
    from miles.backends.training_utils.weight_update.hf_weight_iterator import WeightUpdatePlacement
    from miles.backends.training_utils.weight_update.protocol import WeightTransferProtocol

    # Everything comes together on rank 0, which publishes.
    placement = {"required_placement": WeightUpdatePlacement(gather_pp=True)}
    bases = (Protocol, WeightTransferProtocol)
    return new_class("SparsewireProtocol", bases, exec_body=lambda own: own.update(placement))(args)


class Protocol:
    """What `WeightTransferProtocol` of miles leaves to others."""

    # Versions are compared beside generation, so engines pause only when theirs has come.
    use_weight_update_session = False
    supports_lora = False

    # Of miles' class.
    args: Namespace
    rollout_engines: Sequence[Any]
    is_sender: bool
    group_name: str
    update_weight_metrics: dict[str, float]

    _publisher: Publisher | None = None
    _handover: Handover | None = None
    _workers: Sequence[int] = ()
    _selector = "target"

    def connect(
        self,
        rollout_engines: Sequence[Any],
        engine_gpu_counts: Sequence[int] | None,
        engine_gpu_offsets: Sequence[int] | None,
        parallel_state: Any,
        placement: Any,
        selector: str,
    ) -> None:
        """Publish on rank 0; these engines will be told. Raises InputError without an address."""
        import torch.distributed as dist

        self.rollout_engines = rollout_engines
        self.group_name = "sparsewire"
        self.is_sender = dist.get_rank() == 0
        self._selector = selector
        per_engine = self.args.rollout_num_gpus_per_engine
        self._workers = engine_gpu_counts or [per_engine] * len(rollout_engines)
        if self.is_sender and self._publisher is None:
            self._publisher = Publisher(_address())

    def begin_sync(
        self, weight_version: int, iter_buckets: Callable[..., Iterator[Bucket]]
    ) -> bool:
        """Begin a version on rank 0."""
        if self._publisher:
            self._handover = Handover(partial(self._publisher.publish, version=weight_version))
        return True

    def send_bucket(self, bucket: Bucket) -> None:
        """Take tensors, and return when their memory is free."""
        assert self._handover, "miles calls begin_sync first"
        for name, tensor in bucket:
            self._handover.put(name, tensor)

    def finalize(self, weight_version: int) -> None:
        """Publish the version; then pause the engines, and have them load it."""
        if self._publisher is None or self._handover is None:
            return
        published, self._handover = self._handover.finish(), None
        self.update_weight_metrics |= _metrics(published)
        await_readers(self._publisher)
        self._reload(weight_version)

    def _reload(self, weight_version: int) -> None:
        from miles.backends.training_utils.weight_update import session
        from miles.utils import async_utils

        session.pause_engines(self.args, self.rollout_engines)
        session.begin_weight_update(self.rollout_engines, self._selector)
        asked = [
            async_utils.submit(engine.update_weights_from_tensor(**self._request(workers)))
            for engine, workers in zip(self.rollout_engines, self._workers, strict=True)
        ]
        session.check_weight_sync_results(async_utils.wait_futures(asked), is_lora=False)
        session.end_weight_update(self.rollout_engines)
        session.set_weight_version(self.rollout_engines, weight_version)
        session.resume_engines(self.rollout_engines)

    def _request(self, workers: int) -> dict[str, Any]:
        return {
            "serialized_named_tensors": [NO_TENSORS] * workers,
            "load_format": LOAD_FORMAT,
            "selector": self._selector,
        }

    def close(self) -> None:
        """Publish no more. miles ends its ranks, which does so too."""
        if self._publisher:
            self._publisher.close()


def _address() -> str:
    if ADDRESS not in os.environ:
        raise InputError(f"set {ADDRESS} to host:port of rank 0, for the training and its engines")
    return os.environ[ADDRESS]


def _metrics(published: Published) -> dict[str, float]:
    return {
        f"perf/update_weights_{name}": float(getattr(published, name))
        for name in ("changed", "nbytes", "seconds")
    }
