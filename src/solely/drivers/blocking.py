"""Performs flows on the caller's thread."""

from __future__ import annotations

import logging
import random
import threading
import time
from _thread import allocate_lock
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from ..errors import ClientClosed, Interrupted, StoreError, StoreUnavailable, Unanswered
from ..events import Hook
from ..flows.requests import Ask, Flow, Join, Wait
from ..ops import Release
from ..owner import fresh_owner
from ..rules import COMPENSATE, local_clock
from ..stores import Store
from .lines import Lines
from .trying import CLOSING_LOOK, IS_OP, ended, given_up, interruption, pause, retried

T = TypeVar("T")
log = logging.getLogger("solely")


class BlockingDriver:
    """Performs flows on a blocking store; usable from any number of threads."""

    def __init__(self, store: Store, *, timeout: float, hook: Hook | None = None) -> None:
        self.store = store
        self.timeout = timeout
        self.hook = hook
        self.lines = Lines()
        self.running: set[_Run] = set()
        self.closing = self.closed = False
        store.listen(self.lines.tell)

    def forked(self) -> None:
        """In the child of a fork: no line of the parent is ours, and no mutex of it can be trusted."""
        self.lines = Lines()
        self.running = set()
        self.store.forked()
        self.store.listen(self.lines.tell)

    def run(self, flow: Flow[T]) -> T:
        """The flow's result. An interruption (KeyboardInterrupt, no answer) is thrown into the flow, which may undo."""
        return _Run(self).run(flow)

    def close(self, last: Flow[None]) -> None:
        """Refuses new ops, waits until the flows under way have ended, then runs the last; each within COMPENSATE."""
        self.closing = True
        ends = local_clock() + COMPENSATE
        while self.running and local_clock() < ends:
            for run in list(self.running):
                run.wake()
            time.sleep(CLOSING_LOOK)
        _Run(self).run(last, undoing=True)
        self.closed = True

    def perform(self, request: Any) -> Any:
        """The reply to an op, or the list of replies to a list of ops; one try."""
        if type(request) is not list:
            reply = self.store.perform((request,))[0]
            if isinstance(reply, StoreError):
                raise reply
            if type(request) is Release:
                self.lines.tell(request.key)  # the next of this process need not wait for the store's hint
            return reply
        try:
            return self.store.perform(request)
        except StoreUnavailable:
            raise
        except StoreError:  # one op may have spoiled it for all: each is repeated alone, under its own owner
            return [self._alone(op) for op in request]

    def _alone(self, op: Any) -> Any:
        try:
            return self.store.perform((op,))[0]
        except StoreUnavailable:
            raise
        except StoreError as error:
            return error


class _Run:
    """One flow under way, on one thread, and its place in the lines: a lock used as a flag remembers one wake-up."""

    __slots__ = ("doubtful", "driver", "flag", "joined", "sent")

    def __init__(self, driver: BlockingDriver) -> None:
        self.driver = driver
        self.joined: list[str] | None = None
        self.sent = 0.0
        self.doubtful = False

    def run(self, flow: Flow[T], *, undoing: bool = False) -> T:
        send, grant = flow.send, self.undo if undoing else self.grant
        request: Any = None
        argument: Any = None
        stopped: Interrupted | None = None
        thrown: BaseException | None = None
        self.driver.running.add(self)
        try:
            while True:
                try:
                    if thrown is not None:
                        request, thrown = flow.throw(thrown), None
                        if type(request) is Wait:  # a flow that waits again has done with undoing
                            stopped, grant = None, self.grant
                        argument = grant(request)
                    while True:
                        request = send(argument)
                        argument = grant(request)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                except BaseException as error:  # noqa: BLE001 - whatever happened, the flow may undo
                    if ended(flow):
                        raise (stopped.cause if stopped is not None else error) from None
                    thrown = error
                    if not isinstance(error, StoreError):
                        thrown = stopped = interruption(error, request, self.doubtful)
                        grant = self.undo
        finally:
            self.driver.running.discard(self)
            if self.joined is not None:
                for key in self.joined:
                    self.driver.lines.leave(key, self)

    def wake(self) -> None:
        """Ends the sleep, or the next one."""
        if self.joined is not None:
            with suppress(RuntimeError):  # it was awake already
                self.flag.release()

    def sleep(self, seconds: float) -> bool:
        """True if woken, False after that many seconds."""
        return self.flag.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))

    def grant(self, request: Any) -> Any:
        """What the flow asked for; raises Interrupted if an answer never came."""
        kind = type(request)
        if kind is Ask:
            if request is Ask.SENT:
                return self.sent, self.doubtful, local_clock()
            if request is Ask.NOW:
                return local_clock()
            if request is Ask.ATTEMPT:
                return fresh_owner(), local_clock()
            return fresh_owner() if request is Ask.OWNER else random.random()
        if kind is Join:
            return self.join(request)
        if kind is Wait:
            return self.sleep(request.at_most)
        return self.ask(request)

    def ask(self, request: Any) -> Any:
        """The answer, tried for as long as the timeout allows."""
        driver = self.driver
        if driver.closing:
            raise ClientClosed("the client is closed; open a new one")
        started = self.sent = local_clock()
        tries = 0
        while True:
            try:
                return driver.perform(request)
            except StoreUnavailable as error:
                tries += 1
                self.doubtful = self.doubtful or isinstance(error, Unanswered)
                rest = pause(tries - 1, random.random())
                since = local_clock() - started
                if self.driver.closing or since + rest > driver.timeout:
                    raise Interrupted(
                        given_up(request, tries, since, error, self.doubtful), unanswered=self.doubtful
                    ) from None
                if driver.hook is not None:
                    driver.hook(retried(request, tries, error))
            time.sleep(rest)
            self.sent = local_clock()

    def join(self, request: Join) -> bool:
        if self.joined is None:
            self.flag = allocate_lock()
            self.flag.acquire()
            self.joined = []
        first = self.driver.lines.join(request.key, self)
        self.joined.append(request.key)
        ends = local_clock() + request.at_most
        while not first and not self.driver.closing and (left := ends - local_clock()) > 0:
            self.sleep(left)  # also ended by a late hint for a key that this flow had joined before
            first = self.driver.lines.is_first(request.key, self)
        return first

    def undo(self, request: Any) -> Any:
        """Performs a compensating op on a thread of its own and waits at most COMPENSATE for it: a caller that was
        interrupted wants to leave. None if that failed: what was to be undone then ends with its ttl."""
        if type(request) not in IS_OP and type(request) is not list:
            return self.grant(request)
        if self.driver.closed:
            return None
        replies: list[Any] = []
        worker = threading.Thread(target=self._undo, args=(request, replies), name="solely-undo", daemon=True)
        worker.start()
        worker.join(COMPENSATE)
        if not replies:
            log.warning("undo_failed", extra={"request": repr(request)[:200]})
        return replies[0] if replies else None

    def _undo(self, request: Any, replies: list[Any]) -> None:
        ends = local_clock() + COMPENSATE
        for tries in count():
            with suppress(StoreError):
                replies.append(self.driver.perform(request))
                return
            rest = pause(tries, random.random())
            if self.driver.closed or local_clock() + rest > ends:
                return
            time.sleep(rest)
