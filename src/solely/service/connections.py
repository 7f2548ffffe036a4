"""Connections: how many a worker keeps open, and which it closes when there is no room for another.

A connection is unauthenticated until a valid token, session or webhook signature was sent on it. The two kinds have
separate bounds. So strangers, however many connections they open, take no room of authenticated callers, and
authenticated callers leave room for health probes and for new callers.
"""

from __future__ import annotations

import ipaddress
import time
from collections import Counter
from typing import Protocol

import structlog

from .figures import Figure
from .metrics import CONNECTIONS_EVICTED, CONNECTIONS_OPEN, CONNECTIONS_REFUSED, Metrics
from .problems import TOO_MANY_CONNECTIONS, Problem
from .security import Principal, Tokens
from .settings import Settings

log = structlog.get_logger("solely.connections")

ANSWERED = 100  # refused connections that get a response at the same time; others are closed without one
LOG_EVERY = 10.0  # seconds between log lines: a flood must not fill the disk, and the log still shows that it goes on
IPV6_PREFIX = 64  # bits that identify a peer: one host can use all addresses of its /64


class Connection(Protocol):
    """A connection as it is counted here."""

    address: str
    authenticated: bool

    def is_busy(self) -> bool:
        """True while the app handles a complete request; false while the peer is to send or to read."""

    def in_flight(self) -> int:
        """How many requests the worker handles now, on all its connections."""

    def evict(self) -> None:
        """Closes it at once."""

    def shutdown(self) -> None:
        """Closes it after the request in flight, if there is one."""


class Connections:
    """The open connections of one worker, within the bounds of its settings."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._most = settings.max_connections
        self._most_unauthenticated = settings.unauthenticated_bound
        self._most_per_address = settings.address_bound
        self._metrics = metrics
        self._authenticated: dict[Connection, Principal] = {}
        self._unauthenticated: dict[Connection, None] = {}  # least recently used first
        self._by_address: dict[str, dict[Connection, None]] = {}  # the same connections, in the same order
        self._refused: set[Connection] = set()
        self._logged = -LOG_EVERY
        self._unlogged: Counter[str] = Counter()
        metrics.gauge(CONNECTIONS_OPEN, lambda: len(self._authenticated), "authenticated")
        metrics.gauge(CONNECTIONS_OPEN, lambda: len(self._unauthenticated), "unauthenticated")

    def admit(self, newcomer: Connection) -> bool:
        """Admits a new connection. If there is no room, closes another unauthenticated one, an idle one if possible.
        False if all are busy, and so is the worker."""
        neighbors = self._by_address.get(newcomer.address, {})
        if not self._make_room(neighbors, self._most_per_address, "address", newcomer):
            return False
        if not self._make_room(self._unauthenticated, self._most_unauthenticated, "unauthenticated", newcomer):
            return False
        self._unauthenticated[newcomer] = None
        self._by_address.setdefault(newcomer.address, {})[newcomer] = None
        return True

    def may_linger(self, refused: Connection) -> bool:
        """True if this refused connection may stay open for a moment to read the response."""
        kept = len(self._authenticated) + len(self._unauthenticated) + len(self._refused)
        if kept >= self._most or len(self._refused) >= ANSWERED:
            return False
        self._refused.add(refused)
        return True

    def used(self, connection: Connection) -> None:
        """Marks this unauthenticated connection as the most recently used one."""
        if connection in self._unauthenticated:
            for pool in (self._unauthenticated, self._by_address[connection.address]):
                del pool[connection]
                pool[connection] = None

    def authenticate(self, connection: Connection, principal: Principal) -> None:
        """Counts the connection as authenticated from now on; raises Problem if there are too many of them."""
        if connection not in self._unauthenticated:
            return
        if len(self._authenticated) >= self._most - self._most_unauthenticated:
            self._report(CONNECTIONS_REFUSED, "authenticated", connection)
            raise Problem(TOO_MANY_CONNECTIONS)
        self.leave(connection)
        self._authenticated[connection] = principal
        connection.authenticated = True

    def leave(self, connection: Connection) -> None:
        """No longer counts the connection: it is closed, or about to be."""
        self._refused.discard(connection)
        if self._authenticated.pop(connection, None) is None and connection in self._unauthenticated:
            del self._unauthenticated[connection]
            neighbors = self._by_address[connection.address]
            del neighbors[connection]
            if not neighbors:
                del self._by_address[connection.address]

    def recheck(self, tokens: Tokens) -> None:
        """Connections whose token is no longer valid are unauthenticated again, until a valid one is sent on them."""
        for connection in [each for each, principal in self._authenticated.items() if not tokens.knows(principal)]:
            self.leave(connection)
            connection.authenticated = False
            if not self.admit(connection):
                connection.shutdown()

    def _make_room(self, pool: dict[Connection, None], most: int, bound: str, newcomer: Connection) -> bool:
        if len(pool) < most:
            return True
        oldest = next((each for each in pool if not each.is_busy()), None)
        if oldest is None and newcomer.in_flight() < self._most:  # the request of a closed one still runs: bound those
            oldest = next(iter(pool))
        if oldest is None:
            self._report(CONNECTIONS_REFUSED, bound, newcomer)
            return False
        self._report(CONNECTIONS_EVICTED, bound, newcomer)
        self.leave(oldest)
        oldest.evict()
        return True

    def _report(self, figure: Figure, bound: str, newcomer: Connection) -> None:
        """Counts it, and logs at most one line in LOG_EVERY seconds."""
        self._metrics.count(figure, bound)
        self._unlogged["evicted" if figure is CONNECTIONS_EVICTED else "refused"] += 1
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY:
            self._logged = now
            log.warning("connections_full", bound=bound, address=newcomer.address, **self._unlogged)
            self._unlogged.clear()


def address_of(client: tuple[str, int] | None) -> str:
    """The address under which a peer is counted: its IPv4 address or IPv6 prefix; "" if it has none."""
    host = client[0].partition("%")[0] if client else ""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX), strict=False))
