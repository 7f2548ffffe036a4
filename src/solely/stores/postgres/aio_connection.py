"""One connection on an event loop: one statement at a time, and what the server says in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from ...errors import StoreError
from .. import OnHint
from .codec import Packed, Values, pack
from .connection import ConnectionLost, PostgresConnection, check_result, reason, received, send


class AsyncPostgresConnection:
    """Sends and receives. When the connection ends, what was sent and not answered becomes ConnectionLost."""

    def __init__(self, connection: PostgresConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.settings = connection.settings
        self.timeout = connection.timeout
        self.life, self.age = connection.life, connection.age
        self.lost: asyncio.Future[None] = loop.create_future()  # done when the connection has ended
        self.on_hint: OnHint | None = None  # is given the payload of each notification
        self._loop = loop
        self._pgconn = connection.pgconn
        self._prepared = connection.prepared
        self._answer: asyncio.Future[Any] | None = None
        self._next: tuple[str, Packed] | None = None  # what is sent once it is prepared
        self._results: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        self._descriptor: int = self._pgconn.socket
        loop.add_reader(self._descriptor, self._readable)

    def call(self, name: str, values: Values = ()) -> asyncio.Future[Any]:
        """The result of a statement of queries.sql, in binary form."""
        packed = pack(name, values)
        if name in self._prepared or self.settings.pgbouncer:
            return self._start(lambda: send(self._pgconn, self.settings, name, packed))
        self._next = name, packed
        return self._start(lambda: self._pgconn.send_prepare(name.encode(), self.settings.queries[name]))

    def execute(self, script: bytes) -> asyncio.Future[Any]:
        """The result of the last statement of a script, in text form."""
        return self._start(lambda: self._pgconn.send_query(script))

    def _start(self, sending: Callable[[], None]) -> asyncio.Future[Any]:
        answer = self._answer = self._loop.create_future()
        if self.lost.done():
            self._finish(ConnectionLost("the connection was closed"))
        else:
            self._timer = self._loop.call_later(self.timeout, self.abort, f"nothing within {self.timeout:g} s")
            self._send(sending)
        return answer

    def _send(self, sending: Callable[[], None]) -> None:
        try:
            sending()
            if self._pgconn.flush():
                self._loop.add_writer(self._descriptor, self._writable)
        except psycopg.Error as error:
            self.abort(reason(error))

    def _writable(self) -> None:
        try:
            if not self._pgconn.flush():
                self._loop.remove_writer(self._descriptor)
        except psycopg.Error as error:
            self.abort(reason(error))

    def _readable(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while self._answer is not None and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is None:
                    self._complete()
                else:
                    self._results.append(result)
        except psycopg.Error as error:
            self.abort(reason(error))
            return
        if self.on_hint is not None:
            for key in received(pgconn):
                self.on_hint(key)

    def _complete(self) -> None:
        """The server is ready again: only now what it answered is committed."""
        results, self._results = self._results, []
        following, self._next = self._next, None
        try:
            for result in results:
                check_result(result)
        except ConnectionLost as error:
            self.abort(str(error))
        except StoreError as error:
            self._finish(error)
        else:
            if following is None:
                self._finish(results[-1])
            else:
                name, packed = following
                self._prepared.add(name)
                self._send(lambda: send(self._pgconn, self.settings, name, packed))

    def _finish(self, outcome: Any) -> None:
        answer, self._answer = self._answer, None
        if self._timer is not None:
            self._timer.cancel()
        if answer is None or answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
            answer.exception()  # not reported as forgotten if nobody awaits it
        else:
            answer.set_result(outcome)

    def abort(self, why: str) -> None:
        """Ends the connection now; what is not answered is ConnectionLost."""
        if not self.lost.done():
            self.lost.set_result(None)
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            self._pgconn.finish()
            self._finish(ConnectionLost(why))
