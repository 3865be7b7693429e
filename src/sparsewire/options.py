"""Settings of one communicator: arguments first, then environment variables, checked once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

BACKEND = "sparsewire"
"""What torch calls its backend of ours."""

TIMEOUT_DEFAULT_S = 1800.0
TIMEOUT_MAX_S = 1e9
START_TIMEOUT_MAX_S = 300.0
SECRET_MIN_BYTES = 16
PEER_TIMEOUT_DEFAULT_S = 30.0
PEER_TIMEOUT_MIN_S = 1.0
PEER_TIMEOUT_MAX_S = 24 * 3600.0
LANES_MAX = 16
BLOCK_DEFAULT = 256
BLOCK_MIN = 16
BLOCK_MAX = 4096
HOSTS = ("levels", "flat")
AFFINITY = ("auto", "off")
# NCCL first: the default, until the engine's way of tensors on GPUs has run on some.
CUDA = ("nccl", "engine", "auto")
TRITON = ("auto", "off")
TRANSPORTS = ("tcp", "udp", "xdp")
# Of an aggregator alone: xdp where it works, and udp where it does not.
AUTO = "auto"
ARITHMETICS = ("exact", "fixed")
DATAGRAM_MIN = 576
DATAGRAM_MAX = 8972
FLOWS_MAX = 8
MEMORY_DEFAULT_MIB = 64
MEMORY_MIN_MIB = 8
MEMORY_MAX_MIB = 1 << 20

# Torchrun's names first, then what mpirun, other process managers and srun set.
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
WORLD_SIZE_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")

T = TypeVar("T")


class Address(NamedTuple):
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host:port` or `[ipv6]:port`; raises ValueError."""
    host, separator, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not host or (":" in host and not bracketed):
        raise ValueError(f"{text!r} is not an address: write host:port, or [address]:port for IPv6")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{text!r} has no valid port: give a number from 0 to 65535")
    return Address(host[1:-1] if bracketed else host, int(port))


class LinkFigures(NamedTuple):
    """What a network and the processors behind it take, in seconds."""

    latency_s: float
    """Of one small message from rank to rank, both ends included."""
    byte_s: float
    """Of one byte that a rank sends to other hosts, while all ranks send."""
    merge_s: float
    """Of one element in a sum: to pick it, to add it, to put it in its place."""

    def __str__(self) -> str:
        return ",".join(f"{figure:g}" for figure in self)


def parse_link_figures(text: str) -> LinkFigures:
    """Read "latency_s,byte_s,merge_s"; raises ValueError unless all three are positive numbers."""
    with contextlib.suppress(TypeError, ValueError):
        figures = LinkFigures(*map(float, text.split(",")))
        if all(math.isfinite(figure) and figure > 0 for figure in figures):
            return figures
    raise ValueError(
        f"SPARSEWIRE_LINK={text!r} is not three positive numbers: write the seconds of a message, "
        "of a byte and of an element, such as 5e-5,1e-9,4e-9"
    )


@dataclass(frozen=True)
class Options:
    """Settings of one rank. `timeout` in seconds, `window` in bytes (0: chosen by the engine).

    `link` are figures to choose algorithms by, instead of measured ones. A peer without a sign of
    life for `peer_timeout` seconds is lost.
    """

    rank: int
    world_size: int
    timeout: float = TIMEOUT_DEFAULT_S
    peer_timeout: float = PEER_TIMEOUT_DEFAULT_S
    lanes: int | None = None
    """Progress threads; None: the ranks agree on a number."""
    block: int = BLOCK_DEFAULT
    window: int = 0
    aggregators: tuple[Address, ...] = ()
    secret: bytes = field(default=b"", repr=False)
    link: LinkFigures | None = None
    shared_memory: bool = True
    """Whether ranks of one host talk through its memory, and not over the network."""
    memory: int = MEMORY_DEFAULT_MIB
    """MiB for all connections together: rings in shared memory, and what waits to be sent."""
    hosts: str = HOSTS[0]
    """Whether the ranks of a host add up before anything crosses the network, or speak each for
    itself."""
    affinity: str = AFFINITY[0]
    """Whether lanes, where there are several, keep to processors of their own."""
    cuda: str = CUDA[0]
    """What serves CUDA tensors in the PyTorch backend; auto: whichever is faster."""

    triton: str = TRITON[0]
    """Whether blocks on a GPU may be packed by kernels of Triton; auto: where they are faster."""
    transport: str = TRANSPORTS[0]
    """What carries dense sums to aggregators: connections, datagrams, or datagrams that the
    aggregator's kernel adds up."""
    arithmetic: str = ""
    """How sums by datagrams are made, exactly or in fixed point; "": as the transport does best."""
    datagram: int = 0
    """Bytes of the largest datagram; 0: what the path to the aggregators takes."""
    flows: int = 1
    """Source ports of datagrams to each aggregator, over which its network card spreads them."""
    rack: str = ""
    """Name of the rack, whose aggregator is a worker of another one; "": there are none."""
    timeline: str = ""
    """File to write to what operations did and when; "": none."""
    is_shown: bool = True
    """Whether `sparsewire top` sees this process."""
    debug: bool = False
    """Whether ranks compare where in the program each collective was called."""
    disturb: str = ""
    """What is to happen to datagrams, for tests: such as "loss=0.01,seed=1"."""

    def __post_init__(self) -> None:
        _require(self.world_size >= 1, f"world_size must be at least 1, not {self.world_size}")
        _require(
            0 <= self.rank < self.world_size,
            f"rank must be from 0 to {self.world_size - 1}, not {self.rank}",
        )
        check_timeout(self.timeout)
        check_secret(self.secret)
        _require(
            PEER_TIMEOUT_MIN_S <= self.peer_timeout <= PEER_TIMEOUT_MAX_S,
            f"SPARSEWIRE_PEER_TIMEOUT must be {PEER_TIMEOUT_MIN_S:g} to {PEER_TIMEOUT_MAX_S:g} "
            f"seconds, not {self.peer_timeout:g}",
        )
        _require(
            self.lanes is None or 1 <= self.lanes <= LANES_MAX,
            f"lanes must be 1 to {LANES_MAX}, or auto, not {self.lanes}",
        )
        power_of_two = self.block > 0 and self.block & (self.block - 1) == 0
        _require(
            power_of_two and BLOCK_MIN <= self.block <= BLOCK_MAX,
            f"block must be a power of two from {BLOCK_MIN} to {BLOCK_MAX}, not {self.block}",
        )
        _require(
            self.hosts in HOSTS,
            f"SPARSEWIRE_HOSTS must be {' or '.join(HOSTS)}, not {self.hosts!r}",
        )
        _require(
            self.affinity in AFFINITY,
            f"SPARSEWIRE_AFFINITY must be {' or '.join(AFFINITY)}, not {self.affinity!r}",
        )
        _require(
            self.cuda in CUDA,
            f"SPARSEWIRE_CUDA must be {', '.join(CUDA[:-1])} or {CUDA[-1]}, not {self.cuda!r}",
        )
        _require(
            self.triton in TRITON,
            f"SPARSEWIRE_TRITON must be {' or '.join(TRITON)}, not {self.triton!r}",
        )
        _require(
            MEMORY_MIN_MIB <= self.memory <= MEMORY_MAX_MIB,
            f"SPARSEWIRE_MEMORY must be {MEMORY_MIN_MIB} to {MEMORY_MAX_MIB} MiB, "
            f"not {self.memory}",
        )
        _require(self.window >= 0, f"window must not be negative, not {self.window}")
        _require(
            len(set(self.aggregators)) == len(self.aggregators),
            "an aggregator is listed twice: name each address once",
        )
        self._check_datagrams()

    def _check_datagrams(self) -> None:
        _require(
            self.transport in TRANSPORTS,
            f"SPARSEWIRE_TRANSPORT must be {', '.join(TRANSPORTS[:-1])} or {TRANSPORTS[-1]}, "
            f"not {self.transport!r}",
        )
        _require(
            self.arithmetic in ("", *ARITHMETICS),
            f"SPARSEWIRE_ARITHMETIC must be {' or '.join(ARITHMETICS)}, not {self.arithmetic!r}",
        )
        _require(
            self.datagram == 0 or DATAGRAM_MIN <= self.datagram <= DATAGRAM_MAX,
            f"SPARSEWIRE_DATAGRAM must be {DATAGRAM_MIN} to {DATAGRAM_MAX} bytes, or 0 for what "
            f"the path takes, not {self.datagram}",
        )
        _require(
            1 <= self.flows <= FLOWS_MAX,
            f"SPARSEWIRE_FLOWS must be 1 to {FLOWS_MAX}, not {self.flows}",
        )
        self._check_rack()
        if not self.has_datagrams:
            return
        _require(
            bool(self.aggregators),
            f"SPARSEWIRE_TRANSPORT={self.transport} needs aggregators: start `sparsewire "
            f"aggregator --transport {self.transport}`, and name it in SPARSEWIRE_AGGREGATORS",
        )
        _require(
            self.lanes in (None, 1),
            f"SPARSEWIRE_TRANSPORT={self.transport} takes one lane: leave SPARSEWIRE_LANES out",
        )
        _require(
            not (self.transport == "xdp" and self.arithmetic == "exact"),
            "SPARSEWIRE_TRANSPORT=xdp adds in fixed point, for a kernel has no floating-point "
            "numbers: set SPARSEWIRE_ARITHMETIC=fixed, or SPARSEWIRE_TRANSPORT=udp",
        )

    def _check_rack(self) -> None:
        _require(
            not self.rack or self.transport != "tcp",
            f"SPARSEWIRE_RACK={self.rack} is for sums by datagrams: set SPARSEWIRE_TRANSPORT=udp "
            "or xdp, or leave it out",
        )
        _require(
            not self.rack or len(self.aggregators) <= 1,
            f"SPARSEWIRE_RACK={self.rack} takes one aggregator, that of the rack, and "
            f"SPARSEWIRE_AGGREGATORS names {len(self.aggregators)}",
        )

    @property
    def has_datagrams(self) -> bool:
        """Whether dense sums go by datagrams."""
        return self.transport != "tcp" and self.world_size > 1

    @property
    def adds_in_fixed_point(self) -> bool:
        """Whether values that go by datagrams are rounded to fixed point."""
        return self.arithmetic == "fixed" or (not self.arithmetic and self.transport == "xdp")

    @property
    def start_timeout(self) -> float:
        """Seconds that all ranks have to find and connect to each other."""
        return min(self.timeout, START_TIMEOUT_MAX_S)


def resolve(
    environment: Mapping[str, str],
    *,
    rank: int | None = None,
    world_size: int | None = None,
    timeout: float | None = None,
    lanes: int | None = None,
    aggregators: Sequence[str] | None = None,
) -> Options:
    """Join arguments and environment variables; raises ValueError that names the wrong one."""
    if aggregators is None:
        named = environment.get("SPARSEWIRE_AGGREGATORS", "")
        aggregators = [part for part in named.split(",") if part.strip()]

    def setting(argument: T | None, name: str, read: Callable[[str], T], default: T) -> T:
        if argument is not None:
            return argument
        text = environment.get(name, "")
        return _read(name, text, read) if text else default

    return Options(
        rank=_of_launcher(environment, "rank", rank, RANK_NAMES),
        world_size=_of_launcher(environment, "world_size", world_size, WORLD_SIZE_NAMES),
        timeout=setting(timeout, "SPARSEWIRE_TIMEOUT", float, TIMEOUT_DEFAULT_S),
        peer_timeout=setting(None, "SPARSEWIRE_PEER_TIMEOUT", float, PEER_TIMEOUT_DEFAULT_S),
        lanes=setting(lanes, "SPARSEWIRE_LANES", _lanes, None),
        block=setting(None, "SPARSEWIRE_BLOCK", int, BLOCK_DEFAULT),
        window=setting(None, "SPARSEWIRE_WINDOW", int, 0),
        aggregators=tuple(parse_address(text) for text in aggregators),
        secret=environment.get("SPARSEWIRE_SECRET", "").encode(),
        link=parse_link_figures(given) if (given := environment.get("SPARSEWIRE_LINK")) else None,
        memory=setting(None, "SPARSEWIRE_MEMORY", int, MEMORY_DEFAULT_MIB),
        hosts=environment.get("SPARSEWIRE_HOSTS") or HOSTS[0],
        affinity=environment.get("SPARSEWIRE_AFFINITY") or AFFINITY[0],
        triton=environment.get("SPARSEWIRE_TRITON") or TRITON[0],
        cuda=environment.get("SPARSEWIRE_CUDA") or CUDA[0],
        transport=environment.get("SPARSEWIRE_TRANSPORT") or TRANSPORTS[0],
        arithmetic=environment.get("SPARSEWIRE_ARITHMETIC") or "",
        datagram=setting(None, "SPARSEWIRE_DATAGRAM", int, 0),
        flows=setting(None, "SPARSEWIRE_FLOWS", int, 1),
        rack=environment.get("SPARSEWIRE_RACK") or "",
        timeline=environment.get("SPARSEWIRE_TIMELINE") or "",
        is_shown=setting(None, "SPARSEWIRE_TOP", int, 1) != 0,
        debug=setting(None, "SPARSEWIRE_DEBUG", int, 0) != 0,
        disturb=environment.get("SPARSEWIRE_DISTURB") or "",
        shared_memory=setting(None, "SPARSEWIRE_SHARED_MEMORY", int, 1) != 0,
    )


def check_timeout(seconds: float) -> None:
    """Refuse what cannot be a time limit; infinity means none."""
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {seconds}")


def check_secret(secret: bytes) -> bytes:
    """Return `secret`, which may be empty for none; raises ValueError where it can be guessed."""
    _require(
        not secret or len(secret) >= SECRET_MIN_BYTES,
        f"SPARSEWIRE_SECRET has {len(secret)} bytes, and at least {SECRET_MIN_BYTES} are needed: "
        "make one with `openssl rand -hex 16`",
    )
    return secret


def _of_launcher(
    environment: Mapping[str, str], name: str, argument: int | None, variables: tuple[str, ...]
) -> int:
    if argument is not None:
        return argument
    for variable in variables:
        if variable in environment:
            return _read(variable, environment[variable], int)
    raise ValueError(
        f"{name} is not known: start the program with torchrun, mpirun or srun, "
        f"set {variables[0]}, or pass {name}="
    )


def _read(name: str, text: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except ValueError:
        raise ValueError(f"{name}={text!r} is not a number") from None


def _lanes(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
