"""The handshake without sockets: honest ends meet, all else is refused with a typed error."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsewire.errors import AuthenticationError, Error, ProtocolError
from sparsewire.meeting.contact import handshake
from sparsewire.meeting.contact.handshake import (
    MAC_SIZE,
    Challenge,
    GuardByRole,
    Handshake,
    Hello,
    Reason,
    Refused,
    Role,
    introduce,
    receive,
)

KEY = bytes(range(32))
HELLO = Hello(Role.PEER, 77, 1, 3, 0, 2, 8, bytes(32))
SIZES = [
    handshake.HELLO.size,
    handshake.CHALLENGE.size,
    handshake.PROOF_SIZE,
    handshake.VERDICT_SIZE,
]


@dataclass
class Door:
    """A guard with one key for everybody; without a key, callers register theirs."""

    key: bytes | None = KEY
    inside: list[Hello] = field(default_factory=list)

    def key_for(self, hello: Hello) -> bytes | None:
        return self.key

    def enter(self, hello: Hello, key: bytes) -> None:
        if hello in self.inside:
            raise Refused(Reason.DUPLICATE)
        self.key = key
        self.inside.append(hello)

    def leave(self, hello: Hello) -> None:
        self.inside.remove(hello)


def hello() -> Hello:
    return HELLO._replace(nonce=handshake.new_nonce())


def converse(caller: Handshake[None], listener: Handshake[Hello]) -> list[bytes]:
    """Carry messages between both ends until the caller is done; returns the messages."""
    messages = []
    message, _ = next(caller)
    next(listener)
    while True:
        messages.append(message)
        reply, _ = listener.send(message)
        messages.append(reply)
        try:
            message, _ = caller.send(reply)
        except StopIteration:
            next(listener, None)
            return messages


def answer(door: Door, *messages: bytes) -> bytes:
    """What a listener finally says to a caller that sends just these messages."""
    listener = receive(door)
    next(listener)
    replies = [listener.send(message)[0] for message in messages]
    return replies[-1]


def test_honest_ends_meet() -> None:
    door = Door()
    mine = hello()
    messages = converse(introduce(mine, KEY), receive(door))
    assert [len(message) for message in messages] == SIZES
    assert door.inside == [mine]
    assert KEY not in b"".join(messages)


def test_first_worker_registers_its_key() -> None:
    door = Door(key=None)
    converse(introduce(hello(), KEY, may_register=True), receive(door))
    assert door.key == KEY
    converse(introduce(hello(), KEY, may_register=True), receive(door))
    with pytest.raises(AuthenticationError):
        converse(introduce(hello(), bytes(32), may_register=True), receive(door))


def test_key_is_not_given_to_a_listener_that_should_know_it() -> None:
    with pytest.raises(AuthenticationError, match="SPARSEWIRE_SECRET"):
        converse(introduce(hello(), KEY), receive(Door(key=None)))


def test_wrong_key_is_refused_by_either_end() -> None:
    door = Door()
    with pytest.raises(Refused, match="secrets differ"):
        converse(introduce(hello(), bytes(32)), receive(door))
    forged = HELLO.encode()
    assert answer(door, forged, bytes(handshake.PROOF_SIZE)) == bytes([Reason.WRONG_PROOF])
    assert not door.inside


def test_replay_is_refused() -> None:
    door = Door()
    sent = converse(introduce(hello(), KEY), receive(door))[::2]
    door.inside.clear()
    assert answer(door, *sent) == bytes([Reason.WRONG_PROOF])
    assert not door.inside


def test_reflection_is_refused() -> None:
    # The listener's own proof is sent back to it as if it were the caller's.
    door = Door()
    listener = receive(door)
    next(listener)
    challenge = Challenge.decode(listener.send(HELLO.encode())[0])
    verdict, _ = listener.send(challenge.mac + bytes(handshake.KEY_SIZE))
    assert verdict == bytes([Reason.WRONG_PROOF])


def test_challenge_for_another_hello_is_refused() -> None:
    # Someone in the middle who claims another rank cannot use an honest caller's proof.
    caller, listener = introduce(hello(), KEY), receive(Door())
    next(caller)
    next(listener)
    challenge, _ = listener.send(hello()._replace(rank=5).encode())
    assert caller.send(challenge) == (bytes(handshake.PROOF_SIZE), 0)
    with pytest.raises(Refused):
        caller.send(b"")


@pytest.mark.parametrize("key", [bytes(32), None])
def test_a_listener_that_cannot_prove_the_key_learns_who_hangs_up_and_nothing_else(
    key: bytes | None,
) -> None:
    caller, listener = introduce(mine := hello(), KEY), receive(Door(key))
    challenge, _ = [next(listener), listener.send(next(caller)[0])][1]
    last_words, size = caller.send(challenge)
    assert (last_words, size) == (bytes(handshake.PROOF_SIZE), 0)
    assert listener.send(last_words) == (bytes([Reason.WRONG_PROOF]), 0)
    with pytest.raises(Refused) as refused:
        listener.send(b"")
    assert refused.value.reason is Reason.WRONG_PROOF
    assert refused.value.hello == mine
    with pytest.raises(AuthenticationError, match="SPARSEWIRE_SECRET"):
        caller.send(b"")


def test_second_connection_is_told_why() -> None:
    door = Door()
    mine = hello()
    converse(introduce(mine, KEY), receive(door))
    with pytest.raises(Refused) as refused:
        converse(introduce(mine, KEY), receive(door))
    assert refused.value.reason is Reason.DUPLICATE


def test_caller_that_is_gone_before_the_verdict_has_not_entered() -> None:
    door = Door()
    caller, listener = introduce(hello(), KEY), receive(door)
    first, _ = next(caller)
    next(listener)
    proof, _ = caller.send(listener.send(first)[0])
    listener.send(proof)
    assert door.inside
    listener.close()
    assert not door.inside


def test_roles_have_guards_of_their_own() -> None:
    door = Door()
    guard = GuardByRole({Role.OBSERVER: door})
    observer = hello()._replace(role=Role.OBSERVER)
    converse(introduce(observer, KEY), receive(guard))
    assert door.inside == [observer]
    guard.leave(observer)
    assert not door.inside
    with pytest.raises(Refused, match="another job"):
        converse(introduce(hello(), KEY), receive(guard))


def test_other_version_is_told_so() -> None:
    data = bytearray(HELLO.encode())
    data[5] ^= 0xFF
    reply = Challenge.decode(answer(Door(), bytes(data)))
    assert reply.reason is Reason.WRONG_VERSION


@given(
    st.builds(
        Hello,
        st.sampled_from(Role),
        st.integers(0, 2**64 - 1),
        *[st.integers(0, 2**32 - 1)] * 3,
        st.integers(0, 2**16 - 1),
        st.integers(0, 2**32 - 1),
        st.binary(min_size=32, max_size=32),
    )
)
def test_hello_round_trip(original: Hello) -> None:
    assert Hello.decode(original.encode()) == original


@given(
    st.binary(max_size=2 * handshake.HELLO.size)
    | st.binary(max_size=handshake.HELLO.size).map(b"spwr".__add__)
)
def test_any_bytes_parse_or_raise(data: bytes) -> None:
    for decode in (Hello.decode, Challenge.decode):
        with suppress(ProtocolError, Refused):
            decode(data)


@given(st.integers(0, 2), st.integers(0, 8 * max(SIZES) - 1))
def test_no_mutated_message_gets_in(which: int, bit: int) -> None:
    """One bit flipped in hello, challenge or proof: some end refuses with a typed error."""
    door = Door()
    listener = receive(door)
    next(listener)

    def carry(index: int, message: bytes) -> bytes:
        # The key field of a proof only counts where a key is registered.
        size = MAC_SIZE if index == 2 else len(message)
        return flipped(message[:size], bit) + message[size:] if index == which else message

    def shake_hands() -> None:
        caller = introduce(hello(), KEY)
        challenge, _ = listener.send(carry(0, next(caller)[0]))
        proof, _ = caller.send(carry(1, challenge))
        verdict, _ = listener.send(carry(2, proof))
        caller.send(verdict)

    with pytest.raises(Error):
        shake_hands()
    assert not door.inside


def flipped(message: bytes, bit: int) -> bytes:
    position = bit % (8 * len(message))
    value = int.from_bytes(message, "big") ^ (1 << position)
    return value.to_bytes(len(message), "big")
