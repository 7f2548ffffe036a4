"""Performs flows on a virtual clock: the third driver, for the simulator of `solely.testing`.

It handles each request as the blocking and the asyncio driver do, but never waits: everything that takes time is an
event on a `Timeline`, so thousands of interleaved flows run in one thread, and the same seed gives the same history.
A client can be paused (nothing reaches it until it wakes) or killed, and its clock runs at its own rate.
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
from .retrying import interruption, pause, unavailable
from .waiters import Waiters

Answer = list[Reply | StoreError] | StoreUnavailable
_TICK = 1e-9  # seconds: anything shorter is a rounding error


class Timeline:
    """Virtual time. Events run in the order of their times; events of the same time in the order they were added."""

    __slots__ = ("_due", "_made", "_stopped", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0
        self._stopped = False

    def at(self, moment: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedules the call for that time."""
        self._made += 1
        heappush(self._due, (moment, self._made, call, arguments))

    def stop(self) -> None:
        """Ends `run` before its next event."""
        self._stopped = True

    def run(self, most: int) -> bool:
        """Runs events until none is left; False if there are more than `most`."""
        due = self._due
        for _ in range(most):
            if not due or self._stopped:
                return True
            self.now, _, call, arguments = heappop(due)
            call(*arguments)
        return False


class Transport(Protocol):
    """The network between a client and the store."""

    def send(self, run: SimulatedRun, turn: int, ops: Sequence[Op]) -> None:
        """Calls run.answered(turn, answer) once, later: with the replies, or with the error in their place."""


class SimulatedDriver:
    """Performs the flows of one client. `rate` is the speed of its clock relative to the store's; `owners` maps each
    owner id to the run that drew it."""

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        wire: Transport,
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
        self.waiters = Waiters()
        self.dead = False
        self.wakes = 0.0  # paused until then
        self._paused = 0.0  # total seconds of all pauses
        self.owners = owners
        self.owner_width = 0  # characters, at least, of an owner id
        self._rate = rate
        self._start = start

    def clock(self) -> float:
        """Seconds on this client's own clock, which counts pauses."""
        return self._start + self.timeline.now * self._rate

    def moment(self, local: float) -> float:
        """The virtual time at which this client's clock shows `local`."""
        return (local - self._start) / self._rate

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedules the call on this client's clock: it runs once the client is awake, never if it was killed."""
        self.timeline.at(self.timeline.now + seconds / self._rate, self.deliver, call, *arguments)

    def deliver(self, call: Callable[..., None], *arguments: Any) -> None:
        """Runs the call now, or when the client wakes, or never if it was killed."""
        if self.dead:
            return
        if self.wakes > self.timeline.now:
            self.timeline.at(self.wakes, self.deliver, call, *arguments)
        else:
            call(*arguments)

    def pause(self, seconds: float) -> None:
        """Delivers nothing for that long: a stopped process, a long garbage collection, a suspended machine."""
        wakes = max(self.wakes, self.timeline.now + seconds)
        self._paused += wakes - max(self.wakes, self.timeline.now)
        self.wakes = wakes

    def slept(self) -> float:
        """Total seconds of all pauses until now."""
        return self._paused - max(0.0, self.wakes - self.timeline.now)

    def kill(self) -> None:
        """Ends the client between two yields of its flows; its flows undo nothing."""
        self.dead = True

    def run(self, flow: Flow[Any], ended: Callable[[SimulatedRun], None]) -> SimulatedRun:
        """Starts the flow; calls `ended` with the run when it is over."""
        run = SimulatedRun(self, flow, ended)
        run.advance(flow.send, None)
        return run


class SimulatedRun:
    """One running flow. `turn` grows with each wait, so that a late answer to an earlier one is ignored."""

    __slots__ = (
        "_ended", "_ends", "_flow", "_joining", "_request", "_sleeping", "_started", "_stopped", "_tries", "_woken",
        "arrived", "doubtful", "driver", "error", "joined", "over", "owner", "result", "sent", "turn", "undone",
    )  # fmt: skip

    def __init__(self, driver: SimulatedDriver, flow: Flow[Any], ended: Callable[[SimulatedRun], None]) -> None:
        self.driver = driver
        self.turn = 0
        self.sent = 0.0
        self.doubtful = False
        self.joined: list[str] = []
        self.arrived = 0.0
        self.owner = ""  # the last id that it drew
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.undone = True  # False once a compensating op got no answer
        self._flow = flow
        self._ended = ended
        self._stopped: Interrupted | None = None
        self._joining: Join | None = None  # its at_most is a time on the client's clock
        self._sleeping = self._woken = False
        self._request: Any = None
        self._tries = 0
        self._started = self._ends = 0.0

    def advance(self, step: Callable[[Any], Any], argument: Any) -> None:
        """Runs the flow until it waits or ends."""
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
                    self._stopped = None  # a flow that waits again has finished its undo
                    argument = True
                    if not self._sleep(request.at_most):
                        return
                elif kind is Join:
                    first = self._join(request)
                    if first is None:
                        return
                    argument = self if first else None
                elif kind is WakeAll:
                    self.driver.waiters.wake_all(request.key)
                    argument = None
                else:
                    self._execute(request)
                    return
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:  # noqa: BLE001 - the flow ended with it
            self._end(None, self._stopped.cause if self._stopped is not None else error)

    def cancel(self, cause: BaseException) -> None:
        """Interrupts the flow where it waits, as a cancelled task or a KeyboardInterrupt does."""
        if not self.over and self._stopped is None:
            self._stopped = interruption(cause, self._request, self.doubtful)
            self._go_on(self._flow.throw, self._stopped)

    def _end(self, result: Any, error: BaseException | None) -> None:
        self.over, self.result, self.error = True, result, error
        for key in self.joined:
            self.driver.waiters.leave(key, self)
        self._ended(self)

    def _answer(self, request: Ask) -> Any:
        if request is Ask.RUN:
            return self
        return self.now() if request is Ask.NOW else self.fresh_owner()

    def now(self) -> float:
        """Seconds on the client's own clock."""
        return self.driver.clock()

    def fresh_owner(self) -> str:
        """A new id, unique to this run."""
        driver = self.driver
        self.owner = f"{driver.name}.{len(driver.owners)}".ljust(driver.owner_width, "-")
        driver.owners[self.owner] = self
        return self.owner

    # -- waiting

    def wake(self) -> None:
        """Ends the current wait, or the next one."""
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
        first = self._wait_in_line() if joining else woken
        if first is not None:
            self.advance(self._flow.send, (self if first else None) if joining else first)

    def _join(self, request: Join) -> bool | None:
        self.joined.append(request.key)
        self.arrived = self.driver.clock()
        if self.driver.waiters.join(request.key, self):
            return True
        self._joining = request._replace(at_most=self.arrived + request.at_most)
        return self._wait_in_line()

    def _wait_in_line(self) -> bool | None:
        """True once it is first in line, False if that took too long, None while it has to sleep."""
        key, ends, settled = self._joining  # type: ignore[misc]
        while not self.driver.waiters.is_first(key, self):
            left = ends - self.driver.clock()
            if left <= _TICK or (settled is not None and settled()):
                return False
            if not self._sleep(left):  # else woken by a late hint for a key that this flow joined before
                return None
        return True

    # -- ops

    def _execute(self, request: Any) -> None:
        """Sends the request, and retries under the same owners for as long as the timeout, or COMPENSATE, allows."""
        self._request, self._tries, self._started = request, 0, self.driver.clock()
        if self._stopped is not None:
            self._ends = self._started + COMPENSATE
            self.driver.after(COMPENSATE, self._give_up_undoing, self._request)
        self._try(self.turn)
        if type(request) is Release:
            self.driver.waiters.wake(request.key)  # the next waiter of this client sends its op right behind it

    def _try(self, turn: int) -> None:
        if turn == self.turn:
            self.sent = self.driver.clock()
            request = self._request
            self.driver.wire.send(self, turn, request if type(request) is list else (request,))

    def answered(self, turn: int, answer: Answer) -> None:
        """Continues the flow with the replies to the try of this turn, or retries after an error."""
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
        if self._stopped is None and now - self._started + rest > driver.timeout:
            error = unavailable(self._request, self._tries, now - self._started, error, self.doubtful)
            self._stopped = Interrupted(error, unanswered=self.doubtful)
            self._go_on(self._flow.throw, self._stopped)
        elif self._stopped is None or now + rest <= self._ends:
            driver.after(rest, self._try, self.turn)

    def _give_up_undoing(self, request: Any) -> None:
        if self._request is request and not self.over:
            self.undone = False
            self._go_on(self._flow.send, None)
