"""One server of each store, with the settings under which its promises hold through a kill; and SQLite without any."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Self

from tests.mongo_server import SET_NAME, Mongod
from tests.postgres_server import PYPI_POSTGRES, Postgres
from tests.servers import Valkey

from .deployment import Deployment


class _Served(Deployment):
    """A deployment whose server is one process, or one family of processes."""

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.__exit__()

    def url(self, namespace: str) -> str:
        return f"{self.server.url}?namespace={namespace}"


class Redis(_Served):
    """A Valkey that syncs every write: with less, Redis itself may lose what it acknowledged."""

    name = store = "redis"

    def __init__(self) -> None:
        self.server: Valkey = Valkey(appendonly="yes", appendfsync="always")

    @property
    def version(self) -> str:
        info = self.server.ask("INFO", "server")
        return f"Valkey {info.get('valkey_version') or info['redis_version']}"


class PostgreSQL(_Served):
    """PostgreSQL with its defaults: `fsync` and `synchronous_commit` on."""

    name = store = "postgres"

    def __init__(self) -> None:
        self.server: Postgres = Postgres(folder=PYPI_POSTGRES)

    @property
    def version(self) -> str:
        return f"PostgreSQL {self.server.ask('SHOW server_version')[0][0]}"


class Mongo(_Served):
    """A replica set of one; the store always uses `w: majority, j: true`."""

    name = store = "mongo"

    def __init__(self) -> None:
        self.server: Mongod = Mongod(replica_set=True)

    def url(self, namespace: str) -> str:
        return f"mongodb://{self.server.host}:{self.server.port}/chaos?replicaSet={SET_NAME}&namespace={namespace}"

    def proxied_url(self, namespace: str, host: str, port: int) -> str:
        """Without discovery, which would lead past the proxy."""
        return f"mongodb://{host}:{port}/chaos?directConnection=true&namespace={namespace}"

    @property
    def version(self) -> str:
        return f"MongoDB {self.server.ask('buildInfo')['version']}"


class Files(Deployment):
    """SQLite: a file per namespace."""

    name = store = "sqlite"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="solely-chaos-"))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, namespace: str) -> str:
        return f"sqlite:///{self._folder / namespace}.db"

    @property
    def version(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}"
