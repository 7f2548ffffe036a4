"""Reservations: what a caller is answered, for threads and for asyncio."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import NamedTuple, Self

from ..errors import Busy, ClientClosed, Limited, Refused, StoreError
from ..events import Cleared
from ..flow import Flow
from ..holder import describe, purpose_of
from ..leases.context import AsyncRunFlow, Context, RunFlow
from ..leases.hold import FORKED
from ..model import DONE, Entry
from ..rules import local_clock
from . import flow as flows
from .calls import recording, releasing
from .flow import LIMITED, QUIET, RESERVED, ReserveReply
from .ids import id_of

log = logging.getLogger("solely")


class ReservationBase:
    """Granted, and then truthy: this caller may send. Or suppressed: falsy, and `reason` is reserved, quiet or limited.

    `retry_after` says in how many seconds asking again may help, `count` how many were suppressed in this window;
    `holder` is who is in the way, as a phrase, and `purpose` what that one said it is for, where that is known.
    """

    def __init__(self, key: str, answer: ReserveReply, context: Context) -> None:
        self.key = key
        self.reason = answer.reason
        self.retry_after = answer.retry_after
        self.count = answer.suppressed
        self._info = answer.info
        self._hold = answer.hold
        self._ticket = answer.ticket
        self._context = context
        self._recorded = self._released = self._handed_over = False

    def __bool__(self) -> bool:
        return self._hold is not None

    @property
    def id(self) -> str:
        """What another process needs to renew, record or release it; "" if nothing is reserved. A secret."""
        return id_of(self._ticket) if self._ticket is not None else ""

    def hand_over(self) -> str:
        """Stops keeping the reservation here, without letting go, and returns its id for whoever goes on with it. It is
        released here no more, and the end of a block does not record it either."""
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
        """1, or more if the holds before ran out or met their limit; 0 if nothing is reserved."""
        return self._hold.attempts if self._hold is not None else 0

    @property
    def holder(self) -> str:
        """Who is in the way, as a phrase; "" if nobody is, or if it is not known."""
        return describe(self._info) if self._info else ""

    @property
    def purpose(self) -> str:
        """What the one in the way said it is for; "" if nothing."""
        return purpose_of(self._info)

    @property
    def unguarded(self) -> bool:
        """True if the store was away and this client went on without it (`on_outage="proceed"`): nothing is held."""
        return self._hold is not None and not self._hold.owner

    @property
    def lost(self) -> bool:
        """True as soon as the hold may no longer be relied on: another may be sending now."""
        return self._hold is not None and not self._settled and bool(self._hold.how(local_clock()))

    def remaining(self) -> float:
        """Seconds that the hold may be relied on, if nobody renews it; 0 if it is lost or over."""
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

    def _leaves_it(self) -> bool:
        """True if there is nothing to end here: it was ended before, was handed over, or is the parent's of a fork."""
        return self._settled or self._handed_over or (self._hold is not None and self._hold.lost == FORKED)

    def _not_released(self, failure: Exception) -> None:
        facts = {"key": self.key, "error": str(failure)}
        log.warning(
            "release_failed: the reservation %(key)r was not released, and is held until it runs out: %(error)s",
            facts,
            extra=facts,
        )

    def _refusal(self) -> Refused:
        text = f"reservation {self.key!r} is suppressed ({self.reason}); ask again in {self.retry_after:.1f} s"
        kind = Limited if self.reason == LIMITED else Busy
        return kind(text, key=self.key, left=self.retry_after)

    def _recording(self) -> Flow[None]:
        if self._hold is None:
            raise self._refusal()
        if self._ticket is not None and not self._recorded:
            yield from recording(self._context, self._ticket, self._hold)
        self._recorded = True

    def _releasing(self) -> Flow[bool]:
        if self._ticket is None or self._leaves_it():
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
    """The answer to a reserve, for threads. As a context manager it records on success and releases on error."""

    def __init__(self, key: str, answer: ReserveReply, context: Context, run: RunFlow) -> None:
        super().__init__(key, answer, context)
        self._run = run

    def record(self) -> None:
        """It was sent: starts the quiet window. Safe to repeat; raises ReservationMismatch or UnknownReservation if the
        hold had run out and another took the key, or an admin cleared it."""
        self._run(self._recording())

    def release(self) -> bool:
        """It was not sent: frees the key at once and gives the hits back; False if there was nothing to free."""
        return self._run(self._releasing())

    def __enter__(self) -> Self:
        return self._entered()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._leaves_it():
            return
        if error is None:
            self.record()
            return
        try:
            self.release()
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure)


class AsyncReservation(ReservationBase):
    """The answer to a reserve, for asyncio. As a context manager it records on success and releases on error."""

    def __init__(self, key: str, answer: ReserveReply, context: Context, run: AsyncRunFlow) -> None:
        super().__init__(key, answer, context)
        self._run = run

    async def record(self) -> None:
        """It was sent: starts the quiet window. Safe to repeat; raises ReservationMismatch or UnknownReservation if the
        hold had run out and another took the key, or an admin cleared it."""
        await self._run(self._recording())

    async def release(self) -> bool:
        """It was not sent: frees the key at once and gives the hits back; False if there was nothing to free."""
        return await self._run(self._releasing())

    async def __aenter__(self) -> Self:
        return self._entered()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._leaves_it():
            return
        if error is None:
            await self.record()
            return
        try:
            await self.release()
        except (StoreError, ClientClosed) as failure:
            self._not_released(failure)


class ReservationInfo(NamedTuple):
    """An active reservation as an admin sees it: `reason` is what a caller would be told, `left` for how long.

    `suppressed` counts the refusals of this window; `sent` and `last_sent` go back 30 days. `unreadable` says why these
    two are not known, if something else than Solely wrote them.
    """

    key: str
    reason: str
    left: float
    suppressed: int
    fence: int
    holder: str
    sent: int
    last_sent: datetime | None
    unreadable: str = ""


# -- what an admin sees and does


def listing(prefix: str, after: str, limit: int) -> Flow[list[ReservationInfo]]:
    """A page of the active ones."""
    active = yield from flows.active(prefix, after, limit)
    return [_info(*each) for each in active]


def _info(entry: Entry, sent: flows.SendRecord, unreadable: str) -> ReservationInfo:
    reason = QUIET if entry.state is DONE else RESERVED
    last = datetime.fromisoformat(sent.last) if sent.last else None
    who = describe(entry.info)
    return ReservationInfo(entry.name, reason, entry.left, entry.refused, entry.fence, who, sent.sent, last, unreadable)


def clearing(context: Context, flow: Flow[list[Entry]], reason: str) -> Flow[int]:
    """How many reservations an admin ended; each is logged, and hooks are told."""
    cleared = yield from flow
    for entry in cleared:
        facts = {"key": entry.key, "fence": entry.fence, "reason": reason}
        log.info("reservation_cleared: %(key)r (fence %(fence)d) was ended: %(reason)s", facts, extra=facts)
        if context.hook is not None:
            context.hook(Cleared(entry.key, entry.fence, reason))
    return len(cleared)
