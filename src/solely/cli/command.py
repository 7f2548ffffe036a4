"""A command that runs as long as a lease is held: signals and exit code are passed through."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NamedTuple

from ..events import Event, Lost, Renewed
from ..leases.lease import LeaseBase
from ..rules import local_clock
from .guard import Guard
from .tail import Tail
from .terminal import Terminal

PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGWINCH,
)  # fmt: skip
NOT_FOUND, NOT_EXECUTABLE, BY_SIGNAL = 127, 126, 128  # as shells say it


class Keeper:
    """A hook that tells the guard how long the lease lasts, and when it is lost."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._lease: LeaseBase | None = None

    def keep(self, lease: LeaseBase) -> None:
        """From now on it is about this lease."""
        self._lease = lease
        self._guard.until(local_clock() + lease.remaining())

    def __call__(self, event: Event) -> None:
        if self._lease is None:
            return
        if isinstance(event, Renewed):
            self._guard.until(local_clock() + self._lease.remaining())
        elif isinstance(event, Lost):
            self._guard.lost()


class Ended(NamedTuple):
    """How a command ended: its exit code, or 128 and the signal; whether its guard had to end it; its last output."""

    code: int
    by_guard: bool
    out: str = ""
    err: str = ""


def unusable(words: Sequence[str]) -> int:
    """0 if there is such a command, else the exit code that a shell would give."""
    if shutil.which(words[0]):
        return 0
    return NOT_EXECUTABLE if os.path.exists(words[0]) else NOT_FOUND


@contextmanager
def letting_go() -> Iterator[None]:
    """While we wait for a lease, SIGTERM and SIGHUP end us as SIGINT does: with nothing held, our place given up."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(BY_SIGNAL + number)

    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def run_command(words: Sequence[str], guard: Guard, lease: LeaseBase, *, keeps: int | None = None) -> Ended:
    """Runs it in the group of the guard; OSError if it cannot be run.

    `keeps`: so many bytes at the end of its output and of its errors are remembered, which then go through pipes.
    """
    piped = None if keeps is None else subprocess.PIPE
    with _hearing() as ear:
        process = subprocess.Popen(
            words,
            process_group=guard.group,
            env=os.environ | {"SOLELY_FENCE": str(lease.fence)},
            stdout=piped,
            stderr=piped,
            close_fds=False,  # ours are not inherited; those that we were given are meant for the command
        )
        tails = [Tail(pipe, to, keeps or 0) for pipe, to in ((process.stdout, 1), (process.stderr, 2)) if pipe]
        code = _wait(process, guard, ear)
        return Ended(code, guard.has_ended_it() or guard.is_gone(), *[tail.text() for tail in tails])


@contextmanager
def _hearing() -> Iterator[socket.socket]:
    """Where what happens to us and to our children is heard, as numbers of signals, in order.

    A signal may be delivered to any thread, and a queue would wake the main one only if it happened to be that one.
    """
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    before = {each: signal.signal(each, lambda number, frame: None) for each in (*PASSED_ON, signal.SIGCHLD)}
    wakes = signal.set_wakeup_fd(mouth.fileno())
    try:
        yield ear
    finally:
        signal.set_wakeup_fd(wakes)
        for each, handler in before.items():
            signal.signal(each, handler)
        ear.close()
        mouth.close()


def _wait(process: subprocess.Popen[bytes], guard: Guard, ear: socket.socket) -> int:
    terminal = Terminal(guard.group)
    try:
        while True:
            (number,) = ear.recv(1)
            if number != signal.SIGCHLD:
                _send(guard.group, number)
                continue
            done, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
            if done and os.WIFSTOPPED(status):
                terminal.stopped(os.WSTOPSIG(status))
            elif done:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode if process.returncode >= 0 else BY_SIGNAL - process.returncode
            elif guard.is_gone():  # killed: nobody else could end the command in time
                _send(guard.group, signal.SIGKILL)
    finally:
        terminal.close()


def _send(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all of them have just ended
        os.killpg(group, number)
