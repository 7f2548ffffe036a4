"""Announcements: an application raises an alert without knowing who sends it. With the alert receiver people are
notified, without it there is a line in the log, and the application's own work never fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from solely import StoreUnavailable
from solely.apps.alerts.inputs.labels import announced_alert
from solely.service.announce import ANNOUNCED, Announcement, Announcements
from solely.service.metrics import Metrics
from tests.apps.inbox import Inbox, inbox
from tests.service.serving import Running, running, until


def firing(fingerprint: str = "probes/db", **given: Any) -> Announcement:
    return Announcement(
        **{
            "name": "Target down", "severity": "critical", "source": "probes", "fingerprint": fingerprint,
            "summary": "db-1 has not answered for 5 minutes", "labels": {"target": "db-1"}, **given,
        }
    )  # fmt: skip


def counted(metrics: Metrics) -> dict[str, float]:
    return {labels[0]: count for labels, count in metrics.counts().counters[ANNOUNCED.name].items()}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Inbox]:
    with inbox("fingerprint") as it:
        yield it


@pytest.fixture(scope="module")
def service(receiver: Inbox) -> Iterator[Running]:
    with running(apps=["alerts"], alerts={"publishers": [receiver.publisher]}) as it:
        yield it


def test_with_the_alert_receiver_people_are_notified_once(service: Running, receiver: Inbox) -> None:
    before = counted(service.service.metrics).get("delivered", 0)
    for _ in range(3):
        service.run(service.service.announce(firing("probes/db-1")))
    (sent,) = until(lambda: receiver.of("probes/db-1"))
    assert (sent.data["name"], sent.data["severity"], sent.data["source"]) == ("Target down", "critical", "probes")
    assert sent.data["labels"] == {"target": "db-1"}
    assert sent.data["annotations"] == {"summary": "db-1 has not answered for 5 minutes"}
    assert counted(service.service.metrics)["delivered"] == before + 3


def test_a_resolved_announcement_resolves_the_alert(service: Running, receiver: Inbox) -> None:
    for status in ("firing", "resolved", "firing"):
        service.run(service.service.announce(firing("probes/db-2", status=status)))
    until(lambda: len(receiver.of("probes/db-2")) == 3)
    assert [each.data["status"] for each in receiver.of("probes/db-2")] == ["firing", "resolved", "firing"]


def test_an_application_announces_under_its_own_name(service: Running, receiver: Inbox) -> None:
    app: Any = service.service.apps["alerts"]
    service.run(app.announce("Disk full", fingerprint="disk", severity="warning", summary="94 %"))
    (sent,) = until(lambda: receiver.of("alerts/disk"))
    assert (sent.data["source"], sent.data["severity"]) == ("alerts", "warning")


async def test_without_it_an_announcement_is_a_line_in_the_log() -> None:
    metrics = Metrics()
    announce = Announcements(metrics)
    with capture_logs() as lines:
        await announce(firing())
        await announce(firing(status="resolved"))
    assert [(each["event"], each["log_level"], each["status"]) for each in lines] == [
        ("announced", "warning", "firing"), ("announced", "info", "resolved"),
    ]  # fmt: skip
    assert (lines[0]["fingerprint"], lines[0]["summary"]) == ("probes/db", "db-1 has not answered for 5 minutes")
    assert counted(metrics) == {"logged": 2}


@pytest.mark.parametrize("error", [StoreUnavailable("the store is away"), RuntimeError("a bug")])
async def test_a_failed_delivery_is_logged_in_full_and_never_raised(error: Exception) -> None:
    metrics = Metrics()
    announce = Announcements(metrics)

    async def fail(announcement: Announcement) -> None:
        raise error

    announce.register(fail)
    with capture_logs() as lines:
        await announce(firing())
    (line,) = lines
    assert (line["event"], line["log_level"], line["error"]) == ("announcement_failed", "error", str(error))
    assert (line["name"], line["fingerprint"]) == ("Target down", "probes/db")
    assert counted(metrics) == {"failed": 1}


def test_when_the_announcer_stops_announcements_are_logged_again() -> None:
    with running(apps=["alerts"]) as it:
        announce = it.service.announce
        assert announce._announcer is not None
    assert announce._announcer is None


def test_what_is_too_long_is_cut_and_its_fingerprint_stays_its_own() -> None:
    one, other = (announced_alert(firing("x" * 300 + end, name="y" * 300, summary="z" * 9_000)) for end in "ab")
    assert one.fingerprint != other.fingerprint
    assert max(map(len, (one.fingerprint, one.name))) <= 255
    assert len(one.annotations["summary"]) == 8_192
