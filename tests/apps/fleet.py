"""An application as it runs for real: `solely serve` with four workers that share a store, many senders at once, and an
inbox as the receiver of its webhooks. Workers can be killed and stopped while they work."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx2

from solely import Client
from tests.apps.inbox import Delivery, Inbox, end_of, process_of
from tests.apps.volley import Answer, Request, volley
from tests.service.serving import LINES, TOKENS, Process, bearer, takes_connections, until, workers_of

F = TypeVar("F", bound="Fleet")

WORKERS = 4
BEGINS = 120.0  # seconds for five processes to begin on a machine that others use too
SOON = 20.0  # seconds within which a take-over happens even then


class Tried(NamedTuple):
    """What one try was answered, 0 if nothing, and when."""

    status: int
    at: float


class Fleet:
    """A service with its workers, and the receiver of its webhooks."""

    def __init__(self, service: Process, receiver: Inbox, once: Client) -> None:
        self.service = service
        self.inbox = receiver
        self.once = once
        self.address = service.address()
        self.port = int(self.address.rpartition(":")[2])
        self.headers = bearer(TOKENS["admin"])

    # -- senders

    def post(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        return httpx2.post(self.address + path, json=body, headers=self.headers, timeout=SOON)

    def insist_on(self, path: str, body: dict[str, Any], tries: list[Tried]) -> None:
        """Sends a request again and again until it is answered 200; each of its tries is noted."""
        ends = time.monotonic() + SOON
        while not tries or tries[-1].status != 200:
            assert time.monotonic() < ends, f"{body} was answered {Counter(each.status for each in tries)}"
            try:
                status = self.post(path, body).status_code
            except httpx2.TransportError:
                status = 0
            tries.append(Tried(status, time.monotonic()))
            time.sleep(0.05 if status != 200 else 0)

    def send_all(self, requests: Sequence[Request], at_once: int) -> list[Answer]:
        """The answers to all of these, in order; so many of them are under way at the same time."""
        return asyncio.run(volley(self.port, requests, at_once, self.headers))

    def ready(self) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.address}/readyz", timeout=SOON).status_code == 200
        return False

    # -- workers

    @property
    def workers(self) -> list[int]:
        """The processes that serve."""
        return workers_of(self.service.pid)

    def publishing_worker(self, delivery: Delivery) -> int:
        """The worker that waits for the answer to this delivery."""
        return self._worker(delivery.port, self.inbox.port)

    def answerer(self, port: int) -> int:
        """The worker that a sender on this port waits for."""
        return self._worker(self.port, port)

    def _worker(self, port: int, other: int) -> int:
        connection = end_of(port, other)
        assert connection is not None, "the connection is gone"
        pid = process_of(connection, self.workers)
        assert pid is not None, "none of the workers has it"
        return pid

    def kill_publishing(self, delivery: Delivery) -> bool:
        """SIGKILL to the worker that waits for this answer, which is not given: it is never the one to go on."""
        os.kill(self.publishing_worker(delivery), signal.SIGKILL)
        return False

    def until_serving(self, workers: int = WORKERS) -> None:
        """Returns when at least so many workers are there and take requests."""
        until(lambda: sum(takes_connections(pid, self.port) for pid in self.workers) >= workers, BEGINS)
        until(self.ready, BEGINS)


@contextmanager
def fleet(
    kind: type[F],
    app: str,
    url: str,
    folder: Path,
    receiver: Inbox,
    given: Mapping[str, str],
    *,
    workers: int = WORKERS,
) -> Iterator[F]:
    """A service of its own with this application on the store of this URL, with these settings (of the service, or of
    the application if they begin with its name). Its tables are in a file of the folder, unless the settings say
    otherwise."""
    variables = {
        "SOLELY_URL": url,
        "SOLELY_DATA_URL": f"sqlite:///{folder / 'history.db'}",
        "SOLELY_TOKENS": ",".join(LINES),
        "SOLELY_APPS": app,
        **{f"SOLELY_{name.upper()}": value for name, value in given.items()},
    }
    with Process(folder, "--workers", str(workers), **variables) as service, Client(url) as once:
        it = kind(service, receiver, once)
        until(it.ready, BEGINS)
        if workers > 1:
            it.until_serving(workers)
        yield it
