"""Flights: the callers of one process who want the same claim share one question to the store, and its answer."""

from __future__ import annotations

import threading
from typing import NamedTuple

from ..cache import Cache
from ..model import Entry
from .renewal import Book
from .requests import RUN, Flow, Run, Tell


class Done(NamedTuple):
    """A finished claim: what is kept of it, and whose it is."""

    kept: bytes | None
    fingerprint: str
    fence: int
    attempts: int


class Flight:
    """Those of this process who want one claim, and what they know: its outcome, or of whom they wait to hear it."""

    __slots__ = ("aboard", "asked_as", "done", "held_as", "mixed")

    def __init__(self, fingerprint: str) -> None:
        self.aboard = 1
        self.done: Done | None = None
        self.asked_as = fingerprint  # by the first on board
        self.held_as = ""  # the fingerprint of the holder, as the first of the line last heard it
        self.mixed = False  # not all on board ask for the same payload


class Flights:
    """The flights under way, by key. One that has learned the outcome serves those on board and nobody who comes later;
    one that nobody is on board of any more is gone. Later callers are served by the cache, if there is one."""

    def __init__(self, cache: Cache | None = None) -> None:
        self._cache = cache
        self._mutex = threading.RLock()  # a flow that is garbage may leave while this very thread boards
        self._under_way: dict[str, Flight] = {}

    def board(self, key: str, fingerprint: str) -> Flight:
        """The flight of this key; who boards it must leave it."""
        with self._mutex:
            flight = self._under_way.get(key)
            if flight is None:
                flight = self._under_way[key] = Flight(fingerprint)
                return flight
            flight.aboard += 1
            if flight.asked_as != fingerprint:
                flight.mixed = True
            return flight

    def leave(self, key: str, flight: Flight) -> None:
        """One less on board; the last one ends the flight."""
        with self._mutex:
            flight.aboard -= 1
            if not flight.aboard and self._under_way.get(key) is flight:
                del self._under_way[key]

    def known(self, key: str) -> Done | None:
        """The outcome, if the cache remembers it."""
        return None if self._cache is None else self._cache.get(key)

    def forget(self, key: str) -> None:
        """The cache remembers it no more."""
        if self._cache is not None:
            self._cache.drop(key)

    def cares_for(self, key: str) -> bool:
        """True if anyone, or the cache, wants to hear the outcome of this key."""
        return self._cache is not None or key in self._under_way

    def settle(self, key: str, done: Done, left: float) -> bool:
        """The outcome is known, for as long as it has left; False if nobody is on board to hear it."""
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
    """The holder's fingerprint is known: whoever on board asks for another payload need not wait."""
    if flight.held_as != held_as:
        flight.held_as = held_as
        if flight.mixed:
            yield Tell(key)


class Desk(NamedTuple):
    """What the claims of one client share: the holds of this process, and the flights of those who wait."""

    book: Book
    flights: Flights


def settled(entry: Entry, desk: Desk) -> Flow[Done]:
    """The outcome that was just answered, which everyone of this process who waits for it now knows as well."""
    done = Done(entry.value, entry.fingerprint, entry.fence, entry.attempts)
    if desk.flights.cares_for(entry.key):
        run: Run = yield RUN
        if desk.flights.settle(entry.key, done, entry.left - (run.now() - run.sent)):
            yield Tell(entry.key)
    return done
