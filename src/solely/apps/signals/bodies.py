"""What requests about signals take, and what they are answered."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ... import Letter
from ...kit import Answer, Body, Key, PageSize, Row, Ttl

MOST = 1_000  # signals of one batch: fifty times a usual group
Name = Annotated[str, msgspec.Meta(max_length=300, description="all if empty")]


class SignalBatch(Body):
    """The signals of a group. Each is an object with the text `username`; a number `priority` and all else are passed
    on to the consumer as they are."""

    signals: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=MOST)]


class SignalBatchAnswer(Answer):
    """What became of the signals: written, left out since the window had them, or parked as dead letters. `outcome` is
    `generated`; `unprotected` or `off` if the old path wrote all of them."""

    outcome: str
    generated: int
    deduplicated: int
    dead_lettered: int


class NextQuery(Body):
    """Of this house and game, or of all."""

    house: Name = ""
    game: Name = ""


class LeaseSignal(Body):
    """For how many seconds no other consumer that leases gets the signal."""

    lease: Ttl = 30.0


class AcknowledgeSignal(Body):
    """The id of a signal that was processed."""

    id: Key


class Acknowledged(Answer):
    """False if it was acknowledged before, or is unknown."""

    acknowledged: bool


class WaitingQuery(NextQuery):
    """A list of the signals that wait."""

    limit: PageSize = 100


class SignalGroupsQuery(Body):
    """The size of the list."""

    limit: PageSize = 100


class SignalGroupRow(Answer):
    """A group in the last hour: signals by what became of them; of the attempts at its lock, the share that another
    process had won; how many signals wait now."""

    house: str
    game: str
    generated: int
    deduplicated: int
    acquired: int
    contended: int
    contention: float
    dead_lettered: int
    waiting: int
    average_ms: float
    last: float


class DeadSignalsQuery(Body):
    """A page of the dead letters, after this id."""

    after: Annotated[str, msgspec.Meta(max_length=512)] = ""
    limit: PageSize = 100


class DeadSignal(Answer):
    """A signal that failed; `signal` is null if it had no JSON form."""

    id: str
    fence: int
    house: str
    game: str
    username: str
    attempts: int
    error: str
    first_at: float
    last_at: float
    signal: Any


class SwitchFlag(Body):
    """Nothing but the reason."""


class ReplaySignals(Body):
    """Nothing but the reason."""


class RollbackSignals(Body):
    """The dead letters that were exported, each as `fence/id`."""

    exported: list[str] = msgspec.field(default_factory=list)


class SignalsRolledBack(Answer):
    """What was removed from the store; nothing if it was not rolled back."""

    rolled_back: bool
    dead_letters: int = 0
    marks: int = 0


def group_row(row: Row, waiting: int) -> SignalGroupRow:
    """The row of a group, of which so many signals wait."""
    acquired, contended = int(row["acquired"]), int(row["contended"])
    return SignalGroupRow(
        house=row["house"],
        game=row["game"],
        generated=int(row["generated"]),
        deduplicated=int(row["deduplicated"]),
        dead_lettered=int(row["dead_lettered"]),
        last=row["last"],
        acquired=acquired,
        contended=contended,
        contention=contended / (acquired + contended) if acquired + contended else 0.0,
        waiting=waiting,
        average_ms=1000 * row["seconds"] / acquired if acquired else 0.0,
    )


def dead_signal(letter: Letter) -> DeadSignal:
    """The dead letter as operators see it."""
    payload = letter.payload if isinstance(letter.payload, dict) else {}
    named = {name: str(payload.get(name, "")) for name in ("house", "game", "username")}
    return DeadSignal(
        id=letter.id,
        fence=letter.fence,
        **named,
        attempts=letter.attempts,
        error=letter.last_error,
        first_at=letter.first_at.timestamp(),
        last_at=letter.last_at.timestamp(),
        signal=payload.get("signal"),
    )
