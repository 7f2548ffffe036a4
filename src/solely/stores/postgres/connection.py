"""One connection, for one thread at a time: libpq connects and implements the protocol, we keep the timeouts.

Only what psycopg documents as its libpq wrapper (`psycopg.pq`) is used: a statement is one send and one wait, and an
answer counts only once the server has said that it is ready again, since it commits just before that.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...credentials import Login
from ...errors import StoreDenied
from .codec import Packed, Values, pack
from .connect import connect_any
from .faults import fault
from .settings import PostgresSettings

_OK = (int(pq.ExecStatus.TUPLES_OK), int(pq.ExecStatus.COMMAND_OK))  # plain numbers compare quicker
_IN, _BOTH = select.POLLIN, select.POLLIN | select.POLLOUT
# Of the timeout: the server gives up a little before we do, so that it says so and nothing is in doubt.
SERVER_SHARE = 0.9


class ConnectionLost(Exception):
    """The connection ended, or no answer came in time: what was sent may or may not have been performed."""


def conninfo(settings: PostgresSettings, timeout: float) -> str:
    """What libpq is given. Behind a pooler nothing is set for a session: it is lent to strangers."""
    if settings.pgbouncer:
        return settings.conninfo
    ours = f"-c statement_timeout={max(1, int(timeout * SERVER_SHARE * 1000))}"
    ours += " -c default_transaction_isolation=read\\ committed"
    ours += " -c jit=off"  # a server compiles what it thinks costly: ten ms for statements that take half a one
    given = conninfo_to_dict(settings.conninfo).get("options", "")
    return make_conninfo(settings.conninfo, options=f"{ours} {given}".strip())


def connect(settings: PostgresSettings, timeout: float) -> Any:
    """A libpq connection; StoreUnavailable or StoreMisconfigured, naming the cause, if there is none in time.

    A login that the server refuses is fetched anew, and tried once more.
    """
    refusal: StoreDenied | None = None
    for login in (None,) if settings.logins is None else settings.logins.tries():
        try:
            pgconn = connect_any(_with_login(conninfo(settings, timeout), login), settings.address, timeout)
        except StoreDenied as denied:
            refusal = denied
        else:
            pgconn.nonblocking = 1
            return pgconn
    raise refusal or StoreDenied(f"{settings.address}: there is no login")


def _with_login(given: str, login: Login | None) -> str:
    if login is None:
        return given
    user = {"user": login.username} if login.username else {}
    return make_conninfo(given, **user, password=login.password)


def send(pgconn: Any, settings: PostgresSettings, name: str, packed: Packed) -> None:
    """Sends a statement of queries.sql that was prepared on this connection, or needs not be."""
    if settings.pgbouncer:
        pgconn.send_query_params(settings.queries[name], packed[0], None, packed[1], 1)
    else:
        pgconn.send_query_prepared(name.encode(), *packed, 1)


def reason(error: Exception) -> str:
    """libpq's words in one line."""
    return " ".join(str(error).split())


def check_result(result: Any) -> None:
    """Returns if the statement succeeded; ConnectionLost if it ended the connection, else its error as one of ours."""
    if result.status in _OK:
        return
    field, kinds = result.error_field, pq.DiagnosticField
    text = (field(kinds.MESSAGE_PRIMARY) or b"no reason given").decode("utf-8", "replace")
    if (field(kinds.SEVERITY_NONLOCALIZED) or b"ERROR") != b"ERROR":
        raise ConnectionLost(text)
    raise fault((field(kinds.SQLSTATE) or b"").decode(), text)


class PostgresConnection:
    """Sends and receives. ConnectionLost if the connection ends or the timeout passes; a StoreError if the server
    answers with an error."""

    def __init__(self, settings: PostgresSettings, timeout: float) -> None:
        self.settings = settings
        self.timeout = timeout
        self.pgconn = connect(settings, timeout)
        self.life = ""  # of the server and of its schema, as known when it was opened
        self.age = 0  # how often the schema had been found missing by then
        self.prepared: set[str] = set()
        self._watch = select.poll()
        self._watch.register(self.pgconn.socket, _IN)

    def call(self, name: str, values: Values = ()) -> Any:
        """The result of a statement of queries.sql, in binary form."""
        return self.call_packed(name, pack(name, values))

    def call_packed(self, name: str, packed: Packed) -> Any:
        """The same, with its values as the wire takes them."""
        ends = time.monotonic() + self.timeout
        try:
            if name not in self.prepared and not self.settings.pgbouncer:
                self.pgconn.send_prepare(name.encode(), self.settings.queries[name])
                self._receive(ends)
                self.prepared.add(name)
            send(self.pgconn, self.settings, name, packed)
            return self._receive(ends)
        except psycopg.Error as error:
            raise ConnectionLost(reason(error)) from None

    def execute(self, *scripts: bytes) -> Any:
        """The result of the last statement of each script in turn, in text form: of the last one."""
        ends = time.monotonic() + self.timeout
        result: Any = None
        try:
            for script in scripts:
                self.pgconn.send_query(script)
                result = self._receive(ends)
        except psycopg.Error as error:
            raise ConnectionLost(reason(error)) from None
        return result

    def _receive(self, ends: float) -> Any:
        """The last result, once the server is ready again."""
        pgconn = self.pgconn
        while pgconn.flush():
            self._watch.modify(pgconn.socket, _BOTH)
            try:
                self._wait(ends)
            finally:
                self._watch.modify(pgconn.socket, _IN)
        last: Any = None
        failure: Any = None
        while True:
            while pgconn.is_busy():
                self._wait(ends)
            result = pgconn.get_result()
            if result is None:
                if failure is not None:
                    check_result(failure)
                return last
            last = result
            if failure is None and result.status not in _OK:
                failure = result

    def _wait(self, ends: float) -> None:
        left = ends - time.monotonic()
        if left <= 0 or not self._watch.poll(left * 1000):
            raise ConnectionLost(f"nothing within {self.timeout:g} s")
        self.pgconn.consume_input()

    def notifications(self, seconds: float) -> list[str] | None:
        """The payloads of the notifications that came, waiting for the first; None if there was none in time."""
        if before := received(self.pgconn):  # they came together with an answer
            return before
        if not self._watch.poll(seconds * 1000):
            return None
        try:
            self.pgconn.consume_input()
        except psycopg.Error as error:
            raise ConnectionLost(reason(error)) from None
        return received(self.pgconn)

    def shut(self) -> None:
        """Makes whoever waits on this connection see its end; that one closes it."""
        shut(self.pgconn)

    def close(self) -> None:
        """Ends the connection, and says so to the server."""
        self.pgconn.finish()

    def abandon(self) -> None:
        """In the child after a fork: closes the socket and sends nothing, since the connection is the parent's."""
        abandon(self.pgconn)


def received(pgconn: Any) -> list[str]:
    """The payloads of the notifications that have been read."""
    payloads = []
    while (notice := pgconn.notifies()) is not None:
        payloads.append(notice.extra.decode())
    return payloads


def abandon(pgconn: Any) -> None:
    """Closes our copy of the socket only; libpq's object, which was made in the parent, then does nothing."""
    if pgconn.status == pq.ConnStatus.OK:
        os.close(pgconn.socket)


def shut(pgconn: Any) -> None:
    """Ends the connection without freeing it, so that whoever waits on it sees its end."""
    if pgconn.status == pq.ConnStatus.OK:
        with socket.socket(fileno=os.dup(pgconn.socket)) as copy, suppress(OSError):
            copy.shutdown(socket.SHUT_RDWR)
