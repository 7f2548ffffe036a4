"""Calls of limits, the same for threads and asyncio: the hit, with the outage rule and events."""

from __future__ import annotations

from .. import events
from ..flow import Flow
from ..leases.context import Context
from ..model import Allowance
from . import flow as flows

UNGUARDED = "", Allowance(True, 0)  # the result of a client that proceeds without its store


def hitting(context: Context, key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """The owner of the hit and its allowance, reported to the hook."""
    flow = flows.hit(key, limit, per)
    owner, allowance = yield from context.or_proceed(key, "limit", flow, lambda: UNGUARDED)
    if context.hook is not None:
        context.hook(events.Limited(key, allowance.allowed))
    return owner, allowance
