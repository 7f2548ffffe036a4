"""Flights: the callers of one process who want the same claim share one question to the store, and its answer."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ..flow import RUN, Flow, Run, WakeAll
from ..leases.context import Context
from ..leases.keeper import Keeper
from ..model import Entry


class Done(NamedTuple):
    """A finished claim: what is kept of it, and whose it is."""

    kept: bytes | None
    fingerprint: str
    fence: int
    attempts: int


class Flight:
    """The callers of this process that want one claim, and what they know: its outcome, or whom they wait for."""

    __slots__ = ("asked_as", "callers", "done", "held_as", "mixed")

    def __init__(self, fingerprint: str) -> None:
        self.callers = 1
        self.done: Done | None = None
        self.asked_as = fingerprint  # by the first caller
        self.held_as = ""  # the fingerprint of the holder, as the first of the line last heard it
        self.mixed = False  # not all callers ask for the same payload


class Flights:
    """The single flights of one client: callers that want the same claim at the same time share one request.

    A flight that has learned the outcome serves the callers that have joined it, and none that comes later; it is gone
    when the last of them has left. Later callers are served by the cache, if there is one.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.forked()

    def forked(self) -> None:
        """Starts empty: in the child of a fork, nobody of the parent waits."""
        self._cache = self.context.cache
        self._mutex = threading.RLock()  # a flow that is collected may leave while this very thread joins
        self._under_way: dict[str, Flight] = {}

    @property
    def keeper(self) -> Keeper:
        """The holds of this process."""
        return self.context.keeper

    def join(self, key: str, fingerprint: str) -> Flight:
        """The flight of this key; who joins it must leave it."""
        with self._mutex:
            flight = self._under_way.get(key)
            if flight is None:
                flight = self._under_way[key] = Flight(fingerprint)
                return flight
            flight.callers += 1
            if flight.asked_as != fingerprint:
                flight.mixed = True
            return flight

    def leave(self, key: str, flight: Flight) -> None:
        """Leaves the flight; the last caller ends it."""
        with self._mutex:
            flight.callers -= 1
            if not flight.callers and self._under_way.get(key) is flight:
                del self._under_way[key]

    def known(self, key: str) -> Done | None:
        """The outcome, if the cache remembers it."""
        return None if self._cache is None else self._cache.get(key)

    def forget(self, key: str) -> None:
        """Removes the outcome from the cache."""
        if self._cache is not None:
            self._cache.drop(key)

    def cares_for(self, key: str) -> bool:
        """True if anyone, or the cache, wants to hear the outcome of this key."""
        return self._cache is not None or key in self._under_way

    def settle(self, key: str, done: Done, left: float) -> bool:
        """The outcome is known, for as long as it has left; False if nobody has joined."""
        if self._cache is not None:
            self._cache.add(key, left, done, len(done.kept or b""))
        if key not in self._under_way:
            return False
        with self._mutex:
            flight = self._under_way.pop(key, None)
        if flight is None:
            return False
        flight.done = done
        return True


def heard(key: str, flight: Flight, held_as: str) -> Flow[None]:
    """The holder's fingerprint is known: a caller with another payload need not wait."""
    if flight.held_as != held_as:
        flight.held_as = held_as
        if flight.mixed:
            yield WakeAll(key)


def settled(entry: Entry, flights: Flights) -> Flow[Done]:
    """The outcome that was just answered, which everyone of this process who waits for it now knows as well."""
    done = Done(entry.value, entry.fingerprint, entry.fence, entry.attempts)
    if flights.cares_for(entry.key):
        run: Run = yield RUN
        if flights.settle(entry.key, done, entry.left - (run.now() - run.sent)):
            yield WakeAll(entry.key)
    return done
