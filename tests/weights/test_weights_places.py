"""Places of parts: keys come back exact, and ranks' parts make the whole tensor, each bit once."""

from __future__ import annotations

import math
import multiprocessing
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import run_ranks

from sparsewire.errors import DataError
from sparsewire.weights.shards.placements import Cut, _cut_by, _is_clear, own_parts, parts_of
from sparsewire.weights.shards.places import DIMENSIONS_MAX, Part, Place, check_complete, part

# PyTorch is imported by a process of its own, which takes long on a busy machine.
pytestmark = pytest.mark.timeout(180)

names = st.text(min_size=1, max_size=8) | st.sampled_from(["w[0:4]", "a]", "[", "w[]", "w[0]"])


@st.composite
def places(draw: st.DrawFn) -> Place:
    shape = draw(st.lists(st.integers(0, 40) | st.integers(0, 2**40), max_size=4).map(tuple))
    if math.prod(shape) > 2**62:
        shape = shape[:1]
    begin = tuple(draw(st.integers(0, size)) for size in shape)
    end = tuple(draw(st.integers(b, size)) for b, size in zip(begin, shape, strict=True))
    return Place(draw(names), shape, begin, end)


@given(places())
def test_a_key_comes_back_as_its_place(place: Place) -> None:
    place.check()
    assert Place.parse(place.key, place.extent) == place


@given(st.lists(places(), max_size=6))
def test_places_have_keys_of_their_own(found: list[Place]) -> None:
    # Of parts with one extent: keys that are names alone leave it to the part.
    told = {(place, place.extent) for place in found}
    assert len({(place.key, place.extent) for place in found}) == len(told)


def test_keys_are_short() -> None:
    assert Place("layers.0.w", (1024, 64), (0, 0), (512, 64)).key == "layers.0.w[0:512/1024,0:64]"
    assert Place.whole("w", (3, 4)).key == "w"
    assert Place.whole("w[0:3]", (4,)).key == "w[0:3][0:4]"
    assert Place.whole("w[0:3]", ()).key == "w[0:3][]"


@pytest.mark.parametrize(
    "key",
    [
        "w[0:4]",  # The key of the whole is its name.
        "w[0:4/4]",
        "w[00:4/8]",
        "w[0:4/3]",
        "w[0:\N{SUPERSCRIPT TWO}/8]",
        "w[0:\N{ARABIC-INDIC DIGIT FOUR}/8]",
        "w[0:4/8,]",
        "w[ 0:4/8]",
        "w[5:4/8]",
        "w[-1:3/8]",
        "w[]",
        "w]",
        "]",
        "w[4]",
        "w[0:5/8]",  # Another extent than the part's.
        "w[0:4/8,0:1]",
        f"w[0:4/{10**19}]",
        f"w[0:4/{10**18},0:{10**18}]",
        f"w[{','.join(['0:1'] * (DIMENSIONS_MAX + 1))}]",
        f"w[{'0:1,' * 100_000}0:1]",
        f"w[0:{'9' * 100_000}]",
    ],
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(DataError):
        Place.parse(key, (4,))


@given(st.text(alphabet="w[]0129:/,", max_size=20), st.lists(st.integers(0, 3), max_size=3))
def test_any_text_is_the_key_of_one_place_or_of_none(key: str, extent: list[int]) -> None:
    try:
        place = Place.parse(key, extent)
    except DataError:
        return
    assert (place.key, place.extent) == (key, tuple(extent))


def test_a_part_without_dtensors() -> None:
    made = part("w", np.zeros((2, 3)), (4, 6), (2, 3))
    assert made.place == Place("w", (4, 6), (2, 3), (4, 6))
    assert made.item[0] == "w[2:4,3:6]"


@pytest.mark.parametrize("begin", [(3, 0), (0, 4), (-1, 0), (0,), (0, 0, 0)])
def test_a_part_outside_is_refused(begin: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="w"):
        part("w", np.zeros((2, 3)), (4, 6), begin)


@given(st.data())
def test_parts_are_complete_when_each_element_is_in_one(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), max_size=2).map(tuple))
    found = []
    for _ in range(data.draw(st.integers(1, 4))):
        begin = tuple(data.draw(st.integers(0, size)) for size in shape)
        ends = zip(begin, shape, strict=True)
        found.append(Place("w", shape, begin, tuple(data.draw(st.integers(a, b)) for a, b in ends)))
    counts = np.zeros(shape, int)
    for place in found:
        counts[tuple(map(slice, place.begin, place.end))] += 1
    if (counts == 1).all():
        check_complete(found)
    else:
        with pytest.raises(DataError, match="w"):
            check_complete(found)


def test_incomplete_parts_are_told() -> None:
    halves = [Place("w", (4, 2), (0, 0), (2, 2)), Place("w", (4, 2), (2, 0), (4, 2))]
    check_complete([*halves, Place.whole("b", (3,))])
    with pytest.raises(DataError, match="4 elements of w are in no part"):
        check_complete(halves[:1])
    with pytest.raises(DataError, match=r"the same elements: w\[0:2/4,0:2\] and w"):
        check_complete([*halves, Place.whole("w", (4, 2))])
    with pytest.raises(DataError, match="several shapes"):
        check_complete([*halves, Place.whole("w", (4, 3))])


def assembled(parts: list[Part]) -> dict[str, np.ndarray[Any, Any]]:
    """The whole tensors; every element must be there exactly once."""
    whole: dict[str, np.ndarray[Any, Any]] = {}
    seen: dict[str, np.ndarray[Any, Any]] = {}
    for place, data in parts:
        box = tuple(slice(a, b) for a, b in zip(place.begin, place.end, strict=True))
        data = np.asarray(data)
        assert data.shape == place.extent
        whole.setdefault(place.name, np.zeros(place.shape, data.dtype))[box] = data
        seen.setdefault(place.name, np.zeros(place.shape, int))[box] += 1
    assert all((counts == 1).all() for counts in seen.values())
    return whole


def on_host(parts: list[Part]) -> list[Part]:
    return [Part(each.place, each.data.detach().numpy().copy()) for each in parts]


def plain(*shape: int) -> Any:
    import torch

    return torch.arange(math.prod(shape), dtype=torch.int32).reshape(shape)


LAYOUTS = {
    "rows": ((5,), "S0"),
    "few rows": ((3,), "S0"),
    "columns": ((4, 7), "S1"),
    "rows and columns": ((9, 7), "S0 S1"),
    "rows twice": ((11, 3), "S0 S0"),
    "columns and rows": ((9, 7), "S1 S0"),
    "copies": ((4, 3), "R R"),
    "copies of rows": ((7, 3), "R S0"),
    "rows of copies": ((7, 3), "S0 R"),
    "strided": ((8, 3), "T0 S0"),
    "strided, one each": ((4, 3), "T0 S0"),
    "strided, uneven": ((10, 3), "T0 S0"),
    "strided, apart": ((8, 3), "T0"),
    "empty": ((0, 3), "S0"),
    "empty, columns": ((0, 3), "S1 S0"),
    "scalar": ((), "R"),
}


def placed(text: str) -> list[Any]:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    def one(word: str) -> Any:
        if word == "R":
            return Replicate()
        return (
            _StridedShard(int(word[1]), split_factor=2) if word[0] == "T" else Shard(int(word[1]))
        )

    return [one(word) for word in text.split()]


def parts_by_placements() -> dict[str, list[Part]]:
    """What this rank of four has of every layout."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    meshes = {1: init_device_mesh("cpu", (4,)), 2: init_device_mesh("cpu", (2, 2))}
    found = {}
    for name, (shape, text) in LAYOUTS.items():
        mesh = meshes[len(text.split())]
        tensor = distribute_tensor(plain(*shape), mesh, placed(text), src_data_rank=None)
        found[name] = on_host(parts_of(name, tensor))
    return found


def sharded_model() -> tuple[Any, Any, dict[str, Any]]:
    """A model under FSDP2 beside tensor parallelism, its mesh of 2 by 2 ranks, and its weights."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import parallel

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 5), nn.LayerNorm(5))
    model.register_buffer("steps", torch.tensor(7))
    before = {name: each.detach().numpy().copy() for name, each in model.state_dict().items()}
    styles = {"0": parallel.ColwiseParallel(), "2": parallel.RowwiseParallel()}
    parallel.parallelize_module(model, mesh["tensor"], styles, src_data_rank=None)
    fully_shard(model, mesh=mesh["data"])
    return model, mesh, before


def own(weights: Any, mesh: Any) -> list[tuple[str, Any]]:
    return [(key, each.detach().numpy().copy()) for key, each in own_parts(weights, mesh)]


def parts_of_fsdp() -> dict[str, Any]:
    model, mesh, before = sharded_model()
    return {"before": before, "own": own(model, mesh), "no mesh": own(model, None)} | trained(
        model, mesh
    )


def trained(model: Any, mesh: Any) -> dict[str, Any]:
    """After a step: this rank's parts, and the model as PyTorch gathers it."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()
    full = {
        name: (each.full_tensor() if hasattr(each, "full_tensor") else each).detach().numpy()
        for name, each in model.state_dict().items()
    }
    return {"after": full, "own after": own(model, mesh)}


def refusals() -> dict[str, str]:
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

    line, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    cases = {
        "partial": (torch.ones(3), line, [Partial()], (3,)),
        "partial of copies": (torch.ones(3), square, [Replicate(), Partial()], (3,)),
        "other size": (torch.ones(3, 2), line, [Shard(0)], (4, 2)),
        "unknown split": (torch.ones(2), line, placed("T0"), (9,)),
    }
    told = {}
    for name, (local, mesh, placements, shape) in cases.items():
        stride = (2, 1) if len(shape) == 2 else (1,)
        made = DTensor.from_local(
            local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
        )
        try:
            told[name] = str(parts_of("layer.w", made))
        except DataError as error:
            told[name] = f"refused: {error}"
    return told


class OfRank(NamedTuple):
    layouts: dict[str, list[Part]]
    model: dict[str, Any]
    refused: dict[str, str]


def of_rank(rank: int, store: str) -> OfRank:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=4)
    try:
        return OfRank(parts_by_placements(), parts_of_fsdp(), refusals())
    finally:
        dist.destroy_process_group()


def of_ranks(store: str) -> list[OfRank]:
    """What each of four ranks has: forks of this process, since each import of PyTorch is slow."""
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401

    with multiprocessing.get_context("fork").Pool(4) as pool:
        return pool.starmap(of_rank, [(rank, store) for rank in range(4)], chunksize=1)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[OfRank]:
    pytest.importorskip("torch")
    store = tmp_path_factory.mktemp("ranks") / "store"
    (found,) = run_ranks(1, of_ranks, str(store), deadline_s=150)
    return list(found)


@pytest.mark.parametrize("name", LAYOUTS)
def test_parts_of_all_ranks_make_the_tensor(ranks: list[OfRank], name: str) -> None:
    parts = [each for rank in ranks for each in rank.layouts[name]]
    shape, _ = LAYOUTS[name]
    whole = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    np.testing.assert_array_equal(assembled(parts)[name], whole)


def test_a_strided_shard_that_lies_apart_has_two_parts(ranks: list[OfRank]) -> None:
    assert [each.place.key for each in ranks[0].layouts["strided, apart"]] == [
        "strided, apart[0:1/8,0:3]",
        "strided, apart[4:5/8,0:3]",
    ]


def test_only_the_first_of_copies_publishes(ranks: list[OfRank]) -> None:
    assert [len(rank.layouts["copies"]) for rank in ranks] == [1, 0, 0, 0]
    assert [len(rank.layouts["copies of rows"]) for rank in ranks] == [1, 1, 0, 0]


def check_model(published: list[list[tuple[str, Any]]], expected: dict[str, Any]) -> None:
    """What all ranks publish is the model, and none has much more than its share."""
    parts = [Part(Place.parse(key, each.shape), each) for own in published for key, each in own]
    whole = assembled(parts)
    assert whole.keys() == expected.keys()
    for name, each in expected.items():
        np.testing.assert_array_equal(whole[name], each)
    elements = [sum(each.size for _, each in own) for own in published]
    assert max(elements) < 0.4 * sum(each.size for each in expected.values())


def test_parts_of_fsdp_and_tensor_parallelism_make_the_model(ranks: list[OfRank]) -> None:
    check_model([rank.model["own"] for rank in ranks], ranks[0].model["before"])


def test_parts_after_training_make_the_model(ranks: list[OfRank]) -> None:
    model = ranks[0].model
    assert (model["after"]["0.weight"] != model["before"]["0.weight"]).any()
    check_model([rank.model["own after"] for rank in ranks], model["after"])


def test_without_their_mesh_ranks_cannot_tell_who_is_first(ranks: list[OfRank]) -> None:
    keys = Counter(key for rank in ranks for key, _ in rank.model["no mesh"])
    assert keys["0.weight[0:3/12,0:6]"] == 1
    assert keys["3.weight[0:3/5]"] == 2
    assert keys["steps"] == 4


def chunks(elements: list[int], count: int) -> list[list[int]]:
    """As torch.chunk divides, with empty ones at the end."""
    step = -(-len(elements) // count)
    return [elements[step * i : step * (i + 1)] for i in range(count)]


@given(st.integers(0, 40), st.integers(1, 5), st.integers(1, 4))
def test_strided_shards_are_those_of_fsdp_wherever_that_is_clear(
    size: int, data_ranks: int, tensor_ranks: int
) -> None:
    cuts = (Cut(data_ranks, tensor_ranks), Cut(tensor_ranks))
    shares = [chunks(share, data_ranks) for share in chunks([*range(size)], tensor_ranks)]
    found = [
        [
            [i for span in _cut_by(size, cuts, (data, tensor)) for i in range(*span)]
            for data in range(data_ranks)
        ]
        for tensor in range(tensor_ranks)
    ]
    assert _is_clear(size, cuts) == (found == shares or size % (data_ranks * tensor_ranks**2) == 0)


def test_uneven_strided_shards_that_are_not_clear() -> None:
    assert not _is_clear(9, (Cut(4, 2), Cut(2)))
    assert _is_clear(10, (Cut(2, 2), Cut(2)))


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("partial", "redistribute it"),
        ("partial of copies", "redistribute it"),
        ("other size", "should hold"),
        ("unknown split", "do not divide evenly"),
    ],
)
def test_what_nobody_can_place_is_refused(ranks: list[OfRank], case: str, says: str) -> None:
    for rank in ranks:
        assert rank.refused[case].startswith("refused: layer.w")
        assert says in rank.refused[case]
