"""Settings for every test: how hypothesis searches, and what it prints to repeat a failure."""

import os
import signal

import pytest
from extent import EXTENTS, chosen
from hypothesis import settings

from sparsewire.tools.lab.site import free_ports

# A shell's background jobs ignore Ctrl-C, and so would every process that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# As torchrun sets it: threads that wait for each other by spinning stand still on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")


# No deadline: a busy machine is no bug. CI draws the same examples every time, so that its verdict
# depends on the commit alone; elsewhere each run draws new ones and prints how to repeat a failure.
settings.register_profile(
    "sparsewire", deadline=None, print_blob=True, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("quick", settings.get_profile("sparsewire"), max_examples=25)
settings.load_profile("sparsewire")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--extent", choices=EXTENTS, default="all", help="quick: what `make test` runs; rest: else"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Before the tests are imported, which keep the settings that hold then.
    if config.getoption("--extent") == "quick":
        settings.load_profile("quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = chosen(items, config.getoption("--extent"))
    kept_set = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept_set])
    items[:] = kept


@pytest.fixture
def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody uses at the moment, nor gets by asking for any."""
    (port,) = free_ports(1)
    return port
