"""Ops over HTTP: a batch is performed as the store would, so that a service can be used as a store (`http://…`), from
any language. And hints: what a client that waits is told by the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext, suppress
from typing import Annotated

import msgspec

from ...errors import InvalidInput, StoreError
from ...kinds import OF_THE_SERVICE, check_ops, kind_of
from ...model import HELD, RELEASED, Entry, Item, Released, item_key
from ...names import owner_of_op
from ...ops import Ack, Acquire, Clear, Finish, Hit, Op, Push, Read, Release, Renew, Reply, Return, Take
from ...owner import fresh_owner
from ...stores import AsyncStore
from ...stores.http.wire import GRANTING, MAX_STORED_KEY, Batch, Page, Replies, op_of, reply_of, wire_entry
from ..problems import RESERVED_NAME, SCOPE, STOPPING, TOO_MANY, Problem, problem_of
from ..reserved import clearing
from ..routes import KIB, READ, WRITE, Body, Call, PageSize, Route
from ..security import Scope
from ..streams import EventStream, message

CAP = 1024 * KIB  # bytes: 256 KiB of values in base64, and as much again for keys and the rest
UNREAD = 1000  # hints that a slow reader may be behind: what it misses it finds by asking again
_CLOSED_BEFORE = frozenset((Released.EXPIRED, Released.ABSENT))  # as its Acquire, or an earlier copy, had it closed
REMEMBERED = frozenset(("claim", "reservation", "sent"))  # what is finished there is remembered: its own API says so

StoredKey = Annotated[str, msgspec.Meta(max_length=MAX_STORED_KEY, description="kind/name, or what it begins with")]


async def perform(call: Call[Batch, None]) -> Replies:
    """Performs the batch; each op stands or fails alone."""
    ops = [op_of(each) for each in call.body.ops]
    for op in ops:
        _check(call, op)
    check_ops(ops)
    if call.service.stopping.is_set() and any(isinstance(op, GRANTING) for op in ops):
        raise Problem(STOPPING)
    wanted = sum(isinstance(op, Acquire | Take) for op in ops)
    with call.service.holds.asking(call.principal.name, wanted) if wanted else nullcontext():
        for op in ops:
            if isinstance(op, Clear) and _needed(op) is Scope.ADMIN:
                await call.service.audit.record(call.principal.name, "ops.clear", op.key, op.reason)
        replies = await call.service.store.perform(ops) if ops else []
        for op, reply in zip(ops, replies, strict=True):
            _count(call, op, reply)
    return Replies([reply_of(reply, _told(reply)) for reply in replies])


def _needed(op: Op) -> Scope:
    """The scope that the op needs: to undo what others hold or finished is an admin's, but for marks, which are
    forgotten by whoever may make them."""
    if isinstance(op, Read):
        return Scope.READ
    forgets = isinstance(op, Clear) and op.key.startswith("mark/") and not owner_of_op(op)
    return Scope.ADMIN if isinstance(op, Clear) and not forgets else Scope.WRITE


def _check(call: Call[Batch, None], op: Op) -> None:
    """A Problem, or InvalidInput, if the caller may not have this op performed."""
    name, needed = type(op).__name__.lower(), _needed(op)
    if call.principal.scope < needed:
        raise Problem(SCOPE, f"the op {name} needs the scope {needed.name.lower()}")
    clearing(op)
    if not isinstance(op, Push | Take | Ack | Return | Read | Clear) and kind_of(op.key) in OF_THE_SERVICE:
        raise InvalidInput(f"{op.key!r:.80} is written by the service, and by nobody else")
    for field, lasts in _lasting(op):
        if lasts > (most := call.service.settings.max_ttl):
            text = f"{field}={lasts:g} is over the {most:g} seconds that this service allows (max_ttl)"
            raise InvalidInput(f"the op {name} of {op[0]!r:.80}: {text}")
    if isinstance(op, Hit) and op.limit > call.service.store.max_limit:
        raise InvalidInput(f"limit={op.limit} is more than this store keeps exactly ({call.service.store.max_limit})")


def _lasting(op: Op) -> list[tuple[str, float]]:
    """What of the op keeps others out, and for how long: a lease, or a key that stays closed. What is remembered, as
    marks and results are, may last longer."""
    found: list[tuple[str, float]] = []
    if isinstance(op, Acquire | Renew | Take):
        found.append(("ttl", op.ttl))
    if isinstance(op, Acquire | Release | Push | Return):
        found.append(("delay", op.delay))
    if isinstance(op, Finish) and kind_of(op.key) not in REMEMBERED:
        found.append(("keep", op.keep))
    return found


def _count(call: Call[Batch, None], op: Op, reply: Reply | StoreError) -> None:
    """Keeps count of what the caller holds, or keeps closed; what was not answered counts as before."""
    holds, who = call.service.holds, call.principal.name
    if isinstance(op, Take):
        if isinstance(reply, Item):
            holds.add(who, f"{op.owner} {item_key(op.queue, reply.id)}", reply.left)
    elif isinstance(op, Ack | Return):
        if reply is True:
            holds.close(who, f"{op.owner} {item_key(op.queue, op.id)}", op.delay if isinstance(op, Return) else 0.0)
    elif isinstance(op, Acquire | Renew):
        if isinstance(reply, Entry) and reply.owner == op.owner and reply.state is HELD:
            holds.add(who, f"{op.owner} {op.key}", reply.left, op.delay if isinstance(op, Acquire) else 0.0)
    elif isinstance(op, Release):
        if isinstance(reply, Released) and reply not in _CLOSED_BEFORE:
            holds.close(who, f"{op.owner} {op.key}", op.delay if reply is RELEASED else 0.0)
    elif isinstance(op, Finish) and isinstance(reply, Entry):
        closes = reply.owner == op.owner and kind_of(op.key) not in REMEMBERED
        holds.close(who, f"{op.owner} {op.key}", op.keep if closes else 0.0)


def _told(reply: Reply | StoreError) -> str:
    return problem_of(reply).document.detail if isinstance(reply, StoreError) else ""


# -- hints


async def hints(call: Call[None, None]) -> EventStream:
    """The first event tells the caller's name: what is acquired with that as `client` is hinted in the next ones."""
    keys: asyncio.Queue[str] = asyncio.Queue(UNREAD)
    loop = asyncio.get_running_loop()
    store = call.service.another_store()

    def tell(key: str) -> None:
        loop.call_soon_threadsafe(_put, keys, key)

    store.listen(tell)
    try:
        await _listening(store)
        return EventStream(call, _hints(store, keys))
    except BaseException:
        await store.close()
        raise


def _put(keys: asyncio.Queue[str], key: str) -> None:
    with suppress(asyncio.QueueFull):
        keys.put_nowait(key)


async def _listening(store: AsyncStore) -> None:
    """Returns when the store is ready to hint: it makes itself so when its client first waits for something."""
    key, owner = f"hint/{store.client}", fresh_owner()
    replies = await store.perform([Acquire(key, owner, 1.0, client=store.client), Release(key, owner)])
    for reply in replies:
        if isinstance(reply, StoreError):
            raise reply


async def _hints(store: AsyncStore, keys: asyncio.Queue[str]) -> AsyncGenerator[bytes, None]:
    try:
        yield message("client", store.client)
        while True:
            yield message("hint", await keys.get())
    finally:
        await store.close()


# -- pages of entries, as a store lists them


class EntriesQuery(Body):
    """Which entries: those whose stored key begins with `prefix` and comes after `after`."""

    prefix: StoredKey = ""
    after: StoredKey = ""
    limit: PageSize = 100
    values: bool = False


MOST_VALUES = 100  # entries at once with their values: 25 MiB at the worst


async def entries(call: Call[None, EntriesQuery]) -> Page:
    """A page of entries in key order."""
    asked = call.query
    limit = min(asked.limit, MOST_VALUES) if asked.values else asked.limit
    found = await call.service.store.scan(asked.prefix, asked.after, limit)
    if not asked.values:
        found = [entry._replace(value=None) for entry in found]
    return Page([wire_entry(entry) for entry in found], found[-1].key if len(found) == limit else None)


ROUTES = [
    Route(
        "POST",
        "/v1/ops",
        READ,
        perform,
        "Perform ops as the store does. To read needs the scope read, to clear what is no mark admin, all else write",
        refusals=(RESERVED_NAME, TOO_MANY, STOPPING),
        cap=CAP,
        again="Safe: every op is idempotent by its owner, for a minute.",
    ),
    Route(
        "GET",
        "/v1/ops/hints",
        WRITE,
        hints,
        "Follow, as server-sent events, which keys that this client waits for may be free now",
        media="text/event-stream",
        refusals=(TOO_MANY,),
    ),
    Route("GET", "/v1/entries", READ, entries, "List entries of any kind in the order of their stored keys"),
]
