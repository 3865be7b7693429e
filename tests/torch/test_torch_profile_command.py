"""`sparsewire profile` records a training that knows nothing of it, and leaves its status alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsewire.profile.records.recorded import load

pytestmark = pytest.mark.timeout(180)

SCRIPT = """
import sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

assert "sparsewire.torch" not in sys.modules
torch.manual_seed(0)
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Embedding(64, 256), torch.nn.Linear(256, 8))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    ddp(torch.tensor([dist.get_rank()])).sum().backward()
    optimizer.step()
DistributedDataParallel(torch.nn.Linear(2, 1))
dist.destroy_process_group()
sys.exit(int(sys.argv[2]))
"""
COMMAND = "from sparsewire.tools.cli.main import app; app()"


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch finds the entry point, as where the package is installed."""
    entry = tmp_path / "site" / "sparsewire-0.dist-info"
    entry.mkdir(parents=True)
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: sparsewire\nVersion: 0\n")
    (entry / "entry_points.txt").write_text("[torch.backends]\nsparsewire=sparsewire.autoload:load")
    paths = [str(entry.parent), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run(
    environment: dict[str, str], tmp_path: Path, options: list[str], steps: int, status: int = 0
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    launched = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    training = [*launched, "--nproc-per-node", "2", str(script), str(steps), str(status)]
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "profile", *options, "--", *training],
        env={**environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_a_training_is_recorded(installed: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "profile"
    options = ["--output", str(output), "--steps", "3", "--warmup", "2", "--every", "1", "--trace"]
    done = run(installed, tmp_path, options, steps=8)
    assert done.returncode == 0, done.stderr
    # Of the two models, the first.
    for each in load(output).ranks:
        assert each.parameters[0].name == "0.weight"
        assert [step.step for step in each.steps] == [2, 3, 4]
        assert all(step.sampled for step in each.steps)
    assert {path.name for path in output.glob("*.trace")} == {"rank-0.trace", "rank-1.trace"}
    told = [line for line in done.stderr.splitlines() if "sparsewire advise" in line]
    assert told == [
        f"sparsewire: 3 steps are recorded in {output}; next: "
        f"sparsewire advise {output} --link 10gbit --hosts 8"
    ]


def test_a_short_training_fails(installed: dict[str, str], tmp_path: Path) -> None:
    done = run(installed, tmp_path, ["--output", str(tmp_path / "profile")], steps=3, status=4)
    assert done.returncode == 1  # That of the launcher.
    assert "nothing was recorded" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["--", "no-such-program"], 127, "cannot run no-such-program"),
        (["--warmup", "0", "--", "true"], 1, "2 or more before them"),
        (["--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], 137, "nothing was"),
    ],
)
def test_commands_that_do_not_train(
    tmp_path: Path, arguments: list[str], status: int, why: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "profile", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == status
    assert why in done.stderr
