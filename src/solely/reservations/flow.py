"""Decisions of reservations: win the right to send, then record that it was sent, which starts the quiet window.

Acquire decides first, then the limits are hit; if one refuses, the hold and the hits are removed again. So reserve may
refuse too much for a moment, but never grants too much, and a crash between two steps heals when the hold expires. A
hit is removed only while the hold is known to last: after an expiry it may have been sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import (
    INTERRUPTIONS,
    Interrupted,
    ReservationMismatch,
    StoreError,
    UnknownReservation,
    Unreadable,
    is_unanswered,
    not_ours,
)
from ..flow import RUN, Ask, Flow, Run, Scan, replies_or_raise, undo
from ..formats import read_sent
from ..holder import describe
from ..leases import flow as leases
from ..leases.hold import Hold
from ..leases.token import Token
from ..model import ABSENT, DONE, FREE, HELD, LOST, RELEASED, Allowance, Entry, Gone
from ..ops import Acquire, Clear, Finish, Hit, Read, Release, Renew, Unhit
from ..rules import DAY, MIN_TTL

RESERVED, QUIET, LIMITED = "reserved", "quiet", "limited"  # why a reservation is suppressed

_NO_QUIET = 1e-6  # seconds: the shortest window that a store can represent; it ends with the next tick of its clock
_KEEP_SENT = 30 * DAY  # how long the counts of a key are kept after it was last sent: a month of history
_PAGE = 100  # reservations cleared at once: fits one batch of every store
_WRITING = 10.0  # seconds for the batch that writes the counts, which takes one round trip: enough for a slow one


class ReservationTerms(NamedTuple):
    """How long a reservation is held and quiet, its own limit, and the limit of its group."""

    hold: float
    quiet: float
    own: tuple[int, float] | None = None  # limit, per
    group: tuple[str, int, float] | None = None  # the stored key of the shared limit, limit, per

    def hits(self, key: str, owner: str) -> list[Hit]:
        """The hits that this owner needs before it may send."""
        own = [Hit(f"hits/{key.partition('/')[2]}", owner, *self.own)] if self.own else []
        return [*own, Hit(self.group[0], owner, *self.group[1:])] if self.group else own


class ReservationTicket(NamedTuple):
    """Identifies a reservation to renew, record or release it, in this process or another. Its hits are counted under
    `reserver`, which is another owner than this one after it was resumed."""

    key: str
    owner: str
    fence: int
    quiet: float
    hits: tuple[str, ...]
    hold: float
    reserver: str

    @property
    def name(self) -> str:
        """The key as the user wrote it."""
        return self.key.partition("/")[2]


class ReserveReply(NamedTuple):
    """Granted, with a hold and its ticket; or suppressed, with the reason, when to retry, how many were suppressed so
    far. `info` is that of the holder: this caller, or the one that blocks it."""

    hold: Hold | None = None
    ticket: ReservationTicket | None = None
    reason: str = ""
    retry_after: float = 0.0
    suppressed: int = 0
    info: str = ""


class SendRecord(NamedTuple):
    """How often the key was sent, when last (UTC, ISO 8601) and under which fence; kept for 30 days."""

    sent: int = 0
    last: str = ""
    fence: int = 0


def reserve(key: str, terms: ReservationTerms, info: str) -> Flow[ReserveReply]:
    """Grants the right to send to one caller at a time, once per quiet window and within the limits; else says why not.

    A refusal because of another hold or a quiet window takes one round trip.
    """
    for _ in range(2):  # the first try may have waited for the client's first connection; the next one will not
        reply = yield from _reserve(key, terms, info)
        if reply is not None:
            return reply
    return ReserveReply(reason=RESERVED)


def _reserve(key: str, terms: ReservationTerms, info: str) -> Flow[ReserveReply | None]:
    """Tries once; None if the reply came after the hold had expired."""
    owner: str = yield Ask.OWNER
    owners, hits = [owner], list[Hit]()
    try:
        entry: Entry = yield Acquire(key, owner, terms.hold, info, counted=True)
        run: Run = yield RUN
        if entry.owner != owner:
            if run.doubtful:
                yield Release(key, owner, True)  # a late copy of an unanswered try must not acquire the key
            return None if entry.gone else _suppressed(entry)
        hold = Hold(key, owner, terms.hold, entry, run.sent, run.doubtful, run.now)
        hits = terms.hits(key, owner)
        if hits:
            allowances: list[Allowance] = replies_or_raise((yield hits))
            run = yield RUN
            hold.doubtful = run.doubtful
            refusals = [allowance.retry_after for allowance in allowances if not allowance.allowed]
            if refusals:
                return (yield from _limited(key, owners, hits, max(refusals)))
        if run.now() >= hold.deadline:
            yield _undoing(key, owners, hits, True)
            return None
    except StoreError:
        run = yield RUN
        yield from undo(_undoing(key, owners, hits, run.doubtful))
        raise
    except INTERRUPTIONS as why:
        if is_unanswered(why) or hits:  # else nothing was sent
            yield _undoing(key, owners, hits, is_unanswered(why))
        raise
    ticket = ReservationTicket(key, owner, hold.fence, terms.quiet, tuple(hit.key for hit in hits), terms.hold, owner)
    return ReserveReply(hold, ticket, suppressed=entry.refused, info=info)


def _suppressed(entry: Entry) -> ReserveReply:
    reason = QUIET if entry.state is DONE else RESERVED
    return ReserveReply(reason=reason, retry_after=entry.left, suppressed=entry.refused, info=entry.info)


def _undoing(key: str, owners: list[str], hits: list[Hit], doubtful: bool, keep: float = 0.0) -> list[Any]:
    releases = [Release(key, owner, doubtful, keep=keep) for owner in owners]
    return [*releases, *(Unhit(hit.key, hit.owner) for hit in hits)]


def _limited(key: str, owners: list[str], hits: list[Hit], retry_after: float) -> Flow[ReserveReply]:
    """Releases the hold and removes the hits. Counts the refusal like any other: as one that met our own hold."""
    owners.append((yield Ask.OWNER))
    entry: Entry = yield Acquire(key, owners[-1], MIN_TTL, counted=True)
    run: Run = yield RUN
    yield _undoing(key, owners, hits, run.doubtful, keep=retry_after)
    return ReserveReply(reason=LIMITED, retry_after=retry_after, suppressed=entry.refused)


def resume(ticket: ReservationTicket, info: Callable[[str], str]) -> Flow[ReserveReply]:
    """Takes over the reservation, whose former owner is gone from now on; `info` makes the info of this holder from
    that of the former one.

    Raises ReservationMismatch if another reservation has the key, or this one was resumed before; UnknownReservation if
    it was recorded or is unknown.
    """
    token = Token(ticket.key, ticket.owner, ticket.hold, ticket.fence, 0.0)
    hold, entry = yield from leases.resume(token, info)
    if hold is None and entry.fence == ticket.fence:
        raise _recorded(ticket)
    if hold is None:
        raise _not_mine(ticket, entry)
    resumed = ticket._replace(owner=hold.owner, fence=hold.fence)
    return ReserveReply(hold, resumed, suppressed=entry.refused, info=entry.info)


def renew(ticket: ReservationTicket, hold: float) -> Flow[Entry]:
    """Holds the entry for at least `hold` more seconds, and returns it; never shortens the hold.

    Raises ReservationMismatch if another reservation has the key, UnknownReservation if it was recorded or is unknown.
    """
    entry: Entry = yield Renew(ticket.key, ticket.owner, hold)
    if entry.owner != ticket.owner:
        raise _not_mine(ticket, entry)
    if entry.state is not HELD:
        raise _recorded(ticket)
    return entry


def _recorded(ticket: ReservationTicket) -> UnknownReservation:
    text = f"reservation {ticket.fence} of {ticket.name!r} was recorded: there is no hold to renew or resume"
    return UnknownReservation(text, key=ticket.name)


def record(ticket: ReservationTicket, now: str) -> Flow[bool]:
    """Records that it was sent at `now`, which starts the quiet window; False if it was recorded before.

    Raises ReservationMismatch if another reservation has the key, UnknownReservation if the store has forgotten it.
    """
    finish = Finish(ticket.key, ticket.owner, b"", ticket.quiet or _NO_QUIET)
    before: Entry | None = None
    try:
        if not ticket.quiet:  # the window may be over before the reply of the finish shows whose it was
            before = yield Renew(ticket.key, ticket.owner, MIN_TTL)
        entry, stored = replies_or_raise((yield [finish, Read(sent_key(ticket.key))]))
    except Interrupted:
        yield finish  # it was sent: without a record it would be sent again
        raise
    sent, _ = _counted(stored)
    if sent.fence == ticket.fence:
        return False
    run: Run = yield RUN
    was_mine = run.doubtful if before is None else before.owner == ticket.owner or before.gone == Gone.EXPIRED
    lapsed = was_mine and entry.state is FREE and not entry.gone  # finished, and the quiet window is over already
    if lapsed:  # unless the store lost it between the two reads
        lapsed = (yield Release(ticket.key, ticket.owner, fence=ticket.fence)) is not LOST
    if entry.owner != ticket.owner and not lapsed:
        raise _not_mine(ticket, entry)
    if sent.fence < ticket.fence:  # else this was finished before a later one, and may have been counted then
        yield from _count(ticket, stored, SendRecord(sent.sent + 1, now, ticket.fence))
    return True


def _not_mine(ticket: ReservationTicket, entry: Entry) -> UnknownReservation | ReservationMismatch:
    name = entry.name
    if entry.fence:
        how = "was resumed" if entry.gone == Gone.RESUMED else "expired, or was resumed"
        text = f"reservation {ticket.fence} of {name!r} {how}, and {entry.fence} has the key"
        text += f" ({describe(entry.info)})" if entry.info else ""
        return ReservationMismatch(f"{text}: it may be sent twice", key=name, expected=entry.fence, got=ticket.fence)
    how = f" ({entry.gone})" if entry.gone else ""
    text = f"reservation {ticket.fence} of {name!r} is unknown{how}: it was released, or expired long ago"
    unknown = UnknownReservation(text, key=name)
    unknown.how = entry.gone
    return unknown


def _count(ticket: ReservationTicket, stored: Entry, sent: SendRecord) -> Flow[None]:
    """Replaces the counts in one batch. They are statistics: a crash or a batch that fails halfway may lose them.

    Without a quiet window, the key is open from now on, even if the store's clock ticks rarely.
    """
    key = stored.key
    value = json.dumps(sent._asdict()).encode()
    ops: list[Any] = [Acquire(key, ticket.owner, _WRITING), Finish(key, ticket.owner, value, _KEEP_SENT)]
    if stored.fence:
        ops.insert(0, Clear(key, stored.fence, "sent again"))
    if not ticket.quiet:
        ops.append(Clear(ticket.key, ticket.fence, "no quiet window"))
    yield ops


def release(ticket: ReservationTicket, revoke: bool, unsettled: bool = False) -> Flow[bool]:
    """Frees the key at once and removes the hits. False if there was nothing to free: it was recorded or released, or
    it expired, and then its hits stay, since it may have been sent. `unsettled`: this caller knows that it was neither
    recorded nor released; without hits and a quiet window, that takes one op."""
    ours = unsettled and not ticket.quiet and not ticket.hits
    try:
        ours = ours or (yield from _is_held(ticket))
        return ours and (yield from _free(ticket, revoke))
    except Interrupted:  # done before the caller's interruption is raised; a batch that was under way is repeated whole
        if ours or (yield from _is_held(ticket)):
            yield from _free(ticket, True)
        raise


def _is_held(ticket: ReservationTicket) -> Flow[bool]:
    entry: Entry | None = yield Renew(ticket.key, ticket.owner, MIN_TTL)  # never shortens; None: the undo failed
    return entry is not None and entry.owner == ticket.owner and entry.state is HELD


def _free(ticket: ReservationTicket, revoke: bool) -> Flow[bool]:
    unhits = [Unhit(hit, ticket.reserver) for hit in ticket.hits]
    free = Release(ticket.key, ticket.owner, revoke, fence=ticket.fence)
    outcomes = replies_or_raise((yield [free, *unhits]) or [])
    run: Run = yield RUN
    return RELEASED in outcomes[:1] or (run.doubtful and ABSENT in outcomes[:1])  # released by an unanswered try


def sent_key(key: str) -> str:
    """The stored key of the counts of this reservation key."""
    return f"sent/{key.partition('/')[2]}"


def sent_of(entry: Entry) -> SendRecord:
    """The counts in this entry, or zero counts if it is empty; raises Unreadable if Solely did not write them."""
    if not entry.value:
        return SendRecord()
    try:
        return SendRecord(**read_sent(entry.value))
    except ValueError as error:
        text = f"the counts of reservation {entry.name!r} are unreadable: {not_ours(error)}"
        raise Unreadable(text, key=entry.name) from None


def _counted(entry: Entry) -> tuple[SendRecord, str]:
    """(the counts, ""), or (zero counts, why they are unreadable): statistics must not stop a caller from sending."""
    try:
        return sent_of(entry), ""
    except Unreadable as why:
        return SendRecord(), str(why)


def active(prefix: str, after: str, limit: int) -> Flow[list[tuple[Entry, SendRecord, str]]]:
    """A page of the reservations that are held or quiet, in key order, each with the result of `_counted`."""
    entries: list[Entry] = [entry for entry in (yield Scan(prefix, after, limit)) if entry.fence]
    reads = [Read(sent_key(entry.key)) for entry in entries]
    stored: list[Entry] = replies_or_raise((yield reads)) if reads else []
    return [(entry, *_counted(kept)) for entry, kept in zip(entries, stored, strict=True)]


def expire(key: str, reason: str) -> Flow[list[Entry]]:
    """Ends the current hold or quiet window, and no later one; returns the entry that it ended, if any."""
    entry: Entry = yield Read(key)
    return (yield from _clear([entry], reason))


def clear(prefix: str, reason: str) -> Flow[list[Entry]]:
    """`expire` for every key that starts with `prefix`."""
    cleared: list[Entry] = []
    page: list[Entry] = yield Scan(prefix, "", _PAGE)
    while page:
        cleared += yield from _clear(page, reason)
        page = yield Scan(prefix, page[-1].key, _PAGE)
    return cleared


def _clear(entries: list[Entry], reason: str) -> Flow[list[Entry]]:
    active = [entry for entry in entries if entry.fence]
    cleared = replies_or_raise((yield [Clear(entry.key, entry.fence, reason) for entry in active])) if active else []
    return [entry for entry, done in zip(active, cleared, strict=True) if done]
