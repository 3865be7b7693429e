"""Stands in for vLLM: its interface for the transfer of weights as published, in four releases.

Names, arguments and the order of calls are those of 0.23, 0.25, 0.28 and 0.29; nothing else is.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import torch
from policies import FusedModel

RELEASES = ("0.23", "0.25", "0.28", "0.29")


class _Parsing:
    init_info_cls: type
    update_info_cls: type

    def parse_init_info(self, init_dict: dict[str, Any]) -> Any:
        return self.init_info_cls(**init_dict)

    def parse_update_info(self, update_dict: dict[str, Any]) -> Any:
        return self.update_info_cls(**update_dict)


class Engine023(ABC, _Parsing):
    """Of 0.23: the worker reloads, and gives the engine what loads."""

    def __init__(self, config: Any, parallel_config: Any, model: Any) -> None:
        self.config, self.parallel_config, self.model = config, parallel_config, model

    @abstractmethod
    def init_transfer_engine(self, init_info: Any) -> None: ...
    @abstractmethod
    def receive_weights(self, update_info: Any, load_weights: Any) -> None: ...
    @abstractmethod
    def shutdown(self) -> None: ...
    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator: Iterator[Any], trainer_args: Any) -> None: ...


class Engine028(ABC, _Parsing):
    """Of 0.28 and 0.29: the engine owns the update."""

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.parallel_config = vllm_config.parallel_config
        self.model_config = vllm_config.model_config

    @abstractmethod
    def init_transfer_engine(self, init_info: Any) -> None: ...
    @abstractmethod
    def start_weight_update(self) -> None: ...
    @abstractmethod
    def finish_weight_update(self) -> None: ...
    @abstractmethod
    def receive_weights(self, update_info: Any) -> None: ...
    @abstractmethod
    def shutdown(self) -> None: ...

    def update_weights(self, update_info: dict[str, Any]) -> None:
        self.receive_weights(self.parse_update_info(update_info))


class Engine025(Engine028):
    """Of 0.25: it still sends, too."""

    @staticmethod
    @abstractmethod
    def trainer_send_weights(iterator: Iterator[Any], trainer_args: Any) -> None: ...


class TrainerEngine(ABC):
    """Of 0.28 and 0.29."""

    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True) -> None:
        self.client, self.source, self.is_sender = client, source, is_sender

    @classmethod
    @abstractmethod
    def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any: ...
    @abstractmethod
    def send_weights(self) -> None: ...


class _Factory:
    registry: ClassVar[dict[str, type]]

    @classmethod
    def register_engine(cls, name: str, engine: type) -> None:
        if name in cls.registry:
            raise ValueError(f"Weight transfer engine '{name}' is already registered.")
        cls.registry[name] = engine


def modules(release: str) -> dict[str, ModuleType]:
    """The modules of vLLM that have to do with it, by name."""
    engines = {"0.23": Engine023, "0.25": Engine025, "0.28": Engine028, "0.29": Engine028}
    base, factory, reload = (ModuleType(name) for name in ("base", "factory", "reload"))
    base.WeightTransferEngine = engines[release]
    factory.WeightTransferEngineFactory = _reader_factory(release)
    if release >= "0.28":
        base.TrainerWeightTransferEngine = TrainerEngine
        factory.WeightTransferTrainerFactory = _trainer_factory()
    reload.initialize_layerwise_reload = FusedModel.begin_reload
    reload.finalize_layerwise_reload = lambda model, model_config: model.end_reload()
    transfer, loader = ModuleType("weight_transfer"), ModuleType("model_loader")
    transfer.base, transfer.factory, loader.reload = base, factory, reload
    empty = ("vllm", "vllm.distributed", "vllm.model_executor")
    return {name: ModuleType(name) for name in empty} | {
        "vllm.distributed.weight_transfer": transfer,
        "vllm.distributed.weight_transfer.base": base,
        "vllm.distributed.weight_transfer.factory": factory,
        "vllm.model_executor.model_loader": loader,
        "vllm.model_executor.model_loader.reload": reload,
    }


def _reader_factory(release: str) -> type:
    class WeightTransferEngineFactory(_Factory):
        registry: ClassVar[dict[str, type]] = {}

        @classmethod
        def create_engine(cls, config: Any, *rest: Any) -> Any:
            return cls.registry[config.backend](config, *rest)

    return WeightTransferEngineFactory


def _trainer_factory() -> type:
    class WeightTransferTrainerFactory(_Factory):
        registry: ClassVar[dict[str, type]] = {}

        @classmethod
        def trainer_init(cls, init_info: Any, *, client: Any, source: Any = None) -> Any:
            made = cls.registry[init_info.backend]
            return made.trainer_init(init_info=init_info, client=client, source=source)

    return WeightTransferTrainerFactory


class Worker:
    """What a worker of vLLM does with its engine, by the calls of the API."""

    def __init__(self, release: str, model: FusedModel, checkpoint: str) -> None:
        """`vllm` is imported here: the stand-in has to be in sys.modules, or the real one."""
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

        self._reloads = release == "0.23"
        self._model = model
        parallel = SimpleNamespace(world_size=1)
        whole = SimpleNamespace(
            parallel_config=parallel, model_config=SimpleNamespace(model=checkpoint)
        )
        rest = (parallel, model) if self._reloads else (whole, torch.device("cpu"), model)
        config = SimpleNamespace(backend="sparsewire")
        self._engine = WeightTransferEngineFactory.create_engine(config, *rest)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        self._engine.init_transfer_engine(self._engine.parse_init_info(init_info))

    def start_weight_update(self) -> None:
        if self._reloads:
            self._model.begin_reload()
        else:
            self._engine.start_weight_update()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        if not self._reloads:
            self._engine.update_weights(update_info)
            return
        typed = self._engine.parse_update_info(update_info)
        assert typed.update_kind == "dense"
        self._engine.receive_weights(typed, load_weights=self._model.load_weights)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        if self._reloads:
            self._model.end_reload()
        else:
            self._engine.finish_weight_update()

    def shutdown(self) -> None:
        self._engine.shutdown()


def install(release: str) -> None:
    """Be vLLM in this process."""
    sys.modules.update(modules(release))
