"""What is owed is never lost: what was applied and what is owed add up to all gradients."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from simulated import SimulatedGroup, SimulatedRanks, Vectors

from sparsewire.compress import Composition, CompressError, Natural, TopK, names
from sparsewire.torch import hooks

STEPS = 200
RESTORED, GROWN, SHRUNK = 70, 120, 160
SIZES = {"even": 600, "odd": 600, "rare": 96, "never": 50}

# These send elements as they are, so that not a bit is lost.
KEEPING = [
    *("identity", "top-k:0.05", "top-k:1", "rand-k:0.1", "bernoulli:0.1", "bernoulli:0.2:1"),
    *("block-top-k:0.1:16", "block-top-k-ratio:0.1:16", "block-random-k:0.1:16"),
    *("threshold:150", "block-threshold:400:16", "top-k:0.5+rand-k:0.1", "rand-k:0.5+top-k:0.2"),
    *(
        "span-top-k:3:60",
        "rounded:4:3+span-top-k:3:60",
        "rounded:2:4+span-top-k:4:7",
        "rounded:8:60",
    ),
    *("0.5*top-k:0.05|0.5*rand-k:0.1", "identity+bernoulli:0.5:1"),
    "0.3*block-top-k-ratio:0.1:16|0.7*bernoulli:0.1",
    "visible:0.01",
]
ROUNDING = [
    *("ternary", "ternary:inf:64", "dithering:4", "dithering:4:3:64", "qsgd:7", "qsgd:4+top-k:0.2"),
    *("natural", "natural-dithering:5", "natural-dithering:9:inf:64", "sign", "sign:64"),
    *("low-rank:2", "low-rank:1:4", "natural+top-k:0.05", "natural+rand-k:0.1", "sign+top-k:0.1"),
    *("ternary+top-k:0.05", "natural+sign", "ternary:inf+bernoulli:0.5:1", "rand-k:0.2+low-rank:2"),
    *("0.5*sign|0.5*natural", "0.5*ternary|0.5*qsgd:4+top-k:0.2", "dithering:4+natural"),
    *("centroids:64", "centroids:3+span-top-k:3:60", "fp4", "dct-top-k:8:8"),
    "centroids:8+dct-top-k:8:8",
]


def gradients_of(step: int, size: int) -> list[Vectors]:
    """Small whole numbers: two parameters in turns, and one that a single rank uses at times."""
    each: list[Vectors] = []
    for rank in range(size):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        used = ["odd" if step % 2 else "even"]
        if step % 7 == 0 and rank == step % size:
            used.append("rare")
        each.append(
            {name: torch.randint(-50, 51, (SIZES[name],), generator=generator) for name in used}
        )
    return [{name: part.float() for name, part in own.items()} for own in each]


def restored(before: SimulatedRanks, size: int, compressor: str) -> SimulatedRanks:
    """The same training on so many new ranks, which load what the old ones saved."""
    file = io.BytesIO()
    torch.save(before.saved(), file)
    file.seek(0)
    saved = torch.load(file)
    after = SimulatedRanks(size, SIZES, compressor=compressor)
    for rank, state in enumerate(after.states):
        state.load_state_dict(saved[rank] if size == len(saved) else saved)
    return after


def lost(compressor: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """For each parameter the mean of all gradients, and what of it is neither applied nor owed."""
    ranks = SimulatedRanks(2, SIZES, compressor=compressor)
    total = {name: torch.zeros(size, dtype=torch.float64) for name, size in SIZES.items()}
    left = {name: vector.clone() for name, vector in total.items()}
    for step in range(STEPS):
        if step in (RESTORED, GROWN, SHRUNK):
            ranks = restored(ranks, 4 if step == GROWN else 2, compressor)
        gradients = gradients_of(step, len(ranks.states))
        for own in gradients:
            for name, part in own.items():
                total[name] += part / len(gradients)
                left[name] += part / len(gradients)
        for name, mean in ranks.step(gradients).items():
            left[name] -= mean
    assert all(state.step == STEPS for state in ranks.states)
    owed = ranks.owed()
    return {name: (total[name], left[name] - owed[name]) for name in SIZES}


@pytest.mark.parametrize("compressor", KEEPING)
def test_nothing_is_lost_by_operators_that_keep_elements(compressor: str) -> None:
    for _, rest in lost(compressor).values():
        assert not rest.any()


@pytest.mark.parametrize("compressor", ROUNDING)
def test_nothing_but_rounding_is_lost_by_others(compressor: str) -> None:
    for total, rest in lost(compressor).values():
        assert rest.norm() <= 1e-3 * total.norm()


def test_every_operator_is_tried() -> None:
    tried = " ".join(KEEPING + ROUNDING).replace("*", " ").replace("+", " ").replace("|", " ")
    assert {text.split(":")[0] for text in tried.split()} >= set(names())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_rounding_takes_from_the_mean_is_owed(dtype: torch.dtype) -> None:
    ranks = SimulatedRanks(3, {"weight": 500}, dtype, compressor="top-k:0.2")
    total, applied = torch.zeros(2, 500, dtype=torch.float64)
    for step in range(STEPS):
        torch.manual_seed(step)
        # Halves have few bits, so that a mean of three of them is rounded.
        parts = [torch.randn(500).to(dtype).float() for _ in range(3)]
        total += sum(part.double() for part in parts) / 3
        applied += ranks.step([{"weight": part} for part in parts])["weight"].double()
    assert (total - applied - ranks.owed()["weight"]).norm() <= 1e-5 * total.norm()


def large_beside_small(rank: int) -> torch.Tensor:
    """On rank 1 an element that is finite, and may round to what float32 cannot hold."""
    gradient = torch.linspace(-3.0, 4.0, 64)
    if rank == 1:
        gradient[5] = 3.39e38
    return gradient


@pytest.mark.parametrize("compressor", ["natural", "natural+top-k:0.5", "low-rank:2", "sign"])
def test_an_element_too_large_for_the_code_costs_the_others_nothing(compressor: str) -> None:
    ranks = SimulatedRanks(2, {"weight": 64}, compressor=compressor)
    others = torch.arange(64) != 5
    total, applied = torch.zeros(2, 64, dtype=torch.float64)
    for step in range(10):
        parts = [torch.linspace(-3.0, 4.0, 64) * (rank + 1) for rank in range(2)]
        if step == 4:
            parts = [large_beside_small(rank) for rank in range(2)]
        total += sum(part.double() for part in parts) / 2
        applied += ranks.step([{"weight": part} for part in parts])["weight"].double()
    rest = (total - applied - ranks.owed()["weight"])[others]
    if compressor.startswith("natural"):
        assert rest.norm() <= 1e-3 * total[others].norm()
    # Codes that can express it have it in their common factors, and lose by rounding.
    assert rest.norm() <= 1e-6 * 3.39e38


def test_where_the_mean_overflows_nothing_is_remembered() -> None:
    ranks = SimulatedRanks(2, {"weight": 64}, compressor="natural")
    ranks.step([{"weight": torch.linspace(-3.0, 4.0, 64)} for _ in range(2)])
    before = ranks.owed()["weight"]
    assert before.any()
    mean = ranks.step([{"weight": torch.full((64,), 3.3e38)} for _ in range(2)])["weight"]
    assert not mean.isfinite().any()
    assert ranks.owed()["weight"].equal(before)


def owed_after(compressor: str) -> float:
    ranks = SimulatedRanks(1, {"weight": 4096}, compressor=compressor)
    for step in range(STEPS):
        gradient = torch.randn(4096, generator=torch.Generator().manual_seed(step))
        ranks.step([{"weight": gradient * (64 / gradient.norm())}])
    return float(ranks.owed()["weight"].norm())


@pytest.mark.parametrize(
    "compressor", ["qsgd:4+top-k:0.2", "ternary+top-k:0.05", "top-k:0.5+rand-k:0.1", "top-k:0.05"]
)
def test_what_is_owed_does_not_explode(compressor: str) -> None:
    """Gradients of norm 64 add up to 12,800 at most, and to about 900 as they are random."""
    assert owed_after(compressor) < 64 * STEPS**0.5


@pytest.mark.parametrize("compressor", ["sign+natural", "natural+threshold:1"])
def test_what_is_no_contraction_is_refused(compressor: str) -> None:
    with pytest.raises(CompressError, match="needs a contraction"):
        SimulatedRanks(1, SIZES, compressor=compressor)


def test_operators_that_a_function_makes_are_scaled_and_refused_as_well() -> None:
    def makes(size: int) -> Composition:
        return Composition(TopK(size, 1), Natural(size))

    ranks = SimulatedRanks(1, SIZES, compressor=makes)
    with pytest.raises(CompressError, match="600 elements: error feedback needs a contraction"):
        ranks.step(gradients_of(0, 1))


def test_the_ratio_inside_a_mixture_sees_the_parameters() -> None:
    text = "block-top-k-ratio:1:50"
    for compressor in (text, f"1*{text}|0*identity", f"natural+{text}"):
        ranks = SimulatedRanks(1, {"weight": 100}, compressor=compressor)
        with torch.no_grad():
            ranks.model["weight"][:50] *= 100
        # The first block is larger, the second one in proportion to its parameters.
        gradient = torch.cat([torch.full((50,), 2.0), torch.ones(50)])
        sent = ranks.step([{"weight": gradient}])["weight"]
        assert not sent[:50].any(), compressor
        assert sent[50:].all(), compressor


def sent_masks(ranks: SimulatedRanks, steps: int = 3) -> list[Vectors]:
    ones = {"even": torch.ones(SIZES["even"])}
    return [ranks.step([ones for _ in ranks.states]) for _ in range(steps)]


def test_masks_differ_after_a_change_of_size_that_was_saved_at_once() -> None:
    first = SimulatedRanks(2, SIZES, compressor="rand-k:0.1")
    masks = sent_masks(first)
    grown = restored(first, 4, "rand-k:0.1")
    shrunk = restored(grown, 2, "rand-k:0.1")
    again = restored(shrunk, 2, "rand-k:0.1")
    expected = sent_masks(shrunk)
    torch.testing.assert_close(sent_masks(again), expected, rtol=0, atol=0)
    for mask in expected:
        assert not any(mask["even"].ne(0).equal(old["even"].ne(0)) for old in masks)


def states_of(make: Callable[[int], Any], steps: tuple[int, int]) -> list[Any]:
    states = []
    for rank, step in enumerate(steps):
        state = make(rank)
        state.register(torch.nn.ParameterDict({"weight": torch.zeros(4)}))
        state.step = step
        states.append(state.state_dict())
    return states


@pytest.mark.parametrize("kind", [hooks.ErrorFeedbackState, hooks.DianaState])
def test_states_of_different_steps_are_refused(kind: Any) -> None:
    def make(rank: int) -> Any:
        return kind(SimulatedGroup(rank, 2))

    with pytest.raises(ValueError, match="different steps, 3 to 5"):
        make(0).load_state_dict(states_of(make, (5, 3)))
