"""The connections of calls: to checked addresses only, with the time that each phase takes."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import httpcore2

from .certificates import peer_tls
from .guard import AddressGuard
from .message import Response, Timings

IDLE = 30.0  # seconds that an idle connection is kept: most servers close theirs after 60 or more
PEER = "peer"  # asks a connection who is at its other end
_UNSENT = ("resolve", "connect", "tls")  # phases in which the receiver has got nothing yet


class Stopwatch:
    """Adds up the time of each phase of one try, and knows how far it came: the address of the peer, and the response
    of which only the head, or a part of the body, has arrived. `phase` is the current one, "" before and after the
    try."""

    def __init__(self) -> None:
        self.phase = ""
        self.address = ""  # that was connected to last, or was to be
        self.until = 0.0  # when the try ends, by the loop's clock
        self.head: Response | None = None  # of the last request, without its body
        self.received = 0  # bytes of that body
        self.redirects = 0  # that were followed
        self._answered = False
        self._spent: dict[str, float] = {}
        self._since = 0.0

    def start(self, until: float) -> None:
        """Starts a try, which has until then."""
        self._spent, self._answered, self.until = {}, False, until
        self.head, self.received, self.redirects = None, 0, 0
        self.enter("first_byte")

    def enter(self, phase: str) -> None:
        """Ends the current phase and begins this one."""
        now = time.perf_counter()
        self._spent[self.phase] = self._spent.get(self.phase, 0.0) + now - self._since
        self.phase, self._since = phase, now
        self._answered |= phase == "transfer"

    @property
    def unsent(self) -> bool:
        """True if nothing was sent in this try: not even the request that a redirect has answered."""
        return self.phase in _UNSENT and not self._answered

    def timings(self) -> Timings:
        """The time of each phase so far."""
        return Timings(**{phase: self._spent.get(phase, 0.0) for phase in Timings._fields})


def watching() -> Stopwatch:
    """A new stopwatch, which the calls of this task use until one makes its own."""
    watch = Stopwatch()
    WATCH.set(watch)
    return watch


def watched() -> Stopwatch:
    """The stopwatch of the last call of this task, also of one that failed or was interrupted."""
    return WATCH.get(None) or Stopwatch()


WATCH: ContextVar[Stopwatch] = ContextVar("outgoing_stopwatch")  # of the call that this task makes


def connection_pool(guard: AddressGuard, tls: ssl.SSLContext, at_once: int, kept: int) -> httpcore2.AsyncConnectionPool:
    """A pool of connections, of which at most `kept` stay open while idle. It uses no proxy of the environment, and
    httpcore2 logs nothing of its calls: its lines show URLs and headers, which may be secret."""
    log = logging.getLogger("httpcore2")
    log.setLevel(max(logging.WARNING, log.getEffectiveLevel()))
    return httpcore2.AsyncConnectionPool(
        ssl_context=tls,
        max_connections=at_once,
        max_keepalive_connections=kept,
        keepalive_expiry=IDLE,
        network_backend=_GuardedNetwork(guard),
    )


class _GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to the addresses that the guard permits. The certificate is still checked against the host's name."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        watch = WATCH.get()
        watch.enter("resolve")
        addresses = await self._guard.addresses(host, port)
        watch.address = addresses[0]
        watch.enter("connect")
        stream = await self._connected(addresses, port, watch.until)
        watch.address = stream.address
        watch.enter("first_byte")
        return stream

    async def _connected(self, addresses: Sequence[str], port: int, until: float) -> _TimedStream:
        """A connection to the first address that answers. Each gets its share of the time that is left."""
        loop = asyncio.get_running_loop()
        *others, last = addresses
        for number, address in enumerate(others):
            share = (until - loop.time()) / (len(addresses) - number)
            with suppress(httpcore2.ConnectError, httpcore2.ConnectTimeout):
                return _TimedStream(await self._network.connect_tcp(address, port, timeout=max(0.0, share)), address)
        return _TimedStream(await self._network.connect_tcp(last, port), last)


class _TimedStream(httpcore2.AsyncNetworkStream):
    """A connection that measures its TLS handshake, and knows who is at the other end: `get_extra_info(PEER)` is the
    address, when the certificate expires, and what else TLS says of the peer."""

    def __init__(
        self, stream: httpcore2.AsyncNetworkStream, address: str, secured: ssl.SSLObject | None = None
    ) -> None:
        self._stream = stream
        self.address = address
        certificate = secured.getpeercert() if secured else None
        expires = ssl.cert_time_to_seconds(str(certificate["notAfter"])) if certificate else None
        ends = None if expires is None else datetime.fromtimestamp(expires, UTC)
        self._peer = address, ends, peer_tls(secured) if secured else None

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def get_extra_info(self, info: str) -> Any:
        return self._peer if info == PEER else self._stream.get_extra_info(info)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        watch = WATCH.get()
        watch.enter("tls")
        name = (server_hostname or "").removesuffix(".")  # certificates name hosts without the dot of the root
        try:
            stream = await self._stream.start_tls(ssl_context, name, timeout)
        except BaseException:  # a cancelled handshake, too: httpcore2 closes it only after an error
            await self._stream.aclose()
            raise
        watch.enter("first_byte")
        return _TimedStream(stream, self.address, stream.get_extra_info("ssl_object"))


def reason_of(error: Exception) -> str:
    """Why a connection failed, in the words of the system or of TLS."""
    cause = next((each for each in error.args if isinstance(each, Exception)), error)  # httpcore2 wraps errors
    while isinstance(cause.__cause__, Exception):
        cause = cause.__cause__
    plain = isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError) and cause.errno
    return os.strerror(plain) if plain else str(cause)
