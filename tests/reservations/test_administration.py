"""What an admin sees of reservations, and what they can end."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from solely import State
from solely.ops import Read
from solely.testing.clock import ManualClock
from tests.client.modes import Observer
from tests.client_modes import result_of


async def test_active_ones_are_listed_with_reason_time_left_and_counts(
    once: Any, other: Any, clock: ManualClock
) -> None:
    await result_of((await result_of(once.reserve("api:sent", quiet=300))).record())
    await result_of(once.reserve("api:held", hold=30, purpose="page the admin"))
    await result_of((await result_of(once.reserve("api:over", quiet=10))).record())
    await result_of((await result_of(once.reserve("db:sent", quiet=300))).record())
    await result_of((await result_of(once.reserve("released"))).release())
    await result_of(other.reserve("api:held"))
    clock.advance(10)
    listed = await result_of(other.reservations("api:"))
    assert [(info.key, info.reason, info.left, info.suppressed, info.sent) for info in listed] == [
        ("api:held", "reserved", 20.0, 1, 0),
        ("api:sent", "quiet", 290.0, 0, 1),
    ]
    held, sent = listed
    assert "page the admin" in held.holder
    assert held.last_sent is None
    assert abs(datetime.now(UTC) - sent.last_sent) < timedelta(seconds=30)
    assert [info.key for info in await result_of(other.reservations())] == ["api:held", "api:sent", "db:sent"]


async def test_the_list_comes_in_pages(once: Any) -> None:
    for n in range(5):
        await result_of(once.reserve(f"alert-{n}"))
    keys: list[str] = []
    while page := await result_of(once.reservations("alert-", after=keys[-1] if keys else "", limit=2)):
        assert len(page) <= 2
        keys += [info.key for info in page]
    assert keys == [f"alert-{n}" for n in range(5)]


async def test_how_often_and_when_last_outlives_the_window_and_is_forgotten_after_30_days(
    once: Any, other: Any, clock: ManualClock, observer: Observer
) -> None:
    for _ in range(3):
        await result_of((await result_of(once.reserve("cpu", quiet=60))).record())
        clock.advance(86_400)
    await result_of(other.reserve("cpu"))
    (info,) = await result_of(other.reservations())
    assert (info.reason, info.sent) == ("reserved", 3)
    clock.advance(29 * 86_400)
    assert observer.perform(Read("sent/cpu"))[0].state is State.FREE


async def test_expire_ends_the_hold_or_the_window_that_is_there(
    once: Any, other: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert await result_of(once.expire_reservation("cpu", reason="nothing there")) is False
    held = await result_of(once.reserve("cpu"))
    with caplog.at_level(logging.INFO, "solely"):
        assert await result_of(other.expire_reservation("cpu", reason="sender hangs")) is True
    (line,) = [vars(record) for record in caplog.records if record.getMessage().startswith("reservation_cleared: ")]
    assert (line["key"], line["fence"], line["reason"]) == ("reservation/cpu", held.fence, "sender hangs")
    quiet = await result_of(other.reserve("cpu"))
    await result_of(quiet.record())
    assert await result_of(once.expire_reservation("cpu", reason="must go out again")) is True
    assert await result_of(once.reserve("cpu"))


async def test_clear_ends_all_that_begin_with_the_prefix(once: Any, other: Any) -> None:
    for n in range(120):
        await result_of(once.reserve(f"api:{n}", renew=False))
    await result_of((await result_of(once.reserve("api:sent"))).record())
    await result_of(once.reserve("db"))
    assert await result_of(other.clear_reservations("api:", reason="maintenance is over")) == 121
    assert [info.key for info in await result_of(other.reservations())] == ["db"]
    assert await result_of(other.clear_reservations("", reason="all of them")) == 1
    assert await result_of(other.reservations()) == []
