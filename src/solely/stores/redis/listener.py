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
    from .connection import Wire
    from .settings import Address

PING = packed("PING")

# Seconds of silence after which the server is asked whether it is still there: bounds how long a dead connection goes
# unnoticed, together with the store's timeout for the answer. Meanwhile a waiter looks only every second; a PING costs
# the server a few microseconds.
SILENCE = 2.0
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
        self._hurry = threading.Event()  # ends a rest between two tries
        self._home: Address | None = None  # where requests go
        self._failed = 0  # tries to subscribe since the last that succeeded
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

    def follow(self, home: Address) -> None:
        """Requests go to this server from now on: subscribes there, too, if it listens to another or to none."""
        if home == self._home:
            return
        self._home = home
        self._hurry.set()
        wire = self._wire
        if wire is not None and wire.address != home:
            wire.shut()

    def drop(self) -> None:
        """The connection leads to the wrong server: connect again."""
        wire = self._wire
        if wire is not None:
            wire.shut()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._hurry.set()
        self.drop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._patience)

    def abandon(self) -> None:
        """In the child after a fork: the thread is not here, and the connection is the parent's."""
        if self._wire is not None:
            self._wire.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._settled.clear()
            self._hurry.clear()
            try:
                self._wire = self._connect()
                self._listen(self._wire)
            except (OSError, HiredisError, StoreError, ClientClosed):
                pass  # those who send ops are told the reason; here only the hints are late
            finally:  # also if the thread ends: the next waiter starts another
                self.ready = False
                if self._wire is not None:
                    self._wire.close()
                    self._wire = None
                self._settled.set()
            self._hurry.wait(backoff(self._failed, first=FIRST_RETRY, longest=LONGEST_RETRY, spread=0.0, chance=0.5))
            self._failed += 1

    def _listen(self, wire: Wire) -> None:
        if self._home not in (None, wire.address):  # requests went elsewhere while it connected
            return
        wire.be_patient(SILENCE)
        answer = wire.ask("SUBSCRIBE", self._channel)
        if isinstance(answer, ReplyError):
            warn_once(f"{wire.address} gives no hints, so waiters only look every second: {answer}")
            return
        self.ready = True
        self._failed = 0
        self._settled.set()
        self._hear(wire)

    def _hear(self, wire: Wire) -> None:
        """Tells what is heard, until the connection ends or stays silent to a question."""
        asked = False
        while not self._closed.is_set():
            try:
                message = wire.receive()
            except (BlockingIOError, TimeoutError):
                if asked:
                    return
                asked = True
                wire.be_patient(self._patience)
                wire.send(PING)
                continue
            if asked:
                asked = False
                wire.be_patient(SILENCE)
            # An error in answer to PING (MISCONF, BUSY, …) is an answer, too: the server is there, and tells on.
            if type(message) is list and message[0] == b"message" and self.tell is not None:
                self.tell(message[2].decode("utf-8", "replace"))
