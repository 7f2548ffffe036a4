"""Webhooks of GitLab over HTTP: how many two workers of the service accept per second, and how soon they answer.

`solely serve` runs with 2 workers on Redis; nobody performs the jobs. **One request in ten is a new merge request**
(see `traffic`), the others repeat it, as group hooks, project hooks and retries do, with a delivery id of their own.
The body is that of a real event, about 4 KiB.

For the latency, requests are sent at fixed times, 200 a second, whether or not earlier ones were answered: one that
waits for a busy worker counts from the time at which it should have been sent.
"""

import asyncio
import json
import tempfile
from itertools import count
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from .alerts import data_url
from .harness import Case, Effort, Figures, Goal, Place, interleave, print_medians, valkey
from .http import READY_WITHIN
from .traffic import SUSTAINED, RepeatedRequests, Sender, busy, senders, served
from .workers import Loop

TOKEN = "token-of-the-benchmark"
RATE = 200  # requests per second for the latency
MEASURED = 5  # times as long as other sides: a percentile of 99 needs some hundred requests
_PROJECT = {"id": 42, "path_with_namespace": "group/project", "git_http_url": "https://gitlab.example.org/g/p.git"}
_REST = {"description": "Lorem ipsum dolor sit amet. " * 120, "labels": [], "changes": {}}


def _body(number: int) -> bytes:
    request = {"iid": number + 1, "state": "opened", "action": "open", "title": "A feature", "source_branch": "feature"}
    request |= {"target_branch": "main", "last_commit": {"id": f"{number:040x}"}, "updated_at": "2026-01-31T12:00:00Z"}
    request |= {"source_project_id": 42, "target_project_id": 42}
    event = {"object_kind": "merge_request", "user": {"username": "ann"}, "project": _PROJECT}
    return json.dumps({**event, "object_attributes": {**request, **_REST}}).encode()


def _webhooks() -> RepeatedRequests:
    deliveries = count()
    return RepeatedRequests(
        "/api/repos/gitlab",
        lambda: {"x-gitlab-token": TOKEN, "idempotency-key": f"delivery-{next(deliveries)}"},
        _body,
        lambda answer: str(answer["jobs"][0]["outcome"]),
        "queued",
        ("known", "in_queue"),
    )


async def _p99(webhooks: RepeatedRequests, opened: list[Sender], seconds: float) -> float:
    """Returns the 99th percentile in milliseconds of requests at fixed times."""
    free: asyncio.Queue[Sender] = asyncio.Queue()
    for sender in opened:
        free.put_nowait(sender)
    latencies: list[float] = []

    async def one(due: float) -> None:
        sender = await free.get()
        await webhooks.send(sender)
        latencies.append(perf_counter() - due)
        free.put_nowait(sender)

    begun, sent = perf_counter(), list[asyncio.Task[None]]()
    for number in range(int(RATE * seconds)):
        due = begun + number / RATE
        await asyncio.sleep(max(0.0, due - perf_counter()))
        sent.append(asyncio.create_task(one(due)))
    async with asyncio.timeout(READY_WITHIN):
        await asyncio.gather(*sent)
    webhooks.check()
    return quantiles(latencies, n=100)[98] * 1000


def _measure(place: Place, effort: Effort) -> Figures:
    with tempfile.TemporaryDirectory() as name, valkey(place) as server, Loop() as loop:
        folder, gitlab = Path(name), json.dumps({"webhook_tokens": [TOKEN]})
        flags = ("--url", server.url, "--data-url", data_url(server, folder), "--set", f"repos.gitlab={gitlab}")
        with served(folder, *flags) as (port, workers):
            webhooks, opened = _webhooks(), loop.enter(senders(port))
            loop.run(webhooks.prime(opened[0]))
            sustained, paced = effort.seconds * SUSTAINED, effort.seconds * MEASURED
            with busy(workers):
                sides = {"webhooks": lambda: loop.run(webhooks.rate(opened, sustained))}
                rates = interleave(sides, effort.repetitions)
            latencies = interleave({"p99": lambda: loop.run(_p99(webhooks, opened, paced))}, effort.repetitions)
    print_medians(rates)
    return {"repos.webhooks.per_s": rates["webhooks"], "repos.webhook_p99_ms": latencies["p99"]}


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
