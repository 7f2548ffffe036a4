"""What lies between the simulated clients and their store: messages that are lost, late, overtaken and repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ...drivers.retrying import ONE_TRY
from ...drivers.simulated import SimulatedDriver, SimulatedRun, Timeline
from ...errors import StoreError, StoreFull, StoreUnavailable, Unanswered
from ...ops import Acquire, Advance, Finish, Hit, Mark, Op, Push, Reply
from ...rules import REMEMBER
from ...stores import transitions as t
from ...stores.memory import Memory

START = 1_000_000.0  # what the store's clock shows at the beginning: fences start from it
_LIFE = REMEMBER - 1.0  # seconds that a copy may be under way: less than what a store remembers of displaced owners
_REFUSED = StoreUnavailable("connection refused")
_SILENT = Unanswered("no answer")
_GROWING = frozenset((Acquire, Advance, Finish, Hit, Mark, Push))  # what a full store refuses


class Weather(NamedTuple):
    """How bad the network is: chances in [0, 1], per message."""

    latency: float  # seconds, at most, for a message that nothing holds up
    lost: float = 0.0  # a request, or a reply, never arrives
    late: float = 0.0  # a request arrives long after its sender gave it up, up to _LIFE
    slow: float = 0.0  # a request, or a reply, takes up to a second: others overtake it
    deaf: float = 0.0  # a hint is lost
    full: float = 0.0  # the store refuses to grow, for one op


CALM = Weather(latency=0.008)
ROUGH = Weather(latency=0.01, lost=0.02, late=0.015, slow=0.03, deaf=0.35, full=0.015)


class FallibleMemory(Memory):
    """The real memory store on virtual time, which now and then answers one op of a batch with an error."""

    def __init__(self, timeline: Timeline, chance: Random, full: float) -> None:
        super().__init__(clock=lambda: START + timeline.now)
        self.chance = chance
        self.full = full
        self.refusals = 0  # ops that were answered with an error

    def _one(self, op: Op, now: t.Now, hints: list[tuple[str, str]]) -> Reply | StoreError:
        if self.full and type(op) in _GROWING and self.chance.random() < self.full:
            self.refusals += 1
            return StoreFull("the store is full")
        return super()._one(op, now, hints)


class Network:
    """Carries every message in its own time. `watch` sees the ops that the store performed in one batch, its replies,
    and how many of them the store meant to refuse."""

    def __init__(
        self,
        timeline: Timeline,
        chance: Random,
        weather: Weather,
        watch: Callable[[Sequence[Op], list[Reply | StoreError], int], None],
    ) -> None:
        self.timeline = timeline
        self.weather = weather
        self.sent = 0  # ops
        self.up = 0.0  # the store is down until then
        self.memory = FallibleMemory(timeline, chance, weather.full)
        self._watch = watch
        self._random = chance
        self._chance = chance.random
        self._trouble = weather.lost + weather.late + weather.slow

    def restart(self, seconds: float, *, forget: bool) -> None:
        """The store is down for so long; with `forget` it comes back empty."""
        self.up = self.timeline.now + seconds
        if forget:
            listeners = self.memory.listeners
            self.memory = type(self.memory)(self.timeline, self._random, self.weather.full)
            self.memory.listeners = listeners

    def listen(self, driver: SimulatedDriver) -> None:
        """Hints for this client reach its waiters, late or never."""

        def tell(key: str) -> None:
            if not self.weather.deaf or self._chance() >= self.weather.deaf:
                self.timeline.at(self.timeline.now + self._delay(), driver.deliver, driver.waiters.wake, key)

        self.memory.listeners[driver.name] = tell

    def send(self, run: SimulatedRun, turn: int, ops: Sequence[Op]) -> None:
        """One try: it arrives or not, and its reply or not; after ONE_TRY of the timeout nobody listens any more."""
        now = self.timeline.now
        self.sent += len(ops)
        if now < self.up:
            self.timeline.at(now + self._delay(), run.driver.deliver, run.answered, turn, _REFUSED)
            return
        gives_up = now + run.driver.timeout * ONE_TRY
        arrives = now + self._delay()
        if self._trouble and self._chance() < self._trouble:
            arrives = now + self._held_up()
        if arrives < gives_up:
            self.timeline.at(arrives, self._arrive, run, turn, ops, gives_up)
            return
        self.timeline.at(gives_up, run.driver.deliver, run.answered, turn, _SILENT)
        if arrives < now + REMEMBER:
            self.timeline.at(arrives, self._arrive_late, ops)

    def _delay(self) -> float:
        return (0.1 + 0.9 * self._chance()) * self.weather.latency

    def _held_up(self) -> float:
        """Seconds under way for a message in trouble; infinite if it is lost."""
        kind = self._chance() * self._trouble
        if kind < self.weather.lost:
            return float("inf")
        if kind < self.weather.lost + self.weather.late:
            return float(self._chance() ** 3 * _LIFE)  # most come while their consequences are still under way
        return self._chance()

    def _arrive(self, run: SimulatedRun, turn: int, ops: Sequence[Op], gives_up: float) -> None:
        timeline = self.timeline
        back = float("inf")
        if timeline.now >= self.up:
            replies = self._perform(ops)
            back = timeline.now + self._delay()
            if self._trouble and self._chance() < self._trouble:
                back = timeline.now + self._held_up()
        if back < gives_up:
            timeline.at(back, run.driver.deliver, run.answered, turn, replies)
        else:
            timeline.at(gives_up, run.driver.deliver, run.answered, turn, _SILENT)

    def _arrive_late(self, ops: Sequence[Op]) -> None:
        """A copy whose sender has long given it up: the store performs it all the same."""
        if self.timeline.now >= self.up:
            self._perform(ops)

    def _perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        before = self.memory.refusals
        replies = self.memory.perform(ops)
        self._watch(ops, replies, self.memory.refusals - before)
        return replies
