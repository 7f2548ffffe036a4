"""Calls of limits, the same for threads and asyncio: the hit, with the outage rule and events."""

from __future__ import annotations

from .. import events
from ..flow import NOW, Flow
from ..leases.context import Context
from ..model import Allowance
from . import flow as flows

NOTED = 1.0  # seconds between two notes that one limit refuses calls: people see it soon, and refusals stay cheap
MOST_NOTED = 10_000  # limits whose last note is remembered: about 1 MB

UNGUARDED = "", Allowance(True, 0)  # the result of a client that proceeds without its store


def hitting(context: Context, key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """The owner of the hit and its allowance, reported to the hook."""
    flow = flows.hit(key, limit, per)
    owner, allowance = yield from context.or_proceed(key, "limit", flow, lambda: UNGUARDED)
    if context.hook is not None:
        context.hook(events.Limited(key, allowance.allowed))
    if not allowance.allowed:
        yield from _noting(context, key, flows.note_refusal(key, owner, limit, per, allowance))
    return owner, allowance


def _noting(context: Context, key: str, note: Flow[None]) -> Flow[None]:
    """Performs the note, unless this client noted the same a moment ago."""
    now: float = yield NOW
    if now >= context.noted.get(key, 0.0):
        if len(context.noted) >= MOST_NOTED:
            context.noted.clear()
        context.noted[key] = now + NOTED
        yield from note
