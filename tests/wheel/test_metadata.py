"""What packages say of themselves, read from the sources; `make wheel` makes and tries them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sparsewire

tomllib = pytest.importorskip("tomllib", reason="Python 3.11 and newer have it")

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOLS = PROJECT["tool"]
STABLE_PYTHON = "cp312"


def test_the_version_stands_in_one_place() -> None:
    version = PROJECT["project"]["version"]
    places = ["CMakeLists.txt", "Makefile", "src", "bindings", "core", ".github"]
    files = [path for place in places for path in [ROOT / place, *(ROOT / place).rglob("*")]]
    sources = [path for path in files if path.suffix in {".py", ".txt", ".cpp", ".hpp", ".yml"}]
    assert len(sources) > 100
    named = [path.name for path in sources if f'"{version}"' in path.read_text()]
    assert not named
    assert sparsewire.__version__ in {version, "unknown"}


def test_the_stable_abi_is_passed_all_the_way() -> None:
    assert TOOLS["scikit-build"]["wheel"]["py-api"] == STABLE_PYTHON
    cmake = (ROOT / "CMakeLists.txt").read_text()
    assert re.search(r"nanobind_add_module\(_core [^)]*STABLE_ABI", cmake)
    assert re.search(r"find_package\(Python [^)]*\$\{SKBUILD_SABI_COMPONENT\}", cmake)


def test_no_source_is_compiled_for_this_machine_alone() -> None:
    lists = [ROOT / "CMakeLists.txt", *(ROOT / "core").rglob("CMakeLists.txt")]
    flags = set(re.findall(r"-m\w[\w=-]*", "\n".join(path.read_text() for path in lists)))
    assert "-mavx2" in flags
    assert not {flag for flag in flags if flag.startswith(("-march", "-mtune", "-mcpu"))}


def test_public_wheels_are_for_manylinux_2_28() -> None:
    linux = TOOLS["cibuildwheel"]["linux"]
    images = {name: value for name, value in linux.items() if name.endswith("-image")}
    assert set(images) == {f"manylinux-{arch}-image" for arch in linux["archs"]}
    assert set(images.values()) == {"manylinux_2_28"}
    assert "--plat manylinux_2_28_" in linux["repair-wheel-command"]


def test_every_python_gets_a_wheel() -> None:
    (oldest,) = re.findall(r">=3\.(\d+)", PROJECT["project"]["requires-python"])
    built = re.findall(r"\d\d", TOOLS["cibuildwheel"]["build"])
    assert built == [str(minor) for minor in range(int(oldest), int(built[-1]) + 1)]
    assert int(built[-1]) > 12


def test_wheels_take_the_programs_that_git_ignores() -> None:
    assert "src/sparsewire/xdp/*.bpf.o" in TOOLS["scikit-build"]["sdist"]["include"]


def test_what_the_metadata_names_is_there() -> None:
    project = PROJECT["project"]
    named = [project["readme"], *project["license-files"]]
    assert all((ROOT / name).is_file() for name in named)
