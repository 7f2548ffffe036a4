"""Faults of a store that has reached its bounds: memory that is full, connections that are used up."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, suppress

import psycopg

from tests.postgres_server import Postgres
from tests.servers import Valkey

from .fault import Arena, Fault

MOST = 400  # connections that the injector opens at most: the servers allow fewer here


class StoreFull(Fault):
    """The memory limit of Redis is set to what it uses, with nothing evicted: writes fail until it is raised."""

    kind = "store full"
    deployments = ("redis",)

    def inject(self, arena: Arena) -> None:
        server: Valkey = arena.deployment.server
        for _ in arena.moments():
            arena.rest(0.2, 0.8)
            server.ask("CONFIG SET", "maxmemory-policy", "noeviction")
            server.ask("CONFIG SET", "maxmemory", server.ask("INFO", "memory")["used_memory"])
            arena.rest(0.2, 1.0)
            server.ask("CONFIG SET", "maxmemory", 0)
            arena.injected += 1


class NoConnections(Fault):
    """All connections that the server allows are used by others, and those of the workers are closed."""

    kind = "connection limit"
    deployments = ("redis", "postgres")

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.2, 0.8)
            with ExitStack() as others:
                if isinstance(arena.deployment.server, Valkey):
                    self._fill_redis(arena.deployment.server, others)
                else:
                    self._fill_postgres(arena.deployment.server, others)
                arena.rest(0.2, 1.0)
            arena.injected += 1
        time.sleep(0.2)

    @staticmethod
    def _fill_redis(server: Valkey, others: ExitStack) -> None:
        """The injector's own connection is kept: it could not get another one to undo this."""
        client = others.enter_context(server.client())
        others.callback(client.execute_command, "CONFIG SET", "maxclients", 10_000)
        for _ in range(10):
            others.enter_context(socket.create_connection((server.host, server.port), 5)).sendall(b"PING\r\n")
        client.execute_command("CONFIG SET", "maxclients", 12)
        client.execute_command("CLIENT KILL", "TYPE", "normal", "SKIPME", "yes", "MAXAGE", 1)

    @staticmethod
    def _fill_postgres(server: Postgres, others: ExitStack) -> None:
        admin = others.enter_context(psycopg.connect(server.conninfo(), autocommit=True))
        with suppress(psycopg.OperationalError):  # too many connections: that is what is wanted
            for _ in range(MOST):
                others.enter_context(psycopg.connect(server.conninfo()))
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE state = 'idle' AND pid <> pg_backend_pid() AND xact_start IS NULL AND query <> ''"
        )
