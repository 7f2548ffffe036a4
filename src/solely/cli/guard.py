"""Guard: a small process that ends a command when its lease ends, also if who holds the lease is stopped or killed.

It leads the process group that the command runs in, so what the command starts is ended with it. The holder tells it
the deadline at every renewal. When nothing came for so long that only the grace is left, or the holder is gone, or
says that the lease is lost, the group gets SIGTERM, and SIGKILL after the grace: so at the deadline nothing runs.
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

from ..rules import local_clock

_LOOK = 1.0  # seconds: poll() does not count the time that a laptop sleeps, so the clock is looked at that often
_DONE, _LOST = b"done", b"lost"
# What its group is sent by terminals and by ourselves: meant for the command. SIGKILL ends the guard with the others.
_NOT_FOR_US = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip


class Guard:
    """`group` is the process group where the command belongs."""

    def __init__(self, grace: float) -> None:
        self._line, theirs = socket.socketpair()
        self.group = os.fork()
        if self.group == 0:
            try:
                _Watch(theirs, grace).run()
            finally:
                os._exit(0)
        with suppress(PermissionError, ProcessLookupError):  # both sides do it: it must be so before either goes on
            os.setpgid(self.group, self.group)
        theirs.close()
        self._line.setblocking(False)
        self._ended = False

    def until(self, deadline: float) -> None:
        """The lease now lasts until then, on the local clock."""
        self._tell(b"%.6f" % deadline)

    def lost(self) -> None:
        """The lease is lost: the command is ended now."""
        self._tell(_LOST)

    def has_ended_it(self) -> bool:
        """True if it has begun to end the command."""
        with suppress(BlockingIOError, ConnectionResetError):
            self._ended |= self._line.recv(1) == b"!"
        return self._ended

    def is_gone(self) -> bool:
        """True if it was killed, or ended together with its group: nobody guards the command any more."""
        with suppress(ChildProcessError):
            return os.waitpid(self.group, os.WNOHANG)[0] != 0
        return True

    def dismiss(self) -> None:
        """The command is over, and what it left behind in its group is nobody's business any more; unless the guard has
        begun to end it, which it then does without us."""
        ends_it = self.has_ended_it()
        self._tell(_DONE)
        self._line.close()
        if not ends_it:
            with suppress(ChildProcessError):
                os.waitpid(self.group, 0)

    def _tell(self, what: bytes) -> None:
        with suppress(OSError):  # it is gone, or as stuck as 10,000 renewals; the holder looks after that
            self._line.send(what + b"\n")


@contextmanager
def guarding(grace: float) -> Iterator[Guard]:
    """A guard until the end of the block. It is a fork: begin before the process has threads."""
    guard = Guard(grace)
    try:
        yield guard
    finally:
        guard.dismiss()


class _Watch:
    """What the guard does, in its own process."""

    def __init__(self, line: socket.socket, grace: float) -> None:
        self._line = line
        self._grace = grace
        self._heard = b""

    def run(self) -> None:
        """Returns when it is dismissed; else does not return, as it ends with the group."""
        _settle(self._line.fileno())
        deadline = math.inf
        while deadline - self._grace > local_clock():
            word = self._hear(deadline - self._grace)
            if word == _DONE or (word == b"" and deadline == math.inf):  # the command is over, or was never begun
                return
            if word is not None:
                deadline = 0.0 if word in (_LOST, b"") else float(word)
        with suppress(OSError):
            self._line.send(b"!")
        group = os.getpid()
        os.killpg(group, signal.SIGTERM)
        os.killpg(group, signal.SIGCONT)  # one that is stopped would not hear
        time.sleep(self._grace)
        os.killpg(group, signal.SIGKILL)

    def _hear(self, until: float) -> bytes | None:
        """The last thing that was said, b"" if the holder is gone, None if nothing was said for a while."""
        wait = max(0.0, min(_LOOK, until - local_clock()))
        if not select.select([self._line], [], [], wait)[0]:
            return None
        more = self._line.recv(4096)
        if not more:
            return b""
        *words, self._heard = (self._heard + more).split(b"\n")
        for final in (_DONE, _LOST):
            if final in words:
                return final
        return words[-1] if words else None


def _settle(line: int) -> None:
    """Leads a group of its own, keeps nothing open that others wait to see closed, and ends by its own decision."""
    with suppress(PermissionError):
        os.setpgid(0, 0)
    for each in _NOT_FOR_US:
        signal.signal(each, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    for file in map(int, os.listdir("/dev/fd")):
        if file > 2 and file != line:
            with suppress(OSError):  # the one that listed them
                os.close(file)
