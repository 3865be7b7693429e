"""`comm.status()` and `sparsewire top`: what they show of ranks that work, wait or are stopped."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from meeting import meet, tell, wait_for
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.screen import Screen
from support import SETTLES_S, run_ranks, serving, until

import sparsewire
from sparsewire.errors import ProtocolError
from sparsewire.meeting import connect
from sparsewire.meeting.window import Member, ProcessStatus, look
from sparsewire.status import Sample, rates
from sparsewire.tools.cli.views.live import Screenful
from sparsewire.tools.cli.views.top_views import (
    HELP,
    Row,
    held_up,
    prometheus_text,
    rows_of,
    tables,
    unheard,
)
from sparsewire.tools.experiment.report import report_console

COMMAND = [sys.executable, "-m", "sparsewire", "top"]
# The command itself takes the terminal as its own: a fork of this process, whose threads hold
# locks, could not.
TAKE_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
RUN = "from sparsewire.tools.cli.main import app; app()"
AT_A_TERMINAL = [sys.executable, "-c", f"{TAKE_TERMINAL}; {RUN}", "top"]


# --- status ---


def tell_of_the_late(awaited: list[int | str]) -> dict[str, Any] | None:
    with sparsewire.init() as comm:
        comm.barrier()
        meet("connected")
        if comm.rank == 1:
            wait_for("seen", {0, 2})
            comm.all_reduce(np.ones(300_000, np.float32))
            return None
        work = comm.all_reduce(np.ones(300_000, np.float32), async_op=True)

        def waits() -> dict[str, Any] | None:
            status = comm.status()
            (operation,) = status["operations"]
            return status if operation["waits_for"] == awaited else None

        status = until(waits)
        tell("seen")
        work.wait()
        assert comm.status()["operations"] == []
        return dict(status)


@pytest.mark.parametrize("lanes", ["1", "2"])
def test_late_rank_is_the_one_that_others_wait_for(lanes: str) -> None:
    told = run_ranks(3, tell_of_the_late, [1], environment={"SPARSEWIRE_LANES": lanes})
    for status in (told[0], told[2]):
        (operation,) = status["operations"]
        assert (operation["op"], operation["seq"]) == ("all_reduce", 1)
        assert operation["bytes"] == 1_200_000
        assert status["in_flight"] == 1
        assert [lane["answers"] for lane in status["lanes"]] == [True] * int(lanes)


def test_ranks_of_an_aggregator_wait_for_it() -> None:
    with serving() as server:
        environment = {"SPARSEWIRE_AGGREGATORS": str(server.address)}
        name = f"aggregator {server.address}"
        told = run_ranks(3, tell_of_the_late, [name], environment=environment)
    assert set(told[0]["peers"]) == {name}


def tell_of_peers() -> dict[str, Any]:
    with sparsewire.init() as comm:
        x = np.zeros(256 * 1000, np.float32)
        x[: 256 * 250] = 1
        comm.status()
        for _ in range(4):
            comm.all_reduce(x)
        status = comm.status()
        meet("told")
        return status


def test_status_tells_of_peers_rates_and_density() -> None:
    for rank, status in enumerate(run_ranks(2, tell_of_peers)):
        assert (status["rank"], status["world_size"]) == (rank, 2)
        assert status["failure"] is None
        (peer,) = status["peers"].values()
        assert set(status["peers"]) == {1 - rank}
        assert peer["connected"]
        assert 0 <= peer["quiet_s"] < SETTLES_S
        assert min(peer["bytes_sent"], peer["bytes_received"]) > 0
        assert status["rates"]["density"] == 0.25
        assert status["rates"]["bytes_sent_per_s"] > 0
        made = status["rates"]["operations_per_s"] * status["rates"]["interval_s"]
        assert made == pytest.approx(4)
        assert status["memory"]["resident_bytes"] > 1 << 20


def test_rates_are_between_two_samples() -> None:
    names = ("operations", "bytes_sent", "bytes_received", "elements", "elements_sent")
    names = (*names, "datagram_bytes_sent", "datagram_bytes_received")
    before = Sample(10.0, dict.fromkeys(names, 100))
    now = Sample(12.0, dict(zip(names, (104, 300, 500, 1100, 200, 100, 100), strict=True)))
    assert rates(before, now) == {
        "interval_s": 2.0,
        "operations_per_s": 2.0,
        "bytes_sent_per_s": 100.0,
        "bytes_received_per_s": 200.0,
        "density": 0.1,
    }
    assert rates(before, before)["density"] is None


def ask_while_working() -> int:
    with sparsewire.init() as comm:
        ends = threading.Event()
        answers = 0

        def ask() -> int:
            times = 0
            while not ends.is_set():
                status = comm.status()
                assert status["failure"] is None
                # Of one moment: what is counted is what is listed.
                assert status["in_flight"] == len(status["operations"])
                assert (status["seconds"] is None) == (not status["operations"])
                times += 1
            return times

        with ThreadPoolExecutor() as pool:
            asking = [pool.submit(ask) for _ in range(3)]
            x = np.ones(100_000, np.float32)
            for _ in range(50):
                comm.all_reduce(x)
            ends.set()
            answers = sum(each.result() for each in asking)
        meet("asked")
    assert comm.status()["lanes"] == [{"answers": False, "in_flight": None, "queued_bytes": None}]
    return answers


def test_status_may_be_asked_while_operations_run() -> None:
    assert min(run_ranks(2, ask_while_working)) > 0


# --- top ---


def wait_for_each_other(end: str) -> int:
    """Rank 0 waits for rank 1, until somebody makes the file."""
    with sparsewire.init() as comm:
        comm.barrier()
        meet("connected")
        Path(f"{end}-{comm.rank}").touch()
        if comm.rank == 1:
            until(Path(end).exists)
        comm.all_reduce(np.ones(1000, np.float32))
    return os.getpid()


Look = Callable[[], list[Row]]


@contextmanager
def waiting_ranks(folder: Path, **environment: str) -> Iterator[Look]:
    """Two, of which rank 0 waits for rank 1; yields what finds them."""
    end, others = folder / "end", {process.pid for process in look()}
    with ThreadPoolExecutor() as pool:
        job = pool.submit(run_ranks, 2, wait_for_each_other, str(end), environment=environment)
        try:
            yield lambda: of_this_job(others)
        finally:
            end.touch()
            job.result()


def of_this_job(others: set[int]) -> list[Row]:
    """Other tests may run on this machine, too, and may have left ranks in this process: ours
    descend from it, and were not there before."""
    ours = [row for row in rows_of(look()) if row.pid not in others and is_descendant(row.pid)]
    return sorted(ours, key=lambda row: row.status["rank"] if row.status else -1)


def is_descendant(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


def both_waiting(ours: Look) -> list[Row]:
    """Once rank 0 waits in the reduction, and rank 1 does nothing."""

    def found() -> list[Row]:
        rows = ours()
        waits = [row.waits_for for row in rows] == [[1], []]
        return rows if waits and rows[0].status["op"] == "all_reduce" else []

    rows: list[Row] = until(found)
    return rows


def test_top_prints_who_waits_for_whom(tmp_path: Path) -> None:
    with waiting_ranks(tmp_path) as ours:
        pids = {row.pid for row in both_waiting(ours)}
        done = subprocess.run(
            [*COMMAND, "--once", "--json", "--interval", "0.1"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    rows = [row for row in json.loads(done.stdout) if row["pid"] in pids]
    assert len(rows) == 2
    first, second = sorted(rows, key=lambda row: row["status"]["rank"])
    assert first["status"]["operations"][0]["waits_for"] == [1]
    assert second["status"]["operations"] == []
    for row in (first, second):
        assert row["status"]["world_size"] == 2
        assert row["rates"]["operations_per_s"] == 0.0
        assert row["rates"]["interval_s"] >= 0.1
    assert not [row for row in ours() if row.pid in pids]


def test_tables_and_metrics_of_ranks(tmp_path: Path) -> None:
    with waiting_ranks(tmp_path) as ours:
        rows = both_waiting(ours)
    console = report_console()
    with console.capture() as capture:
        console.print(tables(rows))
    text = capture.get()
    assert re.search(r"0/2 .* all_reduce 1, \d+\.\d s, waits for 1", text)
    assert re.search(r"rank 1 holds up rank 0 \(\d+\.\d s\)", text)
    families = {each.name: each for each in text_string_to_metric_families(prometheus_text(rows))}
    (wait,) = families["sparsewire_rank_waits_for"].samples
    assert (wait.labels["rank"], wait.labels["peer"], wait.value) == ("0", "1", 1)
    assert len(families["sparsewire_rank_bytes_sent"].samples) == 2
    assert all(family.documentation for family in families.values())


def test_several_that_wait_are_told_in_one_sentence() -> None:
    def row(rank: int, waits_for: list[int | str]) -> Row:
        operations = [{"waits_for": waits_for}]
        status = {"group": "a", "rank": rank, "seconds": 1.5, "operations": operations}
        return Row(rank, "train.py", 0, status, None)

    told = list(held_up([row(0, [1]), row(2, [1]), row(1, [])]))
    assert told == ["train.py: rank 1 holds up ranks 0 (1.5 s), 2 (1.5 s)"]
    # The owner that rank 0 waits for waits itself.
    assert list(held_up([row(0, [2]), row(2, [1]), row(1, [])])) == told
    assert list(held_up([row(0, [1]), row(1, [0])])) == []
    (by_another,) = held_up([row(0, ["aggregator a:1"])])
    assert by_another == "train.py: aggregator a:1 holds up rank 0 (1.5 s)"


def test_jobs_of_one_program_are_told_apart() -> None:
    def rank(pid: int, group: str, rank: int, waits_for: list[int]) -> ProcessStatus:
        busy = {"operations": [{"waits_for": waits_for}]} if waits_for else {"operations": []}
        told = {**row_of(rank, **busy).status, "group": group, "number": 0, "totals": {}}
        return ProcessStatus(pid, "train.py", 1.0, (told,))

    idle = [rank(1, "c", 0, []), rank(4, "c", 1, [])]
    waiting = [rank(2, "b", 0, [1]), rank(5, "b", 1, [])]
    stopped = ProcessStatus(3, "train.py", 0.0, (), False, Member("a", 1, 2))
    rows = rows_of([*idle, *waiting, stopped])
    assert [row.pid for row in rows] == [1, 4, 2, 5, 3]
    assert list(held_up(rows)) == ["train.py: rank 1 holds up rank 0 (29.9 s)"]


def row_of(rank: int, **told: Any) -> Row:
    """A busy rank of many, with figures as wide as they get."""
    waiting = [{"waits_for": [1022]}]
    status = {"rank": rank, "world_size": 1024, "failure": None, "in_flight": 2, "silent": {}}
    status |= {
        "group": "a",
        "op": "reduce_scatter",
        "seq": 123_456,
        "seconds": 29.9,
        "operations": waiting,
    }
    names = ("operations_per_s", "bytes_sent_per_s", "bytes_received_per_s")
    figures = dict(zip(names, (12_345.6, 12_345e6, 12_345e6), strict=True))
    return Row(4_194_304 - rank, "train.py", 0, {**status, **told}, {**figures, "density": 0.01})


def shown(*rows: Row, width: int) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(tables(rows))
    return capture.get()


def test_tables_fit_into_70_columns() -> None:
    text = shown(row_of(1022, operations=[]), row_of(1023), width=70)
    assert max(map(len, text.splitlines())) <= 70
    for words in ("train.py", "1023/1024", "4193281", "12346", "12345", "0.010", "holds up"):
        assert words in text
    assert "…" not in text


def on_a_screen(height: int, *rows: Row) -> list[str]:
    """The lines that are not empty."""
    console = Console(width=120, height=height)
    lines = console.render_lines(Screen(Screenful(tables(rows))), console.options)
    assert len(lines) == height
    texts = ("".join(segment.text for segment in line).rstrip() for line in lines)
    return list(filter(None, texts))


@pytest.mark.parametrize("height", [1, 2, 3, 7, 24, 60])
def test_what_does_not_fit_the_screen_leaves_the_findings_in_sight(height: int) -> None:
    silent = [row_of(rank, operations=[], silent={str(rank): 5.0}) for rank in range(40)]
    shown = on_a_screen(height, *silent, row_of(1023))
    assert shown[-1] == "q ends this"
    findings = [line for line in shown if "gives no sign of life" in line]
    assert len(findings) == min(40, max(0, (height - 1) // 2 - 1))
    left_out = [int(line.split()[1]) for line in shown if "more lines do not fit" in line]
    if height > 2:
        assert len(shown) - len(left_out) + sum(left_out) >= 40 + 40 + 2


def test_findings_take_the_room_that_tables_leave() -> None:
    silent = {f"aggregator {number}": 5.0 for number in range(17)}
    shown = on_a_screen(24, row_of(0, operations=[], silent=silent))
    assert sum("gives no sign of life" in line for line in shown) == 17
    assert not [line for line in shown if "do not fit" in line]


def test_what_fits_the_screen_is_shown_whole() -> None:
    shown = on_a_screen(24, row_of(0), row_of(1023))
    assert [line.split()[0] for line in shown[-4:-2]] == ["0/1024", "1023/1024"]
    assert shown[-2].startswith("train.py: rank 1022 holds up ranks 0 (29.9 s), 1023")
    assert shown[-1] == "q ends this"


def test_ranks_are_shown_in_order_program_by_program() -> None:
    processes = [
        ProcessStatus(pid, program, 1.0, ({**row_of(rank).status, "number": 0, "totals": {}},))
        for pid, program, rank in [(1, "b.py", 10), (2, "a.py", 3), (3, "b.py", 9), (4, "a.py", 0)]
    ]
    rows = rows_of([*processes, ProcessStatus(5, "a.py", 0.0, (), False, Member("a", 2, 1024))])
    order = [(row.program, row.place[0]) for row in rows]
    assert order == [("a.py", 0), ("a.py", 2), ("a.py", 3), ("b.py", 9), ("b.py", 10)]


def test_ranks_that_give_no_sign_are_named_once() -> None:
    rows = [row_of(rank, silent={"3": 4.0 + rank, "aggregator a:1": 9.0}) for rank in (0, 1)]
    told = ["rank 3 gives no sign of life (5 s)", "aggregator a:1 gives no sign of life (9 s)"]
    assert list(unheard(rows)) == [f"train.py: {sentence}" for sentence in told]


Terminal = tuple[subprocess.Popen[bytes], int, list[Any]]


@contextmanager
def at_a_terminal(lines: int, *arguments: str) -> Iterator[Terminal]:
    """The command at a terminal with so many lines; yields the end at which people sit, and the
    terminal's modes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
    modes = termios.tcgetattr(ours)
    with subprocess.Popen(
        [*AT_A_TERMINAL, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield process, ours, modes
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)


def read_until(words: bytes, terminal: int, text: bytes = b"") -> tuple[bytes, bytes]:
    """What comes before the words, and as much as was read of what comes behind them."""
    deadline = time.monotonic() + SETTLES_S
    while words not in text:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, text
        text += os.read(terminal, 1 << 16)
    before, _, behind = text.partition(words)
    return before, behind


@pytest.mark.parametrize("lines", [25, 4])
def test_the_key_q_ends_it_and_gives_the_terminal_back(tmp_path: Path, lines: int) -> None:
    with waiting_ranks(tmp_path) as ours:
        both_waiting(ours)
        with at_a_terminal(lines, "--interval", "0.1") as (process, terminal, modes):
            _, behind = read_until(b"q ends this", terminal)
            os.write(terminal, b"xq")
            # The last look stays where the shell goes on, behind the screen that was its own.
            _, behind = read_until(b"\x1b[?1049l", terminal, behind)
            left, _ = read_until(b"holds up", terminal, behind)
            assert process.wait(SETTLES_S) == 0
            assert termios.tcgetattr(terminal) == modes
    assert b"0/2" in left
    assert b"q ends this" not in left


def is_stopped(pid: int) -> bool:
    """A signal takes effect once one of the threads is scheduled, which may take a while."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all("State:\tT" in (task / "status").read_text() for task in tasks)


@pytest.mark.chaos
def test_process_that_is_stopped_is_shown_as_such(tmp_path: Path) -> None:
    with waiting_ranks(tmp_path) as ours:
        victim = both_waiting(ours)[1].pid
        os.kill(victim, signal.SIGSTOP)
        try:
            until(lambda: is_stopped(victim))
            seen = {process.pid: process for process in look(limit=1.0)}
        finally:
            os.kill(victim, signal.SIGCONT)
        assert not seen[victim].answers
        rows = rows_of([seen[victim]])
        assert [row.status for row in rows] == [None]
        assert rows[0].place == (1, 2)
        told = f"{rows[0].program}: rank 1 (process {victim}) does not answer"
        assert "".join(unheard(rows)).startswith(told)


def test_process_that_hides_is_not_seen(tmp_path: Path) -> None:
    with waiting_ranks(tmp_path, SPARSEWIRE_TOP="0") as ours:
        until(lambda: len(list(tmp_path.glob("end-*"))) == 2)
        assert ours() == []


def is_seen() -> bool:
    return os.getpid() in {process.pid for process in look()}


def look_during_set_up() -> tuple[bool, bool]:
    seen = []
    measure = connect.measure

    def measure_seen(*args: Any) -> Any:
        seen.append(is_seen())
        return measure(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "measure", measure_seen)
        with sparsewire.init():
            return seen.pop(), is_seen()


def test_rank_is_seen_once_it_is_set_up() -> None:
    """What it measures before is no operation of the program's, and counts for no rate."""
    assert run_ranks(2, look_during_set_up) == [(False, True)] * 2


def fork_and_look() -> tuple[bool, bool]:
    with sparsewire.init() as comm:
        here = is_seen()
        child = os.fork()
        if child == 0:
            os._exit(0 if not [each for each in look(1.0) if each.pid == os.getpid()] else 1)
        _, status = os.waitpid(child, 0)
        comm.barrier()
    gone = os.getpid() not in {process.pid for process in look()}
    return here and status == 0, gone


def test_processes_are_seen_while_they_have_communicators() -> None:
    assert run_ranks(1, fork_and_look) == [(True, True)]


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"pid":1}', b"\xff", b"[" * 5000])
def test_what_is_no_status_is_refused(document: bytes) -> None:
    with pytest.raises(ProtocolError):
        ProcessStatus.decode(document)


def told_by(**changes: Any) -> bytes:
    """The document of a process whose communicator tells other things."""
    counted = (*HELP, "datagram_bytes_sent", "datagram_bytes_received")
    told = {**row_of(0).status, "number": 0, "totals": dict.fromkeys(counted, 1), "memory": {}}
    process = ProcessStatus(1, "train.py", 1.0, ({**told, **changes},), first=Member("a", 0, 2))
    return process.encode()


def test_documents_are_what_their_readers_take_them_for() -> None:
    process = ProcessStatus.decode(told_by())
    assert rows_of([process], [process])[0].place == (0, 1024)
    for changes in (
        {"rank": "x"}, {"rank": [1]}, {"number": []}, {"group": 7}, {"totals": {}}, {"silent": 3},
        {"silent": {"3": "x"}}, {"operations": [3]}, {"operations": [{"waits_for": 3}]},
    ):  # fmt: skip
        with pytest.raises(ProtocolError):
            ProcessStatus.decode(told_by(**changes))


def test_what_processes_tell_moves_no_cursor_and_is_no_markup() -> None:
    hostile = {"failure": "\x1b]0;T\x07[/x] bad", "silent": {"\x1b[31mX\nrank 9": 2.0}}
    (row,) = rows_of([ProcessStatus.decode(told_by(**hostile))])
    text = shown(replace(row, program="[/x]"), width=120)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[/x] bad" in text
    assert "[/x]: ?[31mX?rank 9 gives no sign of life (2 s)" in text


@pytest.mark.skipif(sys.platform != "linux", reason="names in the abstract namespace")
@pytest.mark.parametrize("name", [b"\0sparsewire-\xff", b"\0sparsewire\n1 2 3 zz 5 6 7 8"])
def test_names_of_others_hide_nobody(name: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(name + str(os.getpid()).encode())
        other.listen()
        look(0.1)


def test_nobody_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from sparsewire.tools.cli import top
    from sparsewire.tools.cli.main import app

    monkeypatch.setattr(top, "_look", lambda: [])
    for option in ("--once", "--prometheus"):
        done = CliRunner().invoke(app, ["top", option])
        assert done.exit_code == 1
        assert "no ranks of this user run here" in done.output
