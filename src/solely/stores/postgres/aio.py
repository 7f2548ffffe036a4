"""Asyncio: batches go out on a few connections, and what waits while all are busy goes out together.

Nobody's cancellation stops a batch: its answer is read whoever still waits for it, and then the connection is given
to the next. So the ops of many tasks share a round trip and a commit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

import psycopg

from ...errors import ClientClosed, InvalidInput, StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Release, Reply
from .. import SCANS, Answers, Clock, OnHint
from ..batches import waits
from ..listener import AsyncListener
from . import codec, health
from .aio_connection import AsyncPostgresConnection
from .aio_pool import ConnectionPool, PendingOps, close_late, fail
from .batch import LINGER, PATIENCE, SWEEP_ROWS, SweepCursor, answers, can_wait, parts, statement
from .busy_keys import AsyncBusyKeys, BusyOps, KeyLine
from .codec import Values
from .connection import PostgresConnection
from .faults import OutOfLocks
from .listener import FAILURES, AsyncPostgresSubscription
from .schema import Connector
from .settings import PostgresSettings
from .within import PostgresTransaction

T = TypeVar("T")

PATIENT = 2  # connections that may wait for busy keys, so that a slow transaction of somebody else never stops all
# Turns of the loop that a release waits for the next of its line, who acquires one turn later: then both share one
# commit, where otherwise the second would meet the lock of the first. A turn without work takes some 10 µs.
AWAIT_NEXT = 2

_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class AsyncPostgresStore:
    """A store for one event loop."""

    max_limit = MAX_LIMIT
    portion = MAX_BATCH

    def __init__(self, settings: PostgresSettings, *, clock: Clock | None, timeout: float) -> None:
        self._settings = settings
        self._clock = clock
        self._timeout = timeout
        self._patience = max(1, int(timeout * PATIENCE * 1000))
        self._connector = Connector(settings)
        self._within = PostgresTransaction(settings, clock=clock, patience=timeout, connector=self._connector)
        self._sweep = SweepCursor()
        self._reset()

    def _reset(self) -> None:
        self.client = os.urandom(16).hex()
        self._patient = 0
        self._busy_keys = AsyncBusyKeys()
        self._scans = asyncio.Semaphore(SCANS)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pool = ConnectionPool(self._connect, self._serve, self._connector.missing, str(self._settings))
        self._listener = AsyncListener(self._subscription, FAILURES, self._timeout)

    def __repr__(self) -> str:
        return f"<AsyncPostgresStore {self._settings}>"

    # -- the protocol

    @property
    def polls(self) -> bool:
        return self._connector.pooled

    def perform(self, ops: Sequence[Op]) -> Awaitable[Answers]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        request = PendingOps(ops, asyncio.get_running_loop().create_future())
        try:
            check_ops(ops)
        except InvalidInput as error:
            request.future.set_exception(error)
            return request.future
        if not ops:
            request.future.set_result([])
        elif not self._listener.ready and not self.polls and waits(ops):
            self._start(self._after_listening(request))
        else:
            self._enqueue(request)
        if self._sweep.due(len(ops)) and not self._pool.closed:
            self._start(self._sweep_some())
        return request.future

    def perform_within(self, connection: psycopg.AsyncConnection[Any], ops: Sequence[Op]) -> Awaitable[list[Reply]]:
        """Performs the ops in the connection's transaction, with which they commit or roll back: see within.py."""
        return self._within.perform_async(connection, ops)

    def listen(self, on_hint: OnHint) -> None:
        self._listener.on_hint = on_hint

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        page = (self._now(), prefix, after, limit)
        async with self._scans:
            return codec.page(await self._call("page", page))

    async def check(self) -> list[Finding]:
        """Reachable? Clock? PostgresSettings that break a promise? Raises only StoreError."""
        sent = time.monotonic()
        row = await self._pool.use_connection(lambda connection: connection.execute(self._settings.queries["check"]))
        return health.findings(self._settings, row, took=time.monotonic() - sent, pooled=self.polls)

    async def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._pool.closed = True
        await self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._pool.close()

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's, and its loop's tasks, are left as they are."""
        _parents.append((self._pool, self._tasks, self._listener))
        on_hint = self._listener.on_hint
        self._reset()
        self._listener.on_hint = on_hint

    # -- batches

    def _enqueue(self, request: PendingOps) -> None:
        if request.mixes:
            self._pool.enqueue(request, turns=AWAIT_NEXT if type(request.ops[0]) is Release else 0)
        else:
            self._start(self._perform_parts(request))

    def _serve(self, connection: AsyncPostgresConnection, request: PendingOps) -> None:
        """A connection is free, and this request is the first in the line."""
        together = self._pool.company(request)
        ops = request.ops if len(together) == 1 else [op for each in together for op in each.ops]
        alone = len(ops) == 1 and self._patient < PATIENT
        try:
            if alone:  # nobody else waits for this statement, so it may wait for a busy key at once
                answer = connection.call(*codec.alone(ops[0], self._now(), self._patience))
                self._patient += 1
                answer.add_done_callback(self._be_done_waiting)
            else:
                answer = connection.call(*statement(ops, self._now()))
        except ValueError as error:  # text that is no Unicode: each op is then repeated alone, and only that one fails
            self._pool.give(connection)
            for each in together:
                fail(each, codec.not_encoded(error))
            return
        answer.add_done_callback(lambda done: self._answered(connection, ops, together, done))

    def _be_done_waiting(self, _: object) -> None:
        self._patient -= 1

    def _answered(
        self,
        connection: AsyncPostgresConnection,
        ops: Sequence[Op],
        together: list[PendingOps],
        done: asyncio.Future[Any],
    ) -> None:
        error = self._pool.as_store_error(connection, done.exception())
        self._pool.give(connection)
        if error is not None:
            for request in together:
                fail(request, error)
            return
        busy: list[int] = []
        replies = answers(ops, done.result(), busy)
        start = 0
        for request in together:
            end = start + len(request.ops)
            own = [place - start for place in busy if start <= place < end]
            if own:
                self._start(self._repeat_and_settle(request, replies[start:end], own))
            elif not request.future.done():
                request.future.set_result(replies if len(together) == 1 else replies[start:end])
            start = end

    async def _repeat_and_settle(self, request: PendingOps, replies: Answers, busy: list[int]) -> None:
        try:
            await self._repeat(request.ops, replies, busy)
            if not request.future.done():
                request.future.set_result(replies)
        finally:
            fail(request, ClientClosed("the client was closed; open a new one"))

    async def _repeat(self, ops: Sequence[Op], replies: Answers, busy: list[int]) -> None:
        """Repeats what was busy until it had its turn, together with what other batches want of the same keys: for
        long only if that harms no stranger."""
        patience = self._timeout * PATIENCE if can_wait(ops, busy) else LINGER
        await self._busy_keys.wait(BusyOps(ops, replies, busy, patience), self._ask)

    async def _ask(self, line: KeyLine[asyncio.Lock], asker: BusyOps) -> None:
        """Asks for all that is in line: waits for it on the server, or polls if no connection is left to wait on."""
        while self._patient >= PATIENT:
            await asyncio.sleep(LINGER)
            if not asker.waits:
                return
            await self._perform_shared(line, asker, waits=False)
            if not asker.places:
                return
        self._patient += 1
        try:
            await self._perform_shared(line, asker, waits=True)
        finally:
            self._patient -= 1

    async def _perform_shared(self, line: KeyLine[asyncio.Lock], asker: BusyOps, *, waits: bool) -> None:
        batch = line.take(asker)
        steps = batch.statements(waits, self._now)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._outcome(*step))
        except StopIteration:
            pass
        except BaseException:
            batch.doubt("the client was closed while this was asked for")
            raise
        finally:
            line.put_back(batch)

    async def _perform_parts(self, request: PendingOps) -> None:
        """Performs a request that takes several statements, or one of many marks."""
        replies: Answers = []
        todo = list(parts(request.ops))[::-1]
        try:
            while todo:
                part = todo.pop()
                busy: list[int] = []
                try:
                    own = answers(part, await self._call(*statement(part, self._now())), busy)
                except OutOfLocks:
                    if len(part) <= MAX_BATCH:
                        raise
                    todo += [part[start : start + MAX_BATCH] for start in range(0, len(part), MAX_BATCH)][::-1]
                    continue
                if busy:
                    await self._repeat(part, own, busy)
                replies += own
            if not request.future.done():
                request.future.set_result(replies)
        except (StoreError, ClientClosed, ValueError) as error:
            if replies and isinstance(error, StoreUnavailable):
                error = Unanswered(f"only {len(replies)} of {len(request.ops)} ops were answered: {error}")
            fail(request, error)
        finally:
            fail(request, ClientClosed("the client was closed; open a new one"))

    def _call(self, name: str, values: Values) -> Awaitable[Any]:
        """The result of a statement, on whichever connection is free next."""
        return self._pool.use_connection(lambda connection: connection.call(name, values))

    async def _outcome(self, name: str, values: Values) -> Any:
        """The same, or its StoreError."""
        try:
            return await self._call(name, values)
        except StoreError as error:
            return error
        except ValueError as error:
            return codec.not_encoded(error)

    # -- beside batches

    def _start(self, work: Coroutine[Any, Any, T]) -> None:
        """A task that is kept until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _after_listening(self, request: PendingOps) -> None:
        try:
            await self._listener.prepare()
        finally:
            self._enqueue(request)

    async def _sweep_some(self) -> None:
        """Forgets a few rows that no longer matter. What hinders it hinders no op: the next sweep tries again."""
        stretch = (self._now(), self._sweep.after, SWEEP_ROWS)
        try:
            result = await self._call("sweep", stretch)
        except (StoreError, ClientClosed):
            return
        self._sweep.after = (result.get_value(0, 0) or b"").decode()

    def _connect(self) -> PostgresConnection:
        return self._connector.connect(self._timeout)

    async def _subscription(self) -> AsyncPostgresSubscription:
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(None, self._connect)
        try:
            connection = AsyncPostgresConnection(await asyncio.shield(opening), loop)
        except asyncio.CancelledError:
            opening.add_done_callback(close_late)
            raise
        return AsyncPostgresSubscription(connection, self.client)

    def _now(self) -> int | None:
        return None if self._clock is None else round(self._clock() * 1_000_000)
