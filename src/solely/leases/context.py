"""Context: the state that all methods of one client share: store, hook, cache, keeper of leases, outage rule."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import lru_cache
from threading import get_ident
from typing import Any, Protocol, TypeVar

from .. import events
from ..cache import Cache
from ..errors import Interrupted, InvalidInput, SolelyError, StoreUnavailable
from ..flow import Flow
from ..holder import Signature
from ..logs import get_logger
from ..model import Entry
from ..ops import Release
from ..resilience.breaker import Breaker
from ..resilience.guard import guarded
from ..rules import DAY, Seconds, are_plain, seconds, stored_key, ttl_seconds, wait_seconds
from ..stores import AsyncStore, Store, StoreBase
from .callbacks import CallbackThreads
from .flow import LeaseTerms
from .hold import FORKED, Hold
from .keeper import Keeper

log = get_logger()
R = TypeVar("R")
T = TypeVar("T")
MAX_MANY = 100_000  # keys in one call: as many as a process should hold in memory at a time


class Context:
    """The store, the leases, the cache and the hook of one client."""

    def __init__(
        self,
        store: StoreBase,
        *,
        wake: Callable[[str], None],
        hook: events.Hook | None,
        cache: Cache | None,
        start_keeping: Callable[[], None],
        caller: Callable[[], Any] = get_ident,
        signature: Callable[[], Signature] = Signature,
        proceed: bool = False,
        breaker: Breaker | None = None,
    ) -> None:
        self.store = store
        self.caller = caller  # → the id of the thread that calls, or its task
        self.signature = signature()  # writes the info of holds
        self.hook = hook
        self.cache = cache
        self.proceed = proceed  # while the store is unreachable
        self.breaker = breaker  # before the store
        self.fails_closed = not proceed and breaker is None  # the usual case
        self.failed_open = 0
        self.noted: dict[str, float] = {}  # limit → local time until which its last note of a refusal is recent
        self.keeper = Keeper(wake, self._report)
        self.callbacks = CallbackThreads()  # for those of lost leases, of a client for threads
        self._wake = wake
        self._sign = signature
        self._known_terms = lru_cache(maxsize=256, typed=True)(self._check_terms)  # a program uses few distinct terms
        self._start_keeping = start_keeping
        self._keeping = False

    def forked(self) -> None:
        """In the child of a fork: marks the parent's leases as lost, and writes a new signature."""
        for hold in list(self.keeper.holds):
            hold.lost = FORKED
        self.keeper = Keeper(self._wake, self._report)
        self.callbacks = CallbackThreads()
        self.signature = self._sign()
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

    # -- outages

    def or_proceed(self, key: str, what: str, flow: Flow[R], instead: Callable[[], R]) -> Flow[R]:
        """The flow's result; or `instead()`, counted, logged and reported to the hook, if the store is unreachable and
        this client proceeds without it.

        If the client has a breaker, the flow runs only while it is closed, or as its trial.
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
        except StoreUnavailable as unreachable:
            error = unreachable
        self.failed_open += 1
        facts = {"key": key, "what": what, "count": self.failed_open, "error": str(error)}
        text = "failed_open: %(what)s of %(key)r proceeded without the store, call %(count)d to do so: %(error)s"
        log.warning(text, facts, extra=facts)
        if self.hook is not None:
            self.hook(events.FailedOpen(key, what))
        return instead()

    # -- arguments

    def terms(self, ttl: Seconds, wait: Seconds, delay: Seconds) -> LeaseTerms:
        """The checked terms of a hold; raises InvalidInput before anything is sent."""
        try:
            return self._known_terms(ttl, wait, delay, self.store.polls)
        except TypeError:  # unhashable, so not a duration either: the check raises InvalidInput
            return self._check_terms(ttl, wait, delay, self.store.polls)

    def _check_terms(self, ttl: Seconds, wait: Seconds, delay: Seconds, polls: bool) -> LeaseTerms:
        pause = seconds("delay", delay, least=0.0, most=DAY)
        return LeaseTerms(ttl_seconds(ttl), wait_seconds(wait), pause, self.store.client, polls)

    # -- leases

    def keep(self, hold: Hold) -> None:
        """Starts to renew and watch the hold; does nothing for an unguarded one."""
        if hold.owner:
            if not self._keeping:
                self._keeping = True
                self._start_keeping()
            self.keeper.add(hold)

    def keeper_ended(self) -> None:
        """One of the keeper's two loops ended early (a cancelled task, an exit in a hook): the next hold restarts it,
        for all holds."""
        self._keeping = False

    def forget_cached(self, key: str) -> None:
        """Removes the key from the cache, if there is one."""
        if self.cache is not None:
            self.cache.drop(key)

    def closing(self) -> Flow[None]:
        """Releases all remaining holds, since a closed client renews none."""
        holds = list(self.keeper.holds)
        self.keeper.holds.clear()
        self.keeper.close()
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


class RunFlow(Protocol):
    """Performs a flow on the caller's thread."""

    def __call__(self, flow: Flow[T], /) -> T: ...


class AsyncRunFlow(Protocol):
    """Performs a flow in the caller's task."""

    def __call__(self, flow: Flow[T], /) -> Coroutine[Any, Any, T]: ...


class Methods:
    """Base of the blocking methods of a client: one subclass per noun."""

    _context: Context
    _store: Store
    _run: RunFlow


class AsyncMethods:
    """Base of the asyncio methods of a client: one subclass per noun."""

    _context: Context
    _store: AsyncStore
    _run: AsyncRunFlow


def keys_of(kind: str, keys: Iterable[str], *, least: int = 0) -> list[str]:
    """The stored keys, each checked; raises InvalidInput for too few or too many keys, or a text instead of a list."""
    if isinstance(keys, str | bytes):
        raise InvalidInput(f"give several keys as a list, not as one text: {keys!r:.80}")
    keys = list(keys)
    stored = [f"{kind}/{key}" for key in keys] if are_plain(keys) else [stored_key(kind, key) for key in keys]
    if not least <= len(stored) <= MAX_MANY:
        raise InvalidInput(f"{len(stored)} keys were given; give {least} to {MAX_MANY}")
    return stored
