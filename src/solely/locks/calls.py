"""Calls of locks, the same for threads and asyncio: flows with checked arguments, outage rule, logs and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time
from typing import Any, Literal, TypeVar

from .. import events
from ..errors import Busy, InvalidInput, LeaseLost
from ..flow import Flow
from ..functions import finished, plain_function
from ..leases import flow as leases
from ..leases.context import Context
from ..leases.flow import LeaseTerms
from ..leases.hold import Hold, Unguarded, why_lost
from ..leases.lease import LeaseBase
from ..leases.token import Token, read_token
from ..logs import get_logger
from ..model import Entry, Released
from ..ops import Renew
from ..rules import REMEMBER, Seconds, local_clock, ttl_seconds
from . import flow as locks

log = get_logger()
L = TypeVar("L", bound=LeaseBase)
OnLost = Literal["flag", "cancel"] | Callable[[], None]


def acquiring(context: Context, key: str, terms: LeaseTerms, lease: Callable[[Hold], L], purpose: str = "") -> Flow[L]:
    """A lease of the key; raises Busy if it is not free in time."""
    flow = leases.acquire(key, terms, lease, info=context.signature.signer(purpose), here=context.keeper.here)
    if context.hook is not None:
        flow = _reporting_refusal(context, flow, key, terms)
    if context.fails_closed:
        return flow
    return context.or_proceed(key, "lock", flow, lambda: lease(Unguarded(key, terms.ttl, local_clock())))


def _reporting_refusal(context: Context, flow: Flow[L], key: str, terms: LeaseTerms) -> Flow[L]:
    try:
        return (yield from flow)
    except Busy as refusal:
        _contended(context, key, terms, refusal)
        raise


def acquiring_all(
    context: Context, keys: Sequence[str], terms: LeaseTerms, lease: Callable[[Hold], L], purpose: str = ""
) -> Flow[list[L]]:
    """Leases of all keys, in the order given; raises Busy, with none held, if not all are free in time."""

    def unguarded() -> list[L]:
        return [lease(Unguarded(key, terms.ttl, local_clock())) for key in dict.fromkeys(keys)]

    flow = _acquiring_all(context, keys, terms, lease, purpose)
    return context.or_proceed(keys[0], "lock_all", flow, unguarded)


def _acquiring_all(
    context: Context, keys: Sequence[str], terms: LeaseTerms, lease: Callable[[Hold], L], purpose: str
) -> Flow[list[L]]:
    try:
        holds = yield from locks.acquire_all(
            keys, terms, info=context.signature.signer(purpose), here=context.keeper.here
        )
    except Busy as refusal:
        _contended(context, keys[0], terms, refusal)
        raise
    by_key = {hold.key: hold for hold in holds}
    return [lease(by_key[key]) for key in dict.fromkeys(keys)]


def _contended(context: Context, key: str, terms: LeaseTerms, refusal: Busy) -> None:
    if context.hook is not None:
        context.hook(events.Contended(key, terms.wait, refusal.holder))


def kept(context: Context, lease: L, before: int = 0) -> L:
    """Starts to renew and watch the lease, and returns it. `before`: the fence of the hold that it takes over."""
    hold = lease._hold
    context.keep(hold)
    if context.hook is not None and hold.owner:
        context.hook(
            events.Resumed(hold.key, hold.fence, before, hold.ttl)
            if before
            else events.Acquired(hold.key, hold.fence, hold.waited, hold.attempts, hold.ttl)
        )
    return lease


def token_to_resume(text: str) -> Token:
    """The token; raises InvalidInput if it is that of an item."""
    token = read_token(text)
    if token.key.startswith("item/"):
        raise InvalidInput("this is the token of an item; give it to the resume() of its queue")
    return token


def resuming(context: Context, token: Token, lease: Callable[[Hold], L]) -> Flow[L]:
    """The lease of the token, taken over under a new fence; raises Busy if the owner in the token no longer holds
    it."""
    hold, entry = yield from leases.resume(token, context.signature.taking_over)
    if hold is None:
        raise leases.not_resumed(entry)
    return lease(hold)


def renewing_token(context: Context, token: Token, ttl: Seconds | None) -> Flow[float]:
    """Extends the lease of the token; returns the seconds left, or raises LeaseLost if the owner no longer holds it."""
    entry: Entry = yield Renew(token.key, token.owner, token.ttl if ttl is None else ttl_seconds(ttl))
    if entry.owner != token.owner:
        how = why_lost(entry.gone or "expired")
        text = f"lease of {entry.name!r} (fence {token.fence}) was lost: {how}; another may hold it now"
        raise LeaseLost(text, key=entry.name)
    if context.hook is not None:
        context.hook(events.Renewed(token.key, token.fence, entry.left))
    return entry.left


def releasing_token(context: Context, token: Token) -> Flow[Released]:
    """Releases the lease of the token; returns whether it was still held."""
    held = max(0.0, time() - token.since)
    outcome = yield from locks.release_token(token.key, token.owner, token.fence, held > token.ttl + REMEMBER)
    if context.hook is not None:
        context.hook(events.ReleasedLease(token.key, token.fence, held, outcome.value))
    return outcome


def clearing(context: Context, key: str, reason: str) -> Flow[bool]:
    """Clears the lock, logs that and reports it to the hook; False if it was not held."""
    entry = yield from locks.clear(key, reason)
    if entry is None:
        return False
    facts = {"key": key, "fence": entry.fence, "reason": reason}
    log.warning("lock_cleared: %(key)r (fence %(fence)d) was taken from its holder: %(reason)s", facts, extra=facts)
    if context.hook is not None:
        context.hook(events.Cleared(key, entry.fence, reason))
    return True


# -- on_lost


def _call(on_lost: Callable[[], None], hold: Hold, caught: type[BaseException]) -> None:
    try:
        finished("on_lost", on_lost())  # type: ignore[func-returns-value]  # of a function whose kind is unknown
    except caught:
        facts = {"key": hold.key}
        log.exception("on_lost_failed: the on_lost callback of %(key)r raised", facts, extra=facts)


def apart(context: Context, callback: Callable[[Hold], None] | None) -> Callable[[Hold], None] | None:
    """The same callback on a thread of its own: the thread that finds a loss also keeps the other leases."""
    return None if callback is None else lambda hold: context.callbacks.run(lambda: callback(hold))


def loss_callback(on_lost: Any, *, cancels: bool) -> Callable[[Hold], None] | None:
    if callable(on_lost):
        plain_function("on_lost", on_lost)
        # sys.exit() in the keeper's thread would end only that thread
        caught = Exception if cancels else BaseException
        return lambda hold: _call(on_lost, hold, caught)
    if on_lost == "flag" or (on_lost == "cancel" and cancels):
        return None
    hint = "; a thread cannot be cancelled: check lease.lost, or give a function" if on_lost == "cancel" else ""
    raise InvalidInput(f"on_lost must be {'cancel, ' if cancels else ''}flag or a function, not {on_lost!r}{hint}")
