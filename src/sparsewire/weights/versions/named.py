"""Named tensors of every kind that people have, as tensors of bytes in place: no copy is made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsewire.errors import InputError
from sparsewire.sparse_vector import SparseVector
from sparsewire.weights.versions.names import shown
from sparsewire.weights.versions.safetensors import METADATA
from sparsewire.weights.versions.tensors import FORMATS, Bytes, Tensor

if TYPE_CHECKING:
    import torch

Named = Iterable[tuple[str, Any]]

# As torch and NumPy (with ml_dtypes) name them.
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
    "int64": "I64",
    "uint64": "U64",
    "int32": "I32",
    "uint32": "U32",
    "int16": "I16",
    "uint16": "U16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    # torch's shape counts the bytes, of two elements each, and that of safetensors elements.
    "float4_e2m1fn_x2": "F4",
    # Two elements a byte, which nobody addresses one by one.
    "int4": "U8",
    "uint4": "U8",
}


def items_of(weights: Any) -> Named:
    """The names and tensors of a module, a mapping, or an iterable of pairs.

    Raises InputError for anything else.
    """
    if hasattr(weights, "state_dict"):
        weights = weights.state_dict()
    if isinstance(weights, Mapping):
        return weights.items()
    if isinstance(weights, Iterable) and not isinstance(weights, (str, bytes)):
        return weights
    raise InputError(
        f"{type(weights).__name__} has no named tensors: give a module, a state_dict, a mapping of "
        "names to tensors, or an iterable of (name, tensor)"
    )


def tensor_of(name: str, value: Any) -> Tensor:
    """The bytes of a tensor or an array in C order, in place where they lie so already.

    A tensor of torch that is elsewhere than in host memory is copied, and so is an array whose
    bytes are in the other order: safetensors has little-endian ones. Raises InputError.
    """
    if isinstance(value, Tensor):
        return value
    if type(value).__module__.partition(".")[0] == "torch" or hasattr(value, "untyped_storage"):
        return _of_torch(name, value)
    array = np.asarray(value)
    dtype = _dtype(name, array.dtype.name)
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return Tensor(dtype, array.shape, _bytes(ordered))


def place_of(name: str, value: Any) -> Tensor:
    """The bytes of a tensor or an array as memory to write to. Raises InputError."""
    tensor = tensor_of(name, value)
    is_elsewhere = not np.shares_memory(tensor.data, _memory(value)) if len(tensor.data) else False
    if is_elsewhere or (len(tensor.data) and not tensor.data.flags.writeable):
        raise InputError(
            f"{shown(name)} cannot be written in place: it has to lie in host memory, writable and "
            "in one piece. Apply to a mapping of such tensors, and copy what changed from there"
        )
    return tensor


def _memory(value: Any) -> Bytes:
    if isinstance(value, Tensor):
        return value.data
    if hasattr(value, "untyped_storage"):
        import torch

        storage = value.untyped_storage()
        if value.device.type != "cpu":
            return np.empty(0, np.uint8)
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        return np.asarray(whole.numpy())
    is_in_one = isinstance(value, np.ndarray) and value.flags.c_contiguous
    return _bytes(value) if is_in_one else np.empty(0, np.uint8)


def _of_torch(name: str, value: torch.Tensor) -> Tensor:
    import torch

    dtype = _dtype(name, str(value.dtype).removeprefix("torch."))
    if value.is_meta or value.layout is not torch.strided:
        raise InputError(
            f"{shown(name)} is on the device {value.device} in the layout {value.layout}: only "
            "dense tensors that have their values can be compared"
        )
    plain = value.detach()
    if plain.is_conj() or plain.is_neg():
        plain = plain.resolve_conj().resolve_neg()
    plain = plain.cpu().contiguous()
    shape = _counted(dtype, tuple(plain.shape))
    if not plain.numel():
        return Tensor(dtype, shape, np.empty(0, np.uint8))
    return Tensor(dtype, shape, plain.reshape(-1).view(torch.uint8).numpy())


def _bytes(array: np.ndarray[Any, Any]) -> Bytes:
    if not array.size:
        return np.empty(0, np.uint8)
    return array.reshape(-1).view(np.uint8)


def _dtype(name: str, found: str) -> str:
    if found not in _DTYPES:
        raise InputError(
            f"{shown(name)} has dtype {found}, which is not known: use one of {known()}"
        )
    return _DTYPES[found]


def known() -> str:
    return ", ".join(name for name, dtype in _DTYPES.items() if dtype in FORMATS)


def aliases_among(weights: Mapping[str, Any]) -> dict[str, str]:
    """Names of tensors that are the same memory as one before: alias to first name.

    Only tensors of torch that exist at the same time, such as tied weights, can be told so.
    """
    first: dict[tuple[object, ...], str] = {}
    aliases: dict[str, str] = {}
    for name, value in weights.items():
        if not hasattr(value, "untyped_storage") or not value.numel() or not _has_place(value):
            continue
        place = (
            str(value.device),
            value.data_ptr(),
            value.dtype,
            tuple(value.shape),
            value.stride(),
        )
        owner = first.setdefault(place, name)
        if owner != name:
            aliases[name] = owner
    return aliases


def _has_place(value: torch.Tensor) -> bool:
    import torch

    return value.layout is torch.strided and not value.is_meta


def distinct(weights: Any) -> tuple[Iterator[tuple[str, Tensor | SparseVector]], dict[str, str]]:
    """Each tensor once, as bytes, or the rows given of it; and aliases: second names of tied ones.

    Tensors are made one at a time, as the iterator is asked. Raises InputError.
    """
    items = items_of(weights)
    if hasattr(weights, "state_dict"):
        weights = dict(items)
        items = weights.items()
    aliases = aliases_among(weights) if isinstance(weights, Mapping) else {}
    return _tensors(items, aliases), aliases


def _tensors(
    items: Named, aliases: Mapping[str, str]
) -> Iterator[tuple[str, Tensor | SparseVector]]:
    for item in items:
        try:
            name, value = item
        except (TypeError, ValueError):
            raise InputError(f"{item!r:.80} is no pair of a name and a tensor") from None
        check_name(name)
        if name not in aliases:
            yield name, value if isinstance(value, SparseVector) else tensor_of(name, value)


def check_name(name: object) -> None:
    """Raise InputError for what a file of safetensors cannot call a tensor."""
    if not isinstance(name, str):
        raise InputError(f"{name!r:.80} is no name: the names of tensors are strings")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InputError(f"{name!r:.80} is no name: it is not Unicode throughout") from None
    if name == METADATA:
        raise InputError(f"{name} is no name: files of safetensors tell of themselves there")


def _counted(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in elements."""
    return (*shape[:-1], 2 * math.prod(shape[-1:])) if dtype == "F4" else shape


def _stored(tensor: Tensor) -> tuple[int, ...]:
    """The shape in bytes of two elements, of a tensor F4; else the shape."""
    shape = tensor.shape
    if tensor.dtype == "F4" and shape and shape[-1] % 2 == 0:
        return (*shape[:-1], shape[-1] // 2)
    return shape if tensor.format.bits >= 8 else tensor.data.shape


def as_torch(tensor: Tensor) -> torch.Tensor:
    """A tensor of torch over the same memory. Raises InputError for a dtype that it lacks."""
    import torch

    dtype = getattr(torch, _name_of(tensor.dtype), None)
    if dtype is None:
        raise InputError(f"this torch has no dtype for {tensor.dtype}")
    if not len(tensor.data):
        return torch.empty(_stored(tensor), dtype=dtype)
    return torch.from_numpy(tensor.data).view(dtype).reshape(_stored(tensor))


def as_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """An array over the same memory; of dtypes that NumPy lacks the bits, as unsigned integers."""
    try:
        dtype = np.dtype(_name_of(tensor.dtype))
    except TypeError:
        dtype = np.dtype(f"u{tensor.format.width}")
    return tensor.data.view(dtype).reshape(_stored(tensor))


def _name_of(dtype: str) -> str:
    """As torch and NumPy name it, if they do."""
    return next((name for name, each in _DTYPES.items() if each == dtype), dtype)
