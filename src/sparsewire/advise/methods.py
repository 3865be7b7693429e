"""The ways to average gradients that are compared, with what each promises and needs."""

from __future__ import annotations

from dataclasses import dataclass

from sparsewire.advise import transfers
from sparsewire.advise.transfers import Way


@dataclass(frozen=True)
class Method:
    """`name` is what programs read, `title` what people do.

    `promise` says what becomes of the training, and `watch` what to look at; the latter is empty
    where nothing is lost. `lines` are to be changed in the script.
    """

    name: str
    title: str
    way: Way
    promise: str
    watch: str
    lines: tuple[str, ...]
    splits: bool = False
    """Whether embeddings go as sparse tensors."""

    @property
    def is_lossless(self) -> bool:
        return not self.watch


_SWITCH = (
    "import sparsewire.torch  # torch before 2.14 only",
    'torch.distributed.init_process_group("sparsewire")',
)

SPARSEWIRE = Method(
    "sparsewire",
    "sparsewire",
    transfers.engine,
    "Sums are exact: the training is the same, but for the order in which floats are added.",
    "",
    _SWITCH,
)

SPARSE = Method(
    "sparse",
    "sparsewire, sparse=True",
    transfers.engine,
    "Sums are exact. Not counted: the backward pass and the optimizer save time, too, where they "
    "touch few rows of a table. Optimizers with momentum or weight decay treat rows that a step "
    "does not touch otherwise: SparseAdam is not Adam.",
    "",
    (
        *_SWITCH,
        "nn.Embedding(..., sparse=True)  # {tables}",
        "optimizer: SGD, Adagrad or SparseAdam for these, which take sparse gradients",
    ),
    splits=True,
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
)


def plain(backend: str) -> Method:
    """What the others are compared with: NCCL where that was recorded, else gloo."""
    name = "nccl" if "nccl" in backend else "gloo"
    return Method(name, name, transfers.ring, "As it is.", "", ())


def methods(backend: str, has_tables: bool) -> list[Method]:
    """All that are compared, the plain one first."""
    sparse = [SPARSE] if has_tables else []
    return [plain(backend), SPARSEWIRE, *sparse, FEEDBACK, DIANA]
