"""Core: what a blocking and an asyncio client do alike: the flows, and what comes before and after them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from time import time
from typing import TypeVar

from . import events
from .cache import Cache
from .errors import Busy, Interrupted, InvalidInput, LeaseLost, SolelyError, StoreUnavailable
from .flows import lock
from .flows.flight import Desk, Flights
from .flows.hold import FORKED, Hold, Unguarded
from .flows.lock import Terms
from .flows.renewal import Book
from .flows.requests import RUN, Ask, Flow, Run
from .handles.lease import LeaseFace
from .handles.token import Token, read_token
from .holder import Signature
from .model import RELEASED, Entry, Released
from .ops import Release, Renew
from .resilience.breaker import Breaker
from .resilience.guard import guarded
from .rules import REMEMBER, Seconds, are_plain, local_clock, seconds, stored_key, ttl_seconds, wait_seconds
from .stores import StoreFace

log = logging.getLogger("solely")
L = TypeVar("L", bound=LeaseFace)
R = TypeVar("R")
MAX_MANY = 100_000  # keys in one call: what one process should hold in memory at a time


class Core:
    """The leases, the cache and the hook of one client."""

    def __init__(
        self,
        store: StoreFace,
        *,
        ring: Callable[[str], None],
        hook: events.Hook | None,
        cache: Cache | None,
        start_keeping: Callable[[], None],
        signature: Callable[[], Signature] = Signature,
        proceed: bool = False,
        breaker: Breaker | None = None,
    ) -> None:
        self.store = store
        self.hook = hook
        self.cache = cache
        self.proceed = proceed  # when the store is away
        self.breaker = breaker  # before the store
        self.fails_closed = not proceed and breaker is None  # the usual case
        self.failed_open = 0
        self.book = Book(ring, self._report)
        self.desk = Desk(self.book, Flights(cache))
        self._ring = ring
        self._sign = signature
        self._signature = signature()
        self._known_terms = lru_cache(maxsize=256, typed=True)(self._check_terms)  # few differ in one program
        self._start_keeping = start_keeping
        self._keeping = False

    def forked(self) -> None:
        """In the child of a fork: its leases are born lost, and its name is its own."""
        for hold in list(self.book.holds):
            hold.lost = FORKED
        self.book = Book(self._ring, self._report)
        self.desk = Desk(self.book, Flights(self.cache))
        self._signature = self._sign()
        self._known_terms.cache_clear()
        self._keeping = False
        if self.cache is not None:
            self.cache.forked()

    def _report(self, hold: Hold, renewed: Entry | None) -> None:
        if renewed is None:
            facts = {"key": hold.key, "fence": hold.fence, "how": hold.lost}
            log.warning("lease_lost: the lease of %(key)r (fence %(fence)d) was lost: %(how)s", facts, extra=facts)
        if self.hook is not None:
            event = (
                events.Lost(hold.key, hold.fence, hold.lost)
                if renewed is None
                else events.Renewed(hold.key, hold.fence, renewed.left)
            )
            self.hook(event)

    def or_proceed(self, key: str, what: str, flow: Flow[R], instead: Callable[[], R]) -> Flow[R]:
        """The flow's result; if the store is away and this client proceeds without it, `instead`: counted and told.

        Where the client has a breaker, the store is asked only if that lets the flow through.
        """
        if self.breaker is not None:
            flow = guarded(flow, self.breaker, key)
        return self._proceeding(key, what, flow, instead) if self.proceed else flow

    def _proceeding(self, key: str, what: str, flow: Flow[R], instead: Callable[[], R]) -> Flow[R]:
        try:
            return (yield from flow)
        except Interrupted as why:
            if not isinstance(why.cause, StoreUnavailable):
                raise
            error: SolelyError = why.cause
        except StoreUnavailable as away:
            error = away
        self.failed_open += 1
        facts = {"key": key, "what": what, "count": self.failed_open, "error": str(error)}
        log.warning("failed_open: %(what)s of %(key)r went on without the store: %(error)s", facts, extra=facts)
        if self.hook is not None:
            self.hook(events.FailedOpen(key, what))
        return instead()

    # -- lock

    def terms(self, ttl: Seconds, wait: Seconds, delay: Seconds) -> Terms:
        """The terms of a lock, checked; InvalidInput before anything is sent."""
        try:
            return self._known_terms(ttl, wait, delay, self.store.polls)
        except TypeError:  # cannot be hashed: nor is it a duration, which the check will say
            return self._check_terms(ttl, wait, delay, self.store.polls)

    def _check_terms(self, ttl: Seconds, wait: Seconds, delay: Seconds, polls: bool) -> Terms:
        pause = seconds("delay", delay, least=0.0, most=86_400.0)
        return Terms(ttl_seconds(ttl), wait_seconds(wait), pause, self.store.client, polls)

    def taking(self, key: str, terms: Terms, lease: Callable[[Hold], L], purpose: str = "") -> Flow[L]:
        """A lease of the key; Busy if it cannot be had in time."""
        flow = lock.acquire(key, terms, lease, info=self._signature.info(purpose), here=self.book.here)
        if self.hook is not None:
            flow = self._telling(flow, key, terms)
        if self.fails_closed:
            return flow
        return self.or_proceed(key, "lock", flow, lambda: lease(Unguarded(key, terms.ttl, local_clock())))

    def _telling(self, flow: Flow[L], key: str, terms: Terms) -> Flow[L]:
        try:
            return (yield from flow)
        except Busy as refusal:
            self._contended(key, terms, refusal)
            raise

    def taking_all(
        self, keys: Sequence[str], terms: Terms, lease: Callable[[Hold], L], purpose: str = ""
    ) -> Flow[list[L]]:
        """Leases of all keys, in the order given; Busy, with none held, if they cannot be had in time."""

        def unguarded() -> list[L]:
            return [lease(Unguarded(key, terms.ttl, local_clock())) for key in dict.fromkeys(keys)]

        return self.or_proceed(keys[0], "lock_all", self._taking_all(keys, terms, lease, purpose), unguarded)

    def _taking_all(self, keys: Sequence[str], terms: Terms, lease: Callable[[Hold], L], purpose: str) -> Flow[list[L]]:
        try:
            holds = yield from lock.acquire_all(keys, terms, info=self._signature.info(purpose))
        except Busy as refusal:
            self._contended(keys[0], terms, refusal)
            raise
        by_key = {hold.key: hold for hold in holds}
        return [lease(by_key[key]) for key in dict.fromkeys(keys)]

    def resuming(self, token: str, lease: Callable[[Hold], L]) -> Flow[L]:
        """The lease that the token names; Busy if it is no longer that owner's."""
        told = read_token(token)
        return lease((yield from lock.resume(told.key, told.owner, told.ttl)))

    def renewing_token(self, token: Token, ttl: Seconds | None) -> Flow[float]:
        """Extends the lease that the token names: the seconds it now has; LeaseLost if it is no longer that owner's."""
        entry: Entry = yield Renew(token.key, token.owner, token.ttl if ttl is None else ttl_seconds(ttl))
        if entry.owner != token.owner:
            how = entry.gone or "expired"
            text = f"lease of {entry.name!r} (fence {token.fence}) was lost: {how}; another may hold it now"
            raise LeaseLost(text, key=entry.name)
        if self.hook is not None:
            self.hook(events.Renewed(token.key, token.fence, entry.left))
        return entry.left

    def releasing_token(self, token: Token) -> Flow[Released]:
        """Lets go of the lease that the token names, and says truthfully whether it was still held."""
        held = max(0.0, time() - token.since)
        outcome = yield from lock.release_token(token.key, token.owner, token.fence, held > token.ttl + REMEMBER)
        if self.hook is not None:
            self.hook(events.ReleasedLease(token.key, token.fence, held, outcome.value))
        return outcome

    def clearing_lock(self, key: str, reason: str) -> Flow[bool]:
        """True if the lock was taken from whoever had it; that is logged, and hooks are told."""
        entry = yield from lock.clear(key, reason)
        if entry is None:
            return False
        facts = {"key": key, "fence": entry.fence, "reason": reason}
        log.warning("lock_cleared: %(key)r (fence %(fence)d) was taken from its holder: %(reason)s", facts, extra=facts)
        if self.hook is not None:
            self.hook(events.Cleared(key, entry.fence, reason))
        return True

    def info(self, purpose: str) -> str:
        """Who asks, and what for, as it is kept beside a hold; InvalidInput if the purpose is no text."""
        return self._signature.info(purpose)

    def keep(self, hold: Hold) -> None:
        """Renews and watches the hold from now on, if anything is held."""
        if hold.owner:
            if not self._keeping:
                self._keeping = True
                self._start_keeping()
            self.book.add(hold)

    def keeper_ended(self) -> None:
        """One of its two loops was ended by others (a cancelled task, an exit in a hook): the next hold starts it
        anew, for all that are held."""
        self._keeping = False

    def kept(self, lease: L) -> L:
        """The lease, which is renewed and watched from now on."""
        hold = lease._hold
        if self._keeping and hold.owner:  # as `keep`, without a call of its own in the usual case
            self.book.add(hold)
        else:
            self.keep(hold)
        if self.hook is not None and hold.owner:
            self.hook(events.Acquired(hold.key, hold.fence, hold.waited, hold.attempts))
        return lease

    def _contended(self, key: str, terms: Terms, refusal: Busy) -> None:
        if self.hook is not None:
            self.hook(events.Contended(key, terms.wait, refusal.holder))

    def renewing(self, lease: LeaseFace, ttl: Seconds | None) -> Flow[None]:
        """Extends the lease now; LeaseLost if it is no longer ours."""
        hold = lease._hold
        wanted = hold.ttl if ttl is None else ttl_seconds(ttl)
        if lease.unguarded:
            return
        now: float = yield Ask.NOW
        if hold.how(now):
            raise lease._lost_error()
        bounded = min(wanted, max(0.001, hold.ends - now))
        entry: Entry = yield Renew(hold.key, hold.owner, bounded)
        run: Run = yield RUN
        if entry.owner != hold.owner:
            self.book.lose(hold, hold.gone(entry.gone))
            raise lease._lost_error()
        hold.ttl = wanted
        if not self.book.renewed(hold, entry, bounded, run.sent):
            raise lease._lost_error()
        self.book.wake_for(hold)

    def ensuring(self, lease: LeaseFace, needed: Seconds) -> Flow[None]:
        """Returns only if at least that many seconds are left, renewing if need be; LeaseLost if it cannot."""
        wanted = lease._wanted(needed)
        if lease.lost:
            raise lease._lost_error()
        if lease.remaining() < wanted:
            yield from self.renewing(lease, None)
            left = lease.remaining()
            if left < wanted and not lease.lost:
                text = f"lease of {lease.key!r} has {left:.3g} s left, not {wanted:g} s: max_hold ends it then"
                raise LeaseLost(text, key=lease.key)
            if left < wanted:
                raise lease._lost_error()

    def releasing(self, lease: LeaseFace) -> Flow[Released]:
        """Lets go, and says truthfully whether it was still held."""
        hold = lease._hold
        self.book.remove(hold)
        return lock.release(hold)

    def releasing_all(self, leases: Sequence[LeaseFace]) -> Flow[list[Released]]:
        """Lets go of all in one batch, and says truthfully whether each was still held."""
        for lease in leases:
            self.book.remove(lease._hold)
        return lock.release_all([lease._hold for lease in leases])

    def released(self, lease: LeaseFace, outcome: Released) -> Released:
        """The end of a lease, told."""
        lease._over = True
        if self.hook is not None:
            self.hook(events.ReleasedLease(lease._hold.key, lease.fence, lease.held(), outcome.value))
        return outcome

    def left(self, lease: LeaseFace, outcome: Released, error: BaseException | None) -> None:
        """The end of a guarded body: raises LeaseLost if it outlived its lease; never masks the body's own error."""
        lease._over = True
        if self.hook is not None:
            self.released(lease, outcome)
        if outcome is not RELEASED and error is None and not lease.unguarded:
            raise lease._lost_error()

    def left_all(self, leases: Sequence[LeaseFace], outcomes: list[Released], error: BaseException | None) -> None:
        """As `left`, for the leases of `lock_all`."""
        for lease, outcome in zip(leases, outcomes, strict=True):
            self.released(lease, outcome)
        lost = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is not RELEASED]
        if lost and error is None and not lost[0].unguarded:
            raise lost[0]._lost_error()

    def not_left(self, lease: LeaseFace, failure: SolelyError, error: BaseException | None) -> None:
        """The release at the end of a guarded body failed: raised, unless that would mask the body's own error."""
        if error is None:
            raise failure
        facts = {"key": lease.key, "error": str(failure)}
        log.warning(
            "release_failed: %(key)r was not released, and stays held until its ttl is over: %(error)s",
            facts,
            extra=facts,
        )

    def drop(self, lease: LeaseFace, how: str) -> None:
        """Stops keeping the lease, without letting go."""
        self.book.remove(lease._hold)
        self.book.ring(lease._hold.key)  # who waits for it here has to ask the store now
        lease._hold.lost = how
        lease._over = True

    def closing(self) -> Flow[None]:
        """Lets go of everything still held, since nobody will renew it any more."""
        holds = list(self.book.holds)
        self.book.holds.clear()
        self.book.close()
        for hold in holds:
            hold.lost = "closed"
        if holds:
            facts = {"count": len(holds), "key": holds[0].key}
            log.warning(
                "client_closed_with_leases: the client was closed while it held leases (%(count)d, such as "
                "%(key)r); they are released",
                facts,
                extra=facts,
            )
            yield [Release(hold.key, hold.owner, hold.doubtful) for hold in holds]


def keys_of(kind: str, keys: Iterable[str], *, least: int = 0) -> list[str]:
    """The stored keys, each checked; InvalidInput if there are too few or many, or if one text was given for many."""
    if isinstance(keys, str | bytes):
        raise InvalidInput(f"give several keys as a list, not as one text: {keys!r:.80}")
    keys = list(keys)
    stored = [f"{kind}/{key}" for key in keys] if are_plain(keys) else [stored_key(kind, key) for key in keys]
    if not least <= len(stored) <= MAX_MANY:
        raise InvalidInput(f"{len(stored)} keys were given; give {least} to {MAX_MANY}")
    return stored
