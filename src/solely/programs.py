"""Running a program: without a shell, bounded in time and output, in a process group that ends as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from subprocess import DEVNULL
from typing import IO, Any

from . import process_groups
from .errors import InvalidInput
from .process_groups import GRACE, ProcessGroup

SHELL = "/bin/sh"  # runs a command that is one text, as cron does
MAX_OUTPUT = 64 << 10  # bytes of each of its outputs by default: more than a person reads
DRAIN = 0.1  # seconds for its output to arrive after it exited; its children may keep the pipes open forever
PORTION = 64 << 10  # bytes that are read at once: what a pipe of Linux holds
# What programs commonly need, and what is no secret.
SAFE_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_OF_PYTHON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG")  # what an interpreter may need to start
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
    are kept, of standard error the last. `discard_stdout` for a program whose children may write after it ended;
    `stdout`, a descriptor of ours, gets it as it comes, and none of it is kept.
    `files` are descriptors of ours that it inherits, under the same numbers. `guarded` for one that must not outlive
    this process: if this is killed, its process group is ended, within two seconds.
    """

    argv: tuple[str, ...]
    stdin: bytes = field(default=b"", repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float | None = 60.0
    max_output: int = MAX_OUTPUT
    cwd: str | None = None
    inherit: Collection[str] = field(default=SAFE_VARIABLES, repr=False)
    discard_stdout: bool = False
    stdout: int | None = None
    files: Collection[int] = ()
    guarded: bool = False

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
            with _started(program, out, err) as process:
                return await _ended(process, program.timeout, out, err)
    except OSError as error:
        text = f"{program.argv[0]} cannot be run: {error.strerror}"
        raise NotStarted(text, permanent=error.errno not in _TEMPORARY) from None


@contextlib.contextmanager
def _started(program: Program, out: _Output, err: _Output) -> Iterator[_Process]:
    shown = out.pipe if program.stdout is None else program.stdout
    to: Any = {"stdout": DEVNULL if program.discard_stdout else shown, "stderr": err.pipe, "cwd": program.cwd}
    with _file_of(program.stdin) as given:  # a pipe could fill, or break when the program does not read
        if program.guarded:
            with _guarded(program, stdin=given, **to) as process:
                yield process
        else:
            yield _Process(program.argv, stdin=given, env=_environment(program), pass_fds=program.files, **to)


class _Process:
    """A process that was started. Not asyncio's: with uvloop that one calls what is registered for forks, and there the
    SQLite store closes its connections: the event loop would wait for every call in progress."""

    def __init__(self, argv: tuple[str, ...], **options: Any) -> None:
        self._process = subprocess.Popen(argv, **options, start_new_session=True)
        self._loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[int] = self._loop.create_future()
        try:
            threading.Thread(target=self._watch, name="solely-program", daemon=True).start()
        except RuntimeError:  # the machine has no thread left
            self._process.kill()
            self._process.wait()
            raise OSError(errno.EAGAIN, "no thread can be started") from None

    async def wait(self) -> int:
        """Its exit code, or minus the signal that ended it, once it has ended."""
        return await asyncio.shield(self._exited)

    async def terminate(self) -> None:
        """Ends its process group: within the grace by itself, or else by force."""
        group = ProcessGroup(self._process.pid)
        for number in (signal.SIGTERM, signal.SIGKILL):  # SIGKILL also if it exited: its children may ignore SIGTERM
            group.send(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), GRACE)

    def _watch(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
            self._loop.call_soon_threadsafe(self._exited.set_result, code)


class _Guarded(_Process):
    """A program that a small process starts, watches and ends (`process_groups`), which outlives this one if that is
    killed. While our end of the `line` is open, the program may run."""

    def __init__(self, argv: tuple[str, ...], line: IO[bytes], **options: Any) -> None:
        super().__init__(argv, **options)
        self._line = line

    async def terminate(self) -> None:
        """Has the guard end the process group: within the grace by itself, or else by force."""
        self._line.close()
        await self.wait()


@contextlib.contextmanager
def _guarded(program: Program, **options: Any) -> Iterator[_Guarded]:
    """The program; OSError at the end of the block if it could not be started."""
    variables = (f"{name}={value}" for name, value in _environment(program).items())
    ends = os.pipe()
    with os.fdopen(ends[0], "rb", 0) as line, os.fdopen(ends[1], "wb", 0) as ours, tempfile.TemporaryFile() as given:
        given.write(b"\0".join(map(os.fsencode, variables)))  # in no argument: there may be secrets
        given.flush()
        files = (line.fileno(), given.fileno())
        argv = (sys.executable, "-I", "-S", process_groups.__file__, *map(str, files), *program.argv)
        inherited = {name: os.environ[name] for name in _OF_PYTHON if name in os.environ}
        process = _Guarded(argv, ours, env=inherited, pass_fds=(*files, *program.files), **options)
        line.close()
        yield process
        given.seek(0)
        if number := given.read():
            raise OSError(int(number), os.strerror(int(number)))


async def _ended(process: _Process, timeout: float | None, out: _Output, err: _Output) -> Ended:
    timed_out = False
    try:
        async with asyncio.timeout(timeout):
            await _exited(process)
    except TimeoutError:
        timed_out = True
    await asyncio.gather(out.drained(), err.drained())
    code = await process.wait()
    killed = _signal_name(-code) if code < 0 else ""
    return Ended(None if killed else code, killed, out.kept, err.kept, timed_out, out.complete)


async def _exited(process: _Process) -> None:
    """Waits until it exits. On cancellation, also by the timeout, ends its process group."""
    try:
        await process.wait()
    except asyncio.CancelledError:
        ending = asyncio.ensure_future(process.terminate())
        while not ending.done():  # a second cancellation waits as well, for a bounded time
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ending)
        raise


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
