"""Calls of limits: the hit, and what is reported of it."""

from __future__ import annotations

from .. import events
from ..flow import Flow
from ..leases.context import Context
from ..model import Allowance
from . import flow as flows

UNGUARDED = "", Allowance(True, 0)  # the answer of a client that goes on without its store


def hitting(context: Context, key: str, limit: int, per: float) -> Flow[tuple[str, Allowance]]:
    """The owner of the hit and the answer, told."""
    flow = flows.hit(key, limit, per)
    owner, allowance = yield from context.or_proceed(key, "limit", flow, lambda: UNGUARDED)
    if context.hook is not None:
        context.hook(events.Limited(key, allowance.allowed))
    return owner, allowance
