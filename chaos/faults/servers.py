"""Faults of a server: SIGKILL, SIGSTOP, and the loss of all its data."""

from __future__ import annotations

import time

from .fault import Arena, Fault

SERVED = ("redis", "postgres", "mongo")
DOWN = (0.0, 1.0)  # seconds: from a quick restart to as long as a ttl


class KillServer(Fault):
    """SIGKILL of the server, which restarts on the same port and data."""

    kind = "kill server"
    deployments = SERVED

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.3, 1.5)
            arena.deployment.kill()
            arena.rest(*DOWN)
            arena.deployment.start()
            arena.injected += 1
        time.sleep(0.5)


class PauseServer(Fault):
    """SIGSTOP of the server, for longer than a ttl now and then: connections stay up and nothing answers."""

    kind = "pause server"
    deployments = SERVED

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.3, 1.0)
            arena.deployment.pause()
            arena.rest(0.2 * arena.ttl, 1.5 * arena.ttl)
            arena.deployment.resume()
            arena.injected += 1


class Wipe(Fault):
    """All data are lost at once. Fences grow nevertheless; what the store forgot is promised by nobody."""

    kind = "data wiped"
    workloads = frozenset({"W1", "W3", "W4", "W8"})
    expects = ("disk I/O error",)  # of SQLite, whose three files are removed one after the other while they are in use

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.3, 1.0)
            arena.wipes.append(arena.deployment.wipe(arena.namespace))
            arena.injected += 1
