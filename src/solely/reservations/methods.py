"""Reservations: one caller at a time may send, once per quiet window, within the limits."""

from __future__ import annotations

import logging
import math
from typing import Any

from ..errors import InvalidInput, UnknownReservation
from ..leases.context import AsyncMethods, Methods
from ..rules import MIN_TTL, Seconds, checked_reason, seconds, stored_key, ttl_seconds
from .calls import recording, releasing, renewing, reserving
from .flow import HOLD, ReservationTicket, clear, expire
from .handle import AsyncReservation, Reservation, ReservationInfo, clearing, listing
from .ids import ticket_of
from .policies import Group, checked_terms

log = logging.getLogger("solely")

KIND = "reservation"
MOST_LISTED = 1_000  # reservations in one call: what a page of an admin's list shows, many times over


def _recordable(id: str) -> ReservationTicket:
    try:
        return ticket_of(id)
    except UnknownReservation:
        log.warning("Attempted to record with unknown reservation ID: %r", id[:40])
        raise


def _renewal(id: str, hold: Seconds | None) -> tuple[ReservationTicket, float]:
    ticket = ticket_of(id)
    return ticket, ticket.hold if hold is None else ttl_seconds(hold, "hold")


def _longest(max_hold: Seconds | None) -> float:
    return math.inf if max_hold is None else seconds("max_hold", max_hold, least=MIN_TTL, most=math.inf)


def _prefix(prefix: Any) -> str:
    return stored_key(KIND, prefix) if prefix or not isinstance(prefix, str) else f"{KIND}/"


def _page(prefix: str, after: str, limit: Any) -> tuple[str, str, int]:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_LISTED:
        raise InvalidInput(f"limit must be an int from 1 to {MOST_LISTED}, not {limit!r:.80}")
    return _prefix(prefix), _prefix(after), limit


class Reservations(Methods):
    """Reservations, for threads."""

    def reserve(
        self,
        key: str,
        *,
        hold: Seconds = HOLD,
        quiet: Seconds = 300.0,
        limit: int | None = None,
        per: Seconds | None = None,
        group: Group | None = None,
        purpose: str = "",
        renew: bool = True,
        max_hold: Seconds | None = None,
    ) -> Reservation:
        """The right to send, for one caller at a time; else a falsy answer that says why not and when to ask again.

        It is renewed at half its `hold` until recorded or released, at most for `max_hold`. Recorded, it is quiet for
        `quiet` seconds. There are never more than `limit` in any `per` seconds, nor more than the group's limit over
        all keys that name it.
        """
        stored = stored_key(KIND, key)
        terms = checked_terms(hold, quiet, limit, per, group, self._store.max_limit)
        answer = self._run(reserving(self._context, stored, terms, purpose, renew, _longest(max_hold)))
        return Reservation(key, answer, self._context, self._run)

    def renew_reservation(self, id: str, *, hold: Seconds | None = None) -> float:
        """Holds the reservation of this id for `hold` seconds from now, or as long as it was reserved for, and never
        shorter than it is: the seconds it now has, from before the call.

        Raises ReservationMismatch if another has the key since, UnknownReservation if it was recorded or released, or
        ran out. To be called by whoever goes on with a reservation that was handed over: nobody else renews it.
        """
        return self._run(renewing(self._context, *_renewal(id, hold)))

    def record_reservation(self, id: str) -> None:
        """What the reservation of this id was for was sent, by whatever process; as `Reservation.record`."""
        self._run(recording(self._context, _recordable(id)))

    def release_reservation(self, id: str) -> bool:
        """What the reservation of this id was for was not sent; as `Reservation.release`."""
        return self._run(releasing(self._context, ticket_of(id)))

    def reservations(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ReservationInfo]:
        """The active ones, held or quiet, whose key begins with `prefix` and comes after `after`, in key order."""
        return self._run(listing(*_page(prefix, after, limit)))

    def expire_reservation(self, key: str, *, reason: str) -> bool:
        """Ends the hold or quiet window of this key now, and none that comes later; False if there was none.

        The hits of its limits stay. Its holder learns of it at the next renewal, or when it records.
        """
        return self._run(clearing(self._context, expire(stored_key(KIND, key), checked_reason(reason)), reason)) == 1

    def clear_reservations(self, prefix: str, *, reason: str) -> int:
        """As `expire_reservation`, for every key that begins with `prefix`; how many there were."""
        return self._run(clearing(self._context, clear(_prefix(prefix), checked_reason(reason)), reason))


class AsyncReservations(AsyncMethods):
    """Reservations, awaited."""

    async def reserve(
        self,
        key: str,
        *,
        hold: Seconds = HOLD,
        quiet: Seconds = 300.0,
        limit: int | None = None,
        per: Seconds | None = None,
        group: Group | None = None,
        purpose: str = "",
        renew: bool = True,
        max_hold: Seconds | None = None,
    ) -> AsyncReservation:
        """The right to send, for one caller at a time; else a falsy answer that says why not and when to ask again.

        It is renewed at half its `hold` until recorded or released, at most for `max_hold`. Recorded, it is quiet for
        `quiet` seconds. There are never more than `limit` in any `per` seconds, nor more than the group's limit over
        all keys that name it.
        """
        stored = stored_key(KIND, key)
        terms = checked_terms(hold, quiet, limit, per, group, self._store.max_limit)
        answer = await self._run(reserving(self._context, stored, terms, purpose, renew, _longest(max_hold)))
        return AsyncReservation(key, answer, self._context, self._run)

    async def renew_reservation(self, id: str, *, hold: Seconds | None = None) -> float:
        """Holds the reservation of this id for `hold` seconds from now, or as long as it was reserved for, and never
        shorter than it is: the seconds it now has, from before the call.

        Raises ReservationMismatch if another has the key since, UnknownReservation if it was recorded or released, or
        ran out. To be called by whoever goes on with a reservation that was handed over: nobody else renews it.
        """
        return await self._run(renewing(self._context, *_renewal(id, hold)))

    async def record_reservation(self, id: str) -> None:
        """What the reservation of this id was for was sent, by whatever process; as `AsyncReservation.record`."""
        await self._run(recording(self._context, _recordable(id)))

    async def release_reservation(self, id: str) -> bool:
        """What the reservation of this id was for was not sent; as `AsyncReservation.release`."""
        return await self._run(releasing(self._context, ticket_of(id)))

    async def reservations(self, prefix: str = "", *, after: str = "", limit: int = 100) -> list[ReservationInfo]:
        """The active ones, held or quiet, whose key begins with `prefix` and comes after `after`, in key order."""
        return await self._run(listing(*_page(prefix, after, limit)))

    async def expire_reservation(self, key: str, *, reason: str) -> bool:
        """Ends the hold or quiet window of this key now, and none that comes later; False if there was none.

        The hits of its limits stay. Its holder learns of it at the next renewal, or when it records.
        """
        return (
            await self._run(clearing(self._context, expire(stored_key(KIND, key), checked_reason(reason)), reason)) == 1
        )

    async def clear_reservations(self, prefix: str, *, reason: str) -> int:
        """As `expire_reservation`, for every key that begins with `prefix`; how many there were."""
        return await self._run(clearing(self._context, clear(_prefix(prefix), checked_reason(reason)), reason))
