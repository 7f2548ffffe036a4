"""Python programs in processes of their own that need no time to import: each is forked from a process that has
imported what tests use. A start takes milliseconds instead of half a second or more, mostly of imports, and a run of
the suite starts hundreds.

process = Forked("tests.client.worker", url, stdin=PIPE, stdout=PIPE)    # instead of Popen([python, "-m", …])
process.pid, process.kill(), process.wait(), process.communicate(timeout=…)

Where the start itself is tested, for example what is imported, use `subprocess`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Any

# What the programs under test import sooner or later.
PRELOADED = (
    "solely.stores.sqlite.aio", "solely.stores.sqlite.blocking", "solely.stores.redis.aio",
    "solely.stores.redis.blocking", "solely.stores.postgres.aio", "solely.stores.postgres.blocking",
    "solely.stores.mongo.aio", "solely.stores.mongo.blocking", "solely.http", "solely.cli.program", "solely.cli.run",
    "solely.cli.serve", "solely.service.serve", "solely.apps.alerts.app", "solely.apps.probes.app",
    "solely.apps.repos.app", "solely.apps.signals.app", "solely.apps.triggers.app", "tests.client.modes", "uvloop",
    "httptools",
)  # fmt: skip
__all__ = ["DEVNULL", "PIPE", "Forked"]

ROOT = Path(__file__).parents[1]
REQUEST = 1 << 18  # bytes of a request at most: the variables of an environment are a few KiB
NUMBER = struct.Struct("=i")
PR_SET_PDEATHSIG = 1


class Forked:
    """`python -m module words…` in a process of its own; see `subprocess.Popen` for the arguments and methods."""

    def __init__(
        self,
        module: str,
        *words: str,
        stdin: int | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        text: bool = False,
    ) -> None:
        self.returncode: int | None = None
        theirs: list[int] = []
        self.stdin: Any = _given(stdin, 0, "w" if text else "wb", theirs)
        self.stdout: Any = _given(stdout, 1, "r" if text else "rb", theirs)
        self.stderr: Any = _given(stderr, 2, "r" if text else "rb", theirs)
        self._status, status = os.pipe()
        request = [module, list(words), dict(os.environ if env is None else env), str(cwd or Path.cwd())]
        with _asking:
            socket.send_fds(_parent()[0], [json.dumps(request).encode()], [*theirs, status])
        for descriptor in (*theirs, status):
            os.close(descriptor)
        self.pid = self._number()

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self._finish()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """As `poll`, once it has ended; raises subprocess.TimeoutExpired if it has not within the time."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self._finish()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """All that it writes until it ends."""
        if self.stdin is not None:
            with suppress(BrokenPipeError):
                self.stdin.close()
        read: dict[IO[Any], Any] = {}

        def drain(pipe: IO[Any]) -> None:
            with pipe:
                read[pipe] = pipe.read()

        pipes = [pipe for pipe in (self.stdout, self.stderr) if pipe is not None and not pipe.closed]
        threads = [threading.Thread(target=drain, args=(pipe,), daemon=True) for pipe in pipes]
        for thread in threads:
            thread.start()
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
        return read.get(self.stdout), read.get(self.stderr)

    def _finish(self) -> None:
        self.returncode = self._number()
        os.close(self._status)

    def _number(self) -> int:
        said = os.read(self._status, NUMBER.size)
        if not said:
            raise ChildProcessError("the process that forks the programs under test has ended")
        return int(NUMBER.unpack(said)[0])


_asking = threading.Lock()
# Which one test opens or starts for all later ones.
shared_descriptors: set[int] = set()
shared_programs: set[subprocess.Popen[bytes]] = set()


def _given(wanted: int | IO[Any] | None, inherited: int, mode: str, theirs: list[int]) -> IO[Any] | None:
    """Adds the program's end to `theirs`, and returns ours if there is a pipe."""
    if wanted == PIPE:
        ends = os.pipe()
        reads = mode.startswith("r")
        theirs.append(ends[1] if reads else ends[0])
        return os.fdopen(ends[0] if reads else ends[1], mode)
    if wanted == DEVNULL:
        theirs.append(os.open(os.devnull, os.O_RDWR))
    elif wanted is None or isinstance(wanted, int):
        theirs.append(os.dup(inherited if wanted is None else wanted))
    else:
        theirs.append(os.dup(wanted.fileno()))
    return None


@cache
def _parent() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Where to ask the process that forks, and that process; it ends with this one, and its children with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "tests.forked", str(theirs.fileno())]
    with theirs:
        passed: Any = {"stdin": DEVNULL, "stdout": DEVNULL, "pass_fds": [theirs.fileno()]}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, **passed)
    atexit.register(_end, ours, process)
    shared_descriptors.add(ours.fileno())
    shared_programs.add(process)
    return ours, process


def _end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()
    process.wait()


# -- in the process that forks, and in the forked ones


def _forked(asked: socket.socket) -> list[Any]:
    """Forks a child for each request, and returns the request there. Exits when nobody can ask any more."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    woken.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    running: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(asked, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(1 << 12)
                _reap(running)
            if asked in ready:
                said, descriptors, _, _ = socket.recv_fds(asked, REQUEST, 4)
                if not said:
                    os._exit(0)
                pid = os.fork()
                if pid == 0:
                    _become(descriptors, [asked, woken, wake], running)
                    return list(json.loads(said))
                running[pid] = _answer(pid, descriptors)


def _answer(pid: int, descriptors: list[int]) -> int:
    """Where the exit code is to be written."""
    *standard, status = descriptors
    for descriptor in standard:
        os.close(descriptor)
    os.write(status, NUMBER.pack(pid))
    return status


def _reap(running: dict[int, int]) -> None:
    for pid in list(running):
        ended, how = os.waitpid(pid, os.WNOHANG)
        if ended:
            status = running.pop(pid)
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(status, NUMBER.pack(os.waitstatus_to_exitcode(how)))
            os.close(status)


def _become(descriptors: list[int], ours: list[socket.socket], running: dict[int, int]) -> None:
    """Turns the fork into a process as a start would have made it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in (*descriptors, *running.values()):
        os.close(descriptor)
    for each in ours:
        each.close()


def _perform(module: str, words: list[str], variables: dict[str, str], folder: str) -> None:
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    _perform(*_forked(socket.socket(fileno=int(sys.argv[1]))))
