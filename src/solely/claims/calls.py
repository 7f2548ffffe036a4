"""Calls of claims, the same for threads and asyncio: checked arguments, cache, outage rule and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from .. import events
from ..errors import InvalidInput, Mismatch, NotKept, WorkFailed
from ..flow import Flow
from ..leases import flow as leases
from ..leases.context import Context
from ..leases.hold import Hold, Unguarded, longest_hold
from ..leases.token import Token, read_token
from ..model import Entry, State
from ..rules import Seconds, local_clock, stored_key, ttl_seconds
from ..values import encode, is_expected
from .claim import ClaimBase, ClaimOptions
from .fingerprint import Fingerprint, fingerprint
from .flights import Done, Flights
from .flow import Result, claim, claim_many, refuse_other
from .policy import ALWAYS_RELEASE, Policy
from .publish import reset

C = TypeVar("C", bound=ClaimBase)
R = TypeVar("R")
Make = Callable[[str, Result, float, ClaimOptions], C]  # the handle of an answered claim


def claim_options(
    context: Context,
    ttl: Seconds,
    wait: Seconds,
    keep: Seconds,
    policy: Policy | None,
    purpose: str,
    renew: bool,
    max_hold: Seconds | None = None,
) -> ClaimOptions:
    """The checked arguments of a claim; raises InvalidInput before anything is sent."""
    if policy is not None and not isinstance(policy, Policy):
        raise InvalidInput(f"a policy must be a solely.Policy, not {type(policy).__name__}")
    if purpose:
        context.signature.info(purpose)  # raises InvalidInput if it is not a str
    terms, most = context.terms(ttl, wait, 0.0), longest_hold(max_hold)
    return ClaimOptions(terms, ttl_seconds(keep, "keep"), policy or ALWAYS_RELEASE, purpose, renew, most)


def digest_of(payload: Any, key: str) -> str:
    """The fingerprint in its stored form; "" if there is none."""
    if payload is None:
        return ""
    return (payload if isinstance(payload, Fingerprint) else fingerprint(payload)).of(key)


def recalled(flights: Flights, key: str, digest: str, options: ClaimOptions, make: Make[C]) -> C | None:
    """The finished claim from the cache, or None; raises Mismatch if it was for another payload."""
    context, done = flights.context, flights.known(key)
    if done is None:
        return None
    try:
        refuse_other(key, digest, done.fingerprint)
    except Mismatch as refusal:
        _mismatched(context, refusal)
        raise
    if context.hook is not None:
        context.hook(events.Replayed(key, 0.0, cached=True))
    return make(key, done, 0.0, options)


def claiming(flights: Flights, key: str, digest: str, options: ClaimOptions, make: Make[C]) -> Flow[C]:
    """The claim: won (and renewed from now on), finished, or timed out; raises Mismatch if it has another payload."""
    flow = _claiming(flights, key, digest, options, make)
    return flights.context.or_proceed(key, "claim", flow, lambda: _unguarded(key, options, make))


def _claiming(flights: Flights, key: str, digest: str, options: ClaimOptions, make: Make[C]) -> Flow[C]:
    context = flights.context
    try:
        info, keep = context.signature.signer(options.purpose), partial(_keep, context, options)
        result, waited = yield from claim(key, options.terms, flights, digest, info, keep)
    except Mismatch as refusal:
        _mismatched(context, refusal)
        raise
    if context.hook is not None:
        context.hook(_event(key, result, waited))
    return make(key, result, waited, options)


def claiming_many(
    context: Context, keys: Sequence[str], payloads: Sequence[Any] | None, options: ClaimOptions, make: Make[C]
) -> Flow[list[C]]:
    """The claims in the order of the keys; raises InvalidInput at once if there is not one payload per key."""
    if payloads is not None and len(payloads) != len(keys):
        raise InvalidInput(f"{len(payloads)} fingerprints were given for {len(keys)} keys; give one per key, or none")
    if not keys:
        return _claiming_many(context, keys, [], options, make)
    digests = [""] * len(keys) if payloads is None else [digest_of(*one) for one in zip(payloads, keys, strict=True)]
    flow = _claiming_many(context, keys, digests, options, make)
    return context.or_proceed(keys[0], "claim_many", flow, lambda: [_unguarded(key, options, make) for key in keys])


def _claiming_many(
    context: Context, keys: Sequence[str], digests: Sequence[str], options: ClaimOptions, make: Make[C]
) -> Flow[list[C]]:
    try:
        results = yield from claim_many(keys, options.terms.ttl, digests, context.signature.info(options.purpose))
    except Mismatch as refusal:
        _mismatched(context, refusal)
        raise
    claims = list(zip(keys, results, strict=True))
    for key, result in claims:
        if isinstance(result, Hold):
            _keep(context, options, result)
        if context.hook is not None:
            context.hook(_event(key, result, 0.0))
    return [make(key, result, 0.0, options) for key, result in claims]


def _keep(context: Context, options: ClaimOptions, hold: Hold) -> None:
    hold.keep(options.renew, options.max_hold)
    context.keep(hold)


def _event(key: str, result: Result, waited: float) -> events.Event:
    if isinstance(result, Hold):
        return events.Claimed(key, result.fence, result.attempts, waited, result.ttl)
    return events.Replayed(key, waited) if isinstance(result, Done) else events.TimedOut(key, waited)


def _mismatched(context: Context, refusal: Mismatch) -> None:
    if context.hook is not None:
        context.hook(events.Mismatched(stored_key("claim", refusal.key)))


def _unguarded(key: str, options: ClaimOptions, make: Make[C]) -> C:
    hold = Unguarded(key, options.terms.ttl, local_clock())
    hold.attempts = 1
    return make(key, hold, 0.0, options)


def claim_token(text: str) -> Token:
    """The token; raises InvalidInput if it is not that of a claim."""
    token = read_token(text)
    if not token.key.startswith("claim/"):
        raise InvalidInput("this is not the token of a claim; give what the claim's hand_over() returned")
    return token


def resuming(context: Context, token: Token, options: ClaimOptions, make: Make[C]) -> Flow[C]:
    """The claim of the token, won, and taken over under a new fence; raises Busy if the owner in the token no longer
    holds it."""
    hold, entry = yield from leases.resume(token, context.signature.taking_over)
    if hold is None:
        raise leases.not_resumed(entry)
    _keep(context, options, hold)
    if context.hook is not None:
        context.hook(events.Resumed(hold.key, hold.fence, token.fence, hold.ttl))
    return make(token.key, hold, 0.0, options)


def of_token(token: Token, options: ClaimOptions, make: Make[C]) -> C:
    """The claim of the token, assuming that the owner in it still holds it; it is not renewed."""
    entry = Entry(token.key, State.HELD, token.fence, token.ttl, fingerprint=token.fingerprint)
    hold = Hold(token.key, token.owner, token.ttl, entry, local_clock(), True, local_clock)
    return make(token.key, hold, 0.0, options)


def resetting(flights: Flights, key: str, expected: Any) -> Flow[bool]:
    """Removes the expected outcome; False if there is another. Raises InvalidInput at once if it is invalid."""
    if not isinstance(expected, NotKept | WorkFailed):
        encode(expected)
    flights.forget(key)
    return reset(key, lambda kept: is_expected(kept, expected, key))
