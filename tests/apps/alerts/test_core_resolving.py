"""A resolved notification is sent once, and only after a firing one; then the alert may fire again."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest

from solely.apps.alerts.model import RESOLVED, Alert, Notification, key_of, resolved_key
from solely.apps.alerts.notifications.publishing import QUEUE
from solely.apps.alerts.publishers import PublishFailed
from tests.apps.alerts.working import Open, Worker, alert, until, working
from tests.conftest import STORES


@pytest.fixture(params=[name for name in STORES if name != "http"])
def every_url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
async def open_everywhere(every_url: str) -> AsyncIterator[Open]:
    async with working(every_url) as open_one:
        yield open_one


@pytest.fixture
async def open_worker() -> AsyncIterator[Open]:
    async with working(f"memory://{secrets.token_hex(8)}") as open_one:
        yield open_one


def over(fingerprint: str = "cpu") -> Alert:
    return alert(fingerprint, status=RESOLVED)


def sent(worker: Worker) -> list[str]:
    return [f"{each.alert.severity} {each.alert.status}" for each in worker.publisher.notifications]


async def test_resolved_is_sent_once_and_closes_the_window(open_everywhere: Open) -> None:
    worker, other = await open_everywhere(), await open_everywhere()
    await worker.receive(alert())
    assert (await other.receive(over())).outcome == "published"
    for each in (worker, other):
        again = await each.receive(over())
        assert (again.outcome, again.reason) == ("suppressed", "not_firing")
    await asyncio.sleep(0.2)  # as long as another worker believes what it knew
    assert (await worker.receive(alert())).outcome == "published"
    assert (await worker.receive(over())).outcome == "published"
    assert sent(worker) == ["critical firing", "critical firing", "critical resolved"]
    assert sent(other) == ["critical resolved"]


async def test_what_never_fired_is_not_resolved(open_worker: Open) -> None:
    worker = await open_worker()
    outcome = await worker.receive(over())
    assert (outcome.outcome, outcome.reason, outcome.retry_after) == ("suppressed", "not_firing", None)
    assert worker.publisher.ids == []


async def test_of_many_resolutions_one_is_sent(open_worker: Open) -> None:
    workers = [await open_worker(), await open_worker()]
    await workers[0].receive(alert())
    outcomes = await asyncio.gather(*(each.receive(over()) for each in workers * 5))
    assert [each.outcome for each in outcomes].count("published") == 1
    assert sum(sent(each).count("critical resolved") for each in workers) == 1


async def test_a_raised_severity_goes_through_inside_the_window(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert(severity="warning"))
    assert (await worker.receive(alert(severity="critical"))).outcome == "published"
    assert (await worker.receive(alert(severity="warning"))).reason == "quiet"
    await worker.receive(over())
    for severity in ("warning", "critical"):  # the windows of both are closed
        assert (await worker.receive(alert(severity=severity))).outcome == "published"


async def test_resolved_that_overtakes_its_alert_is_sent_after_it(open_worker: Open) -> None:
    worker = await open_worker()
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    outcome = await worker.receive(over())
    assert (outcome.outcome, outcome.reason) == ("queued", "firing_queued")
    await worker.sweep()
    assert await worker.waiting() == 2
    worker.publisher.failure = None
    await worker.sweep_until(lambda: len(worker.publisher.ids) == 2)
    assert sent(worker) == ["critical firing", "critical resolved"]
    assert await worker.waiting() == 0


async def test_resolved_that_waited_for_nothing_is_dropped(open_worker: Open) -> None:
    worker = await open_worker()
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    await worker.receive(over())
    await asyncio.sleep(0.1)  # the pause before its next try
    item = await worker.once.queue(QUEUE).take(ttl=5, id=key_of(alert()))
    assert item is not None  # somebody takes the alert out
    await item.ack()
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert worker.publisher.ids == []


async def test_resolved_survives_publishers_that_are_away(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert())
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(over())).reason == "publish_failed"
    worker.publisher.failure = None
    await worker.sweep_until(lambda: len(worker.publisher.ids) == 2)
    assert (await worker.receive(alert())).outcome == "published"


async def test_an_alert_that_fires_again_withdraws_the_resolved_notification_that_nobody_got(
    open_everywhere: Open,
) -> None:
    worker, other = await open_everywhere(), await open_everywhere()
    await worker.receive(alert())
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(over())).reason == "publish_failed"
    for each in (worker, other):
        assert (await each.receive(alert())).reason == "quiet"
    worker.publisher.failure = None
    await worker.sweep_until_empty()
    assert sent(worker) + sent(other) == ["critical firing"]
    assert [each.alert.fingerprint for each in await other.parts.open_alerts.list()] == ["cpu"]
    assert (await other.receive(over())).outcome == "published"


async def test_a_resolved_alert_withdraws_the_reminder_that_nobody_got(open_everywhere: Open) -> None:
    worker = await open_everywhere(policies={"critical": {"quiet": 0.1}})
    await worker.receive(alert())
    worker.publisher.failure = PublishFailed("away")
    await asyncio.sleep(0.3)  # until the window is over
    assert (await worker.receive(alert())).reason == "publish_failed"
    worker.publisher.failure = None
    assert (await worker.receive(over())).outcome == "published"
    await worker.sweep_until_empty()
    assert sent(worker) == ["critical firing", "critical resolved"]
    assert await worker.parts.open_alerts.list() == []


async def test_an_alert_that_fires_while_its_resolved_notification_is_sent_is_sent_after_it(open_worker: Open) -> None:
    worker, other = await open_worker(), await open_worker()
    await worker.receive(alert())
    worker.publisher.open.clear()
    resolving = asyncio.create_task(worker.receive(over()))
    await until(lambda: len(worker.publisher.ids) == 2)
    outcome = await other.receive(alert())
    assert (outcome.outcome, outcome.reason) == ("queued", "resolved_queued")
    await other.sweep()
    assert sent(other) == []
    worker.publisher.open.set()
    await resolving
    await other.sweep_until_empty()
    assert (sent(worker), sent(other)) == (["critical firing", "critical resolved"], ["critical firing"])
    assert [each.alert.fingerprint for each in await other.parts.open_alerts.list()] == ["cpu"]


async def test_an_alert_that_fires_just_when_its_resolved_notification_is_finished_is_sent_after_it(
    open_worker: Open,
) -> None:
    """The window refuses it, and ends before it has seen what became of the resolved one."""
    worker, other = await open_worker(), await open_worker()
    await worker.receive(alert())
    worker.publisher.open.clear()
    resolving = asyncio.create_task(worker.receive(over()))
    await until(lambda: len(worker.publisher.ids) == 2)
    was_sent = other.parts.outbox._was_sent

    async def finished(notification: Notification) -> bool:
        worker.publisher.open.set()
        await resolving
        return await was_sent(notification)

    other.parts.outbox._was_sent = finished  # type: ignore[method-assign]
    outcome = await other.receive(alert())
    assert (outcome.outcome, outcome.reason) == ("queued", "resolved_queued")
    await other.sweep_until_empty()
    assert (sent(worker), sent(other)) == (["critical firing", "critical resolved"], ["critical firing"])


async def test_a_worker_that_dies_between_sending_the_resolution_and_closing_the_window_is_taken_over(
    open_worker: Open,
) -> None:
    worker = await open_worker(policies={"critical": {"hold": 0.3}})
    await worker.receive(alert())
    worker.publisher.open.clear()
    publishing = asyncio.create_task(worker.receive(over()))
    await until(lambda: len(worker.publisher.ids) == 2)
    # Another records it as sent, dies, and leaves the item: only the window is still to be closed.
    await worker.parts.receiver.finish(0.01)
    await asyncio.wait([publishing])
    await worker.once.clear_reservations(resolved_key("cpu"), reason="its holder is dead")
    await (await worker.once.reserve(resolved_key("cpu"), quiet=300)).record()
    assert await worker.parts.open_alerts.is_open(alert())
    worker.publisher.open.set()
    await worker.sweep_until_empty()
    assert len(worker.publisher.ids) == 2
    assert not await worker.parts.open_alerts.is_open(alert())
    assert (await worker.receive(alert())).outcome == "published"


async def test_an_alert_that_fires_after_such_a_death_is_sent_once_the_window_is_closed(open_worker: Open) -> None:
    worker, other = await open_worker(policies={"critical": {"hold": 0.3}}), await open_worker()
    await worker.receive(alert())
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(over())).reason == "publish_failed"  # it waits, and no worker holds it
    await (await worker.once.reserve(resolved_key("cpu"), quiet=300)).record()
    outcome = await other.receive(alert())
    assert (outcome.outcome, outcome.reason) == ("queued", "resolved_queued")
    assert await worker.parts.open_alerts.is_open(alert())
    await other.sweep_until_empty()
    assert sent(other) == ["critical firing"]
    assert [each.alert.fingerprint for each in await other.parts.open_alerts.list()] == ["cpu"]
