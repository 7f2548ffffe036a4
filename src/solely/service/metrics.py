"""Metrics: the hook that counts events for Prometheus, and what times the store and the requests.

Labels are bounded (kinds, ops, routes, outcomes); a key is never one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from .. import events
from ..ops import OPS, Op
from ..stores import AsyncStore
from .figures import HOLD, LATENCY, Figure, Figures

SAVED = 1.0  # seconds between one worker's figures being left for the others: Prometheus asks every 15 s or so

ACQUIRED = Figure("solely_acquired", "Keys taken", ("kind",))
CONTENDED = Figure("solely_contended", "Acquires refused at the end of their wait", ("kind",))
WAITED = Figure("solely_wait_seconds", "From asking for a key to having it", ("kind",), LATENCY)
RENEWED = Figure("solely_renewed", "Leases extended", ("kind",))
LOST = Figure("solely_lost", "Leases that ended under their holder", ("kind", "how"))
CLEARED = Figure("solely_cleared", "Holds and quiet windows that were ended on purpose", ("kind",))
RELEASED = Figure("solely_released", "Leases let go of", ("kind", "outcome"))
HELD = Figure("solely_hold_seconds", "From having a key to letting it go", ("kind",), HOLD)
MARKED = Figure("solely_marked", "Keys seen for the first time")
SUPPRESSED = Figure("solely_suppressed", "What was not done (again), by reason", ("reason",))
CLAIMED = Figure("solely_claimed", "Claims won")
TOOK_OVER = Figure("solely_took_over", "Claims won after another failed or died")
PUBLISHED = Figure("solely_published", "Results of claims published")
SUPERSEDED = Figure("solely_superseded", "Results that came too late: another's stands")
REPLAYED = Figure("solely_replayed", "Claims answered with the winner's result", ("cached",))
MISMATCHED = Figure("solely_mismatched", "Keys that came again with another payload")
TIMED_OUT = Figure("solely_timed_out", "Claims neither won nor finished within their wait")
RESERVED = Figure("solely_reserved", "Reservations granted")
RECORDED = Figure("solely_recorded", "Reservations whose message was sent")
LIMITED = Figure("solely_limited", "Limits asked for", ("allowed",))
DEAD_LETTERED = Figure("solely_dead_lettered", "Items parked as dead letters")
REWOUND = Figure("solely_rewound", "Watermarks taken back on purpose")
TURNED = Figure("solely_breaker_turned", "Shared breakers that opened or closed", ("state",))
FAILED_OPEN = Figure("solely_failed_open", "Work done without the store, as on_outage says", ("what",))
RETRIED = Figure("solely_retried", "Ops that went unanswered and were repeated", ("op",))
OP_SECONDS = Figure("solely_op_seconds", "One round trip to the store", ("op",), LATENCY)
REQUESTS = Figure("solely_http_requests", "Requests answered", ("method", "route", "status"))
REQUEST_SECONDS = Figure("solely_http_request_seconds", "From a request to its answer", ("route",), LATENCY)
CONNECTIONS_OPEN = Figure("solely_connections", "Open connections", ("state",), kind="gauge")
CONNECTIONS_EVICTED = Figure("solely_connections_evicted", "Connections closed to make room, by bound", ("bound",))
CONNECTIONS_REFUSED = Figure("solely_connections_refused", "Connections refused for lack of room, by bound", ("bound",))

KNOWN = tuple(each for each in globals().values() if isinstance(each, Figure))


class Metrics(Figures):
    """Counts what happens: as a hook, every event."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(KNOWN, folder)
        self._tell: dict[type[events.Event], Callable[[Any], None]] = {
            events.Acquired: self._acquired,
            events.Contended: lambda e: self.count(CONTENDED, _kind(e)),
            events.Renewed: lambda e: self.count(RENEWED, _kind(e)),
            events.Lost: lambda e: self.count(LOST, _kind(e), e.how),
            events.Cleared: lambda e: self.count(CLEARED, _kind(e)),
            events.ReleasedLease: self._released,
            events.Marked: lambda e: self.count(MARKED) if e.first else self.count(SUPPRESSED, "seen"),
            events.Claimed: self._claimed,
            events.Published: self._published,
            events.Replayed: lambda e: self.count(REPLAYED, str(e.cached).lower()),
            events.Mismatched: lambda e: self.count(MISMATCHED),
            events.TimedOut: lambda e: self.count(TIMED_OUT),
            events.Reserved: lambda e: self.count(RESERVED),
            events.Recorded: self._recorded,
            events.Suppressed: lambda e: self.count(SUPPRESSED, e.reason),
            events.Limited: lambda e: self.count(LIMITED, str(e.allowed).lower()),
            events.DeadLettered: lambda e: self.count(DEAD_LETTERED),
            events.Rewound: lambda e: self.count(REWOUND),
            events.BreakerTurned: lambda e: self.count(TURNED, e.state),
            events.FailedOpen: lambda e: self.count(FAILED_OPEN, e.what),
            events.Retried: lambda e: self.count(RETRIED, e.op.lower()),
        }

    def __call__(self, event: events.Event, /) -> None:
        tell = self._tell.get(type(event))
        if tell is not None:
            tell(event)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.count(REQUESTS, method, route, str(status))
        self.observe(REQUEST_SECONDS, seconds, route)

    def performed(self, ops: Sequence[Op], started: float, answer: asyncio.Future[Any]) -> None:
        """The store answered, or failed to."""
        name = _NAMES[type(ops[0])] if len(ops) == 1 else "batch"
        self.observe(OP_SECONDS, time.perf_counter() - started, name)

    def _acquired(self, event: events.Acquired) -> None:
        self.count(ACQUIRED, _kind(event))
        self.observe(WAITED, event.waited, _kind(event))

    def _released(self, event: events.ReleasedLease) -> None:
        self.count(RELEASED, _kind(event), event.outcome)
        self.observe(HELD, event.held, _kind(event))

    def _claimed(self, event: events.Claimed) -> None:
        self.count(CLAIMED)
        self.observe(WAITED, event.waited, _kind(event))
        if event.attempt > 1:
            self.count(TOOK_OVER)

    def _published(self, event: events.Published) -> None:
        self.count(SUPERSEDED if event.superseded else PUBLISHED)
        self.observe(HELD, event.held, _kind(event))

    def _recorded(self, event: events.Recorded) -> None:
        self.count(RECORDED)
        self.observe(HELD, event.held, _kind(event))

    async def keep_saving(self) -> None:
        """Leaves the figures for the other workers, again and again."""
        while True:
            await asyncio.sleep(SAVED)
            self.save()


_NAMES = {kind: kind.__name__.lower() for kind in OPS}


def _kind(event: events.Event) -> str:
    return event.key.partition("/")[0]


class _TimedStore:
    """A store whose round trips are timed; in all else the store itself."""

    def __init__(self, store: AsyncStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def perform(self, ops: Sequence[Op]) -> asyncio.Future[Any]:
        started = time.perf_counter()
        asked = self._store.perform(ops)
        answer: asyncio.Future[Any] = asked if isinstance(asked, asyncio.Future) else asyncio.ensure_future(asked)
        if answer.done():  # a store in memory
            self._metrics.performed(ops, started, answer)
        else:
            answer.add_done_callback(partial(self._metrics.performed, ops, started))
        return answer


def timed(store: AsyncStore, metrics: Metrics) -> AsyncStore:
    """The store, whose round trips are timed from now on."""
    return cast(AsyncStore, _TimedStore(store, metrics))
