"""Openings of an alert are limited, and the last one that is sent says so."""

from __future__ import annotations

import asyncio

import msgspec

from solely.apps.alerts.messages import event
from solely.apps.alerts.model import RESOLVED, AlertOutcome, Notification
from solely.apps.alerts.publishers import PublishFailed
from tests.apps.alerts.operator import operating
from tests.apps.alerts.working import Open, Worker, alert

DAMPED = {"flap_limit": 2, "flap_per": 60.0}


async def flap(worker: Worker, times: int) -> list[AlertOutcome]:
    """What became of each opening and of each end."""
    outcomes = []
    for _ in range(times):
        worker.parts.receiver.forget("cpu")  # as if a moment had passed
        outcomes.append(await worker.receive(alert()))
        outcomes.append(await worker.receive(alert(status=RESOLVED)))
    return outcomes


async def test_openings_beyond_the_limit_are_not_sent_nor_is_their_resolution(open_anywhere: Open) -> None:
    worker = await open_anywhere(**DAMPED)
    outcomes = await flap(worker, 3)
    assert [each.outcome for each in outcomes] == ["published"] * 4 + ["suppressed"] * 2
    assert [each.reason for each in outcomes[4:]] == ["flapping", "not_firing"]
    assert outcomes[4].retry_after is not None
    assert 30 < outcomes[4].retry_after <= 60
    said = [(each.alert.status, each.flapping) for each in worker.publisher.notifications]
    assert said == [("firing", False), ("resolved", False), ("firing", True), ("resolved", False)]
    assert worker.counted("suppressed", "flapping") == 1


async def test_other_workers_count_the_same_openings(open_anywhere: Open) -> None:
    worker, other = await open_anywhere(**DAMPED), await open_anywhere(**DAMPED)
    await flap(worker, 2)
    assert [each.reason for each in await flap(other, 1)] == ["flapping", "not_firing"]


async def test_when_it_has_calmed_down_it_is_sent_again(open_anywhere: Open) -> None:
    worker = await open_anywhere(flap_limit=1, flap_per=4.0)  # longer than two openings take on a busy machine
    await flap(worker, 1)
    (damped, _) = await flap(worker, 1)
    assert damped.reason == "flapping"
    await asyncio.sleep(damped.retry_after or 0.0)  # as the response said
    worker.parts.receiver.forget("cpu")
    assert (await worker.receive(alert())).outcome == "published"


async def test_what_stays_open_is_no_opening(open_anywhere: Open) -> None:
    worker = await open_anywhere(flap_limit=1, flap_per=60.0, policies={"critical": {"quiet": 0}})
    for _ in range(3):
        worker.parts.receiver.forget("cpu")
        assert (await worker.receive(alert())).outcome == "published"
    assert (await worker.receive(alert(severity="warning"))).outcome == "published"


async def test_an_opening_that_is_tried_again_is_counted_once(open_anywhere: Open) -> None:
    worker = await open_anywhere(**DAMPED)
    worker.publisher.failure = PublishFailed("away")
    for _ in range(2):
        assert (await worker.receive(alert())).reason == "publish_failed"
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    await worker.receive(alert(status=RESOLVED))
    assert [each.outcome for each in await flap(worker, 1)] == ["published", "published"]


async def test_copies_that_refused_callers_queue_are_not_sent(open_anywhere: Open) -> None:
    workers = [await open_anywhere(**DAMPED) for _ in range(3)]
    await flap(workers[0], 2)
    for _ in range(5):
        for each in workers:
            each.parts.receiver.forget("cpu")
        outcomes = await asyncio.gather(*(each.receive(alert()) for each in workers))
        assert {each.outcome for each in outcomes} == {"suppressed"}
    await workers[0].sweep_until_empty()
    assert sum(len(each.publisher.ids) for each in workers) == 4


async def test_nor_is_what_those_leave_who_were_refused_while_one_met_its_limit(open_anywhere: Open) -> None:
    once_only = {"policies": {"critical": {"quiet": 0.0, "limit": 1}}}
    workers = [await open_anywhere(**once_only) for _ in range(3)]
    await workers[0].receive(alert())
    for _ in range(10):
        for each in workers:
            each.parts.receiver.forget("cpu")
        outcomes = await asyncio.gather(*(each.receive(alert()) for each in workers))
        assert {each.outcome for each in outcomes} == {"suppressed"}
    await workers[0].sweep_until_empty()
    assert sum(len(each.publisher.ids) for each in workers) == 1


async def test_without_the_setting_nothing_is_damped(open_anywhere: Open) -> None:
    worker = await open_anywhere(policies={"critical": {"limit": 0}})
    assert {each.outcome for each in await flap(worker, 5)} == {"published"}


def test_receivers_see_that_it_flaps() -> None:
    notification = Notification(id="msg_1", alert=alert(), at=0.0, flapping=True)
    assert msgspec.json.decode(event(notification))["data"]["flapping"] is True
    assert notification.remarks == ["flapping"]


def test_flapping_over_http_and_why() -> None:
    with operating(flap_limit=1, flap_per=60.0) as desk:
        desk.send("http")
        desk.send("http", status="resolved")
        damped = desk.send("http")
        assert (damped["reason"], damped["retryAfter"] > 30) == ("flapping", True)
        assert desk.send("http", status="resolved")["reason"] == "not_firing"
        assert any("flaps" in sentence for sentence in desk.why("http")["verdict"])
