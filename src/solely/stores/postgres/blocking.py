"""Blocking: a thread takes a connection, sends, reads the answer itself, and gives the connection back.

No lock is held while a thread waits for the server. A connection whose conversation was broken off in the middle, for
whatever reason, is closed: it would give a stranger's answer to the next one.
"""

from __future__ import annotations

import os
import time
from _thread import LockType
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import psycopg

from ...errors import ClientClosed, StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Reply
from .. import Answers, Clock, NotPrimary, OnHint
from ..batches import waits
from ..listener import Listener
from . import codec, health
from .batch import LINGER, PATIENCE, SWEEP_ROWS, SweepCursor, answers, parts, statement
from .busy_keys import BusyKeys, BusyOps, KeyLine
from .codec import Values
from .connection import ConnectionLost, PostgresConnection
from .faults import OutOfLocks, PoolerInBetween, SchemaGone, Stale
from .listener import FAILURES, PostgresSubscription
from .schema import Connector
from .settings import PostgresSettings
from .slots import ThreadSlots
from .within import PostgresTransaction

T = TypeVar("T")

MOST_CONNECTIONS = 16  # per store: each is a process of the server, which by default has room for 100
# Connections on which ops may wait for busy keys: the others are left to those whose keys are free, however many want
# one that somebody's slow transaction decides on.
MOST_PATIENT = MOST_CONNECTIONS // 2
# Seconds between the tries of one who may not wait there yet: LINGER at first, then longer and longer up to this, so
# that a hundred such threads are a few hundred statements per second.
LONGEST_REST = 0.2
_NO_PATIENCE: tuple[Any, Any] = (None, None)


class PostgresStore:
    """A store for threads."""

    max_limit = MAX_LIMIT

    def __init__(self, settings: PostgresSettings, *, clock: Clock | None, timeout: float) -> None:
        self._settings = settings
        self._clock = clock
        self._timeout = timeout
        patience = max(1, int(timeout * PATIENCE * 1000))
        self._patience: tuple[Any, Any] = (patience, b"%d" % patience)
        self._connector = Connector(settings)
        self._within = PostgresTransaction(settings, clock=clock, patience=timeout, connector=self._connector)
        self._sweep = SweepCursor()
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self.client = os.urandom(16).hex()
        self._idle: deque[PostgresConnection] = deque()
        self._connection_slots = ThreadSlots(MOST_CONNECTIONS)  # who has one uses an idle connection, or opens one
        self._waiting_slots = ThreadSlots(MOST_PATIENT)
        self._busy_keys = BusyKeys(self._timeout)
        self._listener = Listener(self._subscription, FAILURES, self._timeout)

    def __repr__(self) -> str:
        return f"<PostgresStore {self._settings}>"

    # -- the protocol

    @property
    def polls(self) -> bool:
        return self._connector.pooled

    def perform(self, ops: Sequence[Op]) -> Answers:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        check_ops(ops)
        if not self._listener.ready and not self.polls and waits(ops):
            self._use_connection(lambda connection: None)  # fails soon if the server is unreachable
            if not self.polls:
                self._listener.prepare()
        if len(ops) == 1:
            replies: Answers = [self._alone(ops[0])]
        else:
            replies = self._in_parts(ops)
        if self._sweep.due(len(ops)):
            self._sweep_some()
        return replies

    def perform_within(self, connection: psycopg.Connection[Any], ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the connection's transaction, with which they commit or roll back: see within.py."""
        return self._within.perform(connection, ops)

    def listen(self, on_hint: OnHint) -> None:
        self._listener.on_hint = on_hint

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        page = self._call("page", (self._now(), prefix, after, limit))
        return codec.page(page)

    def check(self) -> list[Finding]:
        """Reachable? Clock? PostgresSettings that break a promise? Raises only StoreError."""
        sent = time.monotonic()
        row = self._use_connection(lambda connection: connection.execute(self._settings.queries["check"]))
        return health.findings(self._settings, row, took=time.monotonic() - sent, pooled=self._connector.pooled)

    def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        self._listener.close()
        self._forget()

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's sockets are closed and nothing is sent on them."""
        on_hint = self._listener.on_hint
        for connection in self._drained():
            connection.abandon()
        self._listener.abandon()
        self._reset()
        self._listener.on_hint = on_hint

    # -- batches

    def _alone(self, op: Op) -> Reply:
        if op in self._busy_keys:
            return self._in_line(op)
        has_slot = self._waiting_slots.take()
        patience, packed_patience = self._patience if has_slot else _NO_PATIENCE
        try:
            packed = codec.quick(op, packed_patience) if self._clock is None else None
            if packed is not None:
                result = self._use_connection(lambda connection: connection.call_packed(*packed))
                reply = codec.read_quickly(op, result)
                if reply is not None:
                    return reply
            else:
                result = self._call(*codec.alone(op, self._now(), patience))
            row = codec.decode_lone(op, result)
        finally:
            if has_slot:
                self._waiting_slots.give()
        return codec.reply(op, row) if row[0] != "b" else self._in_line(op)

    def _in_line(self, op: Op) -> Reply:
        """The reply to one op whose key is busy."""
        replies: Answers = [None]
        self._repeat((op,), replies, [0])
        if isinstance(replies[0], StoreError):
            raise replies[0]
        return replies[0]

    def _in_parts(self, ops: Sequence[Op]) -> Answers:
        replies: Answers = []
        try:
            for part in parts(ops):
                try:
                    replies += self._part(part)
                except OutOfLocks:
                    if len(part) <= MAX_BATCH:
                        raise
                    for start in range(0, len(part), MAX_BATCH):
                        replies += self._part(part[start : start + MAX_BATCH])
        except StoreUnavailable as error:
            if replies:
                raise Unanswered(f"only {len(replies)} of {len(ops)} ops were answered: {error}") from error
            raise
        return replies

    def _part(self, part: Sequence[Op]) -> Answers:
        """The answers to one portion; what was busy is repeated, and waits for its slot."""
        busy: list[int] = []
        replies = answers(part, self._call(*statement(part, self._now())), busy)
        if busy:
            self._repeat(part, replies, busy)
        return replies

    def _repeat(self, ops: Sequence[Op], replies: Answers, busy: list[int]) -> None:
        """Repeats what was busy until it had its turn, together with what other threads want of the same keys."""
        self._busy_keys.wait(BusyOps(ops, replies, busy, self._timeout * PATIENCE), self._ask)

    def _ask(self, line: KeyLine[LockType], asker: BusyOps) -> None:
        """Asks for all that is in line: waits for it on the server, or polls while enough others wait there."""
        rest = LINGER
        with self._waiting_slots.join() as place:
            while not place.comes(min(rest, asker.left)):
                if not asker.waits:
                    return
                self._perform_shared(line, asker, waits=False)
                if not asker.places:
                    return
                rest = min(2 * rest, LONGEST_REST)
            self._perform_shared(line, asker, waits=True)

    def _perform_shared(self, line: KeyLine[LockType], asker: BusyOps, *, waits: bool) -> None:
        batch = line.take(asker)
        steps = batch.statements(waits, self._now)
        try:
            with suppress(StopIteration):
                step = next(steps)
                while True:
                    step = steps.send(self._outcome(*step))
        except BaseException:
            batch.doubt("the thread that asked for this was interrupted")
            raise
        finally:
            line.put_back(batch)

    def _call(self, name: str, values: Values) -> Any:
        """The result of a statement, on whichever connection is free."""
        packed = codec.pack(name, values)
        return self._use_connection(lambda connection: connection.call_packed(name, packed))

    def _outcome(self, name: str, values: Values) -> Any:
        """The same, or its StoreError."""
        try:
            return self._call(name, values)
        except StoreError as error:
            return error
        except ValueError as error:
            return codec.not_encoded(error)

    def _now(self) -> int | None:
        return None if self._clock is None else round(self._clock() * 1_000_000)

    def _sweep_some(self) -> None:
        """Forgets a few rows that no longer matter. What hinders it hinders no op: the next sweep tries again."""
        try:
            result = self._call("sweep", (self._now(), self._sweep.after, SWEEP_ROWS))
        except StoreError:
            return
        self._sweep.after = (result.get_value(0, 0) or b"").decode()

    # -- conversations

    def _use_connection(self, call: Callable[[PostgresConnection], T]) -> T:
        """The result of a call on a connection that nobody else uses meanwhile."""
        connection = self._take()
        try:
            answer = call(connection)
        except ConnectionLost as error:
            self._end(connection)
            self._forget()
            raise Unanswered(f"{self._settings} did not answer: {error}") from None
        except StoreError as error:
            if isinstance(error, NotPrimary | Stale | PoolerInBetween | SchemaGone):
                self._end(connection)
                self._forget()
            else:
                self._give(connection)
            if isinstance(error, SchemaGone):
                raise self._connector.missing(connection, error) from None
            raise
        except BaseException:  # KeyboardInterrupt, …: the answer is still to come, and nobody's
            self._end(connection)
            raise
        self._give(connection)
        return answer

    def _take(self) -> PostgresConnection:
        if not self._connection_slots.take() and not self._connection_slots.wait(self._timeout):
            raise StoreUnavailable(
                f"all {MOST_CONNECTIONS} connections of this client were busy for {self._timeout:g} s"
            )
        try:
            return self._idle.popleft()
        except IndexError:
            return self._connect_in_slot()

    def _connect_in_slot(self) -> PostgresConnection:
        try:
            return self._connect()
        except BaseException:
            self._connection_slots.give()
            raise

    def _give(self, connection: PostgresConnection) -> None:
        if self._closed:
            self._end(connection)
        else:
            self._idle.append(connection)
            self._connection_slots.give()

    def _end(self, connection: PostgresConnection) -> None:
        connection.close()
        self._connection_slots.give()

    def _connect(self) -> PostgresConnection:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        return self._connector.connect(self._timeout)

    def _subscription(self) -> PostgresSubscription:
        return PostgresSubscription(self._connect(), self.client)

    def _forget(self) -> None:
        """Closes what nobody uses: after one connection broke, the others are suspect."""
        for connection in self._drained():
            connection.close()

    def _drained(self) -> list[PostgresConnection]:
        connections = []
        with suppress(IndexError):
            while True:
                connections.append(self._idle.popleft())
        return connections
