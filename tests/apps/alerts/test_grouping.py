"""Alerts of one group and severity share a window: one notification, which lists them, and one when all are over."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from solely import InvalidInput
from solely.apps.alerts.messages import event, slack_message
from solely.apps.alerts.model import (
    MAX_GROUP,
    RESOLVED,
    Alert,
    AlertOutcome,
    Member,
    Notification,
    group_of,
    key_of,
    subject_of,
)
from solely.apps.alerts.publishers import EmailSettings, PublishFailed
from solely.apps.alerts.settings import AlertsSettings
from tests.apps.alerts.operator import operating
from tests.apps.alerts.working import Open, Worker, alert, until
from tests.service.serving import TOKENS

BY_CLUSTER = {"group_by": ["labels.cluster"]}
EAST = "labels.cluster=east"


def of(fingerprint: str, cluster: str = "east", **given: Any) -> Alert:
    return alert(fingerprint, labels={"cluster": cluster}, **given)


def over(fingerprint: str, cluster: str = "east") -> Alert:
    return of(fingerprint, cluster, status=RESOLVED)


def sent(worker: Worker) -> list[str]:
    return [f"{each.alert.status} {each.alert.fingerprint}" for each in worker.publisher.notifications]


def said(outcome: AlertOutcome) -> str:
    return outcome.reason or outcome.outcome


async def test_a_group_is_sent_once_and_again_when_all_of_it_resolved(open_anywhere: Open) -> None:
    worker, other = await open_anywhere(**BY_CLUSTER), await open_anywhere(**BY_CLUSTER)
    assert said(await worker.receive(of("a"))) == "published"
    for each in (worker, other):
        suppressed = await each.receive(of("b"))
        assert (suppressed.outcome, suppressed.reason) == ("suppressed", "grouped")
        assert suppressed.retry_after is not None
        assert 290 < suppressed.retry_after <= 300
    assert said(await worker.receive(of("c", "west"))) == "published"
    assert said(await other.receive(over("a"))) == "grouped"
    assert said(await worker.receive(over("a"))) == "not_firing"
    assert said(await worker.receive(over("b"))) == "published"
    assert said(await worker.receive(over("b"))) == "not_firing"
    assert said(await worker.receive(of("b"))) == "published"
    assert sent(worker) == ["firing a", "firing c", "resolved b", "firing b"]


async def test_the_notification_lists_who_fires(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER)
    for fingerprint in ("a", "b", "c"):
        await worker.receive(of(fingerprint, name=f"Node {fingerprint}"))
    await worker.receive(over("b"))
    await worker.once.expire_reservation(key_of(of("a", group=EAST)), reason="test")
    worker.parts.receiver.forget(subject_of(of("a", group=EAST)))
    assert said(await worker.receive(of("c", name="Node c"))) == "published"
    first, second = worker.publisher.notifications
    assert [each.name for each in first.members] == ["Node a"]
    assert second.members == tuple(
        Member(fingerprint=each, name=f"Node {each}", severity="critical") for each in ("a", "c")
    )
    assert second.alert.group == EAST


async def test_of_a_herd_one_is_sent(open_anywhere: Open) -> None:
    workers = [await open_anywhere(**BY_CLUSTER), await open_anywhere(**BY_CLUSTER)]
    sent = [each.receive(of(f"node-{number}")) for number in range(10) for each in workers]
    outcomes = await asyncio.gather(*sent)
    assert [each.outcome for each in outcomes].count("published") == 1
    assert {each.reason for each in outcomes if each.outcome != "published"} <= {"grouped", "reserved"}
    for each in workers:
        await each.sweep_until_empty()
    assert sum(len(each.publisher.ids) for each in workers) == 1
    ended = await asyncio.gather(*(workers[number % 2].receive(over(f"node-{number}")) for number in range(10)))
    assert [each.outcome for each in ended].count("published") == 1


async def test_severities_have_windows_of_their_own_in_one_group(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER)
    assert said(await worker.receive(of("a", severity="warning"))) == "published"
    assert said(await worker.receive(of("b", severity="critical"))) == "published"
    assert said(await worker.receive(of("c", severity="warning"))) == "grouped"
    for fingerprint, expected in (("a", "grouped"), ("b", "grouped"), ("c", "published")):
        assert said(await worker.receive(over(fingerprint))) == expected


async def test_one_that_comes_just_when_the_group_resolves_is_sent(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER)
    await worker.receive(of("a"))
    worker.publisher.open.clear()
    ending = asyncio.create_task(worker.receive(over("a")))
    await until(lambda: len(worker.publisher.ids) == 2)
    assert said(await worker.receive(of("b"))) == "resolved_queued"  # behind the one that is being sent
    worker.publisher.open.set()
    assert said(await ending) == "published"
    await worker.sweep_until_empty()
    assert sent(worker) == ["firing a", "resolved a", "firing b"]
    assert said(await worker.receive(over("b"))) == "published"


async def test_the_resolution_of_a_group_that_is_still_queued_is_sent_after_it(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER)
    worker.publisher.failure = PublishFailed("away")
    assert said(await worker.receive(of("a"))) == "publish_failed"
    assert said(await worker.receive(over("a"))) == "firing_queued"
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert sent(worker) == ["firing a", "resolved a"]


async def test_a_resolve_whose_worker_died_can_be_repeated(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER)
    await worker.receive(of("a"))
    await worker.parts.open_alerts.leave(of("a", group=EAST))  # and then it died
    assert said(await worker.receive(over("a"))) == "published"


async def test_a_sender_can_name_the_group(open_anywhere: Open) -> None:
    worker = await open_anywhere()
    assert said(await worker.receive(alert("a", group="db"))) == "published"
    assert said(await worker.receive(alert("b", group="db"))) == "grouped"
    assert said(await worker.receive(alert("b"))) == "published"  # alone, it is another
    assert said(await worker.receive(alert("a", group="db", status=RESOLVED))) == "grouped"
    assert said(await worker.receive(alert("b", group="db", status=RESOLVED))) == "published"


async def test_a_group_or_one_of_it_can_be_acknowledged(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER, policies={"critical": {"quiet": 0.0}})
    group = subject_of(of("a", group=EAST))
    await worker.receive(of("a"))
    await worker.parts.acknowledgements.add("a", lasts=60, by="ann")
    worker.parts.receiver.forget(group)
    assert said(await worker.receive(of("a"))) == "acknowledged"
    assert said(await worker.receive(of("b"))) == "published"
    await worker.parts.acknowledgements.add(group, lasts=60, by="ann")
    worker.parts.receiver.forget(group)
    assert said(await worker.receive(of("b"))) == "acknowledged"


async def test_who_was_at_one_that_is_over_is_no_longer_though_others_fire(open_anywhere: Open) -> None:
    worker = await open_anywhere(**BY_CLUSTER)
    for fingerprint in ("a", "b"):
        await worker.receive(of(fingerprint))
        await worker.parts.acknowledgements.add(fingerprint, lasts=60, by="ann")
    assert said(await worker.receive(over("b"))) == "grouped"
    assert [each.fingerprint for each in await worker.parts.acknowledgements.list()] == ["a"]


def test_what_a_group_is_made_of() -> None:
    fields = ("name", "labels.cluster")
    assert group_of(of("a"), fields) == "name=CPU high,labels.cluster=east"
    assert group_of(alert("a"), ("labels.cluster", "annotations.team")) == ""
    names = {
        group_of(of("a", cluster, name=name), fields) for name, cluster in (("a,b", "c"), ("a", "b,c"), ("a", "b"))
    }
    assert len(names) == 3
    assert len(group_of(of("a", "x" * 500), fields)) == 64
    assert len(group_of(of("a", "ä" * 200), fields)) <= MAX_GROUP


@pytest.mark.parametrize("field", ["labels", "severity", "labels.", "colour"])
def test_fields_that_make_no_group_are_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match="group_by"):
        AlertsSettings(group_by=(field,))


def test_receivers_get_the_group() -> None:
    members = (Member(fingerprint="a", name="Node a", severity="critical"),)
    notification = Notification(id="msg_1", alert=alert("a", group="db"), at=0.0, members=members)
    data = msgspec.json.decode(event(notification))["data"]
    assert (data["group"], data["alerts"]) == ("db", [{"fingerprint": "a", "name": "Node a", "severity": "critical"}])
    assert "group" not in msgspec.json.decode(event(Notification(id="msg_1", alert=alert(), at=0.0)))["data"]


def test_people_read_of_the_group_too() -> None:
    members = tuple(Member(fingerprint=each, name=f"Node {each}", severity="critical") for each in ("a", "<b>"))
    notification = Notification(id="msg_1", alert=alert("a", group="db"), at=0.0, members=members, reminder=1)
    text = slack_message(notification)
    assert text["text"] == "[FIRING] critical: CPU high (reminder 1, group db)"
    assert text["attachments"][0]["fields"][1]["value"] == "Node a, Node &lt;b&gt;"
    settings = EmailSettings(name="m", host="mail.example.org", sender="a@example.org", to=("b@example.org",))
    mail = settings.message(notification)
    assert mail["Subject"] == "[FIRING] critical: CPU high (reminder 1, group db)"
    assert "alert of the group: critical: Node a" in mail.get_content()


def test_a_resolve_of_pagerduty_finds_its_group() -> None:
    with operating(group_by=["labels.group"]) as desk:
        payload = {"summary": "Node down", "source": "rack", "severity": "critical", "group": "rack 7"}
        event = {"routing_key": TOKENS["write"], "payload": payload}
        for action, name in (("trigger", "a"), ("trigger", "b"), ("resolve", "a"), ("resolve", "b")):
            sent = event if action == "trigger" else {"routing_key": TOKENS["write"]}
            answer = desk.service.post("/v2/enqueue", {**sent, "event_action": action, "dedup_key": name})
            assert answer.status_code == 202
        rows = desk.history(2)
        assert [(row["status"], row["fingerprint"]) for row in rows] == [("resolved", "b"), ("firing", "a")]
        assert [(each["reason"], each["count"]) for each in desk.why("a")["suppressed"]] == [("grouped", 1)]


def test_groups_over_http_and_why() -> None:
    with operating(group_by=["labels.cluster"]) as desk:
        for fingerprint, expected in (("a", "published"), ("b", "suppressed")):
            assert desk.send(fingerprint, labels={"cluster": "east"})["outcome"] == expected
        assert desk.send("c", group="named")["outcome"] == "published"
        for fingerprint in ("b", f"group:{EAST}"):
            known = desk.why(fingerprint)
            assert [each["fingerprint"] for each in known["group"]["firing"]] == ["a", "b"]
            assert [each["fingerprint"] for each in known["windows"]] == [f"group:{EAST}"]
            assert any(f"of the group {EAST} was sent and is quiet" in sentence for sentence in known["verdict"])
        assert [(each["reason"], each["count"]) for each in desk.why("b")["suppressed"]] == [("grouped", 1)]
        assert desk.why("d")["group"] is None
        (row,) = desk.history(1, fingerprint="a")
        assert row["group_name"] == EAST
        made = desk.post("/api/alerts/acknowledge", {"fingerprint": "b"}, "write")  # sent in its group
        assert made.status_code == 200
        ended = desk.post(
            "/api/alerts/reservations/expire",
            {"fingerprint": f"group:{EAST}", "severity": "critical", "reason": "a test wants it"},
        )
        assert ended.json() == {"expired": True}
        assert desk.send("b", labels={"cluster": "east"})["reason"] == "acknowledged"
        assert desk.send("a", labels={"cluster": "east"})["outcome"] == "published"
