"""The doctor: facts of a machine, findings about made-up ones, and whole runs."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from support import run_ranks

from sparsewire.meeting.network.interfaces import Device, device_with
from sparsewire.meeting.network.resources import Resources
from sparsewire.options import LinkFigures
from sparsewire.tools.cli import doctor as command
from sparsewire.tools.cli.main import app
from sparsewire.tools.doctor.diagnosis import DENSITIES, SIZES, Diagnosis, choices, of_ranks
from sparsewire.tools.doctor.findings import Finding, findings
from sparsewire.tools.doctor.gpu import Gpu, look_at_gpu
from sparsewire.tools.doctor.machine import Machine, look_at_machine
from sparsewire.tools.doctor.tables import print_diagnosis

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
GIGABIT = LinkFigures(1e-4, 8e-9, 4e-9)


def machine(number: int = 0, **facts: object) -> Machine:
    healthy = Machine(
        host=f"host{number}",
        identity=f"host{number} boot net",
        version="0.1.0",
        simd="avx2",
        processors=8,
        interface="eth0",
        address=f"10.0.0.{number + 1}",
        address_problem=None,
        is_loopback=False,
        congestion_control="cubic",
        mtu=1500,
        speed_mbit=1000,
        torch=None,
        mpi4py=None,
        resources=Resources(f"host{number}", f"machine{number}", "ff", 0.0, 1, 1000),
    )
    return dataclasses.replace(healthy, **facts)  # type: ignore[arg-type]


def only_finding(*machines: Machine, link: LinkFigures | None = GIGABIT) -> Finding:
    (finding,) = findings(list(machines), link)
    return finding


def test_nothing_is_wrong_with_healthy_machines() -> None:
    assert findings([machine(0), machine(1)], GIGABIT) == []


def test_loopback_is_wrong_between_hosts_and_right_on_one() -> None:
    on_loopback = {"is_loopback": True, "address": "127.0.0.1", "interface": "lo"}
    finding = only_finding(machine(0), machine(1, **on_loopback))
    assert finding.serious
    assert "rank 1 " in finding.problem
    assert "SPARSEWIRE_IFNAME" in finding.advice
    same = machine(0, **on_loopback)
    assert findings([same, same], None) == []


@pytest.mark.parametrize(
    ("fact", "value", "words"),
    [
        ("mtu", 9000, "MTUs: 1500 on rank 0; 9000 on rank 1"),
        ("simd", "avx512", "SIMD levels"),
        ("speed_mbit", 10_000, "link speeds"),
        ("congestion_control", "bbr", "congestion controls"),
    ],
)
def test_ranks_that_differ_are_told_apart(fact: str, value: object, words: str) -> None:
    finding = only_finding(machine(0), machine(1, **{fact: value}))
    assert not finding.serious
    assert words in finding.problem


def test_different_versions_are_serious() -> None:
    assert only_finding(machine(0), machine(1, version="0.2.0")).serious


def test_a_processor_without_avx2_is_told() -> None:
    assert "without AVX2" in only_finding(machine(0, simd="portable"), link=None).problem


def test_ranks_that_share_few_processors_are_told() -> None:
    crowded = machine(0, processors=2)
    assert "2 ranks share the 2 processors" in only_finding(crowded, crowded).problem


def test_a_link_that_gives_less_than_it_should_is_told() -> None:
    slow = LinkFigures(1e-4, 80e-9, 4e-9)
    assert (
        "100 Mbit/s of the 1000 Mbit/s" in only_finding(machine(0), machine(1), link=slow).problem
    )


def test_what_is_serious_comes_first() -> None:
    machines = [machine(0, simd="portable", mtu=9000), machine(1, address_problem="eth9: none")]
    serious = [finding.serious for finding in findings(machines, GIGABIT)]
    assert serious == sorted(serious, reverse=True)
    assert serious[0]
    assert not serious[-1]


def test_every_size_and_density_gets_an_algorithm() -> None:
    made = choices(GIGABIT, 4)
    assert [(c.bytes, c.density) for c in made] == [(s, d) for s in SIZES for d in DENSITIES]
    assert all(choice.predicted_s > GIGABIT.latency_s for choice in made)


@linux
def test_loopback_is_known_by_its_address() -> None:
    mtu = int(Path("/sys/class/net/lo/mtu").read_text())
    assert device_with("127.0.0.1") == Device("lo", mtu, None)
    assert device_with("192.0.2.1") == Device()


@linux
def test_a_machine_is_looked_at() -> None:
    found = look_at_machine({"SPARSEWIRE_IFNAME": "lo"}, try_lab=False)
    assert (found.interface, found.address, found.is_loopback) == ("lo", "127.0.0.1", True)
    assert found.host == socket.gethostname()
    assert found.address_problem is None


def test_lanes_are_told_and_why() -> None:
    def said(*machines: Machine) -> str:
        console = Console(record=True, width=100)
        print_diagnosis(console, Diagnosis.of(list(machines), GIGABIT))
        return console.export_text()

    fast = Resources("host0", "machine0", "ff", 0.0, 1, 25_000)
    other = fast._replace(host="host1", machine="machine1")
    assert "lanes: 5 (a rank has a link of 25000 Mbit/s" in said(
        machine(resources=fast), machine(1, resources=other)
    )
    assert "lanes: 2 (as SPARSEWIRE_LANES says)" in said(machine(lanes=2), machine(1, lanes=2))
    assert "lanes:" not in said(machine(resources=None))


def test_a_wrong_interface_is_a_problem_of_the_machine() -> None:
    found = look_at_machine({"SPARSEWIRE_IFNAME": "nothing"}, try_lab=False)
    assert found.address is None
    assert "nothing: no such network interface" in str(found.address_problem)


def diagnose() -> tuple[int, str]:
    rank, diagnosis = of_ranks(os.environ)
    return rank, diagnosis.to_json()


def test_all_ranks_know_all_machines() -> None:
    told = run_ranks(3, diagnose)
    assert [rank for rank, _ in told] == [0, 1, 2]
    texts = {text for _, text in told}
    assert len(texts) == 1
    diagnosis = Diagnosis.from_fields(json.loads(texts.pop()))
    assert len(diagnosis.machines) == 3
    assert diagnosis.link is not None
    assert diagnosis.choices == choices(diagnosis.link, 3)


@pytest.fixture
def unlaunched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "SPARSEWIRE_IFNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("unlaunched")
def test_the_command_measures_local_workers() -> None:
    outcome = CliRunner().invoke(app, ["doctor", "--workers", "2"])
    assert outcome.exit_code == 0, outcome.output
    for words in ("rank 0, 1", "latency of a message", "Mbit/s", "100 MB", "SIMD level"):
        assert words in outcome.output


@pytest.mark.usefixtures("unlaunched")
def test_the_command_writes_json_of_this_machine() -> None:
    outcome = CliRunner().invoke(app, ["doctor", "--json"])
    assert outcome.exit_code == 0, outcome.output
    diagnosis = Diagnosis.from_fields(json.loads(outcome.output))
    assert len(diagnosis.machines) == 1
    assert diagnosis.link is None


@pytest.mark.usefixtures("unlaunched")
def test_what_is_wrong_sets_the_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARSEWIRE_IFNAME", "nothing")
    outcome = CliRunner().invoke(app, ["doctor"])
    assert outcome.exit_code == 1
    assert "wrong: rank 0 has no address" in outcome.output
    assert "what to do: set SPARSEWIRE_IFNAME" in outcome.output


def test_rank_0_prints_before_a_launcher_knows_that_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Torchrun ends all ranks once one has failed."""
    wrong = Diagnosis.of([machine(0), machine(1, version="0.0.1")], GIGABIT)
    statuses = []
    for rank in (0, 1):
        monkeypatch.setattr(command, "_diagnose", lambda workers, rank=rank: (rank, wrong))
        outcome = CliRunner().invoke(app, ["doctor"])
        statuses.append((outcome.exit_code, "different versions" in outcome.output))
    assert statuses == [(1, True), (0, False)]


@pytest.mark.usefixtures("unlaunched")
def test_one_machine_is_told_how_ranks_are_measured() -> None:
    output = CliRunner().invoke(app, ["doctor"]).output
    assert "torchrun --standalone --no-python --nproc-per-node 2 sparsewire doctor" in output


@linux
def test_torchrun_starts_the_command() -> None:
    """As docs and the command itself write it out."""
    pytest.importorskip("torch")
    scripts = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    outcome = subprocess.run(
        [*TORCHRUN, "--standalone", "--no-python", "--nproc-per-node", "2", "sparsewire", "doctor"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=55,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "measured among 2 ranks" in outcome.stdout


def test_workers_are_refused_under_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    outcome = CliRunner().invoke(app, ["doctor", "--workers", "2"])
    assert outcome.exit_code == 1
    assert "leave --workers away" in outcome.output


def test_paths_of_tensors_on_gpus_follow_link_and_copies() -> None:
    on_gpu = {"gpu": "a GPU", "gpu_down_s": 1e-10, "gpu_up_s": 2e-10}
    ranks = [machine(number, **on_gpu) for number in range(4)]
    diagnosis = Diagnosis.of(ranks, GIGABIT)
    by_density = {each.density: each for each in diagnosis.paths}
    assert by_density[0.01].path == "packed"
    assert by_density[1.0].path == "dense"
    # Four ranks, each 1%, and 3.94% of the blocks on some: 3/4 of both over 1 Gbit/s.
    assert by_density[0.01].packed_s == pytest.approx(0.0494 * 100e6 * 0.75 * 8e-9, rel=0.3)
    # The slowest GPU counts.
    slow = Diagnosis.of([*ranks[:3], machine(3, **{**on_gpu, "gpu_up_s": 1e-6})], GIGABIT)
    assert slow.paths[0].dense_s > 100
    assert Diagnosis.from_fields(json.loads(diagnosis.to_json())) == diagnosis


def test_there_are_no_paths_where_a_rank_has_no_gpu() -> None:
    on_gpu = {"gpu": "a GPU", "gpu_down_s": 1e-10, "gpu_up_s": 2e-10}
    assert Diagnosis.of([machine(0, **on_gpu), machine(1)], GIGABIT).paths == []
    assert Diagnosis.of([machine(0, **on_gpu)], None).paths == []


def test_torch_is_asked_for_a_gpu_only_where_there_is_a_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # Whose import fails.
    driver = tmp_path / "version"
    assert look_at_gpu({}, driver) == Gpu()
    driver.write_text("NVRM version")
    assert look_at_gpu({}, driver) == Gpu()


def test_tables_tell_of_gpus() -> None:
    on_gpu = {"gpu": "Tesla", "gpu_down_s": 1e-10, "gpu_up_s": 2e-10}
    console = Console(record=True, width=200)
    print_diagnosis(console, Diagnosis.of([machine(0, **on_gpu), machine(1, **on_gpu)], GIGABIT))
    text = console.export_text()
    assert "Tesla: 10.0 GB/s to pinned memory, 5.0 back" in text
    assert "packed" in text
    print_diagnosis(console, Diagnosis.of([machine(0), machine(1)], GIGABIT))
    text = console.export_text()
    assert "none that torch reaches" in text
    assert "packed" not in text
