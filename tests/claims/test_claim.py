"""claim and publish: one runs, everyone gets its outcome, whoever fails, dies or comes late."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import solely
from solely import ClaimOutcome, State
from solely.events import Renewed
from solely.rules import MAX_VALUE_BYTES
from solely.testing.clock import ManualClock
from tests.claims.modes import PROMPT, Peek, in_line

VALUES: list[Any] = [
    b"",
    b"\0\xff",
    "run_42",
    "ключ",
    None,
    False,
    0,
    1.5,
    [],
    {"id": [1, {"a": None}]},
    b"x" * MAX_VALUE_BYTES,
]


async def test_the_first_wins_and_everyone_after_gets_its_value(once: Any, other: Any, peek: Peek) -> None:
    for number, value in enumerate(VALUES):
        won = await once.claim(f"key-{number}")
        assert (won.outcome, won.won, won.attempt, won.value) == (ClaimOutcome.WON, True, 1, None)
        assert won.fence == peek(won.key).fence > 0
        assert not won.lost
        published = await won.publish(value)
        assert (published.published, published.superseded, published.value) == (True, False, value)
        assert won.lost
        for client in (once, other):
            late = await client.claim(f"key-{number}")
            assert late.cached
            assert not late.tombstone
            assert late.failed is None
            assert late.value == late.result() == value
            assert type(late.value) is type(value)
            assert late.fence == won.fence


async def test_who_waits_is_pushed_the_result(once: Any, other: Any) -> None:
    won = await once.claim("a")
    waiting = [asyncio.ensure_future(client.claim("a", wait=30)) for client in (once, other) for _ in range(5)]
    await in_line(once, "a", 5)
    await in_line(other, "a", 5)
    began = time.monotonic()
    await won.publish("run_1")
    claims = await asyncio.wait_for(asyncio.gather(*waiting), PROMPT)
    assert {(claim.outcome, claim.value) for claim in claims} == {(ClaimOutcome.CACHED, "run_1")}
    assert time.monotonic() - began < PROMPT
    assert all(claim.waited > 0 for claim in claims)


async def test_the_winners_error_promotes_exactly_one_who_waits(once: Any, other: Any) -> None:
    runs: list[int] = []

    async def run(client: Any, name: int) -> Any:
        claim = await client.claim("a", wait=30)
        if claim.won:
            runs.append(claim.attempt)
            if claim.attempt < 3:
                await claim.fail(ValueError("not yet"))
                return None
            await claim.publish(name)
            return name
        return claim.value

    names = await asyncio.wait_for(asyncio.gather(*(run(c, n) for n in range(4) for c in (once, other))), 3 * PROMPT)
    assert runs == [1, 2, 3]
    assert len([name for name in names if name is None]) == 2
    assert len({name for name in names if name is not None}) == 1


async def test_when_the_winners_time_is_up_a_waiter_takes_over_in_the_same_call(
    once: Any, other: Any, clock: ManualClock
) -> None:
    dead = await once.claim("a", ttl=1, renew=False)
    taking_over = asyncio.ensure_future(other.claim("a", ttl=1, wait=30))
    await in_line(other, "a", 1)
    clock.advance(1.01)
    next_one = await asyncio.wait_for(taking_over, PROMPT)
    assert (next_one.won, next_one.attempt) == (True, 2)
    assert next_one.fence > dead.fence
    await next_one.publish("second")
    assert (await other.claim("a")).value == "second"


async def test_timed_out_says_who_runs_it_and_when_to_ask_again(once: Any, other: Any, peek: Peek) -> None:
    won = await once.claim("a", ttl=30, purpose="nightly charge")
    for wait in (0, 0.05):
        for client in (other, once):
            late = await client.claim("a", wait=wait)
            assert (late.outcome, late.won, late.value) == (ClaimOutcome.TIMED_OUT, False, None)
            assert "nightly charge" in late.holder
            assert 0 < late.retry_after <= 30
            assert late.waited >= wait
            with pytest.raises(solely.TimedOut, match="nightly charge"):
                late.result()
            with pytest.raises(solely.InvalidInput, match="not won"):
                await late.publish(1)
            assert await late.release() is solely.Released.RELEASED
    assert peek("a").waiters == 0
    assert peek("a").fence == won.fence


async def test_a_body_releases_at_its_end_unless_it_published(once: Any, other: Any, peek: Peek) -> None:
    async with await once.claim("a") as claim:
        assert peek("a").state is State.HELD
    assert peek("a").state is State.FREE
    assert claim.lost
    with pytest.raises(ZeroDivisionError):
        async with await once.claim("a"):
            raise ZeroDivisionError
    assert peek("a").state is State.FREE
    async with await once.claim("a") as claim:
        assert claim.attempt == 2
        await claim.publish(1)
    async with await other.claim("a") as claim:
        assert claim.value == 1
    assert peek("a").state is State.DONE


async def test_it_is_renewed_while_the_work_runs(open_client: Callable[..., Any], store_url: str) -> None:
    told: list[solely.Event] = []
    once = open_client(store_url, hooks=[told.append])
    async with asyncio.timeout(PROMPT):
        async with await once.claim("a", ttl=2.0) as claim:
            while not any(isinstance(event, Renewed) for event in told):
                await asyncio.sleep(0.02)
            assert not claim.lost
            await claim.ensure(0.01)
            assert (await claim.publish(1)).published


# -- fencing


@pytest.mark.parametrize("late_by", ["publish", "fail", "release"])
async def test_bug_9_late_winner_overwrites_its_successors_result(
    once: Any, other: Any, clock: ManualClock, peek: Peek, late_by: str
) -> None:
    late = await once.claim("a", ttl=1, renew=False)
    clock.advance(1.01)
    successor = await other.claim("a")
    assert successor.won
    if late_by == "publish":
        told = await late.publish("late", wait=0)
        assert (told.published, told.superseded, told.pending, told.value) == (False, True, True, None)
    elif late_by == "fail":
        assert await late.fail(ValueError()) is solely.Failing.LOST
    else:
        assert await late.release() is solely.Released.EXPIRED
    assert peek("a").fence == successor.fence  # a late failure did not delete its successor's claim
    assert (await once.claim("a", wait=0)).timed_out  # so no third one runs
    assert (await successor.publish("right")).published
    assert (await once.claim("a")).value == (await other.claim("a")).value == "right"


async def test_bug_9_late_winner_is_told_the_result_that_stands(once: Any, other: Any, clock: ManualClock) -> None:
    late = await once.claim("a", ttl=1, renew=False)
    clock.advance(1.01)
    await (await other.claim("a")).publish("right")
    told = await late.publish("late")
    assert (told.published, told.superseded, told.pending, told.value) == (False, True, False, "right")
    assert (await other.claim("a")).value == "right"


async def test_a_late_winner_waits_for_the_result_of_the_one_that_still_runs(
    once: Any, other: Any, clock: ManualClock
) -> None:
    late = await once.claim("a", ttl=1, renew=False)
    clock.advance(1.01)
    successor = await other.claim("a")
    telling = asyncio.ensure_future(late.publish("late", wait=30))
    await in_line(once, "a", 1)
    await successor.publish("right")
    told = await asyncio.wait_for(telling, PROMPT)
    assert (told.superseded, told.value) == (True, "right")


async def test_a_late_winners_result_stands_if_its_successor_gives_up(
    once: Any, other: Any, clock: ManualClock
) -> None:
    for key in ("before", "meanwhile"):
        late = await once.claim(key, ttl=1, renew=False)
        clock.advance(1.01)
        successor = await other.claim(key)
        if key == "before":
            await successor.release()
        telling = asyncio.ensure_future(late.publish("late", wait=30))
        if key == "meanwhile":
            await in_line(once, key, 1)
            await successor.release()
        assert (await asyncio.wait_for(telling, PROMPT)).published
        assert (await other.claim(key)).value == "late"


async def test_a_late_winner_whom_nobody_followed_publishes(once: Any, other: Any, clock: ManualClock) -> None:
    late = await once.claim("a", ttl=1, renew=False)
    clock.advance(1.01)
    assert (await late.publish("late")).published
    assert (await other.claim("a")).value == "late"


async def test_what_an_admin_cleared_is_not_published(once: Any, other: Any, peek: Peek) -> None:
    cleared = await once.claim("a", renew=False)
    peek.clear("a")
    told = await cleared.publish("late")
    assert (told.published, told.superseded, told.pending) == (False, True, False)
    assert cleared.lost_how == "cleared"
    assert (await other.claim("a")).won


async def test_a_late_winner_of_another_payload_gets_no_strangers_value(
    once: Any, other: Any, clock: ManualClock
) -> None:
    late = await once.claim("a", ttl=1, renew=False, fingerprint="mine")
    clock.advance(1.01)
    stranger = await other.claim("a", fingerprint="theirs")
    for _ in range(2):
        told = await late.publish("late", wait=0)
        assert (told.published, told.superseded, told.value) == (False, True, None)
        if not stranger.lost:
            await stranger.publish("secret")


# -- tombstones


async def test_a_result_too_large_to_keep_leaves_a_tombstone(once: Any, other: Any) -> None:
    won = await once.claim("a")
    value = b"x" * (MAX_VALUE_BYTES + 1)
    told = await won.publish(value)
    assert (told.published, told.tombstone, told.value) == (True, True, value)
    late = await other.claim("a")
    assert (late.cached, late.tombstone, late.value, late.failed) == (True, True, None, None)
    with pytest.raises(solely.NotKept, match="262145 bytes"):
        late.result()


async def test_a_streamed_result_leaves_a_tombstone_that_says_why(once: Any, other: Any, clock: ManualClock) -> None:
    told = await (await once.claim("a")).publish_tombstone("it was streamed", keep=60)
    assert (told.published, told.tombstone) == (True, True)
    with pytest.raises(solely.NotKept, match="it was streamed"):
        (await other.claim("a")).result()
    clock.advance(60.01)
    assert (await other.claim("a")).won


async def test_a_result_that_cannot_be_kept_is_refused_before_anything_is_sent(once: Any, peek: Peek) -> None:
    async with await once.claim("a") as claim:
        with pytest.raises(solely.InvalidInput, match="JSON-serializable"):
            await claim.publish(object())
        assert peek("a").state is State.HELD
        assert not claim.lost


async def test_the_result_is_forgotten_after_keep(once: Any, other: Any, clock: ManualClock) -> None:
    await (await once.claim("a", keep=10)).publish(1)
    await (await once.claim("b", keep=10)).publish(1, keep=20)
    clock.advance(10.01)
    assert (await other.claim("a")).won
    assert (await other.claim("b")).cached
    clock.advance(10.0)
    assert (await other.claim("b")).attempt == 1


# -- reset


async def test_reset_removes_only_the_expected_outcome(once: Any, other: Any) -> None:
    assert await once.reset("a", expected=1) is False
    claim = await once.claim("a")
    assert await other.reset("a", expected=1) is False  # still runs
    await claim.publish({"id": 1, "ok": True})
    for unexpected in ({"id": 1, "ok": 1}, {"id": 1}, b"", None, solely.NotKept(""), solely.WorkFailed("")):
        assert await other.reset("a", expected=unexpected) is False
    assert await other.reset("a", expected={"ok": True, "id": 1}) is True
    assert await other.reset("a", expected={"ok": True, "id": 1}) is False
    again = await once.claim("a")
    assert (again.won, again.attempt) == (True, 1)
    await again.publish_tombstone("streamed")
    with pytest.raises(solely.NotKept) as told:
        (await other.claim("a")).result()
    assert await once.reset("a", expected=told.value) is True
    assert (await other.claim("a")).won


# -- many


async def test_claim_many_answers_for_each_key(once: Any, other: Any, peek: Peek) -> None:
    await (await other.claim("done")).publish("value")
    await other.claim("held", purpose="elsewhere")
    claims = await once.claim_many(["new", "done", "held", "new"], keep=60)
    assert [str(claim.outcome) for claim in claims] == ["won", "cached", "timed_out", "timed_out"]
    assert claims[1].value == "value"
    assert "elsewhere" in claims[2].holder
    assert 0 < claims[3].retry_after <= 30
    assert (await claims[0].publish(1)).published
    assert (await other.claim("new")).value == 1
    with pytest.raises(solely.InvalidInput, match="one per key"):
        await once.claim_many(["x", "y"], fingerprints=["only one"])


async def test_claim_many_with_another_payload_takes_nothing(once: Any, other: Any, peek: Peek) -> None:
    await other.claim("b", fingerprint="one")
    with pytest.raises(solely.Mismatch) as refusal:
        await once.claim_many(["a", "b"], fingerprints=["x", "two"])
    assert refusal.value.key == "b"
    assert peek("a").state is State.FREE
    claims = await once.claim_many(["a", "b"], fingerprints=["x", "one"])
    assert [claim.won for claim in claims] == [True, False]
