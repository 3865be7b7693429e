"""What is missing is told, with what to do about it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from xdp_kernel import NEAR, connect, needs_kernel

from sparsewire.errors import Error
from sparsewire.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane, libbpf
from sparsewire.xdp.libbpf import Library, library
from sparsewire.xdp.loader import object_path


def test_programs_that_are_not_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARSEWIRE_BPF", str(tmp_path / "slots.bpf.o"))
    with pytest.raises(Error, match="make bpf"):
        object_path()


def test_no_libbpf(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Library) -> None:
        raise OSError("libbpf.so.1: cannot open shared object file")

    monkeypatch.setattr(libbpf.Library, "__init__", missing)
    library.cache_clear()
    try:
        with pytest.raises(Error, match="libbpf1"):
            library()
    finally:
        library.cache_clear()


def test_no_such_interface() -> None:
    with pytest.raises(Error, match=r"no interface nowhere0 here, but .*lo"):
        XdpPlane("nowhere0", 9999)


class TestInTheKernel:
    pytestmark = needs_kernel

    def test_no_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(library(), "bpf_object__load", refuse)
        with pytest.raises(Error, match="CAP_BPF and CAP_NET_ADMIN"):
            XdpPlane("lo", 9999)

    def test_what_is_no_program(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "odd.o").write_bytes(b"no ELF")
        monkeypatch.setenv("SPARSEWIRE_BPF", str(tmp_path / "odd.o"))
        with pytest.raises(Error, match="cannot be read as programs"):
            XdpPlane("lo", 9999)

    def test_interface_is_taken(self) -> None:
        with closing(Namespace("xdp-taken")) as namespace:
            namespace.call(connect)
            first = namespace.call(XdpPlane, NEAR, 9999)
            with closing(first), pytest.raises(Error, match="another program"):
                namespace.call(XdpPlane, NEAR, 9999)

    def test_driver_without_native_xdp(self, caplog: pytest.LogCaptureFixture) -> None:
        with (
            closing(Namespace("xdp-lo")) as namespace,
            closing(namespace.call(XdpPlane, "lo", 9999)) as plane,
        ):
            assert plane.hook == "tc"
        assert "no native XDP" in caplog.text
