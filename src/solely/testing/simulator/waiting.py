"""Whether a free key finds its waiters: no lost wake-up, no hang."""

from __future__ import annotations

from typing import NamedTuple

from ...drivers.simulated import SimulatedRun
from ...rules import COMPENSATE, LOOK_AGAIN, OFFER
from .history import History

PROMPT_TRIPS = 12  # messages from a release to the next grant where nothing is held up: offer, refusal, withdrawal, …


class Opening(NamedTuple):
    """From when a key can be had, and whether its first waiter was told of it."""

    at: float
    told: bool


class WaitChecks:
    """Measures how long a key lies free while somebody waits for it."""

    def __init__(self, history: History, *, timeout: float, latency: float, calm: bool) -> None:
        self.history = history
        self.up = 0.0  # the store is down until then
        self._prompt = OFFER + PROMPT_TRIPS * latency if calm else 0.0
        self._patience = LOOK_AGAIN + OFFER + 2 * (timeout + COMPENSATE)  # a waiter ahead may fail, and undo, first
        self._waiters: dict[str, dict[SimulatedRun, float]] = {}
        self._openings: dict[str, Opening] = {}

    def opens_at(self, key: str) -> float:
        """From when the key can be had by anyone, but for an offer."""
        return self._openings[key].at if key in self._openings else 0.0

    def opened(self, key: str, at: float, *, told: bool) -> None:
        """The key can be had from then on."""
        self._openings[key] = Opening(at, told)

    def begins(self, key: str, run: SimulatedRun) -> None:
        """Somebody waits for the key from now on."""
        self._waiters.setdefault(key, {})[run] = self.history.timeline.now

    def ends(self, key: str, run: SimulatedRun) -> None:
        """Somebody got it, or gave up."""
        self.granted(key)
        self._waiters.get(key, {}).pop(run, None)  # none, if it was told at once

    def granted(self, key: str) -> None:
        """The key is taken, or somebody stops waiting: was it free for too long before?"""
        now = self.history.timeline.now
        opening = self._openings.get(key, Opening(0.0, False))
        waiters = self._waiters.get(key)
        if not waiters or opening.at >= now:
            return
        ready = [max(since, run.driver.wakes) for run, since in waiters.items() if not run.driver.dead]
        idle = now - max(opening.at, min(ready, default=now), self.up)
        most = self._prompt if opening.told and self._prompt else self._patience
        if idle > most:
            self.history.violated("no lost wake-up", f"{key} lay free for {idle:.3f} s while somebody waited for it")
