"""A running service with the alert receiver, as senders and operators ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

BECAUSE = "a test wants it"
LOG = {"type": "log", "name": "log"}
BROKEN = {"type": "command", "name": "broken", "argv": ["/bin/false"], "match": {"labels": {"to": "broken"}}}


class Operator:
    """Asks the service, as an admin unless it is said otherwise."""

    def __init__(self, service: Running) -> None:
        self.service = service

    def post(self, path: str, body: dict[str, Any], scope: str = "admin") -> httpx2.Response:
        return self.service.post(path, body, headers=bearer(TOKENS[scope]))

    def get(self, path: str, scope: str = "admin", **query: Any) -> httpx2.Response:
        return self.service.get(path, params=query or None, headers=bearer(TOKENS[scope]))

    def ask(self, path: str, **query: Any) -> Any:
        """What is answered to somebody who may only look."""
        answer = self.get(path, "read", **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, fingerprint: str, severity: str = "critical", **more: Any) -> dict[str, Any]:
        """What became of an alert."""
        alert = {"name": "Disk full", "source": "db-1", "severity": severity, "fingerprint": fingerprint, **more}
        answer = self.post("/api/alerts", alert, "write")
        assert answer.status_code == 200, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    def why(self, fingerprint: str) -> dict[str, Any]:
        known: dict[str, Any] = self.ask("/api/alerts/why", fingerprint=fingerprint)
        return known

    def history(self, count: int, **query: Any) -> list[dict[str, Any]]:
        """The history as soon as it has at least so many notifications: it is written a moment later."""

        def found() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = self.ask("/api/alerts/history", **query)["history"]
            return rows if len(rows) >= count else []

        rows: list[dict[str, Any]] = until(found)
        return rows


@contextmanager
def operating(publishers: Any = (LOG,), service: dict[str, Any] | None = None, **given: Any) -> Iterator[Operator]:
    """A service of its own, on the memory store unless `service` has another URL."""
    alerts = {"publishers": list(publishers), **given}
    with running(tokens=LINES, apps=("alerts",), alerts=alerts, **service or {}) as running_one:
        yield Operator(running_one)
