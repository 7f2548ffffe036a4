"""The ear of a blocking store: a thread that hears which keys may be free now, on a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ...errors import ClientClosed, StoreError
from ...rules import backoff
from .. import Tell
from .connection import Lost, Wire

# Seconds of silence after which the server is asked whether it is still there: bounds how long a server that hangs, and
# that requests have left for another of the URL's hosts, goes unnoticed, together with the store's timeout for the
# answer. Meanwhile a waiter looks only every second; `SELECT 1` costs the server some ten microseconds.
SILENCE = 2.0
# Seconds between tries to hear again, at first and at most: a restart takes about the sum of the first few, and nobody
# hangs meanwhile, because a waiter also looks again by itself.
FIRST_RETRY, LONGEST_RETRY = 0.05, 2.0


def listen_to(client: str) -> bytes:
    """The statement after which this client hears its hints."""
    return f'LISTEN "solely_{client}"'.encode()


class Ear:
    """Once prepared it listens until it is closed, and connects again as needed. Hints may be lost, never invented."""

    def __init__(self, connect: Callable[[], Wire], client: str, patience: float) -> None:
        self.ready = False  # no hint is missed from now on
        self.tell: Tell | None = None
        self._connect = connect
        self._client = client
        self._patience = patience
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()  # the current try to listen has succeeded or failed
        self._closed = threading.Event()
        self._wire: Wire | None = None

    def prepare(self) -> None:
        """Returns when it listens, or when trying that failed: then a waiter must look by itself."""
        with self._starting:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="solely-postgres-ear", daemon=True)
                self._thread.start()
        self._settled.wait(self._patience)

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        wire, thread = self._wire, self._thread
        if wire is not None:
            wire.shut()
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._patience)

    def abandon(self) -> None:
        """In the child after a fork: the thread is not here, and the connection is the parent's."""
        if self._wire is not None:
            self._wire.abandon()

    def _run(self) -> None:
        failed = 0
        while not self._closed.is_set():
            self._settled.clear()
            try:
                self._wire = self._connect()
                self._wire.ask(listen_to(self._client))
                self.ready = True
                self._settled.set()
                failed = 0
                self._hear(self._wire)
            except (Lost, StoreError, ClientClosed):
                pass  # those who send ops are told the reason; here only the hints are late
            self.ready = False
            wire, self._wire = self._wire, None
            if wire is not None:
                wire.close()
            self._settled.set()
            self._closed.wait(backoff(failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5))
            failed += 1

    def _hear(self, wire: Wire) -> None:
        """Tells what is heard, until the connection ends or stays silent to a question."""
        while not self._closed.is_set():
            keys = wire.hear(SILENCE)
            if keys is None:
                wire.ask(b"SELECT 1")
                continue
            for key in keys:
                if self.tell is not None:
                    self.tell(key)
