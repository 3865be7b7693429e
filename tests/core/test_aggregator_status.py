"""`sparsewire aggregator status`: what an aggregator tells, to whom, and in which forms."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support import run_ranks, serving
from test_aggregator import COMMAND, WORD, run_job, wait_until_empty

import sparsewire
from sparsewire.meeting.aggregators import planes
from sparsewire.meeting.aggregators.aggregator import AggregatorServer, Job
from sparsewire.meeting.aggregators.observation import (
    DOCUMENT_MAX,
    JOBS_TOLD,
    AggregatorStatus,
    JobStatus,
    ask,
)
from sparsewire.options import Address
from sparsewire.tools.cli.views.status_views import prometheus_text, tables
from sparsewire.tools.experiment.report import report_console

SLOTS = ["contributions", "duplicates", "stale", "rejected", "results", "resent", "recalls"]
TO_PARENT = ["passed", "passed_again"]
SAMPLE = re.compile(r'(?P<name>[a-z_]+)(?:\{job="(?P<job>[0-9a-f]{16})"\})? (?P<value>\S+)')


def status_command(*arguments: object, secret: str = "") -> subprocess.CompletedProcess[str]:
    argv = [*COMMAND, "status", *map(str, arguments)]
    environment = {**os.environ, "SPARSEWIRE_SECRET": secret}
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=30, check=False, env=environment
    )


def told_by(server: AggregatorServer, *, secret: str = "") -> dict[str, Any]:
    done = status_command(server.address, "--json", secret=secret)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def reduce_until(path: str) -> int:
    """Sum after sum, until rank 0 sees the file; returns how many."""
    with sparsewire.init() as comm:
        for times in range(1, 1_000_000):
            x = np.ones(100_000, np.float32)
            x[0] = float(comm.rank == 0 and Path(path).exists())
            comm.all_reduce(x)
            if x[0]:
                return times
    raise AssertionError("never told to end")


@contextmanager
def running(server: AggregatorServer, end: Path, transport: str = "udp") -> Iterator[None]:
    """A job of two ranks at the server, which is busy as long as the block."""
    environment = {
        "SPARSEWIRE_AGGREGATORS": str(server.address),
        "SPARSEWIRE_TRANSPORT": transport,
    }
    with ThreadPoolExecutor() as pool:
        job = pool.submit(run_ranks, 2, reduce_until, str(end), environment=environment)
        try:
            yield
        finally:
            end.touch()
            job.result()


def wait_for_sums(server: AggregatorServer) -> AggregatorStatus:
    for _ in range(200):
        told = ask(server.address)
        if told.jobs and told.jobs[0].slots.get("results", 0) > 0:
            return told
        threading.Event().wait(0.1)
    raise AssertionError("no sums were seen")


def test_idle_aggregator_tells_that_it_is_idle() -> None:
    with serving() as server:
        told = told_by(server)
        assert told.keys() == {
            *("address", "transport", "interface", "hook", "seconds", "totals"),
            *("jobs", "jobs_left_out"),
        }
        assert told["address"] == str(server.address)
        assert (told["transport"], told["interface"], told["jobs"]) == ("tcp", "", [])
        assert told["seconds"] > 0
        assert told["totals"]["jobs_served"] == 0


def test_running_job_is_shown_with_its_workers_and_datagrams(tmp_path: Path) -> None:
    with serving(transport="udp") as server:
        with running(server, tmp_path / "end"):
            first = wait_for_sums(server)
            told = told_by(server)
        (job,) = told["jobs"]
        assert job["job"] == first.jobs[0].job
        assert (job["ranks"], job["here"]) == (2, 2)
        assert list(job["slots"]) == [*SLOTS, *TO_PARENT]
        for name in SLOTS:
            assert job["slots"][name] >= first.jobs[0].slots[name], name
        assert job["slots"]["contributions"] >= 2 * job["slots"]["results"] > 0
        totals = told["totals"]
        assert (totals["jobs"], totals["workers"], totals["jobs_served"]) == (1, 2, 1)
        assert totals["memory_reserved"] >= totals["memory"] > 0
        assert totals["datagrams_received"] >= job["slots"]["contributions"]
        wait_until_empty(server)
        after = ask(server.address)
        assert after.jobs == ()
        assert after.totals["jobs_served"] == 1


def test_job_without_datagrams_has_no_counters_of_slots(tmp_path: Path) -> None:
    with serving() as server, running(server, tmp_path / "end", "tcp"):
        for _ in range(200):
            jobs = ask(server.address).jobs
            if jobs and jobs[0].here == 2:
                break
            threading.Event().wait(0.1)
        assert [(job.here, job.slots) for job in jobs] == [(2, {})]


def samples(text: str) -> dict[tuple[str, str | None], float]:
    """Reads the format strictly: HELP and TYPE once, before their samples."""
    found: dict[tuple[str, str | None], float] = {}
    kinds: dict[str, str] = {}
    lines = text.split("\n")
    assert lines.pop() == ""
    for line in lines:
        if line.startswith("# HELP "):
            assert len(line.split(" ", 3)[3]) > 5
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            is_counter = sample["name"].endswith("_total")
            assert kinds[sample["name"]] == ("counter" if is_counter else "gauge")
            assert (sample["name"], sample["job"]) not in found
            found[sample["name"], sample["job"]] = float(sample["value"])
    return found


def test_prometheus_reads_all_figures() -> None:
    slots = {name: 10 + number for number, name in enumerate(SLOTS)}
    jobs = (JobStatus("0" * 15 + "a", 1, 4, 3, slots), JobStatus("f" * 16, 2, 2, 2, {}))
    told = AggregatorStatus("h:1", "udp", "", 1.5, {"jobs": 2, "bytes_sent": 7}, jobs)
    text = prometheus_text(told)
    found = samples(text)
    prefix = "sparsewire_aggregator"
    expected: dict[tuple[str, str | None], float] = {
        (f"{prefix}_uptime_seconds", None): 1.5,
        (f"{prefix}_jobs", None): 2,
        (f"{prefix}_bytes_sent_total", None): 7,
        (f"{prefix}_job_ranks", jobs[0].job): 4,
        (f"{prefix}_job_ranks", jobs[1].job): 2,
        (f"{prefix}_job_ranks_here", jobs[0].job): 3,
        (f"{prefix}_job_ranks_here", jobs[1].job): 2,
    }
    expected |= {(f"{prefix}_{name}_total", jobs[0].job): n for name, n in slots.items()}
    assert found == expected


def test_prometheus_text_is_what_its_own_parser_takes() -> None:
    jobs = (JobStatus("f" * 16, 2, 2, 2, dict.fromkeys(SLOTS, 3)),)
    told = AggregatorStatus("h:1", "udp", "", 1.5, {"jobs": 1}, jobs)
    families = list(text_string_to_metric_families(prometheus_text(told)))
    assert len(families) == 4 + len(SLOTS)
    assert all(family.documentation for family in families)


def test_command_prints_prometheus_text() -> None:
    with serving(transport="udp") as server:
        run_job(2, server, SPARSEWIRE_TRANSPORT="udp")
        done = status_command(server.address, "--prometheus")
    assert done.returncode == 0, done.stderr
    found = samples(done.stdout)
    assert found["sparsewire_aggregator_jobs_served_total", None] == 1
    assert found["sparsewire_aggregator_datagrams_received_total", None] > 0


def test_tables_name_jobs_and_figures() -> None:
    jobs = (JobStatus("f" * 16, 2, 4, 3, dict.fromkeys(SLOTS, 300)),)
    earlier = (JobStatus("f" * 16, 2, 4, 3, dict.fromkeys(SLOTS, 100)),)
    before = AggregatorStatus("h:1", "xdp", "eth0", 10.0, {"bytes_sent": 1000}, earlier)
    told = AggregatorStatus(
        "h:1", "xdp", "eth0", 12.0, {"memory": 1_500_000, "bytes_sent": 5000}, jobs, 9
    )
    console = report_console()
    with console.capture() as capture:
        console.print(tables(told, before))
    text = capture.get()
    assert "aggregator h:1, xdp at eth0, up 12 s" in text
    assert re.search(r"bytes sent +5 kB +2 kB/s", text)
    assert re.search(r"memory +1\.5 MB +- ", text)
    assert f"job {'f' * 16}" in text
    assert "3 of 4 ranks" in text
    for name in SLOTS:
        assert re.search(rf"{name} +300 +100/s", text)
    assert "9 more jobs" in text


@contextmanager
def watching(
    server: AggregatorServer, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """The command with --watch, which has shown something."""
    asked = threading.Semaphore(0)
    tell = server.status

    def count() -> AggregatorStatus:
        asked.release()
        return tell()

    monkeypatch.setattr(server, "status", count)
    argv = [*COMMAND, "status", str(server.address), "--watch", *arguments]
    with subprocess.Popen(argv, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            for _ in range(2):
                assert asked.acquire(timeout=20)
            yield process
        finally:
            process.kill()


def test_watching_shows_tables_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server, watching(server, monkeypatch) as process:
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
        assert "jobs served" in shown


def test_watching_ends_with_the_aggregator(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        life = stack.enter_context(ExitStack())
        server = life.enter_context(serving())
        process = stack.enter_context(watching(server, monkeypatch, "--json"))
        address = server.address
        life.close()
        shown, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert f"no aggregator answers at {address}" in errors
    told = [json.loads(line)["seconds"] for line in shown.splitlines()]
    assert len(told) >= 1
    assert told == sorted(told)


@pytest.mark.parametrize(
    ("secret", "given", "is_told"),
    [(WORD, WORD, True), (WORD, "", False), (WORD, f"an{WORD}", False), ("", WORD, False)],
)
def test_only_who_knows_the_secret_is_told(secret: str, given: str, is_told: bool) -> None:
    with serving(secret=secret.encode()) as server:
        done = status_command(server.address, "--json", secret=given)
    assert done.returncode == (0 if is_told else 1)
    assert ("the secrets differ" in done.stderr) == (not is_told)
    assert bool(done.stdout) == is_told


def test_secret_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{WORD}\n")
    with serving(secret=WORD.encode()) as server:
        done = status_command(server.address, "--secret-file", file)
        assert "jobs served" in done.stdout
        file.write_text("")
        assert "is empty" in status_command(server.address, "--secret-file", file).stderr


def test_nobody_there_is_told(free_port: int) -> None:
    done = status_command(f"127.0.0.1:{free_port}")
    assert done.returncode == 1
    assert f"no aggregator answers at 127.0.0.1:{free_port}" in done.stderr


@contextmanager
def answering(answer: bytes) -> Iterator[Address]:
    """Somebody who is no aggregator, and says this to whoever has said something."""
    with closing(socket.create_server(("127.0.0.1", 0))) as door:

        def serve() -> None:
            connection, _ = door.accept()
            with closing(connection):
                connection.recv(1)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address(*door.getsockname())
        finally:
            thread.join(20)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 500])
def test_who_is_no_aggregator_is_named(answer: bytes) -> None:
    with answering(answer) as address:
        done = status_command(address)
    assert done.returncode == 1
    assert f"aggregator at {address}: the other end is not a sparsewire listener" in done.stderr


def test_silence_is_an_error() -> None:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as door,
        pytest.raises(sparsewire.Timeout, match="no aggregator answers"),
    ):
        ask(Address(*door.getsockname()), limit=0.2)


def test_observer_takes_no_place_and_disturbs_no_job() -> None:
    with serving(jobs_max=1) as server:
        for _ in range(5):
            assert ask(server.address).jobs == ()
        assert server.jobs == 0
        run_job(2, server)


class Plane:
    """A data plane in the kernel, by its face, which has counted this."""

    hook = "tc"

    def __init__(self, interface: str, receiver: socket.socket, tried: None) -> None:
        receiver.close()
        self._jobs: set[int] = set()

    def add_job(self, job: int, world_size: int, epoch: int, key: bytes) -> None:
        self._jobs.add(job)

    def remove_job(self, job: int) -> None:
        self._jobs.remove(job)

    def slots(self) -> dict[int, dict[str, int]]:
        return {job: {name: 100 + n for n, name in enumerate(SLOTS)} for job in self._jobs}

    def stats(self) -> dict[str, int]:
        return {"datagrams_strange": 77}

    def close(self) -> None:
        self._jobs.clear()


def test_counters_of_the_kernel_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "KernelPlane", Plane)
    with serving(transport="xdp", interface="eth0") as server:
        with running(server, tmp_path / "end", "tcp"):
            for _ in range(200):
                told = ask(server.address)
                if told.jobs:
                    break
                threading.Event().wait(0.1)
        assert (told.transport, told.interface, told.hook) == ("xdp", "eth0", "tc")
        assert [job.slots for job in told.jobs] == [{name: 100 + n for n, name in enumerate(SLOTS)}]
        assert told.totals["datagrams_strange"] == 77
        assert "datagrams_sent" not in told.totals


def test_largest_document_is_within_its_bound() -> None:
    most = 2**64 - 1
    slots = dict.fromkeys(SLOTS, most)
    job = JobStatus("f" * 16, 2**32 - 1, 2**32 - 1, 2**32 - 1, slots)
    totals = {f"{'n' * 20}{number}": most for number in range(20)}
    told = AggregatorStatus("a" * 64, "xdp", "i" * 16, 1e9, totals, (job,) * JOBS_TOLD, 1)
    document = told.encode()
    assert len(document) <= DOCUMENT_MAX
    assert AggregatorStatus.decode(document[4:]) == told


def test_jobs_beyond_the_document_are_counted() -> None:
    with serving(jobs_max=JOBS_TOLD + 9) as server:
        jobs = {n: Job(b"", 1, arriving={(0, 0)}) for n in range(JOBS_TOLD + 9)}
        server._guard.jobs = jobs
        told = ask(server.address)
        assert len(told.jobs) == JOBS_TOLD
        assert told.jobs_left_out == 9


DOCUMENT = AggregatorStatus("h:1", "tcp", "", 1.0, {"jobs": 1}, ()).encode()[4:]


@given(st.binary(max_size=300) | st.integers(0, len(DOCUMENT) - 1).map(lambda n: DOCUMENT[:n]))
def test_any_document_is_read_or_refused(document: bytes) -> None:
    try:
        AggregatorStatus.decode(document)
    except sparsewire.ProtocolError:
        assert document != DOCUMENT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("jobs", [{"job": "x", "epoch": 1, "ranks": 1, "here": 1, "slots": {}}]),
        ("jobs", [{"job": "f" * 16, "epoch": 1, "ranks": 1, "here": 1, "slots": {"a": "1"}}]),
        ("jobs", [{"job": f"\n{'f' * 15}", "epoch": 1, "ranks": 1, "here": 1, "slots": {}}]),
        ("jobs", [{"job": "f"}]),
        ("jobs", 7),
        ("totals", {"a b": 1}),
        ("totals", {"jobs": 1.5}),
        ("totals", {"memory": 10**308}),
        ("totals", []),
        ("address", "\x1b[2J"),
        ("seconds", "1"),
    ],
)
def test_document_with_a_wrong_part_is_refused(key: str, value: object) -> None:
    document = json.dumps({**json.loads(DOCUMENT), key: value}).encode()
    with pytest.raises(sparsewire.ProtocolError):
        AggregatorStatus.decode(document)


def test_what_a_later_version_tells_besides_is_ignored() -> None:
    document = json.dumps({**json.loads(DOCUMENT), "more": 1}).encode()
    assert AggregatorStatus.decode(document) == AggregatorStatus.decode(DOCUMENT)


def test_forms_exclude_each_other() -> None:
    done = status_command("127.0.0.1:1", "--prometheus", "--json")
    assert done.returncode == 1
    assert "leave --json and --watch away" in done.stderr


def test_options_of_serving_are_refused_before_the_subcommand() -> None:
    argv = [*COMMAND, "--bind", "127.0.0.1:0", "status", "127.0.0.1:1"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "--bind is of serving" in done.stderr
