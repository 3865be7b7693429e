"""Where a reader's weights live: a model, a mapping, a copy of files, or memory of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from sparsewire.errors import InputError, MismatchError
from sparsewire.weights.versions.fingerprint import Described
from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.named import as_numpy, as_torch, check_name, items_of, place_of
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.snapshot import Snapshot
from sparsewire.weights.versions.tensors import Tensor


class Home:
    """Tensors by name, writable in place. Names of tied tensors share their memory.

    Tensors that no publisher tells of, such as a model's buffers, stay as they are.
    """

    def __init__(self, tensors: Mapping[str, Tensor], what: str, weights: Any = None) -> None:
        """`weights` are the user's, if they can be looked at again."""
        self.tensors = dict(tensors)
        self._what = what
        self._weights = weights

    def check(self, spans: Mapping[str, Described]) -> None:
        """Raise MismatchError where it cannot take these tensors."""
        for name, span in spans.items():
            tensor = self.tensors.get(name)
            if tensor is None:
                self.check_new(name)
            elif (tensor.dtype, tensor.shape) != (span.dtype, span.shape):
                raise MismatchError(
                    f"{shown(name)} has dtype {span.dtype} and shape {list(span.shape)} at the "
                    f"publisher, and {tensor.dtype} and {list(tensor.shape)} in {self._what}: both "
                    "must be alike, as bits are sent"
                )

    def check_new(self, name: str) -> None:
        raise MismatchError(
            f"the publisher has {shown(name)}, and {self._what} has not: a module cannot get new "
            "tensors. Read into a mapping of names to tensors, or without a base"
        )

    def check_places(self) -> None:
        """Raise InputError where tensors of the user's lie elsewhere by now."""
        for name, value in () if self._weights is None else items_of(self._weights):
            own = self.tensors.get(name)
            if own is None or not len(own.data):
                continue
            if place_of(name, value).data.ctypes.data != own.data.ctypes.data:
                raise InputError(
                    f"{shown(name)} is another tensor in {self._what} than when the receiver was "
                    "made, as after `to` or `half`: make a new Receiver"
                )

    def check_files(self, names: Iterable[str]) -> None:
        """Raise DataError where it cannot make files of these names."""

    def begin(self) -> None:
        """Changes follow."""

    def finish(self, deltas: Sequence[Delta], version: int) -> None:
        """The tensors are those of `version`, which `deltas` told of."""

    def add(self, name: str, tensor: Tensor) -> None:
        """Take a new tensor, which `check` has found to be possible."""
        self.tensors[name] = tensor

    def remove(self, name: str) -> None:
        """The publisher has this tensor no more."""

    def close(self) -> None:
        """No changes follow."""


class Growing(Home):
    """Memory of the reader's own, or a copy of files: tensors come and go."""

    def check_new(self, name: str) -> None:
        pass

    def remove(self, name: str) -> None:
        self.tensors.pop(name, None)


class MappingHome(Growing):
    """A mapping of the user's: new tensors appear there, as arrays of the kind of the others."""

    def __init__(self, mapping: MutableMapping[str, Any]) -> None:
        super().__init__(_places(mapping), "the mapping", mapping)
        self._mapping = mapping
        self._is_torch = any(hasattr(each, "untyped_storage") for each in mapping.values())

    def add(self, name: str, tensor: Tensor) -> None:
        super().add(name, tensor)
        self._mapping[name] = (as_torch if self._is_torch else as_numpy)(tensor)

    def remove(self, name: str) -> None:
        super().remove(name)
        self._mapping.pop(name, None)


def home_of(base: Any) -> Home:
    """The home that a user names: a module, a mapping, a path of safetensors, or None.

    Files are not written to: what changes lies in memory. Raises InputError and DataError.
    """
    if base is None:
        return Growing({}, "the reader")
    if isinstance(base, Home):
        return base
    if isinstance(base, (str, Path)):
        return Growing(Snapshot(Path(base), "c").tensors, str(base))
    if isinstance(base, MutableMapping):
        return MappingHome(base)
    lasts = hasattr(base, "state_dict") or isinstance(base, Mapping)
    return Home(_places(base), "the model", base if lasts else None)


def _places(weights: Any) -> dict[str, Tensor]:
    places: dict[str, Tensor] = {}
    for name, value in items_of(weights):
        check_name(name)
        places[name] = place_of(name, value)
    return places
