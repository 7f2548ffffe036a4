"""The connections to a PostgreSQL: some, made when they are needed, each lent to one at a time."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from ..errors import DataUnavailable
from ..stores.postgres.connection import conninfo, reason
from ..stores.postgres.faults import refused
from ..stores.postgres.settings import PostgresSettings
from .database import Row, failed

Connection = psycopg.AsyncConnection[Row]

MOST = 8  # connections per worker: enough to keep a server of some cores busy, and some workers within its usual 100


class Pool:
    """Lends connections. One that the server has ended meanwhile, as in a restart, is noticed and not lent."""

    def __init__(self, settings: PostgresSettings, timeout: float) -> None:
        self.where = f"the database {settings}"
        self._settings, self._timeout = settings, timeout
        given = conninfo(settings, timeout)
        options = conninfo_to_dict(given).get("options", "")
        self._conninfo = make_conninfo(given, options=f'{options} -c search_path="{settings.schema}"')
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(MOST)
        self._closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Connection]:
        """A connection; DataUnavailable if none is free, or none can be made, in time."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._room.acquire()
        except TimeoutError:
            raise failed(DataUnavailable, self.where, f"all {MOST} connections are busy") from None
        try:
            connection = self._rested() or await self._made()
            try:
                yield connection
            finally:
                await self._take_back(connection)
        finally:
            self._room.release()

    async def close(self) -> None:
        """Ends all that are idle; those that are lent, when they come back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    def _rested(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the last that was used: its socket and the server's caches are warm
            if not _is_ended(connection):
                return connection
            connection.pgconn.finish()
        return None

    async def _made(self) -> Connection:
        if self._closed:
            raise failed(DataUnavailable, self.where, "it was closed")
        try:
            async with asyncio.timeout(self._timeout):
                connection: Connection = await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True, row_factory=dict_row
                )
        except TimeoutError:
            raise DataUnavailable(str(refused(self.where, f"no answer within {self._timeout:g} s"))) from None
        except (psycopg.Error, socket.gaierror) as error:
            raise DataUnavailable(str(refused(self.where, reason(error)))) from None
        connection.adapters.register_loader("numeric", _Number)
        return connection

    async def _take_back(self, connection: Connection) -> None:
        if self._closed or connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await connection.close()
        else:
            self._idle.append(connection)


def _is_ended(connection: Connection) -> bool:
    """True if the server has said something unasked, which can only be that it ended the connection; asks nobody."""
    if connection.closed:
        return True
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return bool(watch.poll(0))


class _Number(Loader):
    """Sums of whole numbers are whole numbers, as in SQLite, and no Decimals."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdecimal() else float(text)
