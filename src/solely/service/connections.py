"""Connections: how many a worker keeps, and which of them is closed when there is no room for another.

A connection is unauthenticated until a valid token, session or webhook signature was sent on it. The two kinds have
separate places. So strangers, however many connections they open, take no place of a caller that has authenticated, and
callers that have authenticated leave room for health probes and for newcomers.
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

ANSWERED = 100  # refused connections that may read at the same time why; the others are closed without a response
LOG_EVERY = 10.0  # seconds between log lines: a flood must not fill the disk, and whoever looks sees that it goes on
IPV6_PREFIX = 64  # bits that say who it is: one host can use all addresses of its /64


class Connection(Protocol):
    """What has a place here."""

    address: str
    authenticated: bool

    def is_busy(self) -> bool:
        """True while the app works on a whole request; false while we wait for the peer to send or to read."""

    def in_flight(self) -> int:
        """How many requests the worker is answering, on all its connections."""

    def evict(self) -> None:
        """Closes it at once."""

    def shutdown(self) -> None:
        """Closes it when the request in flight, if there is one, is answered."""


class Connections:
    """The open connections of one worker, within the bounds of its settings."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._most = settings.max_connections
        self._most_unauthenticated = settings.unauthenticated_bound
        self._most_per_address = settings.address_bound
        self._metrics = metrics
        self._authenticated: dict[Connection, Principal] = {}
        self._unauthenticated: dict[Connection, None] = {}  # the one whose last request is longest ago comes first
        self._by_address: dict[str, dict[Connection, None]] = {}  # the same ones, in the same order
        self._refused: set[Connection] = set()
        self._logged = -LOG_EVERY
        self._unlogged: Counter[str] = Counter()
        metrics.gauge(CONNECTIONS_OPEN, lambda: len(self._authenticated), "authenticated")
        metrics.gauge(CONNECTIONS_OPEN, lambda: len(self._unauthenticated), "unauthenticated")

    def admit(self, newcomer: Connection) -> bool:
        """Gives the newcomer a place; where there is none, another unauthenticated connection is closed, an idle one
        if possible. False if all are busy, and the worker with them."""
        neighbors = self._by_address.get(newcomer.address, {})
        if not self._make_room(neighbors, self._most_per_address, "address", newcomer):
            return False
        if not self._make_room(self._unauthenticated, self._most_unauthenticated, "unauthenticated", newcomer):
            return False
        self._unauthenticated[newcomer] = None
        self._by_address.setdefault(newcomer.address, {})[newcomer] = None
        return True

    def may_linger(self, refused: Connection) -> bool:
        """True if this connection, for which there was no room, may stay for a moment to read why."""
        kept = len(self._authenticated) + len(self._unauthenticated) + len(self._refused)
        if kept >= self._most or len(self._refused) >= ANSWERED:
            return False
        self._refused.add(refused)
        return True

    def used(self, connection: Connection) -> None:
        """A request came on this unauthenticated connection: the others go before it."""
        if connection in self._unauthenticated:
            for pool in (self._unauthenticated, self._by_address[connection.address]):
                del pool[connection]
                pool[connection] = None

    def authenticate(self, connection: Connection, principal: Principal) -> None:
        """Keeps the connection for as long as it is open; raises Problem if there are too many such connections."""
        if connection not in self._unauthenticated:
            return
        if len(self._authenticated) >= self._most - self._most_unauthenticated:
            self._report(CONNECTIONS_REFUSED, "authenticated", connection)
            raise Problem(TOO_MANY_CONNECTIONS)
        self.leave(connection)
        self._authenticated[connection] = principal
        connection.authenticated = True

    def leave(self, connection: Connection) -> None:
        """The connection has ended, or is about to."""
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
        if oldest is None and newcomer.in_flight() < self._most:  # a closed one's request goes on: that is bounded, too
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
    """Under which address a peer is counted: its IPv4 address or IPv6 prefix; "" if it has none."""
    host = client[0].partition("%")[0] if client else ""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, IPV6_PREFIX), strict=False))
