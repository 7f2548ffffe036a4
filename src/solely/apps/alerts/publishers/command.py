"""A program as a publisher: it gets the notification as JSON on its standard input, and exits with 0 if all is well."""

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
from .failure import PublishFailed, said
from .settings import CommandSettings
from .webhook import event

MAX_ERRORS = 2048  # bytes of the end of its standard error: the last lines say what went wrong
MAX_VARIABLE = 4096  # bytes of an alert's text in the environment, which is small; standard input has all of it
LAST_WORDS = 0.1  # seconds for what it wrote to arrive after it ended; its children may keep the pipe open for ever
GRACE = 1.0  # seconds between asking it to end and ending it
# What a machine says that has too much to do, or of a program that is just being replaced.
_MAY_PASS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ETXTBSY})
_OURS = "SOLELY_"  # the service's own variables hold tokens and passwords


class CommandSender:
    """Runs the program, without a shell, in a process group of its own: what it starts ends with it when time is up."""

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
            raise PublishFailed(text, permanent=error.errno not in _MAY_PASS) from None

    async def close(self) -> None:
        """Nothing: a program that runs belongs to its publish."""

    async def _run(self, notification: Notification, given: IO[bytes]) -> None:
        async with _last_words() as (pipe, words):
            process = await asyncio.create_subprocess_exec(
                *self._settings.argv,
                stdin=given,
                stdout=DEVNULL,
                stderr=pipe,
                env={**_inherited(), **self._settings.environment, **variables(notification)},
                start_new_session=True,
            )
            pipe.close()  # so that what is read from it ends with the program
            code = await _ended(process)
            if code != 0:
                raise PublishFailed(await self._failed(code, words))

    async def _failed(self, code: int, words: _LastWords) -> str:
        how = f"exited with {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(words.over.wait(), LAST_WORDS)
        heard = said(words.text(), self._settings.secret_texts(), end=True)
        return f"{self._settings.name}: {self._settings.argv[0]} {how}{f': {heard}' if heard else ''}"


def variables(notification: Notification) -> dict[str, str]:
    """What the environment says of the notification: enough for a program of one line."""
    alert = notification.alert
    told = {
        "ID": notification.id,
        "STATUS": alert.status,
        "NAME": alert.name,
        "SEVERITY": alert.severity,
        "SOURCE": alert.source,
        "FINGERPRINT": alert.fingerprint,
    }
    return {f"{_OURS}ALERT_{name}": _bounded(value) for name, value in told.items()}


def _bounded(text: str) -> str:
    """The text as a variable can hold it: without NUL, and cut."""
    return text.replace("\0", " ").encode(errors="replace")[:MAX_VARIABLE].decode(errors="ignore")


def _inherited() -> Mapping[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}


async def _ended(process: Process) -> int:
    """Its exit code. If we are cancelled before (also when time is up) its group is asked to end, and then ended."""
    try:
        return await process.wait()
    except asyncio.CancelledError:
        ending = asyncio.ensure_future(_end(process))
        while not ending.done():  # whoever cancels us again still waits until it is gone: that is bounded
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)
        raise


async def _end(process: Process) -> None:
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE)
    _signal(process, signal.SIGKILL)  # also if it ended: its children may not have heard
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), GRACE)


def _signal(process: Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        os.killpg(process.pid, number)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _LastWords(asyncio.Protocol):
    """The end of what was written to a pipe."""

    def __init__(self) -> None:
        self._kept = b""
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-MAX_ERRORS:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    def text(self) -> str:
        return self._kept.decode(errors="replace")


@contextlib.asynccontextmanager
async def _last_words() -> AsyncIterator[tuple[IO[bytes], _LastWords]]:
    """A pipe to write to, and what is read from it. It is ours and not asyncio's, which may wait for a program's pipes
    to be closed before it says that the program ended."""
    ends = os.pipe()
    reading = os.fdopen(ends[0], "rb", 0)  # which the loop closes
    with os.fdopen(ends[1], "wb", 0) as writing:
        transport, words = await asyncio.get_running_loop().connect_read_pipe(_LastWords, reading)
        try:
            yield writing, words
        finally:
            transport.close()
