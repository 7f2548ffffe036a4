"""Limits, caps, keys that do not collide, and what a worker knows without asking the store."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

import pytest

from solely import Limited
from solely.apps.alerts.api.windows import SENDING
from solely.apps.alerts.decision import RESERVED, Decision
from solely.apps.alerts.demo import demo
from solely.apps.alerts.model import fingerprint_of, key_of
from solely.apps.alerts.publishers import PublishFailed
from solely.apps.alerts.settings import AlertsSettings
from solely.apps.alerts.worker import FRESH, MOST, Capacity, RefusalCache
from solely.service.problems import Problem
from tests.apps.alerts.working import FakePublisher, Open, alert, until, working


@pytest.fixture
async def open_worker() -> AsyncIterator[Open]:
    async with working(f"memory://{secrets.token_hex(8)}") as open_one:
        yield open_one


async def test_separators_in_fingerprints_do_not_make_two_alerts_one(open_worker: Open) -> None:
    worker = await open_worker()
    pairs = [("a/b", "c"), ("a", "b/c"), ("a:b", "c"), ("a", "b:c"), ("a%2Fb", "c"), ("a~", "c"), ("a%7E", "c")]
    pairs += [("x" * 255, "critical"), ("x" * 254, "critical"), ("\x00", "critical"), ("ä", "critical")]
    for fingerprint, severity in pairs:
        assert (await worker.receive(alert(fingerprint, severity))).outcome == "published"
    assert len({key_of(alert(*pair)) for pair in pairs}) == len(pairs)
    assert len(worker.publisher.ids) == len(pairs)
    assert len(key_of(alert("ä" * 255, "ä" * 255)).encode()) <= 500


def test_fingerprints_of_fields_do_not_collide() -> None:
    assert fingerprint_of([("a", "b=c")]) != fingerprint_of([("a=b", "c")])
    assert fingerprint_of([("a", "1"), ("b", "2")]) == fingerprint_of([("b", "2"), ("a", "1")])
    assert fingerprint_of([("a", "1\x1fb=2")]) != fingerprint_of([("a", "1"), ("b", "2")])


async def test_a_severity_has_a_limit_of_its_own(open_worker: Open) -> None:
    worker = await open_worker(severity_limits={"Critical": {"limit": 2, "per": 60}})
    result = [await worker.receive(alert(f"cpu-{number}")) for number in range(4)]
    assert [each.reason or each.outcome for each in result] == ["published", "published", "limited", "limited"]
    assert result[-1].retry_after is not None
    assert 50 < result[-1].retry_after <= 60
    assert (await worker.receive(alert("cpu-9", "warning"))).outcome == "published"


async def test_a_publish_that_failed_gives_its_hits_back(open_worker: Open) -> None:
    worker = await open_worker(policies={"critical": {"limit": 1, "per": 60}})
    worker.publisher.failure = PublishFailed("away")
    await worker.receive(alert())
    worker.publisher.failure = None
    assert (await worker.receive(alert())).outcome == "published"


async def test_beyond_the_cap_nothing_is_taken_in_and_nothing_is_given_up(open_worker: Open) -> None:
    worker = await open_worker(max_active=2, answer_within=0.01)
    worker.publisher.open.clear()
    for number in range(2):
        assert (await worker.receive(alert(f"cpu-{number}"))).reason == "publishing"
    with pytest.raises(Limited, match="max_active"):
        await worker.receive(alert("cpu-2"))
    with pytest.raises(Problem) as refused:
        worker.parts.receiver.check_capacity("tester")
    assert (refused.value.kind.status, refused.value.document.retry_after) == (429, 1)
    assert (await worker.receive(alert("cpu-0"))).reason == "reserved"  # what is known needs no place
    worker.publisher.open.set()
    await worker.parts.receiver.finish(10)
    assert (await worker.receive(alert("cpu-2"))).outcome in ("published", "queued")  # by how quickly it is sent here
    await worker.parts.receiver.finish(10)
    assert worker.publisher.notifications[-1].alert.fingerprint == "cpu-2"
    assert worker.parts.capacity.active == 0


async def test_a_request_of_many_reports_each(open_worker: Open) -> None:
    worker = await open_worker(max_active=2, answer_within=0.01)
    worker.publisher.open.clear()
    result = await worker.parts.receiver.receive_all([alert(f"cpu-{number}") for number in range(3)])
    assert sum(isinstance(each, Limited) for each in result) == 1
    worker.publisher.open.set()


def test_a_token_has_its_own_limit_of_requests() -> None:
    capacity = Capacity(AlertsSettings(request_limit=3, request_per=0.3, max_active=10))
    for _ in range(3):
        capacity.check("one")
    with pytest.raises(Problem, match="request_limit") as refused:
        capacity.check("one")
    assert refused.value.kind.status == 429
    assert dict(refused.value.headers)[b"retry-after"] == b"1"
    capacity.check("other")
    time.sleep(0.3)
    capacity.check("one")


# -- what a worker knows


async def test_a_storm_in_one_worker_asks_the_store_once(open_worker: Open) -> None:
    worker = await open_worker()
    result = await asyncio.gather(*(worker.receive(alert()) for _ in range(100)))
    result += [await worker.receive(alert()) for _ in range(100)]
    assert [each.outcome for each in result].count("published") == 1
    (window,) = await worker.once.reservations(SENDING)
    assert window.suppressed == 0  # the store was never asked again
    assert worker.counted("received") == 200
    assert worker.counted("suppressed", "reserved") + worker.counted("suppressed", "quiet") == 199


async def test_what_an_admin_does_here_is_true_at_once(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert())
    assert (await worker.receive(alert())).reason == "quiet"
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    worker.parts.receiver.forget("cpu")
    assert (await worker.receive(alert())).outcome == "published"


async def test_what_an_admin_does_elsewhere_is_true_a_moment_later(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.receive(alert())
    await worker.receive(alert())
    await worker.once.expire_reservation(key_of(alert()), reason="test")
    await asyncio.sleep(FRESH)
    assert (await worker.receive(alert())).outcome == "published"


async def test_if_the_one_that_asks_goes_away_the_next_one_asks() -> None:
    recent, asked = RefusalCache(), asyncio.Event()
    refusal = Decision(RESERVED, 9.0)

    async def hang() -> tuple[str | None, Decision]:
        asked.set()
        await asyncio.sleep(60)
        return "leader", refusal

    async def answer() -> tuple[str | None, Decision]:
        await asyncio.sleep(0)
        return "follower", refusal

    leader = asyncio.create_task(recent.decide_once("key", hang))
    await asked.wait()
    followers = [asyncio.create_task(recent.decide_once("key", answer)) for _ in range(3)]
    await asyncio.sleep(0)
    leader.cancel()
    assert await asyncio.gather(*followers) == ["follower", refusal, refusal]
    assert leader.cancelled()


async def test_what_fails_for_the_one_that_asks_fails_for_all(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.once.close()
    result = await worker.parts.receiver.receive_all([alert()] * 5)
    assert not any(hasattr(each, "outcome") for each in result)
    assert worker.parts.capacity.active == 0


def test_memory_is_bounded() -> None:
    recent = RefusalCache()
    for number in range(MOST + 10):
        recent.remember(str(number), Decision(RESERVED, 9.0))
    assert recent.get("0") is None
    assert recent.get(str(MOST + 9)) is not None
    recent.forget_all("")
    assert recent.get(str(MOST + 9)) is None


async def test_the_demo_sends_alerts_until_it_is_cancelled(open_worker: Open) -> None:
    worker = await open_worker()
    showing = asyncio.create_task(demo(worker.parts.receiver))
    await until(lambda: worker.publisher.ids)
    showing.cancel()
    await asyncio.wait([showing])
    assert all(each.alert.fingerprint.startswith("demo-") for each in worker.publisher.notifications)


# -- silences, and alerts that nobody wants


async def test_what_is_silenced_is_suppressed_until_the_silence_ends(open_worker: Open) -> None:
    worker = await open_worker()
    await worker.silences.add(['name="CPU high"'], ends=time.time() + 60, by="test", reason="works")
    result = await worker.receive(alert())
    assert (result.outcome, result.reason) == ("suppressed", "silenced")
    assert result.retry_after is not None
    assert 55 < result.retry_after <= 60
    assert (await worker.receive(alert(name="disk full"))).outcome == "published"


async def test_what_no_publisher_wants_is_suppressed(open_worker: Open) -> None:
    worker = await open_worker(FakePublisher(severities=("critical",)))
    result = await worker.receive(alert(severity="info"))
    assert (result.outcome, result.reason) == ("suppressed", "no_publisher")
    assert (await worker.receive(alert())).outcome == "published"
    await until(lambda: worker.publisher.ids)
