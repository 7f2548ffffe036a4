"""Performs flows on the caller's thread."""

from __future__ import annotations

import random
import threading
import time
from _thread import LockType, allocate_lock
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from ..errors import ClientClosed, Interrupted, StoreError, StoreUnavailable, Unanswered
from ..events import Hook
from ..flow import NOW, RUN, Ask, Flow, Join, Scan, Wait, WakeAll
from ..ops import Release
from ..owner import fresh_owner
from ..rules import COMPENSATE, local_clock
from ..stores import Store
from .retrying import (
    CLOSING_LOOK,
    IN_ORDER,
    IS_OP,
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


class BlockingDriver:
    """Performs flows on a blocking store; usable from any number of threads."""

    def __init__(self, store: Store, *, timeout: float, hook: Hook | None = None) -> None:
        self.store = store
        self.timeout = timeout
        self.hook = hook
        self.waiters = Waiters()
        self.running: set[_Run] = set()
        self.undoing: set[threading.Thread] = set()
        self.closing = self.closed = False
        self.up = False  # True if the last try was answered: the next one needs neither a connection nor a thread
        store.listen(self.waiters.wake)

    def forked(self) -> None:
        """In the child of a fork: drops the parent's waiters, whose mutex may be held by a thread that is gone."""
        self.waiters = Waiters()
        self.running, self.undoing = set(), set()
        self.up = False
        self.store.forked()
        self.store.listen(self.waiters.wake)

    def run(self, flow: Flow[T], *, undoing: bool = False) -> T:
        """The flow's result. Throws an interruption (KeyboardInterrupt, no answer) into the flow, which may undo."""
        run = _Run()
        run.driver = self
        perform, send, waiters = self.store.perform, flow.send, self.waiters
        argument: Any = None
        request: Any = None
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
                        if usual and kind in IS_OP and self.up and not run.spent and not self.closing:
                            run.sent = local_clock()  # the usual case, inlined
                            try:
                                argument = perform((request,))[0]
                            except StoreUnavailable as error:
                                argument = run.retry(request, error)
                            if isinstance(argument, StoreError):
                                raise argument
                            if kind is Release:
                                waiters.wake(request.key)  # the next waiter of this process needs no hint
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
                            argument = run if waiters.join(request.key, run) or run.turn(request) else None
                        elif kind is Wait:
                            stopped, usual = None, not undoing  # a flow that waits again has finished its undo
                            argument = run.sleep(request.at_most)
                            run.reset(self.timeout)
                        elif kind is WakeAll:
                            waiters.wake_all(request.key)
                            argument = None
                        else:
                            argument = run.execute(request) if usual else run.undo(request)
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

    def close(self, last: Flow[None]) -> None:
        """Refuses new ops, waits up to COMPENSATE for running flows and their compensating ops, then runs `last`."""
        self.closing = True
        ends = local_clock() + COMPENSATE
        while (self.running or self.undoing) and local_clock() < ends:
            for run in list(self.running):
                run.wake()
            time.sleep(CLOSING_LOOK)
        self.run(last, undoing=True)
        self.closed = True

    def perform(self, request: Any) -> Any:
        """The reply to an op or a scan, or the replies to a list of ops; tries once."""
        if type(request) is Scan:
            return self.store.scan(*request)
        if type(request) is not list:
            reply = self.store.perform((request,))[0]
            if isinstance(reply, StoreError):
                raise reply
            return reply
        try:
            return answered(self.store.perform(request))
        except StoreUnavailable:
            raise
        except StoreError:  # one op may have failed the batch for all: retry each alone, under its own owner
            return [self._alone(op) for op in request]

    def _alone(self, op: Any) -> Any:
        try:
            return self.store.perform((op,))[0]
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error


class _Run(TimeBudget):
    """One running flow on its thread, as a waiter in line. It remembers one wake-up; `flag`, a lock, exists only once
    the flow has slept."""

    driver: BlockingDriver
    flag: LockType | None = None
    woken = False
    joined: tuple[str, ...] = ()
    arrived = 0.0
    sent = 0.0
    late: threading.Thread | None = None  # runs a try that the caller may no longer wait for
    now = staticmethod(local_clock)
    fresh_owner = staticmethod(fresh_owner)

    # -- waiting

    def turn(self, request: Join) -> bool:
        """True once this flow is first in line; False if that takes too long."""
        ends, first, settled = self.arrived + request.at_most, False, request.settled
        while not first and not self.driver.closing and (left := ends - local_clock()) > 0:
            if settled is not None and settled():
                break
            self.sleep(left)  # also ended by a late hint for a key that this flow joined before
            first = self.driver.waiters.is_first(request.key, self)
        return first

    def wake(self) -> None:
        """Ends the current sleep, or the next one."""
        self.woken = True
        flag = self.flag
        if flag is not None:
            with suppress(RuntimeError):  # it was awake already
                flag.release()

    def sleep(self, seconds: float) -> bool:
        """True if woken, False after that many seconds."""
        if self.flag is None:
            flag = allocate_lock()
            flag.acquire()
            self.flag = flag  # set before `woken` is read: a later wake() sees it
        rest = 0.0 if self.woken else max(0.0, min(seconds, threading.TIMEOUT_MAX))
        woken = self.flag.acquire(timeout=rest) or self.woken
        self.woken = False  # a wake() at this very moment has released the flag: the next sleep ends at once
        return woken

    # -- ops

    def execute(self, request: Any) -> Any:
        """The reply to an op or a batch, retried for as long as the timeout allows."""
        driver = self.driver
        if driver.closing:
            raise ClientClosed("the client is closed; open a new one")
        start = self.sent = local_clock()
        try:
            if driver.up and not self.spent:
                reply = driver.perform(request)
            else:
                ends = self.tries_end(start, request, driver.timeout)
                reply = self.within(self.cutoff(start, ends) - start, request)
        except StoreUnavailable as error:
            return self.retry(request, error)
        driver.up = True
        if type(request) is Release:
            driver.waiters.wake(request.key)
        return reply

    def within(self, seconds: float, request: Any) -> Any:
        """The reply to one try on a separate thread; raises TryTimedOut after `seconds`. A try without a connection has
        several steps, and each may take as long as a whole try."""
        replies: list[Any] = []
        errors: list[BaseException] = []
        worker = threading.Thread(target=self._try, args=(request, replies, errors), name="solely-try", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # the interpreter is shutting down
            return self.driver.perform(request)
        self.late = worker
        worker.join(max(0.0, seconds))
        if errors:
            raise errors[0]
        if not replies:
            raise TryTimedOut(seconds)
        return replies[0]

    def _try(self, request: Any, replies: list[Any], errors: list[BaseException]) -> None:
        try:
            replies.append(self.driver.perform(request))
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            errors.append(error)

    def retry(self, request: Any, error: StoreUnavailable) -> Any:
        """Retries under the same owners for as long as the timeout allows; then raises Interrupted."""
        driver, start = self.driver, self.sent
        driver.up = False
        ends, began = self.tries_end(start, request, driver.timeout), start
        self.doubtful = self.doubtful or isinstance(error, Unanswered)
        for tries in count(1):
            rest, now = pause(tries - 1, random.random()), local_clock()
            if driver.closing or not self.fits(began, now, ends - rest, driver.timeout):
                break
            if driver.hook is not None:
                driver.hook(retried(request, tries, error))
            time.sleep(rest)
            self.sent = began = local_clock()
            try:
                reply = self.within(self.cutoff(start, ends) - began, request)
            except StoreUnavailable as again:
                self.doubtful = self.doubtful or isinstance(again, Unanswered)
                if not isinstance(again, TryTimedOut):  # the error before says more
                    error = again
                continue
            driver.up = True
            self.charge(local_clock() - start)
            return reply
        self.charge(now - start)
        self.stop_trying(ends, driver.timeout)
        raise Interrupted(
            unavailable(request, tries, now - start, error, self.doubtful), unanswered=self.doubtful
        ) from None

    def undo(self, request: Any) -> Any:
        """Performs a compensating op on a separate thread, within COMPENSATE.

        A caller whose op got no answer waits for it until its timeout is over, then leaves it running. Returns None if
        it failed or still runs: what it should undo then expires with its ttl.
        """
        if self.driver.closed:
            return None
        replies: list[Any] = []
        worker = threading.Thread(target=self._undo, args=(request, replies), name="solely-undo", daemon=True)
        worker.start()
        worker.join(max(0.0, min(COMPENSATE, self.undo_until - local_clock())))
        return replies[0] if replies else None

    def _undo(self, request: Any, replies: list[Any]) -> None:
        this = threading.current_thread()
        self.driver.undoing.add(this)
        try:
            if self.late is not None and any(type(op) in IN_ORDER for op in _ops(request)):
                self.late.join(COMPENSATE / 2)
            if not self._undone(request, replies):
                log_not_undone(request)
        finally:
            self.driver.undoing.discard(this)

    def _undone(self, request: Any, replies: list[Any]) -> bool:
        ends = local_clock() + COMPENSATE
        for tries in count():
            with suppress(StoreError, ClientClosed):
                replies.append(self.driver.perform(request))
                return True
            rest = pause(tries, random.random())
            if self.driver.closed or local_clock() + rest > ends:
                break
            time.sleep(rest)
        return False


def _ops(request: Any) -> Any:
    return request if type(request) is list else (request,)
