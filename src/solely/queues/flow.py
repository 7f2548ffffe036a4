"""Decisions of queues: items are pushed, taken under a lease, and acked when done; an expired lease returns its item.

An item is stored as the owner of its push, a form byte (b: bytes, j: JSON), and the payload. So a push whose reply was
lost recognizes its own item.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import (
    INTERRUPTIONS,
    Busy,
    Interrupted,
    InvalidInput,
    StoreUnavailable,
    Unreadable,
    is_unanswered,
)
from ..flow import RUN, Ask, Flow, Run, Scan, replies_or_raise, undo
from ..formats import read_item
from ..model import Entry, LeasedItem, NoItem, State, item_key
from ..ops import Ack, Amend, Count, Push, Read, Renew, Resume, Return, Take
from ..rules import MAX_TTL, bounded_value, deadline

_PAGE = 50  # items per scan: at 256 KiB each, 13 MiB in memory at worst

# The op that parks an item as a dead letter with this payload, and why; None if it is too large for that.
Park = Callable[[LeasedItem, Any, Unreadable | str], Push | None]
PARKED = object()  # result of a take that parked the item it found
LATE = object()  # result of a take whose reply came too late: the item was returned


class TakenItem(NamedTuple):
    """An item that is leased until the local `deadline`. `fresh`: pushed by the same call that took it."""

    id: str
    payload: Any
    attempts: int
    fence: int
    owner: str
    deadline: float
    fresh: bool
    stored: bytes = b""
    ttl: float = 0.0


class ItemInfo(NamedTuple):
    """An item as any caller may see it: `state` is free (it waits), held (it is taken) or closed (it is delayed).

    It is held or closed for `left` more seconds, and was taken `attempts` times. `fence` is that of its push: a later
    item under the same id has a greater one. `unreadable` is why its payload is unreadable, and then None; it is empty
    for every item that Solely pushed. `stored` is its bytes in the store, by which `amend` and `remove` recognize it.
    """

    id: str
    payload: Any
    state: State
    left: float
    attempts: int
    fence: int
    unreadable: str = ""
    stored: bytes = b""

    def __repr__(self) -> str:  # without the bytes, which contain the owner of the push: a secret
        shown = zip(self._fields[:-1], self[:-1], strict=True)
        return f"ItemInfo({', '.join(f'{name}={value!r}' for name, value in shown)})"


def queue_of(name: str) -> str:
    """The stored name of this queue, which is never that of the audit log or of dead letters."""
    return f"queue:{name}"


# -- payloads


def body_of(payload: Any) -> bytes:
    """The stored payload; raises InvalidInput if it is neither bytes nor JSON-serializable, or too large."""
    if isinstance(payload, bytes):
        return b"b" + bounded_value(payload)
    try:
        text = json.dumps(payload, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(payload).__name__
        raise InvalidInput(
            f"the payload of an item must be bytes or JSON-serializable, not this {kind}: {error}"
        ) from None
    return b"j" + bounded_value(text.encode())


def _payload(kept: bytes, queue: str, id: str) -> Any:
    try:
        return read_item(kept)
    except ValueError:
        text = f"a newer version or another program pushed item {id!r} of {queue!r}"
        raise Unreadable(text, key=id) from None


def _is_of(kept: bytes | None, owner: str) -> bool:
    """True if this owner pushed it."""
    return kept is not None and kept.startswith(owner.encode())


# -- flows


def push(queue: str, id: str, body: bytes, delay: float) -> Flow[bool]:
    """Adds the item; False, with no change, if the queue has an item of this id already."""
    owner: str = yield Ask.OWNER
    new: bool = yield Push(queue, id, owner.encode() + body, delay)
    run: Run = yield RUN
    if new or not run.doubtful:
        return new
    entry: Entry = yield Read(item_key(queue, id))  # an unanswered try may have pushed it
    return _is_of(entry.value, owner)


def take_now(op: Take, park: Park, max_attempts: int = 0) -> Flow[object]:
    """A TakenItem; PARKED if the item that was found became a dead letter, LATE if it was returned because the reply
    came too late; NoItem or None if none is available now.

    After PARKED and LATE, the next take needs another owner: a late copy of the ack or return must not meet its item.
    """
    return _compensated(op, _take(op, park, max_attempts))


def push_held(queue: str, id: str, body: bytes, ttl: float, park: Park) -> Flow[TakenItem | None]:
    """Pushes the item and takes it, or the one that waits under its id; None if that is taken or delayed.

    If the waiting one is unreadable, parks it and pushes this one.
    """
    while True:
        owner: str = yield Ask.OWNER
        op = Take(queue, owner, ttl, id)
        taken = yield from _compensated(op, _push_held(op, Push(queue, id, owner.encode() + body), park))
        if taken is not PARKED:
            return taken if isinstance(taken, TakenItem) else None


def _take(op: Take, park: Park, max_attempts: int) -> Flow[object]:
    return (yield from _taken(op, (yield op), park, max_attempts))


def _push_held(op: Take, put: Push, park: Park) -> Flow[object]:
    replies: list[Any] = replies_or_raise((yield [put, op]))
    new, item = replies
    if new and item is None:  # the batch was performed in another order: in parts, or by a store that has no order
        item = yield op
    return (yield from _taken(op, item, park))


def _taken(op: Take, item: LeasedItem | NoItem | None, park: Park, max_attempts: int = 0) -> Flow[object]:
    """The taken item; LATE, and the item is returned, if the reply came too late. PARKED if it is unreadable, or was
    taken too often."""
    if not isinstance(item, LeasedItem):
        return item
    run: Run = yield RUN
    ends = deadline(run.sent, item.left)
    if run.now() >= ends:
        yield Return(op.queue, item.id, op.owner, uncounted=True)
        return LATE
    try:
        payload = _payload(item.payload, op.queue, item.id)
    except Unreadable as why:
        yield from _remove_parked(op, item, park(item, item.payload, why))
        return PARKED
    if 0 < max_attempts < item.attempts:
        text = f"it was taken {item.attempts - 1} times and never acknowledged (max_attempts={max_attempts})"
        yield from _remove_parked(op, item, park(item, payload, text))
        return PARKED
    fresh = _is_of(item.payload, op.owner)
    return TakenItem(item.id, payload, item.attempts, item.fence, op.owner, ends, fresh, item.payload, op.ttl)


def _remove_parked(op: Take, item: LeasedItem, parked: Push | None) -> Flow[None]:
    """Parks the item, then removes it from the queue. An item that is too large to park stays in the queue, delayed as
    long as possible: nothing is lost, and it is still listed."""
    if parked is None:
        yield Return(op.queue, item.id, op.owner, MAX_TTL)
    else:
        yield parked
        yield Ack(op.queue, item.id, op.owner, item.fence)


def _compensated(op: Take, flow: Flow[object]) -> Flow[object]:
    """The flow's result; if it is interrupted or fails, returns the item that it may have taken."""
    try:
        return (yield from flow)
    except INTERRUPTIONS as why:
        if is_unanswered(why) or not isinstance(getattr(why, "cause", None), StoreUnavailable):  # else nothing was sent
            yield from _undo(op)
        raise


def _undo(op: Take) -> Flow[None]:
    """Returns the item that the owner of this op has, if any. Nobody got it, so that it does not count as an attempt.

    A Take cannot be revoked; the driver ensures that its undo does not overtake it. An item taken by a copy that stays
    in flight even longer comes back when its ttl ends.
    """
    if op.id:
        yield from undo([Return(op.queue, op.id, op.owner, uncounted=True)])
        return
    item = yield op._replace(
        id=op.owner, client=""
    )  # no item has the owner's id: replies with the owner's item, and takes none
    if isinstance(item, LeasedItem):
        yield from undo([Return(op.queue, item.id, op.owner, uncounted=True)])


def ack(queue: str, id: str, owner: str, fence: int) -> Flow[bool]:
    """True if the item is removed; False if another owner has it or may take it, or if the store lost it."""
    op = Ack(queue, id, owner, fence)
    try:
        return bool((yield op))
    except Interrupted:
        yield op  # the work is done: without the ack it would be done again
        raise


def renew(queue: str, id: str, owner: str, ttl: float) -> Flow[float | None]:
    """Extends the lease, and never shortens it; returns its local deadline, or None if this owner lost the item."""
    entry: Entry = yield Renew(item_key(queue, id), owner, ttl)
    run: Run = yield RUN
    ends = deadline(run.sent, entry.left)
    return ends if entry.owner == owner and run.now() < ends else None


def resume(queue: str, id: str, owner: str, ttl: float) -> Flow[TakenItem]:
    """The item that another process took under this owner, which is gone from now on; raises Busy if that one no longer
    has it. An interrupted caller leaves it to others: what it may have taken over is returned, and a token that was not
    resumed stays valid."""
    run: Run = yield RUN
    successor, answered = run.fresh_owner(), False
    try:
        entry: Entry = yield Resume(item_key(queue, id), owner, successor, ttl)
        answered = True
        ends = deadline(run.sent, entry.left)
        if entry.owner == successor and entry.value is not None and run.now() < ends:
            payload = _payload(entry.value, queue, id)
            return TakenItem(id, payload, entry.attempts, entry.fence, successor, ends, False, entry.value, ttl)
    except INTERRUPTIONS as why:
        if answered or is_unanswered(why):  # else nothing was sent
            yield from undo([Return(queue, id, successor)])
        raise
    if entry.owner == successor:  # the reply came too late
        yield Return(queue, id, successor)
    text = f"item {id!r} is no longer taken under this token: it was resumed or settled, or its lease expired"
    raise Busy(text, key=id, left=entry.left)


def count(queue: str) -> Flow[int]:
    """The items in the queue, taken or not."""
    return int((yield Count(queue)))


def give_back(queue: str, id: str, owner: str, delay: float, uncounted: bool = False) -> Flow[bool]:
    """True if the item waits in the queue again, False if this owner no longer had it."""
    op = Return(queue, id, owner, delay, uncounted)
    try:
        returned: bool = yield op
    except Interrupted:
        yield op
        raise
    run: Run = yield RUN
    if returned or not run.doubtful:
        return returned
    known = yield from read(queue, id)  # an unanswered try may have returned it
    return known is not None and known.state is not State.HELD


def amend(queue: str, id: str, body: bytes, expected: bytes) -> Flow[bool]:
    """True if the item had the expected bytes, and has this payload now; False, with no change, in any other case.

    Each change is stored under an owner of its own, as each push is: a repeat recognizes its own change, and no other
    change leaves the bytes that a caller has seen before.
    """
    owner: str = yield Ask.OWNER
    return bool((yield Amend(queue, id, owner.encode() + body, expected)))


def remove(queue: str, id: str, expected: bytes, fence: int) -> Flow[bool]:
    """True if the item had the expected bytes and is gone now; False, with no change, if it is taken, or was changed or
    removed before."""
    removed: bool = yield Amend(queue, id, None, expected)
    run: Run = yield RUN
    if removed or not run.doubtful:
        return removed
    entry: Entry = yield Read(item_key(queue, id))  # an unanswered try may have removed it
    return entry.value is None or entry.fence > fence


def read(queue: str, id: str) -> Flow[ItemInfo | None]:
    """The item of this id; None if there is none."""
    entry: Entry = yield Read(item_key(queue, id))
    return _info(queue, entry)


def page(queue: str, after: str, limit: int) -> Flow[list[ItemInfo]]:
    """Up to `limit` items with an id greater than `after`, in id order."""
    prefix = item_key(queue, "")
    last, found = prefix + after, list[ItemInfo]()
    while len(found) < limit:
        entries: list[Entry] = yield Scan(prefix, last, min(_PAGE, limit - len(found)))
        if not entries:
            break
        found += [known for known in (_info(queue, entry) for entry in entries) if known is not None]
        last = entries[-1].key
    return found


def _info(queue: str, entry: Entry) -> ItemInfo | None:
    if entry.value is None:  # acked or cleared, and still remembered
        return None
    id = entry.key.split("/", 2)[2]
    payload, why = None, ""
    try:
        payload = _payload(entry.value, queue, id)
    except Unreadable as unreadable:
        why = str(unreadable)
    return ItemInfo(id, payload, entry.state, entry.left, entry.attempts, entry.fence, why, entry.value)
