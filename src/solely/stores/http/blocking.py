"""Blocking: each call is a request on a connection that is kept for the next."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx2

from ...errors import StoreError, StoreUnavailable, Unanswered
from ...kinds import check_ops
from ...model import Entry, Finding
from ...ops import MAX_LIMIT, Op, Reply
from .. import OnHint
from ..batches import waits
from . import codec
from .settings import PAGE, SILENCE, TRY_AGAIN, ServiceAddress, body_of, findings, headers, portions, unanswered

_parents: list[object] = []  # what a forked child must not touch, not even by collecting it


class HttpStore:
    """A store for threads, on a service. Any number of threads may use it at once."""

    polls = False  # where hints are cut off, waiters look again every second: gentle with a service far away
    max_limit = MAX_LIMIT
    perform_within = None

    def __init__(self, address: ServiceAddress, timeout: float) -> None:
        self._address = address
        self._timeout = timeout
        self._closed = False
        self._on_hint: OnHint = _nobody
        self._reset()

    def _reset(self) -> None:
        self.client = os.urandom(16).hex()
        self._http = httpx2.Client(**self._address.options(self._timeout))
        self._hints = HintStream(self._http, self._timeout, self._deliver)

    def __repr__(self) -> str:
        return f"<HttpStore {self._address}>"

    def listen(self, on_hint: OnHint) -> None:
        self._on_hint = on_hint

    def _deliver(self, key: str) -> None:
        self._on_hint(key)

    def perform(self, ops: Sequence[Op]) -> list[Reply | StoreError]:
        """One reply per op, in order; Unanswered if it may have been performed, StoreUnavailable if it was not."""
        check_ops(ops)
        listens_as = self._hints.name or (self._hints.prepare() if waits(ops) else "")
        replies: list[Reply | StoreError] = []
        for encoded in portions(ops, self.client, listens_as):
            try:
                replies += codec.decode(self._request("POST", "/v1/ops", content=encoded.body), encoded)
            except StoreUnavailable as error:
                raise Unanswered(str(error)) if replies else error from None
        return replies

    def scan(self, prefix: str, after: str, limit: int) -> list[Entry]:
        """Entries whose stored key begins with prefix and is greater than `after`, in key order, at most `limit`."""
        found: list[Entry] = []
        going: str | None = after
        while going is not None and len(found) < limit:
            params = {"prefix": prefix, "after": going, "limit": min(PAGE, limit - len(found)), "values": "true"}
            page, going = codec.decode_page(self._request("GET", "/v1/entries", params=params))
            found += page
        return found

    def check(self) -> list[Finding]:
        """Reachable, permitted, and is the service's own store healthy? Raises only StoreError."""
        started = time.perf_counter()
        version = self._request("GET", "/version")
        took = time.perf_counter() - started
        return findings(self._address, version, self._send("GET", "/readyz").content, took)

    def _request(self, method: str, path: str, **what: Any) -> bytes:
        return body_of(self._send(method, path, **what), self._address)

    def _send(self, method: str, path: str, **what: Any) -> httpx2.Response:
        if self._closed:
            raise StoreUnavailable(f"the store {self._address} was closed")
        try:
            return self._http.request(method, path, headers=headers(self._address, what), **what)
        except httpx2.HTTPError as error:
            raise unanswered(error, self._address) from error

    def forked(self) -> None:
        """In the child: new connections and a new name; the parent's are left as they are."""
        _parents.append((self._http, self._hints))
        self._reset()

    def close(self) -> None:
        """Closes all connections; safe to call twice."""
        self._closed = True
        self._hints.close()
        self._http.close()


def _nobody(key: str) -> None:
    """Nobody listens yet."""


class HintStream:
    """Receives the hints to this client, in a thread, from when somebody first waits until the stream ends.

    `name` is what the service calls this client while it listens, else "".
    """

    def __init__(self, http: httpx2.Client, timeout: float, on_hint: OnHint) -> None:
        self.name = ""
        self._http = http
        self._timeout = timeout
        self._on_hint = on_hint
        self._mutex = threading.Lock()
        self._began = threading.Event()
        self._again = 0.0
        self._thread: threading.Thread | None = None
        self._stream: Any = None
        self._closed = False

    def prepare(self) -> str:
        """The name under which hints come from now on; "" if none can be had: then it is not tried for a while."""
        with self._mutex:
            if not self.name and not self._closed and time.monotonic() >= self._again:
                self._again = time.monotonic() + TRY_AGAIN
                self._began.clear()
                self._thread = threading.Thread(target=self._hear, name="solely-http-hints", daemon=True)
                self._thread.start()
                self._began.wait(self._timeout)
            return self.name

    def _hear(self) -> None:
        patience = httpx2.Timeout(self._timeout, read=SILENCE)
        try:
            with self._http.stream("GET", "/v1/ops/hints", timeout=patience) as response:
                self._stream = response.extensions["network_stream"]
                if response.status_code == 200 and not self._closed:
                    for event in httpx2.EventSource(response):
                        self._heard(event)
        except (httpx2.HTTPError, httpx2.SSEError, httpx2.StreamError, OSError):
            pass  # waiters poll
        finally:
            self.name, self._stream = "", None
            self._began.set()

    def _heard(self, event: httpx2.ServerSentEvent) -> None:
        if event.event == "hint":
            self._on_hint(str(event.json()))
        elif event.event == "client":
            self.name, self._again = str(event.json()), 0.0
            self._began.set()

    def close(self) -> None:
        """Ends the thread by shutting its connection down, since nothing else wakes its read."""
        self._closed = True
        stream, thread = self._stream, self._thread
        if stream is not None:
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._timeout)
