"""Reservations over HTTP: one caller at a time may send, once per quiet window, within the limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...ops import MAX_LIMIT
from ...reservations.flow import HOLD
from ...reservations.handle import ReservationInfo
from ...reservations.ids import MAX_ID, ticket_of
from ...rules import MAX_TTL
from ..problems import OVERTAKEN, TOO_MANY, UNKNOWN
from ..routes import ADMIN, READ, WRITE, Answer, Body, Call, Key, PageSize, Prefix, Purpose, Reason, Route, Ttl
from .times import moment

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)]
Quiet = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_TTL, description="seconds")]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID, description="a secret: who has it can release")]


class GroupLimit(Body):
    """At most `limit` in any `per` seconds, over all keys that name this group."""

    name: Key
    limit: Limit
    per: Ttl


class OwnLimit(Body):
    """At most `limit` in any `per` seconds, of this key."""

    limit: Limit
    per: Ttl


class Reserve(Body):
    """The right to send is held for `hold` seconds; recorded, the key is quiet for `quiet`."""

    key: Key
    hold: Ttl = HOLD
    quiet: Quiet = 300.0
    limit: OwnLimit | None = None
    group: GroupLimit | None = None
    purpose: Purpose = ""


class ReservationAnswer(Answer):
    """If `granted`, send, and record with the id within `left` seconds. Else `reason` is reserved, quiet or limited,
    and `retry_after` says when asking again may help; `suppressed` counts those of this window."""

    key: str
    granted: bool
    id: str
    fence: int
    left: float
    reason: str
    retry_after: float
    suppressed: int


class RenewReservation(Body):
    """It takes longer to send: the hold lasts `hold` seconds from now, or as long as it was reserved for."""

    id: Id
    hold: Ttl | None = None


class RenewedReservation(Answer):
    """The seconds that the hold now has, counted from before the request was sent."""

    left: float


class Record(Body):
    """It was sent: starts the quiet window."""

    id: Id


class ReleaseReservation(Body):
    """It was not sent: frees the key and gives the hits back."""

    id: Id


class RecordedReservation(Answer):
    """It is quiet now."""

    recorded: bool


class ReleasedReservation(Answer):
    """False if there was nothing to free any more."""

    released: bool


class ReservationsQuery(Body):
    """Those whose key begins with `prefix` and comes after `after`."""

    prefix: Prefix = ""
    after: Prefix = ""
    limit: PageSize = 100


class ListedReservation(Answer):
    """An active reservation: `reason` is what a caller would be told, `left` for how long. `unreadable` says why `sent`
    and `last_sent` are not known."""

    key: str
    reason: str
    left: float
    suppressed: int
    fence: int
    holder: str
    sent: int
    last_sent: float | None
    unreadable: str = ""


class ListedReservations(Answer):
    """In key order. If `next` is not null there may be more: ask for those after it."""

    reservations: list[ListedReservation]
    next: str | None


class ExpireReservation(Body):
    """Ends the hold or the quiet window of this key."""

    key: Key
    reason: Reason


class ExpiredReservation(Answer):
    """False if there was none."""

    expired: bool


async def reserve(call: Call[Reserve, None]) -> ReservationAnswer:
    """Grants the right to send, or tells why not."""
    wanted, service = call.body, call.service
    hold, own, group = service.ttl(wanted.hold), wanted.limit, wanted.group
    service.holds.check(call.principal.name)
    told = await service.once.reserve(
        wanted.key,
        hold=hold,
        quiet=wanted.quiet,
        limit=own.limit if own is not None else None,
        per=own.per if own is not None else None,
        group=(group.name, group.limit, group.per) if group is not None else None,
        purpose=call.purpose(wanted.purpose),
        renew=False,
    )
    left = told.remaining()
    id = told.hand_over()
    if told:
        service.holds.add(call.principal.name, id, hold)
    return ReservationAnswer(
        key=told.key,
        granted=bool(told),
        id=id,
        fence=told.fence,
        left=left,
        reason=told.reason,
        retry_after=told.retry_after,
        suppressed=told.count,
    )


async def renew(call: Call[RenewReservation, None]) -> RenewedReservation:
    """Extends the hold."""
    wanted, service = call.body, call.service
    hold = service.ttl(ticket_of(wanted.id).hold if wanted.hold is None else wanted.hold)
    left = await service.once.renew_reservation(wanted.id, hold=hold)
    service.holds.add(call.principal.name, wanted.id, left)
    return RenewedReservation(left=left)


async def record(call: Call[Record, None]) -> RecordedReservation:
    """Starts the quiet window."""
    await call.service.once.record_reservation(call.body.id)
    call.service.holds.remove(call.principal.name, call.body.id)
    return RecordedReservation(recorded=True)


async def release(call: Call[ReleaseReservation, None]) -> ReleasedReservation:
    """Frees the key."""
    released = await call.service.once.release_reservation(call.body.id)
    call.service.holds.remove(call.principal.name, call.body.id)
    return ReleasedReservation(released=released)


async def list_reservations(call: Call[None, ReservationsQuery]) -> ListedReservations:
    """A page of the active ones."""
    asked = call.query
    found = await call.service.once.reservations(asked.prefix, after=asked.after, limit=asked.limit)
    following = found[-1].key if len(found) == asked.limit else None
    return ListedReservations(reservations=[_listed(each) for each in found], next=following)


def _listed(info: ReservationInfo) -> ListedReservation:
    return ListedReservation(**info._asdict() | {"last_sent": moment(info.last_sent)})


async def expire(call: Call[ExpireReservation, None]) -> ExpiredReservation:
    """Ends what holds the key back now, and none that comes later."""
    return ExpiredReservation(
        expired=await call.service.clearing.expire_reservation(call.body.key, reason=call.body.reason)
    )


ROUTES = [
    Route(
        "POST",
        "/v1/reservations/reserve",
        WRITE,
        reserve,
        "Reserve the right to send, or learn why not",
        refusals=(TOO_MANY,),
        grants=True,
        again="Asks anew: if the first was granted, the repeat is told `reserved` until its hold ends.",
    ),
    Route(
        "POST",
        "/v1/reservations/renew",
        WRITE,
        renew,
        "It takes longer: extend the hold",
        refusals=(UNKNOWN, OVERTAKEN),
        again="Safe: extends again, never shortens.",
    ),
    Route(
        "POST",
        "/v1/reservations/record",
        WRITE,
        record,
        "It was sent: start the quiet window",
        refusals=(UNKNOWN, OVERTAKEN),
        again="Safe: recorded once.",
    ),
    Route(
        "POST",
        "/v1/reservations/release",
        WRITE,
        release,
        "It was not sent: free the key",
        refusals=(UNKNOWN,),
        again="Safe: there is nothing left to free.",
    ),
    Route("GET", "/v1/reservations", READ, list_reservations, "List active reservations in key order"),
    Route(
        "POST",
        "/v1/reservations/expire",
        ADMIN,
        expire,
        "End a hold or a quiet window",
        again="Ends what is there then.",
    ),
]
