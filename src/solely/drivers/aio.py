"""Performs flows in asyncio tasks."""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import suppress
from itertools import count
from threading import get_ident
from typing import Any, TypeVar

from ..errors import ClientClosed, Interrupted, StoreError, StoreUnavailable, Unanswered
from ..events import Hook
from ..flow import NOW, RUN, Ask, Flow, Join, Scan, Wait, WakeAll
from ..ops import Release
from ..owner import fresh_owner
from ..rules import COMPENSATE, MIN_PATIENCE, local_clock
from ..stores import AsyncStore
from .batcher import Batcher
from .retrying import (
    CLOSING_LOOK,
    IN_ORDER,
    IS_OP,
    LANDING,
    TWO_STEPS,
    TimeBudget,
    TryTimedOut,
    answered,
    ended,
    interruption,
    log_not_undone,
    pause,
    retried,
    unavailable,
)
from .waiters import Waiters

T = TypeVar("T")


class AsyncDriver:
    """Performs flows on an asyncio store, within one event loop."""

    def __init__(self, store: AsyncStore, *, timeout: float, hook: Hook | None = None) -> None:
        self.store = store
        self.timeout = timeout
        self.hook = hook
        self.waiters = Waiters()
        self.running: set[_Run] = set()
        self.undoing: set[asyncio.Future[Any]] = set()
        self.closing = self.closed = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._batcher: Batcher | None = None
        self._thread = 0
        store.listen(self.on_hint)

    def on_hint(self, key: str) -> None:
        """Wakes the first waiter for this key; callable from any thread."""
        if get_ident() == self._thread:
            self.waiters.wake(key)
        elif self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.waiters.wake, key)

    def batcher(self) -> Batcher:
        """The batcher of this driver's event loop; raises ClientClosed in any other loop."""
        loop = asyncio.get_running_loop()
        if self._batcher is None or self.loop is not loop:
            if self._batcher is not None:
                raise ClientClosed("an AsyncClient belongs to the event loop of its first use; open one per loop")
            self.loop, self._thread = loop, get_ident()
            self._batcher = Batcher(self.store, loop, max(MIN_PATIENCE, self.timeout * TWO_STEPS))
        return self._batcher

    def current_task(self) -> asyncio.Task[Any] | None:
        """The task that runs now; asked of the known loop, since asyncio takes three times as long to find it."""
        return asyncio.current_task(self.loop)

    def forked(self) -> None:
        """In the child of a fork: drops the parent's loop and waiters."""
        self.waiters = Waiters()
        self.running, self.undoing = set(), set()
        self.loop = self._batcher = None
        self._thread = 0
        self.store.forked()
        self.store.listen(self.on_hint)

    async def run(self, flow: Flow[T], *, undoing: bool = False) -> T:
        """The flow's result. Throws an interruption (cancellation, no answer) into the flow, which may undo its ops."""
        run = _Run()
        run.driver = self
        batcher, loop = self._batcher, self.loop
        if batcher is None or loop is None or get_ident() != self._thread or not loop.is_running():
            batcher = self.batcher()  # else this is our loop, as a thread runs only one; asking asyncio is slower
        run.batcher = batcher
        submit, send, waiters = batcher.submit, flow.send, self.waiters
        request: Any = None
        argument: Any = None
        stopped: Interrupted | None = None
        thrown: BaseException | None = None
        usual = not undoing  # the flow's requests are not compensating ops
        self.running.add(run)
        try:
            while True:
                try:
                    if thrown is None:
                        request = send(argument)
                    else:
                        request, thrown = flow.throw(thrown), None
                    while True:
                        kind = type(request)
                        if usual and kind in IS_OP and not self.closing and (start := local_clock()) < run.limited_from:
                            answer = submit(request)  # the usual case, inlined
                            if kind is Release:
                                waiters.wake(
                                    request.key
                                )  # the next waiter of this process sends its op right behind it
                            try:
                                argument, run.sent = await answer
                            except StoreUnavailable as error:
                                argument = await run.retry(request, start, error)
                        elif kind is Ask:
                            if request is RUN:
                                argument = run
                            elif request is NOW:
                                argument = local_clock()
                            else:
                                argument = fresh_owner()
                        elif kind is Join:
                            run.joined += (request.key,)
                            run.arrived = local_clock()
                            if request.at_most:
                                run.start_wait(request.at_most, self.timeout, run.arrived)
                            argument = run if waiters.join(request.key, run) or await run.turn(request) else None
                        elif kind is Wait:
                            stopped, usual = None, not undoing  # a flow that waits again has finished its undo
                            argument = await run.rest(request.at_most)
                            run.reset(self.timeout)
                        elif kind is WakeAll:
                            waiters.wake_all(request.key)
                            argument = None
                        else:
                            argument = await (run.execute(request) if usual else run.undo(request))
                        request = send(argument)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                except BaseException as error:  # noqa: BLE001 - the flow may undo after any error
                    if ended(flow):
                        raise (stopped.cause if stopped is not None else error) from None
                    thrown = error
                    if not isinstance(error, StoreError):
                        thrown = stopped = interruption(error, request, run.doubtful)
                        usual = False
        finally:
            self.running.discard(run)
            for key in run.joined:
                waiters.leave(key, run)

    async def close(self, last: Flow[None]) -> None:
        """Refuses new ops, waits up to COMPENSATE for running flows and their compensating ops, then runs `last`."""
        self.closing = True
        ends = local_clock() + COMPENSATE
        while (self.running or self.undoing) and local_clock() < ends:
            for run in list(self.running):
                run.wake()
            await asyncio.sleep(CLOSING_LOOK)
        await self.run(last, undoing=True)
        self.closed = True


async def finished(worker: asyncio.Future[T], within: float = math.inf) -> T:
    """The result of a worker that a cancellation of its caller does not stop: it is raised once the worker is done.

    Raises InvalidStateError if the worker takes longer than `within` seconds; it then goes on without its caller.
    """
    cancelled: asyncio.CancelledError | None = None
    ends = local_clock() + within
    while not worker.done() and (left := ends - local_clock()) > 0:
        try:
            await asyncio.wait({worker}, timeout=left if left < math.inf else None)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return worker.result()


class _Run(TimeBudget):
    """One running flow in its task, as a waiter in line; it remembers one wake-up."""

    driver: AsyncDriver
    batcher: Batcher
    joined: tuple[str, ...] = ()
    arrived = 0.0
    sleep: asyncio.Future[None] | None = None
    woken = False
    sent = 0.0
    now = staticmethod(local_clock)
    fresh_owner = staticmethod(fresh_owner)

    # -- waiting

    async def turn(self, request: Join) -> bool:
        """True once this flow is first in line; False if that takes too long."""
        ends, first, settled = self.arrived + request.at_most, False, request.settled
        while not first and not self.driver.closing and (left := ends - local_clock()) > 0:
            if settled is not None and settled():
                break
            await self.rest(left)  # also ended by a late hint for a key that this flow joined before
            first = self.driver.waiters.is_first(request.key, self)
        return first

    def wake(self) -> None:
        """Ends the current wait, or the next one."""
        self.woken = True
        sleep = self.sleep
        if sleep is not None and not sleep.done():
            sleep.set_result(None)

    def time_out(self) -> None:
        """Ends the current wait without a wake-up."""
        if self.sleep is not None and not self.sleep.done():
            self.sleep.set_result(None)

    async def rest(self, seconds: float) -> bool:
        """True if woken, False after that many seconds."""
        if not self.woken:
            loop = self.batcher.loop
            self.sleep = loop.create_future()
            timer = loop.call_later(seconds, self.time_out)
            try:
                await self.sleep
            finally:
                timer.cancel()
                self.sleep = None
        woken, self.woken = self.woken, False
        return woken

    # -- ops

    async def execute(self, request: Any) -> Any:
        """The reply to an op or a batch, retried for as long as the timeout allows."""
        if self.driver.closing:
            raise ClientClosed("the client is closed; open a new one")
        if type(request) is Release:
            self.driver.waiters.wake(request.key)
        start = local_clock()
        ends = self.tries_end(start, request, self.driver.timeout)
        try:
            return await self.within(self.cutoff(start, ends) - start, request)
        except StoreUnavailable as error:
            return await self.retry(request, start, error)

    async def within(self, seconds: float, request: Any) -> Any:
        """The reply to one try; raises TryTimedOut after `seconds`, and the store goes on with it."""
        try:
            async with asyncio.timeout(seconds):
                return await self.perform(request)
        except TimeoutError:
            raise TryTimedOut(seconds) from None

    async def perform(self, request: Any) -> Any:
        """The reply to an op or a scan, or the replies to a list of ops; tries once."""
        if type(request) is Scan:
            return await self.driver.store.scan(*request)
        if type(request) is not list:
            reply, self.sent = await self.batcher.submit(request)
            return reply
        replies, self.sent = await self.batcher.submit_all(request)
        return answered(replies)

    async def retry(self, request: Any, start: float, error: StoreUnavailable) -> Any:
        """Retries under the same owners for as long as the timeout allows; then raises Interrupted."""
        driver = self.driver
        ends, began = self.tries_end(start, request, driver.timeout), start
        self.doubtful = self.doubtful or isinstance(error, Unanswered)
        for tries in count(1):
            rest, now = pause(tries - 1, random.random()), local_clock()
            if driver.closing or not self.fits(began, now, ends - rest, driver.timeout):
                break
            if driver.hook is not None:
                driver.hook(retried(request, tries, error))
            await asyncio.sleep(rest)
            began = local_clock()
            try:
                reply = await self.within(self.cutoff(start, ends) - began, request)
            except StoreUnavailable as again:
                self.doubtful = self.doubtful or isinstance(again, Unanswered)
                if not isinstance(again, TryTimedOut):  # the error before says more
                    error = again
                continue
            self.charge(local_clock() - start)
            return reply
        self.charge(now - start)
        self.stop_trying(ends, driver.timeout)
        raise Interrupted(
            unavailable(request, tries, now - start, error, self.doubtful), unanswered=self.doubtful
        ) from None

    async def undo(self, request: Any) -> Any:
        """Performs a compensating op, shielded from cancellation, within COMPENSATE.

        A caller whose op got no answer waits for it until its timeout is over, then leaves it running. Returns None if
        it failed or still runs: what it should undo then expires with its ttl.
        """
        driver = self.driver
        if driver.closed:
            return None
        worker = asyncio.ensure_future(self._undo(request))
        driver.undoing.add(worker)
        worker.add_done_callback(driver.undoing.discard)
        with suppress(asyncio.CancelledError, asyncio.InvalidStateError):  # already reported; the worker goes on
            return await finished(worker, self.undo_until - local_clock())
        return worker.result() if worker.done() and not worker.cancelled() else None

    async def _undo(self, request: Any) -> Any:
        ops = request if type(request) is list else (request,)
        if any(type(op) in IN_ORDER for op in ops) and not await self.batcher.landed(self.driver.timeout * LANDING):
            log_not_undone(request)  # what is still on its way may be performed after all
        with suppress(TimeoutError):
            async with asyncio.timeout(COMPENSATE):
                for tries in count():
                    if self.driver.closed:
                        break
                    try:
                        return await self.perform(request)
                    except (StoreError, ClientClosed):
                        await asyncio.sleep(pause(tries, random.random()))
        log_not_undone(request)
        return None
