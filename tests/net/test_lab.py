"""The lab, from outside: hosts reach each other at the link's speed, and nothing stays behind."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support import until

from sparsewire.tools.cli.lab import lab as lab_command
from sparsewire.tools.lab import Lab, LabError, available, parse_link, reaper
from sparsewire.tools.lab.site import Loopback

WHY_NOT = available()


def lab_test(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that makes namespaces."""
    return pytest.mark.lab(pytest.mark.skipif(WHY_NOT is not None, reason=f"{WHY_NOT}")(test))


ECHO_SERVER = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
connection, _ = server.accept()
while data := connection.recv(1 << 16):
    connection.sendall(data)
"""

ECHO_CLIENT = """
import socket
with socket.create_connection(("host0", 7000), timeout=10) as connection:
    connection.sendall(b"ping")
    print(connection.recv(4).decode(), connection.getpeername()[0])
"""

SINK = """
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("ready", flush=True)
connection, _ = server.accept()
while connection.recv(1 << 20):
    pass
connection.sendall(b"done")
"""

SOURCE = """
import socket, sys, time
with socket.create_connection(("host0", 7000), timeout=20) as connection:
    start = time.monotonic()
    connection.sendall(bytes(int(sys.argv[1])))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(4)
    print(time.monotonic() - start)
"""

FOREVER = "import signal, time; print('ready', flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + FOREVER

COMMAND_LINE = """
from sparsewire.tools.cli.lab import lab
lab()
"""


def python(lab: Lab, host: int, code: str, *arguments: str) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-c", code, *arguments]
    return lab.popen(host, argv, dict(os.environ), stdout=subprocess.PIPE, text=True)


def wait_until_ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def asked(lab: Lab, server: str, client: str, *arguments: str) -> str:
    """Start `server` on host 0, and return what `client` on host 1 prints."""
    with python(lab, 0, server) as serving:
        wait_until_ready(serving)
        with python(lab, 1, client, *arguments) as asking:
            return asking.communicate(timeout=30)[0].strip()


def seconds_to_send(lab: Lab, size: int) -> float:
    return float(asked(lab, SINK, SOURCE, str(size)))


def own_interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def namespace_of(process: int) -> reaper.NamespaceId:
    status = os.stat(f"/proc/{process}/ns/net")
    return status.st_dev, status.st_ino


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(lab_command, list(arguments))


@pytest.mark.parametrize(
    ("text", "bits"),
    [("100mbit", 10**8), ("1gbit", 10**9), ("2.5Gbit", 2_500_000_000), (" 10 gbit ", 10**10)],
)
def test_parse_link_reads_speeds(text: str, bits: int) -> None:
    assert parse_link(text) == bits


@pytest.mark.parametrize("text", ["", "fast", "1gb", "-1gbit", "0mbit", "1kbit", "400gbit"])
def test_parse_link_refuses_other_text(text: str) -> None:
    with pytest.raises(ValueError, match="link speed"):
        parse_link(text)


@pytest.mark.parametrize("arguments", [{"hosts": 0}, {"hosts": 1000}, {"hosts": 2, "mtu": 10}])
def test_bad_arguments_are_refused(arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"is \d+: "):
        Lab(**arguments)


def test_without_root_the_reason_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    reason = available()
    assert reason is not None
    assert "root" in reason or "Linux" in reason
    result = invoke("true")
    assert result.exit_code == 2
    assert result.stderr == f"sparsewire lab: {reason}\n"
    with pytest.raises(LabError, match="lab needs"):
        Lab(1).__enter__()


def test_environment_is_that_of_torchrun() -> None:
    environment = Lab(6).environment(2, world_size=4)
    assert environment == {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "SPARSEWIRE_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    with pytest.raises(ValueError, match="place 4 has no rank"):
        Lab(6).environment(4, world_size=4)
    shared = Loopback(3).environment(1, world_size=2)
    assert (shared["LOCAL_RANK"], shared["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert (shared["GROUP_RANK"], shared["GROUP_WORLD_SIZE"]) == ("0", "1")
    assert (shared["MASTER_ADDR"], shared["SPARSEWIRE_IFNAME"]) == ("127.0.0.1", "lo")


@lab_test
def test_hosts_reach_each_other_by_name_and_nothing_else() -> None:
    with Lab(hosts=2) as lab:
        assert asked(lab, ECHO_SERVER, ECHO_CLIENT) == f"ping {lab.addresses[0]}"
        outside = "import socket; print(socket.socket().connect_ex(('192.0.2.1', 80)) != 0)"
        assert python(lab, 0, outside).communicate(timeout=20)[0] == "True\n"


@lab_test
@pytest.mark.parametrize("mtu", [1500, 9000])
def test_links_have_the_speed_asked_for(mtu: int) -> None:
    with Lab(hosts=2, link="50mbit", mtu=mtu) as lab:
        seconds = seconds_to_send(lab, 5_000_000)
    assert 0.75 < seconds < 10, "5 MB take 0.8 s at 50 Mbit/s"


@lab_test
def test_labs_side_by_side_do_not_meet() -> None:
    with Lab(hosts=2) as one, Lab(hosts=2) as other, python(one, 0, ECHO_SERVER) as server:
        wait_until_ready(server)
        refused = "import socket; print(socket.socket().connect_ex(('10.0.0.1', 7000)))"
        assert python(other, 1, refused).communicate(timeout=20)[0] != "0\n"
        assert python(one, 1, ECHO_CLIENT).communicate(timeout=20)[0] == "ping 10.0.0.1\n"


@lab_test
@pytest.mark.parametrize("code", [FOREVER, DEAF])
def test_leaving_the_block_ends_processes_and_what_they_started(code: str) -> None:
    before = own_interfaces()
    detached = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    with contextlib.suppress(KeyError), Lab(hosts=2, grace=0.2) as lab:
        child = python(lab, 0, detached)
        wait_until_ready(child)
        inside = namespace_of(child.pid)
        assert len(reaper.members({inside})) == 2
        raise KeyError
    assert child.returncode is not None
    assert reaper.members({inside}) == []
    assert own_interfaces() == before


@lab_test
def test_stop_ends_processes_and_keeps_the_network() -> None:
    with Lab(hosts=2, grace=0.2) as lab:
        running = python(lab, 1, FOREVER)
        wait_until_ready(running)
        lab.stop()
        assert running.returncode == -signal.SIGTERM
        assert asked(lab, ECHO_SERVER, ECHO_CLIENT) == "ping 10.0.0.1"


@lab_test
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_signals_to_the_lab_end_every_host(number: int, tmp_path: Path) -> None:
    say_pid = f"import os; open('{tmp_path}/' + os.environ['RANK'], 'x').write(str(os.getpid()))"
    argv = [sys.executable, "-c", COMMAND_LINE, "--hosts", "2", "--"]
    argv += [sys.executable, "-c", f"{say_pid}; {FOREVER}"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        lines = sorted(lab.stdout.readline() for _ in range(2))
        assert lines == ["[host 0] ready\n", "[host 1] ready\n"]
        hosts = [int((tmp_path / rank).read_text()) for rank in "01"]
        inside = {namespace_of(host) for host in hosts}
        lab.send_signal(number)
        expected = -number if number == signal.SIGKILL else 128 + number
        assert lab.wait(timeout=20) == expected
    assert until(lambda: not reaper.members(inside))


@lab_test
def test_command_runs_once_per_host_with_prefixed_output() -> None:
    show = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'], os.uname().nodename)"
    result = invoke("--hosts", "3", "--link", "none", sys.executable, "-c", show)
    assert result.exit_code == 0
    assert sorted(result.stdout.splitlines()) == [f"[host {r}] {r} 3 host{r}" for r in range(3)]


@lab_test
def test_first_failure_is_the_exit_status_and_others_are_ended() -> None:
    fail = "import os, sys, time; sys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)"
    result = invoke("--hosts", "3", "--grace", "0.1", "--", sys.executable, "-c", fail)
    assert result.exit_code == 7
    assert "host 1 failed with status 7; 2 hosts still running" in result.stderr
    assert "ending 2 hosts" in result.stderr


@lab_test
def test_a_host_ended_by_a_signal_counts_as_in_a_shell() -> None:
    die = "import os; os.kill(os.getpid(), 9)"
    result = invoke("--hosts", "1", "--", sys.executable, "-c", die)
    assert result.exit_code == 128 + 9
    assert "host 0 was ended by signal 9 (Killed)" in result.stderr


@lab_test
def test_a_command_that_does_not_exist_is_reported() -> None:
    result = invoke("--hosts", "1", "--", "no-such-command")
    assert result.exit_code == 127
    assert (
        result.stderr == "sparsewire lab: cannot run no-such-command: No such file or directory\n"
    )


def test_a_bad_link_is_a_usage_error() -> None:
    result = invoke("--link", "fast", "true")
    assert result.exit_code == 2
    assert "1gbit" in result.stderr


@lab_test
def test_ranks_share_hosts_as_under_torchrun() -> None:
    script = """
import os, socket
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
print(*(os.environ[name] for name in names), socket.gethostname())
"""
    options = ("--hosts", "2", "--ranks", "3", "--link", "none")
    result = invoke(*options, sys.executable, "-c", script)
    assert result.exit_code == 0, result.output
    assert sorted(result.stdout.splitlines()) == [
        f"[rank {rank}] {rank} 6 {rank % 3} 3 {rank // 3} 2 host{rank // 3}" for rank in range(6)
    ]
