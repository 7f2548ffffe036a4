"""Blocking: a thread takes a connection, sends, reads the answer itself, and gives the connection back.

No lock is held while a thread waits for the server. A connection whose conversation was broken off in the middle, for
whatever reason, is closed: it would give a stranger's answer to the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from hiredis import HiredisError

from ...errors import ClientClosed, StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op
from .. import Answers, Clock, NotPrimary, OnHint
from ..batches import waits
from ..listener import Listener
from .batch import MOST_ROUNDS, SplitBatch, calls
from .codec import Codec, packed
from .connection import RedisConnection
from .health import admit, read_info
from .index import RedisOp
from .listener import FAILURES, RedisSubscription
from .queries import Batch, Query, Routes, check, complete_index, find_routes, scan
from .replies import decode
from .settings import RedisSettings, ServerAddress

T = TypeVar("T")
Q = TypeVar("Q")


class RedisStore:
    """A store for threads on one server, a primary that Sentinel names, or a cluster."""

    polls = False
    max_limit = MAX_LIMIT
    perform_within = None

    def __init__(self, settings: RedisSettings, *, clock: Clock | None, timeout: float) -> None:
        self.client = os.urandom(16).hex()
        self._settings = settings
        self._cluster = settings.cluster
        self._logins = settings.logins
        if self._logins is not None:
            self._logins.used_by(self)
        self._timeout = timeout
        self._codec = Codec(settings.prefix, clock, cluster=settings.cluster)
        self._routes: Routes | None = None
        self._idle: dict[ServerAddress, list[RedisConnection]] = {}
        self._listener = self._new_listener()
        self._closed = False

    def __repr__(self) -> str:
        return f"<RedisStore {self._settings}>"

    # -- the protocol

    def perform(self, ops: Sequence[Op]) -> Answers:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        check_ops(ops)
        if not self._listener.ready and waits(ops):
            self._give(self._take(self._home()))  # fails soon if the server is unreachable
            self._listener.prepare()
        if self._cluster or len(ops) > MAX_BATCH:
            return self._in_parts(ops)
        raw = self._use_connection(self._home(), RedisConnection.call, self._codec.command(ops))
        failures: list[StoreError] = []
        answers = decode(ops, raw, failures)
        if failures:
            self._check_failures(failures, len(ops))
        return answers

    def listen(self, on_hint: OnHint) -> None:
        self._listener.on_hint = on_hint

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        while (found := self._drive(scan(self._all_routes(), self._codec, prefix, after, limit))) is None:
            self._drive(complete_index(self._all_routes(), self._codec))
        return found

    def check(self) -> list[Finding]:
        """Reachable? Clock? RedisSettings that break a promise? Raises only StoreError."""
        return self._drive(check(self._all_routes(), self._codec))

    def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        self._listener.close()
        self._forget(self._idle)

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's sockets are closed and nothing is sent on them."""
        idle, on_hint = self._idle, self._listener.on_hint
        self._idle = {}
        if self._logins is not None:
            self._logins.forked()
        self._listener.abandon()
        self._forget(idle)
        self.client = os.urandom(16).hex()
        self._listener = self._new_listener()
        self._listener.on_hint = on_hint

    # -- batches in parts

    def _in_parts(self, ops: Sequence[RedisOp]) -> Answers:
        batch = SplitBatch(ops, self._codec)
        for _ in range(MOST_ROUNDS):
            for address, parts in batch.groups(self._all_routes()):
                try:
                    raws = self._use_connection(address, RedisConnection.call_all, calls(parts, self._codec))[
                        -len(parts) :
                    ]
                except StoreUnavailable as error:
                    raws = [error] * len(parts)
                for part, raw in zip(parts, raws, strict=True):
                    batch.put(part, raw)
            if batch.moved:
                self._routes = None
            if not batch.open:
                break
        if failures := batch.failures():
            self._check_failures(failures, len(ops))
        return batch.answers

    def _check_failures(self, failures: list[StoreError], sent: int) -> None:
        """Leaves a server that may not write; raises if nothing at all was performed."""
        if any(isinstance(failure, NotPrimary) for failure in failures):
            self._leave()
        if len(failures) == sent and all(isinstance(failure, StoreUnavailable) for failure in failures):
            raise failures[0]

    # -- conversations

    def _use_connection(self, address: ServerAddress, call: Callable[[RedisConnection, Q], T], what: Q) -> T:
        """What the server answers, on a connection that nobody else uses meanwhile."""
        idle = self._idle.get(address)
        try:
            connection = idle.pop() if idle else self._connect(address)
        except IndexError:  # another thread took the last one
            connection = self._connect(address)
        if self._logins is not None:
            connection = self._logged_in(connection)
        try:
            answer = call(connection, what)
        except (OSError, HiredisError) as error:
            connection.close()
            self._leave(address)
            raise Unanswered(f"{address} did not answer: {self._reason(error)}") from None
        except BaseException:  # KeyboardInterrupt, …: the answer is still to come, and nobody's
            connection.close()
            raise
        if idle is None:
            self._give(connection)
        else:
            idle.append(connection)
            if self._closed:  # perhaps just now, by another thread, which did not see this one
                self._forget(self._idle)
        return answer

    def _reason(self, error: Exception) -> str:
        late = isinstance(error, BlockingIOError | TimeoutError)
        return f"nothing within {self._timeout:g} s" if late else str(error)

    def _take(self, address: ServerAddress) -> RedisConnection:
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):
            return self._connect(address)

    def _give(self, connection: RedisConnection) -> None:
        if self._closed:
            connection.close()
        else:
            self._idle.setdefault(connection.address, []).append(connection)

    def _connect(self, address: ServerAddress) -> RedisConnection:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        try:
            connection = RedisConnection.connect(self._settings, address, self._timeout)
            try:
                admit(self._settings, address, read_info(connection.execute("INFO")))
            except BaseException:
                connection.close()
                raise
        except (OSError, HiredisError) as error:
            self._routes = None
            raise StoreUnavailable(f"{address} did not answer: {self._reason(error)}") from None
        except StoreUnavailable:  # perhaps another one is the primary by now
            self._routes = None
            raise
        return connection

    def _logged_in(self, connection: RedisConnection) -> RedisConnection:
        """The connection, after it has logged in with the current login; or a new one if the server ended it."""
        assert self._logins is not None
        self._logins.renew_if_due()
        login = self._logins.current
        if login is None or login == connection.login:
            return connection
        with suppress(OSError, HiredisError):
            if connection.log_in(login, self._settings):
                return connection
        connection.close()
        return self._connect(connection.address)

    def login_changed(self) -> None:
        """There is a new login, from any thread: connections log in with it before their next use."""
        self._listener.reconnect()  # one that has subscribed takes no AUTH

    def _leave(self, address: ServerAddress | None = None) -> None:
        """This server, or all of them, is away or no primary: its connections are dropped, and it is found anew."""
        left = self._idle if address is None else {address: self._idle.get(address, [])}
        self._routes = None
        self._forget(left)
        if address is None:
            self._listener.reconnect()

    @staticmethod
    def _forget(idle: dict[ServerAddress, list[RedisConnection]]) -> None:
        for connections in list(idle.values()):
            while connections:
                try:
                    connections.pop().close()
                except IndexError:  # another thread took the last one
                    break

    # -- who serves what

    def _home(self) -> ServerAddress:
        routes = self._routes or self._all_routes()
        return routes[0] or self._settings.seeds[0]

    def _all_routes(self) -> Routes:
        routes = self._routes
        if routes is None:
            known = set(self._idle) if self._cluster else set[ServerAddress]()
            self._routes = routes = self._drive(find_routes(self._settings, known))
            self._listener.follow(routes[0] or self._settings.seeds[0])
        return routes

    def _new_listener(self) -> Listener:
        channel = self._codec.wake_channel(self.client)
        return Listener(
            lambda: RedisSubscription(self._connect(self._home()), channel, self._timeout), FAILURES, self._timeout
        )

    def _drive(self, asking: Generator[Query | Batch, Any, T]) -> T:
        """Sends the queries of a generator and returns its result."""
        try:
            query = next(asking)
            while True:
                try:
                    answer = self._send_query(query)
                except StoreUnavailable as error:
                    query = asking.throw(error)
                else:
                    query = asking.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _send_query(self, query: Query | Batch) -> Any:
        if isinstance(query, list):
            return self._in_parts(query)
        if not query.seed:
            return self._use_connection(query.address, RedisConnection.call, packed(*query.command))
        connection = RedisConnection.connect(self._settings, query.address, self._timeout, seed=True)
        try:
            return connection.execute(*query.command)
        except (OSError, HiredisError) as error:
            raise StoreUnavailable(f"{query.address} did not answer: {self._reason(error)}") from None
        finally:
            connection.close()
