"""Runs a command while a lease is held: signals, output and the exit code are passed through."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, NamedTuple

from ..events import Event, Lost, Renewed
from ..leases.lease import LeaseBase
from ..process_groups import ProcessGroup
from ..rules import local_clock
from .terminal import Terminal
from .watchdog import Watchdog

PASSED_ON = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGTSTP, signal.SIGWINCH,
)  # fmt: skip
# Signals that also go to what left the group, since it would work on without the lease.
_ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL)
DRAIN = 1.0  # seconds for the rest of the output: it is in the pipe already; more may come from a daemon that stays
NOT_FOUND, NOT_EXECUTABLE, BY_SIGNAL = 127, 126, 128  # as in shells


class WatchdogHook:
    """A hook that sends the lease's deadline, and its loss, to the watchdog."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._lease: LeaseBase | None = None

    def follow(self, lease: LeaseBase) -> None:
        """Reports on this lease from now on."""
        self._lease = lease
        self._watchdog.until(local_clock() + lease.remaining())

    def __call__(self, event: Event) -> None:
        if self._lease is None:
            return
        if isinstance(event, Renewed):
            self._watchdog.until(local_clock() + self._lease.remaining())
        elif isinstance(event, Lost):
            self._watchdog.lost()


class ChildEnd(NamedTuple):
    """How a command ended: its exit code, or 128 + the signal; whether the watchdog ended it; the end of its output."""

    code: int
    by_watchdog: bool
    out: str = ""
    err: str = ""


class OutputTail:
    """Copies a pipe to `target` in a thread, and keeps the last `most` bytes."""

    def __init__(self, source: IO[bytes], target: int, most: int) -> None:
        self._source, self._target, self._most = source, target, most
        self._kept = b""
        self._thread = threading.Thread(target=self._pass_on, name="solely-output", daemon=True)
        self._thread.start()

    def text(self) -> str:
        """The kept bytes, once the pipe is drained."""
        self._thread.join(DRAIN)
        return self._kept.decode(errors="replace")

    def _pass_on(self) -> None:
        with self._source:
            while more := os.read(self._source.fileno(), 1 << 16):
                self._kept = (self._kept + more)[-self._most :] if self._most else b""
                try:
                    while more:
                        more = more[os.write(self._target, more) :]
                except OSError:
                    continue  # nobody reads our output any more; the command must not fail because of that


def exit_code_if_unusable(words: Sequence[str]) -> int:
    """0 if the command exists, else the exit code that a shell would return."""
    if shutil.which(words[0]):
        return 0
    return NOT_EXECUTABLE if os.path.exists(words[0]) else NOT_FOUND


@contextmanager
def exiting_on_signals() -> Iterator[None]:
    """While we wait for a lease, SIGTERM and SIGHUP exit as SIGINT does: nothing is held, and the waiter is removed."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(BY_SIGNAL + number)

    before = {each: signal.signal(each, leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def run_command(
    words: Sequence[str], watchdog: Watchdog, environment: Mapping[str, str], *, keeps: int | None = None
) -> ChildEnd:
    """Runs the command in the watchdog's process group; OSError if it cannot be started.

    With `keeps`, its stdout and stderr go through pipes, and the last `keeps` bytes of each are returned.
    """
    piped = None if keeps is None else subprocess.PIPE
    with _receiving_signals() as signals:
        process = subprocess.Popen(
            words,
            process_group=watchdog.group,
            env=environment,
            stdout=piped,
            stderr=piped,
            close_fds=False,  # our own files are not inheritable; inherited ones are meant for the command
        )
        tails = [OutputTail(pipe, to, keeps or 0) for pipe, to in ((process.stdout, 1), (process.stderr, 2)) if pipe]
        code = _wait(process, watchdog, signals)
        return ChildEnd(code, watchdog.has_terminated() or watchdog.is_gone(), *[tail.text() for tail in tails])


@contextmanager
def _receiving_signals() -> Iterator[socket.socket]:
    """A socket from which signals to us, and SIGCHLD, are read as bytes, in order.

    A signal may be delivered to any thread, so a queue might not wake the main thread.
    """
    signals, writer = socket.socketpair()
    writer.setblocking(False)
    before = {each: signal.signal(each, lambda number, frame: None) for each in (*PASSED_ON, signal.SIGCHLD)}
    wakes = signal.set_wakeup_fd(writer.fileno())
    try:
        yield signals
    finally:
        signal.set_wakeup_fd(wakes)
        for each, handler in before.items():
            signal.signal(each, handler)
        signals.close()
        writer.close()


def _wait(process: subprocess.Popen[bytes], watchdog: Watchdog, signals: socket.socket) -> int:
    terminal = Terminal(watchdog.group)
    try:
        while True:
            (number,) = signals.recv(1)
            if number != signal.SIGCHLD:
                _send(watchdog.group, number)
                continue
            done, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
            if done and os.WIFSTOPPED(status):
                terminal.stopped(os.WSTOPSIG(status))
            elif done:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode if process.returncode >= 0 else BY_SIGNAL - process.returncode
            elif watchdog.is_gone():  # killed: nothing else could end the command in time
                _send(watchdog.group, signal.SIGKILL)
    finally:
        terminal.close()


def _send(group: int, number: int) -> None:
    if number in _ENDING:
        ProcessGroup(group).send(number)
        return
    with suppress(ProcessLookupError, PermissionError):  # the whole group has just ended
        os.killpg(group, number)
