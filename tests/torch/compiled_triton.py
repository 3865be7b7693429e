"""Compiles Triton's kernels for GPUs that need not be there; a program of its own.

Its interpreter takes what its compiler does not. Prints a line of JSON: why each kernel failed.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sparsewire.device import triton_packing

# Ampere and Hopper.
CAPABILITIES = [80, 90]
WIDTH, TILE = 256, 8
FORMS = [("i16", 0x7FFF), ("i32", 0x7FFFFFFF), ("i64", (1 << 63) - 1), ("i32", -1)]


def source(kernel: Any, types: list[str], constants: dict[str, int]) -> ASTSource:
    named = dict(zip(kernel.arg_names, types, strict=False))
    constants = {**constants, "width": WIDTH, "tile": TILE}
    signature = {**named, **dict.fromkeys(constants, "constexpr")}
    return ASTSource(kernel, signature, constants)


def sources() -> dict[str, ASTSource]:
    made = {}
    for bits, mask in FORMS:
        rows = f"*{bits}"
        name = f"{bits} & {mask:x}"
        made[f"mark {name}"] = source(triton_packing._mark, [rows, "*i8", "i32"], {"mask": mask})
        made[f"gather {name}"] = source(triton_packing._gather, [rows, "*i64", rows, "i32"], {})
        made[f"fill {name}"] = source(triton_packing._fill, [rows, "*i64", rows, "i32"], {})
    return made


def outcome(made: ASTSource) -> str:
    """Nothing, or why it failed."""
    try:
        for capability in CAPABILITIES:
            compiled = triton.compile(made, target=GPUTarget("cuda", capability, 32))
            assert compiled.asm["cubin"]
    except BaseException:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({name: outcome(made) for name, made in sources().items()}))
