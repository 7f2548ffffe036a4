"""Watchdog: a small process that ends a command when its lease ends, even if the lease's holder is stopped or killed.

It leads the process group of the command, so the command's children are ended with it. The holder sends it the
deadline at every renewal. Shortly before only the grace is left until the deadline, or when the holder exits or reports
the lease as lost, the group gets SIGTERM, and SIGKILL after the grace: so at the deadline nothing runs.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..process_groups import ProcessGroup
from ..rules import local_clock

_MARGIN = 0.25  # of the grace, left between SIGKILL and the deadline: a busy machine is late to run the watchdog
_CHECK = 1.0  # seconds between clock checks: select() does not count the time that a laptop sleeps
_DONE, _LOST = b"done", b"lost"
# Signals that terminals and we send to the group for the command. SIGKILL ends the watchdog with the group.
_IGNORED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip


class Watchdog:
    """The holder's side. `group` is the process group for the command."""

    def __init__(self, grace: float) -> None:
        self._line, theirs = socket.socketpair()
        self.group = os.fork()
        if self.group == 0:
            try:
                _Watch(theirs, grace).run()
            finally:
                os._exit(0)
        with suppress(PermissionError, ProcessLookupError):  # both processes do it before either continues
            os.setpgid(self.group, self.group)
        theirs.close()
        self._line.setblocking(False)
        self._ended = False

    def until(self, deadline: float) -> None:
        """Reports the new deadline of the lease, on the local clock."""
        self._send(b"%.6f" % deadline)

    def lost(self) -> None:
        """Reports the lease as lost: the command is ended now."""
        self._send(_LOST)

    def has_terminated(self) -> bool:
        """True if the watchdog has begun to end the command."""
        with suppress(BlockingIOError, ConnectionResetError):
            self._ended |= self._line.recv(1) == b"!"
        return self._ended

    def is_gone(self) -> bool:
        """True if the watchdog has exited, for instance killed with its group: nothing guards the command any more."""
        with suppress(ChildProcessError):
            return os.waitpid(self.group, os.WNOHANG)[0] != 0
        return True

    def dismiss(self) -> None:
        """Ends the watchdog after the command; processes that the command left behind keep running. A watchdog that has
        begun to end the group finishes that by itself."""
        terminating = self.has_terminated()
        self._send(_DONE)
        self._line.close()
        if not terminating:
            with suppress(ChildProcessError):
                os.waitpid(self.group, 0)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):  # it has exited, or is 10,000 messages behind; the holder detects the former
            self._line.send(message + b"\n")


@contextmanager
def watched(grace: float) -> Iterator[Watchdog]:
    """A watchdog until the end of the block. It forks, so enter it before the process has threads."""
    watchdog = Watchdog(grace)
    try:
        yield watchdog
    finally:
        watchdog.dismiss()


class _Watch:
    """The watchdog's side, in its own process."""

    def __init__(self, line: socket.socket, grace: float) -> None:
        self._line = line
        self._grace = grace
        self._partial = b""

    def run(self) -> None:
        """Returns when it is dismissed; otherwise it is killed with the group."""
        _detach(self._line.fileno())
        deadline, needed = math.inf, self._grace * (1 + _MARGIN)
        while deadline - needed > local_clock():
            word = self._receive(deadline - needed)
            if word == _DONE or (word == b"" and deadline == math.inf):  # the command has ended, or never started
                return
            if word is not None:
                deadline = 0.0 if word in (_LOST, b"") else float(word)
        with suppress(OSError):
            self._line.send(b"!")
        group = ProcessGroup(os.getpid())
        group.send(signal.SIGTERM)
        group.send(signal.SIGCONT)  # a stopped process does not handle SIGTERM
        time.sleep(self._grace)
        group.send(signal.SIGKILL)

    def _receive(self, until: float) -> bytes | None:
        """The last message, b"" if the holder has exited, None if there was no message for a while."""
        wait = max(0.0, min(_CHECK, until - local_clock()))
        if not select.select([self._line], [], [], wait)[0]:
            return None
        more = self._line.recv(4096)
        if not more:
            return b""
        *words, self._partial = (self._partial + more).split(b"\n")
        for final in (_DONE, _LOST):
            if final in words:
                return final
        return words[-1] if words else None


def _detach(line: int) -> None:
    """Leads a process group of its own, ignores the command's signals, and closes inherited files."""
    with suppress(PermissionError):
        os.setpgid(0, 0)
    for each in _IGNORED:
        signal.signal(each, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.closerange(3, line)
    os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))
