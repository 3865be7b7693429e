"""The phases of a round, in their order."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    """What the thread of rounds does.

    WAITING -> ARRIVING -> ADDING -> VOTING -> COMMITTING -> WAITING; a round that nobody
    contributes to ends after ARRIVING. From any of them to MEETING if a member is lost, and from
    there back to WAITING, with what the training loop brought; ENDED is the last.
    """

    WAITING = "waits for the training loop"
    ARRIVING = "tells the others that a round begins"
    ADDING = "adds up what all contribute"
    VOTING = "asks whether all have the sum"
    COMMITTING = "moves the shared point"
    MEETING = "agrees with the others on who takes part"
    ENDED = "takes part no more"
