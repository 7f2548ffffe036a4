"""Performs flows on a virtual clock: the third driver, for the simulator of `solely.testing`.

It does with each request what the blocking and the asyncio driver do, but nothing ever waits: whatever takes time is
an event on a `Timeline`, so thousands of interleaved flows run in one thread, and the same seed gives the same history.
A client can be paused (nothing reaches it until it wakes), killed, and its clock runs at a rate of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

from ..errors import Interrupted, StoreError, StoreUnavailable, Unanswered
from ..flow import Ask, Flow, Join, Wait, WakeAll
from ..ops import Op, Release, Reply
from ..rules import COMPENSATE
from .lines import Lines
from .trying import given_up, interruption, pause

Answer = list[Reply | StoreError] | StoreUnavailable
_TICK = 1e-9  # seconds: less is rounding, not time


class Timeline:
    """Virtual time. Events happen in the order of their moments; those of one moment in the order they were made."""

    __slots__ = ("_due", "_made", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0
        self._stopped = False

    def at(self, moment: float, call: Callable[..., None], *arguments: Any) -> None:
        """Calls it at that moment."""
        self._made += 1
        heappush(self._due, (moment, self._made, call, arguments))

    def stop(self) -> None:
        """Nothing more happens."""
        self._stopped = True

    def run(self, most: int) -> bool:
        """Lets everything happen that is due; False if it did not come to rest within that many events."""
        due = self._due
        for _ in range(most):
            if not due or self._stopped:
                return True
            self.now, _, call, arguments = heappop(due)
            call(*arguments)
        return False


class Network(Protocol):
    """What lies between a client and the store."""

    def send(self, run: SimulatedRun, turn: int, ops: Sequence[Op]) -> None:
        """Has run.answered(turn, answer) called later, once: with the replies, or with why there are none."""


class SimulatedDriver:
    """Performs the flows of one client. `rate` is how fast its clock runs against the store's; `owners` notes which
    run drew which id."""

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        wire: Network,
        chance: Random,
        *,
        owners: dict[str, SimulatedRun],
        timeout: float,
        rate: float = 1.0,
        start: float = 0.0,
    ) -> None:
        self.name = name
        self.timeline = timeline
        self.wire = wire
        self.chance = chance
        self.timeout = timeout
        self.lines = Lines()
        self.dead = False
        self.wakes = 0.0  # paused until then
        self._paused = 0.0  # seconds, all pauses together
        self.owners = owners
        self._rate = rate
        self._start = start

    def clock(self) -> float:
        """Seconds on this client's own clock, which counts pauses."""
        return self._start + self.timeline.now * self._rate

    def moment(self, local: float) -> float:
        """The virtual time at which this client's clock shows `local`."""
        return (local - self._start) / self._rate

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Calls it after so many seconds of this client's clock, once it is awake, unless it was killed."""
        self.timeline.at(self.timeline.now + seconds / self._rate, self.deliver, call, *arguments)

    def deliver(self, call: Callable[..., None], *arguments: Any) -> None:
        """What reaches a client: now, or when it wakes, or never if it was killed."""
        if self.dead:
            return
        if self.wakes > self.timeline.now:
            self.timeline.at(self.wakes, self.deliver, call, *arguments)
        else:
            call(*arguments)

    def pause(self, seconds: float) -> None:
        """Nothing reaches this client for so long: a stopped process, a long collection, a suspended machine."""
        wakes = max(self.wakes, self.timeline.now + seconds)
        self._paused += wakes - max(self.wakes, self.timeline.now)
        self.wakes = wakes

    def slept(self) -> float:
        """Seconds that all pauses together have taken until now."""
        return self._paused - max(0.0, self.wakes - self.timeline.now)

    def kill(self) -> None:
        """Ends the client between two yields of its flows; nothing is undone."""
        self.dead = True

    def run(self, flow: Flow[Any], ended: Callable[[SimulatedRun], None]) -> SimulatedRun:
        """Begins the flow; `ended` is called with the run once it is over."""
        run = SimulatedRun(self, flow, ended)
        run.advance(flow.send, None)
        return run


class SimulatedRun:
    """One flow under way. `turn` grows with each thing that it waits for, so that what comes too late is ignored."""

    __slots__ = (
        "_asked", "_ended", "_ends", "_flow", "_joining", "_request", "_sleeping", "_stopped", "_tries", "_woken",
        "arrived", "doubtful", "driver", "error", "joined", "over", "owner", "result", "sent", "turn", "undone",
    )  # fmt: skip

    def __init__(self, driver: SimulatedDriver, flow: Flow[Any], ended: Callable[[SimulatedRun], None]) -> None:
        self.driver = driver
        self.turn = 0
        self.sent = 0.0
        self.doubtful = False
        self.joined: list[str] = []
        self.arrived = 0.0
        self.owner = ""  # the id that it drew last
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.undone = True  # False once a compensating op got no answer
        self._flow = flow
        self._ended = ended
        self._stopped: Interrupted | None = None
        self._joining: Join | None = None  # at_most: when that is over, on the client's clock
        self._sleeping = self._woken = False
        self._request: Any = None
        self._tries = 0
        self._asked = self._ends = 0.0

    def advance(self, step: Callable[[Any], Any], argument: Any) -> None:
        """Lets the flow go on until it waits for something, or ends."""
        self.turn += 1
        self._sleeping, self._joining = False, None
        try:
            while True:
                request = step(argument)
                step = self._flow.send
                kind = type(request)
                if kind is Ask:
                    argument = self._answer(request)
                elif kind is Wait:
                    self._stopped = None  # a flow that waits again has done with undoing
                    argument = True
                    if not self._sleep(request.at_most):
                        return
                elif kind is Join:
                    first = self._join(request)
                    if first is None:
                        return
                    argument = self if first else None
                elif kind is WakeAll:
                    self.driver.lines.wake_all(request.key)
                    argument = None
                else:
                    self._ask(request)
                    return
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:  # noqa: BLE001 - the flow ended with it
            self._end(None, self._stopped.cause if self._stopped is not None else error)

    def cancel(self, cause: BaseException) -> None:
        """Interrupts the flow at whatever it waits for, as a cancelled task or a KeyboardInterrupt does."""
        if not self.over and self._stopped is None:
            self._stopped = interruption(cause, self._request, self.doubtful)
            self._go_on(self._flow.throw, self._stopped)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self.over, self.result, self.error = True, result, error
        for key in self.joined:
            self.driver.lines.leave(key, self)
        self._ended(self)

    def _answer(self, request: Ask) -> Any:
        if request is Ask.RUN:
            return self
        if request is Ask.NOW:
            return self.now()
        return self.fresh_owner() if request is Ask.OWNER else self.driver.chance.random()

    def now(self) -> float:
        """Seconds on the client's own clock."""
        return self.driver.clock()

    def fresh_owner(self) -> str:
        """An id that this run alone has drawn."""
        driver = self.driver
        self.owner = f"{driver.name}.{len(driver.owners)}"
        driver.owners[self.owner] = self
        return self.owner

    # -- waiting

    def wake(self) -> None:
        """A hint, or the head of the line; remembered if it comes before the wait."""
        self._woken = True
        if self._sleeping:
            self.driver.after(0.0, self._rouse, self.turn)

    def _sleep(self, at_most: float) -> bool:
        if self._woken:
            self._woken = False
            return True
        self._sleeping = True
        self.driver.after(max(0.0, at_most), self._rouse, self.turn)
        return False

    def _rouse(self, turn: int) -> None:
        if turn != self.turn:
            return
        woken, self._woken = self._woken, False
        joining = self._joining is not None
        first = self._stand_in_line() if joining else woken
        if first is not None:
            self.advance(self._flow.send, (self if first else None) if joining else first)

    def _join(self, request: Join) -> bool | None:
        self.joined.append(request.key)
        self.arrived = self.driver.clock()
        if self.driver.lines.join(request.key, self):
            return True
        self._joining = request._replace(at_most=self.arrived + request.at_most)
        return self._stand_in_line()

    def _stand_in_line(self) -> bool | None:
        """True once it is the first of the line, False if that took too long, None while it has to sleep."""
        key, ends, settled = self._joining  # type: ignore[misc]
        while not self.driver.lines.is_first(key, self):
            left = ends - self.driver.clock()
            if left <= _TICK or (settled is not None and settled()):
                return False
            if not self._sleep(left):  # else woken by a late hint for a key that this flow had joined before
                return None
        return True

    # -- asking the store

    def _ask(self, request: Any) -> None:
        """Sends it, and tries again under the same owners for as long as the timeout, or COMPENSATE, allows."""
        self._request, self._tries, self._asked = request, 0, self.driver.clock()
        if self._stopped is not None:
            self._ends = self._asked + COMPENSATE
            self.driver.after(COMPENSATE, self._give_up_undoing, self._request)
        self._try(self.turn)
        if type(request) is Release:
            self.driver.lines.wake(request.key)  # the next of this client asks right behind it

    def _try(self, turn: int) -> None:
        if turn == self.turn:
            self.sent = self.driver.clock()
            request = self._request
            self.driver.wire.send(self, turn, request if type(request) is list else (request,))

    def answered(self, turn: int, answer: Answer) -> None:
        """The replies to the try of this turn, or why there are none."""
        if turn != self.turn:
            return
        if isinstance(answer, StoreUnavailable):
            self._unanswered(answer)
        elif type(self._request) is list:
            self._go_on(self._flow.send, answer)
        elif not isinstance(answer[0], StoreError):
            self._go_on(self._flow.send, answer[0])
        elif self._stopped is None:
            self._go_on(self._flow.throw, answer[0])
        else:
            self._unanswered(StoreUnavailable(str(answer[0])))

    def _go_on(self, step: Callable[[Any], Any], argument: Any) -> None:
        self._request = None
        self.advance(step, argument)

    def _unanswered(self, error: StoreUnavailable) -> None:
        driver = self.driver
        self._tries += 1
        self.doubtful = self.doubtful or isinstance(error, Unanswered)
        rest = pause(self._tries - 1, driver.chance.random())
        now = driver.clock()
        self.turn += 1
        if self._stopped is None and now - self._asked + rest > driver.timeout:
            gave_up = given_up(self._request, self._tries, now - self._asked, error, self.doubtful)
            self._stopped = Interrupted(gave_up, unanswered=self.doubtful)
            self._go_on(self._flow.throw, self._stopped)
        elif self._stopped is None or now + rest <= self._ends:
            driver.after(rest, self._try, self.turn)

    def _give_up_undoing(self, request: Any) -> None:
        if self._request is request and not self.over:
            self.undone = False
            self._go_on(self._flow.send, None)
