"""Asyncio: all tasks share one connection per server, and a batch is one write and one future.

Nobody's cancellation stops a batch: the answer of a cancelled one is taken out of the line when it comes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import hiredis

from ...errors import ClientClosed, InvalidInput, StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op
from .. import SCANS, Answers, Clock, NotPrimary, OnHint
from ..batches import waits
from ..listener import AsyncListener
from .aio_connection import AsyncRedisConnection, fail
from .batch import MOST_ROUNDS, Part, SplitBatch, calls
from .codec import LOAD, Codec
from .health import admit, read_info
from .index import RedisOp
from .listener import FAILURES, AsyncRedisSubscription, ListenerConnection
from .queries import Batch, Query, Routes, check, complete_index, find_routes, scan
from .replies import decode, lacks_script
from .settings import RedisSettings, ServerAddress

T = TypeVar("T")
W = TypeVar("W", bound=AsyncRedisConnection)

_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class AsyncRedisStore:
    """A store for one event loop on one server, a primary that Sentinel names, or a cluster."""

    polls = False
    portion = 16  # a call of the script costs the server what two ops do; 16 keep it busy while the client goes on
    max_limit = MAX_LIMIT
    perform_within = None

    def __init__(self, settings: RedisSettings, *, clock: Clock | None, timeout: float) -> None:
        self.client = os.urandom(16).hex()
        self._settings = settings
        self._logins = settings.logins
        self._timeout = timeout
        self._codec = Codec(settings.prefix, clock, cluster=settings.cluster)
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._routes: Routes | None = None
        self._scans = asyncio.Semaphore(SCANS)
        self._completing: asyncio.Task[None] | None = None
        self._home: AsyncRedisConnection | None = None  # while it is up; in a cluster there is none
        self._connections: dict[ServerAddress, AsyncRedisConnection] = {}
        self._connecting: dict[ServerAddress, asyncio.Task[AsyncRedisConnection]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listener = AsyncListener(self._subscription, FAILURES, self._timeout)

    def __repr__(self) -> str:
        return f"<AsyncRedisStore {self._settings}>"

    # -- the protocol

    def perform(self, ops: Sequence[Op]) -> Awaitable[Answers]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        try:
            check_ops(ops)
        except InvalidInput as error:
            refused: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused
        connection = self._home
        if self._logins is not None:
            self._logins.renew_if_due()
        if connection is None or len(ops) > MAX_BATCH or (not self._listener.ready and waits(ops)):
            return self._start(self._perform(ops))
        return connection.call(self._codec.command(ops), self._finish, ops)

    def listen(self, on_hint: OnHint) -> None:
        self._listener.on_hint = on_hint

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        async with self._scans:
            while True:
                found = await self._drive(scan(await self._all_routes(), self._codec, prefix, after, limit))
                if found is not None:
                    return found
                await self._complete_index()

    async def _complete_index(self) -> None:
        """Completes it once for all callers, and goes on if they stop waiting: it may take longer than a try."""
        routes = await self._all_routes()
        if self._completing is None or self._completing.done():
            self._completing = self._start(self._drive(complete_index(routes, self._codec)))
        await self._shared(self._completing)

    async def check(self) -> list[Finding]:
        """Reachable? Clock? RedisSettings that break a promise? Raises only StoreError."""
        return await self._drive(check(await self._all_routes(), self._codec))

    async def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        for task in [*self._connecting.values(), *self._tasks]:
            task.cancel()
        await asyncio.gather(*self._connecting.values(), *self._tasks, return_exceptions=True)
        await asyncio.gather(
            self._listener.close(), *(connection.close() for connection in list(self._connections.values()))
        )

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's, and its loop's tasks, are left as they are."""
        _parents.append((self._home, self._connections, self._connecting, self._tasks, self._listener))
        on_hint = self._listener.on_hint
        if self._logins is not None:
            self._logins.forked()
        self.client = os.urandom(16).hex()
        self._reset()
        self._listener.on_hint = on_hint

    # -- batches

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """A task that is kept until it ends, and whose error is not reported as forgotten if nobody awaits it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _perform(self, ops: Sequence[Op]) -> Answers:
        if not self._settings.cluster:
            connection = await self._connected(await self._primary())
        if not self._listener.ready and waits(ops):
            await self._listener.prepare()
        if self._settings.cluster or len(ops) > MAX_BATCH:
            return await self._in_parts(ops)
        answers: Answers = await connection.call(self._codec.command(ops), self._finish, ops)
        return answers

    def _finish(self, future: asyncio.Future[Any], ops: Sequence[Op], raw: Any) -> None:
        if lacks_script(raw):
            again = self._start(self._load_and_repeat(ops))
            again.add_done_callback(lambda done: _pass_on(done, future))
            return
        failures: list[StoreError] = []
        answers = decode(ops, raw, failures)
        error = self._check_failures(failures, len(ops)) if failures else None
        if error is None:
            future.set_result(answers)
        else:
            fail(future, error)

    async def _load_and_repeat(self, ops: Sequence[Op]) -> Answers:
        connection = await self._connected(await self._primary())
        connection.call(LOAD)
        answers: Answers = await connection.call(self._codec.command(ops), self._finish, ops)
        return answers

    async def _in_parts(self, ops: Sequence[RedisOp]) -> Answers:
        batch = SplitBatch(ops, self._codec)
        for _ in range(MOST_ROUNDS):
            groups = batch.groups(await self._all_routes())
            results = await asyncio.gather(*(self._send(address, parts) for address, parts in groups))
            for (_, parts), raws in zip(groups, results, strict=True):
                for part, raw in zip(parts, raws, strict=True):
                    batch.put(part, raw)
            if batch.moved:
                self._routes = None
            if not batch.open:
                break
        failures = batch.failures()
        error = self._check_failures(failures, len(ops)) if failures else None
        if error is not None:
            raise error
        return batch.answers

    async def _send(self, address: ServerAddress, parts: list[Part]) -> list[Any]:
        """The answers to these parts, one each; why there is none in the place of one."""
        try:
            connection = await self._connected(address)
            commands = calls(parts, self._codec)
            answers = await asyncio.gather(*connection.call_all(commands), return_exceptions=True)
            for place in [place for place, answer in enumerate(answers) if lacks_script(answer)]:
                connection.call(LOAD)
                answers[place] = await connection.call(commands[place])
        except StoreUnavailable as error:
            return [error] * len(parts)
        return answers[-len(parts) :]

    def _check_failures(self, failures: list[StoreError], sent: int) -> StoreError | None:
        """Leaves a server that may not write; answers the error of the whole batch if nothing at all was performed."""
        if any(isinstance(failure, NotPrimary) for failure in failures):
            self._routes = None
            self._listener.reconnect()
            for connection in list(self._connections.values()):
                connection.abort("another server is the primary now")
        if len(failures) == sent and all(isinstance(failure, StoreUnavailable) for failure in failures):
            return failures[0]
        return None

    # -- connections

    async def _connected(self, address: ServerAddress) -> AsyncRedisConnection:
        """The connection to this server; callers at the same time share one try."""
        connection = self._connections.get(address)
        if connection is not None and not connection.lost.done():
            return connection
        task = self._connecting.get(address)
        if task is None:
            task = self._connecting[address] = self._start(self._connect(AsyncRedisConnection, address))
            task.add_done_callback(lambda done: self._connecting.pop(address, None))
        return await self._shared(task)

    @staticmethod
    async def _shared(task: asyncio.Task[T]) -> T:
        """The result of a task that others await too; ClientClosed if closing the client cancelled it."""
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise ClientClosed("the client was closed; open a new one") from None
            raise

    async def _connect(self, kind: type[W], address: ServerAddress) -> W:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        if self._logins is not None:
            self._loop = asyncio.get_running_loop()
            self._logins.used_by(self)
        try:
            connection = await kind.connect(self._settings, address, self._timeout)
            try:
                admit(self._settings, address, read_info(await connection.execute("INFO")))
            except BaseException:
                connection.abort("it may not be used")
                raise
        except StoreUnavailable as error:
            self._routes = None  # perhaps another one is the primary by now
            raise StoreUnavailable(str(error)) from None  # not Unanswered: no op was sent
        if kind is AsyncRedisConnection:
            self._connections[address] = connection
            self._home = None if self._settings.cluster else connection
            connection.lost.add_done_callback(lambda _: self._lost(connection))
        return connection

    def login_changed(self) -> None:
        """There is a new login, from any thread: the connections that are open log in again."""
        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._log_in_again)

    def _log_in_again(self) -> None:
        login = None if self._logins is None else self._logins.current
        if login is not None:
            for connection in self._connections.values():
                connection.log_in(login, self._settings)
            self._listener.reconnect()  # one that has subscribed takes no AUTH

    async def _subscription(self) -> AsyncRedisSubscription:
        connection = await self._connect(ListenerConnection, await self._primary())
        return AsyncRedisSubscription(connection, self._codec.wake_channel(self.client))

    def _lost(self, connection: AsyncRedisConnection) -> None:
        self._routes = None
        if self._home is connection:
            self._home = None
        if self._connections.get(connection.address) is connection:
            del self._connections[connection.address]

    # -- who serves what

    async def _primary(self) -> ServerAddress:
        routes = await self._all_routes()
        return routes[0] or self._settings.seeds[0]

    async def _all_routes(self) -> Routes:
        routes = self._routes
        if routes is None:
            known = set(self._connections) if self._settings.cluster else set[ServerAddress]()
            self._routes = routes = await self._drive(find_routes(self._settings, known))
            self._listener.follow(routes[0] or self._settings.seeds[0])
        return routes

    async def _drive(self, asking: Generator[Query | Batch, Any, T]) -> T:
        """Sends the queries of a generator and returns its result."""
        try:
            query = next(asking)
            while True:
                try:
                    answer = await self._send_query(query)
                except StoreUnavailable as error:
                    query = asking.throw(error)
                else:
                    query = asking.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _send_query(self, query: Query | Batch) -> Any:
        if isinstance(query, list):
            return await self._in_parts(query)
        if not query.seed:
            connection = await self._connected(query.address)
            return await connection.call(hiredis.pack_command(query.command))
        connection = await AsyncRedisConnection.connect(self._settings, query.address, self._timeout, seed=True)
        try:
            return await connection.execute(*query.command)
        finally:
            await connection.close()


def _pass_on(done: asyncio.Task[Answers], future: asyncio.Future[Any]) -> None:
    """Finishes the future as the task ended; a task that was cancelled, perhaps before it began, had no answer."""
    error = asyncio.CancelledError() if done.cancelled() else done.exception()
    if isinstance(error, StoreError):
        fail(future, error)
    elif error is not None:
        fail(future, Unanswered("the client was closed before the script was loaded again"))
    elif not future.done():
        future.set_result(done.result())
