"""Databases that keep both marks and the rows of a caller: the same few verbs on SQLite, PostgreSQL and MongoDB.

`python -m tests.places NAME URL ADDRESS ORDERS KEY` marks and inserts in one transaction, says so, and never commits.
"""

import sqlite3
import sys
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymongo

import solely


class Place(Protocol):
    """Connections in a transaction of the caller's, and the caller's orders."""

    name: str
    url: str  # of the store
    address: str  # of the caller's connections
    orders: str

    def begin(self) -> Any: ...

    def insert(self, connection: Any, order: str) -> None: ...

    def commit(self, connection: Any) -> None: ...

    def rollback(self, connection: Any) -> None: ...

    def close(self, connection: Any) -> None: ...

    def rows(self) -> list[str]: ...


class Sqlite:
    name = "sqlite"

    def __init__(self, url: str, address: str, orders: str) -> None:
        self.url, self.address, self.orders = url, address, orders

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.address, isolation_level=None, timeout=20)

    def create(self) -> None:
        connection = self.connect()
        connection.execute(f"CREATE TABLE {self.orders} (id)")
        connection.close()

    def begin(self) -> sqlite3.Connection:
        connection = self.connect()
        connection.execute("BEGIN IMMEDIATE")
        return connection

    def insert(self, connection: Any, order: str) -> None:
        connection.execute(f"INSERT INTO {self.orders} VALUES (?)", (order,))

    def commit(self, connection: Any) -> None:
        connection.commit()

    def rollback(self, connection: Any) -> None:
        connection.rollback()

    def close(self, connection: Any) -> None:
        connection.close()

    def rows(self) -> list[str]:
        connection = self.connect()
        try:
            return [row[0] for row in connection.execute(f"SELECT id FROM {self.orders} ORDER BY id")]
        finally:
            connection.close()


class Postgresql(Sqlite):
    name = "postgres"

    def connect(self) -> Any:
        return psycopg.connect(self.address)

    def create(self) -> None:
        with psycopg.connect(self.address) as connection:
            connection.execute(f"CREATE TABLE {self.orders} (id text)")

    def begin(self) -> Any:
        return self.connect()  # the first statement begins

    def insert(self, connection: Any, order: str) -> None:
        connection.execute(f"INSERT INTO {self.orders} VALUES (%s)", (order,))


class Mongodb:
    name = "mongo"

    def __init__(self, url: str, address: str, orders: str) -> None:
        self.url, self.address, self.orders = url, address, orders
        self.mongo: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(address)

    def create(self) -> None:
        self.mongo["solely"].create_collection(self.orders)

    def begin(self) -> Any:
        session = self.mongo.start_session()
        session.start_transaction()
        return session

    def insert(self, connection: Any, order: str) -> None:
        self.mongo["solely"][self.orders].insert_one({"order": order}, session=connection)

    def commit(self, connection: Any) -> None:
        connection.commit_transaction()

    def rollback(self, connection: Any) -> None:
        connection.abort_transaction()

    def close(self, connection: Any) -> None:
        connection.end_session()

    def rows(self) -> list[str]:
        return sorted(row["order"] for row in self.mongo["solely"][self.orders].find())


PLACES: dict[str, type[Any]] = {place.name: place for place in (Sqlite, Postgresql, Mongodb)}


def mark_and_stay(name: str, url: str, address: str, orders: str, key: str) -> None:
    """For a process that is killed between the mark and the commit."""
    place: Place = PLACES[name](url, address, orders)
    with solely.Client(url) as once:
        connection = place.begin()
        assert once.within(connection).first(key)
        place.insert(connection, key)
        print("marked", flush=True)
        sys.stdin.read()


def shared(path: Path) -> Sqlite:
    return Sqlite(f"sqlite:///{path}?shared=true", str(path), "orders")


if __name__ == "__main__":
    mark_and_stay(*sys.argv[1:])
