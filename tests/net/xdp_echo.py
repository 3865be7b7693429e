"""An XDP program that sends UDP datagrams back to whom they come from, assembled by hand.

So tests of what XDP sends need no compiler.
"""

from __future__ import annotations

from sparsewire.tools.lab.namespace import Namespace
from sparsewire.tools.lab.xdp import PASS, attach, instruction, returning

PORT = 9999

TX = 3
# Loads and stores of 1, 2 and 4 bytes, then arithmetic and jumps.
LOAD = {1: 0x71, 2: 0x69, 4: 0x61}
STORE = {2: 0x6B, 4: 0x63}
STORE_ZERO = 0x6A
MOVE, ADD, ABOVE, DIFFERS = 0xBF, 0x07, 0x2D, 0x55

# Where addresses and ports are in a frame of Ethernet, IPv4 and UDP, and how many bytes they have.
PAIRS = ((0, 6, 4), (4, 10, 2), (26, 30, 4), (34, 36, 2))
HEADERS, CHECKSUM = 42, 40


def program() -> list[bytes]:
    """Swaps both addresses and ports of datagrams to `PORT`, and sends them; passes all else."""
    # No checksum: the sender has left it to a device that it never reaches.
    body = [*_swapped(), instruction(STORE_ZERO, to=2, offset=CHECKSUM), *returning(TX)]
    for offset, size, value in ((36, 2, _read(PORT)), (23, 1, 17), (12, 2, _read(0x0800))):
        body = [
            instruction(LOAD[size], to=5, of=2, offset=offset),
            instruction(DIFFERS, to=5, offset=len(body), value=value),
            *body,
        ]
    return [
        instruction(LOAD[4], to=2, of=1, offset=0),
        instruction(LOAD[4], to=3, of=1, offset=4),
        instruction(MOVE, to=4, of=2),
        instruction(ADD, to=4, value=HEADERS),
        instruction(ABOVE, to=4, of=3, offset=len(body)),
        *body,
        *returning(PASS),
    ]


def refusal() -> str | None:
    """Why no program can be run here, or None."""
    namespace: Namespace | None = None
    try:
        namespace = Namespace("xdp-test")
        namespace.call(attach, "lo", returning(PASS))
    except OSError as error:
        return f"{error}"
    finally:
        if namespace is not None:
            namespace.close()
    return None


def _swapped() -> list[bytes]:
    return [
        part
        for one, other, size in PAIRS
        for part in (
            instruction(LOAD[size], to=5, of=2, offset=one),
            instruction(LOAD[size], to=0, of=2, offset=other),
            instruction(STORE[size], to=2, of=0, offset=one),
            instruction(STORE[size], to=2, of=5, offset=other),
        )
    ]


def _read(number: int) -> int:
    """A number of two bytes as a little-endian processor reads it from a packet."""
    return int.from_bytes(number.to_bytes(2, "big"), "little")
