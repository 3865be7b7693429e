"""The methods by name: what each may send, and what it needs to converge to the solution."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sparsewire.errors import OptimizeError
from sparsewire.optimize.methods.asynchronous_isgd import AsynchronousIsgd
from sparsewire.optimize.methods.dcgd import Dcgd
from sparsewire.optimize.methods.diana import Diana
from sparsewire.optimize.methods.ef14 import Ef14
from sparsewire.optimize.methods.ef21 import Ef21
from sparsewire.optimize.methods.ef21_sgdm import Ef21Sgdm
from sparsewire.optimize.methods.gd import Gd
from sparsewire.optimize.methods.iasgd import Iasgd
from sparsewire.optimize.methods.ibcd import Ibcd
from sparsewire.optimize.methods.ibgd import Ibgd
from sparsewire.optimize.methods.isaga import DistributedIsaga, Isaga
from sparsewire.optimize.methods.isega import Isega
from sparsewire.optimize.methods.isgd import Isgd
from sparsewire.optimize.methods.marina import Marina
from sparsewire.optimize.methods.method import Method
from sparsewire.optimize.methods.qsgd import Qsgd
from sparsewire.optimize.methods.vr_diana import VrDianaLsvrg, VrDianaSaga


class Takes(Enum):
    """Which compression operators a method takes."""

    NONE = "none"
    UNBIASED = "unbiased ones"
    ANY = "any"
    BLOCKS = "those that draw blocks: rand-k, block-random-k and bernoulli"


class Needs(Enum):
    """What must vanish at the solution for a method to get there; else it stalls at a floor."""

    NOTHING = "nothing"
    WORKERS = "the gradients of the workers"
    COMPONENTS = "the gradients of single rows"


class Entry(NamedTuple):
    """One method."""

    kind: type[Method]
    takes: Takes
    help: str
    needs: Needs = Needs.NOTHING


METHODS: dict[str, Entry] = {
    "gd": Entry(Gd, Takes.NONE, "gradient descent with whole gradients"),
    "dcgd": Entry(Dcgd, Takes.UNBIASED, "compressed gradients", Needs.WORKERS),
    "qsgd": Entry(Qsgd, Takes.UNBIASED, "compressed stochastic gradients", Needs.COMPONENTS),
    "diana": Entry(Diana, Takes.UNBIASED, "compressed differences of gradients and shifts"),
    "vr-diana": Entry(VrDianaLsvrg, Takes.UNBIASED, "DIANA on stochastic gradients, with L-SVRG"),
    "vr-diana-saga": Entry(VrDianaSaga, Takes.UNBIASED, "DIANA on stochastic gradients, with SAGA"),
    "marina": Entry(Marina, Takes.UNBIASED, "compressed changes of gradients, at times all"),
    "ef14": Entry(Ef14, Takes.ANY, "error feedback: what was lost is sent later", Needs.WORKERS),
    "ef21": Entry(Ef21, Takes.ANY, "error feedback: compressed changes of an estimate"),
    "ef21-sgdm": Entry(
        Ef21Sgdm, Takes.ANY, "EF21 on the momentum of stochastic gradients", Needs.COMPONENTS
    ),
    "ibcd": Entry(Ibcd, Takes.BLOCKS, "random blocks of gradients", Needs.WORKERS),
    "ibgd": Entry(Ibgd, Takes.BLOCKS, "IBCD with a coin per block", Needs.WORKERS),
    "isgd": Entry(Isgd, Takes.BLOCKS, "blocks of stochastic gradients", Needs.COMPONENTS),
    "async-isgd": Entry(
        AsynchronousIsgd,
        Takes.BLOCKS,
        "ISGD with gradients that are a round old, or fresh",
        Needs.COMPONENTS,
    ),
    "iasgd": Entry(Iasgd, Takes.BLOCKS, "IBCD with Nesterov's acceleration", Needs.WORKERS),
    "isega": Entry(Isega, Takes.BLOCKS, "DIANA with random blocks"),
    "isaga": Entry(Isaga, Takes.BLOCKS, "SAGA with random blocks, on data that all share"),
    "isaga-distributed": Entry(
        DistributedIsaga, Takes.BLOCKS, "SAGA with random blocks", Needs.WORKERS
    ),
}


def entry(name: str) -> Entry:
    """The method called `name`; raises OptimizeError that lists what there is."""
    if name not in METHODS:
        raise OptimizeError(
            f"there is no method {name!r}; there are sgd, bcd, {', '.join(METHODS)}"
        )
    return METHODS[name]


def taking(*takes: Takes) -> list[str]:
    """The methods that take these operators."""
    return [name for name, known in METHODS.items() if known.takes in takes]
