"""A program as a publisher: it gets the notification as JSON on its standard input, and exits with 0 on success."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping
from typing import IO

from ..model import Notification
from .failure import PublishFailed, sanitized
from .settings import CommandSettings
from .webhook import event

MAX_ERRORS = 2048  # bytes of the end of its standard error: the last lines say what went wrong
MAX_VARIABLE = 4096  # bytes of an alert's text in the environment, which is small; standard input has all of it
DRAIN = 0.1  # seconds for its standard error to arrive after it exited; its children may keep the pipe open forever
GRACE = 1.0  # seconds between SIGTERM and SIGKILL
# Errors of an overloaded machine, or of a program that is just being replaced.
_TEMPORARY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ETXTBSY})
_OURS = "SOLELY_"  # the prefix of the service's own variables, which hold tokens and passwords


class CommandSender:
    """Runs the program without a shell in its own process group, which is terminated as a whole on timeout."""

    def __init__(self, settings: CommandSettings) -> None:
        self._settings = settings

    async def send(self, notification: Notification, attempt: int) -> None:
        """Returns when it exited with 0; else raises PublishFailed."""
        try:
            with tempfile.TemporaryFile() as given:  # a pipe could fill, or break when the program does not read
                given.write(event(notification))
                given.seek(0)
                await self._run(notification, given)
        except OSError as error:
            text = f"{self._settings.name}: {self._settings.argv[0]} cannot be run: {error.strerror}"
            raise PublishFailed(text, permanent=error.errno not in _TEMPORARY) from None

    async def close(self) -> None:
        """Does nothing: `send` waits for the program that it runs."""

    async def _run(self, notification: Notification, given: IO[bytes]) -> None:
        async with _error_pipe() as (pipe, errors):
            process = await asyncio.create_subprocess_exec(
                *self._settings.argv,
                stdin=given,
                stdout=DEVNULL,
                stderr=pipe,
                env={**_inherited(), **self._settings.environment, **variables(notification)},
                start_new_session=True,
            )
            pipe.close()  # our copy: the pipe reaches its end when the program exits
            code = await _exit_code(process)
            if code != 0:
                raise PublishFailed(await self._failed(code, errors))

    async def _failed(self, code: int, errors: _ErrorTail) -> str:
        how = f"exited with {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(errors.closed.wait(), DRAIN)
        text = sanitized(errors.text(), self._settings.secret_texts(), end=True)
        return f"{self._settings.name}: {self._settings.argv[0]} {how}{f': {text}' if text else ''}"


def variables(notification: Notification) -> dict[str, str]:
    """The environment variables of a notification: enough for a one-line program."""
    alert = notification.alert
    fields = {
        "ID": notification.id,
        "STATUS": alert.status,
        "NAME": alert.name,
        "SEVERITY": alert.severity,
        "SOURCE": alert.source,
        "FINGERPRINT": alert.fingerprint,
    }
    return {f"{_OURS}ALERT_{name}": _bounded(value) for name, value in fields.items()}


def _bounded(text: str) -> str:
    """The text without NUL, cut to what a variable can hold."""
    return text.replace("\0", " ").encode(errors="replace")[:MAX_VARIABLE].decode(errors="ignore")


def _inherited() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


async def _exit_code(process: Process) -> int:
    """The exit code. On cancellation, also by the timeout, its process group gets SIGTERM and then SIGKILL."""
    try:
        return await process.wait()
    except asyncio.CancelledError:
        ending = asyncio.ensure_future(_terminate(process))
        while not ending.done():  # a second cancellation waits as well, for a bounded time
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)
        raise


async def _terminate(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):  # SIGKILL also if it exited: its children may ignore SIGTERM
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: PermissionError for a group of zombies
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _ErrorTail(asyncio.Protocol):
    """The last bytes that were written to a pipe."""

    def __init__(self) -> None:
        self._kept = b""
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-MAX_ERRORS:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()

    def text(self) -> str:
        return self._kept.decode(errors="replace")


@contextlib.asynccontextmanager
async def _error_pipe() -> AsyncIterator[tuple[IO[bytes], _ErrorTail]]:
    """A pipe to write to, and the tail of what was written. Not asyncio's own pipe: asyncio may report the exit of a
    program only after its pipes are closed."""
    ends = os.pipe()
    reading = os.fdopen(ends[0], "rb", 0)  # closed by the loop
    with os.fdopen(ends[1], "wb", 0) as writing:
        transport, errors = await asyncio.get_running_loop().connect_read_pipe(_ErrorTail, reading)
        try:
            yield writing, errors
        finally:
            transport.close()
