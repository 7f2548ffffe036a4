"""The alert receiver as it runs for real: `solely serve` with four workers that share a store, many senders at once,
and an inbox as the receiver. Workers can be killed and stopped while they publish."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from solely import Client
from solely.apps.alerts.notifications.outbox import QUEUE
from tests.apps.alerts.inbox import Delivery, Inbox, end_of, inbox, process_of
from tests.apps.alerts.volley import Answer, Request, volley
from tests.service.serving import LINES, TOKENS, Process, bearer, takes_connections, until
from tests.service.test_metrics import samples

WORKERS = 4
HOLD = 1.0  # seconds: short, so that a take-over takes about two
LONG = 5.0  # seconds: where nothing dies, longer than a worker stands still on a machine that has too much to do
BEGINS = 40.0  # seconds for five processes to begin on a machine that others use too
SOON = 20.0  # seconds within which a take-over happens even then
POST, WEBHOOK = "/api/alerts", "/api/alerts/alertmanager"


def holding(seconds: float) -> dict[str, str]:
    """The setting that reservations of every severity are held for so long."""
    return {"alerts_policies": json.dumps({name: {"hold": seconds} for name in ("critical", "warning", "default")})}


def alert(fingerprint: str, severity: str = "critical", status: str = "firing") -> dict[str, Any]:
    """As our own senders post it."""
    return {
        "name": "CPU high", "source": "test", "severity": severity, "fingerprint": fingerprint, "status": status,
    }  # fmt: skip


def group(*alerts: tuple[str, str, str]) -> dict[str, Any]:
    """As Alertmanager posts them: fingerprint, severity and status of each."""
    return {
        "version": "4", "groupKey": "{}:{}", "receiver": "solely", "status": "firing", "truncatedAlerts": 0,
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://alertmanager.test",
        "alerts": [
            {
                "status": status, "labels": {"alertname": "CPU high", "severity": severity}, "annotations": {},
                "startsAt": "2026-01-01T00:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": fingerprint,
            }
            for fingerprint, severity, status in alerts
        ],
    }  # fmt: skip


def outcomes(answers: Sequence[Answer]) -> Counter[tuple[str, str]]:
    """How often each outcome and reason was answered, by either path; all must be 2xx."""
    assert {answer.status for answer in answers} == {200}
    found = [each for answer in answers for each in answer.body.get("alerts", [answer.body])]
    return Counter((each["outcome"], each.get("reason", "")) for each in found)


class Tried(NamedTuple):
    """What one try was answered, 0 if nothing, and when."""

    status: int
    at: float


class Fleet:
    """A service with its workers, and its receiver."""

    def __init__(self, service: Process, receiver: Inbox, once: Client) -> None:
        self.service = service
        self.inbox = receiver
        self._once = once
        self.address = service.address()
        self.port = int(self.address.rpartition(":")[2])
        self.headers = bearer(TOKENS["admin"])
        self.answered: Counter[tuple[str, str]] = Counter()  # outcome and reason of all alerts of volleys

    # -- senders

    def send(self, fingerprint: str, **given: Any) -> dict[str, Any]:
        """What became of one alert."""
        answer = self.post(POST, alert(fingerprint, **given))
        assert answer.status_code == 200, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    def post(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        return httpx2.post(self.address + path, json=body, headers=self.headers, timeout=SOON)

    def insist(self, fingerprint: str, tries: list[Tried]) -> None:
        """Sends an alert as senders do, again and again until it is answered 2xx; each of its tries is noted."""
        ends = time.monotonic() + SOON
        while not tries or tries[-1].status != 200:
            assert time.monotonic() < ends, f"{fingerprint} was answered {Counter(each.status for each in tries)}"
            try:
                status = self.post(POST, alert(fingerprint)).status_code
            except httpx2.TransportError:
                status = 0
            tries.append(Tried(status, time.monotonic()))
            time.sleep(0.05 if status != 200 else 0)

    def volley(self, requests: Sequence[Request], at_once: int) -> list[Answer]:
        """The answers to all of these, in order; so many of them are under way at the same time. All must be 2xx."""
        answers = asyncio.run(volley(self.port, requests, at_once, self.headers))
        self.answered += outcomes(answers)
        return answers

    # -- what it says of itself

    def ready(self) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.address}/readyz", timeout=SOON).status_code == 200
        return False

    def history(self, fingerprint: str) -> list[dict[str, Any]]:
        """What is written down of this fingerprint, by now."""
        where = f"{self.address}/api/alerts/history"
        answer = httpx2.get(where, params={"fingerprint": fingerprint}, headers=self.headers, timeout=SOON)
        found: list[dict[str, Any]] = answer.json()["history"] if answer.status_code == 200 else []
        return found

    def counters(self) -> Counter[str]:
        """What all workers counted of alerts: a name, or the reason of a suppression."""
        found: Counter[str] = Counter()
        for name, value in samples(httpx2.get(f"{self.address}/metrics", headers=self.headers).content).items():
            counter, _, labels = name.partition("{")
            if counter.startswith("solely_alerts_") and counter.endswith("_total"):
                known = json.loads("{" + labels)
                found[known.get("reason") or counter.removeprefix("solely_alerts_").removesuffix("_total")] += int(
                    value
                )
        return found

    def waiting(self, fingerprint: str = "") -> int:
        """How many notifications are in the outbox, of fingerprints that have this in them."""
        return sum(fingerprint in item.id for item in self._once.queue(QUEUE).list(limit=1_000))

    # -- workers

    @property
    def workers(self) -> list[int]:
        """The processes that serve: multiprocessing has a helper beside them."""
        pid, found = self.service.pid, []
        for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(FileNotFoundError, ProcessLookupError):
                if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes():
                    found.append(int(each))
        return found

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
    url: str,
    folder: Path,
    given: Mapping[str, str] | None = None,
    *,
    workers: int = WORKERS,
    receiver: Inbox | None = None,
) -> Iterator[Fleet]:
    """A service of its own on the store of this URL, with these settings, and an inbox of its own if none is given.

    The history is in a file of the folder, unless the settings say otherwise.
    """
    if receiver is None:
        with inbox() as receiver, fleet(url, folder, given, workers=workers, receiver=receiver) as it:
            yield it
        return
    variables = {
        "SOLELY_URL": url,
        "SOLELY_DATA_URL": f"sqlite:///{folder / 'history.db'}",
        "SOLELY_TOKENS": ",".join(LINES),
        "SOLELY_APPS": "alerts",
        "SOLELY_ALERTS_PUBLISHERS": json.dumps([receiver.publisher]),
        **{f"SOLELY_{name.upper()}": value for name, value in (given or {}).items()},
    }
    with Process(folder, "--workers", str(workers), **variables) as service, Client(url) as once:
        it = Fleet(service, receiver, once)
        until(it.ready, BEGINS)
        if workers > 1:
            it.until_serving(workers)
        yield it
