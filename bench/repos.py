"""Webhooks of GitLab over HTTP: how many two workers of the service accept per second, and how soon they answer.

`solely serve` runs with 2 workers on Redis; nobody performs the jobs. **One request in ten is a new merge request**,
the nine after it repeat one each of the last 100, as group hooks, project hooks and retries do, with a delivery id of
their own. The benchmark checks that exactly one request of each merge request is queued, and all others are known. The
body is that of a real event, about 4 KiB.

For the latency, requests are sent at fixed times, 200 a second, whether or not earlier ones were answered: one that
waits for a busy worker counts from the time at which it should have been sent.
"""

import asyncio
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from os import getpid
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from tests.servers import Valkey
from tests.service.serving import Process

from .alerts import data_url
from .alerts_http import APART, FRESH, SENDERS, SUSTAINED, WORKERS, busy, workers_of
from .harness import Case, Effort, Figures, Goal, Place, interleave, pin, print_medians, valkey
from .http import READY_WITHIN, Caller
from .workers import Loop

TOKEN = "token-of-the-benchmark"
RATE = 200  # requests per second for the latency
MEASURED = 5  # times as long as other sides: a percentile of 99 needs some hundred requests
_PROJECT = {"id": 42, "path_with_namespace": "group/project", "git_http_url": "https://gitlab.example.org/g/p.git"}
_REST = {"description": "Lorem ipsum dolor sit amet. " * 120, "labels": [], "changes": {}}


def _body(number: int) -> bytes:
    request = {"iid": number + 1, "state": "opened", "action": "open", "title": "A feature", "source_branch": "feature"}
    request |= {"target_branch": "main", "last_commit": {"id": f"{number:040x}"}, "updated_at": "2026-01-31T12:00:00Z"}
    event = {"object_kind": "merge_request", "user": {"username": "ann"}, "project": _PROJECT}
    return json.dumps({**event, "object_attributes": {**request, **_REST}}).encode()


class Hook(Caller):
    """A minimal client connection that sends events as GitLab does."""

    async def send(self, body: bytes, delivery: int) -> str:
        """Posts the event and returns what became of its job."""
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST /api/repos/gitlab HTTP/1.1\r\nhost: {self._host}\r\nx-gitlab-token: {TOKEN}\r\n"
        ids = f"content-type: application/json\r\nidempotency-key: delivery-{delivery}\r\n"
        self.transport.write(f"{head}{ids}content-length: {len(body)}\r\n\r\n".encode() + body)
        return str(json.loads(await self._answer)["jobs"][0]["outcome"])

    def data_received(self, data: bytes) -> None:
        """As of Caller; a new job is answered with 202, which is read like 200."""
        super().data_received(data.replace(b"HTTP/1.1 202", b"HTTP/1.1 200", 1) if not self._got else data)

    def connection_lost(self, error: Exception | None) -> None:
        """Raises in the sender that waits for a response."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or ConnectionResetError("the service closed the connection"))


class Events:
    """An endless sequence of requests, one in ten of which is a new merge request; `answered` counts them."""

    def __init__(self) -> None:
        self._numbers = count(FRESH * APART * FRESH)  # from here on, all repeated ones exist
        self._deliveries = count()
        self._queued: set[int] = set()
        self._sent: set[int] = set()
        self.answered = 0

    async def prime(self, hook: Hook) -> None:
        """Sends the merge requests that the first requests repeat."""
        for number in range(APART * FRESH):
            await self._send(hook, number)

    async def send_until(self, hook: Hook, ends: float) -> None:
        """Sends repeatedly until then."""
        while perf_counter() < ends:
            await self.send(hook)

    async def send(self, hook: Hook) -> None:
        """Sends the next one."""
        block, repeat = divmod(next(self._numbers), FRESH)
        await self._send(hook, block - repeat * APART)
        self.answered += 1

    async def _send(self, hook: Hook, number: int) -> None:
        """Any one of a merge request's requests may be queued: a later one may arrive first."""
        outcome = await hook.send(_body(number), next(self._deliveries))
        self._sent.add(number)
        if outcome == "queued":
            assert number not in self._queued, f"merge request {number} was queued twice"
            self._queued.add(number)
        else:
            assert outcome in ("known", "in_queue"), f"merge request {number} was {outcome}"

    def check(self) -> None:
        """Raises if a merge request was never queued, now that all requests have a response."""
        assert self._sent == self._queued, f"never queued: {sorted(self._sent - self._queued)}"


async def _rate(events: Events, hooks: list[Hook], seconds: float) -> float:
    before, begun = events.answered, perf_counter()
    async with asyncio.timeout(seconds + READY_WITHIN):
        await asyncio.gather(*(events.send_until(hook, begun + seconds) for hook in hooks))
    took = perf_counter() - begun
    events.check()
    return (events.answered - before) / took


async def _p99(events: Events, hooks: list[Hook], seconds: float) -> float:
    """Returns the 99th percentile in milliseconds of requests at fixed times."""
    free: asyncio.Queue[Hook] = asyncio.Queue()
    for hook in hooks:
        free.put_nowait(hook)
    latencies: list[float] = []

    async def one(due: float) -> None:
        hook = await free.get()
        await events.send(hook)
        latencies.append(perf_counter() - due)
        free.put_nowait(hook)

    begun, sent = perf_counter(), list[asyncio.Task[None]]()
    for number in range(int(RATE * seconds)):
        due = begun + number / RATE
        await asyncio.sleep(max(0.0, due - perf_counter()))
        sent.append(asyncio.create_task(one(due)))
    async with asyncio.timeout(READY_WITHIN):
        await asyncio.gather(*sent)
    events.check()
    return quantiles(latencies, n=100)[98] * 1000


def _measure(place: Place, effort: Effort) -> Figures:
    with (
        tempfile.TemporaryDirectory() as folder,
        valkey(place) as server,
        Loop() as loop,
        _served(server, Path(folder)) as (port, workers),
    ):
        events, hooks = Events(), loop.enter(_hooks(port))
        loop.run(events.prime(hooks[0]))
        sustained, paced = effort.seconds * SUSTAINED, effort.seconds * MEASURED
        with busy({"client": getpid()} | {f"worker {number}": pid for number, pid in enumerate(workers, 1)}):
            rates = interleave({"webhooks": lambda: loop.run(_rate(events, hooks, sustained))}, effort.repetitions)
        latencies = interleave({"p99": lambda: loop.run(_p99(events, hooks, paced))}, effort.repetitions)
    print_medians(rates)
    return {"repos.webhooks.per_s": rates["webhooks"], "repos.webhook_p99_ms": latencies["p99"]}


@asynccontextmanager
async def _hooks(port: int) -> AsyncIterator[list[Hook]]:
    hooks = [await Hook.open(port) for _ in range(SENDERS)]
    yield hooks
    for hook in hooks:
        hook.transport.close()


@contextmanager
def _served(server: Valkey, folder: Path) -> Iterator[tuple[int, list[int]]]:
    """Runs a service; yields its port and the pids of its workers, each pinned to its own core if there are enough."""
    flags = ("--url", server.url, "--data-url", data_url(server, folder), "--workers", str(WORKERS))
    gitlab = json.dumps({"webhook_tokens": [TOKEN]})
    with Process(folder, *flags, "--set", f"repos.gitlab={gitlab}") as service:
        port = int(service.address().rpartition(":")[2])
        workers = workers_of(service.log)
        for number, pid in enumerate(workers):
            pin(pid, number)
        try:
            yield port, workers
        finally:
            service.signal(signal.SIGTERM)
            service.wait()


_AGAINST = "webhooks per second, 1 in 10 new; 2 workers, one on either core"
CASES = [
    Case(
        [
            Goal("repos.webhooks.per_s", 1_500.0, _AGAINST),
            Goal("repos.webhook_p99_ms", 50.0, f"ms to the answer, at {RATE} webhooks per second", at_most=True),
        ],
        Place.APART,
        _measure,
    )
]
