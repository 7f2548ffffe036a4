"""The network between the simulated clients and their store: it loses, delays, reorders and repeats messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ...drivers.retrying import ONE_TRY
from ...drivers.simulated import SimulatedDriver, SimulatedRun, Timeline
from ...errors import StoreError, StoreFull, StoreUnavailable, Unanswered
from ...ops import Acquire, Advance, Finish, Hit, Mark, Op, Push, Reply
from ...rules import REMEMBER
from ...stores import transitions as t
from ...stores.memory import Memory
from .scenarios import Faults

START = 1_000_000.0  # seconds: the store's clock at the beginning; fences start from it
_MAX_DELAY = REMEMBER - 1.0  # seconds that a late copy is in flight: less than a store remembers displaced owners
_REFUSED = StoreUnavailable("connection refused")
_SILENT = Unanswered("no answer")
_GROWING = frozenset((Acquire, Advance, Finish, Hit, Mark, Push))  # ops that a full store rejects


class FallibleMemory(Memory):
    """The real memory store on virtual time, which sometimes rejects one op of a batch with an error."""

    def __init__(self, timeline: Timeline, chance: Random, full: float) -> None:
        super().__init__(clock=lambda: START + timeline.now)
        self.chance = chance
        self.full = full
        self.rejected = 0  # ops that got an error as reply

    def _one(self, op: Op, now: t.Now, hints: list[tuple[str, str]]) -> Reply | StoreError:
        if self.full and type(op) in _GROWING and self.chance.random() < self.full:
            self.rejected += 1
            return StoreFull("the store is full")
        return super()._one(op, now, hints)


class Network:
    """Delivers each message independently. `watch` receives the ops of each batch that the store performed, their
    replies, and how many of them the store rejected on purpose."""

    def __init__(
        self,
        timeline: Timeline,
        chance: Random,
        faults: Faults,
        watch: Callable[[Sequence[Op], list[Reply | StoreError], int], None],
    ) -> None:
        self.timeline = timeline
        self.faults = faults
        self.sent = 0  # ops
        self.down_until = 0.0
        self.memory = FallibleMemory(timeline, chance, faults.full)
        self._watch = watch
        self._random = chance
        self._chance = chance.random
        self._fault_rate = faults.lost + faults.late + faults.slow

    def restart(self, seconds: float, *, forget: bool) -> None:
        """Takes the store down for that long; with `forget` it comes back empty."""
        self.down_until = self.timeline.now + seconds
        if forget:
            listeners = self.memory.listeners
            self.memory = type(self.memory)(self.timeline, self._random, self.faults.full)
            self.memory.listeners = listeners

    def listen(self, driver: SimulatedDriver) -> None:
        """Delivers hints to this client's waiters, late or never."""

        def send_hint(key: str) -> None:
            if not self.faults.hint_lost or self._chance() >= self.faults.hint_lost:
                self.timeline.at(self.timeline.now + self._delay(), driver.deliver, driver.waiters.wake, key)

        self.memory.listeners[driver.name] = send_hint

    def send(self, run: SimulatedRun, turn: int, ops: Sequence[Op]) -> None:
        """Sends one try; either the request or its reply may be lost. After ONE_TRY of the timeout it is unanswered."""
        now = self.timeline.now
        self.sent += len(ops)
        if now < self.down_until:
            self.timeline.at(now + self._delay(), run.driver.deliver, run.answered, turn, _REFUSED)
            return
        gives_up = now + run.driver.timeout * ONE_TRY
        arrives = now + self._delay()
        if self._fault_rate and self._chance() < self._fault_rate:
            arrives = now + self._faulty_delay()
        if arrives < gives_up:
            self.timeline.at(arrives, self._arrive, run, turn, ops, gives_up)
            return
        self.timeline.at(gives_up, run.driver.deliver, run.answered, turn, _SILENT)
        if arrives < now + REMEMBER:
            self.timeline.at(arrives, self._arrive_late, ops)

    def _delay(self) -> float:
        return (0.1 + 0.9 * self._chance()) * self.faults.latency

    def _faulty_delay(self) -> float:
        """Returns the seconds in flight of a message with a fault; infinite if it is lost."""
        kind = self._chance() * self._fault_rate
        if kind < self.faults.lost:
            return float("inf")
        if kind < self.faults.lost + self.faults.late:
            return float(self._chance() ** 3 * _MAX_DELAY)  # most arrive while later ops of the flow are in flight
        return self._chance()

    def _arrive(self, run: SimulatedRun, turn: int, ops: Sequence[Op], gives_up: float) -> None:
        timeline = self.timeline
        back = float("inf")
        if timeline.now >= self.down_until:
            replies = self._perform(ops)
            back = timeline.now + self._delay()
            if self._fault_rate and self._chance() < self._fault_rate:
                back = timeline.now + self._faulty_delay()
        if back < gives_up:
            timeline.at(back, run.driver.deliver, run.answered, turn, replies)
        else:
            timeline.at(gives_up, run.driver.deliver, run.answered, turn, _SILENT)

    def _arrive_late(self, ops: Sequence[Op]) -> None:
        """The store performs a late copy although its sender has given up."""
        if self.timeline.now >= self.down_until:
            self._perform(ops)

    def _perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        before = self.memory.rejected
        replies = self.memory.perform(ops)
        self._watch(ops, replies, self.memory.rejected - before)
        return replies
