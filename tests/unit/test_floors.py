"""Rooms and floors are counted as the sources use each other."""

from __future__ import annotations

from pathlib import Path

import floors

SOURCES = {
    "src/sparsewire/__init__.py": "from sparsewire.work import Work",
    "src/sparsewire/work.py": "from sparsewire import _core",
    "src/sparsewire/tools/lab/__init__.py": "import sparsewire",
    "src/sparsewire/tools/lab/link.py": "from ..lab import name\nfrom ...work import Work",
    "src/sparsewire/tools/cli/main.py": "def run():\n    from ..lab.link import Link",
    "src/sparsewire/empty/__init__.py": '"""Only says what it is."""',
    "bindings/core.cpp": '#include "comm/lane.hpp"\n#include <vector>',
    "core/comm/lane.hpp": '#include "net/tcp.hpp"',
    "core/net/tcp.hpp": '#include "comm/lane.hpp"',
}


def test_rooms_stand_above_those_they_use(tmp_path: Path) -> None:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    stack = floors.floors(floors.rooms(tmp_path))
    assert stack == [
        ["core/comm", "core/net"],
        ["bindings"],
        ["src/sparsewire"],
        ["src/sparsewire/__init__.py"],
        ["src/sparsewire/tools/lab"],
        ["src/sparsewire/tools/cli"],
    ]
    assert list(floors.drawn(stack))[:3] == [" 5  tools/cli", " 4  tools/lab", " 3  the face"]


def test_the_architecture_shows_the_floors() -> None:
    root = Path(__file__).parents[2]
    hint = "run `python tests/floors.py --write`"
    assert floors.picture(root) in (root / "ARCHITECTURE.md").read_text(), hint
