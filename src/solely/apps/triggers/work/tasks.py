"""Tasks: functions that a worker runs, by name, and what they know of their run."""

from __future__ import annotations

import asyncio
import inspect
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_type_hints

import msgspec

from .... import InvalidInput, LeaseLost
from ....kit import called_by, work_function
from .children import Children
from .wire import TakenRun

F = TypeVar("F", bound=Callable[..., Any])

MAX_NAME = 128  # characters, as the trigger route takes them


class RunAttempt:
    """One attempt at a run, as its task sees it. `attempt` only grows: systems that the task writes to can use it as a
    fence. The lease is renewed meanwhile; `lost` is true once another worker may have the run."""

    def __init__(
        self, taken: TakenRun, sent: float, max_hold: float | None = None, children: Children | None = None
    ) -> None:
        self._children = children
        self.id, self.task, self.key = taken.id, taken.task, taken.idempotency_key
        self.payload, self.tags, self.metadata = taken.payload, taken.tags, taken.metadata
        self.attempt, self.max_attempts = taken.attempt, taken.max_attempts
        self.token = taken.token
        self.canceled = False  # by a person: nobody has the run now
        self._ends, self._longest = sent + taken.left, math.inf if max_hold is None else sent + max_hold
        self._over = threading.Event()
        self._cancel: Callable[[], object] | None = None

    @property
    def lost(self) -> bool:
        """True once the lease has ended: what the task does from then on may be done twice."""
        return self._over.is_set() or self.remaining() <= 0

    def remaining(self) -> float:
        """Seconds until the lease ends unless it is renewed, counted from before the last renewal was sent."""
        return self._ends - time.monotonic()

    def ensure(self) -> None:
        """Raises LeaseLost if another worker may have the run. Call it before a step that must not be repeated."""
        if self.lost:
            why = "was canceled" if self.canceled else "is no longer leased to this worker"
            raise LeaseLost(f"run {self.id}, attempt {self.attempt}, {why}", key=self.id)

    def trigger_and_wait(
        self,
        task: str,
        payload: object = None,
        *,
        key: str = "",
        tags: Sequence[str] = (),
        max_attempts: int | None = None,
    ) -> Any:
        """The output of a run of this task, which is triggered once for this run and key.

        If that has not ended, this attempt ends here without counting, and the lease with it. When the child has ended,
        the task is performed again from its beginning, by any worker, and gets the output here; so what comes before
        must be repeatable. Without a key, the children are told apart by their order.

        Raises ChildFailed if the child was FAILED or CANCELED, and LeaseLost.
        """
        if self._children is None:
            raise InvalidInput("trigger_and_wait needs a worker: this attempt was made by a test")
        return self._children.result(task, payload, key, tags, max_attempts)

    async def trigger_and_wait_async(self, task: str, payload: object = None, **options: Any) -> Any:
        """The same for an `async` task: it does not block the event loop."""
        return await asyncio.to_thread(self.trigger_and_wait, task, payload, **options)

    # -- for the worker

    @property
    def overdue(self) -> bool:
        """True once it has taken longer than the `max_hold` of its task: its lease is not renewed any more."""
        return time.monotonic() > self._longest

    def renewed(self, sent: float, left: float) -> None:
        """The lease was renewed for `left` seconds by a request that was sent at that moment."""
        self._ends = max(self._ends, sent + left)

    def end(self) -> None:
        """Ends the attempt: `lost` is true, and an asynchronous task is cancelled."""
        self._over.set()
        self.cancel()

    def cancel(self) -> None:
        """Cancels an asynchronous task; others go on."""
        if (cancel := self._cancel) is not None:
            cancel()

    async def cancelling(self, work: Any) -> Any:
        """Awaits the work, which is cancelled if the attempt ends before it does."""
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._over.is_set():
            task.cancel()
        try:
            return await task
        finally:
            self._cancel = None


@dataclass(frozen=True)
class WorkerTask:
    """A named function of the payload, or of the payload and its RunAttempt; `async` functions run on a loop of their
    own. If the payload has a type, it is converted to that: msgspec.ValidationError if it cannot be."""

    name: str
    function: Callable[..., Any]
    payload: Any
    takes_run: bool
    max_hold: float | None = None

    def __call__(self, run: RunAttempt) -> Any:
        """Runs the function; its result is the output of the run."""
        payload = msgspec.convert(run.payload, self.payload, strict=False)
        given = (payload, run) if self.takes_run else (payload,)
        output = self.function(*given)
        return asyncio.run(run.cancelling(output)) if inspect.isawaitable(output) else output


class Tasks(dict[str, WorkerTask]):
    """Tasks by name."""

    def __call__(self, name: str, *, max_hold: float | None = None) -> Callable[[F], F]:
        """Registers the decorated function, which stays as it is, as the task of this name. After `max_hold` seconds an
        attempt is given up: it is cancelled if it is asynchronous, and its lease is no longer renewed.

        Raises InvalidInput if the name is taken, if the function takes neither `(payload)` nor `(payload, run)`, or if
        an annotation of it cannot be resolved.
        """
        if callable(name) or not 1 <= len(name) <= MAX_NAME:  # callable: @task without a name
            raise InvalidInput(f'{name!r:.80} is not the name of a task; write @task("send-mail")')

        def register(function: F) -> F:
            if name in self and self[name].function is not function:
                raise InvalidInput(f"two functions are the task {name!r}; give one of them another name")
            self[name] = replace(_task(name, function), max_hold=max_hold)
            return function

        return register


def _task(name: str, function: Callable[..., Any]) -> WorkerTask:
    work_function(f"the task {name!r}", function)
    given = [*inspect.signature(function).parameters.values()]
    needed = [each for each in given if each.default is each.empty]
    if not 1 <= len(given) <= 2 or any(each.kind is not each.POSITIONAL_OR_KEYWORD for each in given) or not needed:
        raise InvalidInput(f"the task {name!r} must take (payload) or (payload, run)")
    try:
        hints = get_type_hints(called_by(function))
    except NameError as error:  # a local class, or a name that is imported for the type checker only
        raise InvalidInput(f"an annotation of the task {name!r} cannot be resolved: {error}") from None
    return WorkerTask(name, function, hints.get(given[0].name, Any), len(given) == 2)


task = Tasks()  # those of this process: @task("send-mail")
