"""Metrics for Prometheus: a hook that counts events, and timers for the store and for requests.

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
from .figures import HOLD, LATENCY, Figure, FigureRegistry

SAVE_EVERY = 1.0  # seconds between saves for the other workers: Prometheus scrapes every 15 s or so

ACQUIRED = Figure("solely_acquired", "Keys taken", ("kind",))
RESUMED = Figure("solely_resumed", "Holds taken over by their token", ("kind",))
CONTENDED = Figure("solely_contended", "Acquires refused at the end of their wait", ("kind",))
WAITED = Figure("solely_wait_seconds", "From requesting a key to holding it", ("kind",), LATENCY)
RENEWED = Figure("solely_renewed", "Leases extended", ("kind",))
LOST = Figure("solely_lost", "Leases that ended under their holder", ("kind", "how"))
CLEARED = Figure("solely_cleared", "Holds and quiet windows that an admin or a caller ended", ("kind",))
RELEASED = Figure("solely_released", "Leases released", ("kind", "outcome"))
HELD = Figure("solely_hold_seconds", "From holding a key to releasing it", ("kind",), HOLD)
MARKED = Figure("solely_marked", "Keys seen for the first time")
SUPPRESSED = Figure("solely_suppressed", "Work that was not done (again), by reason", ("reason",))
CLAIMED = Figure("solely_claimed", "Claims won")
TOOK_OVER = Figure("solely_took_over", "Claims won after another failed or died")
PUBLISHED = Figure("solely_published", "Results of claims published")
SUPERSEDED = Figure("solely_superseded", "Results that came too late, after another was published")
REPLAYED = Figure("solely_replayed", "Claims that returned the winner's result", ("cached",))
MISMATCHED = Figure("solely_mismatched", "Keys that were used again with another payload")
TIMED_OUT = Figure("solely_timed_out", "Claims neither won nor finished within their wait")
RESERVED = Figure("solely_reserved", "Reservations granted")
RECORDED = Figure("solely_recorded", "Reservations whose message was sent")
LIMITED = Figure("solely_limited", "Requests to limits", ("allowed",))
DEAD_LETTERED = Figure("solely_dead_lettered", "Items parked as dead letters")
REWOUND = Figure("solely_rewound", "Watermarks rewound")
TURNED = Figure("solely_breaker_turned", "Shared breakers that opened or closed", ("state",))
TICKS = Figure("solely_ticks", "Ticks of schedules that ended, by outcome", ("outcome",))
TICK_LATE = Figure("solely_tick_late_seconds", "From the time of a tick to its begin", (), LATENCY)
FAILED_OPEN = Figure("solely_failed_open", "Work done without the store, because of on_outage", ("what",))
RETRIED = Figure("solely_retried", "Ops that got no reply and were retried", ("op",))
OP_SECONDS = Figure("solely_op_seconds", "One round trip to the store", ("op",), LATENCY)
REQUESTS = Figure("solely_http_requests", "Requests handled", ("method", "route", "status"))
REQUEST_SECONDS = Figure("solely_http_request_seconds", "From a request to its response", ("route",), LATENCY)
CONNECTIONS_OPEN = Figure("solely_connections", "Open connections", ("state",), kind="gauge")
CONNECTIONS_EVICTED = Figure("solely_connections_evicted", "Connections closed to make room, by bound", ("bound",))
CONNECTIONS_REFUSED = Figure("solely_connections_refused", "Connections refused for lack of room, by bound", ("bound",))
HISTORY_DROPPED = Figure("solely_history_dropped", "Events that the history did not keep, for lack of room")

KNOWN = tuple(each for each in globals().values() if isinstance(each, Figure))


class Metrics(FigureRegistry):
    """All figures of the service. As a hook, it counts every event."""

    def __init__(self, folder: str = "") -> None:
        super().__init__(KNOWN, folder)
        self._counters: dict[type[events.Event], Callable[[Any], None]] = {
            events.Acquired: self._acquired,
            events.Resumed: lambda e: self.count(RESUMED, _kind(e)),
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
            events.TickEnded: self._ticked,
            events.FailedOpen: lambda e: self.count(FAILED_OPEN, e.what),
            events.Retried: lambda e: self.count(RETRIED, e.op.lower()),
        }

    def __call__(self, event: events.Event, /) -> None:
        counter = self._counters.get(type(event))
        if counter is not None:
            counter(event)

    def handled(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts and times a request."""
        self.count(REQUESTS, method, route, str(status))
        self.observe(REQUEST_SECONDS, seconds, route)

    def performed(self, ops: Sequence[Op], started: float, reply: asyncio.Future[Any]) -> None:
        """Times a round trip to the store."""
        name = _NAMES[type(ops[0])] if len(ops) == 1 else "batch"
        self.observe(OP_SECONDS, time.perf_counter() - started, name)

    def _acquired(self, event: events.Acquired) -> None:
        kind = _kind(event)
        self.count(ACQUIRED, kind)
        self.observe(WAITED, event.waited, kind)

    def _released(self, event: events.ReleasedLease) -> None:
        kind = _kind(event)
        self.count(RELEASED, kind, event.outcome)
        self.observe(HELD, event.held, kind)

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

    def _ticked(self, event: events.TickEnded) -> None:
        self.count(TICKS, event.outcome)
        self.observe(TICK_LATE, event.late)
        self.observe(HELD, event.took, _kind(event))

    async def keep_saving(self) -> None:
        """Saves the figures for the other workers until cancelled."""
        while True:
            await asyncio.sleep(SAVE_EVERY)
            self.save()


_NAMES = {kind: kind.__name__.lower() for kind in OPS}


def _kind(event: events.Event) -> str:
    return event.key.partition("/")[0]


class _TimedStore:
    """A store whose round trips are timed."""

    def __init__(self, store: AsyncStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def polls(self) -> bool:
        """As the store; each acquire asks, and `__getattr__` takes long."""
        return self._store.polls

    def perform(self, ops: Sequence[Op]) -> asyncio.Future[Any]:
        started = time.perf_counter()
        reply = asyncio.ensure_future(self._store.perform(ops))
        if reply.done():  # a memory store
            self._metrics.performed(ops, started, reply)
        else:
            reply.add_done_callback(partial(self._metrics.performed, ops, started))
        return reply


def timed(store: AsyncStore, metrics: Metrics) -> AsyncStore:
    """The store, with its round trips timed."""
    return cast(AsyncStore, _TimedStore(store, metrics))
