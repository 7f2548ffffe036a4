"""Ops: what a store performs, each in one atomic step on its own clock, each safe to repeat under the same owner id.

Durations are seconds; keys are stored keys (`kind/name`). What is answered stands beside each op; any op can be
answered by a StoreError of its own instead (a batch is no transaction: each op stands or fails alone).
`stores/transitions.py` is the reference of what each op does.
"""

from __future__ import annotations

from typing import NamedTuple

from .model import Allowance, Entry, Item, Released


class Acquire(NamedTuple):
    """→ Entry: mine if its `owner` is mine, else the holder's or the finished one. A repeat answers the same fence
    and does not extend; an owner that is gone is refused for good."""

    key: str
    owner: str
    ttl: float
    info: str = ""
    client: str = ""  # if refused, queue this client as a waiter
    delay: float = 0.0  # should this hold expire (not be released), the key stays closed that much longer
    fingerprint: str = ""
    counted: bool = False  # if refused, count it in the entry
    value: bool = False  # if done, answer with the value


class Renew(NamedTuple):
    """→ Entry: mine with the new time left, or no longer mine. Never revives an expired one, never shortens one."""

    key: str
    owner: str
    ttl: float


class Finish(NamedTuple):
    """→ Entry: done and mine (accepted from the last owner until another took the key), or the entry that won."""

    key: str
    owner: str
    value: bytes
    keep: float


class Release(NamedTuple):
    """→ Released. Also withdraws this owner from the waiters, and takes back a mark that this owner made.

    If nothing of this owner is here: RELEASED without a `fence`; else LOST if the store's data is younger than that
    fence, RELEASED if the store is sure that an earlier call let go, and ABSENT if it cannot tell.
    """

    key: str
    owner: str
    revoke: bool = False  # this owner may never acquire again: a late copy of an unanswered try must not take the key
    delay: float = 0.0  # the key stays closed for that long
    keep: float = 0.0  # the count of attempts is remembered for that long
    fence: int = 0  # under which this owner was granted the key, where that is known


class Mark(NamedTuple):
    """→ bool: True if first (also when repeated by the same owner), False if seen. Never shortens a mark."""

    key: str
    owner: str
    ttl: float
    extend: bool = False  # a mark that is there lasts at least that long as well; its owner and fence stay


class Read(NamedTuple):
    """→ Entry, with its value."""

    key: str


class Clear(NamedTuple):
    """→ bool: True if what carried this fence was removed (also when repeated), False if it had moved on."""

    key: str
    fence: int
    reason: str


class Hit(NamedTuple):
    """→ Allowance: never more than `limit` owners in any window of `per` seconds; a repeat by an owner counts once."""

    key: str
    owner: str
    limit: int
    per: float


class Unhit(NamedTuple):
    """→ bool: True if this owner's hit was given back, False if there was none."""

    key: str
    owner: str


class Advance(NamedTuple):
    """→ Entry, whose value is the greater of the stored and the given one, compared as bytes. Never expires."""

    key: str
    value: bytes


class Push(NamedTuple):
    """→ bool: True if put into the queue, False if an item of this id was there already (idempotent until Ack)."""

    queue: str
    id: str
    payload: bytes
    delay: float = 0.0


class Take(NamedTuple):
    """→ Item or None: the item that has waited longest (or the one named), leased for `ttl`; a repeat by the same
    owner answers the same item."""

    queue: str
    owner: str
    ttl: float
    id: str = ""


class Ack(NamedTuple):
    """→ bool: True if the item is gone from the queue (also when repeated); False if another owner has it, or if the
    store lost it: its data is younger than the item's `fence`."""

    queue: str
    id: str
    owner: str
    fence: int = 0  # of the item, where that is known


class Return(NamedTuple):
    """→ bool: True if the item is back in the queue, False if this owner does not have it."""

    queue: str
    id: str
    owner: str
    delay: float = 0.0


EntryOp = Acquire | Renew | Finish | Release | Mark | Read | Clear | Advance
Op = EntryOp | Hit | Unhit | Push | Take | Ack | Return
Reply = Entry | Released | Allowance | Item | bool | None

OPS: tuple[type, ...] = (
    Acquire, Release, Mark, Renew, Read, Finish, Clear, Hit, Unhit, Advance, Push, Take, Ack, Return,
)  # fmt: skip

# make(Acquire, (key, …)), with all fields, spares a hot flow the frame of a NamedTuple's own constructor.
make = tuple.__new__

URGENT = frozenset((Renew, Release))  # go first wherever ops wait: they keep or free what others wait for
MAX_BATCH = 128  # ops: keeps one batch under about a millisecond of the server's time
MAX_LIMIT = 10_000  # of a Hit: so many moments and owners are kept, about a megabyte; what is larger need not be exact
MAX_BATCH_BYTES = 256 * 1024  # so that one batch of large values does not hold up the small ones behind it
