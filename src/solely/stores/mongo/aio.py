"""Asyncio: performs the commands of a batch side by side, on pymongo's own AsyncMongoClient.

Nobody's cancellation stops a batch: it runs in a task that is kept until it ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, TypeVar

from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError

from ...errors import ClientClosed, StoreMisconfigured, Unanswered
from ...model import Entry, Finding
from ...ops import MAX_BATCH, Op, Reply
from .. import SCANS, Answers, Clock, OnHint
from ..batches import waits
from ..listener import AsyncListener
from . import queries
from .batch import MAX_LIMIT, CommandResult, CommandSteps, MongoBatch
from .commands import Commands
from .faults import ANY_FAULT
from .listener import FAILURES, AsyncMongoSubscription
from .pool import AsyncSteadyPool, pool_class
from .quick import Command
from .settings import CODEC, MongoSettings
from .within import InTransaction, repeatable

T = TypeVar("T")

_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class AsyncMongoStore:
    """A store for one event loop, on one collection of a replica set, a cluster or a standalone server."""

    max_limit = MAX_LIMIT
    portion = MAX_BATCH

    def __init__(self, settings: MongoSettings, *, clock: Clock | None, timeout: float) -> None:
        self._settings = settings
        self._server = str(settings)
        self._clock = clock
        self._timeout = timeout
        self._prepared = False  # the indexes are there
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self.client = os.urandom(16).hex()
        self.polls = True  # until hints come
        self._commands = Commands(self._settings.collection, self.client, clock=self._clock, timeout=self._timeout)
        self._listener = AsyncListener(self._subscription, FAILURES, self._timeout)
        self._opened: AsyncDatabase[dict[str, Any]] | None = None
        self._scans = asyncio.Semaphore(SCANS)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._preparing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<AsyncMongoStore {self._settings}>"

    # -- the protocol

    def perform(self, ops: Sequence[Op]) -> Awaitable[Answers]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        return self._kept(self._perform(ops))

    async def perform_within(self, session: AsyncClientSession, ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the session's transaction, with which they commit or abort.

        StoreUnavailable if that was aborted by a conflict and is to be run again, which pymongo's with_transaction
        does by itself; InvalidInput if there is none. Who cancels it stops it: nothing may go on in a transaction that
        its owner is about to abort.
        """
        batch = InTransaction(self._commands, self._server, session, AsyncClientSession)
        with repeatable():
            if not self._prepared:
                await self._prepare()
            return await self._drive(batch.perform_all(ops), session.client[self._settings.database], session)

    def listen(self, on_hint: OnHint) -> None:
        self._listener.on_hint = on_hint

    async def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        async with self._scans:
            return await self._kept(self._drive(queries.scan(self._commands, self._server, prefix, after, limit)))

    async def check(self) -> list[Finding]:
        """Reachable? Clock? MongoSettings that break a promise? Raises only StoreError."""
        return await self._kept(self._drive(queries.check(self._commands, self._settings)))

    async def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        await self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._opened is not None:
            await self._opened.client.close()

    def forked(self) -> None:
        """In the child: a new client and a new name; the parent's connections and tasks are left as they are."""
        _parents.append((self._opened, self._listener, self._tasks))
        on_hint = self._listener.on_hint
        self._reset()
        self._listener.on_hint = on_hint

    # -- batches

    def _kept(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """The result of a task that is kept until it ends; who cancels this stops only its own waiting."""
        return asyncio.shield(self._start(work))

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(_unanswered_if_closed(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _perform(self, ops: Sequence[Op]) -> Answers:
        if not self._prepared:
            await self._prepare()
        if waits(ops):
            if not self._listener.ready:
                await self._listener.prepare()
            self.polls = not self._listener.ready
        return await self._drive(MongoBatch(self._commands, self._server, self._listener.on_hint).perform(ops))

    # -- commands

    async def _prepare(self) -> None:
        """Those who come at the same time share one try: to make the same indexes many times at once takes seconds."""
        if self._preparing is None:
            self._preparing = self._start(self._drive(queries.prepare(self._commands, self._server)))
        trying = self._preparing
        try:
            await asyncio.shield(trying)
            self._prepared = True
        finally:
            if self._preparing is trying and trying.done():
                self._preparing = None

    async def _subscription(self) -> AsyncMongoSubscription:
        return AsyncMongoSubscription(self._database()[self._settings.collection], self.client)

    def _database(self) -> AsyncDatabase[dict[str, Any]]:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        if self._opened is None:
            try:
                arguments = self._settings.arguments(self._timeout)
                pools = pool_class(AsyncSteadyPool, self._settings)
                mongo = AsyncMongoClient[dict[str, Any]](self._settings.url, _pool_class=pools, **arguments)
            except ConfigurationError as error:  # of mongodb+srv://, which is read only now
                raise StoreMisconfigured(f"{self._server} cannot be used: {error}") from None
            self._opened = mongo[self._settings.database]
        return self._opened

    async def _drive(
        self,
        steps: CommandSteps[T],
        database: AsyncDatabase[dict[str, Any]] | None = None,
        session: AsyncClientSession | None = None,
    ) -> T:
        """Sends the commands of a generator, and returns its result."""
        if database is None:
            database = self._database()
        try:
            commands = next(steps)
            while True:
                if len(commands) == 1 or session is not None:  # a session belongs to one command at a time
                    answers = [await _send(command, database, session) for command in commands]
                else:
                    answers = await asyncio.gather(*(_send(command, database, None) for command in commands))
                commands = steps.send(answers)
        except StopIteration as end:
            result: T = end.value
            return result


async def _send(
    command: Command, database: AsyncDatabase[dict[str, Any]], session: AsyncClientSession | None
) -> CommandResult:
    try:
        return await database.command(command, session=session, codec_options=CODEC)
    except ANY_FAULT as error:
        return error


async def _unanswered_if_closed(work: Coroutine[Any, Any, T]) -> T:
    """The result; Unanswered if close() did not wait for it."""
    try:
        return await work
    except asyncio.CancelledError:
        raise Unanswered("the client was closed before the answer came") from None
