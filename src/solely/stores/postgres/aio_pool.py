"""A few connections on an event loop, and the queue of requests for one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from ...errors import ClientClosed, StoreError, StoreUnavailable, Unanswered
from ...ops import MAX_BATCH, URGENT, Mark, Op
from .. import Answers, NotPrimary
from .aio_connection import AsyncPostgresConnection
from .batch import FEWEST_MARKS
from .connection import ConnectionLost, PostgresConnection
from .faults import PoolerInBetween, SchemaGone, Stale

T = TypeVar("T")

CONNECTIONS = 4  # while one commit waits for the disk others go on; with more, batches would be smaller and dearer


class PendingOps(NamedTuple):
    """Ops that somebody awaits the answers of."""

    ops: Sequence[Op]
    future: asyncio.Future[Answers]

    @property
    def mixes(self) -> bool:
        """True if it can share a statement with others; a run of marks has one of its own."""
        many_marks = len(self.ops) >= FEWEST_MARKS and type(self.ops[0]) is Mark and type(self.ops[-1]) is Mark
        return len(self.ops) <= MAX_BATCH and not many_marks


Loan = asyncio.Future[AsyncPostgresConnection]


class ConnectionPool:
    """Gives connections to those who renew or release, then to those who wait longest: requests are handed to `serve`,
    loans are given out."""

    def __init__(
        self,
        connect: Callable[[], PostgresConnection],
        serve: Callable[[AsyncPostgresConnection, PendingOps], None],
        missing: Callable[[AsyncPostgresConnection, SchemaGone], StoreError],
        name: str,
    ) -> None:
        self.closed = False
        self._connect = connect
        self._serve = serve
        self._missing = missing
        self._name = name
        self._urgent: deque[PendingOps] = deque()  # goes before the line
        self._line: deque[PendingOps | Loan] = deque()
        self._connections: set[AsyncPostgresConnection] = set()
        self._idle: list[AsyncPostgresConnection] = []
        self._connecting: set[asyncio.Future[PostgresConnection]] = set()

    def enqueue(self, wanted: PendingOps | Loan, turns: int = 0) -> None:
        """Puts a request or a loan into the line; it fails if there is no connection to be had.

        With `turns`, it waits for so many turns of the loop, unless another one comes and takes it along.
        """
        if self.closed:
            fail(wanted, ClientClosed("the client was closed; open a new one"))
            return
        if isinstance(wanted, PendingOps) and type(wanted.ops[0]) in URGENT:
            self._urgent.append(wanted)
        else:
            self._line.append(wanted)
        if turns:
            asyncio.get_running_loop().call_soon(self._dispatch_after, turns - 1)
        else:
            self._dispatch()

    def _dispatch_after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._dispatch_after, turns - 1)
        else:
            self._dispatch()

    def company(self, first: PendingOps) -> list[PendingOps]:
        """The request and those right behind it in the line that fit into the same batch."""
        together, size = [first], len(first.ops)
        for line in (self._urgent, self._line):
            while line:
                following = line[0]
                if not isinstance(following, PendingOps) or size + len(following.ops) > MAX_BATCH:
                    return together
                together.append(following)
                size += len(following.ops)
                line.popleft()
        return together

    def give(self, connection: AsyncPostgresConnection) -> None:
        """Takes back a connection on which everything was answered."""
        if connection in self._connections and not connection.lost.done():
            self._idle.append(connection)
        self._dispatch()

    def as_store_error(self, connection: AsyncPostgresConnection, error: BaseException | None) -> StoreError | None:
        """The error as a StoreError; drops connections that are not usable any more."""
        if isinstance(error, NotPrimary | Stale | PoolerInBetween | SchemaGone):
            for useless in [connection, *self._idle]:
                self._drop(useless, str(error))
            if isinstance(error, SchemaGone):
                return self._missing(connection, error)
        elif isinstance(error, ConnectionLost):
            for suspect in list(self._idle):
                self._drop(suspect, str(error))
            return Unanswered(f"{self._name} did not answer: {error}")
        return error if isinstance(error, StoreError) or error is None else StoreUnavailable(str(error))

    async def use_connection(self, call: Callable[[AsyncPostgresConnection], asyncio.Future[T]]) -> T:
        """The result of a call on a connection that nobody else uses meanwhile."""
        loan: Loan = asyncio.get_running_loop().create_future()
        self.enqueue(loan)
        try:
            connection = await loan
        except asyncio.CancelledError:
            if loan.done() and not loan.cancelled() and loan.exception() is None:
                self.give(loan.result())
            raise
        try:
            answer = call(connection)
        except BaseException:  # it could not be encoded: nothing was sent
            self.give(connection)
            raise
        answer.add_done_callback(lambda _: self.give(connection))  # only once it is read, whoever still waits for it
        try:
            return await asyncio.shield(answer)
        except (StoreError, ConnectionLost) as caught:
            raise (self.as_store_error(connection, caught) or caught) from None

    async def close(self) -> None:
        """Ends all connections, and fails who still waits for one."""
        self.closed = True
        await asyncio.gather(*self._connecting, return_exceptions=True)
        self._fail_line(ClientClosed("the client was closed; open a new one"))
        for connection in list(self._connections):
            self._drop(connection, "the client was closed")

    def _dispatch(self) -> None:
        """Serves the line with the free connections; opens one more if all are busy."""
        if self.closed:
            return
        while (line := self._urgent or self._line) and self._idle:
            connection, wanted = self._idle.pop(), line.popleft()
            if isinstance(wanted, PendingOps):
                self._serve(connection, wanted)
            elif wanted.done():  # its task was cancelled
                self._idle.append(connection)
            else:
                wanted.set_result(connection)
        if line and len(self._connections) + len(self._connecting) < CONNECTIONS:
            opening = asyncio.get_running_loop().run_in_executor(None, self._connect)
            self._connecting.add(opening)
            opening.add_done_callback(self._opened)

    def _opened(self, opening: asyncio.Future[PostgresConnection]) -> None:
        self._connecting.discard(opening)
        if opening.cancelled():  # the loop is being closed
            return
        error = opening.exception()
        if self.closed:
            close_late(opening)
        elif error is None:
            connection = AsyncPostgresConnection(opening.result(), asyncio.get_running_loop())
            self._connections.add(connection)
            connection.lost.add_done_callback(lambda _: self._forget(connection))
            self.give(connection)
        elif not self._connections:  # else those that are open serve the line
            self._fail_line(error if isinstance(error, StoreError) else StoreUnavailable(f"{self._name}: {error}"))

    def _drop(self, connection: AsyncPostgresConnection, why: str) -> None:
        connection.abort(why)
        self._forget(connection)

    def _forget(self, connection: AsyncPostgresConnection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._dispatch()

    def _fail_line(self, error: Exception) -> None:
        line = [*self._urgent, *self._line]
        self._urgent.clear()
        self._line.clear()
        for wanted in line:
            fail(wanted, error)


def close_late(opening: asyncio.Future[PostgresConnection]) -> None:
    """Nobody wants this connection any more."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def fail(wanted: PendingOps | Loan, error: BaseException) -> None:
    """Fails what is still open; not reported as forgotten if nobody awaits it any more."""
    future: asyncio.Future[Any] = wanted.future if isinstance(wanted, PendingOps) else wanted
    if not future.done():
        future.set_exception(error)
        future.exception()
