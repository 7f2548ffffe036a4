"""The task-trigger API as it runs for real: workers that share a store and a database, and many callers at once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from solely.apps.triggers.buffer import queue_name
from solely.data import open_database
from tests.apps import fleet as shared
from tests.apps.fleet import SOON, WORKERS
from tests.apps.inbox import inbox
from tests.apps.volley import Answer, Request
from tests.service.serving import until
from tests.service.test_metrics import samples

KEYED, UNKEYED = 500, 300  # triggers of one key, and others of the same environment that trip the gate meanwhile
AT_ONCE = 200  # connections: those of one worker stay below what it accepts from one address
# The gate trips by ten triggers, however slow the machine is, and recovers soon: each burst begins with a cold gate.
TRIPS = {"triggers_trip_threshold": "10", "triggers_trip_window": "0.5", "triggers_trip_hold": "0.1"}
COLD = 0.7  # seconds without a trigger after which the gate has recovered
DRAINED = 60.0  # seconds for hundreds of runs on a machine that others use too


class Burst(NamedTuple):
    """The answers to the triggers of one key, and to the others."""

    keyed: list[Answer]
    others: list[Answer]

    @property
    def ids(self) -> set[str]:
        """The run ids that were answered to the key."""
        return {answer.body["id"] for answer in self.keyed if answer.status == 200}

    @property
    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in (*self.keyed, *self.others))


def keyed(key: str, **options: Any) -> Request:
    """A trigger of this key, always with the same payload."""
    return trigger("keyed", {"idempotencyKey": key, **options})


def trigger(task: str, options: dict[str, Any] | None = None, payload: Any = None) -> Request:
    return f"/api/v1/tasks/{task}/trigger", {"payload": payload, "options": options or {}}


class Fleet(shared.Fleet):
    """A fleet that accepts triggers."""

    data_url = ""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._http = httpx2.Client(timeout=SOON)

    def burst(self, key: str, *, waiting: int = 0, keyed_count: int = KEYED, others: int = UNKEYED) -> Burst:
        """Sends triggers of one key mixed with others, all at once; `waiting` of the key bypass the gate."""
        wanted = [(True, keyed(key)) for _ in range(keyed_count - waiting)]
        wanted += [(True, keyed(key, resumeParentOnCompletion=True)) for _ in range(waiting)]
        wanted += [(False, trigger("other", payload=index)) for index in range(others)]
        random.shuffle(wanted)
        time.sleep(COLD)
        answers = self.send_all([request for _, request in wanted], AT_ONCE)
        marked = list(zip(wanted, answers, strict=True))
        return Burst([a for (is_keyed, _), a in marked if is_keyed], [a for (is_keyed, _), a in marked if not is_keyed])

    def send(self, request: Request) -> dict[str, Any]:
        """The answer to one trigger, sent again until it is accepted."""
        path, body = request
        return dict(until(lambda: self._accepted(path, body), DRAINED))

    def _accepted(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        try:
            answer = self._http.post(self.address + path, json=body, headers=self.headers)
        except httpx2.TransportError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def get(self, path: str, **query: Any) -> httpx2.Response:
        """The answer, of any worker: one may die, with the connection to it."""
        for _ in range(WORKERS):
            with suppress(httpx2.RemoteProtocolError, httpx2.ConnectError, httpx2.ReadError):
                return self._http.get(self.address + path, params=query or None, headers=self.headers)
        raise AssertionError("no worker answers")

    def run(self, id: str) -> dict[str, Any]:
        """The run of this id, which must be found."""
        answer = self.get(f"/api/v3/runs/{id}")
        assert answer.status_code == 200, f"{id}: {answer.status_code} {answer.text}"
        found: dict[str, Any] = answer.json()
        return found

    def buffered(self) -> int:
        """How many runs are in the buffer on the store."""
        return self.once.queue(queue_name("default")).count()

    def until_drained(self) -> None:
        until(lambda: self.buffered() == 0, DRAINED)

    def rows(self, key: str = "") -> list[dict[str, Any]]:
        """The rows of runs with this key; of all runs if it is empty."""

        async def read() -> list[dict[str, Any]]:
            data = open_database(self.data_url)
            try:
                where = "idempotency_key = :key" if key else "'' = :key"
                return await data.rows(f"SELECT * FROM triggers_runs WHERE {where}", key=key)
            finally:
                await data.close()

        return asyncio.run(read())

    def counter(self, name: str) -> float:
        """The sum of this counter over its labels and all workers."""
        found = samples(self.get("/metrics").content)
        return sum(value for each, value in found.items() if each.partition("{")[0] == f"solely_{name}_total")


@contextmanager
def fleet(
    url: str, folder: Path, data_url: str = "", given: Mapping[str, str] | None = None, *, workers: int = WORKERS
) -> Iterator[Fleet]:
    """A service of its own on the store and the database of these URLs, with these settings."""
    data = data_url or f"sqlite:///{folder / 'history.db'}"
    settings = {"data_url": data, **(given or {})}
    with inbox("id") as unused, shared.fleet(Fleet, "triggers", url, folder, unused, settings, workers=workers) as it:
        it.data_url = data
        with it._http:
            yield it
