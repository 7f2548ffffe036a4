"""The record that a store keeps, and the replies to ops: plain data."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote


class State(StrEnum):
    """The state of an entry at the time of the reply, on the store's own clock."""

    FREE = "free"  # not held: an Acquire would be granted
    HELD = "held"  # held, for `left` more seconds
    DONE = "done"  # finished or marked; remembered for `left` more seconds
    CLOSED = "closed"  # not held, but closed for `left` more seconds (a delay, or an offer to a waiter)


FREE, HELD, DONE, CLOSED = State  # for frequent comparisons: on Python 3.11 State.FREE takes ten times as long


class Gone(StrEnum):
    """How an owner lost the key. Remembered for 60 s, as long as a copy of a request may still be in flight; RESUMED
    for 60 s beyond the ttl of the hold that was handed over, as its former holder may speak until then."""

    EXPIRED = "expired"  # its ttl was over
    CLEARED = "cleared"  # an admin removed it
    RESUMED = "resumed"  # another owner took it over by its token
    REVOKED = "revoked"  # its own release forbade it to acquire again


class Released(StrEnum):
    """The outcome of a release."""

    RELEASED = "released"  # by this call or by an earlier copy of it
    EXPIRED = "expired"  # the ttl was over before: another owner may have held the key since
    CLEARED = "cleared"  # an admin had removed it
    RESUMED = "resumed"  # another process had taken it over by its token, and may still hold it
    LOST = "lost"  # the store no longer had it (flushed, restarted, failed over): another owner may have held the key
    UNKNOWN = "unknown"  # released so late that the store no longer remembers
    ABSENT = "absent"  # only from a store to a flow: nothing of this owner is there; released before, or lost


RELEASED, LOST, ABSENT = Released.RELEASED, Released.LOST, Released.ABSENT


class Entry(NamedTuple):
    """A key that an owner holds for a while and may finish, as one caller sees it.

    `owner` is the caller's own id if it holds the entry, else empty: an owner id is a secret that other callers never
    see. `gone` is how the caller lost the key, if the store still remembers it.
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
        """`lock`, `mark`, `claim`, `reservation`, …: the part of the stored key before the first slash."""
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        """The key as the user wrote it."""
        return self.key.partition("/")[2]


class Allowance(NamedTuple):
    """The reply to a Hit: allowed or not, the hits now in the window, and when the next one may be allowed."""

    allowed: bool
    hits: int
    retry_after: float = 0.0


class LeasedItem(NamedTuple):
    """A taken queue item, leased for `left` more seconds."""

    id: str
    payload: bytes
    attempts: int
    left: float
    fence: int = 0


class NoItem(NamedTuple):
    """No item can be taken now. The next one of the queue becomes available in `left` seconds: infinite if there is
    none, 0 if another call decides on it at this moment."""

    left: float


class Finding(NamedTuple):
    """One result of a store's check(): `level` is "ok", "warning" or "error"; `text` has the finding and the remedy."""

    level: str
    subject: str
    text: str


@lru_cache(256)  # queues of one process: every op of a queue needs its quoted name
def _quoted(queue: str) -> str:
    return quote(queue, safe="")


def item_key(queue: str, id: str) -> str:
    """The stored key of a queue item, which can be read, listed and cleared like any entry."""
    return f"item/{_quoted(queue)}/{id}"  # quoted, so that no two queues' items share a key


def line_key(queue: str) -> str:
    """The stored key of the line of clients that wait for an item of this queue."""
    return f"line/{_quoted(queue)}"
