"""Starts the workers of a service and replaces those that exit: uvicorn's supervisor, which forks them here.

A forked worker has all modules and shares their memory: it imports nothing, also when it replaces one that was killed.
"""

from __future__ import annotations

import gc
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkProcess

import uvicorn
from uvicorn.supervisors import Multiprocess, multiprocess

FORKS = sys.platform == "linux"  # elsewhere libraries of the system may not survive a fork


class Workers(Multiprocess):
    """uvicorn's supervisor. A worker that exits while the supervisor waits for its response is replaced at once:
    uvicorn would wait for its whole health check timeout, and meanwhile replace no other worker."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        if FORKS:
            gc.collect()
            gc.freeze()  # the collector would write to the pages that the workers share
            setattr(multiprocess, "get_subprocess", self._forked)  # noqa: B010 - uvicorn has no option for it

    def keep_subprocess_alive(self) -> None:
        """Replaces workers that have exited or do not respond."""
        for worker in self.processes:
            worker.child_conn.close()  # the worker has its own copy, which alone must keep the pipe open
        super().keep_subprocess_alive()

    def _forked(self, config: uvicorn.Config, target: Callable[..., None], sockets: list[socket.socket]) -> _Forked:
        return _Forked(target=self._work, args=(target, sockets))

    def _work(self, target: Callable[..., None], sockets: list[socket.socket]) -> None:
        """Runs a worker: in its process, without what it inherited of the supervisor."""
        for number in multiprocess.SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, multiprocess.SIGNALS)
        for other in self.processes:  # whose exit the supervisor notices by the end of their pipe
            other.parent_conn.close()
            other.child_conn.close()
        with suppress(KeyboardInterrupt):
            target(sockets=sockets)


class _Forked(ForkProcess):
    """A process whose first signal waits until it has its own handlers: the inherited ones would swallow it."""

    def start(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, multiprocess.SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, multiprocess.SIGNALS)
