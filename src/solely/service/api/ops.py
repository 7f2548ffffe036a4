"""Ops over HTTP: performs a batch as the store does, so that a service can be used as a store (`http://…`) from any
language; and hints, which notify waiting clients of keys that may be free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Annotated

import msgspec

from ...audit import DONE, FAILED, NOTHING
from ...errors import InvalidInput, StoreError
from ...kinds import OF_THE_SERVICE, check_ops, kind_of
from ...model import HELD, RELEASED, Entry, LeasedItem, Released, item_key
from ...names import owner_of_op
from ...ops import (
    READS,
    Ack,
    Acquire,
    Clear,
    Finish,
    Hit,
    Op,
    Push,
    QueueOp,
    Read,
    Release,
    Renew,
    Reply,
    Resume,
    Return,
    Take,
)
from ...owner import fresh_owner
from ...rules import duration_text, number_text
from ...stores import AsyncStore
from ...stores.http.codec import (
    GRANTING,
    MAX_STORED_KEY,
    Batch,
    Replies,
    WireEntries,
    WireEntry,
    op_of,
    reply_of,
    wire_entry,
)
from ..history.ops import note_op
from ..parts import ListPart, in_parts
from ..problems import RESERVED_NAME, SCOPE, STOPPING, TOO_MANY, Problem, problem_of
from ..reserved_names import clearing
from ..routes import KIB, READ, WRITE, Body, Call, PageSize, Route
from ..security import Scope
from ..streams import EventStream, message

CAP = 1024 * KIB  # bytes: 256 KiB of values in base64, and as much again for keys and the rest
UNREAD = 1000  # hints that a slow reader may be behind: what it misses it finds by polling
_CLOSED_BEFORE = frozenset((Released.EXPIRED, Released.ABSENT))  # an earlier op has set how long the key stays closed
REMEMBERED = frozenset(("claim", "reservation", "sent"))  # kinds whose results may be kept longer than max_ttl

StoredPrefix = Annotated[str, msgspec.Meta(max_length=MAX_STORED_KEY, description="kind/name, or a prefix of it")]


async def perform(call: Call[Batch, None]) -> Replies:
    """Performs ops as the store does; each succeeds or fails alone. Read and Count need the scope read, Clear of
    anything but marks admin, all else write."""
    ops = [op_of(each) for each in call.body.ops]
    for op in ops:
        _check(call, op)
    check_ops(ops)
    if call.service.stopping.is_set() and any(isinstance(op, GRANTING) for op in ops):
        raise Problem(STOPPING)
    wanted = sum(_leases_wanted(call, op) for op in ops)
    with call.service.holds.requesting(call.principal.name, wanted) if wanted else nullcontext():
        acts = [op for op in ops if isinstance(op, Clear) and _needed(op) is Scope.ADMIN]
        replies = await (_audited(call, ops, acts) if acts else call.service.store.perform(ops)) if ops else []
        for op, reply in zip(ops, replies, strict=True):
            _count(call, op, reply)
            note_op(call.service.history, op, reply)
    return Replies([reply_of(reply, _detail(reply)) for reply in replies])


async def _audited(call: Call[Batch, None], ops: list[Op], acts: list[Clear]) -> list[Reply | StoreError]:
    """The store's replies. The audit log has the acts before they are performed, and then what became of each."""
    audit, who = call.service.audit, call.principal.name
    records = {op: await audit.record(who, "ops.clear", op.key, op.reason) for op in dict.fromkeys(acts)}
    replies = await call.service.store.perform(ops)
    for op, reply in zip(ops, replies, strict=True):
        if isinstance(op, Clear) and op in records:
            await audit.complete(records.pop(op), _outcome(reply))
    return replies


def _outcome(reply: Reply | StoreError) -> str:
    return f"{FAILED}{_detail(reply)}" if isinstance(reply, StoreError) else DONE if reply is True else NOTHING


def _needed(op: Op) -> Scope:
    """The scope that the op needs. Only an admin may clear what others hold or finished, except for marks, which
    whoever may write them may remove."""
    if type(op) in READS:
        return Scope.READ
    removes_mark = isinstance(op, Clear) and op.key.startswith("mark/") and not owner_of_op(op)
    return Scope.ADMIN if isinstance(op, Clear) and not removes_mark else Scope.WRITE


def _check(call: Call[Batch, None], op: Op) -> None:
    """Raises Problem or InvalidInput if the caller may not perform this op."""
    name, needed = type(op).__name__.lower(), _needed(op)
    if call.principal.scope < needed:
        raise Problem(SCOPE, f"the op {name} needs the scope {needed.name.lower()}")
    clearing(op)
    if not isinstance(op, QueueOp | Read | Clear) and kind_of(op.key) in OF_THE_SERVICE:
        raise InvalidInput(f"{op.key!r:.80} is written only by the service")
    for field, lasts in _durations(op):
        if lasts > (most := call.service.settings.max_ttl):
            text = f"{field}={number_text(lasts)} is over the {duration_text(most)} that this service allows (max_ttl)"
            raise InvalidInput(f"the op {name} of {op[0]!r:.80}: {text}")
    if isinstance(op, Hit) and op.limit > call.service.store.max_limit:
        raise InvalidInput(f"limit={op.limit} is more than this store counts exactly ({call.service.store.max_limit})")


def _durations(op: Op) -> list[tuple[str, float]]:
    """The fields of the op that say how long others are excluded, by a lease or by a key that stays closed. Marks and
    results may last longer."""
    found: list[tuple[str, float]] = []
    if isinstance(op, Acquire | Renew | Resume | Take):
        found.append(("ttl", op.ttl))
    if isinstance(op, Acquire | Release | Push | Return):
        found.append(("delay", op.delay))
    if isinstance(op, Finish) and kind_of(op.key) not in REMEMBERED:
        found.append(("keep", op.keep))
    return found


def _leases_wanted(call: Call[Batch, None], op: Op) -> int:
    """How many leases more the caller has if this op is granted."""
    if isinstance(op, Resume):
        return call.service.holds.wanted_to_resume(call.principal.name, f"{op.owner} {op.key}")
    return int(isinstance(op, Acquire | Take))


def _count(call: Call[Batch, None], op: Op, reply: Reply | StoreError) -> None:
    """Updates the count of what the caller holds or keeps closed; an op without a reply changes nothing."""
    holds, who = call.service.holds, call.principal.name
    if isinstance(op, Take):
        if isinstance(reply, LeasedItem):
            holds.add(who, f"{op.owner} {item_key(op.queue, reply.id)}", reply.left)
    elif isinstance(op, Ack | Return):
        if reply is True:
            holds.close(who, f"{op.owner} {item_key(op.queue, op.id)}", op.delay if isinstance(op, Return) else 0.0)
    elif isinstance(op, Acquire | Renew):
        if isinstance(reply, Entry) and reply.owner == op.owner and reply.state is HELD:
            holds.add(who, f"{op.owner} {op.key}", reply.left, op.delay if isinstance(op, Acquire) else 0.0)
    elif isinstance(op, Resume):
        if isinstance(reply, Entry) and reply.owner == op.successor:
            holds.pass_on(f"{op.owner} {op.key}", who, f"{op.successor} {op.key}", reply.left)
    elif isinstance(op, Release):
        if isinstance(reply, Released) and reply not in _CLOSED_BEFORE:
            holds.close(who, f"{op.owner} {op.key}", op.delay if reply is RELEASED else 0.0)
    elif isinstance(op, Finish) and isinstance(reply, Entry):
        closes = reply.owner == op.owner and kind_of(op.key) not in REMEMBERED
        holds.close(who, f"{op.owner} {op.key}", op.keep if closes else 0.0)


def _detail(reply: Reply | StoreError) -> str:
    return problem_of(reply).document.detail if isinstance(reply, StoreError) else ""


# -- hints


async def hints(call: Call[None, None]) -> EventStream:
    """Sends the client name to acquire with, and then the keys that may be free, as server-sent events."""
    keys: asyncio.Queue[str] = asyncio.Queue(UNREAD)
    loop = asyncio.get_running_loop()
    store = call.service.another_store()

    def hint(key: str) -> None:
        loop.call_soon_threadsafe(_put, keys, key)

    store.listen(hint)
    try:
        await _start_listening(store)
        return EventStream(call, _hints(store, keys))
    except BaseException:
        await store.close()
        raise


def _put(keys: asyncio.Queue[str], key: str) -> None:
    with suppress(asyncio.QueueFull):
        keys.put_nowait(key)


async def _start_listening(store: AsyncStore) -> None:
    """Returns when the store listens, which it starts when its client first acquires something."""
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


# -- entries, as a store lists them


class EntriesQuery(Body):
    """Entries whose stored key begins with `prefix` and comes after `after`."""

    prefix: StoredPrefix = ""
    after: StoredPrefix = ""
    limit: PageSize = 100
    values: bool = False


MOST_VALUES = 100  # entries with values per page
MOST_BYTES = 4 << 20  # of values, after which a page ends: a caller reads that in a moment


async def entries(call: Call[None, EntriesQuery]) -> WireEntries:
    """Lists entries of any kind in the order of their stored keys; fewer than asked for if they are large."""
    query, service = call.query, call.service
    read = partial(_without_values, service.store, query.prefix)
    if query.values:
        page = await _with_values(service.store, query.prefix, query.after, min(query.limit, MOST_VALUES))
    elif "/" in query.prefix:
        page = await in_parts(read, query.after, query.limit, service.settings.store_timeout / 2)
    else:  # of several kinds: some stores look at all keys for that
        page = await read(query.after, query.limit)
    return WireEntries(page.rows, page.last or None)


async def _without_values(store: AsyncStore, prefix: str, after: str, limit: int) -> ListPart[WireEntry]:
    found = await store.scan(prefix, after, limit)
    rows = [wire_entry(entry._replace(value=None)) for entry in found]
    return ListPart(rows, found[-1].key if len(found) == limit else "")


async def _with_values(store: AsyncStore, prefix: str, after: str, limit: int) -> ListPart[WireEntry]:
    found = await store.scan(prefix, after, limit)
    shown, size = list[WireEntry](), 0
    for entry in found:
        size += len(entry.value or b"")
        if shown and size > MOST_BYTES:
            break
        shown.append(wire_entry(entry))
    more = len(found) == limit or len(shown) < len(found)
    return ListPart(shown, shown[-1].key if more else "")


ROUTES = [
    Route(
        "POST",
        "/v1/ops",
        READ,
        perform,
        refusals=(RESERVED_NAME, TOO_MANY, STOPPING),
        cap=CAP,
        again="Safe: every op is idempotent by its owner, for a minute.",
    ),
    Route("GET", "/v1/ops/hints", WRITE, hints, media="text/event-stream", refusals=(TOO_MANY,)),
    Route("GET", "/v1/entries", READ, entries),
]
