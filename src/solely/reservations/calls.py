"""Calls of reservations, the same for threads and asyncio: flows with the outage rule, logs and events."""

from __future__ import annotations

from datetime import UTC, datetime

from .. import events
from ..errors import ReservationMismatch, UnknownReservation
from ..flow import Flow
from ..leases.context import Context
from ..leases.hold import Hold, Unguarded
from ..logs import get_logger
from ..rules import local_clock
from . import flow as flows
from .flow import RESERVED, ReservationTicket, ReserveReply

log = get_logger()


def reserving(
    context: Context, key: str, terms: flows.ReservationTerms, info: str, renew: bool, most: float
) -> Flow[ReserveReply]:
    """Reserves the key; a granted hold is watched and, if `renew`, renewed, for at most `most` seconds."""
    flow = flows.reserve(key, terms, info)
    reply = yield from context.or_proceed(
        key, "reserve", flow, lambda: ReserveReply(Unguarded(key, terms.hold, local_clock()), info=info)
    )
    if reply.hold is not None:
        reply.hold.keep(renew, most)
        context.keep(reply.hold)
    elif reply.reason == RESERVED:
        line = "Suppressed due to active reservation: %s, reservation expires in %.2fs."
        log.debug(line, key.partition("/")[2], reply.retry_after)
    if context.hook is not None:
        event = (
            events.Reserved(key, reply.hold.fence, reply.suppressed, reply.hold.ttl)
            if reply.hold is not None
            else events.Suppressed(key, reply.reason, reply.retry_after)
        )
        context.hook(event)
    return reply


def resuming(context: Context, ticket: ReservationTicket, renew: bool, most: float) -> Flow[ReserveReply]:
    """Takes over the reservation, which is watched from now on and, if `renew`, renewed, for at most `most` seconds."""
    reply = yield from flows.resume(ticket, context.signature.taking_over)
    assert reply.hold is not None, "it was resumed"
    reply.hold.keep(renew, most)
    context.keep(reply.hold)
    if context.hook is not None:
        context.hook(events.Resumed(ticket.key, reply.hold.fence, ticket.fence, reply.hold.ttl))
    return reply


def renewing(context: Context, ticket: ReservationTicket, hold: float) -> Flow[float]:
    """Renews the hold and returns the seconds left; raises as `flow.renew`."""
    entry = yield from flows.renew(ticket, hold)
    if context.hook is not None:
        context.hook(events.Renewed(ticket.key, ticket.fence, entry.left))
    return entry.left


def recording(context: Context, ticket: ReservationTicket, hold: Hold | None = None) -> Flow[None]:
    """Records that the reservation was sent; logs and raises the errors of `flow.record`."""
    if hold is not None:
        context.keeper.remove(hold)
    flow = flows.record(ticket, datetime.now(UTC).isoformat(timespec="milliseconds"))
    try:
        fresh = yield from context.or_proceed(ticket.key, "record", flow, lambda: False)
    except UnknownReservation:
        log.warning("Attempted to record with unknown reservation ID: %s", _shown(ticket))
        raise
    except ReservationMismatch as mismatch:
        log.warning("Reservation ID mismatch: expected %d, got %s", mismatch.expected, _shown(ticket))
        raise
    if fresh and context.hook is not None:
        context.hook(events.Recorded(ticket.key, ticket.fence, local_clock() - hold.since if hold is not None else 0.0))


def releasing(context: Context, ticket: ReservationTicket, hold: Hold | None = None) -> Flow[bool]:
    """Frees the key and removes the hits; False if there was nothing to free."""
    if hold is not None:
        context.keeper.remove(hold)
    flow = flows.release(ticket, hold is None or hold.doubtful, unsettled=hold is not None)
    freed = yield from context.or_proceed(ticket.key, "release", flow, lambda: False)
    if freed:
        log.debug("Released reservation %s", _shown(ticket))
    return freed


def _shown(ticket: ReservationTicket) -> str:
    """The part of an id that is not secret, for the log."""
    return f"{ticket.fence} of {ticket.key.partition('/')[2]!r}"
