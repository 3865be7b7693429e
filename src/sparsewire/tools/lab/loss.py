"""Lossy links: what arrives at an interface is dropped at random by nftables, packet by packet."""

import struct
from typing import Any

from pyroute2.nftables.main import NFTables

_TABLE = "loss"
# The kernel draws whole numbers, each time anew: there is no seed.
_STEPS = 1_000_000

# nftables' numbers: the family of single interfaces, their ingress hook, and two verdicts.
_NETDEV, _INGRESS = 5, 0
_DROP, _ACCEPT = 0, 1
_RANDOM, _TO_NETWORK_ORDER, _LESS = 1, 1, 2
_VERDICT, _REGISTER = 0, 1


def lose(interface: str, share: float) -> None:
    """Drop this share of the packets that arrive at an interface of this namespace.

    Raises NetlinkError where the kernel refuses.
    """
    hook = _attributes("HOOK", hooknum=_INGRESS, priority=0, dev=interface)
    with NFTables(nfgen_family=_NETDEV) as tables:
        tables.table("add", name=_TABLE)
        tables.chain("add", table=_TABLE, name=interface, policy=_ACCEPT, NFTA_CHAIN_HOOK=hook)
        what = [_drawn_below(share), _count(), _drop()]
        tables.rule("add", table=_TABLE, chain=interface, expressions=what)


def lost() -> int:
    """How many packets were dropped so far, at all interfaces of this namespace."""
    with NFTables(nfgen_family=_NETDEV) as tables:
        expressions = [
            expression
            for rule in tables.get_rules()
            for expression in rule.get_attr("NFTA_RULE_EXPRESSIONS")
        ]
    return sum(
        expression.get_attr("NFTA_EXPR_DATA").get_attr("NFTA_COUNTER_PACKETS")
        for expression in expressions
        if expression.get_attr("NFTA_EXPR_NAME") == "counter"
    )


def _drawn_below(share: float) -> list[Any]:
    """Goes on where a random number is below the share."""
    bound = struct.pack(">I", round(share * _STEPS))
    return [
        _expression("numgen", "NG", dreg=_REGISTER, modulus=_STEPS, type=_RANDOM),
        _expression(
            "byteorder", sreg=_REGISTER, dreg=_REGISTER, op=_TO_NETWORK_ORDER, len=4, size=4
        ),
        _expression("cmp", sreg=_REGISTER, op=_LESS, data=_attributes("DATA", value=bound)),
    ]


def _count() -> list[Any]:
    return [_expression("counter", packets=0, bytes=0)]


def _drop() -> list[Any]:
    verdict = _attributes("DATA", verdict=_attributes("VERDICT", code=_DROP))
    return [_expression("immediate", dreg=_VERDICT, data=verdict)]


def _expression(name: str, prefix: str | None = None, **attributes: object) -> dict[str, Any]:
    return _attributes("EXPR", name=name, data=_attributes(prefix or name.upper(), **attributes))


def _attributes(prefix: str, **values: object) -> dict[str, Any]:
    return {"attrs": [(f"NFTA_{prefix}_{name.upper()}", value) for name, value in values.items()]}
