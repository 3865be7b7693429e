"""The shape of the sources: each file says what it is, and functions stay short."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ["src", "core", "bindings", "tests", "examples", "benchmarks", "bpf"]
MEDIAN_LINES = 12
LONG_LINES = 50


def sources(*suffixes: str) -> Iterator[Path]:
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and path.stat().st_size > 0:
                yield path


def test_python_files_open_with_a_docstring() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in sources(".py", ".pyi")
        if not ast.get_docstring(ast.parse(path.read_text(), str(path)))
    ]
    assert not bare


def test_cpp_files_open_with_a_comment() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in sources(".hpp", ".cpp", ".h", ".c")
        if not path.read_text().startswith(("//", "/*"))
    ]
    assert not bare


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring left out: documentation may be long."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def function_lengths() -> dict[str, int]:
    return {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": body_lines(node)
        for path in sources(".py")
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_python_functions_are_short() -> None:
    lengths = function_lengths()
    too_long = [name for name, lines in lengths.items() if lines >= LONG_LINES]
    assert statistics.median(lengths.values()) < MEDIAN_LINES
    assert len(too_long) <= 0.05 * len(lengths), too_long
