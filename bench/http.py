"""HTTP: acquire and release through the service, compared with two bare calls that only read and write JSON."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from typing import Any, Self

from .harness import Case, Effort, Figures, Goal, Place, Skipped, interleave, pin, print_medians, rates, ratios
from .workers import Loop, task_rate

CONNECTIONS = 16  # kept open, each by one task
READY_WITHIN = 20.0  # seconds for a server to accept its first connection
KEYS = 100  # marks in one request

OURS = ("-m", "solely.cli", "serve", "--url", "memory://")
BARE = ("-m", "bench.bare_http")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextmanager
def _served(command: tuple[str, ...], place: Place) -> Iterator[int]:
    """Starts a server with one worker on the core that the place requires, and yields its port."""
    port = _free_port()
    quiet = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, *command, "--port", str(port)], stdout=quiet, stderr=quiet)
    try:
        _await(port, process)
        pin(process.pid, 1 if place is Place.APART else 0)
        yield port
    finally:
        process.terminate()
        process.wait(READY_WITHIN)


def _await(port: int, process: "subprocess.Popen[bytes]") -> None:
    ends = time.monotonic() + READY_WITHIN
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise Skipped("the server did not start: is solely[service] installed?")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Skipped(f"the server did not respond within {READY_WITHIN:g} s")


class Caller(asyncio.Protocol):
    """A minimal client: one connection that is kept open, one request at a time."""

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._answer: asyncio.Future[bytes] | None = None
        self._got = b""

    @classmethod
    async def open(cls, port: int) -> Self:
        return (await asyncio.get_running_loop().create_connection(lambda: cls(port), "127.0.0.1", port))[1]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if found and len(body) >= _length(head):
            assert head.startswith(b"HTTP/1.1 200"), self._got
            self._got = b""
            assert self._answer is not None
            self._answer.set_result(body)

    async def post(self, path: str, body: object) -> Any:
        """Returns the response's JSON."""
        self._answer = asyncio.get_running_loop().create_future()
        text = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(text)}\r\n\r\n{text}".encode())
        return json.loads(await self._answer)


def _length(head: bytes) -> int:
    return int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])


@asynccontextmanager
async def _callers(port: int) -> Any:
    callers = [await Caller.open(port) for _ in range(CONNECTIONS)]
    yield dict(zip((f"key-{number}" for number in range(CONNECTIONS)), callers, strict=True))
    for caller in callers:
        caller.transport.close()


async def _ours(callers: dict[str, Caller], key: str) -> None:
    lease = await callers[key].post("/v1/locks/acquire", {"key": key, "ttl": 30, "wait": 10})
    await callers[key].post("/v1/locks/release", {"token": lease["token"]})


async def _bare(callers: dict[str, Caller], key: str) -> None:
    for _ in range(2):
        await callers[key].post("/echo", {"key": key, "ttl": 30, "wait": 10})


def _pairs(place: Place, effort: Effort) -> Figures:
    with _served(OURS, place) as ours, _served(BARE, place) as bare, Loop() as loop:
        sides: dict[str, Callable[[], float]] = {}
        for name, port, pair in (("ours", ours, _ours), ("bare_starlette", bare, _bare)):
            work: Callable[[str], Awaitable[object]] = partial(pair, loop.enter(_callers(port)))
            sides[name] = lambda work=work: loop.run(task_rate(work, CONNECTIONS, effort.seconds))  # type: ignore[misc]
        measured = rates(sides, effort.repetitions)
    return {"http.locks.pair.vs_bare_starlette": ratios(measured["ours"], measured["bare_starlette"])}


def _marks(place: Place, effort: Effort) -> Figures:
    numbers = count()

    async def mark(callers: dict[str, Caller], key: str) -> None:
        batch = next(numbers)
        answer = await callers[key].post("/v1/marks", {"keys": [f"{batch}/{n}" for n in range(KEYS)], "ttl": 60})
        assert len(answer["first"]) == KEYS

    with _served((*OURS[:-1], "memory://?max_size=10000"), place) as port, Loop() as loop:
        work = partial(mark, loop.enter(_callers(port)))

        def per_second() -> float:
            return KEYS * loop.run(task_rate(work, CONNECTIONS, effort.seconds))

        figures = interleave({"keys": per_second}, effort.repetitions)["keys"]
    print_medians({"keys": figures})
    return {"http.marks.batch100.keys_per_s": figures}


CASES = [
    Case(
        [Goal("http.locks.pair.vs_bare_starlette", 0.45, "two bare starlette + msgspec calls, one worker")],
        Place.APART,
        _pairs,
    ),
    Case([Goal("http.marks.batch100.keys_per_s", 0.0, "keys per second, 100 a request")], Place.APART, _marks),
]
