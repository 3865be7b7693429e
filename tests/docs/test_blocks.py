"""Every block of code on the pages runs, or says why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import PAGES, ROOT, Block, blocks_of, commands, files, program

pytestmark = pytest.mark.timeout(300)

DEADLINE_S = 240
LANGUAGES = {"python", "bash", "diff", "text"}
RANKS = 2
RUNNER = Path(__file__).with_name("run_page.py")


def pages_with(part: object) -> list[object]:
    """The pages that have something of that kind to run."""
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in sorted(PAGES)
        if callable(part) and part(page.read_text()).strip()
    ]


def environment(**more: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SPARSEWIRE_IFNAME": "lo", "OMP_NUM_THREADS": "1", **more}


def run_page(page: Path, folder: Path, port: int) -> None:
    """Run a page's Python on all ranks; raises AssertionError with what a rank wrote."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    # Not at that port: where a page uses torch as well, torch keeps it.
    place["SPARSEWIRE_RENDEZVOUS"] = f"file://{folder}"
    ranks = []
    for rank in range(RANKS):
        with (folder / f"rank-{rank}.log").open("w") as log:
            command = [sys.executable, str(RUNNER), str(page)]
            settings = environment(RANK=str(rank), LOCAL_RANK=str(rank), **place)
            ranks.append(
                subprocess.Popen(command, cwd=folder, env=settings, stdout=log, stderr=log)
            )
    try:
        for number, rank in enumerate(ranks):
            status = rank.wait(DEADLINE_S)
            assert status == 0, (folder / f"rank-{number}.log").read_text()
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.mark.parametrize("page", pages_with(program))
def test_python_runs(page: Path, tmp_path: Path, free_port: int) -> None:
    run_page(page, tmp_path, free_port)


@pytest.mark.parametrize("page", pages_with(commands))
def test_commands_run(page: Path, tmp_path: Path) -> None:
    for name, code in files(page.read_text()).items():
        (tmp_path / name).write_text(code)
    done = subprocess.run(
        ["bash", "-e", "-c", commands(page.read_text())],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_blocks_say_what_they_are() -> None:
    unknown = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks_of(page.read_text())
        if block.language not in LANGUAGES
    ]
    assert not unknown


def test_no_block_is_overlooked() -> None:
    for page in PAGES:
        text = page.read_text()
        fences = sum(line.startswith("```") for line in text.splitlines())
        given = text.count("<!--given")
        blocks = list(blocks_of(text))
        assert len(blocks) == fences // 2 + given, page
        assert sum(block.reason is not None for block in blocks) == text.count("<!--not run"), page


def test_files_are_used() -> None:
    for page in PAGES:
        text = page.read_text()
        assert not [name for name in files(text) if name not in commands(text)], page


SAMPLE = """# Page
<!--given
x = 1
-->
```python
y = x + 1
```
<!--not run: needs another host-->
```bash
ssh elsewhere
```
```python title="train.py"
print(2)
```
```diff
 assert y == 2
-y = 3
+y = 4
```
```bash
python train.py
```
"""


def test_pages_are_read_as_written() -> None:
    assert program(SAMPLE).splitlines()[2:6] == ["x = 1", "", "", "y = x + 1"]
    assert program(SAMPLE).splitlines()[15:18] == ["assert y == 2", "", "y = 4"]
    assert files(SAMPLE) == {"train.py": "print(2)\n"}
    assert commands(SAMPLE) == "python train.py\n"
    left_out = Block("bash", 10, "ssh elsewhere\n", None, "needs another host")
    assert [block for block in blocks_of(SAMPLE) if block.reason] == [left_out]


def test_what_fails_is_named_by_its_line(tmp_path: Path, free_port: int) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md.*line 5"):
        run_page(page, tmp_path, free_port)
