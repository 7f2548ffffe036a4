"""Entries for people: everything stored under a name, and why a call for it would be refused; and removal by an admin.
The list is in ops.py, since a store lists in the same way."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from ...events import Cleared
from ...explanations.flow import Explanation, Side
from ...model import State
from ...ops import Clear
from ...stores.http.codec import MAX_STORED_KEY
from ..problems import RESERVED_NAME
from ..reserved_names import clearing
from ..routes import ADMIN, READ, Answer, Body, Call, Key, Reason, Route, finite, timestamp

StoredKey = Annotated[str, msgspec.Meta(min_length=3, max_length=MAX_STORED_KEY, description="kind/name")]
Fence = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1, description="of the entry as it was listed")]


class ExplainQuery(Body):
    """The name, without a kind."""

    key: Key


class ExplainedSide(Answer):
    """One kind of entry under the name. `left` is null if it never expires; `why` is empty if a call would be
    granted."""

    kind: str
    state: State
    holder: str
    since: float | None
    left: float | None
    fence: int
    attempts: int
    refused: int
    waiters: int
    size: int
    value: str
    why: str


class ExplainedKey(Answer):
    """The entries of all kinds under the name; `text` explains them to people."""

    key: str
    sides: list[ExplainedSide]
    text: str


class ClearEntry(Body):
    """The stored key and the fence as they were listed: if somebody else has taken the key since, nothing is
    removed."""

    key: StoredKey
    fence: Fence
    reason: Reason


class ClearedEntry(Answer):
    """False if the entry has changed since it was listed."""

    cleared: bool


async def explain(call: Call[None, ExplainQuery]) -> ExplainedKey:
    """Explains what is stored under a name, and why a call for it would be refused."""
    return explained(await call.service.once.explain(call.query.key))


def explained(found: Explanation) -> ExplainedKey:
    """The library's explanation as a response."""
    return ExplainedKey(key=found.key, sides=[explained_side(side) for side in found.sides], text=str(found))


def explained_side(side: Side) -> ExplainedSide:
    """One side of the explanation as a response."""
    return ExplainedSide(
        kind=side.kind,
        state=side.state,
        holder=side.holder,
        since=timestamp(side.since),
        left=finite(side.left),
        fence=side.fence,
        attempts=side.attempts,
        refused=side.refused,
        waiters=side.waiters,
        size=side.size,
        value=side.value,
        why=side.why,
    )


async def clear(call: Call[ClearEntry, None]) -> ClearedEntry:
    """Removes an entry as it was listed. Waiters are woken; its holder notices at the next renewal."""
    return await clear_entry(call, call.body.key, call.body.fence, call.body.reason)


async def clear_entry(call: Call[Any, Any], key: str, fence: int, reason: str) -> ClearedEntry:
    """Removes the entry of this stored key if it still has this fence."""
    op = Clear(key, fence, reason)
    clearing(op)
    (reply,) = await call.service.perform(op)
    if reply is True:
        call.service.emit(Cleared(key, fence, reason))
    return ClearedEntry(cleared=reply is True)


ROUTES = [
    Route("GET", "/v1/entries/explain", READ, explain),
    Route(
        "POST",
        "/v1/entries/clear",
        ADMIN,
        clear,
        refusals=(RESERVED_NAME,),
        changed="cleared",
        again="Safe: removes only the entry with this fence.",
    ),
]
