"""Faults of clocks, by libfaketime where it loads: the wall clock of clients or of the server jumps."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from tests.postgres_server import UNPRIVILEGED, Postgres

from .fault import Arena, Fault

LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
)
JUMPS = ("-1h", "+1h", "-1d", "+1d", "-30", "+30", "+0")  # as libfaketime reads them


class _Jumping(Fault):
    """The wall clock of a process follows a file; its monotonic clock does not."""

    def __init__(self) -> None:
        self._library = next((each for each in LIBRARIES if Path(each).exists()), "")

    def why_not(self, deployment: str) -> str:
        return "" if self._library else "libfaketime is not installed"

    @cached_property
    def _file(self) -> Path:
        handle, name = tempfile.mkstemp(prefix="solely-chaos-clock-")
        os.close(handle)
        path = Path(name)
        path.write_text("+0\n")
        path.chmod(0o644)  # the server may be another user
        return path

    @property
    def _variables(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # as older versions spell it
        }

    @staticmethod
    def _tidy(pids: Iterable[int]) -> None:
        """Removes what libfaketime leaves of a process that was killed."""
        for pid in pids:
            for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
                (Path("/dev/shm") / name).unlink(missing_ok=True)

    def _jump(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.2, 0.6)
            self._file.write_text(arena.chance.choice(JUMPS) + "\n")
            arena.injected += 1
        self._file.write_text("+0\n")


class ClientClockJumps(_Jumping):
    """The wall clock of the workers jumps by up to a day: no promise depends on it."""

    kind = "client clock jump"
    deployments = ("redis", "postgres", "mongo")
    workloads = frozenset({"W1", "W7", "W9"})
    processes = 2  # each of them a new interpreter

    @contextmanager
    def around(self, arena: Arena) -> Iterator[str]:
        try:
            yield arena.deployment.url(arena.namespace)
        finally:
            self._tidy(member.pid for member in arena.crew.members)

    @property
    def environment(self) -> dict[str, str]:  # type: ignore[override]
        return self._variables

    def inject(self, arena: Arena) -> None:
        self._jump(arena)


class ServerClockJumps(_Jumping):
    """The wall clock of the server jumps: leases end too early or too late, and only fences hold."""

    kind = "server clock jump"
    deployments = ("redis", "postgres")
    workloads = frozenset({"W3", "W4"})
    counted = frozenset({"W1"})

    def why_not(self, deployment: str) -> str:
        if deployment == "postgres" and UNPRIVILEGED is not None:
            return "as root, PostgreSQL changes its user, after which libfaketime may not open its semaphore"
        return super().why_not(deployment)

    @contextmanager
    def around(self, arena: Arena) -> Iterator[str]:
        before = {name: os.environ.get(name) for name in self._variables}
        arena.deployment.kill()
        os.environ.update(self._variables)
        try:
            arena.deployment.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        try:
            yield arena.deployment.url(arena.namespace)
        finally:
            pids = [arena.deployment.server.pid]
            if isinstance(arena.deployment.server, Postgres):
                pids = arena.deployment.server.family()
            arena.deployment.kill()
            self._tidy(pids)
            arena.deployment.start()

    def inject(self, arena: Arena) -> None:
        self._jump(arena)
