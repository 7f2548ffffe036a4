"""What fires now: each alert that fires is listed, with who was notified and who suppresses it, until it resolves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from solely import InvalidInput
from solely.apps.alerts.model import RESOLVED, Alert, fingerprint_prefix, key_of
from solely.apps.alerts.publishers import PublishFailed
from solely.apps.alerts.suppression.open_alerts import OpenAlert
from tests.apps.alerts.operator import operating
from tests.apps.alerts.working import FakePublisher, Open, Worker, alert

EAST: dict[str, Any] = {"labels": {"cluster": "east"}}


def names(rows: list[OpenAlert]) -> list[str]:
    return [row.alert.fingerprint for row in rows]


async def listed(worker: Worker, **query: Any) -> list[OpenAlert]:
    return await worker.parts.open_alerts.list(**query)


def over(fingerprint: str, **given: Any) -> Alert:
    return alert(fingerprint, status=RESOLVED, **given)


async def test_what_fires_is_listed_in_every_worker_until_it_is_resolved(open_anywhere: Open) -> None:
    worker, other = await open_anywhere(), await open_anywhere()
    began = time.time()
    await worker.receive(alert("cpu", labels={"host": "web-1"}))
    (row,) = await listed(other)
    assert row.alert == alert("cpu", labels={"host": "web-1"})
    assert began <= row.since <= (row.last_notified or 0.0) <= time.time()
    assert (row.acknowledged, row.silenced) == (None, None)
    since = row.since
    await other.receive(alert("cpu"))  # a repeat is the same alert
    assert [each.since for each in await listed(worker)] == [since]
    await other.receive(over("cpu"))
    assert await listed(worker) == []


async def test_the_worst_come_first_and_of_one_severity_the_newest(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    for fingerprint, severity in (("a", "info"), ("b", "critical"), ("c", "odd"), ("d", "Warning"), ("e", "critical")):
        await worker.receive(alert(fingerprint, severity))
    assert names(await listed(worker)) == ["e", "b", "d", "a", "c"]
    assert names(await listed(worker, limit=2)) == ["e", "b"]
    assert names(await listed(worker, severity="Critical")) == ["e", "b"]
    assert names(await listed(worker, matchers=["severity!=critical", "fingerprint=~[a-c]"])) == ["a", "c"]
    with pytest.raises(InvalidInput, match="not a matcher"):
        await listed(worker, matchers=["nonsense"])


async def test_an_alert_that_nobody_was_notified_of_is_listed_too(open_anywhere: Open) -> None:
    worker = await open_anywhere(FakePublisher(severities=("critical",)), policies={"critical": {"limit": 1}})
    made = await worker.silences.add(["fingerprint=silenced"], ends=time.time() + 60, by="ann", reason="works")
    for given in (alert("silenced"), alert("unwanted", "info")):
        assert (await worker.receive(given)).outcome == "suppressed"
    rows = {row.alert.fingerprint: row for row in await listed(worker)}
    assert {name: row.last_notified for name, row in rows.items()} == {"silenced": None, "unwanted": None}
    assert (rows["silenced"].silenced, rows["unwanted"].silenced) == (made, None)
    for fingerprint in rows:
        assert (await worker.receive(over(fingerprint))).reason == "not_firing"
    assert await listed(worker) == []


async def test_a_limited_or_flapping_alert_is_listed(open_anywhere: Open) -> None:
    worker = await open_anywhere(flap_limit=1, severity_limits={"critical": {"limit": 2, "per": 60}})
    await worker.receive(alert("flaps"))
    await worker.receive(over("flaps"))
    assert (await worker.receive(alert("flaps"))).reason == "flapping"
    await worker.receive(alert("other"))
    assert (await worker.receive(alert("too-many"))).reason == "limited"
    assert {row.alert.fingerprint: row.last_notified is None for row in await listed(worker)} == {
        "flaps": True,
        "other": False,
        "too-many": True,
    }


async def test_who_acknowledged_it_is_listed(open_anywhere: Open) -> None:
    worker = await open_anywhere(group_by=["labels.cluster"])
    for fingerprint in ("a", "b", "c"):
        await worker.receive(alert(fingerprint, **EAST))
    await worker.receive(alert("d"))
    mine = await worker.parts.acknowledgements.add("a", lasts=60, by="ann")
    group = await worker.parts.acknowledgements.add("group:labels.cluster=east", lasts=60, by="bob")
    await worker.parts.acknowledgements.add("d", severity="warning", lasts=60, by="eve")
    rows = {row.alert.fingerprint: row for row in await listed(worker)}
    assert {name: row.acknowledged for name, row in rows.items()} == {"a": mine, "b": group, "c": group, "d": None}


async def test_alerts_of_a_group_are_listed_one_by_one_and_the_group_is_not(open_anywhere: Open) -> None:
    worker = await open_anywhere(group_by=["labels.cluster"])
    for fingerprint in ("a", "b"):
        await worker.receive(alert(fingerprint, **EAST))
    rows = await listed(worker)
    assert sorted(names(rows)) == ["a", "b"]
    assert {row.alert.group for row in rows} == {"labels.cluster=east"}
    assert all(row.last_notified for row in rows)  # their group was notified
    await worker.receive(over("a", **EAST))
    assert names(await listed(worker)) == ["b"]
    await worker.receive(over("b", **EAST))
    assert await listed(worker) == []


async def test_a_silenced_alert_of_a_group_is_listed_once_and_does_not_keep_the_group_open(open_anywhere: Open) -> None:
    worker = await open_anywhere(group_by=["labels.cluster"])
    await worker.receive(alert("a", **EAST))
    made = await worker.silences.add(["fingerprint=b"], ends=time.time() + 60, by="ann", reason="works")
    assert (await worker.receive(alert("b", **EAST))).reason == "silenced"
    assert sorted(names(await listed(worker))) == ["a", "b"]
    assert (await worker.receive(over("a", **EAST))).outcome == "published"
    assert names(await listed(worker)) == ["b"]
    await worker.silences.expire(made.id, by="ann", reason="done")
    assert (await worker.receive(alert("b", **EAST))).outcome == "published"
    assert names(await listed(worker)) == ["b"]
    assert (await worker.receive(over("b", **EAST))).outcome == "published"
    assert await listed(worker) == []


async def test_a_raised_severity_is_the_same_alert_and_shown_as_it_is_now(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    for severity in ("warning", "critical"):
        await worker.receive(alert("cpu", severity))
    (row,) = await listed(worker)
    assert row.alert.severity == "critical"


async def test_resolving_closes_the_windows_of_every_severity_by_name(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    for severity in ("info", "warning", "critical"):
        await worker.receive(alert("cpu", severity))

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a resolve must not list what belongs to other alerts")

    outbox = worker.parts.outbox._queue
    list_items, listed_items = outbox.list, list[str]()

    async def list_few(*, after: str, limit: int) -> Any:
        assert limit <= 10
        listed_items.append(after)
        return await list_items(after=after, limit=limit)

    worker.parts.open_alerts._notes._queue.list = refuse  # type: ignore[method-assign,assignment]
    outbox.list = list_few  # type: ignore[method-assign,assignment]
    worker.once.clear_reservations = refuse  # type: ignore[method-assign,assignment]
    assert (await worker.receive(over("cpu"))).outcome == "published"
    assert listed_items == [fingerprint_prefix("cpu")]  # its own queued notifications
    for severity in ("info", "warning", "critical"):
        assert (await worker.receive(alert("cpu", severity))).outcome == "published"


async def test_severities_that_open_at_once_are_all_noted(open_anywhere: Open) -> None:
    workers = [await open_anywhere() for _ in range(3)]
    severities = [f"severity-{number}" for number in range(9)]
    given = [alert("cpu", severity) for severity in severities]
    await asyncio.gather(*(workers[number % 3].receive(each) for number, each in enumerate(given)))
    record = await workers[0].parts.open_alerts.read(alert("cpu"))
    assert record is not None
    assert {severity: each.times for severity, each in record.notified.items()} == dict.fromkeys(severities, 1)
    assert (await workers[0].receive(over("cpu"))).outcome == "published"
    for each in workers:
        each.parts.receiver.forget("cpu")
    assert {(await workers[0].receive(each)).outcome for each in given} == {"published"}


async def test_a_queued_notification_is_dropped_when_a_silence_begins(open_anywhere: Open) -> None:
    """The same order for what comes in and for what waits."""
    worker = await open_anywhere()
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(alert())).reason == "publish_failed"
    made = await worker.silences.add(["name=~CPU.*"], ends=time.time() + 60, by="ann", reason="works")
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert worker.publisher.ids == []
    assert await worker.silences.expire(made.id, by="ann", reason="done")
    assert (await worker.receive(alert())).outcome == "published"
    assert (await worker.receive(over("cpu"))).outcome == "published"


async def test_a_resolution_that_waits_is_not_sent_while_its_group_fires_again(open_anywhere: Open) -> None:
    worker = await open_anywhere(group_by=["labels.cluster"])
    await worker.receive(alert("a", **EAST))
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(over("a", **EAST))).reason == "publish_failed"
    assert (await worker.receive(alert("b", **EAST))).reason == "grouped"
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert len(worker.publisher.ids) == 1
    assert (await worker.receive(over("b", **EAST))).outcome == "published"


async def test_a_silenced_alert_is_answered_without_the_store(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    await worker.silences.add(["name=~CPU.*"], ends=time.time() + 60, by="ann", reason="works")
    await worker.once.close()
    assert (await worker.receive(alert())).reason == "silenced"


async def test_the_window_of_an_alert_that_was_silenced_later_is_closed_by_its_resolution(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    await worker.receive(alert())
    await worker.silences.add(["name=~CPU.*"], ends=time.time() + 60, by="ann", reason="works")
    assert (await worker.receive(alert())).reason == "silenced"
    assert (await worker.receive(over("cpu"))).outcome == "published"
    assert await worker.once.reservations(key_of(alert())) == []


def test_what_fires_over_http() -> None:
    with operating() as desk:
        for fingerprint, severity in (("a", "critical"), ("b", "warning")):
            desk.send(fingerprint, severity, labels={"host": f"web-{fingerprint}"})
        desk.post("/api/alerts/acknowledge", {"fingerprint": "a", "comment": "on it"}, "write")
        silence = {"matchers": ["host=web-b"], "lasts": 60.0, "reason": "a test wants it"}
        made = desk.post("/api/alerts/silences", silence).json()
        first, second = desk.ask("/api/alerts/firing")["firing"]
        assert (first["alert"]["fingerprint"], first["acknowledged"]["comment"]) == ("a", "on it")
        assert (second["alert"]["labels"], second["silenced"]["id"]) == ({"host": "web-b"}, made["id"])
        assert first["last_notified"] >= first["since"]
        for query in (
            {"severity": "warning"},
            {"matchers": "host=web-b\nseverity!=critical"},
            {"matchers": "host!=web-a"},
        ):
            assert [each["alert"]["fingerprint"] for each in desk.ask("/api/alerts/firing", **query)["firing"]] == ["b"]
        refused = desk.get("/api/alerts/firing", matchers="host=~(?=a)")
        assert (refused.status_code, "invalid perl operator" in refused.json()["detail"]) == (400, True)
        for fingerprint in ("a", "b"):
            desk.send(fingerprint, status="resolved")
        assert desk.ask("/api/alerts/firing")["firing"] == []
