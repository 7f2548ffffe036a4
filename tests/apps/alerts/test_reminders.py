"""An alert that stays unresolved is sent again: the first time after `quiet`, then every `remind`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from solely import AsyncClient
from solely.apps.alerts.api.windows import SENDING
from solely.apps.alerts.messages import event
from solely.apps.alerts.model import RESOLVED, Alert, Notification, key_of
from solely.apps.alerts.publishers import PublishFailed
from solely.apps.alerts.settings import AlertsSettings
from solely.apps.alerts.windows import Windows
from tests.apps.alerts.operator import operating
from tests.apps.alerts.working import SOON, Open, Worker, alert

REMIND = {"policies": {"critical": {"quiet": 0.3, "remind": 60.0}}}


async def received_until_told(worker: Worker, given: Alert) -> None:
    """Sends it again and again, as monitors do, until it is sent."""
    ends = time.monotonic() + SOON
    while (await worker.receive(given)).outcome != "published":
        assert time.monotonic() < ends, "it took too long"
        await asyncio.sleep(0.05)


async def window(worker: Worker, given: Alert) -> float:
    """Seconds that it is quiet."""
    (found,) = await worker.once.reservations(key_of(given))
    return found.left


async def test_the_first_window_is_quiet_and_the_next_ones_remind(open_anywhere: Open) -> None:
    worker, other = await open_anywhere(**REMIND), await open_anywhere(**REMIND)
    await worker.receive(alert())
    assert await window(worker, alert()) <= 0.3
    await received_until_told(other, alert())
    assert 55 < await window(worker, alert()) <= 60
    again = await worker.receive(alert())
    assert (again.reason, again.retry_after is not None and again.retry_after > 50) == ("quiet", True)
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    await received_until_told(worker, alert())
    assert [each.reminder for each in (*worker.publisher.notifications, *other.publisher.notifications)] == [0, 2, 1]


async def test_after_it_was_over_the_next_one_is_the_first_again(open_anywhere: Open) -> None:
    worker = await open_anywhere(**REMIND)
    await worker.receive(alert())
    await received_until_told(worker, alert())
    await worker.receive(alert(status=RESOLVED))
    await worker.receive(alert())
    assert [each.reminder for each in worker.publisher.notifications] == [0, 1, 0, 0]
    assert await window(worker, alert()) <= 0.3


async def test_a_reminder_that_failed_is_sent_again_as_the_same_reminder(open_anywhere: Open) -> None:
    worker = await open_anywhere(**REMIND)
    await worker.receive(alert())
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    worker.parts.receiver.forget("cpu")
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(alert())).reason == "publish_failed"
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert [each.reminder for each in worker.publisher.notifications] == [0, 1]
    assert 55 < await window(worker, alert()) <= 60


async def test_severities_are_reminded_of_each_on_its_own(open_anywhere: Open) -> None:
    worker = await open_anywhere(**REMIND)
    for severity in ("critical", "warning"):
        await worker.receive(alert(severity=severity))
    await worker.once.clear_reservations(SENDING, reason="test")
    worker.parts.receiver.forget("cpu")
    for severity in ("critical", "warning"):  # the second has no `remind`
        await worker.receive(alert(severity=severity))
    assert [each.reminder for each in worker.publisher.notifications] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, (None, None)),
        ({"default": {"remind": 60}}, (None, 60.0)),
        ({"Critical": {"remind": 60}}, (60.0, None)),
        ({"default": {"remind": 60}, "info": {"quiet": 5}}, (None, 60.0)),
        ({"default": {"remind": 60}, "critical": {"remind": 5}}, (5.0, 60.0)),
    ],
    ids=str,
)
def test_which_severities_are_reminded_of(policies: dict[str, Any], expected: tuple[float | None, ...]) -> None:
    windows = Windows(AsyncClient("memory://"), msgspec.convert({"policies": policies}, AlertsSettings))
    assert (windows.remind("critical"), windows.remind("Info")) == expected


def test_receivers_get_the_number_of_the_reminder() -> None:
    first = Notification(id="msg_1", alert=alert(), at=0.0)
    again = msgspec.structs.replace(first, reminder=2)
    assert "reminder" not in msgspec.json.decode(event(first))["data"]
    assert msgspec.json.decode(event(again))["data"]["reminder"] == 2
    assert again.remarks == ["reminder 2"]


def test_reminders_over_http() -> None:
    with operating(policies={"critical": {"quiet": 0.0, "remind": 60.0}}) as desk:
        assert desk.send("http")["outcome"] == "published"
        ends = time.monotonic() + SOON
        while desk.send("http")["outcome"] != "published":
            assert time.monotonic() < ends
        outcome = desk.send("http")
        assert (outcome["outcome"], outcome["retryAfter"] > 50) == ("suppressed", True)
