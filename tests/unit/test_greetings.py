"""What a rank makes of the answers to its greetings, and of their absence."""

from __future__ import annotations

from dataclasses import replace

from sparsewire.meeting.contact.dial import Membership
from sparsewire.meeting.contact.greetings import NOTED, WELCOME, Greeting, Heard, Probe, trouble
from sparsewire.meeting.contact.keys import WayKeys
from sparsewire.meeting.contact.racks import RackPlace
from sparsewire.options import DATAGRAM_MIN, Address, Options

FULL = 1072
MEMBER = Membership(job=1, epoch=1, rank=0, world_size=2, lanes=1, key=b"")
SAYS = Greeting(MEMBER, RackPlace(0, 2, 0, 1), FULL, 0, 1, True, WayKeys(bytes(32), bytes(32)))


def heard_of(*answers: tuple[int, Probe, float], length: int = FULL) -> Heard:
    """Each to the hello that was the last one when it came."""
    heard = Heard(FULL)
    for attempt, (kind, probe, now) in enumerate(answers, 1):
        number = attempt * len(Probe) + probe
        heard.note(kind, number, length, in_kernel=True, said=number, now=now)
    return heard


def text_of(heard: Heard) -> str:
    return trouble(heard, Address("10.0.0.9", 5000), Options(rank=0, world_size=2), SAYS)


NOTED_OFTEN = (
    (NOTED, Probe.FULL, 10.0),
    (NOTED, Probe.PROCESS, 10.2),
    (NOTED, Probe.PROCESS, 12.3),
)


def test_a_process_that_is_heard_alone_for_long_is_enough() -> None:
    heard = heard_of(*NOTED_OFTEN)
    assert not heard.is_hopeless(12.4)
    assert heard.is_hopeless(12.5)


def test_a_process_that_is_heard_seldom_is_not_enough() -> None:
    assert not heard_of(*NOTED_OFTEN[:2]).is_hopeless(100.0)


def test_a_kernel_that_answers_one_kind_alone_is_not_waited_for() -> None:
    # A veth without NAPI takes what a program sends back, and loses what it redirects.
    assert heard_of(*NOTED_OFTEN, (WELCOME, Probe.SHORT, 12.4)).is_hopeless(12.5)


def test_where_a_kernel_has_answered_both_kinds_there_is_hope() -> None:
    both = ((WELCOME, Probe.FULL, 12.4), (WELCOME, Probe.SHORT, 12.4))
    assert not heard_of(*NOTED_OFTEN, *both).is_hopeless(100.0)


def test_short_answers_give_no_word_of_the_kernel() -> None:
    heard = heard_of(*NOTED_OFTEN, length=DATAGRAM_MIN)
    assert not heard.is_hopeless(100.0)
    assert "smaller ones do not" in text_of(heard)


def test_both_causes_are_named_where_a_kernel_is_not_heard() -> None:
    text = text_of(heard_of(*NOTED_OFTEN))
    assert text.index("gro on") < text.index("by another interface than its `--interface`")


def test_hellos_that_passed_by_the_programs_show_another_interface() -> None:
    text = text_of(heard_of(*NOTED_OFTEN, (NOTED, Probe.FULL, 12.4)))
    assert "by another interface than its `--interface`" in text
    assert "gro" not in text


def test_hellos_that_were_on_their_way_before_the_process_was_heard_show_nothing() -> None:
    heard = Heard(FULL)
    for attempt in (1, 2, 3):
        number = attempt * len(Probe) + Probe.FULL
        heard.note(NOTED, number, FULL, in_kernel=True, said=3 * len(Probe), now=10.0)
    assert "gro on" in text_of(heard)


def test_where_full_ones_are_as_short_as_the_shortest_none_is_to_tell_a_narrow_path() -> None:
    for size in (DATAGRAM_MIN, FULL):
        for asks_kernel in (True, False):
            says = replace(SAYS, size=size, asks_kernel=asks_kernel)
            assert (Probe.NARROW in says.probes) == (size > DATAGRAM_MIN)
