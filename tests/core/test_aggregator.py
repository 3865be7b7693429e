"""Dedicated aggregators: a process of their own that serves several jobs, guarded by a key."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from support import run_ranks, serving

import sparsewire
from sparsewire.meeting.aggregators.aggregator import AggregatorServer
from sparsewire.options import Address


def reduce_some(times: int) -> list[float]:
    with sparsewire.init() as comm:
        results = []
        for n in range(times):
            x = np.zeros(300_000, np.float32)
            x[1000 * comm.rank : 1000 * comm.rank + 1500] = n + 1
            results.append(float(comm.all_reduce(x).sum()))
        return results


def run_job(world_size: int, *servers: AggregatorServer, **environment: str) -> None:
    addresses = ",".join(str(server.address) for server in servers)
    results = run_ranks(
        world_size, reduce_some, 3, environment={"SPARSEWIRE_AGGREGATORS": addresses, **environment}
    )
    assert results == [[1500.0 * (n + 1) * world_size for n in range(3)]] * world_size


def wait_until_empty(server: AggregatorServer) -> None:
    for _ in range(100):
        if server.jobs == 0:
            return
        threading.Event().wait(0.1)
    raise AssertionError("the aggregator still has jobs")


def test_two_aggregators_and_two_lanes() -> None:
    with serving() as first, serving() as second:
        run_job(3, first, second, SPARSEWIRE_LANES="2")
        for server in (first, second):
            assert server.stats()["bytes_received"] > 0
            wait_until_empty(server)


def test_two_jobs_at_once_and_one_after() -> None:
    with serving() as server:
        with ThreadPoolExecutor() as pool:
            for job in [pool.submit(run_job, size, server) for size in (2, 3)]:
                job.result()
        wait_until_empty(server)
        run_job(2, server)
        wait_until_empty(server)


COMMAND = [sys.executable, "-m", "sparsewire", "aggregator"]
# A secret must be long.
WORD = "a word of sixteen bytes or more"


def test_shared_secret() -> None:
    with serving(secret=WORD.encode()) as server:
        run_job(2, server, SPARSEWIRE_SECRET=WORD)


def fail_to_start() -> str:
    with pytest.raises(sparsewire.AuthenticationError) as refused:
        sparsewire.init(timeout=10)
    return str(refused.value)


@pytest.mark.parametrize(
    ("secret", "environment", "message"),
    [
        (WORD.encode(), {"SPARSEWIRE_SECRET": f"an{WORD}"}, "the secrets differ"),
        (WORD.encode(), {}, "the secrets differ"),
        (b"", {"SPARSEWIRE_SECRET": WORD}, "asks for the key instead of proving it"),
    ],
)
def test_secrets_that_differ(
    secret: bytes, environment: dict[str, str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(secret=secret) as server:
        environment = {**environment, "SPARSEWIRE_AGGREGATORS": str(server.address)}
        for text in run_ranks(2, fail_to_start, environment=environment):
            assert message in text
            assert str(server.address) in text
        assert server.jobs == 0
    logged = "\n".join(one.getMessage() for one in caplog.records)
    for rank in range(2):
        who = rf"rank {rank} of job \w{{16}} at 127\.0\.0\.1:\d+"
        assert re.search(rf"{who} has another SPARSEWIRE_SECRET, or none", logged)


def fail_by_the_secrets() -> str:
    with pytest.raises(sparsewire.AuthenticationError) as refused:
        sparsewire.init(timeout=30)
    return str(refused.value)


def test_a_rank_with_another_secret_is_named_on_all_ranks_before_they_dial() -> None:
    with serving(secret=WORD.encode()) as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        first, second = run_ranks(2, fail_with_a_secret_of_my_own, environment=environment)
    assert "rank 1 has another secret" in first
    assert "rank 0 has another secret" in second


def fail_with_a_secret_of_my_own() -> str:
    os.environ["SPARSEWIRE_SECRET"] = WORD + os.environ["RANK"].replace("0", "")
    return fail_by_the_secrets()


def test_limits_are_kept() -> None:
    with serving(ranks_max=1) as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        for text in run_ranks(2, fail_to_start, environment=environment):
            assert "do not fit the job" in text


def fail_for_want_of_memory() -> str:
    with sparsewire.init(timeout=20) as comm, pytest.raises(sparsewire.ResourceError) as refused:
        comm.all_reduce(np.ones(1000, np.float32))
    return str(refused.value)


@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        ({"window_max": 1 << 16}, "a larger --max-window"),
        ({"job_memory": 1 << 20}, "a larger --job-memory"),
        ({"memory": 1 << 20}, "a larger --memory"),
    ],
)
def test_job_that_may_need_too_much_is_told_what_to_set(
    limits: dict[str, int], advice: str
) -> None:
    with serving(**limits) as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        for text in run_ranks(2, fail_for_want_of_memory, environment=environment):
            assert advice in text


def test_memory_is_free_again_behind_a_job() -> None:
    with serving() as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        assert run_ranks(2, reduce_some, 1, environment=environment) == [[3000.0]] * 2
        wait_until_empty(server)
        assert server.stats()["memory_reserved"] == 0


def fail_when_it_dies(process_id: int) -> Exception:
    with sparsewire.init() as comm:
        try:
            # One rank may be through while the other's result is still on its way.
            comm.barrier()
            if comm.rank == 0:
                os.kill(process_id, signal.SIGKILL)
            while True:
                comm.all_reduce(np.ones(100_000, np.float32), timeout=20)
        except sparsewire.Error as error:
            return error


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`sparsewire aggregator` as a process, and the address that it printed."""
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert re.fullmatch(r"listening on \S+:\d+\n", line)
            yield process, line.split()[-1]
        finally:
            process.kill()


@pytest.mark.chaos
def test_killed_aggregator_is_an_error_on_every_rank() -> None:
    with command() as (process, address):
        environment = {"SPARSEWIRE_AGGREGATORS": address}
        for error in run_ranks(2, fail_when_it_dies, process.pid, environment=environment):
            assert isinstance(error, sparsewire.PeerLost)
            assert error.rank == -1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_ends_when_told_to(number: signal.Signals, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{WORD}\n")
    with command("--bind", "127.0.0.1:0", "--secret-file", str(secret)) as (process, address):
        environment = {"SPARSEWIRE_AGGREGATORS": address, "SPARSEWIRE_SECRET": WORD}
        assert run_ranks(2, reduce_some, 1, environment=environment) == [[3000.0]] * 2
        process.send_signal(number)
        assert process.wait(10) == 0


def test_aggregator_may_start_after_its_workers(free_port: int) -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        environment = {"SPARSEWIRE_AGGREGATORS": f"127.0.0.1:{free_port}"}
        job = pool.submit(run_ranks, 2, reduce_some, 1, environment=environment)
        threading.Event().wait(1.0)
        stack.enter_context(command("--bind", f"127.0.0.1:{free_port}"))
        assert job.result() == [[3000.0]] * 2


def test_short_secret_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("fifteen letters\n")
    argv = [*COMMAND, "--secret-file", str(secret)]
    refused = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 1
    assert "has 15 bytes, and at least 16 are needed" in refused.stderr


def test_wrong_bind_is_refused() -> None:
    with pytest.raises(sparsewire.Error, match=r"cannot listen on 192\.0\.2\.1:0"):
        AggregatorServer(Address("192.0.2.1", 0))
