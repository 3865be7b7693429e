"""The ways to average gradients that are compared, with what each promises and needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparsewire.tools.advise.prediction import transfers
from sparsewire.tools.advise.prediction.transfers import Way


@dataclass(frozen=True)
class Unsure:
    """How far a prediction may be off, either way: what is computed, and what is sent."""

    computing: float
    sending: float


@dataclass(frozen=True)
class Method:
    """`name` is what programs read, `title` what people do.

    `promise` says what becomes of the training, and `watch` what to look at; the latter is empty
    where nothing is lost. `lines` are to be changed in the script; where they name {tables},
    {class} or {optimizer}, `words` fills these in.
    """

    name: str
    title: str
    way: Way
    promise: str
    watch: str
    lines: tuple[str, ...]
    unsure: Unsure
    splits: bool = False
    """Whether embeddings go as sparse tensors."""
    needs_sparsewire: bool = True

    @property
    def is_lossless(self) -> bool:
        return not self.watch


_SWITCH = (
    "import sparsewire.torch  # torch before 2.14 only",
    'torch.distributed.init_process_group("sparsewire")',
)

_SPARSE_LINES = ("nn.{class}(..., sparse=True)  # {tables}", "{optimizer}")
_SPARSE_PROMISE = (
    "Sums are exact. Backward pass and optimizer touch the rows of a step alone, and save the "
    "time of the others. Optimizers with momentum or weight decay treat rows that a step does not "
    "touch otherwise: SparseAdam is not Adam."
)

# docs/advise.md tells the source of these.
_BUILT = Unsure(0.25, 0.25)

SPARSEWIRE = Method(
    "sparsewire",
    "sparsewire",
    transfers.engine,
    "Sums are exact: the training is the same, but for the order in which floats are added.",
    "",
    _SWITCH,
    Unsure(0.1, 0.15),
)

SPARSE = Method(
    "sparse",
    "sparsewire, sparse=True",
    transfers.engine,
    _SPARSE_PROMISE,
    "",
    (*_SWITCH, *_SPARSE_LINES),
    _BUILT,
    splits=True,
)

GLOO_SPARSE = Method(
    "gloo-sparse",
    "gloo, sparse=True",
    transfers.ring,
    _SPARSE_PROMISE,
    "",
    _SPARSE_LINES,
    _BUILT,
    splits=True,
    needs_sparsewire=False,
)

FEEDBACK = Method(
    "feedback",
    "error feedback, 1% of the blocks",
    transfers.feedback,
    "What a step does not send is owed and sent later: it converges like SGD once the learning "
    "rate is small, but each step has another gradient than before.",
    "Compare the loss with a run without it, to the end of the training: it starts late, and "
    "short trainings with high rates keep a gap. Save the hook's state with your checkpoints.",
    (
        *_SWITCH,
        "from sparsewire.torch import hooks",
        'state = hooks.ErrorFeedbackState(compressor="block-top-k:0.01")',
        "state.register(model)  # the DistributedDataParallel model",
        "model.register_comm_hook(state, hooks.error_feedback_hook)",
    ),
    Unsure(0.12, 0.2),
)

DIANA = Method(
    "diana",
    "DIANA, 4 bits a value",
    transfers.diana,
    "Gradients are right on average, with more noise; the noise goes away as the shifts learn.",
    "Compare the loss with a run without it, and try alpha=0.1 where batches are small. What is "
    "sent grows with the ranks: each gives its message to every other.",
    (
        *_SWITCH,
        "from sparsewire.torch import hooks",
        'state = hooks.DianaState(compressor="qsgd:7")',
        "state.register(model)  # the DistributedDataParallel model",
        "model.register_comm_hook(state, hooks.diana_hook)",
    ),
    Unsure(0.12, 0.3),
)


def plain(backend: str) -> Method:
    """The method that others are compared with: NCCL if that was recorded, else gloo."""
    name = "nccl" if "nccl" in backend else "gloo"
    unsure = Unsure(0.08, 0.1)
    return Method(name, name, transfers.ring, "As it is.", "", (), unsure, needs_sparsewire=False)


def methods(backend: str, *, has_tables: bool, was_sparse: bool = False) -> Sequence[Method]:
    """All that are compared, the plain one first.

    With `was_sparse` the tables were recorded with `sparse=True`: both backends are asked for the
    same. NCCL sums no sparse tensors.
    """
    first = plain(backend)
    if was_sparse and not has_tables:
        recorded_so = replace(GLOO_SPARSE, promise="As it is.", lines=(), splits=False)
        ours = replace(SPARSE, promise=SPARSEWIRE.promise, lines=_SWITCH, splits=False)
        return [recorded_so if first.name == "gloo" else first, ours, FEEDBACK, DIANA]
    if not has_tables:
        return [first, SPARSEWIRE, FEEDBACK, DIANA]
    theirs = [GLOO_SPARSE] if first.name == "gloo" else []
    return [first, *theirs, SPARSEWIRE, SPARSE, FEEDBACK, DIANA]
