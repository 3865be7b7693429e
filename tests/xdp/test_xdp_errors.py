"""What is missing is told, with what to do about it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from xdp_kernel import FAR, NEAR, connect, needs_kernel
from xdp_rack import GRO, SET_FLAGS, turn

from sparsewire.errors import Error
from sparsewire.meeting.contact.handshake import KERNEL_JOBS_MAX, KERNEL_WORKERS_MAX
from sparsewire.options import FLOWS_MAX
from sparsewire.tools.lab.namespace import Namespace
from sparsewire.xdp import XdpPlane, libbpf, loader, maps, vlan
from sparsewire.xdp.libbpf import Library, library
from sparsewire.xdp.loader import object_path
from sparsewire.xdp.maps import JOBS_MAX, WORKERS_MAX
from sparsewire.xdp.vlan import stripped_vlans


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


def test_limits_told_at_the_door_are_those_of_the_programs() -> None:
    assert (KERNEL_JOBS_MAX, KERNEL_WORKERS_MAX) == (JOBS_MAX, WORKERS_MAX)
    assert maps.FLOWS_MAX == FLOWS_MAX


class TestInTheKernel:
    pytestmark = needs_kernel

    def test_no_right(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(library(), "bpf_object__load", refuse)
        with pytest.raises(Error, match="CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"):
            XdpPlane("lo", 9999)

    @pytest.mark.parametrize(
        ("lacks", "says"),
        [(["CAP_PERFMON"], "lacks CAP_PERFMON"), ([], "need Linux 6.6")],
    )
    def test_what_the_verifier_refuses(
        self, monkeypatch: pytest.MonkeyPatch, lacks: list[str], says: str
    ) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(library(), "bpf_object__load", refuse)
        monkeypatch.setattr(loader, "missing_capabilities", lambda: lacks)
        with pytest.raises(Error, match=says):
            XdpPlane("lo", 9999)

    @pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
    @pytest.mark.parametrize(
        ("held", "says"),
        [
            ("+bpf,+net_admin", "lacks CAP_PERFMON"),
            ("+perfmon,+net_admin", "lacks CAP_BPF"),
            ("+bpf,+perfmon,+net_admin", "there is no interface nowhere0"),
        ],
    )
    def test_process_with_some_rights(self, held: str, says: str) -> None:
        plane = (
            "from sparsewire.xdp.loader import Programs, object_path; "
            "Programs(object_path(), bytes(2)).close(); "
            "from sparsewire.xdp import XdpPlane; XdpPlane('nowhere0', 1)"
        )
        argv = ["setpriv", f"--bounding-set=-all,{held}", sys.executable, "-c", plane]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert says in done.stderr

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

    def test_a_veth_whose_other_end_takes_nothing(self) -> None:
        with closing(Namespace("xdp-deaf")) as namespace:
            namespace.call(connect)
            with closing(namespace.call(XdpPlane, NEAR, 9999)) as plane:
                with pytest.raises(Error, match="gro on"):
                    namespace.call(plane.check_way_out)
                namespace.call(turn, FAR, GRO, on=True)
                namespace.call(plane.check_way_out)

    def test_card_that_takes_tags_off(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        # As the kernel shows it; not every kernel can make one.
        told = tmp_path / "config"
        heads = "VLAN Dev name\t | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n"
        told.write_text(f"{heads}{NEAR}.7  | 7  | {NEAR}\nother0.8 | 8  | other0\n")
        with closing(Namespace("xdp-vlan")) as namespace:
            namespace.call(connect)
            assert namespace.call(stripped_vlans, NEAR) == []
            monkeypatch.setattr(vlan, "_VLANS", told)
            assert namespace.call(stripped_vlans, NEAR) == [f"{NEAR}.7"]
            with closing(namespace.call(XdpPlane, NEAR, 9999)):
                assert f"ethtool -K {NEAR} rxvlan off" in caplog.text
            namespace.call(turn, NEAR, SET_FLAGS, on=False)
            caplog.clear()
            with closing(namespace.call(XdpPlane, NEAR, 9999)):
                assert "rxvlan" not in caplog.text

    def test_driver_without_native_xdp(self, caplog: pytest.LogCaptureFixture) -> None:
        with (
            closing(Namespace("xdp-lo")) as namespace,
            closing(namespace.call(XdpPlane, "lo", 9999)) as plane,
        ):
            assert plane.hook == "tc"
        assert "no native XDP" in caplog.text
