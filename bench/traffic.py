"""Requests over HTTP most of which repeat earlier ones, sent to two workers of the service.

**One request in ten is new**, the nine after it repeat one each of the last 100, so that each is sent ten times within
a thousand requests. The benchmark checks that exactly one request of each has the outcome of a new one, and all others
that of a repeat: a later one may arrive first.

There are more processes than cores: one worker shares a core with the client, the other with the store. stderr says how
busy the client and each worker were: a client far below 100 % is not the bottleneck.
"""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from os import getpid, sysconf
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

from tests.service.serving import Process

from .harness import Skipped, pin, print_medians
from .http import READY_WITHIN, Caller

WORKERS = 2
SENDERS = 64  # connections: enough that each worker has about thirty requests at once
FRESH = 10  # one request in so many is new
APART = 11  # new ones between two repeated ones: nine repeats reach back over the last 99
SUSTAINED = 8  # times as long as other sides, so that sweeps and flushes of the history are included


class Sender(Caller):
    """A minimal client connection that sends bodies with headers of its own."""

    async def send(self, path: str, headers: Mapping[str, str], body: bytes) -> Any:
        """Posts the body; returns the response's JSON."""
        self._answer = asyncio.get_running_loop().create_future()
        given = {"host": self._host, "content-type": "application/json", **headers, "content-length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        self.transport.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        return json.loads(await self._answer)

    def data_received(self, data: bytes) -> None:
        """As of Caller; 202, for what is performed later, is read like 200."""
        super().data_received(data.replace(b"HTTP/1.1 202", b"HTTP/1.1 200", 1) if not self._got else data)

    def connection_lost(self, error: Exception | None) -> None:
        """Raises in the sender that waits for a response, also after a response that was neither 200 nor 202."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the service closed the connection"))


@asynccontextmanager
async def senders(port: int) -> AsyncIterator[list[Sender]]:
    """So many connections as `SENDERS` says."""
    opened = [await Sender.open(port) for _ in range(SENDERS)]
    yield opened
    for sender in opened:
        sender.transport.close()


class RepeatedRequests:
    """An endless sequence of requests, one in ten of which is new; `answered` counts them.

    `body` makes the request of a number, `outcome` reads its response: `new` for one request of each number, one of
    `repeated` for all others. `headers` makes those of the next request, the same or not.
    """

    def __init__(
        self,
        path: str,
        headers: Callable[[], Mapping[str, str]],
        body: Callable[[int], bytes],
        outcome: Callable[[Any], str],
        new: str,
        repeated: Collection[str],
    ) -> None:
        self._path, self._headers, self._body, self._outcome = path, headers, body, outcome
        self._new, self._repeated = new, repeated
        self._numbers = count(FRESH * APART * FRESH)  # from here on, all repeated ones exist
        self._accepted: set[int] = set()
        self._sent: set[int] = set()
        self.answered = 0

    async def prime(self, sender: Sender) -> None:
        """Sends those that the first requests repeat."""
        for number in range(APART * FRESH):
            await self._send(sender, number)

    async def send(self, sender: Sender) -> None:
        """Sends the next one."""
        block, repeat = divmod(next(self._numbers), FRESH)
        await self._send(sender, block - repeat * APART)
        self.answered += 1

    async def rate(self, opened: list[Sender], seconds: float) -> float:
        """Requests per second, if each sender sends its next one as soon as it has the response to the last one."""
        before, begun = self.answered, perf_counter()
        async with asyncio.timeout(seconds + READY_WITHIN):
            await asyncio.gather(*(self._send_until(sender, begun + seconds) for sender in opened))
        took = perf_counter() - begun
        self.check()
        return (self.answered - before) / took

    def check(self) -> None:
        """Raises if the new one of a number is missing, now that all requests have a response."""
        assert self._sent == self._accepted, f"never {self._new}: {sorted(self._sent - self._accepted)}"

    async def _send_until(self, sender: Sender, ends: float) -> None:
        while perf_counter() < ends:
            await self.send(sender)

    async def _send(self, sender: Sender, number: int) -> None:
        outcome = self._outcome(await sender.send(self._path, self._headers(), self._body(number)))
        self._sent.add(number)
        if outcome == self._new:
            assert number not in self._accepted, f"number {number} was {outcome} twice"
            self._accepted.add(number)
        else:
            assert outcome in self._repeated, f"number {number} was {outcome}"


@contextmanager
def served(folder: Path, *flags: str) -> Iterator[tuple[int, list[int]]]:
    """Runs a service; yields its port and the pids of its workers, each pinned to its own core if there are enough."""
    with Process(folder, "--workers", str(WORKERS), *flags) as service:
        port = int(service.address().rpartition(":")[2])
        workers = _workers_of(service.log)
        for number, pid in enumerate(workers):
            pin(pid, number)
        try:
            yield port, workers
        finally:
            service.signal(signal.SIGTERM)
            service.wait()


def _workers_of(log: Path) -> list[int]:
    """Returns the pids of the workers once all of them serve: else the first would get all connections."""
    ends = monotonic() + READY_WITHIN
    while monotonic() < ends:
        lines = log.read_text()
        if lines.count("Application startup complete") == WORKERS:
            return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", lines)]
        sleep(0.05)
    raise Skipped(f"{WORKERS} workers did not start within {READY_WITHIN:g} s")


@contextmanager
def busy(workers: list[int]) -> Iterator[None]:
    """Prints how busy this process and each of these workers was while the body ran."""
    if not Path("/proc/self/stat").exists():
        yield
        return
    pids = {"client": getpid()} | {f"worker {number}": pid for number, pid in enumerate(workers, 1)}
    begun, before = perf_counter(), {name: _cpu_seconds(pid) for name, pid in pids.items()}
    yield
    took = perf_counter() - begun
    print_medians({name: [(_cpu_seconds(pid) - before[name]) / took * 100] for name, pid in pids.items()}, " % busy")


def _cpu_seconds(pid: int) -> float:
    """Returns the CPU seconds that the process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / sysconf("SC_CLK_TCK")
