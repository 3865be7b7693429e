"""What a listener logs of those that it turns away: each kind, and no flood."""

from __future__ import annotations

import pytest

from sparsewire.errors import ProtocolError
from sparsewire.meeting.contact import refusal_log
from sparsewire.meeting.contact.handshake import Hello, Reason, Refused, Role
from sparsewire.meeting.contact.refusal_log import RefusalLog, kind_of, worded


def test_a_flood_is_counted_and_hides_no_other_kind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [100.0]
    monkeypatch.setattr(refusal_log.time, "monotonic", lambda: now[0])
    log = RefusalLog()
    for number in range(1000):
        log.note("flood", f"flood {number}")
    log.note("other", "other 1")
    texts = [one.getMessage() for one in caplog.records]
    assert texts == [*(f"flood {number}" for number in range(10)), "other 1"]
    now[0] += 61.0
    log.look()
    log.look()
    assert [one.getMessage() for one in caplog.records][11:] == [
        "990 more connections ended so: flood"
    ]
    log.note("flood", "flood again")
    assert caplog.records[-1].getMessage() == "flood again"


@pytest.mark.parametrize(
    ("role", "job", "reason", "text"),
    [
        (Role.NEWCOMER, 0, Reason.WRONG_PROOF, "rank 3 at a:1 has another SPARSEWIRE_SECRET"),
        (Role.WORKER, 255, Reason.FULL, "rank 3 of job 00000000000000ff at a:1 is turned away"),
        (Role.OBSERVER, 0, Reason.WRONG_JOB, "an observer at a:1 is turned away, and told: "),
    ],
)
def test_the_log_names_rank_address_and_reason(
    role: Role, job: int, reason: Reason, text: str
) -> None:
    refusal = Refused(reason)
    refusal.hello = Hello(role, job, 0, 3, 0, 0, 4, bytes(32))
    assert worded(refusal, "a:1").startswith(text)
    assert kind_of(refusal) == f"refused, {reason.name}"
    assert worded(Refused(Reason.WRONG_VERSION), "a:1").startswith("somebody at a:1 is turned away")
    assert kind_of(ProtocolError("nonsense")) == "no handshake"
