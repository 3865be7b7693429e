"""Begins profiles: of a model in a script, or of the first one that a process gives to DDP."""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
import platform
import sys
from itertools import count
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from sparsewire.errors import InputError
from sparsewire.profile.company import Company
from sparsewire.profile.ending import Ending
from sparsewire.profile.observer import Observer
from sparsewire.profile.records import machine
from sparsewire.profile.records.marks import BLOCK
from sparsewire.profile.records.output import Output
from sparsewire.profile.records.plan import DIRECTORY, Plan
from sparsewire.profile.records.recorded import Parameter, RankProfile
from sparsewire.profile.taps.optimizer_tap import OptimizerTap
from sparsewire.profile.taps.table_tap import TableTap, table_classes
from sparsewire.profile.taps.taps import GradientTap, GroupTap, HookTap

_logger = logging.getLogger(__name__)


class Profile:
    """A profile that is being recorded, until its last step, `close`, or the end of a `with`."""

    def __init__(self, observer: Observer, output: Output, directory: Path) -> None:
        self._observer, self._output, self._directory = observer, output, directory
        atexit.register(self._tell)

    @property
    def is_over(self) -> bool:
        """Whether it records no more."""
        return self._observer.is_over

    def close(self) -> None:
        """Record no more, and write the files: on all ranks behind the same step. Idempotent."""
        self._observer.close()

    def __enter__(self) -> Profile:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.close()
        return False

    def _tell(self) -> None:
        self.close()
        if self._output.is_first_rank and self._output.steps:
            print(
                f"sparsewire: {self._output.steps} steps are recorded in {self._directory}; next: "
                f"sparsewire advise {self._directory} --link 10gbit --hosts 8",
                file=sys.stderr,
                flush=True,
            )


_numbers = count()
_profiles: WeakKeyDictionary[nn.Module, Profile] = WeakKeyDictionary()


def profile(
    model: nn.Module,
    directory: str | Path = DIRECTORY,
    *,
    steps: int = 50,
    warmup: int = 5,
    every: int | None = None,
    trace: bool = False,
) -> Profile:
    """Record how dense a model's gradients are, and what a step's time goes to; docs/profile.md.

    `model` is a DistributedDataParallel, on every rank, or any module on one. `steps` steps are
    recorded, behind `warmup` others; in every `every`-th (None: as often as costs little) densities
    are sampled, and with `trace` masks are saved of some. Each rank writes into `directory`. A
    model that is being recorded already keeps its profile.

    Raises InputError where the model has a communication hook already, or no parameter to train,
    or where numbers make no sense. What fails later is logged, and ends the profile alone.
    """
    earlier = _profiles.get(model)
    if earlier is not None and not earlier.is_over:
        return earlier
    return _begin(model, Plan(Path(directory), steps, warmup, every, trace))


def attach(plan: Plan) -> None:
    """Record the first model that this process gives to DistributedDataParallel."""
    make: Any = DistributedDataParallel.__init__
    wanted = [plan]

    @functools.wraps(make)
    def make_and_observe(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        if wanted:
            try:
                _begin(self, wanted.pop())
            except Exception as error:
                _logger.warning("no profile is recorded: %s", error)

    setattr(DistributedDataParallel, "__init__", make_and_observe)  # noqa: B010


def _begin(model: nn.Module, plan: Plan) -> Profile:
    is_ddp = isinstance(model, DistributedDataParallel)
    named = _trained(model)
    if not named:
        raise InputError("the model has no parameter to train")
    if is_ddp and getattr(model, "_comm_hooks", None):
        raise InputError("begin the profile before the model's communication hook is registered")
    parameters = list(named.values())
    group: Any = model.process_group if is_ddp else None
    output = Output(plan, _described(model, named, group))
    company = _joined(group, plan)
    widths = {
        number: math.prod(told.shape[1:])
        for number, told in enumerate(output.profile.parameters)
        if told.table
    }
    observer = Observer(model, parameters, widths, plan, output, company)
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    optimizers = OptimizerTap(numbers, observer)
    observer.observe(optimizers)
    observer.observe(TableTap(model, numbers, observer), forward=True)
    observer.before_end(Ending(parameters, widths, output, optimizers).tell)
    if is_ddp:
        observer.observe(GroupTap(model, numbers, observer))
        observer.observe(HookTap(model, numbers, observer))
    else:
        observer.observe(GradientTap(parameters, observer))
    with observer.guarded():
        output.prepare()
    begun = _profiles[model] = Profile(observer, output, plan.directory)
    return begun


def _joined(group: Any, plan: Plan) -> Company | None:
    """The other ranks, None where there are none, or they cannot be told of this one."""
    if group is None or group.size() == 1:
        return None
    try:
        company = Company(group, plan, next(_numbers))
        company.join()
    except Exception as error:
        _logger.warning("the profile is of this rank alone: %s", error)
        return None
    return company


def _trained(model: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters that get gradients, in DDP's order, without its prefix."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    ignored = getattr(model, "parameters_to_ignore", ())
    return {
        name: parameter
        for name, parameter in inner.named_parameters()
        if parameter.requires_grad and name not in ignored
    }


def _described(model: nn.Module, named: dict[str, torch.Tensor], group: Any) -> RankProfile:
    sparse = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse
    }
    classes = table_classes(model)
    return RankProfile(
        rank=0 if group is None else group.rank(),
        world_size=1 if group is None else group.size(),
        host=platform.node(),
        local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        backend="none" if group is None else str(dist.get_backend(group)),
        torch=torch.__version__,
        block=BLOCK,
        parameters=[
            Parameter(
                name,
                list(parameter.shape),
                str(parameter.dtype).removeprefix("torch."),
                id(parameter) in sparse,
                classes.get(id(parameter)),
            )
            for name, parameter in named.items()
        ],
        steps=[],
        machine=machine.identity(),
        cores=machine.cores(),
        views=bool(getattr(model, "gradient_as_bucket_view", False)),
    )
