"""A thread with a session of its own, and what waits for it: ops pile up while it is busy and then go into one
transaction, renewals and releases first."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from ...errors import StoreUnavailable, copied
from ...ops import MAX_BATCH, URGENT, Op
from ...rules import MIN_PATIENCE
from .session import CLOSE_PATIENCE, Session

Future = asyncio.Future[Any]
QUEUED = 1.5  # of the timeout of one try: who waited so long in the queue has time for one more within the whole call


class QueuedOps(NamedTuple):
    """Ops, and whose answer it is."""

    ops: Sequence[Op]
    future: Future
    since: float


class QueuedCall(NamedTuple):
    """What is done beside ops, and whose answer it is."""

    function: Callable[[], Any]
    future: Future
    since: float


class Worker:
    """The loop hands work in, one loop at a time. What waits for too long is not performed: StoreUnavailable."""

    def __init__(self, session: Session, timeout: float, name: str) -> None:
        self.session = session
        self._timeout = timeout
        self._queued = max(MIN_PATIENCE, timeout * QUEUED)
        self._urgent: deque[QueuedOps] = deque()
        self._others: deque[QueuedOps] = deque()
        self._calls: deque[QueuedCall] = deque()
        self._taking = threading.Lock()  # so that what is given up is never begun as well
        self._signals: SimpleQueue[bool] = SimpleQueue()  # one per thing to do; False ends the thread
        self._loop: asyncio.AbstractEventLoop | None = None  # where the timer is, which serves all that wait
        self._watch: asyncio.TimerHandle | None = None
        self._ended: Future
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def perform(self, ops: Sequence[Op]) -> Future:
        """The replies to the ops. In a batch that is urgent, what is urgent comes first."""
        batch = QueuedOps(ops, asyncio.get_running_loop().create_future(), monotonic())
        (self._urgent if ops and type(ops[0]) in URGENT else self._others).append(batch)
        return self._handed_in(batch.future)

    def call(self, function: Callable[[], Any]) -> Future:
        """What the function answers; it is not called if its asker has gone by then."""
        call = QueuedCall(function, asyncio.get_running_loop().create_future(), monotonic())
        self._calls.append(call)
        return self._handed_in(call.future)

    async def close(self) -> None:
        """What was handed in is performed first; waits for that at most the timeout and a little."""
        self._ended = asyncio.get_running_loop().create_future()
        self._signals.put(False)
        done, _ = await asyncio.wait([self._ended], timeout=self._timeout + CLOSE_PATIENCE)
        if done:
            self._thread.join()  # it has nothing left to do
        if self._watch is not None:
            self._watch.cancel()

    # -- the queue

    def _handed_in(self, future: Future) -> Future:
        self._signals.put(True)
        loop = future.get_loop()
        if self._watch is None or loop is not self._loop:
            self._loop, self._watch = loop, loop.call_later(self._queued, self._look, loop)
        return future

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Gives up what waits for too long."""
        self._watch, now = None, monotonic()
        late: list[QueuedOps | QueuedCall] = []
        queues: tuple[deque[Any], ...] = (self._urgent, self._others, self._calls)
        with self._taking:
            for queue in queues:
                while queue and queue[0].since + self._queued <= now:
                    late.append(queue.popleft())
            oldest = min((queue[0].since for queue in queues if queue), default=None)
        if oldest is not None:
            self._watch = loop.call_later(max(0.0, oldest + self._queued - now), self._look, loop)
        error = StoreUnavailable(
            f"the SQLite store {self.session.path} is busy: this waited for {self._queued:.1f} s, and nothing was done"
        )
        _settle([(each.future, copied(error)) for each in late])

    def _taken(self) -> list[QueuedOps]:
        """What is to be performed as one: about MAX_BATCH ops, half of them such as are not urgent if so many wait, and
        always the first of those, so that nobody is overtaken for ever."""
        taken: list[QueuedOps] = []
        room = MAX_BATCH
        with self._taking:
            for queue, left in ((self._urgent, MAX_BATCH // 2 if self._others else 0), (self._others, 0)):
                first = True
                while queue and (first or room - len(queue[0].ops) >= left):
                    batch, first = queue.popleft(), False
                    room -= len(batch.ops)
                    taken.append(batch)
        return taken

    # -- in the thread

    def _work(self) -> None:
        """Works until the last signal; a signal whose work went along with an earlier one finds nothing to do."""
        while self._signals.get():
            self._perform_waiting()
            self._answer_call()  # one, and then the ops that came meanwhile
        with self.session.lock:
            self.session.disconnect()
        _deliver(self._ended.get_loop(), [(self._ended, None)])

    def _perform_waiting(self) -> None:
        batches = self._taken()
        if not batches:
            return
        loop = batches[0].future.get_loop()
        try:
            replies = self.session.perform([op for batch in batches for op in batch.ops])
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the awaiters' to know, and the thread lives on
            _deliver(loop, [(batch.future, copied(error)) for batch in batches])
            return
        answers, start = list[tuple[Future, Any]](), 0
        for batch in batches:
            answers.append((batch.future, replies[start : start + len(batch.ops)]))
            start += len(batch.ops)
        _deliver(loop, answers)

    def _answer_call(self) -> None:
        with self._taking:
            call = self._calls.popleft() if self._calls else None
        if call is None or call.future.cancelled():
            return
        try:
            answer = call.function()
        except Exception as error:  # noqa: BLE001 - as above
            answer = error
        _deliver(call.future.get_loop(), [(call.future, answer)])


def _deliver(loop: asyncio.AbstractEventLoop, answers: list[tuple[Future, Any]]) -> None:
    """All answers of one transaction in one call to the loop."""
    with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: list[tuple[Future, Any]]) -> None:
    for future, answer in answers:
        if future.done():
            continue  # cancelled
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
