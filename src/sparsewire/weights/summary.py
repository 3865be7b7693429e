"""A delta in words: what changed, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sparsewire.weights.versions.message import Delta
from sparsewire.weights.versions.tensors import coded_elements


class Change(NamedTuple):
    """A tensor that changed, or is new: then it has no base."""

    name: str
    dtype: str
    elements: int
    changed: int
    nbytes: int
    is_new: bool

    @property
    def share(self) -> float:
        return self.changed / max(self.elements, 1)


def changes(delta: Delta) -> Iterator[Change]:
    """Each tensor that changed, in the order of the delta."""
    spans = delta.spans()
    for name, tensor in delta.tensors.items():
        span = spans[name]
        elements = coded_elements(span.dtype, span.shape)
        yield Change(name, span.dtype, elements, tensor.changed, tensor.nbytes, tensor.is_new)


def summary(delta: Delta, size: int) -> str:
    """One line on the whole delta, which takes `size` bytes as a file."""
    whole = sum(header.data_bytes for header in delta.headers.values())
    changed = sum(tensor.changed for tensor in delta.tensors.values())
    bytes_per_change = f", {size / changed:.2f} a changed element" if changed else ""
    kept = len(delta.spans()) - len(delta.tensors)
    texts = [f"{len(delta.tensors)} tensors changed, {kept} did not"]
    texts += [f"{len(delta.removed)} are gone"] if delta.removed else []
    return (
        f"{delta.base_version} -> {delta.version}: {', '.join(texts)}. {changed:,} elements in "
        f"{size:,} bytes{bytes_per_change}; the whole version has {whole:,} bytes"
    )
