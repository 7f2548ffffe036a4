"""The tests that the alert deduplicator's document names, on every store: what was a race there is none here."""

from functools import partial
from typing import Any

from solely import State
from solely.ops import Read
from solely.testing.clock import ManualClock
from tests.client.modes import Observer
from tests.client_modes import result_of
from tests.reservations.conftest import Together

HOUR = 3_600


async def test_first_alert_returns_true(once: Any) -> None:
    first = await result_of(once.reserve("cpu-high:critical", hold=30, quiet=300))
    assert first
    assert (first.reason, first.retry_after, first.count) == ("", 0.0, 0)
    assert first.id
    assert first.fence > 0
    assert 25 < first.remaining() < 30
    assert not first.lost


async def test_record_alert_valid_reservation_updates_state(once: Any, observer: Observer) -> None:
    await result_of((await result_of(once.reserve("cpu", quiet=300))).record())
    (entry,) = observer.perform(Read("reservation/cpu"))
    assert entry.state is State.DONE
    assert abs(entry.left - 300) < 0.01
    (seen,) = await result_of(once.reservations())
    assert (seen.key, seen.reason, seen.sent) == ("cpu", "quiet", 1)


async def test_deduplication_window_within_window_suppresses_alert(once: Any, other: Any, clock: ManualClock) -> None:
    await result_of((await result_of(once.reserve("cpu", quiet=300))).record())
    clock.advance(100)
    second = await result_of(other.reserve("cpu", quiet=300))
    assert not second
    assert (second.reason, second.count, second.id, second.fence) == ("quiet", 1, "", 0)
    assert abs(second.retry_after - 200) < 0.01
    clock.advance(199)
    assert (await result_of(other.reserve("cpu"))).count == 2
    clock.advance(1)
    assert await result_of(other.reserve("cpu"))


async def test_concurrent_identical_alerts_only_one_allowed_through(once: Any, other: Any, together: Together) -> None:
    answers = await together([partial(client.reserve, "cpu") for client in [once, other] * 5])
    assert sum(map(bool, answers)) == 1
    suppressed = [answer for answer in answers if not answer]
    assert {answer.reason for answer in suppressed} == {"reserved"}
    assert max(answer.count for answer in suppressed) == 9


async def test_concurrent_different_alerts_all_allowed_through(once: Any, other: Any, together: Together) -> None:
    calls = [partial(client.reserve, f"alert-{n}") for n, client in enumerate([once, other] * 5)]
    assert all(await together(calls))


async def test_race_condition_check_then_act_prevents_double_publish(once: Any, other: Any, together: Together) -> None:
    """Both ask before either has published: only the one that was granted publishes."""
    published = []
    answers = await together([lambda: once.reserve("cpu"), lambda: other.reserve("cpu")])
    for answer in answers:
        if answer:
            published.append(answer.fence)
            await result_of(answer.record())
    assert len(published) == 1
    assert (await result_of(other.reserve("cpu"))).reason == "quiet"


async def test_high_contention_many_alerts_no_deadlock(once: Any, other: Any, together: Together) -> None:
    """50 requests over 5 fingerprints, with limits that all of them share."""
    terms: dict[str, Any] = {"limit": 20, "per": HOUR, "group": ("all", 50, HOUR)}
    answers = await together([partial((once, other)[n % 2].reserve, f"alert-{n % 5}", **terms) for n in range(50)])
    granted = [answer for answer in answers if answer]
    assert sorted(answer.key for answer in granted) == [f"alert-{n}" for n in range(5)]
    assert {answer.reason for answer in answers if not answer} == {"reserved"}
    for answer in granted:
        await result_of(answer.record())
    assert [info.suppressed for info in await result_of(once.reservations())] == [9] * 5


async def test_access_is_serialized(once: Any, other: Any, together: Together) -> None:
    """What the document does with PostgreSQL's advisory locks, on every store: never two inside at once."""
    inside, sent = 0, 0
    for _ in range(5):
        answers = await together([partial(client.reserve, "cpu", quiet=0) for client in [once, other] * 4])
        inside += sum(map(bool, answers))
        for answer in filter(None, answers):
            await result_of(answer.record())
            sent += 1
    assert (inside, sent) == (5, 5)


async def test_release_reservation_unused_reservation_clears_reservation(
    once: Any, other: Any, observer: Observer
) -> None:
    first = await result_of(once.reserve("cpu"))
    assert await result_of(first.release()) is True
    assert observer.perform(Read("reservation/cpu"))[0].state is State.FREE
    assert await result_of(first.release()) is False
    retry = await result_of(other.reserve("cpu"))
    assert retry
    assert retry.fence > first.fence


async def test_record_alert_duplicate_record_is_idempotent(once: Any, other: Any, clock: ManualClock) -> None:
    first = await result_of(once.reserve("cpu", quiet=300))
    await result_of(first.record())
    clock.advance(10)
    await result_of(first.record())
    await result_of(other.record_reservation(first.id))
    (seen,) = await result_of(once.reservations())
    assert seen.sent == 1
    assert abs(seen.left - 290) < 0.01  # a repeat starts no new window


async def test_reservation_expiry_expired_reservation_allows_new_alert(
    once: Any, other: Any, clock: ManualClock
) -> None:
    await result_of(once.reserve("cpu", hold=30, renew=False))
    clock.advance(29)
    refused = await result_of(other.reserve("cpu"))
    assert refused.reason == "reserved"
    assert abs(refused.retry_after - 1) < 0.01
    clock.advance(1)
    assert await result_of(other.reserve("cpu"))


async def test_rate_limit_exceeding_limit_suppresses_alert(once: Any, other: Any, clock: ManualClock) -> None:
    for _ in range(3):
        await result_of((await result_of(once.reserve("cpu", quiet=60, limit=3, per=HOUR))).record())
        clock.advance(60)
    for count in (1, 2, 3):
        refused = await result_of(other.reserve("cpu", quiet=60, limit=3, per=HOUR))
        assert (refused.reason, refused.count) == ("limited", count)
        assert abs(refused.retry_after - (HOUR - 180)) < 0.01
    clock.advance(HOUR - 180)
    assert await result_of(other.reserve("cpu", quiet=60, limit=3, per=HOUR))
