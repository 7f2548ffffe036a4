"""The ear of a blocking store: a thread that hears which keys may be free now, on a connection of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from hiredis import HiredisError, ReplyError

from ...errors import ClientClosed, StoreError
from ...rules import backoff
from .. import Tell
from .codec import packed
from .health import warn_once

if TYPE_CHECKING:
    from .wire import Wire

PING = packed("PING")

# Seconds of silence after which the server is asked whether it is still there: a waiter looks again every second
# anyway, so this only bounds how long a dead connection goes unnoticed.
SILENCE = 10.0
# Seconds between tries to hear again, at first and at most: a restart takes less than the first few, and nobody hangs
# meanwhile, because a waiter also looks again by itself.
FIRST_RETRY, LONGEST_RETRY = 0.05, 2.0


class Ear:
    """Once prepared it listens until it is closed, and connects again as needed. Hints may be lost, never invented."""

    def __init__(self, connect: Callable[[], Wire], channel: str, patience: float) -> None:
        self.ready = False  # subscribed: no hint is missed from now on
        self.tell: Tell | None = None
        self._connect = connect
        self._channel = channel
        self._patience = patience
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._settled = threading.Event()  # the current try to subscribe has succeeded or failed
        self._closed = threading.Event()
        self._wire: Wire | None = None

    def prepare(self) -> None:
        """Returns when it listens, or when trying that failed: then a waiter must look by itself."""
        with self._starting:
            alive = self._thread is not None and self._thread.is_alive()
            if not alive and not self._closed.is_set():
                self._settled.clear()
                self._thread = threading.Thread(target=self._run, name="solely-redis-ear", daemon=True)
                self._thread.start()
        self._settled.wait(self._patience)

    def drop(self) -> None:
        """The connection leads to the wrong server: connect again."""
        wire = self._wire
        if wire is not None:
            wire.shut()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self.drop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._patience)

    def abandon(self) -> None:
        """In the child after a fork: the thread is not here, and the connection is the parent's."""
        if self._wire is not None:
            self._wire.close()

    def _run(self) -> None:
        failed = 0
        while not self._closed.is_set():
            self._settled.clear()
            try:
                self._wire = self._connect()
                failed = self._listen(self._wire, failed)
            except (OSError, HiredisError, StoreError, ClientClosed):
                pass  # those who send ops are told the reason; here only the hints are late
            finally:  # also if the thread ends: the next waiter starts another
                self.ready = False
                if self._wire is not None:
                    self._wire.close()
                    self._wire = None
                self._settled.set()
            self._closed.wait(backoff(failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5))
            failed += 1

    def _listen(self, wire: Wire, failed: int) -> int:
        wire.be_patient(SILENCE)
        answer = wire.ask("SUBSCRIBE", self._channel)
        if isinstance(answer, ReplyError):
            warn_once(f"{wire.address} gives no hints, so waiters only look every second: {answer}")
            return failed
        self.ready = True
        self._settled.set()
        self._hear(wire)
        return 0

    def _hear(self, wire: Wire) -> None:
        """Tells what is heard, until the connection ends or stays silent to a question."""
        asked = False
        while not self._closed.is_set():
            try:
                message = wire.receive()
            except (BlockingIOError, TimeoutError):
                if asked:
                    return
                wire.send(PING)
                asked = True
                continue
            asked = False
            # An error in answer to PING (MISCONF, BUSY, …) is an answer, too: the server is there, and tells on.
            if type(message) is list and message[0] == b"message" and self.tell is not None:
                self.tell(message[2].decode("utf-8", "replace"))
