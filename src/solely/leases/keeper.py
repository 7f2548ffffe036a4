"""The keeper of leases: one loop per client renews all of them in batches; another, without network, reports loss."""

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

RENEWALS, LOSSES = ":renewals", ":losses"  # lines of their own; stored keys have a slash, so they never meet
_TOGETHER = (
    0.05  # of the ttl: leases due that soon are renewed in the same batch, so that many leases cost few wake-ups
)
_LULL = 1.0  # seconds: an idle client wakes once more after its last lease, a busy one about once a second
_RETRY = 0.1  # seconds between batches while the store is away: several tries within the shortest useful lease


class Keeper:
    """The leases of one client. `wake` wakes a loop whose next wake-up would be too late for a new lease."""

    def __init__(self, wake: Callable[[str], None], report: Callable[[Hold, Entry | None], None]) -> None:
        self.wake = wake
        self.report = report  # is told of each renewal (with the entry) and of each loss (None)
        self.holds: dict[Hold, None] = {}
        self.here: dict[str, Hold] = {}  # the same by key: who of this process has it
        self.closed = False
        self._busy = False
        self._order = threading.Lock()  # of what is reported of one hold; never held while it is reported
        self._reporting: Counter[Hold] = Counter()  # renewals that are being reported
        self._lost_meanwhile: set[Hold] = set()  # whose loss is reported right after that
        self.renews_at = self.watches_at = math.inf

    def add(self, hold: Hold) -> None:
        """Keeps this lease from now on."""
        self.holds[hold] = None
        self.here[hold.key] = hold
        self._busy = True
        self.wake_for(hold)

    def wake_for(self, hold: Hold) -> None:
        """Wakes the loops whose next wake-up would be too late for it."""
        if hold.renew_at < self.renews_at:
            self.wake(RENEWALS)
        if hold.deadline < self.watches_at:
            self.wake(LOSSES)

    def lull(self, now: float) -> float:
        """When to look again although nothing is held: soon, if leases come and go, so that they need not wake."""
        busy, self._busy = self._busy, False
        return now + _LULL if busy else math.inf

    def remove(self, hold: Hold) -> bool:
        """Forgets it; False if it was not kept (lost, released or handed over before)."""
        if self.here.get(hold.key) is hold:
            self.here.pop(hold.key, None)
        return self.holds.pop(hold, _ABSENT) is not _ABSENT

    def renewed(self, hold: Hold, entry: Entry, ttl: float, sent: float) -> bool:
        """Extends it and reports that; False, and nothing is reported, if it was lost or let go of meanwhile."""
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
        """Reports a loss that was found while a renewal was being reported, by another thread."""
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
        """Marks it lost and tells its holder, once; after that no renewal of it is reported."""
        with self._order:
            if not self.remove(hold):
                return
            hold.lost = how
            if self._reporting[hold]:
                self._lost_meanwhile.add(hold)
                return
        self._report_loss(hold)

    def _report_loss(self, hold: Hold) -> None:
        self.wake(hold.key)  # who waits for it here has to ask the store now
        self.report(hold, None)
        if hold.on_lost is not None:
            hold.on_lost(hold)

    def close(self) -> None:
        """Ends both loops."""
        self.closed = True
        self.wake(RENEWALS)
        self.wake(LOSSES)


_ABSENT = object()


def keep_renewing(book: Keeper) -> Flow[None]:
    """Renews every lease at half its ttl, in batches, and tries again until its deadline; ends only with the book."""
    yield Join(RENEWALS, 0.0)
    while not book.closed:
        book.renews_at = math.inf  # while looking: whoever comes meanwhile rings, and the wake is remembered
        now: float = yield Ask.NOW
        holds = list(book.holds)
        due = [h for h in holds if h.renew_at <= now + _TOGETHER * h.ttl]
        if due:
            try:
                failed = yield from _renew(book, due, now)
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
        book.renews_at = min((h.renew_at for h in holds), default=book.lull(now))
        yield Wait(RENEWALS, min(book.renews_at - now, 3600.0))


def _renew(book: Keeper, due: list[Hold], now: float) -> Flow[bool]:
    """One batch; True if any of them got no answer of use, so that it must be asked again."""
    ttls = [min(h.ttl, max(h.ends - now, 0.001)) for h in due]
    replies = yield [Renew(h.key, h.owner, ttl) for h, ttl in zip(due, ttls, strict=True)]
    run: Run = yield RUN
    sent, failed = run.sent, False
    for hold, ttl, reply in zip(due, ttls, replies, strict=True):
        if not isinstance(reply, Entry):
            failed = True
        elif reply.owner == hold.owner:
            book.renewed(hold, reply, ttl, sent)
        else:
            book.lose(hold, hold.gone(reply.gone))
    return failed


def keep_watching(book: Keeper) -> Flow[None]:
    """Tells each holder at its local deadline that its lease is lost, whatever the network does."""
    yield Join(LOSSES, 0.0)
    while not book.closed:
        book.watches_at = math.inf
        now: float = yield Ask.NOW
        holds = list(book.holds)
        for hold in holds:
            how = hold.how(now)
            if how:
                book.lose(hold, how)
        book.watches_at = min((h.deadline for h in holds if not h.lost), default=book.lull(now))
        yield Wait(LOSSES, min(book.watches_at - now, 3600.0))
