"""Settings of one communicator: arguments first, then environment variables, checked once."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from sparsewire.launcher import RANK_NAMES, WORLD_SIZE_NAMES

BACKEND = "sparsewire"
"""The name of our backend in torch."""

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
# NCCL is first, and so the default, until the engine's path for tensors on GPUs has run on GPUs.
CUDA = ("nccl", "engine", "auto")
TRITON = ("auto", "off")
TRANSPORTS = ("tcp", "udp", "xdp")
# A transport of aggregators only: xdp if it works, else udp.
AUTO = "auto"
ARITHMETICS = ("exact", "fixed")
DATAGRAM_MIN = 576
DATAGRAM_MAX = 8972
FLOWS_MAX = 8
MEMORY_DEFAULT_MIB = 64
MEMORY_MIN_MIB = 8
MEMORY_MAX_MIB = 1 << 20


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
    """Times that a network, and the processors behind it, take; in seconds."""

    latency_s: float
    """The time of one small message from rank to rank, both ends included."""
    byte_s: float
    """The time of each byte that a rank sends to other hosts, while all ranks send."""
    merge_s: float
    """The time of each element in a sum: to pick it, to add it, to put it in its place."""

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


Check = Callable[[Any], str]
"""Returns "" for a valid value, else a description of valid values."""


class Setting(NamedTuple):
    """How one field of `Options` is set: all facts about it are here, and only here."""

    variable: str
    """The environment variable."""
    read: Callable[[str], Any]
    """Makes a value of the variable's text; raises ValueError for an unreadable text."""
    check: Check = lambda value: ""
    is_alike: bool = False
    """Whether all ranks must have the same value."""

    def parse(self, text: str) -> Any:
        """The value of a text; raises ValueError that names the variable."""
        try:
            return self.read(text)
        except ValueError:
            if self.read in _NUMBERS:
                raise ValueError(f"{self.variable}={text!r} is not a number") from None
            raise


def _setting(
    variable: str,
    default: Any,
    read: Callable[[str], Any] = str,
    check: Check = lambda value: "",
    *,
    alike: bool = False,
    shown: bool = True,
) -> Any:
    own = Setting(variable, read, check, alike)
    return field(default=default, repr=shown, metadata={"setting": own})


def _between(low: float, high: float, unit: str = "") -> Check:
    words = " ".join(filter(None, (f"{low:g} to {high:.10g}", unit)))
    return lambda value: "" if low <= value <= high else words


def _one_of(*known: str) -> Check:
    head, last = ", ".join(filter(None, known[:-1])), known[-1]
    return lambda value: "" if value in known else f"{head} or {last}"


def _lane_count(lanes: int | None) -> str:
    return "" if lanes is None or 1 <= lanes <= LANES_MAX else f"1 to {LANES_MAX}, or auto"


def _block_size(block: int) -> str:
    is_power = block > 0 and block & (block - 1) == 0
    if is_power and BLOCK_MIN <= block <= BLOCK_MAX:
        return ""
    return f"a power of two from {BLOCK_MIN} to {BLOCK_MAX}"


def _window_size(window: int) -> str:
    return "" if window >= 0 else "at least 0"


def _datagram_size(datagram: int) -> str:
    if datagram == 0 or DATAGRAM_MIN <= datagram <= DATAGRAM_MAX:
        return ""
    return f"{DATAGRAM_MIN} to {DATAGRAM_MAX} bytes, or 0 for what the path takes"


def _lanes(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _flag(text: str) -> bool:
    return int(text) != 0


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(parse_address(part) for part in text.split(",") if part.strip())


_NUMBERS = (int, float, _lanes, _flag)


@dataclass(frozen=True)
class Options:
    """Settings of one rank. `timeout` in seconds, `window` in bytes (0: chosen by the engine).

    `link` has the figures by which algorithms are chosen, instead of measured ones. A peer without
    a sign of life for `peer_timeout` seconds is lost.
    """

    rank: int
    world_size: int
    timeout: float = _setting("SPARSEWIRE_TIMEOUT", TIMEOUT_DEFAULT_S, float)
    peer_timeout: float = _setting(
        "SPARSEWIRE_PEER_TIMEOUT",
        PEER_TIMEOUT_DEFAULT_S,
        float,
        _between(PEER_TIMEOUT_MIN_S, PEER_TIMEOUT_MAX_S, "seconds"),
        alike=True,
    )
    lanes: int | None = _setting("SPARSEWIRE_LANES", None, _lanes, _lane_count)
    """Progress threads; None: the ranks agree on a number."""
    block: int = _setting("SPARSEWIRE_BLOCK", BLOCK_DEFAULT, int, _block_size, alike=True)
    window: int = _setting("SPARSEWIRE_WINDOW", 0, int, _window_size, alike=True)
    aggregators: tuple[Address, ...] = _setting("SPARSEWIRE_AGGREGATORS", (), _addresses)
    secret: bytes = _setting("SPARSEWIRE_SECRET", b"", str.encode, shown=False)
    link: LinkFigures | None = _setting("SPARSEWIRE_LINK", None, parse_link_figures)
    shared_memory: bool = _setting("SPARSEWIRE_SHARED_MEMORY", True, _flag)
    """Whether ranks of one host communicate through its memory, and not over the network."""
    memory: int = _setting(
        "SPARSEWIRE_MEMORY",
        MEMORY_DEFAULT_MIB,
        int,
        _between(MEMORY_MIN_MIB, MEMORY_MAX_MIB, "MiB"),
    )
    """MiB for all connections together: rings in shared memory, and bytes that wait to be sent."""
    hosts: str = _setting("SPARSEWIRE_HOSTS", HOSTS[0], check=_one_of(*HOSTS), alike=True)
    """levels: the ranks of a host add up before anything crosses the network; flat: each rank
    speaks for itself."""
    affinity: str = _setting("SPARSEWIRE_AFFINITY", AFFINITY[0], check=_one_of(*AFFINITY))
    """auto: each of several lanes keeps to a processor of its own, if there are enough."""
    cuda: str = _setting("SPARSEWIRE_CUDA", CUDA[0], check=_one_of(*CUDA), alike=True)
    """Path of CUDA tensors in the PyTorch backend; auto: the faster of NCCL and the engine."""

    triton: str = _setting("SPARSEWIRE_TRITON", TRITON[0], check=_one_of(*TRITON))
    """Whether Triton kernels may pack blocks on a GPU; auto: they do if they are faster."""
    transport: str = _setting(
        "SPARSEWIRE_TRANSPORT", TRANSPORTS[0], check=_one_of(*TRANSPORTS), alike=True
    )
    """The carrier of dense sums to aggregators: connections, datagrams, or datagrams that the
    aggregator's kernel adds up."""
    arithmetic: str = _setting(
        "SPARSEWIRE_ARITHMETIC", "", check=_one_of("", *ARITHMETICS), alike=True
    )
    """Arithmetic of sums by datagrams: exact or fixed point; "": fixed for xdp, exact for udp."""
    datagram: int = _setting("SPARSEWIRE_DATAGRAM", 0, int, _datagram_size)
    """Bytes of the largest datagram; 0: as large as the path to the aggregators allows."""
    flows: int = _setting("SPARSEWIRE_FLOWS", 1, int, _between(1, FLOWS_MAX), alike=True)
    """Source ports of datagrams to each aggregator, whose network card spreads them by port."""
    rack: str = _setting("SPARSEWIRE_RACK", "")
    """Name of this rank's rack, whose aggregator is a worker of another one; "": no racks."""
    timeline: str = _setting("SPARSEWIRE_TIMELINE", "")
    """File for a timeline of operations; "": no timeline."""
    is_shown: bool = _setting("SPARSEWIRE_TOP", True, _flag)
    """Whether `sparsewire top` sees this process."""
    debug: bool = _setting("SPARSEWIRE_DEBUG", False, _flag, alike=True)
    """Whether ranks compare the places in the program that call each collective."""
    disturb: str = _setting("SPARSEWIRE_DISTURB", "")
    """A disturbance of datagrams for tests, such as "loss=0.01,seed=1"; "": none."""

    def __post_init__(self) -> None:
        _require(self.world_size >= 1, f"world_size must be at least 1, not {self.world_size}")
        _require(
            0 <= self.rank < self.world_size,
            f"rank must be from 0 to {self.world_size - 1}, not {self.rank}",
        )
        check_timeout(self.timeout)
        check_secret(self.secret)
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            must = setting.check(value)
            told = f"lanes ({setting.variable})" if name == "lanes" else setting.variable
            _require(not must, f"{told} must be {must}, not {value!r}")
        _require(
            len(set(self.aggregators)) == len(self.aggregators),
            "an aggregator is listed twice: name each address once",
        )
        self._check_datagrams()

    def _check_datagrams(self) -> None:
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
        """Whether dense sums are sent by datagrams."""
        return self.transport != "tcp" and self.world_size > 1

    @property
    def adds_in_fixed_point(self) -> bool:
        """Whether values that go by datagrams are rounded to fixed point."""
        return self.arithmetic == "fixed" or (not self.arithmetic and self.transport == "xdp")

    @property
    def start_timeout(self) -> float:
        """Seconds that all ranks have to find and connect to each other."""
        return min(self.timeout, START_TIMEOUT_MAX_S)


SETTINGS: Mapping[str, Setting] = {
    each.name: each.metadata["setting"] for each in fields(Options) if "setting" in each.metadata
}
"""The settings by the fields of `Options`."""


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
    given: dict[str, Any] = {"timeout": timeout, "lanes": lanes}
    given["aggregators"] = None if aggregators is None else tuple(map(parse_address, aggregators))
    for name, setting in SETTINGS.items():
        text = environment.get(setting.variable, "")
        if given.get(name) is None and text:
            given[name] = setting.parse(text)
    return Options(
        rank=_of_launcher(environment, "rank", rank, RANK_NAMES),
        world_size=_of_launcher(environment, "world_size", world_size, WORLD_SIZE_NAMES),
        **{name: value for name, value in given.items() if value is not None},
    )


def check_timeout(seconds: float) -> None:
    """Raise ValueError unless `seconds` is a positive time limit; infinity means no limit."""
    if math.isnan(seconds) or seconds <= 0:
        raise ValueError(f"timeout must be a positive number of seconds, not {seconds}")


def check_secret(secret: bytes) -> bytes:
    """Return `secret`; b"" means no secret. Raises ValueError for one that is too short."""
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
            return int(Setting(variable, int).parse(environment[variable]))
    raise ValueError(
        f"{name} is not known: start the program with torchrun, mpirun or srun, "
        f"set {variables[0]}, or pass {name}="
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
