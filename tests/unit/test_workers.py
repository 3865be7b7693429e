"""Worker processes: events arrive in order, failures are shown, nothing is left running."""

import os
import sys
from pathlib import Path

import pytest

from sparsewire.bench.site import Loopback
from sparsewire.workers.errors import WorkerFailed
from sparsewire.workers.launch import Event, run_workers


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
