"""Counts the rooms and floors of the product, from imports and includes, and draws them.

python tests/floors.py [FOLDER]      # FOLDER is a checkout; by default the one it stands in
python tests/floors.py --write       # writes them into ARCHITECTURE.md, which a test compares

A room is a folder with sources; the package's face, which hands out what users import, is one by
itself, and what `python -m sparsewire` runs is at the commands' door. A room stands one floor above
the highest of those it uses. Rooms that use each other, in a circle, share a floor.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

Graph = dict[str, set[str]]

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
FACE = "src/sparsewire/__init__.py"
DOOR, COMMANDS = "src/sparsewire/__main__.py", "src/sparsewire/tools/cli"
NATIVE = "bindings"
MARKED = re.compile(r"<!--floors-->.*?<!--end-->", re.DOTALL)


def rooms(root: Path) -> Graph:
    """What each room uses: other rooms, by their folders."""
    uses: Graph = defaultdict(set)
    for source in sources(root):
        uses[room_of(root, source)] |= set(used_by(root, source))
    return {room: used - {room} for room, used in uses.items()}


def sources(root: Path) -> Iterator[Path]:
    for folder, pattern in (("src", "*.py"), ("core", "*.[ch]pp"), ("bindings", "*.[ch]pp")):
        for source in (root / folder).rglob(pattern):
            # A file that only says what the folders below are makes no room.
            if source.name != "__init__.py" or len(list(source.parent.glob("*.py"))) > 1:
                yield source


def room_of(root: Path, source: Path) -> str:
    name = str(source.relative_to(root))
    if name == DOOR:
        return COMMANDS
    return name if name == FACE else str(source.parent.relative_to(root))


def used_by(root: Path, source: Path) -> Iterator[str]:
    if source.suffix == ".py":
        for name in imported(source.relative_to(root / "src"), ast.parse(source.read_text())):
            yield from room_of_name(root, name)
        return
    for name in INCLUDE.findall(source.read_text()):
        bases = (source.parent, root / "core", root / "bindings")
        yield from [room_of(root, base / name) for base in bases if (base / name).is_file()][:1]


def imported(module: Path, tree: ast.Module) -> Iterator[str]:
    """Dotted names that a module imports, those for a type checker as well."""
    name, is_package = ".".join(module.with_suffix("").parts), module.name == "__init__.py"
    name = name.removesuffix(".__init__")
    for node in ast.walk(tree):
        yield from imported_names(node, name, is_package)


def imported_names(node: ast.AST, module: str, is_package: bool) -> list[str]:
    """Absolute dotted names that one import statement asks for; empty for other statements."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parents = module.split(".")
        keep = len(parents) - node.level + is_package
        base = ".".join([*parents[:keep], *filter(None, [node.module])])
    return [f"{base}.{alias.name}" for alias in node.names]


def room_of_name(root: Path, name: str) -> Iterator[str]:
    """The room of the module that a dotted name means, or is in; none for those of others."""
    if name.startswith("sparsewire._core"):
        yield NATIVE
    elif name.partition(".")[0] == "sparsewire":
        here = root / "src" / name.replace(".", "/")
        for path in (here, here.parent):
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    yield room_of(root, file)
                    return


def floors(uses: Graph) -> list[list[str]]:
    """Rooms by floor, from the ground up."""
    above: Graph = {room: reachable(room, uses) for room in uses}
    left, stack = set(uses), []
    while left:
        floor = {room for room in left if not (uses[room] & left) - circle_of(room, above)}
        # Of a circle, all come at once or none.
        floor = {room for room in floor if circle_of(room, above) <= floor | (uses.keys() - left)}
        stack.append(sorted(floor))
        left -= floor
    return stack


def circle_of(room: str, reach: Graph) -> set[str]:
    """The rooms that use this one and are used by it, itself among them."""
    return {room} | {other for other in reach[room] if room in reach[other]}


def reachable(room: str, uses: Graph) -> set[str]:
    found: set[str] = set()
    left = [room]
    while left:
        new = uses.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def drawn(stack: list[list[str]]) -> Iterator[str]:
    """A line for each floor, from the roof down."""
    for number, on_it in reversed(list(enumerate(stack))):
        names = (re.sub(r"^src/sparsewire/?", "", room) for room in on_it)
        yield f"{number:2}  {'  '.join(named(name) for name in names)}"


def named(room: str) -> str:
    return {"__init__.py": "the face", "": "root modules"}.get(room, room)


def picture(root: Path) -> str:
    """What ARCHITECTURE.md has between its marks: the floors, and how many there are."""
    uses = rooms(root)
    stack, modules = floors(uses), len(list((root / "src" / "sparsewire").glob("*.py")))
    lines = ["```text", *drawn(stack), "```"]
    counts = f"{len(uses)} rooms on {len(stack)} floors; {modules} modules in the root folder."
    return "\n".join(["<!--floors-->", *lines, "", counts, "<!--end-->"])


def circles(uses: Graph) -> set[frozenset[str]]:
    """Rooms that use each other."""
    reach = {room: reachable(room, uses) for room in uses}
    return {frozenset(circle_of(room, reach)) for room in uses if room in reach[room]}


def main(arguments: list[str]) -> None:
    root = Path(__file__).resolve().parents[1]
    if arguments == ["--write"]:
        page = root / "ARCHITECTURE.md"
        page.write_text(MARKED.sub(lambda _: picture(root), page.read_text()))
        return
    root = Path(arguments[0]).resolve() if arguments else root
    print(picture(root))
    print(*(f"a circle: {', '.join(sorted(c))}" for c in circles(rooms(root))), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
