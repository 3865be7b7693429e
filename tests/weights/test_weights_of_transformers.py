"""Models of the library transformers: trainers' FSDP shards reach readers in tensor parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparsewire._core import encode_delta
from sparsewire.weights.shards.changes import Changes
from sparsewire.weights.shards.layout import Layout
from sparsewire.weights.shards.parallel import gate_up, qkv, row, vocabulary
from sparsewire.weights.shards.places import Place
from sparsewire.weights.shards.targets import HostTarget
from sparsewire.weights.shards.views import View, concatenated, stacked
from sparsewire.weights.versions.tensors import FORMATS, Tensor

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

HIDDEN, INNER, HEADS, KV_HEADS, EXPERTS, VOCABULARY, PADDED = 24, 20, 4, 2, 3, 50, 64
TRAINERS = 3
CHUNK = 100
BF16 = FORMATS["BF16"]

Tensors = dict[str, Any]
Views = dict[str, View]


def settings(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        **more,
    }


def llama() -> Tensors:
    config = transformers.LlamaConfig(**settings(tie_word_embeddings=False))
    return weights_of(transformers.LlamaForCausalLM(config))


def mixtral() -> Tensors:
    config = transformers.MixtralConfig(**settings(num_local_experts=EXPERTS))
    return weights_of(transformers.MixtralForCausalLM(config))


def mixtral_by_expert() -> Tensors:
    """As checkpoints have it: each expert's matrices under their own names."""
    weights = {}
    for name, tensor in mixtral().items():
        stem, _, kind = name.rpartition(".")
        if kind == "gate_up_proj" and stem.endswith("experts"):
            for i, each in enumerate(tensor):
                weights[f"{stem}.{i}.w1.weight"], weights[f"{stem}.{i}.w3.weight"] = each.chunk(2)
        elif kind == "down_proj" and stem.endswith("experts"):
            weights |= {f"{stem}.{i}.w2.weight": each for i, each in enumerate(tensor)}
        else:
            weights[name] = tensor
    return weights


def weights_of(model: Any) -> Tensors:
    return {name: each.detach() for name, each in model.to(torch.bfloat16).state_dict().items()}


def reader_views(shapes: dict[str, tuple[int, ...]], rank: int, ranks: int) -> Views:
    """What a rank of an inference engine holds, by the trainers' names and shapes."""
    whole = {name: View.whole(name, shape) for name, shape in shapes.items()}
    views: Views = {}
    for name, view in whole.items():
        stem, _, last = name.removesuffix(".weight").rpartition(".")
        if last == "q_proj":
            kin = [whole[f"{stem}.{kind}_proj.weight"] for kind in "kv"]
            views[f"{stem}.qkv_proj"] = qkv(view, *kin, KV_HEADS, rank, ranks)
        elif last in ("embed_tokens", "lm_head"):
            views[name] = vocabulary(view, PADDED, rank, ranks)
        elif last == "gate_proj":
            views[f"{stem}.gate_up_proj"] = gate_up(
                view, whole[f"{stem}.up_proj.weight"], rank, ranks
            )
        elif last in ("o_proj", "down_proj"):
            views[name] = row(view, rank, ranks)
        elif last == "gate_up_proj":
            gate, up = (view.narrow(1, i * INNER, (i + 1) * INNER) for i in range(2))
            both = [each.shard(1, rank, ranks) for each in (gate, up)]
            views[f"{stem}.w13"] = concatenated(both, 1)
        elif last == "w1" and stem.endswith(".0"):
            views |= by_expert(whole, stem.removesuffix(".0"), rank, ranks)
        elif last.endswith(("norm", "layernorm")) or last == "gate":
            views[name] = view
    return views


def by_expert(whole: Views, stem: str, rank: int, ranks: int) -> Views:
    def of(kind: str) -> list[View]:
        return [whole[f"{stem}.{i}.{kind}.weight"] for i in range(EXPERTS)]

    pairs = zip(of("w1"), of("w3"), strict=True)
    return {
        f"{stem}.w13": stacked([gate_up(gate, up, rank, ranks) for gate, up in pairs]),
        f"{stem}.down_proj": stacked([row(each, rank, ranks) for each in of("w2")]),
    }


def reader_tensors(weights: Tensors, rank: int, ranks: int) -> Tensors:
    """The same, as an engine makes it of the full tensors when it loads them."""

    def share(tensor: Any, dimension: int = 0) -> Any:
        return tensor.chunk(ranks, dimension)[rank]

    made = {}
    for name, tensor in weights.items():
        stem, _, last = name.removesuffix(".weight").rpartition(".")
        if last == "q_proj":
            each = [weights[f"{stem}.{kind}_proj.weight"] for kind in "qkv"]
            heads = [each[0].view(HEADS, -1, HIDDEN)]
            heads += [kind.view(KV_HEADS, -1, HIDDEN) for kind in each[1:]]
            if ranks > KV_HEADS:
                heads[1:] = [kind.repeat_interleave(ranks // KV_HEADS, 0) for kind in heads[1:]]
            made[f"{stem}.qkv_proj"] = torch.cat([share(kind).flatten(0, 1) for kind in heads])
        elif last in ("embed_tokens", "lm_head"):
            padding = torch.zeros(PADDED - VOCABULARY, HIDDEN, dtype=tensor.dtype)
            made[name] = share(torch.cat([tensor, padding]))
        elif last == "gate_proj":
            both = [tensor, weights[f"{stem}.up_proj.weight"]]
            made[f"{stem}.gate_up_proj"] = torch.cat([share(each) for each in both])
        elif last in ("o_proj", "down_proj"):
            made[name] = share(tensor, -1)
        elif last == "gate_up_proj":
            gate, up = tensor.chunk(2, 1)
            made[f"{stem}.w13"] = torch.cat([share(gate, 1), share(up, 1)], 1)
        elif last.endswith("norm") or last == "gate":
            made[name] = tensor
    return made


def trained(weights: Tensors, seed: int) -> Tensors:
    """The next version: a small step, of which bfloat16 keeps a part."""
    torch.manual_seed(seed)
    return {
        name: (w.float() + 1e-4 * torch.randn(w.shape)).to(w.dtype) for name, w in weights.items()
    }


def bits(tensor: Any) -> Any:
    return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)


def shards(name: str, tensor: Any) -> list[tuple[Place, Any]]:
    """As FSDP cuts it: rows, of which the last rank may have less, or none."""
    begin, found = 0, []
    for rows in tensor.chunk(TRAINERS):
        end, rest = begin + len(rows), tuple(tensor.shape[1:])
        zeros = (0,) * len(rest)
        place = Place(name, tuple(tensor.shape), (begin, *zeros), (end, *rest))
        found.append((Place.parse(place.key, place.extent), bits(rows)))
        begin = end
    return found


def publish(layout: Layout, targets: dict[str, HostTarget], old: Tensors, new: Tensors) -> None:
    """Have all trainers publish their shards."""
    for name in new:
        pairs = zip(shards(name, old[name]), shards(name, new[name]), strict=True)
        for (place, before), (_, after) in pairs:
            base, fresh, route = before.reshape(-1), after.reshape(-1), layout.route(place)
            for begin in range(0, len(fresh), CHUNK):
                piece = slice(begin, begin + CHUNK)
                code, _ = encode_delta(base[piece], fresh[piece], BF16.width, BF16.floating)
                changes = Changes.of(code, len(fresh[piece]), BF16)
                for write in route.writes(targets, "BF16", begin, changes):
                    write.write()


def empty(view: View) -> HostTarget:
    nbytes = BF16.width * int(np.prod(view.shape))
    return HostTarget(Tensor("BF16", view.shape, np.zeros(nbytes, np.uint8)))


@pytest.mark.parametrize("make", [llama, mixtral, mixtral_by_expert])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_readers_in_tensor_parallelism_follow(make: Callable[[], Tensors], ranks: int) -> None:
    torch.manual_seed(7)
    first = make()
    shapes = {name: tuple(each.shape) for name, each in first.items()}
    nothing = {name: torch.zeros_like(each) for name, each in first.items()}
    for rank in range(ranks):
        layout = Layout(reader_views(shapes, rank, ranks))
        assert layout.sources == shapes.keys()
        targets = {name: empty(view) for name, view in layout.views.items()}
        layout.check(targets)
        old = nothing
        for new in (first, trained(first, 1)):
            publish(layout, targets, old, new)
            expected = reader_tensors(fused(new), rank, ranks)
            assert expected.keys() == targets.keys()
            for name, each in expected.items():
                found = targets[name].tensor.data.view(np.uint16).reshape(each.shape)
                np.testing.assert_array_equal(found, bits(each), err_msg=name)
            old = new


def fused(weights: Tensors) -> Tensors:
    """Experts by name put together as the module has them."""
    made = {
        name: each
        for name, each in weights.items()
        if ".experts." not in name or name.endswith("proj")
    }
    for name in weights:
        if name.endswith("experts.0.w1.weight"):
            stem = name.removesuffix(".0.w1.weight")
            w1, w2, w3 = (
                [weights[f"{stem}.{i}.w{kind}.weight"] for i in range(EXPERTS)]
                for kind in (1, 2, 3)
            )
            made[f"{stem}.gate_up_proj"] = torch.cat([torch.stack(w1), torch.stack(w3)], 1)
            made[f"{stem}.down_proj"] = torch.stack(w2)
    return made
