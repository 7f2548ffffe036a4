"""The alert receiver as it runs for real: a fleet of workers, and an inbox that its publisher calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from solely.apps.alerts.notifications.publishing import QUEUE
from tests.apps import fleet as shared
from tests.apps.fleet import SOON, WORKERS, Tried
from tests.apps.inbox import Inbox, inbox
from tests.apps.volley import Answer, Request
from tests.service.test_metrics import samples

HOLD = 1.0  # seconds: short, so that a take-over takes about two
POST, WEBHOOK = "/api/alerts", "/api/alerts/alertmanager"


def holding(seconds: float) -> dict[str, str]:
    """The setting that reservations of every severity are held for so long."""
    return {"alerts_policies": json.dumps({name: {"hold": seconds} for name in ("critical", "warning", "default")})}


# Where nothing dies: every bound is longer than a worker stands still on a machine that has too much to do.
PATIENT = {
    **holding(10.0),  # what a suppressed copy left in the outbox is looked at after so long
    "alerts_answer_within": "120",
    "store_timeout": "60",
    "receive_timeout": "300",
}


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


class Fleet(shared.Fleet):
    """A fleet that receives alerts."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.answered: Counter[tuple[str, str]] = Counter()  # outcome and reason of all alerts of volleys

    # -- senders

    def send(self, fingerprint: str, **given: Any) -> dict[str, Any]:
        """What became of one alert."""
        answer = self.post(POST, alert(fingerprint, **given))
        assert answer.status_code == 200, answer.text
        outcome: dict[str, Any] = answer.json()
        return outcome

    def insist(self, fingerprint: str, tries: list[Tried]) -> None:
        """Sends an alert as senders do, again and again until it is answered 2xx; each of its tries is noted."""
        self.insist_on(POST, alert(fingerprint), tries)

    def volley(self, requests: Sequence[Request], at_once: int) -> list[Answer]:
        """The answers to all of these, in order; so many of them are under way at the same time. All must be 2xx."""
        answers = self.send_all(requests, at_once)
        self.answered += outcomes(answers)
        return answers

    # -- what it says of itself

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
        return sum(fingerprint in item.id for item in self.once.queue(QUEUE).list(limit=1_000))


@contextmanager
def fleet(
    url: str,
    folder: Path,
    given: Mapping[str, str] | None = None,
    *,
    workers: int = WORKERS,
    receiver: Inbox | None = None,
) -> Iterator[Fleet]:
    """A service of its own on the store of this URL, with these settings, and an inbox of its own if none is given."""
    if receiver is None:
        with inbox("fingerprint") as receiver, fleet(url, folder, given, workers=workers, receiver=receiver) as it:
            yield it
        return
    settings = {"alerts_publishers": json.dumps([receiver.publisher]), **(given or {})}
    with shared.fleet(Fleet, "alerts", url, folder, receiver, settings, workers=workers) as it:
        yield it
