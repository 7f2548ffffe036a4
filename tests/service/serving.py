"""The service on loopback: on a thread of the test, with real connections; or as a process, with real signals."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2
import uvicorn

import solely
from solely.service.app import AsgiApp
from solely.service.mount import mount
from solely.service.routes import Route
from solely.service.serve import config
from solely.service.service import Service
from solely.service.settings import Settings, load
from tests.forked import PIPE, Forked
from tests.servers import listener

T = TypeVar("T")
END = 60.0  # seconds for a server to begin or end: it takes some tenths, but a test machine can be very busy
_LISTENING = "0A"  # a state in /proc/net/tcp
TOKENS = {scope: f"{scope}-token-of-these-tests" for scope in ("read", "write", "admin")}
LINES = tuple(f"{scope}er:{scope}:{hashlib.sha256(token.encode()).hexdigest()}" for scope, token in TOKENS.items())


def settings(**given: Any) -> Settings:
    """Settings of a service on a store and a database of its own, from these alone."""
    alone = {"url": "memory://", "data_url": "sqlite:///:memory:", "port": 0, "stop_timeout": 2}
    return load(environ={}, flags={**alone, **given}).settings


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class Running:
    """A service that runs on a thread, and a client that speaks to it."""

    def __init__(self, app: AsgiApp, port: int) -> None:
        self.app = app
        self.service = app.service
        self.port = port
        self.address = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(base_url=self.address, timeout=60.0)
        self.loop: asyncio.AbstractEventLoop

    def post(self, path: str, body: object = None, **options: Any) -> httpx2.Response:
        return self.http.post(path, json=body, **options)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.http.get(path, **options)

    def connect(self) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60.0)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of what is awaited where the service runs."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(END)

    def on_loop(self, work: Callable[[], Any]) -> None:
        """Runs it where the service runs."""

        async def there() -> None:
            work()

        self.run(there())


@contextmanager
def running(routes: Iterable[Route] | None = None, **given: Any) -> Iterator[Running]:
    """The service with all applications and routes, or with these routes alone, until the test is over."""
    service = Service(settings(**given))
    app = AsgiApp(service, mount(service) if routes is None else routes)
    listening = listener()
    server: list[uvicorn.Server] = []
    it: list[Running] = []
    up = threading.Event()

    async def serve() -> None:
        server.append(uvicorn.Server(config(app.service.settings, app)))
        it.append(Running(app, listening.getsockname()[1]))
        it[0].loop = asyncio.get_running_loop()
        up.set()
        await server[0].serve(sockets=[listening])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert up.wait(END)
    try:
        until(lambda: server[0].started or not thread.is_alive())
        with it[0].http:
            yield it[0]
    finally:
        server[0].should_exit = True
        thread.join(END)
        listening.close()
        assert not thread.is_alive()


def until(condition: Callable[[], Any], seconds: float = END) -> Any:
    """What the condition answers as soon as that is true."""
    ends = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.01)
    return answer


def takes_connections(pid: int, port: int) -> bool:
    """True once this process takes connections on that port of loopback: its event loop watches the socket there. That
    it has the socket says nothing, since a worker has it from its first moment on."""
    watched = f" ino:{_listener(port):x} "  # as the kernel lists what an epoll watches
    with suppress(OSError):  # it has ended
        for descriptor in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(FileNotFoundError):  # closed since
                if watched in descriptor.read_text():
                    return True
    return False


def workers_of(pid: int) -> list[int]:
    """The workers of a service that run, by the process that supervises them."""
    found = []
    for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if Path(f"/proc/{each}/cmdline").read_bytes():  # empty once it has ended
                found.append(int(each))
    return found


def _listener(port: int) -> int:
    """The inode of the socket that listens on this port; -1 if there is none."""
    sockets = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    here = (f"0100007F:{port:04X}", _LISTENING)
    return next((int(fields[9]) for fields in sockets if (fields[1], fields[3]) == here), -1)


def environment(folder: Path) -> dict[str, str]:
    """The variables of a process that keeps its data in the folder and runs the code under test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SOLELY_")}
    return {**kept, "XDG_DATA_HOME": str(folder), "PYTHONPATH": str(Path(solely.__file__).parent.parent)}


class Process:
    """`solely serve` as a process of its own."""

    files = 0  # how many it may have open, if not as many as we

    def __init__(self, folder: Path, *flags: str, **environ: str) -> None:
        self.log = folder / "service.log"
        words = ("serve", "--port", "0", *flags)
        with self.log.open("wb") as log:
            options: Any = {"stdout": PIPE, "stderr": log, "text": True, "cwd": folder}
            options["env"] = {**environment(folder), **environ}
            self._process = self._limited(words, options) if self.files else Forked("solely.cli", *words, **options)
        self.pid = self._process.pid

    def _limited(self, words: tuple[str, ...], options: Any) -> subprocess.Popen[str]:
        limited = ("sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh")
        return subprocess.Popen([*limited, sys.executable, "-m", "solely.cli", *words], **options)

    def address(self) -> str:
        """Where it is, once that is printed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "http://" in line, self.log.read_text()
        return next(word.rstrip("/") for word in line.split() if word.startswith("http://"))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = 20.0) -> int:
        """Its exit code."""
        return self._process.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *how: object) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
