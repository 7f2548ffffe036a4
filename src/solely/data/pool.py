"""A small pool of connections to PostgreSQL, opened on demand."""

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

from ..errors import DataError, DataUnavailable
from ..stores.postgres.connection import conninfo, reason
from ..stores.postgres.faults import PoolerInBetween, refused
from ..stores.postgres.settings import PostgresSettings
from .database import Row, failed

Connection = psycopg.AsyncConnection[Row]

# A plan is made for each execution, with the size that the tables have then. The server would otherwise keep the plan
# of an empty table while it grows: one service in six accepted 270 keyed triggers per second instead of 1,100.
_PLANS = "-c plan_cache_mode=force_custom_plan"
POOLER = (
    "a pooler does not work for the data of applications; give the server's own address, or pgbouncer=false if the "
    "pooler lends connections per session and passes `options` on"
)
MOST = 8  # connections per worker: keeps a few cores busy; ten workers stay below the server's default of 100


class DataPool:
    """Idle connections are checked before use: one that the server closed, as in a restart, is dropped."""

    def __init__(self, settings: PostgresSettings, timeout: float) -> None:
        self.where = f"the database {settings}"
        self._settings, self._timeout = settings, timeout
        given = conninfo(settings, timeout)
        options = conninfo_to_dict(given).get("options", "")
        self._conninfo = make_conninfo(given, options=f'{options} -c search_path="{settings.schema}" {_PLANS}')
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(MOST)
        self._closed = False

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection; DataUnavailable if none is free, or none can be opened, in time."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError:
            raise failed(DataUnavailable, self.where, f"all {MOST} connections are busy") from None
        try:
            connection = self._reuse() or await self._connect()
            try:
                yield connection
            finally:
                await self._return(connection)
        finally:
            self._slots.release()

    async def close(self) -> None:
        """Closes idle connections now, and those in use when they are returned."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    def _reuse(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()  # the most recently used: its socket and the server's caches are warm
            if not _is_closed_by_server(connection):
                return connection
            connection.pgconn.finish()
        return None

    async def _connect(self) -> Connection:
        if self._closed:
            raise failed(DataUnavailable, self.where, "it was closed")
        try:
            async with asyncio.timeout(self._timeout):
                connection: Connection = await psycopg.AsyncConnection.connect(
                    self._conninfo, autocommit=True, row_factory=dict_row
                )
                try:
                    await self._check_session(connection)
                except BaseException:
                    await connection.close()
                    raise
        except TimeoutError:
            raise DataUnavailable(str(refused(self.where, f"no answer within {self._timeout:g} s"))) from None
        except (psycopg.Error, socket.gaierror) as error:
            refusal = refused(self.where, reason(error))
            if isinstance(refusal, PoolerInBetween):
                raise failed(DataError, self.where, f"{POOLER} ({reason(error)})") from None
            raise DataUnavailable(str(refusal)) from None
        connection.adapters.register_loader("numeric", _Number)
        return connection

    async def _check_session(self, connection: Connection) -> None:
        """DataError if a pooler is in between that lends connections per transaction, as far as the URL does not deny
        it: tables would be made and looked for in another schema than the one that the URL names."""
        if self._settings.pgbouncer is False:
            return
        served = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
        if served is None or served["pid"] != connection.info.backend_pid:
            raise failed(DataError, self.where, POOLER)

    async def _return(self, connection: Connection) -> None:
        if self._closed or connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await connection.close()
        else:
            self._idle.append(connection)


def _is_closed_by_server(connection: Connection) -> bool:
    """True if there is unread data, which on an idle connection means that the server closed it; sends nothing."""
    if connection.closed:
        return True
    watch = select.poll()
    watch.register(connection.fileno(), select.POLLIN)
    return bool(watch.poll(0))


class _Number(Loader):
    """Loads numeric as int or float instead of Decimal, so that sums of integers are integers, as in SQLite."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdecimal() else float(text)
