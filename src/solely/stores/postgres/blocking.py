"""The blocking face: a thread takes a connection, sends, reads the answer itself, and gives the connection back.

No lock is held while a thread waits for the server. A connection whose conversation was broken off in the middle, for
whatever reason, is closed: it would give a stranger's answer to the next one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import psycopg

from ...errors import ClientClosed, StoreError, StoreUnavailable, Unanswered
from ...model import Entry, Finding
from ...ops import MAX_BATCH, MAX_LIMIT, Op, Reply
from .. import Clock, Tell
from . import codec, health
from .codec import Answers
from .ear import Ear
from .faults import NotPrimary, OutOfLocks, Stale
from .parts import PATIENCE, answers, parts, repeats, statement, waits
from .schema import Doorkeeper
from .settings import Settings
from .sweep import ROWS, Sweep
from .wire import Lost, Wire
from .within import Within

T = TypeVar("T")

MOST_CONNECTIONS = 16  # per store: each is a process of the server, which by default has room for 100


class PostgresStore:
    """A store for threads."""

    max_limit = MAX_LIMIT

    def __init__(self, settings: Settings, *, clock: Clock | None, timeout: float) -> None:
        self.polls = settings.pgbouncer
        self._settings = settings
        self._clock = clock
        self._timeout = timeout
        self._patience = max(1, int(timeout * PATIENCE * 1000))
        self._packed_patience = b"%d" % self._patience
        self._doorkeeper = Doorkeeper(settings)
        self._within = Within(settings, clock=clock, patience=timeout, doorkeeper=self._doorkeeper)
        self._sweep = Sweep()
        self._closed = False
        self._start_anew()

    def _start_anew(self) -> None:
        self.client = os.urandom(16).hex()
        self._idle: SimpleQueue[Wire | None] = SimpleQueue()  # None: there is room for one more
        self._room = threading.Semaphore(MOST_CONNECTIONS)
        self._ear = Ear(self._connect, self.client, self._timeout)

    def __repr__(self) -> str:
        return f"<PostgresStore {self._settings}>"

    # -- the protocol

    def perform(self, ops: Sequence[Op]) -> Answers:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        if not self._ear.ready and not self.polls and waits(ops):
            self._converse(lambda wire: None)  # tells soon if the server is away
            self._ear.prepare()
        if len(ops) == 1:
            replies: Answers = [self._alone(ops[0])]
        else:
            replies = self._converse(lambda wire: self._in_parts(wire, ops))
        if self._sweep.due(len(ops)):
            self._sweep_some()
        return replies

    def perform_within(self, connection: psycopg.Connection[Any], ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the connection's transaction, with which they commit or roll back: see within.py."""
        return self._within.perform(connection, ops)

    def listen(self, tell: Tell) -> None:
        self._ear.tell = tell

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        page = self._converse(lambda wire: wire.call("page", (self._now(), prefix, after, limit)))
        return codec.page(page)

    def check(self) -> list[Finding]:
        """Reachable? Clock? Settings that break a promise? Raises only StoreError."""
        sent = time.monotonic()
        row = self._converse(lambda wire: wire.ask(self._settings.queries["check"]))
        return health.findings(self._settings, row, took=time.monotonic() - sent)

    def close(self) -> None:
        """Lets go of all connections; safe to call twice."""
        self._closed = True
        self._ear.close()
        self._forget()

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's are let go of without a word to the server."""
        tell = self._ear.tell
        for wire in self._drained():
            if wire is not None:
                wire.abandon()
        self._ear.abandon()
        self._start_anew()
        self._ear.tell = tell

    # -- batches

    def _alone(self, op: Op) -> Reply:
        packed = codec.quick(op, self._packed_patience) if self._clock is None else None
        if packed is not None:
            result = self._converse(lambda wire: wire.call_packed(*packed))
            reply = codec.read_quickly(op, result)
            if reply is not None:
                return reply
        else:
            name, values = codec.alone(op, self._now(), self._patience)
            result = self._converse(lambda wire: wire.call(name, values))
        return codec.reply(op, codec.decode_lone(op, result))

    def _in_parts(self, wire: Wire, ops: Sequence[Op]) -> Answers:
        replies: Answers = []
        for part in parts(ops):
            try:
                replies += self._part(wire, part)
            except OutOfLocks:
                if len(part) <= MAX_BATCH:
                    raise
                for start in range(0, len(part), MAX_BATCH):
                    replies += self._part(wire, part[start : start + MAX_BATCH])
            except StoreUnavailable as error:
                if replies:
                    raise Unanswered(f"only {len(replies)} of {len(ops)} ops were answered: {error}") from error
                raise
        return replies

    def _part(self, wire: Wire, part: Sequence[Op]) -> Answers:
        """The answers to one portion; what was busy is repeated, and waits for its turn."""
        busy: list[int] = []
        replies = answers(part, wire.call(*statement(part, self._now())), busy)
        again = repeats(part, replies, busy, self._timeout * PATIENCE, self._now)
        with suppress(StopIteration):
            call = next(again)
            while True:
                try:
                    outcome = wire.call(*call)
                except StoreError as error:
                    outcome = error
                call = again.send(outcome)
        return replies

    def _now(self) -> int | None:
        return None if self._clock is None else round(self._clock() * 1_000_000)

    def _sweep_some(self) -> None:
        """Forgets a few rows that no longer matter. What hinders it hinders no op: the next sweep tries again."""
        try:
            result = self._converse(lambda wire: wire.call("sweep", (self._now(), self._sweep.after, ROWS)))
        except StoreError:
            return
        self._sweep.after = (result.get_value(0, 0) or b"").decode()

    # -- conversations

    def _converse(self, talk: Callable[[Wire], T]) -> T:
        """What comes of talking on a connection that nobody else uses meanwhile."""
        wire = self._take()
        try:
            answer = talk(wire)
        except Lost as error:
            self._end(wire)
            self._forget()
            raise Unanswered(f"{self._settings} did not answer: {error}") from None
        except StoreError as error:
            if isinstance(error, NotPrimary | Stale):
                self._end(wire)
                self._forget()
            else:
                self._give(wire)
            raise
        except BaseException:  # KeyboardInterrupt, …: the answer is still to come, and nobody's
            self._end(wire)
            raise
        self._give(wire)
        return answer

    def _take(self) -> Wire:
        while True:
            try:
                wire = self._idle.get_nowait()
            except Empty:
                if self._room.acquire(blocking=False):
                    return self._connect_within_room()
                wire = self._await_idle()
            if wire is not None:
                return wire

    def _await_idle(self) -> Wire | None:
        try:
            return self._idle.get(timeout=self._timeout)
        except Empty:
            text = f"all {MOST_CONNECTIONS} connections of this client were busy for {self._timeout:g} s"
            raise StoreUnavailable(text) from None

    def _connect_within_room(self) -> Wire:
        try:
            return self._connect()
        except BaseException:
            self._make_room()
            raise

    def _make_room(self) -> None:
        self._room.release()
        self._idle.put(None)  # whoever waits for a connection may open one

    def _give(self, wire: Wire) -> None:
        if self._closed:
            self._end(wire)
        else:
            self._idle.put(wire)

    def _end(self, wire: Wire) -> None:
        wire.close()
        self._make_room()

    def _connect(self) -> Wire:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        return self._doorkeeper.connect(self._timeout)

    def _forget(self) -> None:
        """Closes what nobody uses: after one connection broke, the others are suspect."""
        for wire in self._drained():
            if wire is not None:
                self._end(wire)
            else:
                self._idle.put(None)  # meant for one who waits

    def _drained(self) -> list[Wire | None]:
        drained = []
        with suppress(Empty):
            while True:
                drained.append(self._idle.get_nowait())
        return drained
