"""Publishers that fail, are slow or are gone: nobody else waits for them, and what they were to send is kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from solely import LetterOutcome
from solely.apps.alerts.api.windows import SENDING
from solely.apps.alerts.model import RESOLVED, Notification, key_of
from solely.apps.alerts.notifications.publishing import GROUP, QUEUE
from solely.apps.alerts.publishers import PublishFailed
from tests.apps.alerts.working import SOON, FakePublisher, Open, alert, until, working

SHORT = {"critical": {"hold": 0.4}}  # seconds: short enough to be waited for
HOLD = 3.0  # seconds that are renewed in time, also if the machine is busy for two of them


@pytest.fixture
async def open_worker(tmp_path: Path) -> AsyncIterator[Open]:
    async with working(f"sqlite:///{tmp_path / 'solely.sqlite3'}") as open_one:
        yield open_one


async def test_if_all_publishers_fail_it_is_queued_and_sent_when_they_are_back(open_worker: Open) -> None:
    worker = await open_worker()
    worker.publisher.failure = PublishFailed("away")
    result = await worker.receive(alert())
    assert (result.outcome, result.reason) == ("queued", "publish_failed")
    (item,) = await worker.once.queue(QUEUE).list()
    await asyncio.sleep(0.1)  # the pause before the next try
    await worker.sweep()
    assert worker.publisher.ids == []
    worker.publisher.failure = None
    await worker.sweep_until(lambda: worker.publisher.ids)
    assert worker.publisher.ids == [item.payload["id"]]
    assert await worker.waiting() == 0
    assert (await worker.receive(alert())).reason == "quiet"


async def test_a_retry_adopts_what_waits_for_its_next_try(open_worker: Open) -> None:
    worker = await open_worker(backoff=(0.3,))
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    (item,) = await worker.once.queue(QUEUE).list()
    worker.publisher.failure = None
    assert (await worker.receive(alert(name="again"))).outcome == "published"
    assert worker.publisher.ids == [item.payload["id"]]
    # Its window is closed before the sweeper comes by: it was sent, so it is not sent again.
    await worker.once.clear_reservations(SENDING, reason="test")
    await worker.sweep_until_empty()
    assert len(worker.publisher.ids) == 1


async def test_a_sent_notification_that_still_waits_blocks_nobody(open_worker: Open) -> None:
    worker = await open_worker(backoff=(60,))
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    worker.publisher.failure = None
    await worker.receive(alert())
    await worker.once.clear_reservations(SENDING, reason="test")
    worker.parts.receiver.forget("cpu")
    assert (await worker.receive(alert(name="anew"))).outcome == "published"
    assert [each.alert.name for each in worker.publisher.notifications] == ["CPU high", "anew"]
    assert len(set(worker.publisher.ids)) == 2
    assert await worker.waiting() == 0  # the first one was removed: it had been sent


async def test_a_sent_notification_that_could_be_taken_is_not_adopted(open_worker: Open) -> None:
    worker = await open_worker(backoff=(0.1,))
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    worker.publisher.failure = None
    await worker.receive(alert())
    await worker.once.clear_reservations(SENDING, reason="test")
    await asyncio.sleep(0.2)  # its pause is over, and what the worker knew is forgotten
    assert (await worker.receive(alert(name="anew"))).outcome == "published"
    await worker.sweep_until_empty()
    assert [each.alert.name for each in worker.publisher.notifications] == ["CPU high", "anew"]


async def test_one_failed_publisher_neither_loses_the_alert_nor_holds_the_others(open_worker: Open) -> None:
    good, bad = FakePublisher("good"), FakePublisher("bad")
    worker = await open_worker(good, bad)
    bad.failure = PublishFailed("away")
    assert (await worker.receive(alert())).outcome == "published"
    assert (len(good.ids), await worker.waiting()) == (1, 1)
    await worker.sweep()
    bad.failure = None
    await worker.sweep_until(lambda: bad.ids)
    assert bad.ids == good.ids
    assert len(good.ids) == 1
    assert await worker.waiting() == 0
    assert worker.counted("publisher_failures", "bad") >= 1


async def test_a_slow_publisher_is_not_waited_for_longer_than_the_sender_waits(open_worker: Open) -> None:
    worker = await open_worker(answer_within=0.05, policies={"critical": {"hold": HOLD}})
    worker.publisher.open.clear()
    result = await worker.receive(alert())
    assert (result.outcome, result.reason) == ("queued", "publishing")
    await asyncio.sleep(1.1 * HOLD)  # it is renewed, so nobody takes over
    await asyncio.wait_for(worker.sweep(), SOON)
    worker.parts.receiver.forget("cpu")
    assert (await worker.receive(alert())).reason == "reserved"
    worker.publisher.open.set()
    await worker.parts.receiver.finish(10)
    assert len(worker.publisher.ids) == 1
    assert (await worker.receive(alert())).reason == "quiet"


async def test_queued_is_not_answered_before_it_is_in_the_store(open_worker: Open) -> None:
    worker = await open_worker(answer_within=0)
    worker.publisher.open.clear()
    put_in, kept = worker.parts.outbox.add, asyncio.Event()

    async def slowly(key: str, notification: Notification, ttl: float) -> Any:
        await asyncio.sleep(0.1)
        parcel = await put_in(key, notification, ttl)
        kept.set()
        return parcel

    worker.parts.outbox.add = slowly  # type: ignore[method-assign]
    assert (await worker.receive(alert())).reason == "publishing"
    assert kept.is_set()
    worker.publisher.open.set()


async def test_if_the_sender_hangs_up_the_work_goes_on(open_worker: Open) -> None:
    worker = await open_worker()
    worker.publisher.open.clear()
    asking = asyncio.create_task(worker.receive(alert()))
    await until(lambda: worker.publisher.ids)
    asking.cancel()
    await asyncio.wait([asking])
    worker.publisher.open.set()
    await worker.parts.receiver.finish(10)
    assert (await worker.receive(alert())).reason == "quiet"
    assert len(worker.publisher.ids) == 1
    assert await worker.waiting() == 0
    assert worker.parts.capacity.active == 0


async def test_what_is_not_finished_when_the_service_stops_is_left_for_others(open_worker: Open) -> None:
    worker, other = await open_worker(answer_within=0.01, policies=SHORT), await open_worker(policies=SHORT)
    worker.publisher.open.clear()
    await worker.receive(alert())
    await worker.parts.receiver.finish(0.05)
    await worker.once.close()
    await other.sweep_until(lambda: other.publisher.ids)
    assert other.publisher.ids == worker.publisher.ids


# -- dead letters


async def test_after_so_many_attempts_it_is_a_dead_letter_that_can_be_replayed(open_worker: Open) -> None:
    worker = await open_worker(max_attempts=3)
    worker.publisher.failure = PublishFailed("away")
    assert (await worker.receive(alert())).outcome == "queued"
    (item,) = await worker.once.queue(QUEUE).list()
    letters = worker.once.dead_letters(GROUP)
    await worker.sweep_until(lambda: worker.counted("dead_lettered", "fake"))
    (letter,) = await letters.list()
    assert (letter.id, letter.attempts) == (f"{item.payload['id']}/fake", 3)
    assert letter.last_error == "away"
    assert await worker.waiting() == 0
    worker.parts.receiver.forget("cpu")
    assert (await worker.receive(alert())).reason == "quiet"  # not one dead letter per repeat
    replayed = await letters.replay(letter.id, worker.parts.publishing.replay)
    assert replayed.outcome is LetterOutcome.FAILED
    worker.publisher.failure = None
    assert (await letters.replay(letter.id, worker.parts.publishing.replay)).outcome is LetterOutcome.REPLAYED
    assert worker.publisher.ids == [item.payload["id"]]
    assert await letters.list() == []
    assert (await worker.receive(alert(status=RESOLVED))).outcome == "published"  # a firing notification was sent


async def test_a_resolution_that_nobody_can_send_closes_the_window_all_the_same(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert())
    worker.publisher.failure = PublishFailed("gone", permanent=True)
    assert (await worker.receive(alert(status=RESOLVED))).reason == "dead_lettered"
    worker.publisher.failure = None
    assert (await worker.receive(alert())).outcome == "published"


async def test_what_one_publisher_refuses_for_good_is_parked_at_once(open_worker: Open) -> None:
    good, bad = FakePublisher("good"), FakePublisher("bad")
    worker = await open_worker(good, bad)
    bad.failure = PublishFailed("no such channel", permanent=True)
    assert (await worker.receive(alert())).outcome == "published"
    (letter,) = await worker.once.dead_letters(GROUP).list()
    assert letter.payload["publisher"] == "bad"
    assert await worker.waiting() == 0


async def test_what_all_refuse_for_good_is_parked_and_quiet(open_worker: Open) -> None:
    worker = await open_worker()
    worker.publisher.failure = PublishFailed("gone", permanent=True)
    result = await worker.receive(alert())
    assert (result.outcome, result.reason) == ("queued", "dead_lettered")
    assert len(await worker.once.dead_letters(GROUP).list()) == 1
    worker.parts.receiver.forget("cpu")
    assert (await worker.waiting(), (await worker.receive(alert())).reason) == (0, "quiet")


async def test_a_retry_ends_as_a_dead_letter_too(open_worker: Open) -> None:
    good, bad = FakePublisher("good"), FakePublisher("bad")
    worker = await open_worker(good, bad, max_attempts=2)
    bad.failure = PublishFailed("away")
    await worker.receive(alert())
    await worker.sweep_until(lambda: worker.counted("dead_lettered", "bad"))
    (letter,) = await worker.once.dead_letters(GROUP).list()
    assert letter.attempts == 2
    assert await worker.waiting() == 0


async def test_what_waits_for_a_publisher_that_is_gone_from_the_settings_is_parked(open_worker: Open) -> None:
    before = await open_worker(FakePublisher("good"), FakePublisher("gone"))
    before.publishers[1].failure = PublishFailed("away")
    await before.receive(alert())
    after = await open_worker(FakePublisher("good"))
    await after.sweep_until(lambda: after.counted("dead_lettered", "gone"))
    (letter,) = await after.once.dead_letters(GROUP).list()
    assert "no publisher of this name" in letter.last_error


async def test_a_publisher_with_a_bug_is_one_that_fails(open_worker: Open) -> None:
    worker = await open_worker()
    worker.publisher.failure = ZeroDivisionError("secret detail")
    assert (await worker.receive(alert())).reason == "publish_failed"
    worker.publisher.failure = None
    assert (await worker.receive(alert())).outcome == "published"


async def test_what_cannot_be_read_is_parked_and_not_lost(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.once.queue(QUEUE).push(key_of(alert()), {"what": "is this"})
    assert (await worker.receive(alert())).outcome == "published"  # it is in nobody's way
    await worker.sweep()
    (letter,) = await worker.once.dead_letters(GROUP).list()
    assert letter.payload == {"what": "is this"}
    assert await worker.waiting() == 0


async def test_an_item_with_which_workers_died_repeatedly_is_parked_and_replayed_to_all(open_worker: Open) -> None:
    worker = await open_worker(FakePublisher("one"), FakePublisher("two"), max_attempts=1)
    left = Notification(id="msg_1", alert=alert(), at=0.0)
    await worker.parts.outbox.ensure_queued(key_of(alert()), left)
    for _ in range(6):  # each takes it and dies: its attempts, and as many crashes as are tolerated
        item = await worker.once.queue(QUEUE).take(ttl=0.05)
        assert item is not None
        await asyncio.sleep(0.1)  # the store's own clock
    await worker.sweep()
    (letter,) = await worker.once.dead_letters(GROUP).list()
    assert (letter.payload["id"], worker.publisher.ids) == ("msg_1", [])
    replay = worker.parts.publishing.replay
    assert (await worker.once.dead_letters(GROUP).replay(letter.id, replay)).outcome is LetterOutcome.REPLAYED
    assert [each.ids for each in worker.publishers] == [["msg_1"], ["msg_1"]]
    assert await worker.parts.open_alerts.is_open(alert())
