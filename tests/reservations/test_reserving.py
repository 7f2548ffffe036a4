"""Reserve, record, release: what is granted, to whom, and what a holder that lost it is told."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import State, events
from solely.ops import Hit, Read, Unhit
from solely.testing.clock import ManualClock
from tests.client.away import switched
from tests.client.modes import Observer
from tests.client_modes import result_of
from tests.reservations.conftest import Guarded

HOUR = 3_600
LIMITS: dict[str, Any] = {"limit": 1, "per": HOUR, "group": ("channel", 2, HOUR)}


def hits(observer: Observer, key: str) -> int:
    """How many hits this limit has now."""
    allowance, _ = observer.perform(Hit(key, "nobody", 1, HOUR), Unhit(key, "nobody"))
    return 0 if allowance.allowed else int(allowance.hits)


# -- the block


async def test_a_block_records_on_success(once: Any, guarded: Guarded) -> None:
    reservation = await result_of(once.reserve("cpu"))
    await guarded(reservation, lambda: None)
    assert (await result_of(once.reserve("cpu"))).reason == "quiet"
    assert not reservation.lost
    assert reservation.remaining() == 0


async def test_a_block_releases_on_error_and_gives_the_hits_back(
    once: Any, other: Any, guarded: Guarded, observer: Observer
) -> None:
    def fails() -> None:
        raise OSError("the pager is away")

    with pytest.raises(OSError, match="pager"):
        await guarded(await result_of(once.reserve("cpu", **LIMITS)), fails)
    assert hits(observer, "hits/cpu") == 0
    assert await result_of(other.reserve("cpu"))


async def test_a_block_that_ended_it_itself_is_left_alone(once: Any, guarded: Guarded, observer: Observer) -> None:
    recorded = await result_of(once.reserve("a"))
    await guarded(recorded, recorded.record)
    released = await result_of(once.reserve("b"))
    await guarded(released, released.release)
    states = [entry.state for entry in observer.perform(Read("reservation/a"), Read("reservation/b"))]
    assert states == [State.DONE, State.FREE]


async def test_a_block_whose_reservation_is_suppressed_is_not_entered(once: Any, guarded: Guarded) -> None:
    await result_of((await result_of(once.reserve("cpu", quiet=300, **LIMITS))).record())
    entered: list[int] = []
    with pytest.raises(solely.Busy, match=r"'cpu' is suppressed \(quiet\); try again in 300.0 s") as busy:
        await guarded(await result_of(once.reserve("cpu")), lambda: entered.append(1))
    assert busy.value.left == pytest.approx(300, abs=0.01)
    await result_of(once.expire_reservation("cpu", reason="test"))
    limited = await result_of(once.reserve("cpu", **LIMITS))
    with pytest.raises(solely.Limited):
        await guarded(limited, lambda: entered.append(1))
    with pytest.raises(solely.Limited):
        await result_of(limited.record())
    assert await result_of(limited.release()) is False
    assert limited.remaining() == 0
    assert not limited.lost
    assert entered == []


# -- windows


async def test_without_a_quiet_window_the_next_may_send_at_once(once: Any, other: Any) -> None:
    first = await result_of(once.reserve("cpu", quiet=0))
    await result_of(first.record())
    second = await result_of(other.reserve("cpu", quiet=0))
    assert second
    await result_of(other.record_reservation(first.id))  # known to be recorded, although no window tells of it


async def test_the_count_goes_on_from_the_hold_into_the_quiet_window_and_starts_anew_after_it(
    once: Any, other: Any, clock: ManualClock
) -> None:
    first = await result_of(once.reserve("cpu", quiet=60))
    assert [(await result_of(other.reserve("cpu"))).count for _ in range(2)] == [1, 2]
    await result_of(first.record())
    refused = [await result_of(other.reserve("cpu")) for _ in range(2)]
    assert [(answer.reason, answer.count) for answer in refused] == [("quiet", 3), ("quiet", 4)]
    clock.advance(60)
    again = await result_of(other.reserve("cpu"))
    assert again.count == 0
    assert (await result_of(once.reserve("cpu"))).count == 1


# -- limits


async def test_release_gives_back_the_hits_of_the_key_and_of_its_group(
    once: Any, other: Any, observer: Observer
) -> None:
    first = await result_of(once.reserve("a", **LIMITS))
    second = await result_of(other.reserve("b", **LIMITS))
    assert second
    third = await result_of(other.reserve("c", **LIMITS))
    assert (third.reason, third.count) == ("limited", 1)
    assert hits(observer, "hits/c") == 0  # what the group refused, the key's own limit got back
    assert await result_of(first.release()) is True
    assert hits(observer, "hits/a") == 0
    assert await result_of(other.reserve("c", **LIMITS))


async def test_limits_are_of_their_key_and_groups_of_their_name(once: Any) -> None:
    for key, group in (("a", "x"), ("b", "y")):
        await result_of(
            (await result_of(once.reserve(key, quiet=0, limit=1, per=HOUR, group=(group, 1, HOUR)))).record()
        )
    assert await result_of(once.reserve("c", group=("z", 1, HOUR)))
    assert (await result_of(once.reserve("d", group=("x", 1, HOUR)))).reason == "limited"


async def test_a_hold_that_expires_unrecorded_keeps_its_hit(
    once: Any, other: Any, observer: Observer, clock: ManualClock
) -> None:
    first = await result_of(once.reserve("cpu", hold=30, renew=False, **LIMITS))
    clock.advance(30)
    assert await result_of(first.release()) is False  # it may have been sent
    assert hits(observer, "hits/cpu") == 1
    refused = await result_of(other.reserve("cpu", **LIMITS))
    assert refused.reason == "limited"
    clock.advance(HOUR - 30)
    assert await result_of(other.reserve("cpu", **LIMITS))


async def test_what_was_recorded_keeps_its_hit_whoever_releases_it_later(
    once: Any, other: Any, observer: Observer, clock: ManualClock
) -> None:
    first = await result_of(once.reserve("cpu", quiet=10, **LIMITS))
    await result_of(first.record())
    for _ in range(2):
        assert await result_of(first.release()) is False
        assert await result_of(other.release_reservation(first.id)) is False
        clock.advance(10)
    assert hits(observer, "hits/cpu") == 1


async def test_a_limited_one_leaves_the_key_open_to_those_without_that_limit(once: Any, other: Any) -> None:
    await result_of((await result_of(once.reserve("cpu", quiet=0, limit=1, per=HOUR))).record())
    assert (await result_of(once.reserve("cpu", limit=1, per=HOUR))).reason == "limited"
    assert await result_of(other.reserve("cpu"))


# -- by id, from another process


async def test_an_id_records_and_releases_from_another_client(once: Any, other: Any, observer: Observer) -> None:
    first = await result_of(once.reserve("a", renew=False, **LIMITS))
    await result_of(other.record_reservation(first.id))
    assert observer.perform(Read("reservation/a"))[0].state is State.DONE
    second = await result_of(once.reserve("b", renew=False, **LIMITS))
    assert await result_of(other.release_reservation(second.id)) is True
    assert hits(observer, "hits/b") == 0
    assert await result_of(other.release_reservation(second.id)) is False


async def test_recording_after_the_hold_ran_out_counts_if_nobody_took_the_key(
    once: Any, other: Any, clock: ManualClock
) -> None:
    first = await result_of(once.reserve("cpu", hold=30, quiet=300, renew=False))
    clock.advance(31)
    await result_of(first.record())
    assert (await result_of(other.reserve("cpu"))).reason == "quiet"


async def test_recording_what_another_has_taken_over_is_a_mismatch(
    once: Any, other: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    first = await result_of(once.reserve("cpu", hold=30, renew=False))
    clock.advance(30)
    second = await result_of(other.reserve("cpu"))
    with caplog.at_level(logging.WARNING, "solely"), pytest.raises(solely.ReservationMismatch) as mismatch:
        await result_of(first.record())
    assert (mismatch.value.expected, mismatch.value.got, mismatch.value.key) == (second.fence, first.fence, "cpu")
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"Reservation ID mismatch: expected {second.fence}, got {first.fence} of 'cpu'"
    await result_of(second.record())
    with pytest.raises(solely.ReservationMismatch):
        await result_of(other.record_reservation(first.id))
    (seen,) = await result_of(once.reservations())
    assert (seen.sent, seen.fence) == (1, second.fence)


async def test_recording_what_is_not_known_is_an_error(
    once: Any, other: Any, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    released = await result_of(once.reserve("a"))
    await result_of(released.release())
    expired = await result_of(once.reserve("b", hold=30, renew=False))
    cleared = await result_of(once.reserve("c"))
    await result_of(other.expire_reservation("c", reason="test"))
    clock.advance(30 + 61)
    for gone in (released, expired, cleared):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "solely"), pytest.raises(solely.UnknownReservation, match="is unknown"):
            await result_of(gone.record())
        lines = [record.getMessage() for record in caplog.records if "unknown" in record.getMessage()]
        assert lines == [f"Attempted to record with unknown reservation ID: {gone.fence} of {gone.key!r}"]


# -- the hold


async def test_the_hold_is_renewed_while_sending_takes_longer(open_client: Callable[..., Any], store_url: str) -> None:
    renewals: list[events.Event] = []
    once, other = open_client(store_url, hooks=[renewals.append]), open_client(store_url)
    reservation = await result_of(once.reserve("cpu", hold=3.0))
    async with asyncio.timeout(100):
        while sum(isinstance(event, events.Renewed) for event in renewals) < 3:
            await asyncio.sleep(0.02)
    assert (await result_of(other.reserve("cpu"))).reason == "reserved"
    assert not reservation.lost
    await result_of(reservation.record())
    assert (await result_of(other.reserve("cpu"))).reason == "quiet"


async def test_a_hold_that_was_cleared_is_lost_and_said_so(open_client: Callable[..., Any], store_url: str) -> None:
    once, other = open_client(store_url), open_client(store_url)
    reservation = await result_of(once.reserve("cpu", hold=1.0))
    await result_of(other.expire_reservation("cpu", reason="test"))
    async with asyncio.timeout(100):
        while not reservation.lost:
            await asyncio.sleep(0.02)
    assert reservation.remaining() == 0
    with pytest.raises(solely.UnknownReservation, match="cleared"):
        await result_of(reservation.record())


async def test_a_sender_that_hangs_holds_nobody_up_for_longer_than_max_hold(
    open_client: Callable[..., Any], store_url: str
) -> None:
    once, other = open_client(store_url), open_client(store_url)
    reservation = await result_of(once.reserve("cpu", hold=1.0, max_hold=1.5))
    async with asyncio.timeout(100):
        while not (taken_over := await result_of(other.reserve("cpu"))):
            await asyncio.sleep(taken_over.retry_after)
    assert reservation.lost
    assert taken_over.fence > reservation.fence


async def test_closing_the_client_lets_go(once: Any, other: Any) -> None:
    await result_of(once.reserve("cpu"))
    await result_of(once.close())
    assert await result_of(other.reserve("cpu"))


# -- events and outages


async def test_events(open_client: Callable[..., Any], store_url: str) -> None:
    heard: list[Any] = []
    once = open_client(store_url, hooks=[heard.append])
    first = await result_of(once.reserve("cpu", limit=1, per=HOUR, quiet=60))
    await result_of(once.reserve("cpu"))
    await result_of(first.record())
    await result_of(first.record())
    await result_of(once.reserve("cpu"))
    await result_of(once.expire_reservation("cpu", reason="test"))
    await result_of(once.reserve("cpu", limit=1, per=HOUR))
    assert heard[0] == events.Reserved("reservation/cpu", first.fence, 0)
    (recorded,) = [event for event in heard if isinstance(event, events.Recorded)]
    assert recorded.fence == first.fence
    assert 0 < recorded.held < 30
    suppressed = [event.reason for event in heard if isinstance(event, events.Suppressed)]
    assert suppressed == ["reserved", "quiet", "limited"]


async def test_suppressed_and_released_are_logged_for_those_who_debug(
    once: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "solely"):
        first = await result_of(once.reserve("cpu", hold=30))
        await result_of(once.reserve("cpu"))
        await result_of(first.release())
    lines = [record.getMessage() for record in caplog.records if record.name == "solely"]
    assert lines == [
        "Suppressed due to active reservation: cpu, reservation expires in 30.00s.",
        f"Released reservation {first.fence} of 'cpu'",
    ]


async def test_a_client_that_proceeds_sends_without_its_store(mode: str, open_client: Callable[..., Any]) -> None:
    store = switched(mode, "memory://")
    once = open_client(store=store, on_outage="proceed", timeout=0.05)
    store.away = True
    reservation = await result_of(once.reserve("cpu", **LIMITS))
    assert reservation
    assert reservation.unguarded
    assert (reservation.id, reservation.fence) == ("", 0)
    await result_of(reservation.record())
    assert await result_of((await result_of(once.reserve("cpu"))).release()) is False
    assert once.failed_open == 2
    store.away = False
    guarded = await result_of(once.reserve("cpu"))
    assert not guarded.unguarded
    store.away = True
    await result_of(guarded.record())  # sent; that it could not be recorded is counted
    assert once.failed_open == 3


async def test_a_client_that_does_not_proceed_says_that_the_store_is_away(
    mode: str, open_client: Callable[..., Any]
) -> None:
    store = switched(mode, "memory://")
    once = open_client(store=store, timeout=0.05)
    reservation = await result_of(once.reserve("cpu"))
    store.away = True
    for call in (lambda: once.reserve("b"), reservation.record, reservation.release):
        with pytest.raises(solely.StoreUnavailable):
            await result_of(call())
    store.away = False
    await result_of(reservation.record())


async def test_what_is_suppressed_costs_one_round_trip(mode: str, open_client: Callable[..., Any]) -> None:
    store = switched(mode, "memory://")
    once = open_client(store=store)
    await result_of(once.reserve("cpu"))
    store.asked.clear()
    assert not await result_of(once.reserve("cpu", limit=5, per=60, group=("all", 5, 60)))
    assert [type(op).__name__ for op in store.asked] == ["Acquire"]


async def test_a_release_without_hits_and_quiet_window_needs_no_look_first(
    mode: str, open_client: Callable[..., Any]
) -> None:
    store = switched(mode, "memory://")
    once = open_client(store=store)
    for quiet, asked in ((0, []), (60, ["Renew"])):  # beside the release, which is not listed
        hold = await result_of(once.reserve("cpu", quiet=quiet))
        store.asked.clear()
        assert await result_of(hold.release())
        assert [type(op).__name__ for op in store.asked] == asked
        assert not await result_of(hold.release())


async def test_a_release_in_one_op_frees_nothing_that_is_no_longer_ours(
    once: Any, other: Any, clock: ManualClock
) -> None:
    expired = await result_of(once.reserve("cpu", hold=10, quiet=0, renew=False))
    clock.advance(11)
    assert not await result_of(expired.release())
    overtaken = await result_of(once.reserve("cpu", hold=10, quiet=0, renew=False))
    clock.advance(11)
    successor = await result_of(other.reserve("cpu", hold=10, quiet=0, renew=False))
    assert not await result_of(overtaken.release())
    assert not await result_of(once.reserve("cpu"))  # the successor still has it
    assert await result_of(successor.release())
    cleared = await result_of(once.reserve("cpu", quiet=0))
    assert await result_of(other.expire_reservation("cpu", reason="a test wants it"))
    assert not await result_of(cleared.release())
    recorded = await result_of(once.reserve("cpu", quiet=0))
    await result_of(other.record_reservation(recorded.id))
    assert not await result_of(recorded.release())
