"""Brings the schema up to date, and checks each new connection before it is used."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import StoreError, StoreMisconfigured, StoreUnavailable
from ...logs import get_logger
from .. import NotPrimary
from .connection import ConnectionLost, PostgresConnection
from .faults import PoolerInBetween, SchemaGone, Stale, not_migrated
from .health import POOLER
from .settings import PostgresSettings
from .statements import MIGRATIONS, NEWEST

if TYPE_CHECKING:
    from .aio_connection import AsyncPostgresConnection

log = get_logger()

# Seconds for all migrations together: on an empty database they take well under one, but another process that has just
# begun them is waited for, and so is an old transaction that still uses a table.
MIGRATING = 60.0


def migrate(settings: PostgresSettings, to: int = NEWEST) -> int:
    """The number of the newest migration once all up to `to` are applied, together or not at all.

    Under an advisory lock, so that any number of processes may do it at once. A StoreError, and nothing changed, if
    the user lacks a privilege or the server does not answer.
    """
    connection = connect_anyhow(settings, MIGRATING)
    queries, names = settings.queries, settings.names
    try:
        notice_pooler(connection, connection.execute(queries["backend"]).get_value(0, 0).decode())
        connection.execute(queries["begin_migration"])
        if not connection.execute(queries["find_schema"]).ntuples:
            connection.execute(queries["create_schema"])
        done = int(connection.execute(queries["create_migrations"], queries["migrated"]).get_value(0, 0))
        for step in MIGRATIONS:
            if done < step.number <= to:
                connection.execute(step.text.format_map(names).encode())
                connection.call("record_migration", (step.number, step.name))
                done = step.number
        connection.execute(b"COMMIT")
        return done
    except ConnectionLost as error:
        raise not_migrated(str(settings), str(error)) from None
    finally:
        connection.close()


def connect_anyhow(settings: PostgresSettings, timeout: float) -> PostgresConnection:
    """A connection; one that sets nothing for a session if the URL says nothing of a pooler, and one refuses that."""
    try:
        return PostgresConnection(settings, timeout)
    except PoolerInBetween:
        if settings.pgbouncer is not None:
            raise
        return PostgresConnection(replace(settings, pgbouncer=True), timeout)


def notice_pooler(connection: PostgresConnection, backend: str) -> None:
    """Uses the connection as one of a pooler if another process serves it than the one that greeted us, and the URL
    says nothing of a pooler. One that pools sessions is not told from one that pools transactions: what works with the
    latter works with both."""
    if connection.settings.pgbouncer is None and int(backend) != connection.pgconn.backend_pid:
        connection.settings = replace(connection.settings, pgbouncer=True)


class Connector:
    """Makes connections to a primary whose schema is up to date."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self.life = ""  # of the server in which the schema is known to be up to date
        self._age = 0  # how often the schema was found missing
        self._damaged = ""  # the life in which it was last found so

    def missing(self, connection: PostgresConnection | AsyncPostgresConnection, error: SchemaGone) -> StoreError:
        """The error of an op that finds a table or function missing: Stale, since a new connection makes a dropped
        schema anew; the given one if it is missing on a connection that was opened after that. Not raised."""
        if connection.age == self._age:
            if connection.life == self._damaged:
                return error
            self._age += 1
            self._damaged = connection.life
        return Stale(f"the schema was dropped while this connection was open: {error}")

    @property
    def pooled(self) -> bool:
        """True if a pooler is known to be in between: no hint comes through."""
        return bool(self._settings.pgbouncer)

    def connect(self, timeout: float) -> PostgresConnection:
        """A connection that may be used; StoreUnavailable or StoreMisconfigured, naming the cause, if there is none."""
        connection = connect_anyhow(self._settings, timeout)
        connection.age = self._age
        try:
            life, version = self._check_server(connection)
            if life != self.life:
                if version < NEWEST:
                    self._bring_up_to_date(version)
                    life, version = self._check_server(connection)
                elif version > NEWEST:
                    facts = {"schema_version": version, "known_version": NEWEST}
                    text = "newer_schema: version %(schema_version)d is of a later Solely than this (%(known_version)d)"
                    log.warning(text, facts, extra=facts)
                self.life = life
            connection.life = life
            if connection.settings.pgbouncer:  # there this connection outlives the server
                connection.settings = replace(connection.settings, queries=self._settings.queries_in(life))
        except ConnectionLost as error:
            connection.close()
            raise StoreUnavailable(f"{self._settings} did not answer: {error}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_server(self, connection: PostgresConnection) -> tuple[str, int]:
        """The server's life and the schema's version, 0 if there is none."""
        row = connection.execute(self._settings.queries["server_state"])
        state = (row.get_value(0, column).decode() for column in range(row.nfields))
        recovering, read_only, life, migrations, isolation, encoding, backend = state
        notice_pooler(connection, backend)
        if connection.settings.pgbouncer and not self._settings.pgbouncer:
            self._settings = replace(self._settings, pgbouncer=True)
            facts = {"store": str(self._settings), "remedy": POOLER}
            log.warning("pooler_detected: %(store)s: %(remedy)s", facts, extra=facts)
        if recovering == "true":
            raise NotPrimary(f"{self._settings} is a replica instead of the primary: it cannot write")
        if read_only == "on":
            raise StoreMisconfigured(
                f"{self._settings} lets this user only read (default_transaction_read_only is on); switch it off with "
                "ALTER ROLE … SET default_transaction_read_only = off"
            )
        if encoding != "UTF8":
            raise StoreMisconfigured(
                f"{self._settings} keeps text as {encoding}, which has not every character of a key; give a database "
                "that was made with ENCODING 'UTF8' (CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8')"
            )
        if isolation != "read committed":
            raise StoreMisconfigured(
                f"{self._settings} begins this user's transactions at {isolation}, where a limit could be exceeded; "
                "let them begin at read committed: ALTER ROLE … SET default_transaction_isolation = 'read committed', "
                "and let a pooler open its connections anew"
            )
        if life == self.life or not migrations:
            return life, 0
        return life, int(connection.execute(self._settings.queries["migrated"]).get_value(0, 0))

    def _bring_up_to_date(self, version: int) -> None:
        if not self._settings.migrates:
            found = f"at version {version}" if version else "missing"
            raise StoreMisconfigured(
                f"{self._settings}: the schema {self._settings.schema} is {found}, {NEWEST} is needed and "
                "migrate=never forbids to change it; call solely.stores.postgres.migrate(url) with a user who may"
            )
        migrate(self._settings)


class SchemaCheck(threading.Thread):
    """Checks the server on a connection of its own, which brings the schema up to date. Keeps no process alive."""

    def __init__(self, connector: Connector) -> None:
        super().__init__(name="solely-schema-check", daemon=True)
        self._connector = connector
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._connector.connect(MIGRATING).close()
        except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
            self.error = error
