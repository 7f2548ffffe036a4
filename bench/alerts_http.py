"""Alerts over HTTP: how many posts per second two workers of the service accept.

`solely serve` runs with 2 workers and the log as publisher; each sender has a bearer token and waits for its response.
**One post in ten must be published**: each tenth has a new fingerprint, the nine after it repeat one each of the last
100. So each fingerprint is posted ten times within a thousand posts, which is half a second at 2,000 posts a second;
quiet windows are longer than that. The benchmark checks that exactly one post of each fingerprint is published and all
others are suppressed. The policy is the default for critical alerts, so each published alert is a reservation with a
limit, an item in the outbox, a line in the log and a row in the history. The worker itself answers a repeat if it read
that fingerprint from the store within the last fifth of a second, else the store does.

There are more processes than cores: one worker shares a core with the client, the other with the store. stderr says how
busy the client and each worker were: a client far below 100 % is not the bottleneck.
"""

import asyncio
import hashlib
import json
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import count
from os import getpid, sysconf
from pathlib import Path
from time import monotonic, perf_counter, sleep

from tests.postgres_server import Postgres
from tests.servers import Valkey
from tests.service.serving import Process

from .alerts import ALERT, SERVERS, data_url
from .harness import Case, Effort, Figures, Goal, Place, Skipped, interleave, pin, print_medians
from .http import READY_WITHIN, Caller
from .workers import Loop

WORKERS = 2
SENDERS = 64  # connections: enough that each worker has about thirty alerts at once
FRESH = 10  # one post in so many has a new fingerprint
APART = 11  # fingerprints between two repeated ones: nine repeats reach back over the last 99
SUSTAINED = 8  # times as long as other sides, so that sweeps and flushes of the history are included
TOKEN = "token-of-the-benchmark"


class Sender(Caller):
    """A minimal client connection that sends alerts with a bearer token."""

    async def send(self, body: bytes) -> str:
        """Posts the alert and returns its outcome."""
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST /api/alerts HTTP/1.1\r\nhost: {self._host}\r\nauthorization: Bearer {TOKEN}\r\n"
        kind = "content-type: application/json\r\n"
        self.transport.write(f"{head}{kind}content-length: {len(body)}\r\n\r\n".encode() + body)
        return str(json.loads(await self._answer)["outcome"])

    def connection_lost(self, error: Exception | None) -> None:
        """Raises in the sender that waits for a response, also after a response that was not 200."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the service closed the connection"))


class Traffic:
    """An endless sequence of posts, one in ten of which must be published; `answered` counts them."""

    def __init__(self) -> None:
        self._numbers = count(FRESH * APART * FRESH)  # from here on, all repeated fingerprints exist
        self._published: set[int] = set()
        self._posted: set[int] = set()
        self.answered = 0

    async def prime(self, sender: Sender) -> None:
        """Posts the fingerprints that the first posts repeat."""
        for number in range(APART * FRESH):
            await self._post(sender, number)

    async def send(self, sender: Sender, ends: float) -> None:
        """Posts repeatedly until then."""
        while perf_counter() < ends:
            block, repeat = divmod(next(self._numbers), FRESH)
            await self._post(sender, block - repeat * APART)
            self.answered += 1

    async def _post(self, sender: Sender, number: int) -> None:
        """Any one of a fingerprint's posts may be published: a later one may arrive first."""
        outcome = await sender.send(_body(number))
        self._posted.add(number)
        if outcome == "published":
            assert number not in self._published, f"fingerprint {number} was published twice"
            self._published.add(number)
        else:
            assert outcome == "suppressed", f"fingerprint {number} was {outcome}"

    def check(self) -> None:
        """Raises if a fingerprint was never published, now that all posts have a response."""
        assert self._posted == self._published, f"never published: {sorted(self._posted - self._published)}"


def _body(number: int) -> bytes:
    return json.dumps({**ALERT, "fingerprint": f"sustained-{number}"}).encode()


@asynccontextmanager
async def _senders(port: int) -> AsyncIterator[list[Sender]]:
    senders = [await Sender.open(port) for _ in range(SENDERS)]
    yield senders
    for sender in senders:
        sender.transport.close()


async def _rate(traffic: Traffic, senders: list[Sender], seconds: float) -> float:
    before, begun = traffic.answered, perf_counter()
    async with asyncio.timeout(seconds + READY_WITHIN):
        await asyncio.gather(*(traffic.send(sender, begun + seconds) for sender in senders))
    took = perf_counter() - begun
    traffic.check()
    return (traffic.answered - before) / took


def _sustained(store: str, place: Place, effort: Effort) -> Figures:
    with (
        tempfile.TemporaryDirectory() as folder,
        SERVERS[store](place) as server,
        Loop() as loop,
        _served(server, Path(folder)) as (port, workers),
    ):
        traffic, senders = Traffic(), loop.enter(_senders(port))
        loop.run(traffic.prime(senders[0]))
        seconds = effort.seconds * SUSTAINED
        with busy({"client": getpid()} | {f"worker {number}": pid for number, pid in enumerate(workers, 1)}):
            rates = interleave({"posts": lambda: loop.run(_rate(traffic, senders, seconds))}, effort.repetitions)
    print_medians(rates)
    return {f"alerts.{store}.per_s": rates["posts"]}


@contextmanager
def busy(pids: dict[str, int]) -> Iterator[None]:
    """Prints how busy each of these processes was while the body ran."""
    if not Path("/proc/self/stat").exists():
        yield
        return
    begun, before = perf_counter(), {name: _cpu_seconds(pid) for name, pid in pids.items()}
    yield
    took = perf_counter() - begun
    print_medians({name: [(_cpu_seconds(pid) - before[name]) / took * 100] for name, pid in pids.items()}, " % busy")


def _cpu_seconds(pid: int) -> float:
    """Returns the CPU seconds that the process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / sysconf("SC_CLK_TCK")


@contextmanager
def _served(server: Valkey | Postgres, folder: Path) -> Iterator[tuple[int, list[int]]]:
    """Runs a service; yields its port and the pids of its workers, each pinned to its own core if there are enough."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    flags = ("--url", server.url, "--data-url", data_url(server, folder), "--workers", str(WORKERS))
    with Process(folder, *flags, "--set", f"tokens=sender:write:{digest}") as service:
        port = int(service.address().rpartition(":")[2])
        workers = workers_of(service.log)
        for number, pid in enumerate(workers):
            pin(pid, number)
        try:
            yield port, workers
        finally:
            service.signal(signal.SIGTERM)
            service.wait()


def workers_of(log: Path) -> list[int]:
    """Returns the pids of the workers once all of them serve: else the first would get all connections."""
    ends = monotonic() + READY_WITHIN
    while monotonic() < ends:
        lines = log.read_text()
        if lines.count("Application startup complete") == WORKERS:
            return [int(pid) for pid in re.findall(r"Started server process \[(\d+)\]", lines)]
        sleep(0.05)
    raise Skipped(f"{WORKERS} workers did not start within {READY_WITHIN:g} s")


_AGAINST = "posts per second, 1 in 10 published; 2 workers, one on either core"
CASES = [
    Case([Goal(f"alerts.{store}.per_s", least, _AGAINST)], Place.APART, partial(_sustained, store))
    for store, least in (("postgres", 1_000.0), ("redis", 2_000.0))
]
