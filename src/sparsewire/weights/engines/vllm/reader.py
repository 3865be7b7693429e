"""The side of vLLM's workers: each follows the publisher in a copy of its checkpoint."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsewire.errors import InputError
from sparsewire.weights.engines.host_copy import HostCopy
from sparsewire.weights.readers.end import TIMEOUT_S

if TYPE_CHECKING:
    import torch

    LoadWeights = Callable[[Iterable[tuple[str, torch.Tensor]]], Any]


class Load(enum.Enum):
    """How a worker takes new weights.

    RELOAD gives all tensors to vLLM's layer by layer reload. It suits every model, whatever was
    made of its weights after they were loaded: quantised, packed, or derived ones.

    DIRECT gives only tensors that changed to the model's `load_weights`, in place. It suits models
    that compute with their weights as they are in the checkpoint.
    """

    RELOAD = "reload"
    DIRECT = "direct"


@dataclass
class ReaderInfo:
    """How a worker reaches the publisher: what `init_weight_transfer_engine` takes.

    `checkpoint` is what the model was loaded from, a local path; by default it is the model's own.
    If that is no local path, or the worker does not know it, the first version comes whole.
    The secret is that of the worker's environment, SPARSEWIRE_SECRET: it never comes in a message.
    """

    address: str
    checkpoint: str | None = None
    load: str = Load.RELOAD.value
    timeout: float = TIMEOUT_S


@dataclass
class UpdateInfo:
    """Which version to load: what `update_weights` takes. None is the newest."""

    version: int | None = None
    # Asked for by workers before 0.25.
    update_kind: str = "dense"


class Reader:
    """What `WeightTransferEngine` of vLLM leaves to its back ends."""

    init_info_cls = ReaderInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    # Of vLLM's class.
    model: Any
    model_config: Any
    config: Any

    _copy: HostCopy | None = None
    _load = Load.RELOAD
    _timeout = ReaderInfo.timeout

    def init_transfer_engine(self, init_info: ReaderInfo) -> None:
        """Read the checkpoint, and join the publisher.

        Raises InputError for a way to load that is none, DataError for a checkpoint that is none,
        and what Receiver raises.
        """
        self._load = _load_of(init_info.load)
        self._timeout = init_info.timeout
        self.shutdown()
        checkpoint = init_info.checkpoint or self._checkpoint()
        self._copy = HostCopy(init_info.address, checkpoint)

    def _checkpoint(self) -> Path | None:
        """What the model was loaded from, if that are files of safetensors on this machine."""
        # Before 0.25 a worker does not know.
        model_config = getattr(self, "model_config", None)
        path = Path(str(model_config.model)) if model_config else None
        return path if path and any(path.glob("*.safetensors")) else None

    def start_weight_update(self) -> None:
        """Nothing: the model is touched only when all new weights are here, and verified."""

    def finish_weight_update(self) -> None:
        """Nothing: see `start_weight_update`."""

    def receive_weights(
        self, update_info: UpdateInfo, load_weights: LoadWeights | None = None
    ) -> None:
        """Become that version. Workers before 0.25 reload by themselves, and give `load_weights`.

        Raises InputError if there was no `init_transfer_engine`, what `Receiver.stage` raises, and
        what the model raises; the next version then repairs what is half loaded.
        """
        if self._copy is None:
            raise InputError("call init_weight_transfer_engine before update_weights")
        self._copy.advance(update_info.version, timeout=self._timeout)
        if load_weights is not None:
            load_weights(list(self._copy.all()))
        elif self._copy.is_owing:
            self._load_owed(self._copy)
        self._copy.settle()

    def _load_owed(self, copy: HostCopy) -> None:
        if self._load is Load.DIRECT:
            self.model.load_weights(copy.owed())
        else:
            self._reload(copy)

    def _reload(self, copy: HostCopy) -> None:
        from vllm.model_executor.model_loader import reload

        reload.initialize_layerwise_reload(self.model)
        # All of them: a layer that gets a part of its tensors would lose the rest.
        self.model.load_weights(copy.all())
        reload.finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Leave the publisher, and free the copy."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    @staticmethod
    def trainer_send_weights(iterator: Iterable[tuple[str, Any]], trainer_args: Any) -> None:
        """The trainer's side before 0.28: `trainer_args` is the Publisher."""
        trainer_args.publish(iterator)


def _load_of(text: str) -> Load:
    try:
        return Load(text)
    except ValueError:
        known = ", ".join(each.value for each in Load)
        raise InputError(f"{text!r} is no way to load weights: use one of {known}") from None
