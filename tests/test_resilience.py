"""Backoff, retry and the breaker of one process. Nothing here sleeps: chance, sleep and clock are injected."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import solely
from solely.resilience import HELD, RETRY, Backoff, Breaker, Circuit, retry
from solely.testing.clock import ManualClock

# -- backoff


@pytest.mark.parametrize(
    ("backoff", "least", "steady", "most"),
    [
        (HELD, [1.6, 4.0, 8.0], [2.0, 5.0, 10.0], [2.4, 6.0, 12.0]),
        (RETRY, [0.08, 0.16, 0.32], [0.1, 0.2, 0.4], [0.12, 0.24, 0.48]),
    ],
)
def test_the_steps_and_their_spread(
    backoff: Backoff, least: list[float], steady: list[float], most: list[float]
) -> None:
    assert list(replace(backoff, chance=lambda: 0.0)) == pytest.approx(least)
    assert list(replace(backoff, chance=lambda: 0.5)) == pytest.approx(steady)
    assert list(replace(backoff, chance=lambda: 1.0)) == pytest.approx(most)
    for low, pause, high in zip(least, backoff, most, strict=True):
        assert low <= pause <= high
    assert len({backoff.pause(0) for _ in range(20)}) > 1


def test_the_last_step_goes_on() -> None:
    backoff = Backoff((2, 5, 10), spread=0)
    assert [backoff.pause(attempt) for attempt in range(6)] == [2, 5, 10, 10, 10, 10]


@pytest.mark.parametrize(
    ("steps", "spread", "text"),
    [
        ((), 0.2, "at least one step"),
        ((-1.0,), 0.2, "a step=-1 is out of bounds"),
        ((float("nan"),), 0.2, "NaN"),
        (("2",), 0.2, "a step must be seconds"),
        ((1.0,), 1.0, "spread=1.0"),
        ((1.0,), -0.1, "spread=-0.1"),
    ],
)
def test_a_backoff_that_cannot_be(steps: Any, spread: float, text: str) -> None:
    with pytest.raises(solely.InvalidInput, match=text):
        Backoff(steps, spread)


# -- retry


class Flaky:
    """Fails so many times, then answers."""

    def __init__(self, times: int, error: type[Exception] = ConnectionError) -> None:
        self.times, self.error, self.calls = times, error, 0
        self.slept: list[float] = []

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error(f"try {self.calls}")
        return "done"

    async def awaited(self) -> str:
        await asyncio.sleep(0)
        return self()

    async def rest(self, seconds: float) -> None:
        self.slept.append(seconds)


STEADY = replace(RETRY, chance=lambda: 0.5)


def blocking(flaky: Flaky, **options: Any) -> str:
    return retry(flaky, sleep=flaky.slept.append, **options)


def awaited(flaky: Flaky, **options: Any) -> str:
    return asyncio.run(retry(flaky.awaited, sleep=flaky.rest, **options))


@pytest.fixture(params=[blocking, awaited])
def tried(request: pytest.FixtureRequest) -> Callable[..., str]:
    """retry of a function, then of a coroutine."""
    call: Callable[..., str] = request.param
    return call


def test_it_is_called_again_after_each_pause(tried: Callable[..., str]) -> None:
    flaky = Flaky(3)
    assert tried(flaky, on=ConnectionError, backoff=STEADY) == "done"
    assert flaky.slept == pytest.approx([0.1, 0.2, 0.4])
    assert flaky.calls == 4


def test_what_works_is_called_once(tried: Callable[..., str]) -> None:
    flaky = Flaky(0)
    assert tried(flaky, on=ConnectionError) == "done"
    assert (flaky.calls, flaky.slept) == (1, [])


def test_when_the_pauses_are_used_up_the_last_error_is_raised(tried: Callable[..., str]) -> None:
    flaky = Flaky(9)
    with pytest.raises(ConnectionError, match="try 4"):
        tried(flaky, on=ConnectionError, backoff=STEADY)
    assert flaky.calls == 4


def test_errors_that_are_not_named_are_raised_at_once(tried: Callable[..., str]) -> None:
    flaky = Flaky(1, KeyError)
    with pytest.raises(KeyError):
        tried(flaky, on=(ConnectionError, TimeoutError))
    assert (flaky.calls, flaky.slept) == (1, [])


def test_a_lambda_that_returns_a_coroutine_is_retried_as_one() -> None:
    flaky = Flaky(2)
    assert asyncio.run(retry(lambda: flaky.awaited(), on=ConnectionError, sleep=flaky.rest)) == "done"
    assert flaky.calls == 3


def test_any_pauses_will_do(tried: Callable[..., str]) -> None:
    flaky = Flaky(2)
    assert tried(flaky, on=ConnectionError, backoff=[1, 2]) == "done"
    assert flaky.slept == [1, 2]


# -- the breaker of one process


@pytest.fixture
def breaker(clock: ManualClock) -> Breaker:
    return Breaker("smtp", threshold=3, per=60, cooldown=30, successes=2, clock=clock)


def fails() -> None:
    raise OSError("no route")


def fail(breaker: Breaker, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(OSError, match="no route"):
            breaker.call(fails)


def test_it_opens_at_the_threshold_and_says_for_how_long(breaker: Breaker, clock: ManualClock) -> None:
    fail(breaker, 2)
    assert breaker.call(lambda: "sent") == "sent"
    assert breaker.state() is Circuit.CLOSED
    fail(breaker)
    clock.advance(10)
    with pytest.raises(solely.BreakerOpen, match=r"'smtp' is open for another 20\.0 s") as refused:
        breaker.call(fails)
    assert refused.value.left == 20
    assert breaker.state() is Circuit.OPEN


def test_only_failures_within_the_window_count(breaker: Breaker, clock: ManualClock) -> None:
    for _ in range(10):
        fail(breaker)
        clock.advance(30)
    assert breaker.state() is Circuit.CLOSED
    fail(breaker, 2)
    assert breaker.state() is Circuit.OPEN


def test_one_trial_at_a_time_until_enough_worked(breaker: Breaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    clock.advance(30)
    assert breaker.state() is Circuit.HALF_OPEN
    with breaker, pytest.raises(solely.BreakerOpen, match="trial is in progress"):
        breaker.call(fails)
    assert breaker.state() is Circuit.HALF_OPEN
    breaker.call(lambda: None)
    assert breaker.state() is Circuit.CLOSED
    fail(breaker, 2)
    assert breaker.state() is Circuit.CLOSED


def test_a_failed_trial_starts_over(breaker: Breaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    clock.advance(30)
    breaker.call(lambda: None)
    fail(breaker)
    assert breaker.state() is Circuit.OPEN
    clock.advance(30)
    breaker.call(lambda: None)
    assert breaker.state() is Circuit.HALF_OPEN


def test_an_interrupted_trial_tells_nothing_and_frees_the_next(breaker: Breaker, clock: ManualClock) -> None:
    fail(breaker, 3)
    clock.advance(30)
    with pytest.raises(KeyboardInterrupt), breaker:
        raise KeyboardInterrupt
    assert breaker.state() is Circuit.HALF_OPEN
    breaker.call(lambda: None)


def test_a_late_verdict_of_an_old_call_does_not_count(breaker: Breaker, clock: ManualClock) -> None:
    old = [breaker.admit() for _ in range(4)]
    fail(breaker, 3)
    breaker.judge(old[0], False)
    clock.advance(30)
    assert breaker.state() is Circuit.HALF_OPEN
    breaker.call(lambda: None)
    breaker.judge(old[1], True)
    assert breaker.state() is Circuit.HALF_OPEN
    breaker.call(lambda: None)
    for passed in (old[2], old[3], old[3]):
        breaker.judge(passed, False)
    assert breaker.state() is Circuit.CLOSED


def test_only_named_errors_are_failures(clock: ManualClock) -> None:
    breaker = Breaker(threshold=1, on=(OSError, asyncio.CancelledError), clock=clock)
    with pytest.raises(KeyError), breaker:
        raise KeyError
    assert breaker.state() is Circuit.CLOSED
    with pytest.raises(asyncio.CancelledError), breaker:
        raise asyncio.CancelledError
    assert breaker.state() is Circuit.OPEN


async def test_it_guards_tasks(breaker: Breaker) -> None:
    async def failing() -> None:
        async with breaker:
            await asyncio.sleep(0)
            fails()

    outcomes = await asyncio.gather(*(failing() for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError] * 3
    with pytest.raises(solely.BreakerOpen):
        await breaker.call_async(asyncio.sleep, 0)


def test_threads_trip_it_once_and_get_one_trial(clock: ManualClock) -> None:
    breaker = Breaker(threshold=20, cooldown=30, successes=1, clock=clock)
    together, ran = threading.Barrier(20), list[str]()

    def failing() -> None:
        together.wait(10)
        with pytest.raises(OSError, match="no route"), breaker:
            together.wait(10)
            fails()

    def trying() -> None:
        together.wait(10)
        try:
            with breaker:
                ran.append("trial")
                together.wait(10)
        except solely.BreakerOpen:
            together.wait(10)

    for work in (failing, trying):
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        clock.advance(30)
    assert ran == ["trial"]
    assert breaker.state() is Circuit.CLOSED
