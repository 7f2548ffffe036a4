"""The breaker of one process, for its own dependencies, such as its connection to the store."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Self, TypeVar

from ..functions import begun, finished, plain_function, work_function
from ..rules import Seconds, local_clock
from .circuit import Circuit, Errors, Passes, refusal, rule, verdict

T = TypeVar("T")


class Pass(NamedTuple):
    """An admitted call: the number of the breaker's state at that time, and whether it is a trial."""

    number: int
    trial: bool


class Breaker:
    """Refuses calls for `cooldown` seconds after `threshold` failures within `per` seconds, then admits one trial at a
    time until `successes` in a row succeeded.

    Use it in `with`, in `async with`, or by `call`; raises BreakerOpen, with the time `left`, if a call is refused.
    `on` names the errors that count as failures. Any number of threads and tasks may share it.
    """

    def __init__(
        self,
        name: str = "",
        *,
        threshold: int = 5,
        per: Seconds = 60.0,
        cooldown: Seconds = 30.0,
        successes: int = 2,
        on: Errors = Exception,
        clock: Callable[[], float] = local_clock,
    ) -> None:
        self.name = name
        self._rule = rule(threshold, per, cooldown, successes, on)
        self._clock = plain_function("clock", clock)
        self._mutex = threading.Lock()
        self._passes = Passes[Pass]()
        self._failures: deque[float] = deque(maxlen=threshold)
        self._number = 0  # grows whenever it opens or closes: calls admitted before that are not counted
        self._opens: float | None = None  # None: closed; else when trials begin
        self._trial = False
        self._wins = 0

    def state(self) -> Circuit:
        """What the breaker would do with a call now."""
        with self._mutex:
            if self._opens is None:
                return Circuit.CLOSED
            return Circuit.OPEN if self._clock() < self._opens else Circuit.HALF_OPEN

    def admit(self) -> Pass:
        """Admits a call, whose result must be passed to `judge`; else raises BreakerOpen."""
        with self._mutex:
            if self._opens is None:
                return Pass(self._number, False)
            left = self._opens - self._clock()
            if left > 0:
                raise refusal(self.name, left, trial=False)
            if self._trial:
                raise refusal(self.name, None, trial=True)
            self._trial = True
            return Pass(self._number, True)

    def judge(self, passed: Pass, worked: bool | None) -> None:
        """Counts the result of the call; None (unknown) counts neither as success nor as failure."""
        with self._mutex:
            if passed.number != self._number:
                return
            if passed.trial:
                self._trial = False
                self._wins += bool(worked)
                if worked is False:
                    self._move(self._clock() + self._rule.cooldown)
                elif self._wins >= self._rule.successes:
                    self._move(None)
            elif worked is False:
                now = self._clock()
                self._failures.append(now)
                if len(self._failures) == self._rule.threshold and self._failures[0] > now - self._rule.per:
                    self._move(now + self._rule.cooldown)

    def _move(self, opens: float | None) -> None:
        self._number += 1
        self._opens, self._trial, self._wins = opens, False, 0
        self._failures.clear()

    def __enter__(self) -> Self:
        self._passes.enter(self.admit())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.judge(self._passes.leave(), verdict(error, self._rule.on))

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def call(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Makes the call and returns its result; raises BreakerOpen if it is not admitted."""
        plain_function("work", work, "use call_async")
        with self:
            return finished("the work", work(*args, **options))

    async def call_async(self, work: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """Awaits the call and returns its result; raises BreakerOpen if it is not admitted."""
        work_function("work", work)
        with self:
            return await begun("the work", work(*args, **options))
