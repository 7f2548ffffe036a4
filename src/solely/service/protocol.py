"""A connection: uvicorn's, with the bounds that it lacks. A request must arrive within a deadline; its line and
headers, and what surrounds its body, must not be larger than a cap; and a connection for which there is no room is
refused when it is accepted."""

from __future__ import annotations

from asyncio import BufferedProtocol, TimerHandle, Transport
from functools import lru_cache, partial
from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from ..integrations.idempotency import ProblemKind
from .connections import address_of
from .problems import HEADERS_TOO_LARGE, INVALID, TOO_LARGE, TOO_MANY_CONNECTIONS, TOO_SLOW, Problem
from .routes import AUTHENTICATE, CLOSING, RESPOND, TURN

GRACE = 1.0  # seconds for a refused sender to read the response and disconnect
MAX_HEADERS = 200  # of a request: a browser behind proxies sends about 30, and each takes more memory than its bytes
MAX_PIPELINED = 64  # requests sent ahead of their responses: clients send none or a few, and each takes some kilobytes
# Bytes of a body that permit one more byte around it, beyond max_header: chunks of 48 bytes or more never need another
# permission, while a request of tiny chunks, each of which costs a callback, ends after some thousand of them.
BODY_PER_FRAMING = 8
_FRAMING_TOO_LARGE = (
    "the trailers, chunk extensions and chunk sizes around the body have more than {} bytes; send larger chunks, or a "
    "body with a Content-Length"
)


class _Refused(Exception):
    """Stops the parser: the request was refused in a callback."""


class BoundedProtocol(HttpToolsProtocol):
    """Closes connections whose request arrives too slowly, in whatever state they are. A request that arrives in one
    piece, as nearly all do, costs no timer."""

    _timer: TimerHandle | None = None
    _unfinished = True  # a request is arriving, or the first one is awaited
    _in_headers = True
    _size = 0  # bytes of a request whose headers are not complete
    _framing = 0  # bytes after the headers that were neither body nor permitted by it
    _performed: Any = None  # the request that the app handles, or handled last
    _unparsed = b""  # of a stranger, while it waits for its turn
    _refused = False
    authenticated = False
    address = ""  # under which the peer is counted
    _default: ClassVar[tuple[list[tuple[bytes, bytes]], bytes]] = ([], b"")  # uvicorn's own headers, and as lines

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_protocol(_SmallReads(self))
        service = self.app.service
        self._settings, self._connections = service.settings, service.connections
        self._strangers, self._parsing = service.strangers, service.parsing
        self.address = address_of(self.client)
        if self._connections.admit(self):
            self._start_timer(self._settings.receive_timeout)
        elif self._connections.may_linger(self):
            self._refuse(TOO_MANY_CONNECTIONS)
        else:
            self._refused = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._connections.leave(self)
        self._drop_responses()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses the data; that of a stranger when it is its turn. Until then nothing more is read from it."""
        if self.authenticated and not self._unparsed:
            self._parse(data)
        elif self._unparsed:  # reading was resumed meanwhile, since the app waits for the body
            self._unparsed += data
            self.transport.pause_reading()
        else:
            self._unparsed = data
            if not self._parsing.take(self.address, self._parse_stashed):
                self.transport.pause_reading()

    def _parse_stashed(self) -> None:
        data, self._unparsed = self._unparsed, b""
        if not self.transport.is_closing():
            self._parse(data)
            if not self.flow.read_paused and not self.transport.is_reading():
                self.transport.resume_reading()

    def _parse(self, data: bytes) -> None:
        """Parses at most max_header bytes at a time, so that no bound is exceeded by more than that."""
        most = self._settings.max_header
        for start in range(0, len(data), most):
            self._receive(data if len(data) <= most else data[start : start + most])

    def _receive(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_headers:
            self._size += len(data)
        else:
            self._framing += len(data)
        super().data_received(data)
        if self._was_refused():
            return
        if self._in_headers and self._size > self._settings.max_header:
            self._refuse(HEADERS_TOO_LARGE)
        elif not self._in_headers and self._framing > self._settings.max_header:
            self._refuse(TOO_LARGE, _FRAMING_TOO_LARGE.format(self._settings.max_header))
        elif self._unfinished or self._is_idle():
            if self._timer is None:
                self._start_timer(self._settings.receive_timeout)
        elif self._timer is not None:
            self._stop_timer()

    def on_message_begin(self) -> None:
        self._unfinished = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps a header. Drops a trailer: nothing reads it, and it must not pass for a header."""
        if not self._in_headers:
            return
        if len(self.headers) >= MAX_HEADERS:
            self._refuse(HEADERS_TOO_LARGE, f"the request has more than {MAX_HEADERS} headers")
            raise _Refused
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._framing -= len(body) + len(body) // BODY_PER_FRAMING
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._in_headers, self._size, self._framing = False, 0, 0
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self._refused = True
            self.evict()  # a response could not be told from those that are still owed
            raise _Refused
        scope: Any = self.scope
        scope[CLOSING], scope[RESPOND] = self.transport.is_closing, partial(self._respond, self.cycle)
        if not self.authenticated:
            self._connections.used(self)
            scope[AUTHENTICATE] = partial(self._connections.authenticate, self)
            scope[TURN] = partial(self._strangers.take, self.address, self.transport.is_closing)

    def send_400_response(self, msg: str) -> None:
        """Refuses, as uvicorn does, what is not HTTP, but with a problem as the body."""
        if not self._refused:
            self._refuse(INVALID, "This is not a request of HTTP/1.1, or its address is longer than 64 KiB.")

    def _unsupported_upgrade_warning(self) -> None:
        """Logs nothing: the request is answered over HTTP/1.1, and anybody may offer an upgrade any number of times."""

    def _was_refused(self) -> bool:
        return self._refused

    def is_busy(self) -> bool:
        """True while the app handles a complete request; false while the peer is to send or to read."""
        return self._responding() and not self.cycle.more_body and not self.flow.write_paused

    def in_flight(self) -> int:
        """How many requests the worker handles now, on all its connections."""
        return len(self.tasks)

    def evict(self) -> None:
        """Closes it at once: a peer that does not read could delay an orderly close without end."""
        self._drop_responses()
        self.transport.abort()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._performed = cycle
        super()._start_asgi_task(cycle, app)

    def _drop_responses(self) -> None:
        """Drops what the app still sends, to this request and to those behind it: nothing can be written any more.
        uvicorn drops only what is sent to the latest request."""
        for cycle in (self._performed, self.cycle, *(each for each, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def on_message_complete(self) -> None:
        self._unfinished, self._in_headers = False, True
        super().on_message_complete()

    def _respond(self, cycle: Any, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> bool:
        """Sends a complete response in one step; False if the app must send it through uvicorn, since it is not to have
        a body or the peer does not read. It is here only for speed: uvicorn takes two steps and checks each header,
        which costs 10 % more of the server's CPU time per request (202 → 223 µs for acquire and release)."""
        if cycle.disconnected or self._refused:
            return True
        if cycle.response_started or cycle.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        if self._default[0] is not cycle.default_headers:  # a new list every second, with the date
            type(self)._default = cycle.default_headers, _lines(tuple(cycle.default_headers))
        length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        close = b"" if cycle.keep_alive else b"connection: close\r\n"
        head = STATUS_LINE[status] + self._default[1] + length + _cached_lines(headers) + close
        self.transport.write(b"%b\r\n%b" % (head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def _receiving(self) -> bool:
        """True while the app waits for a body and has not begun a response, so that we can send one."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and cycle.more_body and not cycle.response_started

    def _responding(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _is_idle(self) -> bool:
        """True if bytes arrived that begin no request (line ends), which stop uvicorn's own timer of idle
        connections."""
        return not self._responding() and self.timeout_keep_alive_task is None

    def _start_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self.transport.is_closing():
            return
        if self._refused or not (self._size or self._receiving()):  # does not disconnect, or never sent a byte
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    def _refuse(self, kind: ProblemKind, detail: str = "") -> None:
        """Sends the problem, unless the app has begun a response, and leaves it to the sender to disconnect: if we
        closed first, it could not read the problem."""
        self._refused = True
        self._stop_timer()
        if self._receiving() or not self._responding():
            problem = Problem(kind, detail)
            document = msgspec.json.encode(problem.document)
            more = _lines(problem.headers)
            head = b"content-type: application/problem+json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[kind.status] + head % (len(document), more) + document)
        self._drop_responses()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._start_timer(GRACE)


class _SmallReads(BufferedProtocol):
    """Reads little at a time, into one buffer for all connections of the service. Otherwise uvloop reads 256 kB from
    each connection that is readable before anything else runs, and a thousand of them would take that much memory,
    each."""

    def __init__(self, connection: BoundedProtocol) -> None:
        self._connection = connection
        self._buffer: memoryview = connection.app.service.parsing.buffer
        self.connection_lost = connection.connection_lost  # type: ignore[method-assign]
        self.eof_received = connection.eof_received  # type: ignore[method-assign]
        self.pause_writing = connection.pause_writing  # type: ignore[method-assign]
        self.resume_writing = connection.resume_writing  # type: ignore[method-assign]

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer, which is free again as soon as `buffer_updated` returns."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Hands over what was read."""
        self._connection.data_received(bytes(self._buffer[:nbytes]))


def _lines(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return b"".join(b"%b: %b\r\n" % pair for pair in headers)


_cached_lines = lru_cache(maxsize=256)(_lines)  # the headers of JSON, and of each problem with each Retry-After
