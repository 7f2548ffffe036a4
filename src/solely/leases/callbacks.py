"""Threads for the callbacks of lost leases, so that a slow or hanging one delays no renewal and no report of a loss."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..rules import local_clock

_THREADS = 8  # that many callbacks may hang before others wait: more than a program has kinds of them
_IDLE = 1.0  # seconds after which a thread without work ends: losses come together, or hardly ever


class CallbackThreads:
    """Runs each callback once, in the order given, at most eight at a time. Its threads end by themselves when idle.

    They are daemons: a callback that hangs does not keep the process from ending.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._waiting: deque[Callable[[], object]] = deque()
        self._running: dict[threading.Thread, None] = {}
        self._idle = 0
        self._closed = False

    def run(self, callback: Callable[[], object]) -> None:
        """Has the callback run soon on a thread of its own; on this one if the interpreter starts no more threads."""
        with self._change:
            self._waiting.append(callback)
            if self._idle >= len(self._waiting) or len(self._running) >= _THREADS:
                self._change.notify()
                return
            thread = threading.Thread(target=self._work, name="solely-callbacks", daemon=True)
            self._running[thread] = None
        try:
            thread.start()
        except RuntimeError:  # the interpreter is shutting down
            self._work(thread)

    def close(self, within: float) -> None:
        """Ends the threads once the callbacks that were given have run, and waits up to `within` seconds for that,
        unless it is called by a callback."""
        ends = local_clock() + within
        with self._change:
            self._closed = True
            self._change.notify_all()
            own = threading.current_thread() in self._running
            while self._running and not own and (left := ends - local_clock()) > 0:
                self._change.wait(left)

    def _work(self, thread: threading.Thread | None = None) -> None:
        mine = thread or threading.current_thread()
        try:
            while (callback := self._next(mine, 0.0 if thread else _IDLE)) is not None:
                callback()
        finally:
            with self._change:
                self._running.pop(mine, None)
                self._change.notify_all()

    def _next(self, thread: threading.Thread, patience: float) -> Callable[[], object] | None:
        """The next callback; None if none comes in time, and then this thread runs none any more: one that is given
        from now on gets another."""
        ends = local_clock() + patience
        with self._change:
            self._idle += 1
            try:
                while not self._waiting and not self._closed and (left := ends - local_clock()) > 0:
                    self._change.wait(left)
                if self._waiting:
                    return self._waiting.popleft()
                del self._running[thread]
                return None
            finally:
                self._idle -= 1
