"""Settings: arguments before environment variables, and a clear error for each wrong value."""

from __future__ import annotations

import math

import pytest

from sparsewire.options import Address, Options, parse_address, resolve

RANKED = {"RANK": "1", "WORLD_SIZE": "4"}


def test_defaults() -> None:
    assert resolve(RANKED) == Options(rank=1, world_size=4)


def test_environment_is_read() -> None:
    settings = {
        "SPARSEWIRE_LANES": "3",
        "SPARSEWIRE_BLOCK": "64",
        "SPARSEWIRE_WINDOW": "1048576",
        "SPARSEWIRE_TIMEOUT": "2.5",
        "SPARSEWIRE_AGGREGATORS": "a:1, [::1]:2,",
        "SPARSEWIRE_SECRET": "sixteen letters!",
    }
    options = resolve({**RANKED, **settings})
    assert (options.lanes, options.block, options.window, options.timeout) == (3, 64, 1 << 20, 2.5)
    assert options.aggregators == (Address("a", 1), Address("::1", 2))
    assert options.secret == b"sixteen letters!"
    assert "sixteen" not in repr(options)


def test_the_number_of_lanes_may_be_left_to_the_ranks() -> None:
    assert resolve({**RANKED, "SPARSEWIRE_LANES": "auto"}).lanes is None


def test_arguments_come_first() -> None:
    environment = {**RANKED, "SPARSEWIRE_LANES": "3", "SPARSEWIRE_AGGREGATORS": "a:1"}
    options = resolve(environment, rank=0, world_size=2, lanes=2, timeout=9, aggregators=[])
    assert options == Options(rank=0, world_size=2, lanes=2, timeout=9)


@pytest.mark.parametrize(
    "environment",
    [
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "1", "PMI_SIZE": "4"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"},
    ],
)
def test_launchers_are_known(environment: dict[str, str]) -> None:
    assert resolve(environment) == Options(rank=1, world_size=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"RANK": "x"}, "RANK='x' is not a number"),
        ({"RANK": "4"}, "rank must be from 0 to 3"),
        ({"WORLD_SIZE": "0"}, "world_size must be at least 1"),
        ({"SPARSEWIRE_SECRET": "fifteen letters"}, "at least 16 are needed"),
        ({"SPARSEWIRE_LANES": "0"}, r"lanes \(SPARSEWIRE_LANES\) must be 1 to 16"),
        ({"SPARSEWIRE_LANES": "17"}, r"lanes \(SPARSEWIRE_LANES\) must be 1 to 16"),
        ({"SPARSEWIRE_LANES": "many"}, "SPARSEWIRE_LANES='many' is not a number"),
        ({"SPARSEWIRE_BLOCK": "100"}, "power of two from 16 to 4096"),
        ({"SPARSEWIRE_BLOCK": "8"}, "power of two from 16 to 4096"),
        ({"SPARSEWIRE_BLOCK": "8192"}, "power of two from 16 to 4096"),
        ({"SPARSEWIRE_AFFINITY": "on"}, "SPARSEWIRE_AFFINITY must be auto or off"),
        ({"SPARSEWIRE_WINDOW": "-1"}, "SPARSEWIRE_WINDOW must be at least 0"),
        ({"SPARSEWIRE_MEMORY": "7"}, "SPARSEWIRE_MEMORY must be 8 to"),
        ({"SPARSEWIRE_MEMORY": "2000000"}, "SPARSEWIRE_MEMORY must be 8 to"),
        ({"SPARSEWIRE_HOSTS": "two"}, "SPARSEWIRE_HOSTS must be levels or flat, not 'two'"),
        ({"SPARSEWIRE_CUDA": "on"}, "SPARSEWIRE_CUDA must be nccl, engine or auto, not 'on'"),
        ({"SPARSEWIRE_ARITHMETIC": "x"}, "SPARSEWIRE_ARITHMETIC must be exact or fixed"),
        ({"SPARSEWIRE_FLOWS": "9"}, "SPARSEWIRE_FLOWS must be 1 to 8, not 9"),
        ({"SPARSEWIRE_DATAGRAM": "9"}, "SPARSEWIRE_DATAGRAM must be 576 to 8972 bytes, or 0"),
        ({"SPARSEWIRE_PEER_TIMEOUT": "0"}, "SPARSEWIRE_PEER_TIMEOUT must be 1 to 86400 seconds"),
        ({"SPARSEWIRE_DEBUG": "yes"}, "SPARSEWIRE_DEBUG='yes' is not a number"),
        ({"SPARSEWIRE_TIMEOUT": "0"}, "timeout must be a positive number"),
        ({"SPARSEWIRE_TIMEOUT": "nan"}, "timeout must be a positive number"),
        ({"SPARSEWIRE_TIMEOUT": "soon"}, "SPARSEWIRE_TIMEOUT='soon' is not a number"),
        ({"SPARSEWIRE_AGGREGATORS": "a:1,a:1"}, "listed twice"),
        ({"SPARSEWIRE_AGGREGATORS": "a"}, "write host:port"),
    ],
)
def test_wrong_values_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve({**RANKED, **settings})


def test_missing_rank_says_how_to_start() -> None:
    with pytest.raises(ValueError, match=r"rank is not known.*torchrun.*RANK.*rank="):
        resolve({})


def test_no_time_limit_still_limits_connecting() -> None:
    assert resolve(RANKED, timeout=math.inf).start_timeout == 300
    assert resolve(RANKED, timeout=5).start_timeout == 5


@pytest.mark.parametrize(
    ("text", "address"),
    [("a.b:80", ("a.b", 80)), ("[::1]:0", ("::1", 0)), (" 10.0.0.1:65535 ", ("10.0.0.1", 65535))],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    parsed = parse_address(text)
    assert parsed == address
    assert parse_address(str(parsed)) == parsed


@pytest.mark.parametrize("text", ["", "a", ":1", "::1:5", "a:", "a:-1", "a:65536", "a:²", "a:1x"])
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port"):
        parse_address(text)
