"""Worker processes: events arrive in order, failures are shown, nothing is left running."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from sparsewire.errors import Error, ExperimentError, WorkerFailed
from sparsewire.tools.experiment.crew import Crew, Event, run_workers
from sparsewire.tools.lab.site import Loopback, free_ports


def _run(code: str, logs: Path, workers: int = 2) -> list[Event]:
    events: list[Event] = []
    run_workers(Loopback(workers), [sys.executable, "-c", code], logs, events.append)
    return events


def test_events_of_rank_0_arrive_in_order(tmp_path: Path) -> None:
    code = """
import json, os
for number in range(3):
    print(json.dumps({"event": "step", "number": number, "rank": os.environ["RANK"]}), flush=True)
"""
    events = _run(code, tmp_path)
    assert [event["number"] for event in events] == [0, 1, 2]
    assert {event["rank"] for event in events} == {"0"}


def test_line_written_in_two_parts_is_one_event(tmp_path: Path) -> None:
    code = """
import sys, time
sys.stdout.write('{"event":'); sys.stdout.flush(); time.sleep(0.3); print('"step"}')
"""
    assert _run(code, tmp_path, workers=1) == [{"event": "step"}]


def test_failure_of_one_worker_is_shown_and_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import os, pathlib, time
if os.environ["RANK"] == "1":
    while not pathlib.Path(os.environ["PID_FILE"]).exists():
        time.sleep(0.01)
    raise ValueError("the reason")
path = pathlib.Path(os.environ["PID_FILE"])
path.with_suffix(".new").write_text(str(os.getpid()))
path.with_suffix(".new").rename(path)
time.sleep(50)
"""
    pid_file = tmp_path / "pid"
    monkeypatch.setenv("PID_FILE", str(pid_file))
    with pytest.raises(WorkerFailed, match="ValueError: the reason") as failure:
        _run(code, tmp_path)
    assert (failure.value.rank, failure.value.status) == (1, 1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_interruption_ends_the_workers(tmp_path: Path) -> None:
    code = "import os, time; print('{\"event\": %d}' % os.getpid(), flush=True); time.sleep(50)"
    pids: list[int] = []

    def interrupt(event: Event) -> None:
        pids.append(event["event"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_workers(Loopback(2), [sys.executable, "-c", code], tmp_path, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_failures_of_others_are_shown_too(tmp_path: Path) -> None:
    code = 'import os, sys; sys.exit("reason of rank " + os.environ["RANK"])'
    with pytest.raises(WorkerFailed) as failure:
        _run(code, tmp_path, workers=3)
    assert str(failure.value).count("failed too: reason of rank") == 2
    assert f"reason of rank {failure.value.rank}" in str(failure.value)


def test_worker_has_ended_although_its_child_holds_on_to_its_output(tmp_path: Path) -> None:
    code = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(50)"])
print('{"event": %d}' % child.pid, flush=True)
"""
    (event,) = _run(code, tmp_path, workers=1)
    os.kill(event["event"], signal.SIGKILL)


def test_others_end_with_the_workers(tmp_path: Path) -> None:
    with Crew(Loopback(2), tmp_path) as crew:
        sleep = [sys.executable, "-c", "import time; time.sleep(50)"]
        beside = crew.start_beside("sleeper", 1, sleep, os.environ)
        crew.start_workers(
            [sys.executable, "-c", 'print("{\\"event\\": \\"done\\"}")'], 1, os.environ
        )
        assert list(crew.events()) == [(0, {"event": "done"})]
        assert beside.popen.poll() is None
    assert beside.popen.returncode == -signal.SIGTERM


def test_one_beside_the_workers_that_ends_before_them_ends_all(tmp_path: Path) -> None:
    with Crew(Loopback(1, aggregators=1), tmp_path) as crew:
        crew.start_workers([sys.executable, "-c", "import time; time.sleep(50)"], 1, os.environ)
        end = [sys.executable, "-c", 'raise SystemExit("no such interface")']
        crew.start_beside("aggregator0", 1, end, os.environ)
        told = r"aggregator0 ended .* 1; .*\n.*no such interface"
        with pytest.raises(ExperimentError, match=told):
            list(crew.events())


def test_free_ports_are_none_that_the_system_gives_to_others_meanwhile() -> None:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.exists():
        pytest.skip("only Linux tells which ports it gives out")
    least, most = map(int, setting.read_text().split())
    assert not [port for port in free_ports(20) if least <= port <= most]


def test_free_ports_differ_and_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    monkeypatch.setattr("sparsewire.tools.lab.site._PORTS", ports[:3])
    with socket.create_server(("127.0.0.1", ports[0])):
        assert set(free_ports(2)) == set(ports[1:3])
        with pytest.raises(Error, match="no 3 ports"):
            free_ports(3)
