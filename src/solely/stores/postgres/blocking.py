"""The blocking face: a thread takes a connection, sends, reads the answer itself, and gives the connection back.

No lock is held while a thread waits for the server. A connection whose conversation was broken off in the middle, for
whatever reason, is closed: it would give a stranger's answer to the next one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import ClientClosed, StoreError, StoreUnavailable, Unanswered
from ...model import Entry, Finding
from ...ops import MAX_BATCH, Op
from .. import Clock, Tell
from . import codec, health
from .codec import Answers
from .ear import Ear
from .faults import NotPrimary, OutOfLocks, Stale
from .parts import PATIENCE, answers, parts, statement, waits
from .schema import Doorkeeper
from .settings import Settings
from .sweep import ROWS, Sweep
from .wire import Lost, Wire

T = TypeVar("T")

MOST_CONNECTIONS = 16  # per store: each is a process of the server, which by default has room for 100
MOST_IDLE = 4  # kept open while nobody uses them: a burst of threads soon gives its connections back


class PostgresStore:
    """A store for threads."""

    def __init__(self, settings: Settings, *, clock: Clock | None, timeout: float) -> None:
        self.polls = settings.pgbouncer
        self._settings = settings
        self._clock = clock
        self._timeout = timeout
        self._patience = max(1, int(timeout * PATIENCE * 1000))
        self._doorkeeper = Doorkeeper(settings)
        self._sweep = Sweep()
        self._closed = False
        self._start_anew()

    def _start_anew(self) -> None:
        self.client = os.urandom(16).hex()
        self._idle: list[Wire] = []
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
            name, values = codec.lone(ops[0], self._now(), self._patience)
            replies = [codec.reply(ops[0], codec.decode(self._converse(lambda wire: wire.call(name, values)), 0))]
        else:
            replies = self._converse(lambda wire: self._in_parts(wire, ops))
        if self._sweep.due(len(ops)):
            self._sweep_some()
        return replies

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
        for wire in self._idle:
            wire.abandon()
        self._ear.abandon()
        self._start_anew()
        self._ear.tell = tell

    # -- batches

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
        """The answers to one portion; what was busy is repeated alone, and waits for its turn."""
        busy: list[int] = []
        replies = answers(part, wire.call(*statement(part, self._now())), busy)
        for place in busy:
            try:
                result = wire.call(*codec.lone(part[place], self._now(), self._patience))
                replies[place] = codec.reply(part[place], codec.decode(result, 0))
            except StoreError as error:
                replies[place] = error
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
        if not self._room.acquire(timeout=self._timeout):
            raise StoreUnavailable(f"all {MOST_CONNECTIONS} connections of this client were busy for {self._timeout:g} s")
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            return self._connect()
        except BaseException:
            self._room.release()
            raise

    def _give(self, wire: Wire) -> None:
        if self._closed or len(self._idle) >= MOST_IDLE:
            wire.close()
        else:
            self._idle.append(wire)
        self._room.release()

    def _end(self, wire: Wire) -> None:
        wire.close()
        self._room.release()

    def _connect(self) -> Wire:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        return self._doorkeeper.connect(self._timeout)

    def _forget(self) -> None:
        """Closes what nobody uses: after one connection broke, the others are suspect."""
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:  # another thread took the last one
                break
