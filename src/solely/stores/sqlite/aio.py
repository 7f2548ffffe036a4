"""The asyncio face: one thread of its own, where ops pile up while it is busy and then go into one transaction."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from solely.errors import InvalidInput, StoreError, StoreUnavailable
from solely.kinds import check_ops
from solely.model import Entry, Finding
from solely.ops import MAX_BATCH, MAX_LIMIT, Op, Reply
from solely.stores import Tell

from .clock import Readings
from .hub import hub_of
from .session import CLOSE_PATIENCE, Session
from .within import Visit

Future = asyncio.Future[Any]
Batch = tuple[Sequence[Op], Future]  # ops, and whose answer it is
Call = tuple[Callable[[], Any], Future]


class AsyncSqliteStore:
    """For one event loop at a time. What was handed to perform() is performed, whoever still awaits it."""

    polls = True
    max_limit = MAX_LIMIT

    def __init__(self, path: str, readings: Readings, timeout: float, *, shared: bool = False) -> None:
        self.client = os.urandom(16).hex()
        self._path, self._shared, self._readings, self._timeout = path, shared, readings, timeout
        self._hub = hub_of(path)
        self._closed = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._batches: deque[Batch] = deque()
        self._calls: deque[Call] = deque()
        self._bell: SimpleQueue[bool] = SimpleQueue()  # rings once per thing to do; False: the last ring
        # Started, with its session, by the first thing to do, and not in forked(): there the hub may still be locked.
        self._thread: threading.Thread | None = None
        self._ended: Future

    def listen(self, tell: Tell) -> None:
        self._hub.listeners[self.client] = tell

    def perform(self, ops: Sequence[Op]) -> Future:
        future = self._promise()
        try:
            check_ops(ops)
        except InvalidInput as error:  # before it goes along with the batches of others
            future.set_exception(error)
            return future
        self._batches.append((ops, future))
        self._bell.put(True)
        return future

    async def perform_within(self, connection: sqlite3.Connection, ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the connection's transaction; in this thread, like every statement of that connection."""
        return Visit(connection, self._path, self._shared, self._readings).perform(ops)

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        found: list[Entry] = await self._call(lambda: self._session.scan(prefix, after, limit))
        return found

    async def check(self) -> list[Finding]:
        found: list[Finding] = await self._call(lambda: self._session.check())
        return found

    def _call(self, function: Callable[[], Any]) -> Future:
        future = self._promise()
        self._calls.append((function, future))
        self._bell.put(True)
        return future

    def _promise(self) -> Future:
        if self._closed:
            raise StoreUnavailable(f"the SQLite store {self._path} was closed")
        if self._thread is None:
            self._session = Session(self._path, self._shared, self._hub, self._readings, self._timeout)
            self._thread = threading.Thread(target=self._work, args=(self._bell,), name="solely-sqlite", daemon=True)
            self._thread.start()
        return asyncio.get_running_loop().create_future()

    def forked(self) -> None:
        """The thread stayed with the parent; the child starts one of its own, under a name of its own."""
        tell = self._hub.listeners.pop(self.client, None)
        self.client = os.urandom(16).hex()
        if tell is not None:
            self.listen(tell)
        self._start_anew()

    async def close(self) -> None:
        """What was handed in is performed first; waits for that at most the timeout and a little."""
        self._closed = True
        self._hub.listeners.pop(self.client, None)
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self._bell.put(False)
        done, _ = await asyncio.wait([self._ended], timeout=self._timeout + CLOSE_PATIENCE)
        if done:
            thread.join()  # it has nothing left to do

    # -- in the thread

    def _work(self, bell: SimpleQueue[bool]) -> None:
        """Serves until the last ring; a ring whose work went along with an earlier one finds nothing to do."""
        while bell.get():
            self._perform_waiting()
            while self._calls:
                self._answer_call(*self._calls.popleft())
        with self._session.lock:
            self._session.disconnect()
        _deliver(self._ended.get_loop(), [(self._ended, None)])

    def _perform_waiting(self) -> None:
        """All batches that wait, up to MAX_BATCH ops, as one."""
        batches, ops = list[Batch](), list[Op]()
        while self._batches and (not batches or len(ops) + len(self._batches[0][0]) <= MAX_BATCH):
            batch = self._batches.popleft()
            batches.append(batch)
            ops.extend(batch[0])
        if not batches:
            return
        try:
            replies = self._session.perform(ops)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the awaiters' to know, and the thread lives on
            _deliver(batches[0][1].get_loop(), [(future, _copy(error)) for _, future in batches])
            return
        answers, start = list[tuple[Future, Any]](), 0
        for part, future in batches:
            answers.append((future, replies[start : start + len(part)]))
            start += len(part)
        _deliver(batches[0][1].get_loop(), answers)

    def _answer_call(self, function: Callable[[], Any], future: Future) -> None:
        try:
            answer = function()
        except Exception as error:  # noqa: BLE001 - as above
            answer = error
        _deliver(future.get_loop(), [(future, answer)])


def _copy(error: Exception) -> Exception:
    """One of its own for each awaiter, so that their tracebacks do not mix."""
    if not isinstance(error, StoreError):
        return error
    copy = type(error)(str(error), key=error.key, holder=error.holder, left=error.left)
    copy.__cause__ = error.__cause__
    return copy


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
