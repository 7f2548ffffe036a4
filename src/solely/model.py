"""The one record that a store keeps, and the small answers that ops give. Plain data, no behaviour but reading it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote


class State(StrEnum):
    """What an entry is at the moment of the answer, on the store's own clock."""

    FREE = "free"  # nobody holds it: an Acquire would be granted
    HELD = "held"  # somebody holds it, for `left` more seconds
    DONE = "done"  # finished or marked; remembered for `left` more seconds
    CLOSED = "closed"  # nobody holds it, but it opens only in `left` seconds (a delay, or it is offered to a waiter)


FREE, HELD, DONE, CLOSED = State  # for those who compare often: on Python 3.11 State.FREE takes ten times as long


class Gone(StrEnum):
    """How an owner ceased to be one. Remembered for 60 s, as long as a copy of a request can still be under way."""

    EXPIRED = "expired"  # its time ran out
    CLEARED = "cleared"  # an admin removed it
    REVOKED = "revoked"  # its own release said that it may never acquire again


class Released(StrEnum):
    """What a release can truthfully say."""

    RELEASED = "released"  # by this call or by an earlier copy of it
    EXPIRED = "expired"  # the time had run out before: somebody else may have held the key since
    CLEARED = "cleared"  # an admin had removed it
    LOST = "lost"  # the store no longer had it (flushed, restarted, failed over): somebody else may have held the key
    UNKNOWN = "unknown"  # asked so late that the store no longer remembers
    ABSENT = "absent"  # only from a store, to a flow: nothing of this owner is here; released before, or lost


RELEASED, LOST, ABSENT = Released.RELEASED, Released.LOST, Released.ABSENT


class Entry(NamedTuple):
    """A key that somebody holds for a while and may finish, as one asker may see it.

    `owner` is the asker's own id if the entry is its own, else empty: an owner id is a secret that is never
    shown to others. `gone` says how the asker ceased to be the owner, where that is still remembered.
    """

    key: str
    state: State
    fence: int = 0
    left: float = 0.0
    owner: str = ""
    attempts: int = 0
    refused: int = 0
    waiters: int = 0
    fingerprint: str = ""
    info: str = ""
    value: bytes | None = None
    gone: str = ""

    @property
    def kind(self) -> str:
        """`lock`, `mark`, `claim`, `reservation`, …: what stands before the first slash of the stored key."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The key as the user wrote it."""
        return self.key.partition("/")[2]


class Allowance(NamedTuple):
    """The answer to a Hit: allowed or not, the hits now in the window, and when the next one may be allowed."""

    allowed: bool
    hits: int
    retry_after: float = 0.0


class Item(NamedTuple):
    """A queue item in the hands of its taker, for `left` more seconds."""

    id: str
    payload: bytes
    attempts: int
    left: float
    fence: int = 0


class Finding(NamedTuple):
    """One result of a store's check(): `level` is "ok", "warning" or "error"; `text` says what, and what to do."""

    level: str
    subject: str
    text: str


def item_key(queue: str, id: str) -> str:
    """The key under which a queue item is an entry like any other: it can be read, listed and cleared."""
    return f"item/{quote(queue, safe='')}/{id}"  # quoted, so that no two queues' items share a key
