"""The reference: what each op does to a record, as functions on plain data. Read this first.

The memory and SQLite stores call it inside their mutex or transaction; the scripts and SQL functions of the other
stores say the same in their own language, and the contract suite holds all of them to it.

Times are integer microseconds of the store's clock. A store has two of them: `lease` (what leases, offers, delays
and the memory of displaced owners run on; it may start anew after a reboot) and `wall` (what must outlive a reboot:
marks, results, hits). Where there is one clock, both are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from ..model import ABSENT, CLOSED, DONE, FREE, HELD, LOST, RELEASED, Entry, Gone, LeasedItem, NoItem, Released, State
from ..ops import Ack, Acquire, Advance, Amend, Clear, Finish, Mark, Push, Release, Renew, Resume, Return, Take
from ..rules import MAX_GONE, MAX_WAITERS, OFFER, REMEMBER

US = 1_000_000
NEVER = 0  # as `until`: does not expire
_REMEMBER = int(REMEMBER * US)
_OFFER = int(OFFER * US)


def us(seconds: float) -> int:
    """Whole microseconds, at least one for any positive duration."""
    return int(seconds * US + 0.5) or 1 if seconds > 0 else 0


class Now(NamedTuple):
    """One reading of the store's clocks, in µs."""

    lease: int
    wall: int


class QueuedClient(NamedTuple):
    """A client that waits, and which of its attempts is at the head of its local line."""

    client: str
    owner: str


class Displaced(NamedTuple):
    """An owner that is gone, how, under which fence (0: it held nothing), and until when that is remembered."""

    owner: str
    fence: int
    how: str
    until: int


class StoredRecord:
    """What a store keeps under one key. `state` is FREE, HELD or DONE as last written; `view` shows what it is now."""

    __slots__ = (
        "attempts", "delay", "fence", "fingerprint", "gone", "info", "kept", "offered", "opens",
        "owner", "refused", "state", "until", "value", "waiters",
    )  # fmt: skip

    def __init__(self) -> None:
        self.state: State = FREE
        self.owner = ""
        self.fence = 0
        self.until = NEVER  # HELD: lease clock; DONE: wall clock; NEVER for a watermark
        self.delay = 0  # HELD: closed for that long after an expiry
        self.opens = 0  # FREE: closed until then (lease clock), but for the client it is offered to
        self.offered: QueuedClient | None = None
        self.attempts = 0
        self.kept = 0  # FREE: the attempts are remembered until then (lease clock)
        self.refused = 0
        self.fingerprint = ""
        self.info = ""
        self.value: bytes | None = None  # DONE: the result (None for a mark); an item's payload in any state
        self.waiters: list[QueuedClient] = []
        self.gone: list[Displaced] = []

    @property
    def is_item(self) -> bool:
        """True if this is a queue item: it has a payload before anybody finished it."""
        return self.value is not None and self.state is not DONE

    def forget_at(self, now: Now) -> float:
        """The lease time from which this record answers nothing more and is treated as absent; infinite if never."""
        if self.is_item or (self.state is DONE and self.until == NEVER):
            return float("inf")
        if self.state is HELD:
            at = self.until + self.delay + _REMEMBER
        elif self.state is DONE:
            at = now.lease + self.until - now.wall
        else:  # a waiter that is alive looks again within a second
            at = max(self.opens, self.kept) + (_REMEMBER if self.waiters else 0)
        return max(at, self.gone[-1].until) if self.gone else at  # in the order in which they are forgotten

    def useless(self, now: Now) -> bool:
        """True if this record is treated as absent, so that a store may forget it now or at any later time."""
        return self.forget_at(now) <= now.lease


def current(record: StoredRecord | None, now: Now) -> StoredRecord:
    """The record that ops work on: a new one where there is none that still matters."""
    return StoredRecord() if record is None or record.useless(now) else record


def _over(record: StoredRecord, now: Now) -> bool:
    """True if the hold or the finished entry has run out."""
    if record.state is HELD:
        return now.lease >= record.until
    return record.state is FREE or (record.until != NEVER and now.wall >= record.until)


def _how(record: StoredRecord, owner: str, now: Now) -> str:
    """How this owner is gone, or "" if it is not known to be."""
    for displaced in record.gone:
        if displaced.owner == owner and displaced.until > now.lease:
            return displaced.how
    return Gone.EXPIRED if record.state is HELD and record.owner == owner and _over(record, now) else ""


def _was_held(record: StoredRecord, owner: str, fence: int) -> bool:
    """True if this owner, which is gone, held the key under this fence when it was revoked."""
    return any(d.owner == owner and d.fence == fence for d in record.gone)


def _displace(record: StoredRecord, owner: str, fence: int, how: str, now: Now, ends: int = 0) -> None:
    """Remembers how this owner lost the key, which it relied on until `ends` at the latest; 0: no longer than now."""
    kept = [d for d in record.gone if d.until > now.lease and (d.owner != owner or not owner)]
    gone = [*kept, Displaced(owner, fence, how, (ends or now.lease) + _REMEMBER)]
    if kept and kept[-1].until > gone[-1].until:
        gone.sort(key=attrgetter("until"))
    record.gone = gone[-MAX_GONE:]


def view(key: str, record: StoredRecord | None, now: Now, asker: str = "", *, value: bool = False) -> Entry:
    """The entry as `asker` may see it now."""
    return Entry(key, FREE) if record is None or record.useless(now) else shown(key, record, now, asker, value=value)


def shown(key: str, record: StoredRecord, now: Now, asker: str = "", *, value: bool = False) -> Entry:
    """The same of a record that is known to matter still."""
    state, left = record.state, 0
    if state is HELD and _over(record, now):
        state, left = FREE, record.until + record.delay - now.lease
    elif state is HELD:
        left = record.until - now.lease
    elif state is DONE:
        state, left = (FREE, 0) if _over(record, now) else (state, record.until - now.wall)
    else:
        left = record.opens - now.lease
    if state is FREE and left > 0:
        state = CLOSED
    live = state is HELD or state is DONE
    counted = live or record.state is HELD or record.is_item or now.lease < record.kept
    return Entry(
        key,
        state,
        record.fence if live or record.is_item else 0,
        float("inf") if state is DONE and record.until == NEVER else max(0, left) / US,
        asker if live and asker and record.owner == asker else "",
        record.attempts if counted else 0,
        record.refused if counted else 0,
        len(record.waiters),
        record.fingerprint if live else "",
        record.info if live else "",
        record.value if value and (state is DONE or record.is_item) else None,
        _how(record, asker, now) if asker else "",
    )


def _offer(record: StoredRecord, now: Now, notified: list[str]) -> None:
    """Offers a key that was just released to the first waiter, and notifies only that one."""
    record.offered, record.opens = None, 0
    if record.waiters:
        record.offered = record.waiters.pop(0)
        record.opens = now.lease + _OFFER
        notified.append(record.offered.client)


def _set_free(record: StoredRecord) -> None:
    record.state, record.owner, record.until, record.delay = FREE, "", NEVER, 0
    record.fingerprint = record.info = ""


def acquire(record: StoredRecord, op: Acquire, now: Now, next_fence: Callable[[], int]) -> None:
    """Grants the key to op.owner under the next fence; else queues its client and counts the refusal, as it says."""
    live = not _over(record, now)
    if _how(record, op.owner, now) or (live and record.owner == op.owner):
        return  # gone for good; or a repeat: still mine, nothing moves
    closed = record.state is FREE and now.lease < record.opens
    closed = closed and not (record.offered is not None and op.client and record.offered.client == op.client)
    closed = closed or (record.state is HELD and not live and now.lease < record.until + record.delay)
    if (live and record.state is not FREE) or closed:
        if op.counted:
            record.refused += 1
        if op.client and record.state is not DONE:
            _queue(record, QueuedClient(op.client, op.owner))
        return
    if record.state is HELD:
        _displace(record, record.owner, record.fence, Gone.EXPIRED, now)
    elif record.state is DONE or now.lease >= record.kept:
        record.attempts = record.refused = 0
    record.state, record.owner, record.fence = HELD, op.owner, next_fence()
    record.until, record.delay = now.lease + us(op.ttl), us(op.delay)
    record.attempts += 1
    record.fingerprint, record.info, record.value = op.fingerprint, op.info, None
    record.offered, record.opens, record.kept = None, 0, 0
    record.waiters = [w for w in record.waiters if w.client != op.client]


def _queue(record: StoredRecord, waiter: QueuedClient) -> None:
    """A client is in the queue once; a newer attempt of it keeps its place."""
    for place, other in enumerate(record.waiters):
        if other.client == waiter.client:
            record.waiters[place] = waiter
            return
    if len(record.waiters) < MAX_WAITERS:
        record.waiters.append(waiter)


def renew(record: StoredRecord, op: Renew, now: Now) -> None:
    """Extends the hold if it is op.owner's and has not run out; never shortens it: the holder of a late, overtaken or
    interrupted renewal may rely on a longer one."""
    if record.state is HELD and record.owner == op.owner and not _over(record, now):
        record.until = max(record.until, now.lease + us(op.ttl))


def resume(record: StoredRecord, op: Resume, now: Now, next_fence: Callable[[], int]) -> None:
    """Passes the hold of op.owner, if it has not run out, on to op.successor, whose repeat changes nothing. An item
    keeps its fence, which is that of its push, and has no info: its takers differ by their owners."""
    held = record.state is HELD and record.owner == op.owner and not _over(record, now)
    if not held or op.successor == op.owner or _how(record, op.successor, now):
        return
    _displace(record, op.owner, record.fence, Gone.RESUMED, now, record.until)
    record.owner, record.until = op.successor, now.lease + us(op.ttl)
    if not record.is_item:
        record.fence, record.info = next_fence(), op.info


def finish(record: StoredRecord, op: Finish, now: Now, notified: list[str]) -> None:
    """Finishes the hold if op.owner is its last owner, even after its time ran out; notifies all waiters."""
    if record.state is HELD and record.owner == op.owner:
        record.state, record.value, record.delay = DONE, op.value, 0
        record.until = now.wall + us(op.keep)
        notified.extend(w.client for w in record.waiters)
        record.waiters = []


def is_lost(fence: int, born: int) -> bool:
    """True if what was granted under this fence is older than the store's data, whose first fence was `born`; 0: there
    is none yet. Without a fence nothing is known."""
    return fence > 0 and not 0 < born <= fence


def release(record: StoredRecord, op: Release, now: Now, notified: list[str], born: Callable[[], int]) -> Released:
    """Lets go of the hold, the place in the queue, or the mark of op.owner; answers the same when repeated, as far as
    that is remembered."""
    how = _how(record, op.owner, now)
    held = record.state is HELD and record.owner == op.owner
    here = record.owner == op.owner and record.state is not FREE and op.fence in (0, record.fence)
    fence = record.fence if held else 0
    if held:
        if how:
            _displace(record, op.owner, record.fence, Gone.EXPIRED, now)
            record.opens = record.until + record.delay
            record.kept = now.lease + _REMEMBER
        else:
            record.opens = now.lease + us(op.delay)
            record.kept = now.lease + us(op.keep)
        closed = record.opens > now.lease
        _set_free(record)
        record.value = None
        if not closed:
            _offer(record, now, notified)
    elif record.state is DONE and record.owner == op.owner and record.value is None:
        _set_free(record)
    elif record.offered is not None and record.offered.owner == op.owner and now.lease < record.opens:
        _offer(record, now, notified)
    record.waiters = [w for w in record.waiters if w.owner != op.owner]
    if op.revoke and not how:
        _displace(record, op.owner, fence, Gone.REVOKED, now)
    if how and how != Gone.REVOKED:
        return Released(how)
    if here or not op.fence or (how and _was_held(record, op.owner, op.fence)):
        return RELEASED
    return LOST if is_lost(op.fence, born()) else ABSENT


def mark(record: StoredRecord, op: Mark, now: Now, next_fence: Callable[[], int]) -> bool:
    """Marks a free key, and extends a mark if the op says so; returns whether op.owner is the one that marked it."""
    if _how(record, op.owner, now):
        return False
    if record.state is not FREE and not _over(record, now):
        if op.extend and record.state is DONE and record.value is None:
            record.until = max(record.until, now.wall + us(op.ttl))
        return record.state is DONE and record.owner == op.owner
    if record.state is HELD:
        _displace(record, record.owner, record.fence, Gone.EXPIRED, now)
    _set_free(record)
    record.state, record.owner, record.fence = DONE, op.owner, next_fence()
    record.until, record.value = now.wall + us(op.ttl), None
    record.attempts = record.refused = 0
    record.offered, record.opens, record.kept = None, 0, 0
    return True


def clear(record: StoredRecord, op: Clear, now: Now, notified: list[str]) -> bool:
    """Removes what carries op.fence, and nothing that came after it."""
    if any(d.fence == op.fence and d.how == Gone.CLEARED and d.until > now.lease for d in record.gone):
        return True
    if record.fence != op.fence or not (record.is_item or not _over(record, now)):
        return False
    _displace(record, record.owner, record.fence, Gone.CLEARED, now)
    _set_free(record)
    record.value, record.attempts, record.refused, record.kept = None, 0, 0, 0
    _offer(record, now, notified)
    return True


def advance(record: StoredRecord, op: Advance, next_fence: Callable[[], int]) -> None:
    """Moves a watermark forward, never back."""
    if record.state is DONE and record.value is not None and record.value >= op.value:
        return
    _set_free(record)
    record.state, record.value, record.fence, record.until = DONE, op.value, next_fence(), NEVER


def push(record: StoredRecord, op: Push, now: Now, next_fence: Callable[[], int]) -> bool:
    """Makes the record a queue item unless it is one; answers whether it was put in."""
    if record.is_item:
        return False
    _set_free(record)
    record.value, record.fence, record.attempts = op.payload, next_fence(), 0
    record.offered, record.opens = None, now.lease + us(op.delay)
    return True


def available(record: StoredRecord) -> int:
    """Since when (or from when) an item may be taken, on the lease clock: the order of a queue."""
    return record.until if record.state is HELD else record.opens


def take(record: StoredRecord, op: Take, now: Now) -> None:
    """Leases the item to op.owner if it may be taken; a repeat by its holder changes nothing."""
    if available(record) <= now.lease:
        record.state, record.owner, record.until = HELD, op.owner, now.lease + us(op.ttl)
        record.attempts += 1


def taken(id: str, record: StoredRecord, now: Now) -> LeasedItem:
    """The item as its taker sees it."""
    return LeasedItem(id, record.value or b"", record.attempts, max(0, record.until - now.lease) / US, record.fence)


def has(record: StoredRecord, owner: str) -> bool:
    """True if this owner was the last to take the item, even if its time ran out since."""
    return record.state is HELD and record.owner == owner


def may_ack(record: StoredRecord, op: Ack) -> bool:
    """True if the owner has the item, and not only a later one of its id."""
    return has(record, op.owner) and op.fence in (0, record.fence)


def is_acked(record: StoredRecord, op: Ack, now: Now, born: Callable[[], int]) -> bool:
    """The reply where there is no such item any more: True, unless its data was lost, or another owner resumed it."""
    return _how(record, op.owner, now) != Gone.RESUMED and not (op.fence and is_lost(op.fence, born()))


def remove_item(record: StoredRecord) -> None:
    """Leaves nothing of the item but the memory of who lost it."""
    _set_free(record)
    record.value = None
    record.opens = record.attempts = 0


def give_back(record: StoredRecord, op: Return, now: Now) -> None:
    """Puts the item back for anyone, from op.delay on; an uncounted take is no attempt."""
    record.state, record.owner, record.until, record.opens = FREE, "", NEVER, now.lease + us(op.delay)
    record.attempts -= op.uncounted


def amend(record: StoredRecord, op: Amend, now: Now) -> bool:
    """Replaces the item's bytes if they are as expected, and nothing else of it; without a value, removes it unless it
    is taken. A repeat finds the new bytes, and changes nothing."""
    if not record.is_item:
        return False
    if op.value is not None and record.value == op.value:
        return True
    if record.value != op.expected or (op.value is None and not _over(record, now)):
        return False
    record.value = op.value
    if op.value is None:
        remove_item(record)
    return True


def join_line(line: StoredRecord, op: Take, now: Now) -> None:
    """Puts op.client in the line of its queue, once. The line is remembered from then on: a client that waits joins
    again every second, and writes only if its place is another owner's, or was written half that time ago."""
    me = QueuedClient(op.client, op.owner)
    if me not in line.waiters or line.opens + _REMEMBER // 2 < now.lease:
        _queue(line, me)
        line.opens = now.lease


def call_first(line: StoredRecord, notified: list[str]) -> None:
    """Notifies the first client in the line of a queue that got an item, and removes it from the line."""
    if line.waiters:
        notified.append(line.waiters.pop(0).client)


def no_item(soonest: int | None, now: Now) -> NoItem:
    """The reply to a client that waits; `soonest` is when the next item of the queue becomes available, if ever."""
    return NoItem(float("inf") if soonest is None else max(0, soonest - now.lease) / US)
