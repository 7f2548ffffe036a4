"""Locks over HTTP: the service takes a lease and hands it over as a token, with which any process renews and releases.

Nobody renews it for the caller: one that dies lets go when its ttl is over.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import LeaseLost
from ...leases.lease import AsyncLease
from ...leases.token import read_token
from ...locks.handle import AsyncLeaseSet
from ..problems import BUSY, LOST, TOO_MANY
from ..routes import KIB, WRITE, Answer, Body, Call, Key, Purpose, Route, Token, Ttl, Wait, one_or_many

AT_ONCE = 128  # keys in one request: as many ops as a store takes in one batch
CAP = AT_ONCE * 4 * KIB  # bytes: so many of the longest keys and tokens, however they are escaped
SomeKeys = Annotated[list[Key], msgspec.Meta(min_length=1, max_length=AT_ONCE)]
SomeTokens = Annotated[list[Token], msgspec.Meta(min_length=1, max_length=AT_ONCE)]


class Acquire(Body):
    """Give `key`, or `keys` to have all or none."""

    EITHER = ("key", "keys")
    key: Key | UnsetType = UNSET
    keys: SomeKeys | UnsetType = UNSET
    ttl: Ttl = 30.0
    wait: Wait = 0.0
    purpose: Purpose = ""


class Renew(Body):
    """Give `token` or `tokens`; without a ttl, the one that each was taken with."""

    EITHER = ("token", "tokens")
    token: Token | UnsetType = UNSET
    tokens: SomeTokens | UnsetType = UNSET
    ttl: Ttl | None = None


class Release(Body):
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
    """Count `left` seconds from before the request was sent; 0 if it is lost (only told so among many)."""

    left: float


class RenewedLocks(Answer):
    """In the order of the tokens given."""

    leases: list[RenewedLock]


class ReleasedLock(Answer):
    """released; expired or cleared if it had ended before; lost if the store no longer had it (it was flushed, or
    restarted without its data); unknown if that was too long ago to tell."""

    outcome: str


class ReleasedLocks(Answer):
    """In the order of the tokens given."""

    leases: list[ReleasedLock]


async def acquire(call: Call[Acquire, None]) -> HeldLock | HeldLocks:
    """Takes the key, or all keys, within `wait`."""
    wanted, service = call.body, call.service
    ttl, wait, purpose = service.ttl(wanted.ttl), service.wait(wanted.wait), call.purpose(wanted.purpose)
    keys, lone = one_or_many("key", wanted.key, wanted.keys)
    service.holds.check(call.principal.name, len(keys))

    async def take() -> AsyncLease:
        return await service.once.lock(keys[0], ttl=ttl, wait=wait, purpose=purpose, renew=False, on_lost="flag")

    async def take_all() -> AsyncLeaseSet:
        return await service.once.lock_all(keys, ttl=ttl, wait=wait, purpose=purpose, renew=False, on_lost="flag")

    if lone:
        return _handed_over(call, await (call.waiting(take(), AsyncLease.release) if wait else take()), ttl)
    leases = await (call.waiting(take_all(), AsyncLeaseSet.release) if wait else take_all())
    return HeldLocks(leases=[_handed_over(call, lease, ttl) for lease in leases])


def _handed_over(call: Call[Acquire, None], lease: AsyncLease, ttl: float) -> HeldLock:
    left = lease.remaining()
    token = lease.hand_over()
    call.service.holds.add(call.principal.name, token, ttl)
    return HeldLock(key=lease.key, fence=lease.fence, left=left, token=token)


async def renew(call: Call[Renew, None]) -> RenewedLock | RenewedLocks:
    """Extends one lease, or each of many: then a lost one does not stop the others."""
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

    tokens, lone = one_or_many("token", wanted.token, wanted.tokens)
    if lone:
        return await extended(tokens[0])
    return RenewedLocks(leases=await asyncio.gather(*map(extended_or_lost, tokens)))


async def release(call: Call[Release, None]) -> ReleasedLock | ReleasedLocks:
    """Lets go of one lease, or of each of many."""
    wanted, service = call.body, call.service

    async def let_go(token: str) -> ReleasedLock:
        outcome = await service.once.release(token)
        service.holds.remove(call.principal.name, token)
        return ReleasedLock(outcome=outcome)

    tokens, lone = one_or_many("token", wanted.token, wanted.tokens)
    if lone:
        return await let_go(tokens[0])
    return ReleasedLocks(leases=await asyncio.gather(*map(let_go, tokens)))


ROUTES = [
    Route(
        "POST",
        "/v1/locks/acquire",
        WRITE,
        acquire,
        "Take a key, or several: all or none",
        cap=CAP,
        refusals=(BUSY, TOO_MANY),
        grants=True,
        again="Asks for another lease: if the first was granted, the repeat is refused until that ends. Where an "
        "answer can be lost, use this service as a store (POST /v1/ops): its ops can be repeated.",
    ),
    Route(
        "POST",
        "/v1/locks/renew",
        WRITE,
        renew,
        "Extend leases by their tokens",
        cap=CAP,
        refusals=(LOST,),
        again="Safe: extends again, never shortens.",
    ),
    Route(
        "POST",
        "/v1/locks/release",
        WRITE,
        release,
        "Let go of leases by their tokens",
        cap=CAP,
        again="Safe: answered as the first time, for a minute.",
    ),
]
