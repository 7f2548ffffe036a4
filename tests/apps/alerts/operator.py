"""A running service with the alert receiver, as senders and operators call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.apps import operator as shared
from tests.apps.operator import BECAUSE as BECAUSE
from tests.service.serving import until

LOG = {"type": "log", "name": "log"}
BROKEN = {"type": "command", "name": "broken", "argv": ["/bin/false"], "match": {"labels": {"to": "broken"}}}


class Operator(shared.Operator):
    """Sends alerts, and looks for what became of them."""

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
    with shared.operating("alerts", {"publishers": list(publishers), **given}, **service or {}) as it:
        yield Operator(it.service)
