"""Which address a rank listens on, and that it is never loopback by accident."""

from __future__ import annotations

import resource
import socket
from unittest.mock import patch

import pytest

from sparsewire.meeting.contact import sockets
from sparsewire.meeting.contact.sockets import (
    address_of_interface,
    address_towards,
    host_identity,
    is_loopback,
    local_address,
    local_addresses,
    raise_descriptor_limit,
)


def test_named_interface_comes_first() -> None:
    environment = {
        "SPARSEWIRE_IFNAME": "lo",
        "GLOO_SOCKET_IFNAME": "nonsense",
        "MASTER_ADDR": "192.0.2.1",
    }
    assert local_address(environment) == "127.0.0.1"


def test_first_of_gloo_interfaces() -> None:
    assert local_address({"GLOO_SOCKET_IFNAME": "lo,nonsense"}) == "127.0.0.1"


def test_an_address_for_each_interface_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"eth0": "10.0.0.1", "eth1": "10.0.1.1"}
    monkeypatch.setattr(sockets, "address_of_interface", addresses.__getitem__)
    assert local_addresses({"SPARSEWIRE_IFNAME": "eth1, eth0,"}) == ["10.0.1.1", "10.0.0.1"]


def test_one_of_several_interfaces_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="SPARSEWIRE_IFNAME=nonsense: no such"):
        local_addresses({"SPARSEWIRE_IFNAME": "lo,nonsense"})


def test_an_interface_that_is_listed_twice_is_named() -> None:
    with pytest.raises(ValueError, match="interface lo is listed twice"):
        local_addresses({"SPARSEWIRE_IFNAME": "lo,eth0,lo"})


def test_unknown_interface_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"SPARSEWIRE_IFNAME=nonsense: no such .* lo"):
        local_address({"SPARSEWIRE_IFNAME": "nonsense"})


def test_address_reaches_the_master() -> None:
    assert local_address({"MASTER_ADDR": "127.0.0.1"}) == "127.0.0.1"


def test_address_reaches_an_ipv6_master() -> None:
    if not has_ipv6():
        pytest.skip("no IPv6 here")
    assert address_towards("::1") == "::1"


def test_unknown_master_is_named() -> None:
    with pytest.raises(ValueError, match=r"MASTER_ADDR=.*cannot be resolved"):
        address_towards("no such host")


def test_loopback_without_any_hint() -> None:
    assert is_loopback(local_address({}))


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.1.1", True), ("::1", True), ("10.0.0.1", False), ("fe80::1%eth0", False)],
)
def test_is_loopback(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_identity_is_stable() -> None:
    assert host_identity() == host_identity()
    assert socket.gethostname() in host_identity()


def test_interface_without_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "interfaces", lambda: [("bare", ["fe80::1"], 1500, None)])
    with pytest.raises(ValueError, match="bare: the interface has no IP address"):
        address_of_interface("bare")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("soft", "hard", "needed", "expected"),
    [
        (1024, 4096, 100, None),
        (1024, 4096, 1000, (1256, 4096)),
        (1024, 4096, 10_000, (4096, 4096)),
        (1024, resource.RLIM_INFINITY, 10_000, (10_256, resource.RLIM_INFINITY)),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 10_000, None),
    ],
)
def test_descriptors_are_had_as_far_as_the_system_allows(
    soft: int, hard: int, needed: int, expected: tuple[int, int] | None
) -> None:
    with (
        patch("resource.getrlimit", return_value=(soft, hard)),
        patch("resource.setrlimit") as changed,
    ):
        raise_descriptor_limit(needed)
    if expected is None:
        changed.assert_not_called()
    else:
        changed.assert_called_once_with(resource.RLIMIT_NOFILE, expected)
