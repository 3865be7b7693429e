"""Properties of an outer optimizer's parts: how parameters are cut, when rounds are due, and the
bytes of the shared state, hostile ones among them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from outer_threads import net
from torch import Tensor, nn

from sparsewire.errors import MismatchError, ProtocolError
from sparsewire.torch.outer.fragments import Fragment, cut, layers_of, trained
from sparsewire.torch.outer.joining import Snapshot, most_words, take
from sparsewire.torch.outer.schedule import Schedule
from sparsewire.torch.outer.shared_point import maker_of
from sparsewire.torch.outer.state import FragmentState, ReplicaState

pytestmark = pytest.mark.timeout(60)

SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=12)


def parameters_of(shapes: list[tuple[int, ...]], layers: int = 1) -> dict[str, Tensor]:
    """Parameters of these shapes, dealt out to layers in turn."""
    return {
        f"blocks.{number % layers}.{number}": torch.full(shape, float(number))
        for number, shape in enumerate(shapes)
    }


def names_in(fragments: list[Fragment]) -> list[str]:
    return [slot.name for each in fragments for slot in each.slots]


@given(SHAPES, st.integers(1, 14))
def test_balanced_fragments_have_every_parameter_once_in_order(shapes: Any, count: int) -> None:
    parameters = parameters_of(shapes)
    if count > len(parameters):
        with pytest.raises(ValueError, match="more than there are parameters"):
            cut(parameters, count, {})
        return
    fragments = cut(parameters, count, {})
    assert names_in(fragments) == list(parameters)
    assert len(fragments) == count
    assert all(each.slots for each in fragments)


def test_no_parameter_is_left_out_for_its_name() -> None:
    model = nn.ModuleDict({"module": nn.Linear(1, 1), "other": nn.Linear(2, 1)})
    model.module.register_parameter("other", nn.Parameter(torch.zeros(3)))
    model.register_parameter("weight", nn.Parameter(torch.zeros(4)))
    assert len(trained(model)) == len(list(model.parameters()))
    assert list(trained(nn.ModuleDict({"module": net(0)}))) == list(trained(net(0)))


@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 9))
def test_fragments_of_equal_parameters_are_balanced(per: int, count: int, size: int) -> None:
    parameters = parameters_of([(size,)] * (per * count))
    assert {each.elements for each in cut(parameters, count, {})} == {per * size}


@given(SHAPES, st.integers(1, 5), st.integers(1, 6))
def test_no_balanced_fragment_is_far_from_its_share(shapes: Any, count: int, extra: int) -> None:
    parameters = parameters_of([*shapes, *[(extra,)] * count])
    sizes = [each.elements for each in cut(parameters, count, {})]
    largest = max(parameter.numel() for parameter in parameters.values())
    assert max(sizes) <= sum(sizes) / count + 2 * largest


@given(SHAPES, st.integers(1, 5), st.integers(1, 7))
def test_strided_fragments_have_every_nth_layer(shapes: Any, layers: int, count: int) -> None:
    parameters = parameters_of(shapes, layers)
    there = layers_of(parameters)
    if count > len(there):
        with pytest.raises(ValueError, match="fragments are more"):
            cut(parameters, count, {}, strided=True)
        return
    fragments = cut(parameters, count, {}, strided=True)
    assert sorted(names_in(fragments)) == sorted(parameters)
    for number, each in enumerate(fragments):
        kept = {slot.name.rpartition(".")[0] for slot in each.slots}
        assert kept == set(there[number::count])


@given(SHAPES)
def test_a_vector_holds_what_parameters_hold(shapes: Any) -> None:
    parameters = parameters_of(shapes)
    (fragment,) = cut(parameters, 1, {})
    vector = fragment.read(fragment.empty())
    wanted = torch.cat([each.reshape(-1) for each in parameters.values()])
    assert vector.equal(wanted)
    moved = fragment.empty()
    assert fragment.moved(vector, moved) == (0.0, 0.0)
    assert not moved.any()
    fragment.write(vector * 2 + 1)
    assert fragment.read(fragment.empty()).equal(wanted * 2 + 1)
    fragment.mix(vector, 0.25)
    assert fragment.read(fragment.empty()).allclose(0.25 * (wanted * 2 + 1) + 0.75 * wanted)


@given(st.data())
def test_each_fragment_has_one_round_in_every_so_many_steps(data: Any) -> None:
    every = data.draw(st.integers(1, 60))
    fragments = data.draw(st.integers(1, every))
    delay = data.draw(st.integers(0, every // fragments))
    schedule = Schedule(every, fragments, delay)
    due = [step for step in range(1, 4 * every + 1) if schedule.is_due(step)]
    for begin in range(3 * every):
        assert sum(begin < step <= begin + every for step in due) == fragments
    # A sum has arrived before the next one leaves, or as it does.
    assert min((b - a for a, b in pairwise(due)), default=every) >= delay
    assert due[-1] == 4 * every


@given(st.integers(-2, 70), st.integers(-2, 70), st.integers(-2, 70))
def test_schedules_that_do_not_fit_are_refused(every: int, fragments: int, delay: int) -> None:
    fits = 1 <= fragments <= every and 0 <= delay <= every // fragments
    if fits:
        Schedule(every, fragments, delay)
        return
    with pytest.raises(ValueError, match=r"do not fit|out of range"):
        Schedule(every, fragments, delay)


def state_of(seed: int, rounds: int, fragments: int = 2, outer: Any = None) -> ReplicaState:
    """A state after so many rounds, of which each fragment has its own part."""
    parameters = dict(net(seed).named_parameters())
    make = maker_of(outer, is_compressed=False)
    state = ReplicaState([FragmentState(e, make, None) for e in cut(parameters, fragments, {})])
    generator = torch.Generator().manual_seed(seed)
    for number in range(rounds):
        due = state.due(number)
        due.shared.advance(torch.randn(due.fragment.elements, generator=generator))
    state.rounds = rounds
    return state


OUTERS = {
    "nesterov": None,
    "sgd": lambda parameters: torch.optim.SGD(parameters, 1.0),
    "adam": torch.optim.Adam,
}


@pytest.mark.parametrize("outer", OUTERS)
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_snapshot_arrives_as_it_was(outer: str, rounds: int) -> None:
    given_ = state_of(1, rounds, outer=OUTERS[outer])
    taken = state_of(2, 3, outer=OUTERS[outer])
    assert taken.digest() != given_.digest()
    Snapshot.decode(Snapshot.of(given_).encode()).load_into(taken)
    assert taken.rounds == rounds
    for one, other in zip(given_.fragments, taken.fragments, strict=True):
        assert one.shared.digest() == other.shared.digest()
        mean = torch.linspace(-1, 1, one.fragment.elements)
        one.shared.advance(mean)
        other.shared.advance(mean)
        assert one.shared.digest() == other.shared.digest()
        assert one.shared.vector.equal(other.shared.vector)


def test_a_flipped_bit_of_a_snapshot_is_noticed() -> None:
    words = Snapshot.of(state_of(1, 3)).encode().copy()
    words[-3] ^= 1 << 9
    with pytest.raises(MismatchError, match="not what was sent"):
        Snapshot.decode(words).load_into(state_of(2, 0))


def test_a_snapshot_of_another_model_is_refused() -> None:
    state = state_of(1, 0, fragments=1)
    snapshot = Snapshot.decode(Snapshot.of(state).encode())
    other = ReplicaState(
        [FragmentState(cut({"w": torch.zeros(3)}, 1, {})[0], maker_of(None, False), None)]
    )
    with pytest.raises(ValueError, match="'w' of shape"):
        snapshot.load_into(other)


def refused_or_whole(words: Any) -> None:
    """Words give a snapshot, or ProtocolError, and nothing else."""
    try:
        snapshot = Snapshot.decode(words)
    except ProtocolError:
        return
    assert all(isinstance(value, Tensor) for named in snapshot.tensors for value in named.values())


@given(st.binary(max_size=400))
def test_hostile_words_are_refused(noise: bytes) -> None:
    refused_or_whole(np.frombuffer(noise + bytes(-len(noise) % 8), np.int64))


@given(st.integers(0, 10**6), st.integers(0, 63))
def test_a_damaged_snapshot_is_refused_or_read(at: int, bit: int) -> None:
    words = Snapshot.of(state_of(1, 2)).encode().copy()
    words[at % words.size] ^= np.int64(np.uint64(1 << bit).astype(np.int64))
    refused_or_whole(words)


@given(st.integers(0, 2000))
def test_a_snapshot_cut_short_is_refused(size: int) -> None:
    words = Snapshot.of(state_of(1, 2)).encode()
    if size < words.size - 1:
        with pytest.raises(ProtocolError):
            Snapshot.decode(words[:size])


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(st.text(max_size=4), SCALARS)
DTYPES = st.sampled_from(["float32", "int8", "quint8", "bfloat16", "bits8", "nn", "Tensor", ""])
LENGTHS = st.lists(st.integers(-2, 3) | st.integers(-(2**70), 2**70) | st.floats(), max_size=3)
TENSORS = st.dictionaries(st.text(max_size=4), st.tuples(DTYPES | JSON, LENGTHS | JSON), max_size=3)
HEADS = JSON | st.tuples(JSON, st.lists(TENSORS, max_size=2) | JSON, JSON, JSON)


@given(HEADS, st.binary(max_size=64))
def test_heads_that_lie_are_refused(head: Any, memory: bytes) -> None:
    text = json.dumps(head).encode()
    whole = len(text).to_bytes(8, "little") + text + memory
    refused_or_whole(np.frombuffer(whole + bytes(-len(whole) % 8), np.int64))


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b"[Infinity,[],[],[]]",
        b'["seven",[],[],[]]',
        b"[1,[],[]]",
        b'[0,[{"w":["float32",[4294967296,4294967296]]}],[{}],[""]]',
    ],
    ids=["deep", "infinite", "text", "short", "large"],
)
def test_heads_that_break_readers_are_refused(text: bytes) -> None:
    whole = len(text).to_bytes(8, "little") + text
    with pytest.raises(ProtocolError):
        Snapshot.decode(np.frombuffer(whole + bytes(-len(whole) % 8), np.int64))


class Giver:
    """A communicator on which rank 0 says that it gives so many words."""

    def __init__(self, words: int) -> None:
        self._said = np.array([words], np.int64)

    def broadcast(self, x: Any, timeout: float) -> Any:
        return self._said if x.size == 1 else np.zeros(x.size, np.int64)


@pytest.mark.parametrize("words", [-1, 0, 1 << 40])
def test_a_snapshot_of_a_size_that_lies_is_refused_before_there_is_memory(words: int) -> None:
    giver: Any = Giver(words)
    with pytest.raises(ProtocolError, match="words is not one of this model"):
        take(giver, 1.0, most_words(state_of(1, 0)))


@pytest.mark.parametrize("outer", OUTERS)
def test_no_snapshot_is_longer_than_may_be(outer: str) -> None:
    state = state_of(1, 3, outer=OUTERS[outer])
    assert Snapshot.of(state).encode().size <= most_words(state)
