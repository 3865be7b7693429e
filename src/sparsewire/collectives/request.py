"""One call of a collective as a request, which is made and checked when the call comes in."""

from __future__ import annotations

import operator
import sys
from enum import Enum, auto
from importlib.util import find_spec
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from sparsewire._core import ALGORITHMS, COLLECTIVES, FORMS
from sparsewire.collectives.views import Precision
from sparsewire.purpose import Purpose
from sparsewire.sparse_vector import SparseVector

_RESULTS = ("sparse", "dense")
_OWNER_ALGORITHMS = {"auto", "stream", "ssar_split_allgather", "dsar_split_allgather"}
_EXACT = {"all_gather", "broadcast"}
"""Dense collectives that return the bits of one rank, which no precision may change."""
_SEEDS = 2**32
# DLPack's numbers for CUDA's device memory and managed memory.
_CUDA = (2, 13)


class Form(Enum):
    """The kind of an input and its place, which decide how a request is carried out."""

    DENSE = auto()
    SPARSE = auto()
    DEVICE_DENSE = auto()
    DEVICE_SPARSE = auto()


class Request(NamedTuple):
    """One call of a collective, as the caller made it. `Communicator.all_reduce` describes the
    fields; `root` counts only if the collective has one."""

    collective: str
    x: Any
    op: str = "sum"
    root: int = 0
    precision: Precision = None
    seed: int = 0
    out: Any = None
    algorithm: str = "auto"
    result: str | None = None

    @property
    def is_dense(self) -> bool:
        """Whether the result of a sparse input is a dense array."""
        return self.out is not None or self.result == "dense"

    def purpose(self, dtype: int, site: int) -> Purpose:
        """The purpose of the call. `dtype` is the code of the values, `site` the call's or 0."""
        form = FORMS["dense" if self.is_dense else "sparse"]
        return Purpose(COLLECTIVES[self.collective], self.root, dtype, form=form, site=site)

    def check(self, form: Form, world_size: int, dedicated: bool) -> None:
        """Raise TypeError or ValueError for options that do not suit an input of this form.

        With `dedicated` aggregators, ranks are not connected with each other.
        """
        # Most calls have the defaults.
        if self.root or type(self.root) is not int:
            _check_integer("root", self.root, world_size)
        if self.seed or type(self.seed) is not int:
            _check_integer("seed", self.seed, _SEEDS)
        if form is Form.DENSE or form is Form.DEVICE_DENSE:
            self._check_dense()
            if self.stages_dense(form):
                _check_staging(self.x)
        else:
            self._check_sparse(dedicated)
            if form is Form.DEVICE_SPARSE and self.out is not None:
                raise ValueError(f"out= is not for tensors on {self.x.device}: leave it out")

    def stages_dense(self, form: Form) -> bool:
        """Whether a dense input is brought to the host, which only all_reduce does."""
        return form is Form.DEVICE_DENSE and self.collective == "all_reduce"

    def _check_dense(self) -> None:
        if self.algorithm not in ("auto", "stream"):
            raise ValueError(f"algorithm {self.algorithm!r} is for sparse vectors: leave it out")
        if self.result not in (None, "dense"):
            raise ValueError(f"result {self.result!r} is for sparse vectors: leave it out")
        if self.precision is not None and self.collective in _EXACT:
            raise ValueError("precision= is for sparse vectors here, or for sums: leave it out")

    def _check_sparse(self, dedicated: bool) -> None:
        if self.out is not None and self.result == "sparse":
            raise ValueError('out= is a dense array, but result="sparse": leave one of them out')
        if self.result not in (None, *_RESULTS):
            raise ValueError(f"result {self.result!r} is not known: use {' or '.join(_RESULTS)}")
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"algorithm {self.algorithm!r} is not known: use one of {', '.join(ALGORITHMS)}"
            )
        if self.collective == "reduce_scatter" and (dims := _sparse_dims(self.x)) != 1:
            raise ValueError(
                f"reduce_scatter takes a tensor with one sparse dimension, not {dims}: parts are "
                "ranges of positions. Make one dimension of them first"
            )
        if dedicated and self.algorithm not in _OWNER_ALGORITHMS:
            raise ValueError(
                f"algorithm {self.algorithm!r} needs connections between the workers, and with "
                f"dedicated aggregators there are none: use {', '.join(sorted(_OWNER_ALGORITHMS))}"
            )


def form_of(x: Any) -> Form:
    """The form of `x`: its kind and its place. An object that is no array counts as dense."""
    if isinstance(x, np.ndarray):
        return Form.DENSE
    if isinstance(x, SparseVector):
        return Form.SPARSE
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _form_of_tensor(x, torch)
    return Form.DEVICE_DENSE if _is_in_cuda_memory(x) else Form.DENSE


def _form_of_tensor(x: Any, torch: Any) -> Form:
    from sparsewire.device.accelerator import is_on_device

    if x.layout is torch.sparse_coo:
        return Form.DEVICE_SPARSE if is_on_device(x) else Form.SPARSE
    return Form.DEVICE_DENSE if is_on_device(x) else Form.DENSE


def _is_in_cuda_memory(x: Any) -> bool:
    if hasattr(x, "__cuda_array_interface__"):
        return True
    return hasattr(x, "__dlpack_device__") and int(x.__dlpack_device__()[0]) in _CUDA


def _sparse_dims(x: Any) -> int:
    return 1 if isinstance(x, SparseVector) else int(x.sparse_dim())


def _check_staging(x: Any) -> None:
    """Raise TypeError if torch is missing, which brings arrays of devices to the host."""
    if find_spec("torch") is None:
        raise TypeError(
            f"{type(x).__name__} is on a GPU, and torch, which brings it to the host, is not "
            "installed: install torch, or pass an array in CPU memory"
        )


def _check_integer(name: str, value: object, count: int) -> None:
    """Raise TypeError or ValueError for a value that is no integer from 0 to `count` - 1."""
    # `isinstance` with SupportsIndex takes as long as all other checks together.
    if type(value) is not int and not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if not 0 <= operator.index(value) < count:
        raise ValueError(f"{name} must be from 0 to {count - 1}, not {value}")
