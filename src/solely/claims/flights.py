"""Single flights: callers of one process that want the same claim share one request to the store, and its reply."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ..flow import RUN, Flow, Run, WakeAll
from ..leases.context import Context
from ..leases.keeper import Keeper
from ..model import Entry


class Done(NamedTuple):
    """A finished claim: its stored outcome, fingerprint, fence and attempts."""

    kept: bytes | None
    fingerprint: str
    fence: int
    attempts: int


class Flight:
    """The callers of this process that want one claim, and what they know of it: its outcome, or its holder."""

    __slots__ = ("callers", "done", "fingerprint", "holder_fingerprint", "mixed")

    def __init__(self, fingerprint: str) -> None:
        self.callers = 1
        self.done: Done | None = None
        self.fingerprint = fingerprint  # of the first caller
        self.holder_fingerprint = ""  # from the store's last reply to the first waiter
        self.mixed = False  # the callers have different payloads


class Flights:
    """The single flights of one client.

    A flight that knows the outcome serves the callers that have joined it, and no later ones; it ends when the last of
    them leaves. The cache, if there is one, serves later callers.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.forked()

    def forked(self) -> None:
        """Starts empty: the callers of the parent do not exist in the child of a fork."""
        self._cache = self.context.cache
        self._mutex = threading.RLock()  # a flow may be collected, and leave, while this thread joins
        self._in_flight: dict[str, Flight] = {}

    @property
    def keeper(self) -> Keeper:
        """The holds of this process."""
        return self.context.keeper

    def join(self, key: str, fingerprint: str) -> Flight:
        """Joins the flight of this key; the caller must leave it."""
        with self._mutex:
            flight = self._in_flight.get(key)
            if flight is None:
                flight = self._in_flight[key] = Flight(fingerprint)
                return flight
            flight.callers += 1
            if flight.fingerprint != fingerprint:
                flight.mixed = True
            return flight

    def leave(self, key: str, flight: Flight) -> None:
        """Leaves the flight; the last caller ends it."""
        with self._mutex:
            flight.callers -= 1
            if not flight.callers and self._in_flight.get(key) is flight:
                del self._in_flight[key]

    def known(self, key: str) -> Done | None:
        """The outcome, if the cache remembers it."""
        return None if self._cache is None else self._cache.get(key)

    def forget(self, key: str) -> None:
        """Removes the outcome from the cache."""
        if self._cache is not None:
            self._cache.drop(key)

    def wants(self, key: str) -> bool:
        """True if a caller, or the cache, needs the outcome of this key."""
        return self._cache is not None or key in self._in_flight

    def settle(self, key: str, done: Done, left: float) -> bool:
        """Passes the outcome, which is kept for `left` seconds, to the cache and the flight; False if there is none."""
        if self._cache is not None:
            self._cache.add(key, left, done, len(done.kept or b""))
        if key not in self._in_flight:
            return False
        with self._mutex:
            flight = self._in_flight.pop(key, None)
        if flight is None:
            return False
        flight.done = done
        return True


def note_holder(key: str, flight: Flight, fingerprint: str) -> Flow[None]:
    """Notes the holder's fingerprint, and wakes callers with another payload: they need not wait."""
    if flight.holder_fingerprint != fingerprint:
        flight.holder_fingerprint = fingerprint
        if flight.mixed:
            yield WakeAll(key)


def settled(entry: Entry, flights: Flights) -> Flow[Done]:
    """The outcome of the entry, passed to every caller of this process that waits for it."""
    done = Done(entry.value, entry.fingerprint, entry.fence, entry.attempts)
    if flights.wants(entry.key):
        run: Run = yield RUN
        if flights.settle(entry.key, done, entry.left - (run.now() - run.sent)):
            yield WakeAll(entry.key)
    return done
