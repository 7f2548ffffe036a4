"""A worker that drains queues in asyncio: takes items, performs them, retries failures, and parks what keeps failing.

An item is performed at least once, and by one worker at a time as long as its lease lasts. The lease is renewed while
the work runs. If it is lost all the same, the work is cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from inspect import isawaitable
from typing import Any, NamedTuple

from ..dead_letters.handle import AsyncDeadLetters
from ..errors import ClientClosed, InvalidInput, StoreError
from ..events import Acquired
from ..functions import coroutine_function, plain_function, work_function
from ..logs import get_logger
from ..resilience import Backoff
from ..rules import DAY, Seconds, local_clock, seconds, ttl_seconds
from .handle import AsyncQueue
from .item import AsyncItem
from .performing import Perform, ReplayedItem, begun_work
from .settling import AWAY, ItemHandler, Tally, key_of, report

log = get_logger()

Queues = Iterable[AsyncQueue]
FindQueues = Callable[[], Queues | Awaitable[Queues]]

# After a failure: 1 s for a dropped connection, 5 s for a restart, 30 s and 2 min for a person who repairs it.
FAILED = Backoff((1.0, 5.0, 30.0, 120.0))
_WAIT = 20.0  # seconds that a take waits for a push: a store that lost the wake-up is asked again anyway
_POLL = 1.0  # seconds that a take waits if there are more queues than `at_once`, so that the next ones get their turn
_LOOK = 1.0  # seconds between two looks at which queues there are, if a function names them
_GIVE_BACK = 10.0  # seconds for cancelled work to clean up and for its item to be given back


class WorkerHealth(NamedTuple):
    """What a worker is doing: items `in_flight`, how many it finished, and how it failed last.

    `store_error` is why the store is unavailable, or empty.
    """

    name: str
    running: bool
    in_flight: int
    performed: int
    retried: int
    parked: int
    last_error: str
    last_error_at: datetime | None
    store_error: str


class _Take(NamedTuple):
    """A take in progress; one that `waits` for a push occupies no slot."""

    task: asyncio.Task[None]
    waits: bool


class QueueWorker:
    """Performs the items of one queue, or of several in rotation, at most `at_once` at a time. Raises InvalidInput for
    invalid arguments.

    `queues` is a queue, a list, or a function that returns the current ones (called about once a second). `perform`
    gets each item: if it returns, the item is removed. It raises Retry, Postpone or PermanentFailure to say what
    happens to the item; any other error is retried with `backoff`. After `max_attempts` the item becomes one of
    `dead_letters`.
    """

    def __init__(
        self,
        queues: AsyncQueue | Queues | FindQueues,
        perform: Perform,
        *,
        dead_letters: AsyncDeadLetters,
        ttl: Seconds = 30.0,
        at_once: int = 16,
        max_attempts: int = 5,
        backoff: Backoff = FAILED,
        name: str = "",
    ) -> None:
        named = callable(queues) and not isinstance(queues, AsyncQueue)
        self._find: FindQueues | None = work_function("queues", queues) if named else None  # type: ignore[assignment]
        fixed = [] if named else _checked([queues] if not isinstance(queues, Iterable) else queues)
        if not isinstance(dead_letters, AsyncDeadLetters):
            raise InvalidInput(f"dead_letters must be those of an AsyncClient, not {dead_letters!r:.80}")
        if self._find is None and not fixed:
            raise InvalidInput("a worker needs a queue; give one, a list of them, or a function that returns them")
        self.name = name or (fixed[0].name if fixed else dead_letters.group)
        self._rotation: deque[AsyncQueue] = deque(fixed)
        self._at_once = _at_least_one("at_once", at_once)
        self.dead_letters = dead_letters
        self._tally = Tally()
        self._handler = ItemHandler(
            self.name,
            coroutine_function("perform", perform),
            dead_letters,
            ttl_seconds(ttl),
            _at_least_one("max_attempts", max_attempts),
            backoff,
            asyncio.Semaphore(at_once),
            self._tally,
        )
        self._takes: dict[str, _Take] = {}  # queue → the take in progress
        self._items: set[asyncio.Task[None]] = set()
        self._changed, self._ended = asyncio.Event(), asyncio.Event()
        self._running = False
        self._grace = 0.0
        self._empty = 0  # takes in a row that found nothing
        self._look_at = 0.0
        self._store_error, self._away_since, self._failures = "", 0.0, 0  # of the store's current outage

    def on_settled(self, hook: Callable[[str], object]) -> None:
        """Has the hook called with what became of each item: acked, retried, postponed, parked, delayed,
        stopped, or left to its lease."""
        self._handler.on_settled = plain_function("hook", hook)

    @property
    def health(self) -> WorkerHealth:
        """What the worker is doing now."""
        tally, running, in_flight = self._tally, self._running, len(self._items)
        counts = tally.performed, tally.retried, tally.parked
        return WorkerHealth(
            self.name, running, in_flight, *counts, tally.last_error, tally.last_error_at, self._store_error
        )

    async def run(self) -> None:
        """Performs items until `stop` is called, also through outages of the store. If it is cancelled, it gives the
        items in flight back."""
        if self._running:
            raise InvalidInput(f"the worker {self.name!r} is running already")
        self._running = True
        try:
            while not self._handler.stopping:
                await self._look()
                self._start_takes()
                await self._something_changes()
        finally:
            await self._finish()

    async def stop(self, timeout: Seconds = 10.0) -> None:
        """Takes nothing more, waits at most `timeout` seconds for the items in flight, then cancels their work and
        gives them back, which does not count as an attempt. A stopped worker does not run again."""
        self._grace = seconds("timeout", timeout, least=0.0, most=DAY)
        self._handler.stopping = True
        self._changed.set()
        if self._running:
            await self._ended.wait()

    async def drain(self) -> int:
        """Performs what is due now, one item after the other, and returns how many items that were: for a program that
        runs from time to time instead of `run`. Raises StoreError if the store is unavailable."""
        performed = 0
        await self._look()
        for queue in tuple(self._rotation):
            while (item := await self._take_one(queue, 0.0)) is not None:
                await self._handler.handle(queue, item)
                performed += 1
        return performed

    async def replay(self, payload: Any) -> object:
        """Performs the payload of a dead letter, for `dead_letters.replay`; raises the error of the work, which leaves
        the letter. The item has a fresh id, which begins with `replay-`, and no lease of its own, since the letter has
        one."""
        return await begun_work(self._handler.perform, ReplayedItem(self.name, payload))

    # -- taking

    async def _look(self) -> None:
        """Finds out which queues there are. Those that are known keep their place in the rotation."""
        if self._find is None or local_clock() < self._look_at:
            return
        self._look_at = local_clock() + _LOOK
        try:
            named = self._find()
            current = _checked(await named if isawaitable(named) else named)
            found = {queue.name: queue for queue in current}
        except Exception as error:  # noqa: BLE001 - the worker goes on with the queues that it knows
            self._look_at = local_clock() + self._store_failed(error)
            return
        kept = [queue for queue in self._rotation if found.pop(queue.name, None) is not None]
        self._rotation = deque((*kept, *found.values()))

    def _start_takes(self) -> None:
        """Starts to take from each queue in turn, as long as there are slots for what is found."""
        for _ in range(len(self._rotation)):
            quick = sum(not take.waits for take in self._takes.values())
            if len(self._takes) >= self._at_once or len(self._items) + quick >= self._at_once:
                return
            queue = self._rotation[0]
            self._rotation.rotate(-1)
            if queue.name not in self._takes:
                self._start_take(queue)

    def _start_take(self, queue: AsyncQueue) -> None:
        """A take waits for a push only if all queues were found empty: otherwise another one is tried at once."""
        several = len(self._rotation)
        waits = several == 1 or self._empty >= several
        wait = 0.0 if not waits else _WAIT if several <= self._at_once else _POLL
        task = asyncio.create_task(self._take(queue, wait))
        self._takes[queue.name] = _Take(task, waits)
        task.add_done_callback(lambda _: self._take_ended(queue.name))

    def _take_ended(self, name: str) -> None:
        del self._takes[name]
        self._changed.set()

    async def _take_one(self, queue: AsyncQueue, wait: float) -> AsyncItem | None:
        return await queue.take(ttl=self._handler.ttl, wait=wait, max_attempts=self._handler.max_attempts)

    async def _take(self, queue: AsyncQueue, wait: float) -> None:
        handler, started = self._handler, local_clock()
        try:
            item = await self._take_one(queue, wait)
        except ClientClosed as error:
            self._tally.failed(error)
            handler.stopping = True
            log.error("worker_ended: %s ends, since its client was closed", self.name)
            return
        except Exception as error:  # noqa: BLE001 - the worker goes on, whatever happens
            await asyncio.sleep(self._store_failed(error))
            return
        self._store_answered()
        self._empty = self._empty + 1 if item is None else 0
        if item is not None:
            report(queue, Acquired(key_of(item), item.fence, local_clock() - started, item.attempts, handler.ttl))
            task = asyncio.create_task(handler.handle(queue, item))
            self._items.add(task)
            task.add_done_callback(self._item_ended)

    def _item_ended(self, task: asyncio.Task[None]) -> None:
        self._items.discard(task)
        self._changed.set()

    async def _something_changes(self) -> None:
        """Returns when a take or an item has ended, at a stop, or when the queues must be looked up again."""
        left = None if self._find is None else max(0.0, self._look_at - local_clock())
        try:
            async with asyncio.timeout(left):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def _store_failed(self, error: Exception) -> float:
        """Logs an outage once, and returns how long to pause."""
        if not self._store_error:
            self._away_since = local_clock()
            facts = {"worker": self.name, "error": str(error)}
            trace = None if isinstance(error, StoreError) else error
            text = "worker_waits: %(worker)s cannot take from its store: %(error)s"
            log.warning(text, facts, extra=facts, exc_info=trace)
        self._tally.failed(error)
        self._store_error = str(error) or type(error).__name__
        self._failures += 1
        return AWAY.pause(self._failures - 1)

    def _store_answered(self) -> None:
        if self._store_error:
            facts = {"worker": self.name, "seconds": local_clock() - self._away_since}
            text = "worker_continues: %(worker)s takes from its store again after %(seconds).1f s"
            log.warning(text, facts, extra=facts)
            self._store_error, self._failures = "", 0

    # -- ending

    async def _finish(self) -> None:
        """Waits for the items in flight as long as `stop` allows, then cancels them; each gives its item back."""
        takes = [take.task for take in self._takes.values()]
        for task in takes:
            task.cancel()
        try:
            await asyncio.gather(*takes, return_exceptions=True)
            if self._items:
                await asyncio.wait(self._items, timeout=self._grace)
        finally:
            late = list(self._items)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_GIVE_BACK)
            self._running = False
            self._ended.set()


def _checked(queues: Any) -> list[AsyncQueue]:
    """The queues; raises InvalidInput if one is none of an AsyncClient."""
    checked = list(queues)
    for each in checked:
        if not isinstance(each, AsyncQueue):
            raise InvalidInput(f"a worker takes from queues of an AsyncClient, not from {each!r:.80}")
    return checked


def _at_least_one(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{name} must be an int of at least 1, not {value!r:.80}")
    return value
