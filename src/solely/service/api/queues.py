"""Queues over HTTP: push work, take it under a lease, and ack it by the token of the lease; or give it back.

The service does not renew the lease: if the caller dies, the item is available again after its ttl.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...errors import InvalidInput
from ...events import Cleared
from ...leases.token import read_token
from ...model import item_key
from ...queues.flow import queue_of
from ...queues.handle import AsyncQueue
from ...queues.item import AsyncItem
from ...rules import MAX_TTL
from ..problems import BUSY, LOST, TOO_MANY
from ..routes import ADMIN, KIB, WRITE, Answer, Body, Call, Key, Reason, Route, Token, Ttl, Wait
from .entries import Fence

CAP = 512 * KIB  # bytes: the largest payload in base64, with room to spare

Delay = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_TTL, description="seconds")]
MaxAttempts = Annotated[int, msgspec.Meta(ge=0, le=10**6, description="0: no limit")]


class PushItem(Body):
    """An item of this id, available after `delay` seconds. Bytes go into `raw`, in base64, and any JSON into
    `payload`."""

    queue: Key
    id: Key
    payload: Any = None
    raw: bytes | None = None
    delay: Delay = 0.0


class TakeItem(Body):
    """The item that has waited longest, or the one of this id. An item that was taken `max_attempts` times before
    becomes a dead letter instead."""

    queue: Key
    ttl: Ttl = 30.0
    wait: Wait = 0.0
    id: Key | None = None
    max_attempts: MaxAttempts = 0


class RenewItem(Body):
    """Without `ttl`, the ttl of the lease is used again."""

    queue: Key
    token: Token
    ttl: Ttl | None = None


class ResumeItem(Body):
    """The token that the taker handed over. It is void from then on."""

    queue: Key
    token: Token


class AckItem(Body):
    """The work is done."""

    queue: Key
    token: Token


class GiveBackItem(Body):
    """The item is available again after `delay` seconds. With `uncounted`, this take does not count as an attempt."""

    queue: Key
    token: Token
    delay: Delay = 0.0
    uncounted: bool = False


class RemoveItem(Body):
    """An item as it was listed: if it was acked, taken or pushed anew since, nothing is removed."""

    queue: Key
    id: Key
    fence: Fence
    reason: Reason

    @property
    def key(self) -> str:
        """The key in the audit log."""
        return f"{self.queue}/{self.id}"


class PushedItem(Answer):
    """False if the queue has an item of this id already, waiting or taken; that one stays as it is."""

    pushed: bool


class TakenQueueItem(Answer):
    """A leased item: count `left` seconds from before the request was sent. A payload of bytes is in `raw`."""

    id: str
    attempts: int
    fence: int
    left: float
    token: str
    payload: Any = None
    raw: bytes | None = None


class TakenQueueItems(Answer):
    """The item; null if none was available within `wait`."""

    item: TakenQueueItem | None


class RenewedItem(Answer):
    """Count `left` seconds from before the request was sent."""

    left: float


class AckedItem(Answer):
    """False if another caller has taken or resumed the item since, or the store lost it: then the work may be done
    again."""

    acked: bool


class GivenBackItem(Answer):
    """False if the caller no longer had it."""

    given_back: bool


class RemovedItem(Answer):
    """False if the item has changed since it was listed, or somebody has it taken."""

    removed: bool


def _queue(call: Call[Any, Any], name: str) -> AsyncQueue:
    return call.service.once.queue(name)


def _note(call: Call[Any, Any], queue: str, id: str, event: str, fence: int = 0, **facts: Any) -> None:
    """Records in the history what became of the item: the library reports no events of items."""
    call.service.history.note(item_key(queue_of(queue), id), event, fence, **facts)


def payload_of(payload: Any) -> dict[str, Any]:
    return {"raw": payload} if isinstance(payload, bytes) else {"payload": payload}


async def push(call: Call[PushItem, None]) -> PushedItem:
    """Adds an item to a queue, unless it has one of this id."""
    wanted = call.body
    if wanted.raw is not None and wanted.payload is not None:
        raise InvalidInput("give either payload or raw, not both")
    payload = wanted.payload if wanted.raw is None else wanted.raw
    delay = call.service.ttl(wanted.delay)
    pushed = await _queue(call, wanted.queue).push(wanted.id, payload, delay=delay)
    if pushed:
        _note(call, wanted.queue, wanted.id, "pushed")
    return PushedItem(pushed=pushed)


async def take(call: Call[TakeItem, None]) -> TakenQueueItems:
    """Leases an item to the caller, and waits for one up to `wait`."""
    wanted, service = call.body, call.service
    ttl, wait = service.ttl(wanted.ttl), service.wait(wanted.wait)
    service.holds.check(call.principal.name)
    taking = _queue(call, wanted.queue).take(ttl=ttl, wait=wait, id=wanted.id or "", max_attempts=wanted.max_attempts)
    item = await (call.waiting(taking, _untake) if wait else taking)
    if item is None:
        return TakenQueueItems(item=None)
    _note(call, wanted.queue, item.id, "taken", item.fence, left=ttl, attempts=item.attempts)
    taken = _handed_over(item)
    service.holds.add(call.principal.name, taken.token, ttl)
    return TakenQueueItems(item=taken)


def _handed_over(item: AsyncItem) -> TakenQueueItem:
    return TakenQueueItem(
        id=item.id,
        attempts=item.attempts,
        fence=item.fence,
        left=item.remaining(),
        token=item.hand_over(),
        **payload_of(item.payload),
    )


async def resume(call: Call[ResumeItem, None]) -> TakenQueueItem:
    """Takes over the item of a token, under a new token; a second resume of it is refused."""
    wanted, service, who = call.body, call.service, call.principal.name
    ttl = service.ttl(read_token(wanted.token).ttl)
    with service.holds.requesting(who, service.holds.wanted_to_resume(who, wanted.token)):
        item = await _queue(call, wanted.queue).resume(wanted.token)
    _note(call, wanted.queue, item.id, "resumed", item.fence, left=ttl, attempts=item.attempts)
    taken = _handed_over(item)
    service.holds.pass_on(wanted.token, who, taken.token, ttl)
    return taken


async def _untake(item: AsyncItem | None) -> None:
    """Returns what a caller took that has disconnected."""
    if item is not None:
        await item.give_back(uncounted=True)


async def renew(call: Call[RenewItem, None]) -> RenewedItem:
    """Extends the lease of a taken item."""
    wanted, service = call.body, call.service
    item = _queue(call, wanted.queue).item_of(wanted.token)
    await item.renew(service.ttl(read_token(wanted.token).ttl if wanted.ttl is None else wanted.ttl))
    left = item.remaining()
    _note(call, wanted.queue, item.id, "renewed", item.fence, left=left)
    service.holds.add(call.principal.name, wanted.token, left)
    return RenewedItem(left=left)


async def ack(call: Call[AckItem, None]) -> AckedItem:
    """Removes a taken item, since its work is done."""
    item = _queue(call, call.body.queue).item_of(call.body.token)
    acked = await item.ack()
    _note(call, call.body.queue, item.id, "acked" if acked else "expired", item.fence)
    call.service.holds.remove(call.principal.name, call.body.token)
    return AckedItem(acked=acked)


async def give_back(call: Call[GiveBackItem, None]) -> GivenBackItem:
    """Returns a taken item to its queue."""
    wanted = call.body
    item = _queue(call, wanted.queue).item_of(wanted.token)
    back = await item.give_back(delay=call.service.ttl(wanted.delay), uncounted=wanted.uncounted)
    if back:
        _note(call, wanted.queue, item.id, "given_back", item.fence, delay=wanted.delay)
    call.service.holds.close(call.principal.name, wanted.token, wanted.delay if back else 0.0)
    return GivenBackItem(given_back=back)


async def remove(call: Call[RemoveItem, None]) -> RemovedItem:
    """Removes an item that nobody has taken, as it was listed."""
    wanted, queue = call.body, call.service.clearing.queue(call.body.queue)
    seen = await queue.read(wanted.id)
    if seen is None or seen.fence != wanted.fence:
        return RemovedItem(removed=False)
    removed = await queue.remove(wanted.id, expected=seen)
    if removed:
        call.service.emit(Cleared(item_key(queue_of(wanted.queue), wanted.id), wanted.fence, wanted.reason))
    return RemovedItem(removed=removed)


ROUTES = [
    Route(
        "POST",
        "/v1/queues/push",
        WRITE,
        push,
        cap=CAP,
        again="Returns false while the item is in the queue. If it was taken and acked in between, it is added once "
        "more: where a response can be lost, send an Idempotency-Key.",
        keyed=True,
    ),
    Route(
        "POST",
        "/v1/queues/take",
        WRITE,
        take,
        refusals=(TOO_MANY,),
        grants=True,
        again="Takes another item: if the first response was lost, its item is available again after its ttl.",
    ),
    Route(
        "POST",
        "/v1/queues/resume",
        WRITE,
        resume,
        refusals=(BUSY, TOO_MANY),
        grants=True,
        again="Refused: a token is resumed once. If the first response was lost, its item is available again after its "
        "ttl.",
    ),
    Route("POST", "/v1/queues/renew", WRITE, renew, refusals=(LOST,), again="Safe: extends again, never shortens."),
    Route("POST", "/v1/queues/ack", WRITE, ack, again="Safe: the same response as the first time, for a minute."),
    Route(
        "POST", "/v1/queues/give-back", WRITE, give_back, again="Safe: returns false, and the item is where it was put."
    ),
    Route(
        "POST",
        "/v1/queues/remove",
        ADMIN,
        remove,
        changed="removed",
        again="Safe: removes only the item with this fence, and returns false if it is gone.",
    ),
]
