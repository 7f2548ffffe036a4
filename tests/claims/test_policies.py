"""What becomes of a claim whose work failed: replay, release, retry after, park."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import solely
from solely import RELEASE, Failing, Park, Policy, Replay, RetryAfter, State
from solely.testing.clock import ManualClock
from tests.claims.modes import Peek, guarded, in_line, inner


class DeclinedError(ValueError):
    pass


POLICY = Policy(
    {
        ValueError: Replay(keep=60),
        DeclinedError: RELEASE,
        ConnectionError: RetryAfter(5),
        Exception: Park(after=3, group="charges", keep=timedelta(minutes=2)),
    }
)


def test_the_nearest_class_decides() -> None:
    assert POLICY.of(ValueError()) == Replay(keep=60)
    assert POLICY.of(UnicodeError()) == Replay(keep=60)
    assert POLICY.of(DeclinedError()) is RELEASE
    assert POLICY.of(ConnectionResetError()) == RetryAfter(5)
    assert POLICY.of(KeyError()) == Park(3, "charges", timedelta(minutes=2))
    assert Policy().of(KeyError()) is RELEASE
    assert Policy(default=Replay()).of(KeyError()) == Replay()


def test_what_is_no_exception_releases_unless_it_is_named() -> None:
    assert Policy(default=Replay()).of(asyncio.CancelledError()) is RELEASE
    assert POLICY.of(KeyboardInterrupt()) is RELEASE
    assert Policy({KeyboardInterrupt: Replay()}).of(KeyboardInterrupt()) == Replay()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Replay(keep=0), "keep"),
        (lambda: RetryAfter(-1), "seconds"),
        (lambda: RetryAfter(1e9), "seconds"),
        (lambda: Park(after=0, group="x"), "at least 1"),
        (lambda: Park(after=True, group="x"), "at least 1"),
        (lambda: Park(after=1, group=""), "group"),
        (lambda: Policy({"ValueError": RELEASE}), "exception classes"),  # type: ignore[dict-item]
        (lambda: Policy({ValueError: Replay}), "an outcome must be"),  # type: ignore[dict-item]
        (lambda: Policy(default=None), "an outcome must be"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_cannot_be_is_refused(make: Any, why: str) -> None:
    with pytest.raises(solely.InvalidInput, match=why):
        make()


async def failing(client: Any, error: BaseException, **options: Any) -> None:
    with pytest.raises(type(error)):
        async with await client.claim("a", policy=POLICY, **options) as claim:
            assert claim.won
            inner(claim).payload = {"order": 7}
            raise error


async def test_replay_tells_everyone_the_failure_for_its_own_keep(once: Any, other: Any, clock: ManualClock) -> None:
    first = await once.claim("a", policy=POLICY, keep=3600)
    waiting = asyncio.ensure_future(other.claim("a", wait=30))
    await in_line(other, "a", 1)
    assert await first.fail(ValueError("no such order")) is Failing.REPLAYED
    late = await waiting
    assert (late.cached, late.value, late.tombstone) == (True, None, False)
    assert (late.failed.kind, late.failed.text) == ("ValueError", "no such order")
    with pytest.raises(solely.WorkFailed, match="ValueError: no such order") as told:
        late.result()
    clock.advance(59)
    assert (await once.claim("a")).failed is not None
    clock.advance(1.01)
    claim = await once.claim("a", policy=POLICY)
    assert (claim.won, claim.attempt) == (True, 1)
    assert await claim.fail(ValueError("no such order")) is Failing.REPLAYED
    assert await once.reset("a", expected=solely.WorkFailed("", kind="ValueError", text="else")) is False
    assert await once.reset("a", expected=told.value) is True


async def test_retry_after_keeps_everyone_out_for_that_long(
    once: Any, other: Any, clock: ManualClock, peek: Peek
) -> None:
    claim = await once.claim("a", policy=POLICY)
    assert await claim.fail(ConnectionError()) is Failing.DELAYED
    assert peek("a").state is State.CLOSED
    for client in (once, other):
        late = await client.claim("a", wait=0.02)
        assert (late.timed_out, late.holder) == (True, "")
        assert 4 < late.retry_after <= 5
        with pytest.raises(solely.TimedOut, match="must not run yet"):
            late.result()
    clock.advance(5.01)
    again = await other.claim("a")
    assert (again.won, again.attempt) == (True, 2)


async def test_park_leaves_a_dead_letter_at_the_attempt_named_and_runs_no_more(
    once: Any, other: Any, clock: ManualClock
) -> None:
    for attempt in (1, 2):
        claim = await (once if attempt == 1 else other).claim("a", policy=POLICY)
        assert claim.attempt == attempt
        assert await claim.fail(KeyError("x")) is Failing.RELEASED
        clock.advance(3600)  # the count outlives what a lease is remembered
    await failing(once, KeyError("x"))
    letters = inner(once).dead_letters("charges")
    (letter,) = await _listed(letters)
    assert (letter.key, letter.payload, letter.attempts) == ("a", {"order": 7}, 3)
    assert letter.last_error == "KeyError: 'x'"
    assert (await other.claim("a")).failed.kind == "KeyError"
    clock.advance(120.01)
    assert (await other.claim("a")).won


async def _listed(letters: Any) -> Any:
    found = letters.list()
    return found if isinstance(found, list) else await found


async def test_park_writes_what_cannot_be_kept_as_text(once: Any) -> None:
    claim = await once.claim("a", policy=Policy(default=Park(after=1, group="g")))
    inner(claim).payload = {"order": object()}
    assert await claim.fail(KeyError()) is Failing.PARKED
    (letter,) = await _listed(inner(once).dead_letters("g"))
    assert "object object" in letter.payload


async def test_a_failure_after_the_time_was_up_changes_nothing(
    once: Any, other: Any, clock: ManualClock, peek: Peek
) -> None:
    for error in (ValueError(), ConnectionError(), DeclinedError()):
        key = type(error).__name__
        late = await once.claim(key, policy=POLICY, ttl=1, renew=False)
        clock.advance(1.01)
        successor = await other.claim(key)
        assert await late.fail(error) is Failing.LOST
        assert peek(key).fence == successor.fence


async def test_the_bodys_own_error_is_never_masked(once: Any, peek: Peek) -> None:
    await failing(once, DeclinedError())
    assert peek("a").state is State.FREE
    await failing(once, KeyError())
    await failing(once, ValueError())
    assert peek("a").state is State.DONE


async def test_the_decorator_follows_the_policy(once: Any) -> None:
    runs: list[str] = []

    def charge(order: str) -> str:
        runs.append(order)
        raise ValueError(order)

    charge_once = guarded(once, charge, key="charge:{order}", policy=POLICY)
    with pytest.raises(ValueError, match="7"):
        await charge_once("7")
    with pytest.raises(solely.WorkFailed, match="ValueError: 7"):
        await charge_once(order="7")
    assert runs == ["7"]
