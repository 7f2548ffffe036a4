"""Entries as people look at them: what is known under a name, and why a call for it would be refused; and removal by an
admin, of what that admin saw. The list is in ops.py, since a store lists in the same way."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...errors import StoreError
from ...explanations.flow import Explanation, Side
from ...model import State
from ...ops import Clear
from ...stores.http.wire import MAX_STORED_KEY
from ..problems import RESERVED_NAME
from ..reserved import clearing
from ..routes import ADMIN, READ, Answer, Body, Call, Key, Reason, Route
from .times import lasting, moment

StoredKey = Annotated[str, msgspec.Meta(min_length=3, max_length=MAX_STORED_KEY, description="kind/name")]
Fence = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1, description="of the entry as it was seen")]


class ExplainQuery(Body):
    """The name, without a kind."""

    key: Key


class ExplainedSide(Answer):
    """One kind of entry under the name. `left` is null for what stays for ever; `why` is empty if a call is granted."""

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


class Explained(Answer):
    """All sides of the name; `text` says it to a person."""

    key: str
    sides: list[ExplainedSide]
    text: str


class ClearEntry(Body):
    """The stored key and the fence as they were listed: if another has taken the key since, nothing is removed."""

    key: StoredKey
    fence: Fence
    reason: Reason


class ClearedEntry(Answer):
    """False if it had moved on: look again."""

    cleared: bool


async def explain(call: Call[None, ExplainQuery]) -> Explained:
    """What is known under the name."""
    return explained(await call.service.once.explain(call.query.key))


def explained(told: Explanation) -> Explained:
    """What the library tells, as it is sent."""
    return Explained(key=told.key, sides=[_side(side) for side in told.sides], text=str(told))


def _side(side: Side) -> ExplainedSide:
    return ExplainedSide(
        kind=side.kind,
        state=side.state,
        holder=side.holder,
        since=moment(side.since),
        left=lasting(side.left),
        fence=side.fence,
        attempts=side.attempts,
        refused=side.refused,
        waiters=side.waiters,
        size=side.size,
        value=side.value,
        why=side.why,
    )


async def clear(call: Call[ClearEntry, None]) -> ClearedEntry:
    """Removes the entry: who waits for it is woken, its holder learns of it at the next renewal."""
    wanted = call.body
    op = Clear(wanted.key, wanted.fence, wanted.reason)
    clearing(op)
    (reply,) = await call.service.store.perform([op])
    if isinstance(reply, StoreError):
        raise reply
    return ClearedEntry(cleared=reply is True)


ROUTES = [
    Route(
        "GET",
        "/v1/entries/explain",
        READ,
        explain,
        "Tell all that is known under a name, and why a call for it would be refused",
    ),
    Route(
        "POST",
        "/v1/entries/clear",
        ADMIN,
        clear,
        "Remove an entry as it was seen, whoever holds it",
        refusals=(RESERVED_NAME,),
        again="Safe: removes only what carried this fence.",
    ),
]
