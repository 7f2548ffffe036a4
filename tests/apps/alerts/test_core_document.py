"""The tests that the document of the alert deduplicator names, on every kind of store and over two workers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from solely import AsyncReservation
from solely.apps.alerts.api.windows import SENDING
from solely.apps.alerts.model import AlertOutcome, key_of
from solely.apps.alerts.publishers import PublishFailed
from tests.apps.alerts.working import Open, Worker, alert, working
from tests.conftest import STORES

NOT_OVER_HTTP = [name for name in STORES if name != "http"]


@pytest.fixture(params=NOT_OVER_HTTP)
def url(request: pytest.FixtureRequest) -> str:
    """A fresh store, one of each kind."""
    return STORES[request.param](request)


@pytest.fixture
async def open_worker(url: str) -> AsyncIterator[Open]:
    """Opens workers on the store at hand."""
    async with working(url) as open_one:
        yield open_one


def outcomes(result: list[AlertOutcome]) -> dict[str, int]:
    words = [f"{each.outcome} {each.reason}".strip() for each in result]
    return {word: words.count(word) for word in words}


async def test_first_alert_goes_through(open_worker: Open) -> None:
    worker = await open_worker()
    result = await worker.receive(alert())
    assert result == AlertOutcome(outcome="published", fingerprint="cpu")
    (notification,) = worker.publisher.notifications
    assert notification.alert == alert()
    assert notification.id.startswith("msg_")
    assert await worker.waiting() == 0


async def test_recording_a_valid_reservation_updates_the_state(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert())
    (window,) = await worker.once.reservations(SENDING)
    assert (window.key, window.reason, window.sent) == (key_of(alert()), "quiet", 1)
    assert 290 < window.left <= 300  # the quiet window of critical ones


async def test_within_the_window_the_alert_is_suppressed(open_worker: Open) -> None:
    worker, other = await open_worker(), await open_worker()
    await worker.receive(alert())
    for receiver in (worker, other):
        result = await receiver.receive(alert())
        assert (result.outcome, result.reason) == ("suppressed", "quiet")
        assert result.retry_after is not None
        assert 290 < result.retry_after <= 300
    assert len(worker.publisher.ids) + len(other.publisher.ids) == 1


async def test_of_ten_concurrent_identical_alerts_only_one_goes_through(open_worker: Open) -> None:
    worker, other = await open_worker(), await open_worker()
    for each in (worker, other):
        each.publisher.open.clear()  # nothing is recorded before all have asked
    asked = [asyncio.create_task(each.receive(alert())) for each in [worker, other] * 5]
    while sum(task.done() for task in asked) < 9:
        await asyncio.wait([task for task in asked if not task.done()], return_when=asyncio.FIRST_COMPLETED)
    for each in (worker, other):
        each.publisher.open.set()
    result = await asyncio.gather(*asked)
    assert outcomes(result) == {"published": 1, "suppressed reserved": 9}
    assert len(worker.publisher.ids) + len(other.publisher.ids) == 1


async def test_ten_concurrent_different_alerts_all_go_through(open_worker: Open) -> None:
    worker = await open_worker()
    result = await asyncio.gather(*(worker.receive(alert(f"cpu-{number}")) for number in range(10)))
    assert outcomes(result) == {"published": 10}
    assert len(set(worker.publisher.ids)) == 10


async def test_check_then_act_does_not_publish_twice(open_worker: Open) -> None:
    """The race of old: both ask before either has recorded."""
    first, second = await open_worker(), await open_worker()
    first.publisher.open.clear()
    publishing = asyncio.create_task(first.receive(alert()))
    while not first.publisher.ids:
        await asyncio.sleep(0.01)
    result = await second.receive(alert())
    assert (result.outcome, result.reason) == ("suppressed", "reserved")
    first.publisher.open.set()
    assert (await publishing).outcome == "published"
    assert second.publisher.ids == []


async def test_fifty_requests_over_five_fingerprints_do_not_deadlock(open_worker: Open) -> None:
    workers = [await open_worker(), await open_worker()]
    asked = (workers[number % 2].receive(alert(f"cpu-{number % 5}")) for number in range(50))
    async with asyncio.timeout(100):
        result = await asyncio.gather(*asked)
    assert outcomes(result)["published"] == 5
    assert sum(each.outcome == "suppressed" for each in result) == 45
    sent = [each for worker in workers for each in worker.publisher.notifications]
    assert sorted(each.alert.fingerprint for each in sent) == [f"cpu-{number}" for number in range(5)]


async def test_access_to_one_key_is_serialised_by_the_store(open_worker: Open) -> None:
    """On PostgreSQL by an advisory lock: of many clients that ask at once, past all that a worker knows, one wins."""
    workers = [await open_worker() for _ in range(4)]

    async def reserve(worker: Worker) -> AsyncReservation:
        return await worker.once.reserve(key_of(alert()), hold=30)

    result = await asyncio.gather(*(reserve(worker) for worker in workers * 5))
    granted = [each for each in result if each]
    assert len(granted) == 1
    assert {each.reason for each in result if not each} == {"reserved"}
    assert await granted[0].release()


async def test_a_released_reservation_lets_a_retry_go_at_once(open_worker: Open) -> None:
    worker = await open_worker(backoff=(60,))
    worker.publisher.failure = PublishFailed("away")
    result = await worker.receive(alert())
    assert (result.outcome, result.reason) == ("queued", "publish_failed")
    assert await worker.once.reservations(SENDING) == []
    worker.publisher.failure = None
    assert (await worker.receive(alert())).outcome == "published"


async def test_recording_twice_is_idempotent(open_worker: Open) -> None:
    worker = await open_worker()
    hold = await worker.once.reserve(key_of(alert()), quiet=300)
    await hold.record()
    await hold.record()
    await worker.once.record_reservation(hold.id)
    (window,) = await worker.once.reservations(SENDING)
    assert (window.reason, window.sent) == ("quiet", 1)


async def test_an_expired_reservation_lets_a_new_alert_go(open_worker: Open) -> None:
    worker = await open_worker()
    dead = await worker.once.reserve(key_of(alert()), hold=0.3, renew=False)
    assert dead
    assert (await worker.receive(alert())).reason == "reserved"
    await asyncio.sleep(0.35)  # the store's own clock: it cannot be moved from here
    assert (await worker.receive(alert())).outcome == "published"


async def test_what_exceeds_the_rate_limit_is_suppressed(open_worker: Open) -> None:
    worker = await open_worker(policies={"critical": {"quiet": 0, "limit": 2, "per": 60}})
    result = []
    for _ in range(4):
        worker.parts.receiver.forget("cpu")
        result.append(await worker.receive(alert()))
    assert outcomes(result) == {"published": 2, "suppressed limited": 2}
    assert result[-1].retry_after is not None
    assert 50 < result[-1].retry_after <= 60


async def test_a_refusal_says_what_the_one_in_the_way_is_for(open_worker: Open) -> None:
    """By which a suppressed alert finds the trace of the one that is sent, held or quiet, on every store."""
    worker, other = await open_worker(), await open_worker()
    hold = await worker.once.reserve("cpu", purpose="CPU high 00-trace")
    assert (hold.attempts, hold.holder, hold.purpose) == (1, "", "")
    for reason in ("reserved", "quiet"):
        refused = await other.once.reserve("cpu")
        assert (refused.reason, refused.purpose, refused.attempts) == (reason, "CPU high 00-trace", 0)
        assert "(CPU high 00-trace) since" in refused.holder
        await hold.record()
