"""Tickets as text: the id of a reservation, with which another process can renew, record or release it."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from ..errors import InvalidInput, UnknownReservation
from ..rules import MAX_TTL, MIN_TTL, stored_key
from .flow import ReservationTicket

MAX_ID = 16 * 1024  # characters: three keys of 512 bytes with every byte escaped; longer text is not an id
_OWNER = re.compile("[0-9a-f]{32}")


def id_of(ticket: ReservationTicket) -> str:
    """The ticket as opaque text that is safe in a URL."""
    return base64.urlsafe_b64encode(json.dumps(ticket, ensure_ascii=False).encode()).decode()


def ticket_of(id: Any) -> ReservationTicket:
    """The ticket of an id; raises UnknownReservation, without a request to the store, if the id is invalid."""
    if not isinstance(id, str):
        raise InvalidInput(f"a reservation id must be the str that reservation.id returned, not {id!r:.80}")
    try:
        key, owner, fence, quiet, hits, hold, reserver = json.loads(base64.urlsafe_b64decode(id[:MAX_ID]))
        stored = _stored(key, "reservation"), str(owner), int(fence), float(quiet), tuple(map(_stored, hits))
        ticket = ReservationTicket(*stored, float(hold), str(reserver))
        lasting = 0.0 <= ticket.quiet <= MAX_TTL and MIN_TTL <= ticket.hold <= MAX_TTL
        owned = _OWNER.fullmatch(ticket.owner) and _OWNER.fullmatch(ticket.reserver)
        if lasting and owned and 0 < ticket.fence < 1 << 63:
            return ticket
    except (ValueError, TypeError, OverflowError, RecursionError):
        pass
    raise UnknownReservation("this is not a reservation id; give what reservation.id returned")


def _stored(key: Any, *kinds: str) -> str:
    kind, _, name = str(key).partition("/")
    if kind not in (kinds or ("hits", "group")):
        raise InvalidInput(f"{key!r:.80} is not the key of a reservation")
    return stored_key(kind, name)
