"""The connection: uvicorn's, with the bounds that it lacks: a request must arrive whole within a deadline, its line and
headers must not be larger than a cap, and a connection for which there is no room is refused when it is accepted. And
with a short way out for answers that are whole."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from functools import partial
from typing import Any, ClassVar

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .connections import address_of
from .problems import HEADERS_TOO_LARGE, TOO_MANY_CONNECTIONS, TOO_SLOW, Kind, Problem
from .routes import AUTHENTICATE, CLOSING, WHOLE

GRACE = 1.0  # seconds for a refused sender to read why and hang up


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request trickles in, whatever state they are in. A request that arrives in one piece, as
    nearly all do, costs no timer."""

    _timer: TimerHandle | None = None
    _unfinished = True  # a request is under way, or the first one is awaited
    _in_headers = True
    _size = 0  # bytes of a request whose headers are not complete
    _refused = False
    authenticated = False
    address = ""  # under which the peer is counted
    _common: ClassVar[tuple[list[tuple[bytes, bytes]], bytes]] = ([], b"")

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        service = self.app.service
        self._settings, self._connections = service.settings, service.connections
        self.address = address_of(self.client)
        if self._connections.admit(self):
            self._watch(self._settings.receive_timeout)
        elif self._connections.may_linger(self):
            self._refuse(TOO_MANY_CONNECTIONS)
        else:
            self._refused = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._in_headers:
            self._size += len(data)
        super().data_received(data)
        if self._in_headers and self._size > self._settings.max_header:
            self._refuse(HEADERS_TOO_LARGE)
        elif self._unfinished or self._is_idle():
            if self._timer is None:
                self._watch(self._settings.receive_timeout)
        elif self._timer is not None:
            self._unwatch()

    def on_message_begin(self) -> None:
        self._unfinished = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_headers, self._size = False, 0
        super().on_headers_complete()
        scope: Any = self.scope
        scope[CLOSING], scope[WHOLE] = self.transport.is_closing, partial(self._answer_whole, self.cycle)
        if not self.authenticated:
            self._connections.used(self)
            scope[AUTHENTICATE] = partial(self._connections.authenticate, self)

    def is_busy(self) -> bool:
        """True while the app works on a whole request; false while we wait for the peer to send or to read."""
        return self._answering() and not self.cycle.more_body and not self.flow.write_paused

    def in_flight(self) -> int:
        """How many requests the worker is answering, on all its connections."""
        return len(self.tasks)

    def evict(self) -> None:
        """Closes it at once: a peer that does not read would delay an orderly close for as long as it likes."""
        self.transport.abort()

    def on_message_complete(self) -> None:
        self._unfinished, self._in_headers = False, True
        super().on_message_complete()

    def _answer_whole(self, cycle: Any, status: int, lines: bytes, body: bytes) -> bool:
        """Does in one step what uvicorn does in two, for an answer that is whole: it need not look at each header, nor
        at what was sent before. False if the reader must be waited for, or does not want the body."""
        if cycle.response_started or cycle.flow.write_paused or cycle.scope["method"] == "HEAD":
            return False
        if cycle.disconnected:
            return True
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        length = b"" if status == 204 else b"content-length: %d\r\n" % len(body)
        ends = b"" if cycle.keep_alive else b"connection: close\r\n"
        head = STATUS_LINE[status] + self._common_lines(cycle.default_headers) + length + lines + ends
        self.transport.write(b"%b\r\n%b" % (head, body))
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    @classmethod
    def _common_lines(cls, headers: list[tuple[bytes, bytes]]) -> bytes:
        """What uvicorn adds to all answers (the date, which makes another list every second), as lines."""
        known, lines = cls._common
        if known is not headers:
            lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
            cls._common = headers, lines
        return lines

    def _receiving(self) -> bool:
        """True while the app waits for a body: it has not begun to answer, and we may."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and cycle.more_body and not cycle.response_started

    def _answering(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _is_idle(self) -> bool:
        """True if bytes came that began no request (line ends), which end uvicorn's own watch over idle connections."""
        return not self._answering() and self.timeout_keep_alive_task is None

    def _watch(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._too_slow)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self.transport.is_closing():
            return
        if self._refused or not (self._size or self._receiving()):  # does not hang up, or never said a word
            self.transport.close()
        else:
            self._refuse(TOO_SLOW)

    def _refuse(self, kind: Kind) -> None:
        """Says why, unless the app answers already; then the sender hangs up: what we close first it could not read."""
        self._refused = True
        self._unwatch()
        if self._receiving() or not self._answering():
            problem = Problem(kind)
            document = msgspec.json.encode(problem.document)
            more = b"".join(b"%b: %b\r\n" % pair for pair in problem.headers)
            head = b"content-type: application/problem+json\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[kind.status] + head % (len(document), more) + document)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._watch(GRACE)
