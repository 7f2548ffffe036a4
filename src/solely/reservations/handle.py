"""The result of `reserve`, for threads and for asyncio."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Self

from ..errors import Busy, ClientClosed, Limited, Refused, StoreError
from ..events import Cleared
from ..flow import Flow
from ..holder import describe, details_of, purpose_of
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..leases.hold import FORKED
from ..logs import get_logger
from ..model import DONE, Entry
from ..rules import local_clock
from . import flow as flows
from .calls import recording, releasing
from .flow import LIMITED, QUIET, RESERVED, ReserveReply
from .ids import id_of

log = get_logger()


class ReservationBase:
    """Truthy if granted: this caller may send. Falsy if suppressed: `reason` is reserved, quiet or limited.

    A retry may succeed after `retry_after` seconds; `count` is how many were suppressed in this window; `holder` is the
    caller that blocks this one, as a phrase, and `purpose` the purpose that it gave, if known. `details` are those of
    the caller that has the key: its own if granted.
    """

    def __init__(self, key: str, reply: ReserveReply, context: Context) -> None:
        self.key = key
        self.reason = reply.reason
        self.retry_after = reply.retry_after
        self.count = reply.suppressed
        self._info = reply.info
        self._hold = reply.hold
        self._ticket = reply.ticket
        self._context = context
        self._recorded = self._released = self._handed_over = False

    def __bool__(self) -> bool:
        return self._hold is not None

    @property
    def id(self) -> str:
        """The id with which another process can renew, record or release it; "" if nothing is reserved. A secret."""
        return id_of(self._ticket) if self._ticket is not None else ""

    def hand_over(self) -> str:
        """Stops keeping the reservation here, without a release, and returns the id with which another process goes on.
        From then on, the end of a block neither records nor releases it."""
        if self._hold is not None:
            self._context.keeper.remove(self._hold)
            self._handed_over = True
        return self.id

    @property
    def fence(self) -> int:
        """Grows with every reservation of the key; 0 if nothing is reserved."""
        return self._hold.fence if self._hold is not None else 0

    @property
    def attempts(self) -> int:
        """1, or more if earlier holds expired or reached their limit; 0 if nothing is reserved."""
        return self._hold.attempts if self._hold is not None else 0

    @property
    def holder(self) -> str:
        """The caller that blocks this one, as a phrase; "" if there is none, or it is unknown."""
        return describe(self._info) if self._info and self._hold is None else ""

    @property
    def purpose(self) -> str:
        """The purpose that the caller that blocks this one gave; "" if none."""
        return purpose_of(self._info) if self._hold is None else ""

    @property
    def details(self) -> dict[str, str]:
        """The details that the caller that has the key gave: this one if granted; empty if none."""
        return details_of(self._info)

    @property
    def unguarded(self) -> bool:
        """True if this client proceeded without an unreachable store (`on_outage="proceed"`): nothing is held."""
        return self._hold is not None and not self._hold.owner

    @property
    def lost(self) -> bool:
        """True as soon as the hold is no longer safe to rely on: another caller may be sending now."""
        return self._hold is not None and not self._settled and bool(self._hold.how(local_clock()))

    def remaining(self) -> float:
        """Seconds that the hold is safe to rely on without a renewal; 0 if it is lost or over."""
        if self._hold is None or self._settled or self.lost:
            return 0.0
        return max(0.0, self._hold.deadline - local_clock())

    @property
    def _settled(self) -> bool:
        return self._recorded or self._released

    def _entered(self) -> Self:
        if self._hold is None:
            raise self._refusal()
        return self

    def _is_over(self) -> bool:
        """True if there is nothing to end here: it ended before, was handed over, or belongs to a forked parent."""
        return self._settled or self._handed_over or (self._hold is not None and self._hold.lost == FORKED)

    def _not_released(self, failure: Exception) -> None:
        facts = {"key": self.key, "error": str(failure)}
        log.warning(
            "release_failed: reservation %(key)r was not released, and is held until it expires: %(error)s",
            facts,
            extra=facts,
        )

    def _refusal(self) -> Refused:
        text = f"reservation {self.key!r} is suppressed ({self.reason}); try again in {self.retry_after:.1f} s"
        kind = Limited if self.reason == LIMITED else Busy
        return kind(text, key=self.key, left=self.retry_after)

    def _recording(self) -> Flow[None]:
        if self._hold is None:
            raise self._refusal()
        if self._ticket is not None and not self._recorded:
            yield from recording(self._context, self._ticket, self._hold)
        self._recorded = True

    def _releasing(self) -> Flow[bool]:
        if self._ticket is None or self._is_over():
            return False
        freed = yield from releasing(self._context, self._ticket, self._hold)
        self._released = True
        return freed

    def __repr__(self) -> str:
        if self._hold is None:
            return f"<{type(self).__name__} {self.key!r} suppressed: {self.reason}>"
        state = "recorded" if self._recorded else "released" if self._released else f"{self.remaining():.1f} s left"
        return f"<{type(self).__name__} {self.key!r} fence={self.fence} {state}>"


class Reservation(ReservationBase):
    """The result of `reserve`, for threads. As a context manager it records on success and releases on error."""

    def __init__(self, key: str, reply: ReserveReply, context: Context, run: RunFlow) -> None:
        super().__init__(key, reply, context)
        self._run = run

    def record(self) -> None:
        """Records that it was sent, which starts the quiet window. Safe to repeat; raises ReservationMismatch or
        UnknownReservation if the hold expired and another caller took the key, or an admin cleared it."""
        self._run(self._recording())

    def release(self) -> bool:
        """Frees the key at once and removes the hits, since it was not sent; False if there was nothing to free."""
        return self._run(self._releasing())

    def __enter__(self) -> Self:
        return self._entered()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_over():
            return
        if error is None:
            self.record()
            return
        try:
            self.release()
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure)


class AsyncReservation(ReservationBase):
    """The result of `reserve`, for asyncio. As a context manager it records on success and releases on error."""

    def __init__(self, key: str, reply: ReserveReply, context: Context, run: AsyncRunFlow) -> None:
        super().__init__(key, reply, context)
        self._run = run

    async def record(self) -> None:
        """Records that it was sent, which starts the quiet window. Safe to repeat; raises ReservationMismatch or
        UnknownReservation if the hold expired and another caller took the key, or an admin cleared it."""
        await self._run(self._recording())

    async def release(self) -> bool:
        """Frees the key at once and removes the hits, since it was not sent; False if there was nothing to free."""
        return await self._run(self._releasing())

    async def __aenter__(self) -> Self:
        return self._entered()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._is_over():
            return
        if error is None:
            await self.record()
            return
        try:
            await self.release()
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure)


class ReservationInfo(NamedTuple):
    """An active reservation as an admin sees it: a caller would be suppressed for `reason`, for `left` seconds.

    `suppressed` counts the refusals of this window; `sent` and `last_sent` go back 30 days. `unreadable` is why these
    two are unknown, if another program wrote them. `details` are those that the holder gave.
    """

    key: str
    reason: str
    left: float
    suppressed: int
    fence: int
    holder: str
    sent: int
    last_sent: datetime | None
    details: dict[str, str]
    unreadable: str = ""


# -- for admins


def listing(prefix: str, after: str, limit: int) -> Flow[list[ReservationInfo]]:
    """A page of the active reservations."""
    active = yield from flows.active(prefix, after, limit)
    return [_info(*each) for each in active]


def _info(entry: Entry, sent: flows.SendRecord, unreadable: str) -> ReservationInfo:
    reason = QUIET if entry.state is DONE else RESERVED
    last = datetime.fromisoformat(sent.last) if sent.last else None
    holder, details = describe(entry.info), details_of(entry.info)
    counts = entry.refused, entry.fence, holder, sent.sent, last
    return ReservationInfo(entry.name, reason, entry.left, *counts, details, unreadable)


def clearing(context: Context, flow: Flow[list[Entry]], reason: str) -> Flow[int]:
    """The number of reservations that the flow ended; logs each and reports it to the hook."""
    cleared = yield from flow
    for entry in cleared:
        facts = {"key": entry.key, "fence": entry.fence, "reason": reason}
        log.info("reservation_cleared: %(key)r (fence %(fence)d) was ended: %(reason)s", facts, extra=facts)
        if context.hook is not None:
            context.hook(Cleared(entry.key, entry.fence, reason))
    return len(cleared)
