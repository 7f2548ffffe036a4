"""Faults of connections, by `solely.testing.FaultProxy` between the workers and the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from solely.testing.proxy import FaultProxy

from .fault import Arena, Fault

SERVED = ("redis", "postgres", "mongo")


class _Proxied(Fault):
    """Workers reach the server through a proxy."""

    deployments = SERVED

    @contextmanager
    def around(self, arena: Arena) -> Iterator[str]:
        with FaultProxy(*arena.deployment.address) as proxy:
            arena.gate = proxy
            yield arena.deployment.proxied_url(arena.namespace, proxy.host, proxy.port)


class LostReplies(_Proxied):
    """The server performs a request, and its reply never arrives: the connection then hangs, is reset or closed."""

    kind = "lost reply"

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.02, 0.2)
            fault = arena.gate.drop_replies(1, then=arena.chance.choice(("hang", "reset", "close")))
            fault.wait(1.0)
            arena.injected += fault.hits
        arena.gate.heal()


class HalfOpen(_Proxied):
    """Nothing gets through for a while, in either direction, on any connection; then all of it arrives."""

    kind = "half-open"

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.3, 1.0)
            arena.gate.half_open()
            arena.rest(0.1, 1.5 * arena.ttl)
            arena.gate.heal()
            arena.injected += 1


class CutConnections(_Proxied):
    """All connections are reset, and new ones refused for a while; or a reply is cut in its middle."""

    kind = "cut connection"

    def inject(self, arena: Arena) -> None:
        for _ in arena.moments():
            arena.rest(0.1, 0.5)
            if arena.chance.random() < 0.5:
                fault = arena.gate.cut_reply(arena.chance.randrange(1, 20))
                fault.wait(1.0)
                arena.injected += fault.hits
            else:
                arena.gate.refuse()
                arena.gate.reset()
                arena.rest(0.0, 0.5)
                arena.injected += 1
            arena.gate.heal()
