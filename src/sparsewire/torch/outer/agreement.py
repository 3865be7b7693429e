"""What all replicas must have alike, as a number that they compare whenever they meet."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sparsewire.errors import MismatchError
from sparsewire.torch.outer.state import ReplicaState


def agreement_of(state: ReplicaState, *settings: Any) -> int:
    """A number of 63 bits, of the settings, the parameters' places and the outer optimizers."""
    layouts = [
        [(slot.name, slot.begin, tuple(slot.tensor.shape)) for slot in each.fragment.slots]
        for each in state.fragments
    ]
    optimizers = [_described(each.shared.optimizer) for each in state.fragments]
    text = repr((layouts, optimizers, settings))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def _described(optimizer: Any) -> Any:
    """An optimizer's class and its settings that are plain; others have no text of their own."""
    plain = (bool, int, float, str, tuple, type(None))
    settings = {k: v for k, v in optimizer.defaults.items() if isinstance(v, plain)}
    return type(optimizer).__qualname__, sorted(settings.items())


def apart(values: Sequence[Any], members: Sequence[str]) -> tuple[list[str], Any]:
    """The members whose value is not the one that most have, and that value."""
    usual, _ = Counter(values).most_common(1)[0]
    return [name for name, each in zip(members, values, strict=True) if each != usual], usual


def check_agreement(agreements: Iterable[int], members: Sequence[str]) -> None:
    """Raise MismatchError, on all members alike, that names those who differ from most."""
    differing, _ = apart(list(agreements), members)
    if differing:
        raise MismatchError(
            f"replica {', '.join(map(repr, differing))} has other settings than the others: give "
            "all replicas one model, outer optimizer, compressor, sums, down, topology, average, "
            "seed and number of fragments"
        )
