"""The connection: uvicorn's, with the two bounds that it lacks: a request must arrive whole within a deadline, and its
line and headers must not be larger than a cap."""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .problems import HEADERS_TOO_LARGE, TOO_SLOW, Kind, Problem
from .routes import CLOSING

GRACE = 1.0  # seconds for a refused sender to read why and hang up


class BoundedProtocol(HttpToolsProtocol):
    """Ends connections whose request trickles in, whatever state they are in. A request that arrives in one piece, as
    nearly all do, costs no timer."""

    _timer: TimerHandle | None = None
    _unfinished = True  # a request is under way, or the first one is awaited
    _in_headers = True
    _size = 0  # bytes of a request whose headers are not complete
    _refused = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._settings = self.app.service.settings
        self._watch(self._settings.receive_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
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
        self.scope[CLOSING] = self.transport.is_closing  # type: ignore[literal-required] # one more

    def on_headers_complete(self) -> None:
        self._in_headers, self._size = False, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._unfinished, self._in_headers = False, True
        super().on_message_complete()

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
            document = msgspec.json.encode(Problem(kind).document)
            head = b"content-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[kind.status] + head % len(document) + document)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._watch(GRACE)
