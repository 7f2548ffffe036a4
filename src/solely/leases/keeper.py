"""The keeper of leases: one loop per client renews all of them in batches; another reports losses, without network."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable

from ..errors import ClientClosed, Interrupted, StoreError, StoreUnavailable
from ..flow import RUN, Ask, Flow, Join, Run, Wait
from ..model import Entry
from ..ops import Renew
from .hold import Hold

RENEWALS, LOSSES = ":renewals", ":losses"  # keys on which the loops wait; stored keys have a slash, so none is the same
_TOGETHER = 0.05  # of the ttl: leases due that soon share a batch, so that many leases cost few wake-ups
_LULL = 1.0  # seconds: an idle client wakes once more after its last lease, a busy one about once a second
_RETRY = 0.1  # seconds between batches while the store is unreachable: several tries within the shortest useful lease


class Keeper:
    """The leases of one client. `wake` wakes a loop that would otherwise wake too late for a new lease."""

    def __init__(self, wake: Callable[[str], None], report: Callable[[Hold, Entry | None], None]) -> None:
        self.wake = wake
        self.report = report  # called for each renewal (with the entry) and each loss (with None)
        self.holds: dict[Hold, None] = {}
        self.here: dict[str, Hold] = {}  # the same by key: the current hold of this process
        self.closed = False
        self._busy = False
        self._order = threading.Lock()  # orders the reports on one hold; never held during a report
        self._reporting: Counter[Hold] = Counter()  # renewals being reported
        self._lost_meanwhile: set[Hold] = set()  # holds whose loss is reported right after that
        self.renews_at = self.watches_at = math.inf

    def add(self, hold: Hold) -> None:
        """Starts to keep this lease."""
        self.holds[hold] = None
        self.here[hold.key] = hold
        self._busy = True
        self.wake_for(hold)

    def wake_for(self, hold: Hold) -> None:
        """Wakes the loops that would otherwise wake too late for this lease."""
        if hold.renew_at < self.renews_at:
            self.wake(RENEWALS)
        if hold.deadline < self.watches_at:
            self.wake(LOSSES)

    def lull(self, now: float) -> float:
        """The next wake-up while nothing is held: soon after recent leases, so that new ones need not wake the loop."""
        busy, self._busy = self._busy, False
        return now + _LULL if busy else math.inf

    def remove(self, hold: Hold) -> bool:
        """Stops keeping the lease; False if it was not kept (lost, released or handed over before)."""
        if self.here.get(hold.key) is hold:
            self.here.pop(hold.key, None)
        return self.holds.pop(hold, _ABSENT) is not _ABSENT

    def renewed(self, hold: Hold, entry: Entry, ttl: float, sent: float) -> bool:
        """Extends the lease and reports that; False, with no report, if it was lost or released meanwhile."""
        with self._order:
            if hold not in self.holds:
                return False
            hold.extended(entry, ttl, sent)
            self._reporting[hold] += 1
        try:
            self.report(hold, entry)
        finally:
            self._was_reported(hold)
        return True

    def _was_reported(self, hold: Hold) -> None:
        """Reports a loss that another thread found while a renewal was being reported."""
        with self._order:
            self._reporting[hold] -= 1
            if self._reporting[hold]:
                return
            del self._reporting[hold]
            if hold not in self._lost_meanwhile:
                return
            self._lost_meanwhile.remove(hold)
        self._report_loss(hold)

    def lose(self, hold: Hold, how: str) -> None:
        """Marks the lease as lost and reports that once; no renewal of it is reported afterwards."""
        with self._order:
            if not self.remove(hold):
                return
            hold.lost = how
            if self._reporting[hold]:
                self._lost_meanwhile.add(hold)
                return
        self._report_loss(hold)

    def _report_loss(self, hold: Hold) -> None:
        self.wake(hold.key)  # waiters of this process must ask the store now
        self.report(hold, None)
        if hold.on_lost is not None:
            hold.on_lost(hold)

    def close(self) -> None:
        """Tells both loops to end."""
        self.closed = True
        self.wake(RENEWALS)
        self.wake(LOSSES)


_ABSENT = object()


def keep_renewing(keeper: Keeper) -> Flow[None]:
    """Renews every lease at half its ttl, in batches, and retries until its deadline; ends when the keeper closes."""
    yield Join(RENEWALS, 0.0)
    while not keeper.closed:
        keeper.renews_at = math.inf  # during this pass a new lease wakes the loop, and the wake-up is remembered
        now: float = yield Ask.NOW
        holds = list(keeper.holds)
        due = [h for h in holds if h.renew_at <= now + _TOGETHER * h.ttl]
        if due:
            try:
                failed = yield from _renew(keeper, due, now)
            except StoreError:
                failed = True
            except Interrupted as why:
                if isinstance(why.cause, ClientClosed):
                    return
                if not isinstance(why.cause, StoreUnavailable):
                    raise
                failed = True
            if failed:
                yield Wait(RENEWALS, _RETRY)
            continue
        keeper.renews_at = min((h.renew_at for h in holds), default=keeper.lull(now))
        yield Wait(RENEWALS, min(keeper.renews_at - now, 3600.0))


def _renew(keeper: Keeper, due: list[Hold], now: float) -> Flow[bool]:
    """Renews these in one batch; True if any renewal failed and must be retried."""
    ttls = [min(h.ttl, max(h.ends - now, 0.001)) for h in due]
    replies = yield [Renew(h.key, h.owner, ttl) for h, ttl in zip(due, ttls, strict=True)]
    run: Run = yield RUN
    sent, failed = run.sent, False
    for hold, ttl, reply in zip(due, ttls, replies, strict=True):
        if not isinstance(reply, Entry):
            failed = True
        elif reply.owner == hold.owner:
            keeper.renewed(hold, reply, ttl, sent)
        else:
            keeper.lose(hold, hold.gone(reply.gone))
    return failed


def keep_watching(keeper: Keeper) -> Flow[None]:
    """Reports each lease as lost at its local deadline, even if the network hangs."""
    yield Join(LOSSES, 0.0)
    while not keeper.closed:
        keeper.watches_at = math.inf
        now: float = yield Ask.NOW
        holds = list(keeper.holds)
        for hold in holds:
            how = hold.how(now)
            if how:
                keeper.lose(hold, how)
        keeper.watches_at = min((h.deadline for h in holds if not h.lost), default=keeper.lull(now))
        yield Wait(LOSSES, min(keeper.watches_at - now, 3600.0))
