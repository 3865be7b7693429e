"""Profiles of trainings on real ranks: known densities, the same results, no trace of it behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import FEATURES, Branching, Embedding, Plain, batch_of, train
from ranks import Ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from sparsewire.errors import InputError
from sparsewire.profile.company import Company
from sparsewire.profile.records import trace
from sparsewire.profile.records.marks import Marks
from sparsewire.profile.records.recorded import Bucket, Optimizer, Recorded, Step, load
from sparsewire.profile.records.step_record import StepRecord
from sparsewire.profile.taps.table_tap import table_classes
from sparsewire.profile.taps.taps import GroupTap, ObservedGroup
from sparsewire.torch import profile

pytestmark = pytest.mark.timeout(120)

ROWS, WIDTH, OUTPUTS = 64, 256, 8
PLAN = {"steps": 4, "warmup": 2, "every": 2}
LAST = 2 + 4


class Table(nn.Module):
    """Rank r looks up rows 0 and r + 1, each of which is a block."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.head = nn.Linear(WIDTH, OUTPUTS, bias=False)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(rows))


def own_rows() -> torch.Tensor:
    return torch.tensor([0, 1 + (dist.get_rank() if dist.is_initialized() else 0)])


def ddp_of(module: nn.Module, **options: Any) -> DistributedDataParallel:
    # So small buckets that the table has one of its own.
    return DistributedDataParallel(module, bucket_cap_mb=0.001, **options)


def run_steps(model: Any, steps: int = LAST + 2) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(own_rows()).sum().backward()
        optimizer.step()


def record(directory: Path, sparse: bool, **options: Any) -> None:
    model = ddp_of(Table(sparse))
    with profile(model, directory, **PLAN, **options):
        run_steps(model)


def bucket_of(step: Step, parameter: int) -> Bucket:
    (found,) = (bucket for bucket in step.buckets if bucket.parameters == [parameter])
    return found


@pytest.fixture
def two(new_ranks: Callable[..., Ranks]) -> Ranks:
    return new_ranks(2, "gloo")


@pytest.mark.parametrize("sparse", [False, True])
def test_densities_are_those_of_the_gradients(two: Ranks, tmp_path: Path, sparse: bool) -> None:
    two.run(record, tmp_path, sparse)
    found = load(tmp_path)
    assert [each.rank for each in found.ranks] == [0, 1]
    for each in found.ranks:
        assert each.backend == "gloo"
        assert [p.name for p in each.parameters] == ["table.weight", "head.weight"]
        assert [p.sparse for p in each.parameters] == [sparse, False]
        assert [(step.step, step.sampled) for step in each.steps] == [
            (2, True),
            (3, False),
            (4, True),
            (5, False),
        ]
        for step in each.steps:
            checked(step)
        assert each.optimizers == [Optimizer("SGD", [0, 1])]
        assert [(told.parameter, told.optimizer) for told in each.rehearsals] == [(0, "SGD")]
        assert each.memory is not None


def checked(step: Step) -> None:
    table, head = bucket_of(step, 0), bucket_of(step, 1)
    assert (table.elements, table.bytes) == (ROWS * WIDTH, 4 * ROWS * WIDTH)
    times = [table.ready_s, table.communication_begin_s, table.communication_end_s]
    assert times == sorted(times)
    assert 0 < table.communication_end_s <= step.backward_s <= step.duration_s
    assert {span.parameter for span in step.tables} == {0}
    assert all(0 <= span.begin_s <= span.end_s <= step.backward_s for span in step.tables)
    assert step.optimizer_begin_s is not None
    assert step.optimizer_s is not None
    assert step.optimizer_begin_s > 0
    assert step.optimizer_begin_s + step.optimizer_s <= step.duration_s
    if not step.sampled:
        assert (table.block_density, table.union_block_density, step.parameters) == (None, None, [])
        return
    assert (table.element_density, table.block_density) == (2 / ROWS, 2 / ROWS)
    assert table.union_block_density == 3 / ROWS
    assert table.union_element_density == 3 / ROWS
    assert (head.block_density, head.union_block_density) == (1, 1)
    of_table = next(each for each in step.parameters if each.parameter == 0)
    assert (of_table.element_density, of_table.block_density) == (2 / ROWS, 2 / ROWS)
    assert (of_table.row_density, of_table.union_row_density) == (2 / ROWS, 3 / ROWS)


def test_traces_have_the_masks(two: Ranks, tmp_path: Path) -> None:
    two.run(traced, tmp_path)
    for rank in range(2):
        found = trace.read(trace.path_of(tmp_path, rank))
        # The first sample, the second and the fourth.
        assert sorted({each.head.step for each in found}) == [2, 3, 5]
        masks = [each.mask() for each in found if each.head.parameters == [0]]
        for mask in masks:
            rows = mask.reshape(ROWS, WIDTH)
            assert rows.all(1).nonzero()[0].tolist() == [0, rank + 1]
            assert rows.sum() == 2 * WIDTH


def traced(directory: Path) -> None:
    model = ddp_of(Table())
    with profile(model, directory, steps=4, warmup=2, every=1, trace=True):
        run_steps(model)


MODES: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "many_buckets": (Plain, {"bucket_cap_mb": 0.001}),
    "bucket_views": (Plain, {"gradient_as_bucket_view": True}),
    "static_graph": (Plain, {"static_graph": True}),
    "unused_parameters": (Branching, {"find_unused_parameters": True}),
    "sparse_embedding": (Embedding, {}),
}


def trains_alike(directory: Path) -> None:
    """With three ranks a mean is rounded, in whichever way it is made."""
    for name, (kind, options) in MODES.items():

        def observed(model: Any, group: Any, name: str = name) -> Any:
            profile(model, directory / name, **PLAN)
            return model

        expected = train(kind, dist.group.WORLD, steps=LAST + 2, **options)
        actual = train(kind, dist.group.WORLD, steps=LAST + 2, prepare=observed, **options)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("backend", ["gloo", "sparsewire"])
def test_results_are_the_same(
    new_ranks: Callable[..., Ranks], tmp_path: Path, backend: str
) -> None:
    new_ranks(3, backend).run(trains_alike, tmp_path)
    for name in MODES:
        for each in load(tmp_path / name).ranks:
            assert len(each.steps) == 4
            assert all(step.buckets for step in each.steps)


def with_hook(directory: Path | None) -> tuple[Any, list[Any]]:
    futures: list[Any] = []

    def hook(state, bucket):  # Torch reads annotations, and these would be text.
        futures.append(default_hooks.fp16_compress_hook(state, bucket))
        return futures[-1]

    def prepare(model: Any, group: Any) -> Any:
        if directory is not None:
            profile(model, directory, **PLAN)
        model.register_comm_hook(group, hook)
        return model

    options = {"steps": LAST + 2, "prepare": prepare, "bucket_cap_mb": 0.001}
    return train(Plain, dist.group.WORLD, **options), futures


def hooked_alike(directory: Path) -> None:
    expected, plain = with_hook(None)
    actual, observed = with_hook(directory)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert len(plain) == len(observed)


def test_the_users_hook_is_observed(two: Ranks, tmp_path: Path) -> None:
    two.run(hooked_alike, tmp_path)
    for each in load(tmp_path).ranks:
        sampled = [step for step in each.steps if step.sampled]
        assert len(sampled) == 2
        for bucket in sampled[0].buckets:
            assert bucket.communication_begin_s <= bucket.communication_end_s
            assert bucket.union_block_density is not None
            # What a lossy hook gives back says nothing of it.
            assert bucket.union_element_density is None


def refuses_registered_hooks(directory: Path) -> None:
    model = ddp_of(Table())
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    with pytest.raises(InputError, match="before the model's communication hook"):
        profile(model, directory)


def test_a_hook_that_is_there_already(two: Ranks, tmp_path: Path) -> None:
    two.run(refuses_registered_hooks, tmp_path)


def leaves_nothing(directory: Path) -> list[int]:
    calls = []
    passed_on = ObservedGroup.allreduce

    def counted(self: Any, *arguments: Any) -> Any:
        calls.append(len(directory_files(directory)))
        return passed_on(self, *arguments)

    ObservedGroup.allreduce = counted  # type: ignore[method-assign]
    try:
        model = ddp_of(Table())
        hooks, attributes = len(model._forward_hooks), set(vars(model))
        profile(model, directory, **PLAN)
        counts = []
        for _ in range(LAST + 4):
            run_steps(model, 1)
            counts.append(len(calls))
    finally:
        ObservedGroup.allreduce = passed_on  # type: ignore[method-assign]
    assert len(model._forward_hooks) == hooks
    assert set(vars(model)) == attributes
    return counts


def directory_files(directory: Path) -> list[Path]:
    return list(directory.glob("*"))


def test_nothing_is_left_behind(two: Ranks, tmp_path: Path) -> None:
    buckets = 2
    expected = [0, 0] + [buckets * n for n in range(1, 5)] + [buckets * 4] * 4
    assert two.run(leaves_nothing, tmp_path) == [expected, expected]


class Heard(logging.Handler):
    """What the profile has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logging.getLogger("sparsewire.profile").addHandler(self)

    def emit(self, entry: logging.LogRecord) -> None:
        self.lines.append(entry.getMessage())


def trains_on(directories: list[Path | None], break_it: Callable[[], None]) -> list[str]:
    """Train with a profile in this rank's directory, if any; what it logs."""
    heard, directory = Heard(), directories[dist.get_rank()]
    options = {"steps": LAST + 2, "bucket_cap_mb": 0.001}

    def prepare(model: Any, group: Any) -> Any:
        if directory is not None:
            profile(model, directory, trace=True, **PLAN)
        return model

    expected = train(Plain, dist.group.WORLD, **options)
    break_it()
    actual = train(Plain, dist.group.WORLD, prepare=prepare, **options)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    return heard.lines


def nothing() -> None:
    """Breaks nothing."""


def marking_fails() -> None:
    if dist.get_rank() == 1:
        Marks.of = None  # type: ignore[assignment, method-assign]


def installing_fails() -> None:
    if dist.get_rank() == 1:
        GroupTap.install = None  # type: ignore[assignment, method-assign]


def uniting_fails() -> None:
    if dist.get_rank() == 1:
        StepRecord.unite = None  # type: ignore[assignment, method-assign]


def telling_fails() -> None:
    if dist.get_rank() == 1:
        Company.message = None  # type: ignore[assignment, method-assign]


def saving_masks_fails() -> None:
    if dist.get_rank() == 1:
        trace.append = None  # type: ignore[assignment]


BREAKING = [marking_fails, installing_fails, uniting_fails, telling_fails, saving_masks_fails]


def test_a_directory_that_nobody_can_write_to(two: Ranks, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = tmp_path / "file" / "profile"
    first, second = two.run(trains_on, [tmp_path / "good", broken], nothing)
    assert len(second) == 1
    assert f"nothing can be written to {broken}" in second[0]
    # The others hear of it, instead of waiting.
    assert first == ["the profile ends, for it has failed on another rank: see its log"]


@pytest.mark.parametrize("break_it", BREAKING)
def test_a_rank_whose_profile_fails(
    two: Ranks, tmp_path: Path, break_it: Callable[[], None]
) -> None:
    first, second = two.run(trains_on, [tmp_path, tmp_path], break_it)
    assert "the training goes on" in second[0]
    assert "failed on another rank" in first[0]


def test_ranks_that_record_nothing(two: Ranks, tmp_path: Path) -> None:
    first, second = two.run(trains_on, [tmp_path, None], nothing)
    assert "not all ranks record" in first[0]
    assert second == []
    assert (tmp_path / "rank-0.json").exists()


def uneven(directory: Path) -> None:
    model = DistributedDataParallel(nn.Linear(FEATURES, 1))
    profile(model, directory, **PLAN)
    with Join([model]):
        for step in range(LAST + 2 - dist.get_rank()):
            model(batch_of(step)).sum().backward()


def test_uneven_inputs(two: Ranks, tmp_path: Path) -> None:
    two.run(uneven, tmp_path)
    sampled = [step for step in load(tmp_path).ranks[0].steps if step.sampled]
    assert [step.buckets[0].union_block_density for step in sampled] == [None, None]
    assert [step.buckets[0].block_density for step in sampled] == [1, 1]


def accumulates(directory: Path) -> None:
    model = ddp_of(Table())
    with profile(model, directory, **PLAN):
        for _ in range(LAST + 1):
            with model.no_sync():
                model(own_rows()).sum().backward()
            model(own_rows()).sum().backward()


def test_steps_are_what_is_synchronised(two: Ranks, tmp_path: Path) -> None:
    two.run(accumulates, tmp_path)
    assert [step.step for step in load(tmp_path).ranks[1].steps] == [2, 3, 4, 5]


def test_a_plain_model_on_one_rank(tmp_path: Path) -> None:
    model = Table()
    with profile(model, tmp_path, **PLAN) as recording:
        assert profile(model, tmp_path / "other") is recording
        run_steps(model)
    (found,) = load(tmp_path).ranks
    assert (found.world_size, found.backend) == (1, "none")
    for step in found.steps:
        (bucket,) = step.buckets
        assert sorted(bucket.parameters) == [0, 1]
        assert bucket.union_block_density is None
        assert bucket.ready_s == bucket.communication_end_s
        # All of the head, and two rows of the table.
        expected = (OUTPUTS + 2) / (OUTPUTS + ROWS) if step.sampled else None
        assert bucket.block_density == bucket.element_density == expected
    assert not model._forward_hooks
    assert all(not p._post_accumulate_grad_hooks for p in model.parameters())


@dataclass
class Output:
    """What a model may return, beside tensors."""

    parts: list[Any]


class Wrapping(Table):
    def forward(self, rows: torch.Tensor) -> Any:
        return {"found": Output([None, 3, super().forward(rows)]), "text": "more"}


def test_a_model_that_returns_objects(tmp_path: Path) -> None:
    model = Wrapping()
    with profile(model, tmp_path, **PLAN):
        for _ in range(LAST + 1):
            model(own_rows())["found"].parts[2].sum().backward()
    assert [step.step for step in load(tmp_path).ranks[0].steps] == [2, 3, 4, 5]


def test_an_earlier_profile_is_replaced(tmp_path: Path) -> None:
    for name in ("rank-0.json", "rank-0.trace", "rank-7.json", "notes.txt", "rank-x.json"):
        (tmp_path / name).write_text("old")
    model = Table()
    with profile(model, tmp_path, **PLAN):
        run_steps(model, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "rank-x.json"]


def test_nothing_to_train(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no parameter"):
        profile(nn.ReLU(), tmp_path)
    with pytest.raises(InputError, match="1 step or more"):
        profile(Table(), tmp_path, warmup=1)


def test_recorded_models_agree(two: Ranks, tmp_path: Path) -> None:
    """What one rank wrote of the buckets, the other wrote too."""
    two.run(record, tmp_path, False)
    first, second = load_steps(load(tmp_path))
    assert first == second


def load_steps(found: Recorded) -> list[list[list[tuple[int, list[int]]]]]:
    return [
        [[(b.bucket, b.parameters) for b in step.buckets] for step in each.steps]
        for each in found.ranks
    ]


@pytest.mark.parametrize(
    ("module", "kind"),
    [
        (nn.Embedding(8, 4), "Embedding"),
        (nn.EmbeddingBag(8, 4), "EmbeddingBag"),
        (nn.EmbeddingBag(8, 4, mode="max"), None),
        (nn.Embedding(8, 4, scale_grad_by_freq=True), None),
        (nn.Linear(8, 4), None),
    ],
)
def test_tables_are_those_that_take_sparse_gradients(module: Any, kind: str | None) -> None:
    assert table_classes(nn.Sequential(module)).get(id(module.weight)) == kind
