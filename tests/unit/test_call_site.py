"""Where a collective was called: the same number on every rank that calls from the same place."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sparsewire.call_site import CallSite, CallSites


def here() -> CallSite:
    site = CallSite.here()
    assert site is not None
    return site


def in_thread(name: str, call: Callable[[], CallSite] = here) -> CallSite:
    found: list[CallSite] = []
    thread = threading.Thread(target=lambda: found.append(call()), name=name)
    thread.start()
    thread.join()
    return found[0]


def test_a_site_is_a_function_of_a_file_in_a_thread() -> None:
    assert here().number == here().number
    assert here().text.endswith("here in test_call_site.py, thread MainThread")
    assert in_thread("reader").number != in_thread("writer").number


def test_numbers_that_python_gives_threads_do_not_count() -> None:
    assert in_thread("Thread-1 (run)").number == in_thread("Thread-7 (run)").number
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        assert one.submit(here).result().number == other.submit(here).result().number


def test_pythons_own_modules_are_passed_over() -> None:
    found: list[CallSite] = []

    class Number(float):
        def __lt__(self, other: object) -> bool:
            site = CallSite.here()
            assert site is not None
            found.append(site)
            return False

    statistics.median([Number(1), Number(2), Number(3)])
    assert all("test_call_site.py" in site.text for site in found)


def test_the_last_few_thousand_are_kept() -> None:
    sites = CallSites()
    for seq in range(5000):
        sites.note(seq, here())
    assert sites.of(0) is None
    assert sites.of(4999) is not None
