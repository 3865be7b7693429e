"""Changes of trainers' shards reach readers' shards: as if both had the full tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparsewire._core import encode_delta
from sparsewire.errors import DataError, ProtocolError
from sparsewire.weights.shards.changes import Changes, as_bits, composed, moved, ordered
from sparsewire.weights.shards.layout import Layout
from sparsewire.weights.shards.parallel import column, gate_up, heads, qkv, row, vocabulary
from sparsewire.weights.shards.places import Place
from sparsewire.weights.shards.targets import HostTarget
from sparsewire.weights.shards.views import View, concatenated, stacked
from sparsewire.weights.shards.windows import boxes
from sparsewire.weights.versions.tensors import FORMATS, Format, Tensor

BF16 = FORMATS["BF16"]
Array = NDArray[Any]


def random_bits(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 2**16, shape, dtype=np.uint16)


def next_version(bits: Array, seed: int = 1, share: float = 0.2) -> Array:
    random = np.random.default_rng(seed)
    chosen = random.random(bits.shape) < share
    return np.where(chosen, bits + random.integers(1, 3, bits.shape, dtype=np.uint16), bits)


def target_of(bits: Array) -> HostTarget:
    own = np.array(bits, order="C")
    return HostTarget(Tensor("BF16", own.shape, own.reshape(-1).view(np.uint8)))


def bits_of(target: HostTarget) -> Array:
    return target.tensor.data.view(np.uint16).reshape(target.shape)


def cut(bits: Array, place: Place) -> Array:
    box = tuple(slice(a, b) for a, b in zip(place.begin, place.end, strict=True))
    return np.array(bits[box], order="C")


def codes(base: Array, fresh: Array, chunk: int) -> Iterator[tuple[int, int, bytes]]:
    """Where each chunk begins, its elements, and its code, as a publisher makes them."""
    old, new = base.reshape(-1), fresh.reshape(-1)
    for begin in range(0, len(new), chunk):
        piece = slice(begin, begin + chunk)
        yield begin, len(new[piece]), encode_delta(old[piece], new[piece], 2, True)[0]


def publish(
    layout: Layout,
    targets: dict[str, HostTarget],
    place: Place,
    base: Array | None,
    fresh: Array,
    chunk: int = 7,
) -> int:
    """Write what changed in a part to all targets; the elements that were written."""
    route, written, new = layout.route(place), 0, cut(fresh, place)
    old = np.zeros_like(new) if base is None else cut(base, place)
    for begin, count, code in codes(old, new, chunk):
        changes = Changes.of(code, count, BF16)
        if base is None:
            changes = changes.over_zeros(count, BF16)
        for each in route.writes(targets, "BF16", begin, changes):
            each.write()
            each.write()  # Twice is once.
            written += np.size(each.bits)
    return written


@st.composite
def cuts(draw: st.DrawFn, shape: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Boxes that make up a tensor of this shape."""
    bounds = [
        sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape
    ]
    grid: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for each in bounds:
        spans = [*pairwise(each)] or [(0, 0)]
        grid = [((*low, a), (*high, b)) for low, high in grid for a, b in spans]
    return grid


def assembled(view: View, sources: dict[str, Array]) -> Array:
    """What the view is, by plain loops over elements; zeros where nothing is published."""
    whole = np.zeros(view.shape, np.uint16)
    for piece in view.pieces:
        for at in np.ndindex(piece.extent):
            source, own = list(piece.source_begin), list(piece.view_begin)
            for back, offset in enumerate(reversed(at), 1):
                source[-back] += offset
                own[-back] += offset
            whole[tuple(own)] = sources[piece.source][tuple(source)]
    return whole


SIZES = st.integers(1, 5)


@st.composite
def views(draw: st.DrawFn, sources: dict[str, Array]) -> tuple[View, Array]:
    """A view and what NumPy says that it is."""
    name = draw(st.sampled_from(sorted(sources)))
    view, array = View.whole(name, sources[name].shape), sources[name]
    for _ in range(draw(st.integers(0, 4))):
        view, array = draw(changed(view, array))
    return view, array


@st.composite
def changed(draw: st.DrawFn, view: View, array: Array) -> tuple[View, Array]:
    """The view after one operation on views, and the array after the same one."""
    kind = draw(st.sampled_from(["narrow", "stack", "beside", "select", "pad", "shard"]))
    if kind == "stack":
        return stacked([view, view]), np.stack([array, array])
    if not array.ndim:
        return view, array
    dim = draw(st.integers(0, array.ndim - 1))
    size = array.shape[dim]
    before = (slice(None),) * dim
    if kind == "narrow":
        begin = draw(st.integers(0, size))
        end = draw(st.integers(begin, size))
        return view.narrow(dim, begin, end), array[(*before, slice(begin, end))]
    if kind == "beside":
        return concatenated([view, view], dim), np.concatenate([array, array], dim)
    if kind == "select" and len(array):
        index = draw(st.integers(0, len(array) - 1))
        return view.select(index), array[index]
    if kind == "pad":
        width = [(0, 1 if each == dim else 0) for each in range(array.ndim)]
        return view.pad(dim, size + 1), np.pad(array, width)
    if kind == "shard" and size % 2 == 0:
        return view.shard(dim, 1, 2), array[(*before, slice(size // 2, size))]
    return view, array


@st.composite
def models(draw: st.DrawFn) -> dict[str, Array]:
    shapes = draw(st.lists(st.lists(SIZES, max_size=3).map(tuple), min_size=1, max_size=3))
    return {f"t{i}": random_bits(shape, i) for i, shape in enumerate(shapes)}


@given(st.data())
def test_a_view_is_what_numpy_makes_of_the_same_operations(data: st.DataObject) -> None:
    sources = data.draw(models())
    view, array = data.draw(views(sources))
    assert view.shape == array.shape
    np.testing.assert_array_equal(assembled(view, sources), array)


@given(st.data(), st.sampled_from([0.1, 0.5, 1.0]), st.integers(1, 40))
def test_changes_of_parts_make_the_readers_tensors(
    data: st.DataObject, share: float, chunk: int
) -> None:
    old = data.draw(models())
    layout, expected, targets = {}, {}, {}
    new = {name: next_version(bits, 5, share) for name, bits in old.items()}
    for index in range(data.draw(st.integers(1, 3))):
        name = f"r{index}"
        layout[name], before = data.draw(views(old))
        targets[name] = target_of(before.copy())
        expected[name] = assembled(layout[name], new)
    whole = Layout(layout)
    whole.check(targets)
    for name in old:
        for begin, end in data.draw(cuts(old[name].shape)):
            place = Place(name, old[name].shape, begin, end)
            publish(whole, targets, place, old[name], new[name], chunk=chunk)
    for name, bits in expected.items():
        np.testing.assert_array_equal(bits_of(targets[name]), bits)


@given(st.lists(SIZES, max_size=4).map(tuple), st.data())
def test_boxes_cover_a_run_of_elements_in_order(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    numbers = np.arange(math.prod(shape)).reshape(shape)
    begin = data.draw(st.integers(0, numbers.size))
    end = data.draw(st.integers(begin, numbers.size))
    found = [*boxes(shape, begin, end)]
    cut_out = [
        numbers[tuple(slice(a, b) for a, b in zip(low, high, strict=True))].reshape(-1)
        for low, high in found
    ]
    assert len(found) <= 2 * max(len(shape), 1) - 1
    np.testing.assert_array_equal(np.concatenate([[], *cut_out]), np.arange(begin, end))


def check(layout: dict[str, View], sources: dict[str, Array], expected: dict[str, Array]) -> None:
    """What a reader has of a first version, whole, and of changes to another."""
    targets = {name: target_of(np.zeros(view.shape, np.uint16)) for name, view in layout.items()}
    whole = Layout(layout)
    whole.check(targets)
    for name, bits in sources.items():
        place = Place.whole(name, bits.shape)
        first = next_version(bits, 3)
        publish(whole, targets, place, None, first, chunk=64)
        publish(whole, targets, place, first, bits, chunk=64)
    for name, bits in expected.items():
        np.testing.assert_array_equal(bits_of(targets[name]), bits)


def test_columns_and_rows_of_tensor_parallelism() -> None:
    up, down = random_bits((8, 6), 1), random_bits((6, 8), 2)
    for rank in range(4):
        own = slice(2 * rank, 2 * rank + 2)
        layout = {
            "up": column(View.whole("a", (8, 6)), rank, 4),
            "down": row(View.whole("b", (6, 8)), rank, 4),
        }
        check(layout, {"a": up, "b": down}, {"up": up[own], "down": down[:, own]})


@pytest.mark.parametrize(("count", "ranks"), [(4, 2), (2, 2), (2, 4), (1, 4)])
def test_fused_attention(count: int, ranks: int) -> None:
    sources = {"q": random_bits((8, 3)), "k": random_bits((2 * count, 3), 1)}
    sources["v"] = random_bits((2 * count, 3), 2)
    whole = {name: View.whole(name, bits.shape) for name, bits in sources.items()}
    for rank in range(ranks):
        view = qkv(whole["q"], whole["k"], whole["v"], count, rank, ranks)
        query = np.split(sources["q"], ranks)[rank]
        head = rank * count // ranks
        held = slice(2 * head, 2 * (head + max(count // ranks, 1)))
        expected = np.concatenate([query, sources["k"][held], sources["v"][held]])
        check({"qkv": view}, sources, {"qkv": expected})


def test_fused_and_stacked_experts() -> None:
    sources = {f"{kind}.{i}": random_bits((6, 4), i) for i in range(3) for kind in ("gate", "up")}
    views = [
        gate_up(View.whole(f"gate.{i}", (6, 4)), View.whole(f"up.{i}", (6, 4)), 1, 2)
        for i in range(3)
    ]
    expected = np.stack(
        [np.concatenate([sources[f"gate.{i}"][3:], sources[f"up.{i}"][3:]]) for i in range(3)]
    )
    check({"w13": stacked(views)}, sources, {"w13": expected})


def test_experts_taken_from_a_stack() -> None:
    stack = random_bits((4, 5, 3))
    view = View.whole("experts", (4, 5, 3))
    check({"e2": view.select(2)}, {"experts": stack}, {"e2": stack[2]})


def test_a_new_tensor_replaces_all_that_was_there() -> None:
    fresh = np.zeros((6, 4), np.uint16)
    fresh[2, 1] = 3
    targets = {"w": target_of(random_bits((6, 2)))}
    layout = Layout({"w": View.whole("w", (6, 4)).narrow(1, 0, 2)})
    publish(layout, targets, Place.whole("w", (6, 4)), None, fresh, chunk=5)
    np.testing.assert_array_equal(bits_of(targets["w"]), fresh[:, :2])


def test_a_padded_vocabulary() -> None:
    table = random_bits((10, 3))
    layout = {"embed": vocabulary(View.whole("embed", (10, 3)), 16, 1, 2)}
    expected = np.zeros((8, 3), np.uint16)
    expected[:2] = table[8:]
    check(layout, {"embed": table}, {"embed": expected})


def test_the_readers_tensors_may_be_the_trainers() -> None:
    weights = {"embed": random_bits((4, 3)), "head": random_bits((2, 3), 1)}
    layout = Layout.identity(weights)
    assert layout.sources == weights.keys()
    check(layout.views, weights, weights)


def test_only_what_changed_is_written() -> None:
    old = random_bits((64, 64))
    new = old.copy()
    new[5, 7] += 1
    new[40, 40] += 1
    layout = Layout({"w": row(View.whole("w", (64, 64)), 0, 2)})
    targets = {"w": target_of(old[:, :32])}
    assert publish(layout, targets, Place.whole("w", (64, 64)), old, new, chunk=4096) == 1


def test_what_a_reader_does_not_need_goes_nowhere() -> None:
    layout = Layout({"w": View.whole("w", (4, 4)).narrow(0, 0, 2)})
    assert not layout.route(Place.whole("other", (3,))).ways
    assert not layout.route(Place("w", (4, 4), (2, 0), (4, 4))).ways
    assert layout.route(Place("w", (4, 4), (1, 0), (4, 4))).ways


def test_layouts_that_do_not_fit_are_refused() -> None:
    layout = Layout({"w": View.whole("w", (4, 4))})
    with pytest.raises(DataError, match=r"published with shape \[4, 5\]"):
        layout.route(Place.whole("w", (4, 5)))
    with pytest.raises(DataError, match="which the model has not"):
        layout.check({})
    with pytest.raises(DataError, match=r"w has shape \[4, 3\]"):
        layout.check({"w": target_of(random_bits((4, 3)))})
    other = {"w": HostTarget(Tensor("F16", (4, 4), np.zeros(32, np.uint8)))}
    changes = Changes("values", np.array([0]), np.array([1], np.uint16))
    with pytest.raises(DataError, match="was published as BF16"):
        list(layout.route(Place.whole("w", (4, 4))).writes(other, "BF16", 0, changes))


@pytest.mark.parametrize(
    "refused",
    [
        lambda view: view.narrow(0, 2, 5),
        lambda view: view.narrow(2, 0, 1),
        lambda view: view.shard(1, 0, 4),
        lambda view: view.shard(0, 2, 2),
        lambda view: view.pad(0, 3),
        lambda view: view.select(4),
        lambda view: stacked([view, view.narrow(0, 0, 1)]),
        lambda view: concatenated([view, view.narrow(1, 0, 1)]),
        lambda view: heads(view, 4, 0, 3),
    ],
)
def test_views_that_cannot_be_are_refused(refused: Any) -> None:
    with pytest.raises(DataError):
        refused(View.whole("w", (4, 6)))


ELEMENTS = sorted(set(FORMATS.values()))


@given(st.sampled_from(ELEMENTS), st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_changes_are_those_of_the_native_code(
    element: Format, seed: int, count: int, small: bool
) -> None:
    random = np.random.default_rng(seed)
    base = as_bits(random.integers(0, 256, count * element.width, np.uint8), element.width)
    far = as_bits(random.integers(0, 256, count * element.width, np.uint8), element.width)
    near = base + random.integers(0, 3, count).astype(base.dtype)
    fresh = near if small else np.where(random.random(count) < 0.4, far, base)
    code, changed = encode_delta(base, fresh, element.width, element.floating)
    changes = Changes.of(code, count, element)
    assert len(changes.positions) == (0 if changes.form == "whole" else changed)
    found = base.copy()
    write(found, changes, element)
    np.testing.assert_array_equal(found, fresh)


def write(bits: Array, changes: Changes, element: Format) -> None:
    """Make the changes, one element after another."""
    form, positions, payload = changes
    if form == "same":
        return
    for at, each in zip(range(len(bits)) if form == "whole" else positions, payload, strict=True):
        here = slice(at, at + 1)
        step = np.array([each])
        bits[here] = moved(bits[here], step, floating=element.floating) if form == "steps" else each


@given(
    st.sampled_from(ELEMENTS),
    st.lists(st.sampled_from(["near", "far", "whole", "same"]), max_size=5),
    st.integers(0, 2**32),
)
def test_a_chain_of_changes_is_one_change(element: Format, kinds: list[str], seed: int) -> None:
    random, count = np.random.default_rng(seed), 40
    base = as_bits(random.integers(0, 256, count * element.width, np.uint8), element.width)
    version, chain = base, list[Changes]()
    for kind in kinds:
        changes = drawn(kind, count, base.dtype, random)
        version = version.copy()
        write(version, changes, element)
        chain = composed(chain, changes, element)
    written = np.concatenate([[], *(each.positions for each in chain)]).tolist()
    assert len(set(written)) == len(written)
    found = base.copy()
    for each in chain:
        write(found, each, element)
    np.testing.assert_array_equal(found, version)


def drawn(kind: str, count: int, dtype: Any, random: np.random.Generator) -> Changes:
    nowhere = np.empty(0, np.int64)
    if kind == "same":
        return Changes("same", nowhere, np.empty(0, np.uint8))
    bits = random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    if kind == "whole":
        return Changes("whole", nowhere, bits)
    positions = np.flatnonzero(random.random(count) < 0.4)
    if kind == "far":
        return Changes("values", positions, bits[positions])
    return Changes("steps", positions, random.integers(-3, 4, len(positions)))


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_order_is_that_of_values(width: int) -> None:
    top = 1 << (8 * width - 1)
    numbers = np.array([top + 1, top, 0, 1], np.dtype(f"u{width}"))  # -least, -0, 0, least
    signed = ordered(numbers, floating=True).view(f"i{width}")
    assert signed.tolist() == [-2, -1, 0, 1]
    np.testing.assert_array_equal(ordered(ordered(numbers, floating=True), floating=True), numbers)


def test_a_damaged_code_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Changes.of(b"\x01\xff", 10, BF16)
