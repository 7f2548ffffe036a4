"""Where signals are written, in the database of each store: the protected write, the old read-check-write, a
transaction of the caller's, and what is there in the end."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymongo

from solely.apps.signals import MongoSignals

Signal = dict[str, Any]
INSERT = "INSERT INTO {table} VALUES ({mark}, {mark}, {mark}, {mark}) ON CONFLICT (id) DO NOTHING"
CREATE = "CREATE TABLE IF NOT EXISTS {table} (id TEXT PRIMARY KEY, house TEXT, game TEXT, username TEXT)"
COUNT = "SELECT house || '/' || game || '/' || username, count(*) FROM {table} GROUP BY 1"
EXISTS = "SELECT 1 FROM {table} WHERE house = {mark} AND game = {mark} AND username = {mark}"


class Sink(ABC):
    """The signals of one test, in a place of their own."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name

    @abstractmethod
    def write(self, signal: Signal, id: str, connection: Any = None) -> object:
        """Writes the signal under this id, unless it is there."""

    @abstractmethod
    def exists(self, signal: Signal) -> bool:
        """True if the credential has a signal."""

    @abstractmethod
    def transaction(self) -> Any:
        """A context manager with a connection that is in a transaction."""

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def counts(self) -> Counter[str]:
        """How many signals each credential has."""


class MongoSink(Sink):
    """A collection."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self._client: pymongo.MongoClient[Signal] = pymongo.MongoClient(url.partition("namespace=")[0].rstrip("?&"))
        self._collection = self._client["signals_tests"][name]
        self._signals = MongoSignals(self._collection)

    def write(self, signal: Signal, id: str, connection: Any = None) -> object:
        return self._signals.write(signal, id, connection)

    def exists(self, signal: Signal) -> bool:
        return self._collection.find_one({name: signal[name] for name in ("house", "game", "username")}) is not None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._client.start_session() as session, session.start_transaction():
            yield session

    def counts(self) -> Counter[str]:
        return Counter("/".join((each["house"], each["game"], each["username"])) for each in self._collection.find())

    def close(self) -> None:
        self._client.close()


class PostgresSink(Sink):
    """A table."""

    mark = "%s"

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self._connection = psycopg.connect(url.partition("?")[0], autocommit=True)
        self._connection.execute("SELECT pg_advisory_lock(7)")  # IF NOT EXISTS is no guard against two at once
        self._run(CREATE)
        self._connection.execute("SELECT pg_advisory_unlock(7)")

    def _run(self, statement: str, *values: str) -> Any:
        return self._connection.execute(statement.format(table=self.name, mark=self.mark), values)

    def write(self, signal: Signal, id: str, connection: Any = None) -> object:
        values = (id, signal["house"], signal["game"], signal["username"])
        return (connection or self._connection).execute(INSERT.format(table=self.name, mark=self.mark), values)

    def exists(self, signal: Signal) -> bool:
        return self._run(EXISTS, signal["house"], signal["game"], signal["username"]).fetchone() is not None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._connection.transaction():
            yield self._connection

    def counts(self) -> Counter[str]:
        return Counter(dict(self._run(COUNT).fetchall()))

    def close(self) -> None:
        self._connection.close()


class SqliteSink(PostgresSink):
    """A table of a file; for transactions, that of the store (`shared=true`)."""

    mark = "?"

    def __init__(self, url: str, name: str) -> None:
        Sink.__init__(self, url, name)
        self._connection: Any = sqlite3.connect(urlsplit(url).path, timeout=60.0, isolation_level=None)
        self._connection.execute("PRAGMA synchronous = OFF")  # this machine loses no power in a test
        self._run(CREATE)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()


SINKS: dict[str, Callable[[str, str], Sink]] = {"mongo": MongoSink, "postgres": PostgresSink, "sqlite": SqliteSink}
