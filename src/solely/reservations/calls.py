"""Reserving, renewing, recording, releasing: the flows of reservations, with what is told and logged."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from .. import events
from ..errors import ReservationMismatch, UnknownReservation
from ..flow import Flow
from ..leases.context import Context
from ..leases.hold import Hold, Unguarded
from ..rules import local_clock
from . import flow as flows
from .flow import RESERVED, ReservationTicket, ReserveReply

log = logging.getLogger("solely")


def reserving(
    context: Context, key: str, terms: flows.ReservationTerms, purpose: str, renew: bool, most: float
) -> Flow[ReserveReply]:
    """The answer to a reserve; what is granted is renewed, if asked, and watched from now on, for `most` seconds."""
    flow = flows.reserve(key, terms, context.info(purpose))
    answer = yield from context.or_proceed(
        key, "reserve", flow, lambda: ReserveReply(Unguarded(key, terms.hold, local_clock()))
    )
    if answer.hold is not None:
        answer.hold.keep(renew, most)
        context.keep(answer.hold)
    elif answer.reason == RESERVED:
        line = "Suppressed due to active reservation: %s, reservation expires in %.2fs."
        log.debug(line, key.partition("/")[2], answer.retry_after)
    if context.hook is not None:
        told = (
            events.Reserved(key, answer.hold.fence, answer.suppressed)
            if answer.hold is not None
            else events.Suppressed(key, answer.reason, answer.retry_after)
        )
        context.hook(told)
    return answer


def renewing(context: Context, ticket: ReservationTicket, hold: float) -> Flow[float]:
    """The seconds that the hold now has; what cannot be renewed is raised."""
    entry = yield from flows.renew(ticket, hold)
    if context.hook is not None:
        context.hook(events.Renewed(ticket.key, ticket.fence, entry.left))
    return entry.left


def recording(context: Context, ticket: ReservationTicket, hold: Hold | None = None) -> Flow[None]:
    """Records; what cannot be recorded is logged and raised."""
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
    """True if the key was freed and the hits given back."""
    if hold is not None:
        context.keeper.remove(hold)
    flow = flows.release(ticket, hold is None or hold.doubtful)
    freed = yield from context.or_proceed(ticket.key, "release", flow, lambda: False)
    if freed:
        log.debug("Released reservation %s", _shown(ticket))
    return freed


def _shown(ticket: ReservationTicket) -> str:
    """The part of an id that is no secret."""
    return f"{ticket.fence} of {ticket.key.partition('/')[2]!r}"
