"""Client methods of reservations: the right to send, once per quiet window and within limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UnknownReservation
from ..leases.context import AsyncMethods, Methods
from ..logs import get_logger
from ..rules import DEFAULT_HOLD, MIN_TTL, Seconds, checked_reason, page_size, seconds, stored_key, ttl_seconds

# What does the work is imported by the methods that use it, so that a program pays only for the nouns that it uses.
if TYPE_CHECKING:
    from .flow import ReservationTicket
    from .handle import AsyncReservation, Reservation, ReservationInfo
    from .policies import Group

log = get_logger()

KIND = "reservation"


def _recordable(id: str) -> ReservationTicket:
    from .ids import ticket_of

    try:
        return ticket_of(id)
    except UnknownReservation:
        log.warning("Attempted to record with unknown reservation ID: %r", id[:40])
        raise


def _renewal(id: str, hold: Seconds | None) -> tuple[ReservationTicket, float]:
    from .ids import ticket_of

    ticket = ticket_of(id)
    return ticket, ticket.hold if hold is None else ttl_seconds(hold, "hold")


def _longest(max_hold: Seconds | None) -> float:
    return math.inf if max_hold is None else seconds("max_hold", max_hold, least=MIN_TTL, most=math.inf)


def _prefix(prefix: Any) -> str:
    return stored_key(KIND, prefix) if prefix or not isinstance(prefix, str) else f"{KIND}/"


def _page(prefix: str, after: str, limit: Any) -> tuple[str, str, int]:
    return _prefix(prefix), _prefix(after), page_size(limit)


class Reservations(Methods):
    """Reservations, for threads."""

    def reserve(
        self,
        key: str,
        *,
        hold: Seconds = DEFAULT_HOLD,
        quiet: Seconds = 300.0,
        limit: int | None = None,
        per: Seconds | None = None,
        group: Group | None = None,
        purpose: str = "",
        details: Mapping[str, str] | None = None,
        renew: bool = True,
        max_hold: Seconds | None = None,
    ) -> Reservation:
        """Grants the right to send to one caller at a time; else returns a falsy result: why not, and when to retry.

        It is renewed at half its `hold` until it is recorded or released, for at most `max_hold`. After `record` the
        key is quiet for `quiet` seconds. There are never more than `limit` in any `per` seconds, nor more than the
        group's limit over all keys of the group. Callers that are refused see `details`: a few texts for programs,
        such as the id of what is sent, within 1 KiB.
        """
        from .calls import reserving
        from .handle import Reservation
        from .policies import checked_terms

        stored = stored_key(KIND, key)
        terms = checked_terms(hold, quiet, limit, per, group, self._store.max_limit)
        info = self._context.signature.info(purpose, details)
        reply = self._run(reserving(self._context, stored, terms, info, renew, _longest(max_hold)))
        return Reservation(key, reply, self._context, self._run)

    def resume_reservation(self, id: str, *, renew: bool = True, max_hold: Seconds | None = None) -> Reservation:
        """Takes over the reservation of this id, which another process handed over, under a new fence and with its
        `hold` from now; it is renewed as one of `reserve`.

        Raises ReservationMismatch, which names the holder, if it was resumed before or another reservation has the key;
        UnknownReservation if it was recorded, released or expired. The id is void from then on: a holder that gave it
        out and did not let go loses the reservation.
        """
        from .calls import resuming
        from .handle import Reservation
        from .ids import ticket_of

        ticket, most = ticket_of(id), _longest(max_hold)
        reply = self._run(resuming(self._context, ticket, renew, most))
        return Reservation(ticket.name, reply, self._context, self._run)

    def renew_reservation(self, id: str, *, hold: Seconds | None = None) -> float:
        """Holds the reservation of this id for `hold` seconds from now (default: its original hold), never shorter than
        before; returns the seconds left, counted from before the call.

        Raises ReservationMismatch if another reservation has the key, UnknownReservation if it was recorded, released
        or expired. Every process that has the id can renew, record and release, without being told apart: to send,
        `resume_reservation`.
        """
        from .calls import renewing

        return self._run(renewing(self._context, *_renewal(id, hold)))

    def record_reservation(self, id: str) -> None:
        """Records the reservation of this id as sent, by any process; as `Reservation.record`."""
        from .calls import recording

        self._run(recording(self._context, _recordable(id)))

    def release_reservation(self, id: str) -> bool:
        """Frees the key of this id, since it was not sent; as `Reservation.release`."""
        from .calls import releasing
        from .ids import ticket_of

        return self._run(releasing(self._context, ticket_of(id)))

    def reservations(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ReservationInfo]:
        """The active reservations, held or quiet, whose key starts with `prefix` and follows `after`, in key order."""
        from .handle import listing

        return self._run(listing(*_page(prefix, after, limit)))

    def expire_reservation(self, key: str, *, reason: str) -> bool:
        """Ends the current hold or quiet window of this key, and no later one; False if there was none.

        The hits of its limits stay. Its holder learns of it at the next renewal or record.
        """
        from .flow import expire
        from .handle import clearing

        return self._run(clearing(self._context, expire(stored_key(KIND, key), checked_reason(reason)), reason)) == 1

    def clear_reservations(self, prefix: str, *, reason: str) -> int:
        """`expire_reservation` for every key that starts with `prefix`; returns how many it ended."""
        from .flow import clear
        from .handle import clearing

        return self._run(clearing(self._context, clear(_prefix(prefix), checked_reason(reason)), reason))


class AsyncReservations(AsyncMethods):
    """Reservations, for asyncio."""

    async def reserve(
        self,
        key: str,
        *,
        hold: Seconds = DEFAULT_HOLD,
        quiet: Seconds = 300.0,
        limit: int | None = None,
        per: Seconds | None = None,
        group: Group | None = None,
        purpose: str = "",
        details: Mapping[str, str] | None = None,
        renew: bool = True,
        max_hold: Seconds | None = None,
    ) -> AsyncReservation:
        """Grants the right to send to one caller at a time; else returns a falsy result: why not, and when to retry.

        It is renewed at half its `hold` until it is recorded or released, for at most `max_hold`. After `record` the
        key is quiet for `quiet` seconds. There are never more than `limit` in any `per` seconds, nor more than the
        group's limit over all keys of the group. Callers that are refused see `details`: a few texts for programs,
        such as the id of what is sent, within 1 KiB.
        """
        from .calls import reserving
        from .handle import AsyncReservation
        from .policies import checked_terms

        stored = stored_key(KIND, key)
        terms = checked_terms(hold, quiet, limit, per, group, self._store.max_limit)
        info = self._context.signature.info(purpose, details)
        reply = await self._run(reserving(self._context, stored, terms, info, renew, _longest(max_hold)))
        return AsyncReservation(key, reply, self._context, self._run)

    async def resume_reservation(
        self, id: str, *, renew: bool = True, max_hold: Seconds | None = None
    ) -> AsyncReservation:
        """Takes over the reservation of this id, which another process handed over, under a new fence and with its
        `hold` from now; it is renewed as one of `reserve`.

        Raises ReservationMismatch, which names the holder, if it was resumed before or another reservation has the key;
        UnknownReservation if it was recorded, released or expired. The id is void from then on: a holder that gave it
        out and did not let go loses the reservation.
        """
        from .calls import resuming
        from .handle import AsyncReservation
        from .ids import ticket_of

        ticket, most = ticket_of(id), _longest(max_hold)
        reply = await self._run(resuming(self._context, ticket, renew, most))
        return AsyncReservation(ticket.name, reply, self._context, self._run)

    async def renew_reservation(self, id: str, *, hold: Seconds | None = None) -> float:
        """Holds the reservation of this id for `hold` seconds from now (default: its original hold), never shorter than
        before; returns the seconds left, counted from before the call.

        Raises ReservationMismatch if another reservation has the key, UnknownReservation if it was recorded, released
        or expired. Every process that has the id can renew, record and release, without being told apart: to send,
        `resume_reservation`.
        """
        from .calls import renewing

        return await self._run(renewing(self._context, *_renewal(id, hold)))

    async def record_reservation(self, id: str) -> None:
        """Records the reservation of this id as sent, by any process; as `AsyncReservation.record`."""
        from .calls import recording

        await self._run(recording(self._context, _recordable(id)))

    async def release_reservation(self, id: str) -> bool:
        """Frees the key of this id, since it was not sent; as `AsyncReservation.release`."""
        from .calls import releasing
        from .ids import ticket_of

        return await self._run(releasing(self._context, ticket_of(id)))

    async def reservations(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ReservationInfo]:
        """The active reservations, held or quiet, whose key starts with `prefix` and follows `after`, in key order."""
        from .handle import listing

        return await self._run(listing(*_page(prefix, after, limit)))

    async def expire_reservation(self, key: str, *, reason: str) -> bool:
        """Ends the current hold or quiet window of this key, and no later one; False if there was none.

        The hits of its limits stay. Its holder learns of it at the next renewal or record.
        """
        from .flow import expire
        from .handle import clearing

        return (
            await self._run(clearing(self._context, expire(stored_key(KIND, key), checked_reason(reason)), reason)) == 1
        )

    async def clear_reservations(self, prefix: str, *, reason: str) -> int:
        """`expire_reservation` for every key that starts with `prefix`; returns how many it ended."""
        from .flow import clear
        from .handle import clearing

        return await self._run(clearing(self._context, clear(_prefix(prefix), checked_reason(reason)), reason))
