"""Blocking: performs the commands of a batch in the caller's thread, on pymongo's MongoClient."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import ConfigurationError, ConnectionFailure

from ...errors import ClientClosed, StoreMisconfigured
from ...model import Entry, Finding
from ...ops import Op, Reply
from .. import Answers, Clock, OnHint
from ..batches import waits
from ..listener import Listener
from . import queries
from .batch import MAX_LIMIT, CommandResult, CommandSteps, MongoBatch
from .commands import Commands
from .faults import ANY_FAULT
from .listener import FAILURES, MongoSubscription
from .pool import SteadyPool, pool_class
from .quick import Command
from .settings import CODEC, MongoSettings
from .within import InTransaction, repeatable

T = TypeVar("T")

_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class MongoStore:
    """A store for threads, on one collection of a replica set, a sharded cluster or a standalone server."""

    max_limit = MAX_LIMIT

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
        self._listener = Listener(self._subscription, FAILURES, self._timeout)
        self._opening = threading.Lock()
        self._preparing = threading.Lock()
        self._opened: Database[dict[str, Any]] | None = None

    def __repr__(self) -> str:
        return f"<MongoStore {self._settings}>"

    # -- the protocol

    def perform(self, ops: Sequence[Op]) -> Answers:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        if not self._prepared:
            self._prepare()
        if waits(ops):
            if not self._listener.ready:
                self._listener.prepare()
            self.polls = not self._listener.ready
        return self._drive(MongoBatch(self._commands, self._server, self._listener.on_hint).perform(ops))

    def perform_within(self, session: ClientSession, ops: Sequence[Op]) -> list[Reply]:
        """Performs the ops in the session's transaction, with which they commit or abort.

        StoreUnavailable if that was aborted by a conflict and is to be run again, which pymongo's with_transaction
        does by itself; InvalidInput if there is none.
        """
        batch = InTransaction(self._commands, self._server, session, ClientSession)
        with repeatable():
            if not self._prepared:
                self._prepare()
            return self._drive(batch.perform_all(ops), session.client[self._settings.database], session)

    def listen(self, on_hint: OnHint) -> None:
        self._listener.on_hint = on_hint

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        return self._drive(queries.scan(self._commands, self._server, prefix, after, limit))

    def check(self) -> list[Finding]:
        """Reachable? Clock? MongoSettings that break a promise? Raises only StoreError."""
        return self._drive(queries.check(self._commands, self._settings))

    def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        self._listener.close(wait=False)  # it reads on until the server answers, or its client is closed
        if self._opened is not None:
            self._opened.client.close()

    def forked(self) -> None:
        """In the child: a new client and a new name; the parent's connections are left as they are."""
        _parents.append((self._opened, self._listener))
        on_hint = self._listener.on_hint
        self._reset()
        self._listener.on_hint = on_hint

    # -- commands

    def _prepare(self) -> None:
        """One thread at a time, as long as that is quick: to make the same indexes many times at once takes seconds."""
        in_turn = self._preparing.acquire(timeout=self._timeout)
        try:
            if not self._prepared:
                self._drive(queries.prepare(self._commands, self._server))
                self._prepared = True
        finally:
            if in_turn:
                self._preparing.release()

    def _subscription(self) -> MongoSubscription:
        return MongoSubscription(self._database()[self._settings.collection], self.client)

    def _database(self) -> Database[dict[str, Any]]:
        opened = self._opened
        if opened is None:
            with self._opening:
                opened = self._opened
                if opened is None:  # not `or`: a database has no truth
                    opened = self._opened = self._open()[self._settings.database]
        return opened

    def _open(self) -> MongoClient[dict[str, Any]]:
        if self._closed:
            raise ClientClosed("the client was closed; open a new one")
        try:
            pools = pool_class(SteadyPool, self._settings)
            return MongoClient(self._settings.url, _pool_class=pools, **self._settings.arguments(self._timeout))
        except ConfigurationError as error:  # of mongodb+srv://, which is read only now
            raise StoreMisconfigured(f"{self._server} cannot be used: {error}") from None

    def _drive(
        self,
        steps: CommandSteps[T],
        database: Database[dict[str, Any]] | None = None,
        session: ClientSession | None = None,
    ) -> T:
        """Sends the commands of a generator, and returns its result."""
        if database is None:
            database = self._database()
        try:
            commands = next(steps)
            while True:
                commands = steps.send(_send(commands, database, session))
        except StopIteration as end:
            result: T = end.value
            return result


def _send(
    commands: list[Command], database: Database[dict[str, Any]], session: ClientSession | None
) -> list[CommandResult]:
    """An answer or error for each command; after a lost connection the others are not tried in vain."""
    answers: list[CommandResult] = []
    for command in commands:
        try:
            answers.append(database.command(command, session=session, codec_options=CODEC))
        except ConnectionFailure as error:
            return answers + [error] * (len(commands) - len(answers))
        except ANY_FAULT as error:
            answers.append(error)
    return answers
