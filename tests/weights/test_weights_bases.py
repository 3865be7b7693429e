"""What publishers and readers have: files, models of torch, arrays and rows of tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from arrays import LIMIT_S, assert_alike, step, weights
from test_weights_files import model, written

from sparsewire import SparseVector
from sparsewire.errors import (
    DataError,
    InputError,
    MismatchError,
)
from sparsewire.weights import Publisher, Receiver


def test_files_are_a_base_and_a_source(publisher: Publisher, tmp_path: Path) -> None:
    path = written(tmp_path / "old.safetensors", model())
    publisher.publish(path)
    before = path.read_bytes()
    with Receiver(publisher.address, path) as receiver:
        assert receiver.stage(timeout=LIMIT_S).apply().nbytes == 0
        new = model()
        new["large"][1].reshape(-1)[::97] += 1
        publisher.publish(written(tmp_path / "new.safetensors", new))
        receiver.stage(timeout=LIMIT_S).apply()
        assert receiver.tensors["large"].data.tobytes() == new["large"][1].tobytes()
    assert path.read_bytes() == before
    with pytest.raises(DataError):
        publisher.publish(tmp_path)


def test_a_model_beside_the_base(publisher: Publisher) -> None:
    fresh = weights()
    publisher.publish(fresh)
    model, other = weights(5), weights(6)
    with Receiver(publisher.address) as receiver:
        receiver.stage(timeout=LIMIT_S).apply(model)
        assert_alike(model, fresh)
        for number, target in enumerate([model, model, other, model]):
            step(fresh, number)
            publisher.publish(fresh)
            receiver.stage(timeout=LIMIT_S).apply(target)
            assert_alike(target, fresh)


def test_torch_models(publisher: Publisher) -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 8)
            self.norm = torch.nn.BatchNorm1d(8)
            self.head = torch.nn.Linear(8, 50, bias=False)
            self.head.weight = self.embedding.weight

    trained, read = Net().bfloat16(), Net().bfloat16()
    told = publisher.publish(trained)
    assert told.elements == 50 * 8 + 4 * 8 + 1
    with Receiver(publisher.address, read) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        with torch.no_grad():
            trained.embedding.weight[3] = -0.0
            trained.norm.bias[2] = float("nan")
        publisher.publish(trained)
        receiver.stage(timeout=LIMIT_S).apply(read)
    for name, tensor in trained.state_dict().items():
        other = read.state_dict()[name]
        assert tensor.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8)), name
    assert read.head.weight is read.embedding.weight
    untied = Net().bfloat16()
    untied.head.weight = torch.nn.Parameter(torch.zeros(50, 8, dtype=torch.bfloat16))
    with Receiver(publisher.address, untied) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        assert untied.head.weight.equal(trained.head.weight)
        assert untied.embedding.weight.equal(trained.embedding.weight)


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool"],
)
def test_dtypes_of_torch(publisher: Publisher, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    width = torch.empty(0, dtype=kind).element_size()
    bits = torch.randint(0, 2 if dtype == "bool" else 256, (3, 40 * width), dtype=torch.uint8)
    fresh = {"w": bits.view(kind)}
    publisher.publish(fresh)
    mine = {"w": torch.zeros(3, 40 * width, dtype=torch.uint8).view(kind)}
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        assert mine["w"].view(torch.uint8).equal(bits)
        bits[1, :width] = 1
        publisher.publish(fresh)
        receiver.stage(timeout=LIMIT_S).apply()
        assert mine["w"].view(torch.uint8).equal(bits)


def test_a_base_that_cannot_be_written() -> None:
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for wrong in (fixed, np.zeros((4, 4))[:, ::2]):
        with pytest.raises(InputError, match="cannot be written in place"):
            Receiver("127.0.0.1:1", {"a": wrong})
    with pytest.raises(InputError, match="no named tensors"):
        Receiver("127.0.0.1:1", 3)
    with pytest.raises(InputError, match="no valid port"):
        Receiver("127.0.0.1:x")


def test_rows_of_a_table(publisher: Publisher) -> None:
    table = np.random.default_rng(0).standard_normal((1000, 8)).astype(np.float32)
    mine = {"table": table.copy(), "line": np.zeros(5, np.int64)}
    publisher.publish(mine)
    rows = SparseVector([3, 700], np.ones((2, 8), np.float32), length=1000)
    line = SparseVector([4], np.array([7]), length=5)
    with Receiver(publisher.address, mine) as receiver:
        receiver.stage(timeout=LIMIT_S).apply()
        assert publisher.publish({"table": rows, "line": line}).changed == 17
        receiver.stage(timeout=LIMIT_S).apply()
    table[[3, 700]] = 1
    assert_alike(mine, {"table": table, "line": np.array([0, 0, 0, 0, 7])})
    with pytest.raises(MismatchError, match="give it whole"):
        publisher.publish({"other": rows}, complete=False)
    with pytest.raises(MismatchError, match=r"table has dtype F32 and shape \[1000, 8\]"):
        publisher.publish({"table": line}, complete=False)
    for wrong in ([3, 3], [-1, 3], [3, 1000]):
        vector = SparseVector(wrong, np.ones((2, 8), np.float32), length=1000)
        with pytest.raises(InputError, match="must ascend from 0 to 999"):
            publisher.publish({"table": vector}, complete=False)
    assert publisher.version == 1
