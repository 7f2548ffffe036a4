"""Locks over HTTP: the service acquires a lease and returns a token, with which any process renews and releases it.

The service does not renew it: if the holder dies, the lease expires after its ttl.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import InvalidInput, LeaseLost
from ...leases.lease import AsyncLease
from ...leases.token import read_token
from ...locks.handle import AsyncLeaseSet
from ...model import State
from ..problems import BUSY, LOST, TOO_MANY
from ..routes import (
    KIB,
    READ,
    WRITE,
    Answer,
    Body,
    Call,
    Key,
    PrefixQuery,
    Purpose,
    Route,
    Token,
    Ttl,
    Wait,
    timestamp,
)

AT_ONCE = 128  # keys in one request: as many ops as a store takes in one batch
CAP = AT_ONCE * 4 * KIB  # bytes: that many of the longest keys and tokens, however they are escaped
T = TypeVar("T")
SomeKeys = Annotated[list[Key], msgspec.Meta(min_length=1, max_length=AT_ONCE)]
SomeTokens = Annotated[list[Token], msgspec.Meta(min_length=1, max_length=AT_ONCE)]


class AcquireBody(Body):
    """Give `key`, or `keys` to acquire all or none."""

    EITHER = ("key", "keys")
    key: Key | UnsetType = UNSET
    keys: SomeKeys | UnsetType = UNSET
    ttl: Ttl = 30.0
    wait: Wait = 0.0
    purpose: Purpose = ""


class RenewBody(Body):
    """Give `token` or `tokens`; without `ttl`, the ttl of each lease is used again."""

    EITHER = ("token", "tokens")
    token: Token | UnsetType = UNSET
    tokens: SomeTokens | UnsetType = UNSET
    ttl: Ttl | None = None


class ResumeBody(Body):
    """The token that its holder handed over. It is void from then on."""

    token: Token


class ReleaseBody(Body):
    """Give `token` or `tokens`."""

    EITHER = ("token", "tokens")
    token: Token | UnsetType = UNSET
    tokens: SomeTokens | UnsetType = UNSET


class HeldLock(Answer):
    """A lease: count `left` seconds from before the request was sent. The fence grows with every holder of the key."""

    key: str
    fence: int
    left: float
    token: str


class HeldLocks(Answer):
    """The leases, in the order of the keys given."""

    leases: list[HeldLock]


class RenewedLock(Answer):
    """Count `left` seconds from before the request was sent; with several tokens, 0 means that this lease is lost."""

    left: float


class RenewedLocks(Answer):
    """In the order of the tokens given."""

    leases: list[RenewedLock]


class ReleasedLock(Answer):
    """released; expired or cleared if it had ended before; resumed if another holder took it over; lost if the store
    no longer had it (it was flushed, or restarted without its data); unknown if it ended too long ago."""

    outcome: str


class ListedLock(Answer):
    """A lock that is held, or closed (not held, but not free either), for `left` more seconds. `since` is in seconds
    since 1970; `waiters` are processes that wait for it."""

    key: str
    state: State
    holder: str
    purpose: str
    since: float | None
    left: float
    fence: int
    waiters: int


class ListedLocks(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    locks: list[ListedLock]
    next: str | None


class ReleasedLocks(Answer):
    """In the order of the tokens given."""

    leases: list[ReleasedLock]


def _one_or_many(name: str, one: T | UnsetType, many: list[T] | UnsetType) -> tuple[list[T], bool]:
    """The values given as `name` or `name`s, and whether it was one; InvalidInput unless exactly one was given."""
    if isinstance(one, UnsetType):
        if isinstance(many, UnsetType):
            raise InvalidInput(f"give {name} or {name}s")
        return many, False
    if not isinstance(many, UnsetType):
        raise InvalidInput(f"give either {name} or {name}s, not both")
    return [one], True


async def acquire(call: Call[AcquireBody, None]) -> HeldLock | HeldLocks:
    """Acquires a key within `wait`, or several: all or none."""
    wanted, service = call.body, call.service
    ttl, wait, purpose = service.ttl(wanted.ttl), service.wait(wanted.wait), wanted.purpose
    keys, lone = _one_or_many("key", wanted.key, wanted.keys)
    service.holds.check(call.principal.name, len(keys))

    async def acquire_one() -> AsyncLease:
        return await service.once.lock(keys[0], ttl=ttl, wait=wait, purpose=purpose, renew=False, on_lost="flag")

    async def acquire_all() -> AsyncLeaseSet:
        return await service.once.lock_all(keys, ttl=ttl, wait=wait, purpose=purpose, renew=False, on_lost="flag")

    if lone:
        lease = await (call.waiting(acquire_one(), AsyncLease.release, _stored(keys)) if wait else acquire_one())
        return _held(call, lease, ttl)
    leases = await (call.waiting(acquire_all(), AsyncLeaseSet.release, _stored(keys)) if wait else acquire_all())
    return HeldLocks(leases=[_held(call, lease, ttl) for lease in leases])


def _stored(keys: list[str]) -> list[str]:
    return [f"lock/{key}" for key in keys]


def _held(call: Call[AcquireBody, None], lease: AsyncLease, ttl: float) -> HeldLock:
    held = _handed_over(lease)
    call.service.holds.add(call.principal.name, held.token, ttl)
    return held


def _handed_over(lease: AsyncLease) -> HeldLock:
    return HeldLock(key=lease.key, left=lease.remaining(), fence=lease.fence, token=lease.hand_over())


async def resume(call: Call[ResumeBody, None]) -> HeldLock:
    """Takes over the lease of a token, under a new fence and token; a second resume of it is refused."""
    service, token, who = call.service, call.body.token, call.principal.name
    ttl = service.ttl(read_token(token).ttl)
    with service.holds.requesting(who, service.holds.wanted_to_resume(who, token)):
        held = _handed_over(await service.once.resume(token, renew=False, on_lost="flag"))
    service.holds.pass_on(token, who, held.token, ttl)
    return held


async def renew(call: Call[RenewBody, None]) -> RenewedLock | RenewedLocks:
    """Extends leases by their tokens. Of several, a lost one does not stop the others."""
    wanted, service = call.body, call.service

    async def extended(token: str) -> RenewedLock:
        ttl = service.ttl(read_token(token).ttl if wanted.ttl is None else wanted.ttl)
        left = await service.once.renew(token, ttl=ttl)
        service.holds.add(call.principal.name, token, left)
        return RenewedLock(left=left)

    async def extended_or_lost(token: str) -> RenewedLock:
        try:
            return await extended(token)
        except LeaseLost:
            return RenewedLock(left=0.0)

    tokens, lone = _one_or_many("token", wanted.token, wanted.tokens)
    if lone:
        return await extended(tokens[0])
    return RenewedLocks(leases=await asyncio.gather(*map(extended_or_lost, tokens)))


async def release(call: Call[ReleaseBody, None]) -> ReleasedLock | ReleasedLocks:
    """Releases leases by their tokens."""
    wanted, service = call.body, call.service

    async def release_one(token: str) -> ReleasedLock:
        outcome = await service.once.release(token)
        service.holds.remove(call.principal.name, token)
        return ReleasedLock(outcome=outcome)

    tokens, lone = _one_or_many("token", wanted.token, wanted.tokens)
    if lone:
        return await release_one(tokens[0])
    return ReleasedLocks(leases=await asyncio.gather(*map(release_one, tokens)))


async def list_locks(call: Call[None, PrefixQuery]) -> ListedLocks:
    """Lists the locks that are held or closed, in key order."""
    query = call.query
    found = await call.service.once.locks(query.prefix, after=query.after, limit=query.limit)
    rows = [ListedLock(**info._asdict() | {"since": timestamp(info.since)}) for info in found]
    return ListedLocks(locks=rows, next=query.following(found))


ROUTES = [
    Route("GET", "/v1/locks", READ, list_locks),
    Route(
        "POST",
        "/v1/locks/acquire",
        WRITE,
        acquire,
        cap=CAP,
        refusals=(BUSY, TOO_MANY),
        grants=True,
        again="Requests another lease: if the first was granted, the repeat is refused until that lease ends. Where a "
        "response can be lost, use this service as a store (POST /v1/ops): its ops can be repeated.",
    ),
    Route(
        "POST",
        "/v1/locks/resume",
        WRITE,
        resume,
        cap=CAP,
        refusals=(BUSY, TOO_MANY),
        grants=True,
        again="Refused: a token is resumed once. If the first response was lost, the lease ends after its ttl.",
    ),
    Route(
        "POST", "/v1/locks/renew", WRITE, renew, cap=CAP, refusals=(LOST,), again="Safe: extends again, never shortens."
    ),
    Route(
        "POST",
        "/v1/locks/release",
        WRITE,
        release,
        cap=CAP,
        again="Safe: the same response as the first time, for a minute.",
    ),
]
