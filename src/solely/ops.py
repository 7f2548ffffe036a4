"""Ops: a store performs each in one atomic step on its own clock; each is safe to repeat under the same owner id.

Durations are seconds; keys are stored keys (`kind/name`). Each op names its reply, which can also be a StoreError (a
batch is not a transaction: each op succeeds or fails alone). `stores/transitions.py` defines what each op does.
"""

from __future__ import annotations

from typing import NamedTuple

from .model import Allowance, Entry, LeasedItem, NoItem, Released


class Acquire(NamedTuple):
    """→ Entry: granted if its `owner` is this owner, else the held or finished entry. A repeat returns the same fence
    and does not extend the hold; an owner that lost the key is refused for good."""

    key: str
    owner: str
    ttl: float
    info: str = ""
    client: str = ""  # if refused, queue this client as a waiter
    delay: float = 0.0  # if this hold expires (is not released), the key stays closed for this long
    fingerprint: str = ""
    counted: bool = False  # if refused, count the refusal in the entry
    value: bool = False  # if done, reply with the value


class Renew(NamedTuple):
    """→ Entry: with this owner and the new time left, or without. Never revives an expired hold, never shortens one."""

    key: str
    owner: str
    ttl: float


class Resume(NamedTuple):
    """→ Entry, with the value of an item: with `successor` as its owner if `owner` held it, else the other entry. From
    then on `owner` is gone (RESUMED), and the hold has a new ttl, the next fence and this info; an item keeps its fence
    and has no info. A repeat returns the same fence and does not extend the hold; a successor that lost the key is
    refused for good."""

    key: str
    owner: str
    successor: str
    ttl: float
    info: str = ""


class Finish(NamedTuple):
    """→ Entry: done, with this owner (accepted from the last owner until another takes the key), or the other entry."""

    key: str
    owner: str
    value: bytes
    keep: float


class Release(NamedTuple):
    """→ Released. Also removes this owner from the waiters, and removes a mark that this owner made.

    If the store has nothing of this owner: RELEASED without a `fence`; else LOST if the store's data is younger than
    the fence, RELEASED if the store is sure that an earlier call released it, and ABSENT if it does not know.
    """

    key: str
    owner: str
    revoke: bool = False  # this owner may never acquire again: a late copy of an unanswered try must not take the key
    delay: float = 0.0  # the key stays closed for this long
    keep: float = 0.0  # the store remembers the count of attempts for this long
    fence: int = 0  # of this owner's hold, if known


class Mark(NamedTuple):
    """→ bool: True if first (also when repeated by the same owner), False if seen. Never shortens a mark."""

    key: str
    owner: str
    ttl: float
    extend: bool = False  # an existing mark lasts at least `ttl` from now too; it keeps its owner and fence


class Read(NamedTuple):
    """→ Entry, with its value."""

    key: str


class Clear(NamedTuple):
    """→ bool: True if the entry with this fence was removed (also when repeated), False if it has another fence."""

    key: str
    fence: int
    reason: str


class Hit(NamedTuple):
    """→ Allowance: never more than `limit` owners in any window of `per` seconds; repeats by an owner count once."""

    key: str
    owner: str
    limit: int
    per: float


class Unhit(NamedTuple):
    """→ bool: True if this owner's hit was removed, False if there was none."""

    key: str
    owner: str


class Advance(NamedTuple):
    """→ Entry, with the greater of the stored and the given value, compared as bytes. Never expires."""

    key: str
    value: bytes


class Push(NamedTuple):
    """→ bool: True if added to the queue, False if it has an item of this id already (idempotent until Ack)."""

    queue: str
    id: str
    payload: bytes
    delay: float = 0.0


class Take(NamedTuple):
    """→ LeasedItem or None: the item that has waited longest, or the one of this id, leased for `ttl`; a repeat by the
    same owner gets the same item. With a `client`, NoItem instead of None; its hint names the queue's `line_key`, and a
    Release of that key by this owner leaves the line."""

    queue: str
    owner: str
    ttl: float
    id: str = ""
    client: str = ""  # if there is nothing to take, this client waits in line for a Push or a Return


class Ack(NamedTuple):
    """→ bool: True if the item is removed (also when repeated); False if another owner has it, or resumed and removed
    it, if the store lost it (its data is younger than the item's `fence`), or if a later item has its id, which a late
    copy of the Take took."""

    queue: str
    id: str
    owner: str
    fence: int = 0  # of the item, if known


class Return(NamedTuple):
    """→ bool: True if the item is back in the queue, False if this owner does not have it."""

    queue: str
    id: str
    owner: str
    delay: float = 0.0
    uncounted: bool = False  # this take does not count as an attempt


class Amend(NamedTuple):
    """→ bool: True if the item's bytes were `expected` and are `value` now (also when repeated), else False and nothing
    changed. The item keeps its place, its taker and its attempts. None as the value removes it, unless it is taken."""

    queue: str
    id: str
    value: bytes | None
    expected: bytes


class Count(NamedTuple):
    """→ int: the items in the queue, whether they wait, are delayed, or are taken."""

    queue: str


EntryOp = Acquire | Renew | Resume | Finish | Release | Mark | Read | Clear | Advance
QueueOp = Push | Take | Ack | Return | Amend | Count
Op = EntryOp | Hit | Unhit | QueueOp
Reply = Entry | Released | Allowance | LeasedItem | NoItem | bool | int | None

OPS: tuple[type, ...] = (
    Acquire, Release, Mark, Renew, Read, Finish, Clear, Hit, Unhit, Advance, Push, Take, Ack, Return,
    Amend, Count, Resume,
)  # fmt: skip

# make(Acquire, (key, …)), with all fields, saves a hot flow the call frame of the NamedTuple's constructor.
make = tuple.__new__

READS = frozenset((Read, Count))  # change nothing
URGENT = frozenset((Renew, Release))  # sent before other pending ops: they keep or free what others wait for
MAX_BATCH = 128  # ops: keeps one batch under about a millisecond of the server's time
MAX_LIMIT = 10_000  # of a Hit: a store keeps that many times and owners, about 1 MB; larger limits need not be exact
MAX_BATCH_BYTES = 256 * 1024  # so that a batch of large values does not delay the small ones behind it
