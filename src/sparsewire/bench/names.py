"""Names of what is measured: gloo, gloo-sparse, sparsewire-torch, sparsewire, sparsewire/stream."""

OTHERS = ("gloo", "gloo-sparse")
"""What sparsewire is compared with: dense, and gloo's own all_reduce of sparse tensors."""

_OURS = "sparsewire"
_WORDS = {
    "gloo": "gloo (dense)",
    "gloo-sparse": "gloo (sparse tensors)",
    "sparsewire-torch": "sparsewire through torch",
}


def backend_name(algorithm: str) -> str:
    """The name of sparsewire's all_reduce with an algorithm; that of "auto" is plain."""
    return _OURS if algorithm == "auto" else f"{_OURS}/{algorithm}"


def algorithm_of(backend: str) -> str | None:
    """The algorithm that such a name means, or None for other backends."""
    if backend == _OURS:
        return "auto"
    ours, _, algorithm = backend.partition("/")
    return algorithm if ours == _OURS and algorithm else None


def in_words(backend: str) -> str:
    """What legends call it."""
    return _WORDS.get(backend) or backend.replace("/", ", ")
