"""Names of tensors and files that come from outside: as messages show them, and checked."""

from __future__ import annotations


def shown(name: object) -> str:
    """The name as one line of a message or a table: quoted and escaped if it is not printable."""
    text = str(name)
    return text if text.isprintable() else repr(text)


def file_name(name: object) -> str:
    """The name itself; raises ValueError for one that leads out of its directory."""
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise ValueError(f"{name!r} is no name of a file")
    return name
