"""Dtypes whose elements share bytes, as the library safetensors has them; and odd names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from sparsewire.errors import DataError, InputError
from sparsewire.tools.cli.main import app
from sparsewire.weights.versions.named import as_numpy, as_torch, tensor_of
from sparsewire.weights.versions.names import file_name, shown
from sparsewire.weights.versions.snapshot import Snapshot
from sparsewire.weights.versions.tensors import Tensor

Model = dict[str, tuple[str, list[int], bytes]]
"""Tensors by name: dtype, shape and bytes."""


def written(path: Path, tensors: Model) -> Path:
    entries, end = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        begin, end = end, end + len(data)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    data = b"".join(data for *_, data in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def model() -> Model:
    random = np.random.default_rng(0)
    return {
        "four": ("F4", [20, 80], random.bytes(800)),
        "six": ("F6_E2M3", [4, 3], random.bytes(9)),
        "sixth": ("F6_E3M2", [4], random.bytes(3)),
        "none": ("F4", [0, 3], b""),
    }


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["weights", *map(str, arguments)])


def test_the_library_reads_them_alike(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    path = written(tmp_path / "model", model())
    ours = Snapshot(path)
    for name, theirs in library.deserialize(path.read_bytes()):
        tensor = ours.get(name)
        assert tensor
        assert (tensor.dtype, list(tensor.shape)) == (theirs["dtype"], theirs["shape"])
        assert tensor.data.tobytes() == bytes(theirs["data"])
        assert tensor.elements == len(tensor.data)


@pytest.mark.parametrize(
    ("dtype", "shape", "data"), [("F4", [3], b"ab"), ("F4", [3], b"a"), ("F6_E2M3", [3], b"abc")]
)
def test_elements_fill_their_bytes(
    tmp_path: Path, dtype: str, shape: list[int], data: bytes
) -> None:
    path = written(tmp_path / "model", {"four": (dtype, shape, data)})
    with pytest.raises(DataError, match="its shape does not fit"):
        Snapshot(path)
    library = pytest.importorskip("safetensors")
    with pytest.raises(library.SafetensorError):
        library.deserialize(path.read_bytes())


def test_deltas_come_back(tmp_path: Path) -> None:
    old = written(tmp_path / "old", model())
    dtype, shape, data = model()["four"]
    new = written(tmp_path / "new", {**model(), "four": (dtype, shape, data[:-8] + bytes(8))})
    assert invoke("diff", old, new, "-o", tmp_path / "delta").exit_code == 0
    told = invoke("show", tmp_path / "delta")
    assert "800" in told.output
    assert "1.00%" in told.output
    assert invoke("apply", old, tmp_path / "delta", "-o", tmp_path / "made").exit_code == 0
    assert (tmp_path / "made").read_bytes() == new.read_bytes()


def test_odd_names_are_one_line(tmp_path: Path) -> None:
    name = "a\nb\x1b[31m\u202e[bold]\ud800"
    told = "'a\\nb\\x1b[31m\\u202e[bold]\\ud800'"
    assert shown(name) == told
    assert shown("model.layers.0.weight") == "model.layers.0.weight"
    old = written(tmp_path / "old", {name: ("U8", [4], b"abcd")})
    new = written(tmp_path / "new", {name: ("U8", [4], b"abxd")})
    assert invoke("diff", old, new, "-o", tmp_path / "delta").exit_code == 0
    assert told in invoke("show", tmp_path / "delta").output
    odd = written(tmp_path / "odd", {name: ("U8", [5], b"abcd")})
    with pytest.raises(DataError) as caught:
        Snapshot(odd)
    assert told in str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0", 7])
def test_names_of_files_stay_in_their_directory(name: object) -> None:
    with pytest.raises(ValueError, match="is no name of a file"):
        file_name(name)


def test_tensors_of_torch_are_the_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no F4")
    bytes_ = torch.arange(8, dtype=torch.uint8).reshape(2, 4)
    library.save_file({"four": bytes_.view(torch.float4_e2m1fn_x2)}, tmp_path / "model")
    stored = Snapshot(tmp_path / "model").tensors["four"]
    given = tensor_of("four", bytes_.view(torch.float4_e2m1fn_x2))
    assert (given.dtype, given.shape) == (stored.dtype, stored.shape) == ("F4", (2, 8))
    assert (given.data == stored.data).all()
    back = as_torch(given)
    assert back.dtype is torch.float4_e2m1fn_x2
    assert torch.equal(back.view(torch.uint8), bytes_)
    assert (as_numpy(given) == bytes_.numpy()).all()


def test_what_torch_has_no_dtype_for_is_refused() -> None:
    pytest.importorskip("torch")
    six = Tensor("F6_E2M3", (2, 2), np.arange(3, dtype=np.uint8))
    with pytest.raises(InputError, match="no dtype for F6_E2M3"):
        as_torch(six)
    assert (as_numpy(six) == [0, 1, 2]).all()
