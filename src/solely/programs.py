"""Running a program: without a shell, bounded in time and output, in a process group that ends as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO

from .errors import InvalidInput

MAX_OUTPUT = 64 << 10  # bytes of each of its outputs by default: more than a person reads
DRAIN = 0.1  # seconds for its output to arrive after it exited; its children may keep the pipes open forever
PORTION = 64 << 10  # bytes that are read at once: what a pipe of Linux holds
GRACE = 1.0  # seconds between SIGTERM and SIGKILL
# What programs commonly need, and what is no secret.
SAFE_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
# Errors of an overloaded machine, or of a program that is just being replaced.
_TEMPORARY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ETXTBSY})


class NotStarted(Exception):
    """The program could not be run; `permanent` if a retry cannot help."""

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


@dataclass(frozen=True, slots=True)
class Program:
    """A program and how to run it. Raises InvalidInput if it cannot be run like that.

    Its environment has the variables of `inherit` that this process has, and then those of `environment`. `timeout` in
    seconds; None is no limit, for callers with a timeout of their own. Of standard output the first `max_output` bytes
    are kept, of standard error the last. `discard_stdout` for a program whose children may write after it ended.
    """

    argv: tuple[str, ...]
    stdin: bytes = field(default=b"", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float | None = 60.0
    max_output: int = MAX_OUTPUT
    cwd: str | None = None
    inherit: Collection[str] = field(default=SAFE_VARIABLES, repr=False)
    discard_stdout: bool = False

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidInput('argv is empty; give the program and its arguments: ("…", "…")')
        if any("\0" in text for text in (*self.argv, *self.environment, *self.environment.values(), self.cwd or "")):
            raise InvalidInput("argv, environment and cwd must not contain NUL")
        if any(not name or "=" in name for name in self.environment):
            raise InvalidInput("the name of an environment variable is empty or contains =")
        if self.max_output < 1:
            raise InvalidInput(f"max_output={self.max_output} must be at least 1 byte")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit `code`, or the name of the `signal` that ended it, and its output.

    `complete` is False if there was more standard output than is kept.
    """

    code: int | None
    signal: str = ""
    stdout: bytes = field(default=b"", repr=False)
    stderr_tail: bytes = field(default=b"", repr=False)
    timed_out: bool = False
    complete: bool = True

    @property
    def ok(self) -> bool:
        """True if it exited with 0 in time."""
        return self.code == 0 and not self.timed_out

    def __str__(self) -> str:
        if self.timed_out:
            return "took too long and was ended"
        return f"was ended by {self.signal}" if self.signal else f"exited with {self.code}"


async def run(program: Program) -> Ended:
    """Runs the program to its end, whatever its exit code; NotStarted if it cannot be run.

    On timeout and on cancellation its process group gets SIGTERM and, one second later, SIGKILL. Children that it left
    behind when it exited by itself keep running.
    """
    try:
        async with _kept_output(program.max_output) as out, _kept_output(program.max_output, tail=True) as err:
            with _file_of(program.stdin) as given:  # a pipe could fill, or break when the program does not read
                process = await asyncio.create_subprocess_exec(
                    *program.argv,
                    stdin=given,
                    stdout=DEVNULL if program.discard_stdout else out.pipe,
                    stderr=err.pipe,
                    env=_environment(program),
                    cwd=program.cwd,
                    start_new_session=True,
                )
            return await _ended(process, program.timeout, out, err)
    except OSError as error:
        text = f"{program.argv[0]} cannot be run: {error.strerror}"
        raise NotStarted(text, permanent=error.errno not in _TEMPORARY) from None


async def _ended(process: Process, timeout: float | None, out: _Output, err: _Output) -> Ended:
    timed_out = False
    try:
        async with asyncio.timeout(timeout):
            await _exited(process)
    except TimeoutError:
        timed_out = True
    await asyncio.gather(out.drained(), err.drained())
    code = process.returncode
    killed = _signal_name(-code) if code is not None and code < 0 else ""
    return Ended(None if killed else code, killed, out.kept, err.kept, timed_out, out.complete)


async def _exited(process: Process) -> None:
    """Waits until it exits. On cancellation, also by the timeout, ends its process group."""
    try:
        await process.wait()
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


def _environment(program: Program) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in program.inherit if name in os.environ}
    return {**inherited, **program.environment}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def _file_of(data: bytes) -> Iterator[IO[bytes] | int]:
    if not data:
        yield DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        yield file


class _Output:
    """The first bytes that are written to a pipe, or the last."""

    def __init__(self, pipe: IO[bytes], reading: IO[bytes], most: int, tail: bool) -> None:
        self.pipe = pipe
        self.kept = b""
        self.complete = True
        self._reading = reading
        self._most = most
        self._tail = tail
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(reading.fileno(), False)
        self._loop.add_reader(reading.fileno(), self._read)

    async def drained(self) -> None:
        """Waits for what is in the pipe. Closes our copy of it first, so that it ends when the program's do."""
        self.pipe.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), DRAIN)

    def stop(self) -> None:
        """Reads no more."""
        self._loop.remove_reader(self._reading.fileno())
        self._ended.set()

    def _read(self) -> None:
        data = self._reading.read(PORTION)
        if data:
            self.complete &= len(self.kept) + len(data) <= self._most
            self.kept = (self.kept + data)[-self._most :] if self._tail else (self.kept + data)[: self._most]
        elif data is not None:  # None: there is nothing to read yet
            self.stop()


@contextlib.asynccontextmanager
async def _kept_output(most: int, *, tail: bool = False) -> AsyncIterator[_Output]:
    """A pipe to write to, and what is kept of it. Not asyncio's own pipe: asyncio may report the exit of a program only
    after its pipes are closed. Nor `connect_read_pipe`: uvloop closes the descriptor of such a pipe twice, and the
    second time it may be that of a file which another thread, such as that of SQLite, has just opened."""
    ends = os.pipe()
    with os.fdopen(ends[0], "rb", 0) as reading, os.fdopen(ends[1], "wb", 0) as writing:
        output = _Output(writing, reading, most, tail)
        try:
            yield output
        finally:
            output.stop()
