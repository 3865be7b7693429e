"""Dependencies point down only: includes in core/, imports in sparsewire, symbols of proto."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from floors import imported_names

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "core"
PACKAGE = ROOT / "src" / "sparsewire"

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
FOREIGN_INCLUDE = re.compile(r"(Python\.h|nanobind/|pybind11/|torch/|ATen/|c10/)")

# The package's own face, which hands out what users need, and the modules beside it.
FACE, ROOT_MODULES = "__init__.py", "*.py"

# Python wants it in the root: the other door to the commands.
COMMAND = PACKAGE / "__main__.py"


def layers() -> list[list[str]]:
    """Rows of the table of layers in ARCHITECTURE.md, from the top down: paths in one row each."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("## Layers") : text.index("## Threads")]
    return [expanded(row) for row in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)]


def expanded(path: str) -> list[str]:
    """a/{b,c} as a/b and a/c."""
    head, brace, rest = path.partition("{")
    return [head + name for name in rest.rstrip("}").split(",")] if brace else [path]


def heights(prefix: str) -> dict[str, int]:
    """How high each layer below `prefix` stands; those in one row stand equally high."""
    return {
        path.removeprefix(prefix): height
        for height, row in enumerate(reversed(layers()))
        for path in row
        if path.startswith(prefix)
    }


# A pure state machine has no sockets, files, clock, threads, environment or randomness.
IMPURE_SYMBOL = re.compile(
    r"""^(
        socket | socketpair | connect | bind | listen | accept4? | shutdown | [gs]etsockopt
      | (send|recv)(to|from|msg|mmsg)? | p?poll | p?select | epoll_\w+ | eventfd\w*
      | p?(read|write)v?\d* | open(at)?(64)? | f(open|read|write|printf|puts)\w* | v?printf | puts
      | time | gettimeofday | clock\w* | u?sleep | nanosleep
      | pthread_\w+ | sem_\w+ | getenv | secure_getenv | setenv
      | s?rand(om|_r)? | [dejlmn]rand48\w* | getrandom | getentropy
      | std::chrono::_V2::.* | std::(this_)?(thread|random_device|condition_variable|mutex)\b.*
      | std::(cout|cerr|clog|cin) | std::basic_[io]?fstream.*
    )(@.*)?$""",
    re.VERBOSE,
)


def core_sources() -> list[Path]:
    return sorted(path for path in CORE.rglob("*") if path.suffix in {".hpp", ".cpp"})


def layer_of(source: Path) -> str:
    """The layer of a file of the core: the innermost of its folders that has a row."""
    rows = heights("core/")
    folders = [str(folder) for folder in source.relative_to(CORE).parents]
    return next((folder for folder in folders if folder in rows), folders[-2])


def included(source: Path, name: str) -> Path | None:
    """The file of the core that an include names, or None for one that is not ours."""
    for base in (source.parent, CORE):
        target = (base / name).resolve()
        if target.is_file() and target.is_relative_to(CORE):
            return target
    return None


def test_core_includes_point_down() -> None:
    height, problems = heights("core/"), []
    for source in core_sources():
        layer = layer_of(source)
        for quote, name in INCLUDE.findall(source.read_text()):
            target = included(source, name)
            if target is None and quote == '"':
                problems.append(f"{source.relative_to(ROOT)}: {name} is not in core/")
            elif target and layer_of(target) != layer and height[layer_of(target)] >= height[layer]:
                problems.append(f"{source.relative_to(ROOT)}: includes {name}")
    assert not problems


def test_core_has_no_other_layers() -> None:
    assert {layer_of(source) for source in core_sources()} == heights("core/").keys()


def test_core_knows_neither_python_nor_torch() -> None:
    problems = [
        f"{source.relative_to(ROOT)}: {name}"
        for source in core_sources()
        for _, name in INCLUDE.findall(source.read_text())
        if FOREIGN_INCLUDE.match(name)
    ]
    assert not problems


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def python_modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str, nodes: Iterator[ast.AST]) -> set[str]:
    """Modules of sparsewire that these statements of `module` import, itself left out."""
    modules = python_modules()
    is_package = modules[module].name == "__init__.py"
    found = set()
    for node in nodes:
        for name in imported_names(node, module, is_package):
            # What is no module is a name inside the module before its last dot.
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules:
                found.add(target)
    return found - {module}


def layer_of_module(module: str, path: Path) -> str:
    """The innermost folder with a row of its own, or what stands for the modules of the root."""
    if path == COMMAND:
        return "tools/cli"
    if path.parent == PACKAGE:
        return FACE if module == "sparsewire" else ROOT_MODULES
    folders = path.relative_to(PACKAGE).parents
    rows = heights("src/sparsewire/")
    return next((str(f) for f in folders if str(f) in rows), str(folders[-2]))


def test_python_imports_point_down() -> None:
    height, modules, problems = heights("src/sparsewire/"), python_modules(), []
    for module, path in modules.items():
        layer = layer_of_module(module, path)
        for target in imports_of(module, ast.walk(ast.parse(path.read_text(), str(path)))):
            below = layer_of_module(target, modules[target])
            if below != layer and height[below] >= height[layer]:
                problems.append(f"{module} imports {target}")
    assert not problems


def test_python_has_no_other_layers() -> None:
    found = {
        layer_of_module(module, path)
        for module, path in python_modules().items()
        if module != "sparsewire.tools"  # It only says what the folders below it are.
    }
    assert found == heights("src/sparsewire/").keys()


def test_python_imports_have_no_cycle() -> None:
    graph = {
        module: imports_of(module, at_import(ast.parse(path.read_text(), str(path))))
        for module, path in python_modules().items()
    }
    TopologicalSorter(graph).prepare()


def at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements outside functions, which run when every module is complete.

    Those that only a type checker runs are among them.
    """
    for statement in tree.body:
        yield from ast.walk(statement) if isinstance(statement, ast.If) else [statement]


def newest_library(name: str) -> Path:
    """The static library of one layer, of whichever build of the core is the latest."""
    found = (ROOT / "build").rglob(f"libsparsewire_{name}.a")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        pytest.skip(f"no build of core/{name} under build/: run `make build` first")
    return newest


def impure_symbols(library: Path) -> set[str]:
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("nm (binutils) is not installed")
    command = [nm, "--undefined-only", "--demangle", str(library)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    symbols = re.findall(r"^\s+U (.+)$", listing, re.MULTILINE)
    assert symbols, f"{library} refers to no symbol at all: is it empty?"
    return {symbol for symbol in symbols if IMPURE_SYMBOL.match(symbol)}


def test_proto_library_is_pure() -> None:
    assert impure_symbols(newest_library("proto")) == set()


def test_symbol_check_finds_what_is_impure() -> None:
    # The same check must not pass on the layer whose work is sockets.
    assert impure_symbols(newest_library("net"))
