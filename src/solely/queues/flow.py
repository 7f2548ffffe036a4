"""Queue: work is put in, taken under a lease, and taken out when it is done; what a dead taker had comes back.

An item is kept as the owner of its push, one byte that tells the form of the payload (b: bytes, j: JSON), and the
payload. So a push whose answer was lost recognises its own item.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import Interrupted, InvalidInput, StoreError, StoreUnavailable, Unreadable
from ..flow import RUN, Ask, Flow, Run, Scan, replies_or_raise, undo
from ..formats import read_item
from ..model import Entry, Item, State, item_key
from ..ops import Ack, Push, Read, Return, Take
from ..rules import MAX_TTL, bounded_value, deadline

_PAGE = 100  # items in one look: at 256 KiB each, 25 MiB in memory at the worst


# The op that parks an item that cannot be read among dead letters; None if it is too large for that.
Park = Callable[[Item, Unreadable], Push | None]
_ASIDE = object()  # answered by a take that found an item that cannot be read, and set it aside


class TakenItem(NamedTuple):
    """An item in hand until the local `deadline`. `fresh`: put in by the same call that took it."""

    id: str
    payload: Any
    attempts: int
    fence: int
    owner: str
    deadline: float
    fresh: bool


class ItemInfo(NamedTuple):
    """An item as anybody may see it: `state` is free (it waits), held (somebody has it) or closed (it is delayed).

    `left` is for how many seconds it is held or closed, `attempts` how often it was taken. `fence` is that of its push:
    another item under the same id, after this one is gone, has a greater one. `unreadable` says why its payload cannot
    be read, which then is None; it is empty for all that Solely put in.
    """

    id: str
    payload: Any
    state: State
    left: float
    attempts: int
    fence: int
    unreadable: str = ""


def queue_of(name: str) -> str:
    """The queue of this name as stores know it: neither the audit log nor one of dead letters, whatever the name."""
    return f"queue:{name}"


# -- payloads


def body_of(payload: Any) -> bytes:
    """The payload as it is kept; InvalidInput if it is neither bytes nor JSON-serializable, or too large."""
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
        text = f"item {id!r} of {queue!r} was put in by a newer version, or by something else"
        raise Unreadable(text, key=id) from None


def _is_of(kept: bytes | None, owner: str) -> bool:
    """True if the push of this owner put it in."""
    return kept is not None and kept.startswith(owner.encode())


# -- flows


def push(queue: str, id: str, body: bytes, delay: float) -> Flow[bool]:
    """True if put in by this call, False if an item of this id is there already: it stays as it is."""
    owner: str = yield Ask.OWNER
    new: bool = yield Push(queue, id, owner.encode() + body, delay)
    run: Run = yield RUN
    if new or not run.doubtful:
        return new
    entry: Entry = yield Read(item_key(queue, id))  # a try whose answer was lost may have put it in
    return _is_of(entry.value, owner)


def take(queue: str, ttl: float, park: Park, id: str = "") -> Flow[TakenItem | None]:
    """The item that has waited longest, or the one named; None if there is none that may be taken now.

    What cannot be read is parked, and keeps nothing behind it waiting.
    """
    while True:
        owner: str = yield Ask.OWNER
        op = Take(queue, owner, ttl, id)
        taken = yield from _compensated(op, _take(op, park))
        if taken is not _ASIDE:
            return taken  # type: ignore[return-value]


def push_held(queue: str, id: str, body: bytes, ttl: float, park: Park) -> Flow[TakenItem | None]:
    """Puts the item in and takes it, or the one that waits under its id; None if somebody has it, or it is delayed.

    If that cannot be read it is parked, and this one is put in.
    """
    while True:
        owner: str = yield Ask.OWNER
        op = Take(queue, owner, ttl, id)
        taken = yield from _compensated(op, _push_held(op, Push(queue, id, owner.encode() + body), park))
        if taken is not _ASIDE:
            return taken  # type: ignore[return-value]


def _take(op: Take, park: Park) -> Flow[object]:
    return (yield from _in_hand(op, (yield op), park))


def _push_held(op: Take, put: Push, park: Park) -> Flow[object]:
    replies: list[Any] = replies_or_raise((yield [put, op]))
    new, item = replies
    if new and item is None:  # the batch was performed in another order: by parts, or by a store that keeps none
        item = yield op
    return (yield from _in_hand(op, item, park))


def _in_hand(op: Take, item: Item | None, park: Park) -> Flow[object]:
    """The item, if the answer came in time to be of use; else it is given back at once. _ASIDE if it cannot be read."""
    if item is None:
        return None
    run: Run = yield RUN
    ends = deadline(run.sent, item.left)
    if run.now() >= ends:
        yield Return(op.queue, item.id, op.owner)
        return None
    try:
        payload = _payload(item.payload, op.queue, item.id)
    except Unreadable as why:
        yield from _set_aside(op, item, park(item, why))
        return _ASIDE
    return TakenItem(item.id, payload, item.attempts, item.fence, op.owner, ends, _is_of(item.payload, op.owner))


def _set_aside(op: Take, item: Item, parked: Push | None) -> Flow[None]:
    """Takes it out once it is parked. One that is too large to be parked stays in the queue, out of the way for as long
    as can be: so nothing is lost, and it is still listed."""
    if parked is None:
        yield Return(op.queue, item.id, op.owner, MAX_TTL)
    else:
        yield parked
        yield Ack(op.queue, item.id, op.owner)


def _compensated(op: Take, flow: Flow[object]) -> Flow[object]:
    """What the flow answers; if it is interrupted, or fails, what it may have taken is given back."""
    try:
        return (yield from flow)
    except Interrupted as why:
        if why.unanswered or not isinstance(why.cause, StoreUnavailable):  # else nothing was sent
            yield from _undo(op)
        raise
    except StoreError:
        yield from _undo(op)
        raise


def _undo(op: Take) -> Flow[None]:
    """Gives back what the owner of this op has, if anything.

    A Take cannot be revoked; the driver sees to it that what undoes one does not overtake it. What a copy that was
    under way even longer takes comes back when its ttl is over.
    """
    if op.id:
        yield from undo([Return(op.queue, op.id, op.owner)])
        return
    item = yield op._replace(id=op.owner)  # its owner is no item's id: answers what the owner has, and takes nothing
    if isinstance(item, Item):
        yield from undo([Return(op.queue, item.id, op.owner)])


def ack(queue: str, id: str, owner: str, fence: int) -> Flow[bool]:
    """True if the item is gone from the queue; False if another has it, or may take it, or if the store lost it."""
    op = Ack(queue, id, owner, fence)
    try:
        return bool((yield op))
    except Interrupted:
        yield op  # it is done: if that is not known, it is done again
        raise


def give_back(queue: str, id: str, owner: str, delay: float) -> Flow[bool]:
    """True if the item waits in the queue again, False if this owner had it no longer."""
    op = Return(queue, id, owner, delay)
    try:
        returned: bool = yield op
    except Interrupted:
        yield op
        raise
    run: Run = yield RUN
    if returned or not run.doubtful:
        return returned
    known = yield from read(queue, id)  # a try whose answer was lost may have returned it
    return known is not None and known.state is not State.HELD


def read(queue: str, id: str) -> Flow[ItemInfo | None]:
    """The item of this id; None if there is none."""
    entry: Entry = yield Read(item_key(queue, id))
    return _info(queue, entry)


def page(queue: str, after: str, limit: int) -> Flow[list[ItemInfo]]:
    """Up to `limit` items with an id greater than `after`, in the order of ids."""
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
    if entry.value is None:  # acked or cleared, and remembered for a while
        return None
    id = entry.key.split("/", 2)[2]
    payload, why = None, ""
    try:
        payload = _payload(entry.value, queue, id)
    except Unreadable as unreadable:
        why = str(unreadable)
    return ItemInfo(id, payload, entry.state, entry.left, entry.attempts, entry.fence, why)
