"""Reservations over HTTP: one caller at a time may send, once per quiet window, within the limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...ops import MAX_LIMIT
from ...reservations.handle import AsyncReservation, ReservationInfo
from ...reservations.ids import MAX_ID, ticket_of
from ...rules import DEFAULT_HOLD, MAX_TTL
from ..problems import OVERTAKEN, TOO_MANY, UNKNOWN
from ..routes import ADMIN, READ, WRITE, Answer, Body, Call, Key, PrefixQuery, Purpose, Reason, Route, Ttl, timestamp

Limit = Annotated[int, msgspec.Meta(ge=1, le=MAX_LIMIT)]
Quiet = Annotated[float, msgspec.Meta(ge=0.0, le=MAX_TTL, description="seconds")]
Details = Annotated[
    dict[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], Annotated[str, msgspec.Meta(max_length=500)]],
    msgspec.Meta(max_length=8, description="for programs, shown to refused callers; all together within 1 KiB"),
]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID, description="a secret: whoever has it can release")]


class GroupLimit(Body):
    """At most `limit` in any `per` seconds, over all keys that name this group."""

    name: Key
    limit: Limit
    per: Ttl


class OwnLimit(Body):
    """At most `limit` in any `per` seconds, of this key."""

    limit: Limit
    per: Ttl


class ReserveBody(Body):
    """Holds the right to send for `hold` seconds; once recorded, the key is quiet for `quiet` seconds."""

    key: Key
    hold: Ttl = DEFAULT_HOLD
    quiet: Quiet = 300.0
    limit: OwnLimit | None = None
    group: GroupLimit | None = None
    purpose: Purpose = ""
    details: Details = msgspec.field(default_factory=dict)


class ReservationAnswer(Answer):
    """If `granted`, send, and record with the id within `left` seconds. Else `reason` is reserved, quiet or limited,
    and `retry_after` says when a retry may help; `suppressed` counts the refusals of this window. `details` are those
    of the caller that has the key."""

    key: str
    granted: bool
    id: str
    fence: int
    left: float
    reason: str
    retry_after: float
    suppressed: int
    details: dict[str, str]


class RenewReservation(Body):
    """Extends the hold to `hold` seconds from now, by default those of the reservation."""

    id: Id
    hold: Ttl | None = None


class RenewedReservation(Answer):
    """The seconds that the hold now has, counted from before the request was sent."""

    left: float


class ResumeReservation(Body):
    """The id that its holder handed over. It is void from then on."""

    id: Id


class RecordBody(Body):
    """Records that the message was sent, which starts the quiet window."""

    id: Id


class ReleaseReservation(Body):
    """Releases the key and returns the hits to the limits: the message was not sent."""

    id: Id


class RecordedReservation(Answer):
    """The quiet window has started."""

    recorded: bool


class ReleasedReservation(Answer):
    """False if there was nothing to release any more."""

    released: bool


class ListedReservation(Answer):
    """An active reservation: a caller would be refused with `reason`, for `left` seconds. `unreadable` says why `sent`
    and `last_sent` are unknown."""

    key: str
    reason: str
    left: float
    suppressed: int
    fence: int
    holder: str
    sent: int
    last_sent: float | None
    details: dict[str, str]
    unreadable: str = ""


class ListedReservations(Answer):
    """In key order. If `next` is not null there may be more, after it."""

    reservations: list[ListedReservation]
    next: str | None


class ExpireReservation(Body):
    """Ends the hold or the quiet window of this key."""

    key: Key
    reason: Reason


class ExpiredReservation(Answer):
    """False if there was none."""

    expired: bool


async def reserve(call: Call[ReserveBody, None]) -> ReservationAnswer:
    """Reserves the right to send, or returns why not."""
    wanted, service = call.body, call.service
    hold, own, group = service.ttl(wanted.hold), wanted.limit, wanted.group
    service.holds.check(call.principal.name)
    reservation = await service.once.reserve(
        wanted.key,
        hold=hold,
        quiet=wanted.quiet,
        limit=own.limit if own is not None else None,
        per=own.per if own is not None else None,
        group=(group.name, group.limit, group.per) if group is not None else None,
        purpose=wanted.purpose,
        details=wanted.details,
        renew=False,
    )
    answer = _handed_over(reservation)
    if reservation:
        service.holds.add(call.principal.name, answer.id, hold)
    return answer


def _handed_over(reservation: AsyncReservation) -> ReservationAnswer:
    return ReservationAnswer(
        key=reservation.key,
        granted=bool(reservation),
        left=reservation.remaining(),
        id=reservation.hand_over(),
        fence=reservation.fence,
        reason=reservation.reason,
        retry_after=reservation.retry_after,
        suppressed=reservation.count,
        details=reservation.details,
    )


async def resume(call: Call[ResumeReservation, None]) -> ReservationAnswer:
    """Takes over the reservation of an id, under a new fence and id; a second resume of it is refused."""
    service, id, who = call.service, call.body.id, call.principal.name
    hold = service.ttl(ticket_of(id).hold)
    with service.holds.requesting(who, service.holds.wanted_to_resume(who, id)):
        answer = _handed_over(await service.once.resume_reservation(id, renew=False))
    service.holds.pass_on(id, who, answer.id, hold)
    return answer


async def renew(call: Call[RenewReservation, None]) -> RenewedReservation:
    """Extends the hold of a reservation."""
    wanted, service = call.body, call.service
    hold = service.ttl(ticket_of(wanted.id).hold if wanted.hold is None else wanted.hold)
    left = await service.once.renew_reservation(wanted.id, hold=hold)
    service.holds.add(call.principal.name, wanted.id, left)
    return RenewedReservation(left=left)


async def record(call: Call[RecordBody, None]) -> RecordedReservation:
    """Records that the message was sent, and starts the quiet window."""
    await call.service.once.record_reservation(call.body.id)
    call.service.holds.remove(call.principal.name, call.body.id)
    return RecordedReservation(recorded=True)


async def release(call: Call[ReleaseReservation, None]) -> ReleasedReservation:
    """Releases the key: the message was not sent."""
    released = await call.service.once.release_reservation(call.body.id)
    call.service.holds.remove(call.principal.name, call.body.id)
    return ReleasedReservation(released=released)


async def list_reservations(call: Call[None, PrefixQuery]) -> ListedReservations:
    """Lists active reservations in key order."""
    query = call.query
    found = await call.service.once.reservations(query.prefix, after=query.after, limit=query.limit)
    return ListedReservations(reservations=[_listed(each) for each in found], next=query.following(found))


def _listed(info: ReservationInfo) -> ListedReservation:
    return ListedReservation(**info._asdict() | {"last_sent": timestamp(info.last_sent)})


async def expire(call: Call[ExpireReservation, None]) -> ExpiredReservation:
    """Ends the current hold or quiet window."""
    return ExpiredReservation(
        expired=await call.service.clearing.expire_reservation(call.body.key, reason=call.body.reason)
    )


ROUTES = [
    Route(
        "POST",
        "/v1/reservations/reserve",
        WRITE,
        reserve,
        refusals=(TOO_MANY,),
        grants=True,
        again="A new request: if the first was granted, the repeat is refused as `reserved` until that hold ends.",
    ),
    Route(
        "POST",
        "/v1/reservations/renew",
        WRITE,
        renew,
        refusals=(UNKNOWN, OVERTAKEN),
        again="Safe: extends again, never shortens.",
    ),
    Route(
        "POST",
        "/v1/reservations/resume",
        WRITE,
        resume,
        refusals=(UNKNOWN, OVERTAKEN, TOO_MANY),
        grants=True,
        again="Refused: an id is resumed once. If the first response was lost, the reservation ends after its hold.",
    ),
    Route(
        "POST", "/v1/reservations/record", WRITE, record, refusals=(UNKNOWN, OVERTAKEN), again="Safe: recorded once."
    ),
    Route(
        "POST",
        "/v1/reservations/release",
        WRITE,
        release,
        refusals=(UNKNOWN,),
        again="Safe: there is nothing left to release.",
    ),
    Route("GET", "/v1/reservations", READ, list_reservations),
    Route(
        "POST",
        "/v1/reservations/expire",
        ADMIN,
        expire,
        changed="expired",
        again="Ends the hold or window of that moment.",
    ),
]
