"""once.breaker: counted once over all processes, one trial at a time, remembered by the store."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import solely
from solely import events
from solely.ops import Read
from solely.stores.memory import Memory, MemoryStore
from solely.testing.clock import ManualClock
from tests.client.away import switched
from tests.client.modes import InThread, Observer, in_thread
from tests.client.refusing import AsyncRefusingStore, RefusingStore

RULE: dict[str, Any] = {"threshold": 3, "per": 60, "cooldown": 30, "successes": 2}


async def guarded(client: Any, work: Callable[[], Awaitable[Any]], name: str = "smtp", **rule: Any) -> Any:
    """The result of the work, which runs on this loop, called through the client's breaker."""
    if not isinstance(client, InThread):
        return await client.breaker(name, **{**RULE, **rule}).call(work)
    loop = asyncio.get_running_loop()
    breaker = client.it.breaker(name, **{**RULE, **rule})
    return await in_thread(breaker.call, lambda: asyncio.run_coroutine_threadsafe(work(), loop).result())  # type: ignore[arg-type]


async def works() -> str:
    return "sent"


async def fails() -> str:
    raise OSError("no route")


async def fail(client: Any, times: int = 1, **rule: Any) -> None:
    for _ in range(times):
        with pytest.raises(OSError, match="no route"):
            await guarded(client, fails, **rule)


async def state(client: Any, name: str = "smtp") -> str:
    breaker = (client.it if isinstance(client, InThread) else client).breaker(name)
    return str(await (in_thread(breaker.state) if isinstance(client, InThread) else breaker.state()))


@asynccontextmanager
async def under_way(client: Any, ends: Callable[[], Awaitable[Any]] = works) -> AsyncIterator[asyncio.Task[Any]]:
    """A call that was let through and ends, as told, when the block is left."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def work() -> Any:
        entered.set()
        await leave.wait()
        return await ends()

    task = asyncio.ensure_future(guarded(client, work))
    waiting = asyncio.ensure_future(entered.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=10)
    assert entered.is_set(), f"it was not let through: {task}"
    try:
        yield task
    finally:
        leave.set()
        await asyncio.wait({task}, timeout=10)


@pytest.fixture
def once(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    return open_client(store_url, clock=clock)


@pytest.fixture
def other(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> Any:
    """As another process would have."""
    return open_client(store_url, clock=clock)


async def test_failures_are_counted_once_over_all_processes(once: Any, other: Any) -> None:
    await fail(once, 2)
    assert await state(other) == "closed"
    await fail(other)
    assert await state(once) == await state(other) == "open"
    for client in (once, other):
        with pytest.raises(solely.BreakerOpen, match=r"is open for another 30\.0 s") as refused:
            await guarded(client, works)
        assert refused.value.key == "smtp"
        assert refused.value.left == pytest.approx(30, abs=0.01)
    assert await guarded(once, works, "imap") == "sent"


async def test_a_refused_call_is_not_made(once: Any) -> None:
    await fail(once, 3)
    made: list[str] = []

    async def work() -> None:
        made.append("call")

    with pytest.raises(solely.BreakerOpen):
        await guarded(once, work)
    assert made == []


async def test_only_failures_within_the_window_count(once: Any, clock: ManualClock) -> None:
    await fail(once, 2)
    clock.advance(60.01)
    await fail(once, 2)
    assert await state(once) == "closed"
    clock.advance(59.9)
    await fail(once)
    assert await state(once) == "open"


async def test_after_the_cooldown_exactly_one_trial_at_a_time(once: Any, other: Any, clock: ManualClock) -> None:
    await fail(once, 3)
    clock.advance(30.01)
    assert await state(other) == "half-open"
    entered: list[str] = []
    leave = asyncio.Event()

    async def work() -> None:
        entered.append("trial")
        await leave.wait()

    calls = [asyncio.ensure_future(guarded(client, work)) for client in (once, other) * 5]
    async with asyncio.timeout(100):
        while sum(call.done() for call in calls) < 9 or not entered:  # the trial's own thread may be the last
            await asyncio.sleep(0.01)
    assert entered == ["trial"]
    leave.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, solely.BreakerOpen)]
    assert len(refusals) == 9
    assert all("trial is in progress" in str(refusal) and refusal.left is not None for refusal in refusals)


async def test_so_many_successes_close_it(once: Any, other: Any, clock: ManualClock) -> None:
    await fail(once, 3)
    clock.advance(30.01)
    assert await guarded(once, works) == "sent"
    assert await state(once) == "half-open"
    assert await guarded(other, works) == "sent"
    assert await state(once) == "closed"
    await fail(other, 2)  # what failed before it opened is forgotten
    assert await state(once) == "closed"
    await fail(once)
    assert await state(other) == "open"


async def test_a_failed_trial_opens_it_for_a_whole_cooldown_and_forgets_the_successes(
    once: Any, other: Any, clock: ManualClock
) -> None:
    await fail(once, 3)
    clock.advance(30.01)
    await guarded(once, works)
    await fail(other)
    assert await state(once) == "open"
    with pytest.raises(solely.BreakerOpen) as refused:
        await guarded(once, works)
    assert refused.value.left == pytest.approx(30, abs=0.01)
    clock.advance(30.01)
    await guarded(once, works)
    assert await state(once) == "half-open"
    await guarded(once, works)
    assert await state(once) == "closed"


async def test_it_outlives_the_processes(
    open_client: Callable[..., Any], store_url: str, clock: ManualClock, once: Any
) -> None:
    await fail(once, 3)
    await once.close()
    restarted = open_client(store_url, clock=clock)
    with pytest.raises(solely.BreakerOpen):
        await guarded(restarted, works)
    clock.advance(30.01)
    assert await state(restarted) == "half-open"


async def test_a_trial_whose_process_died_is_followed_by_another_and_has_no_say_any_more(
    once: Any, other: Any, clock: ManualClock
) -> None:
    await fail(once, 3)
    clock.advance(30.01)
    async with under_way(other, ends=fails) as dead:
        with pytest.raises(solely.BreakerOpen):
            await guarded(once, works)
        clock.advance(10.01)  # nobody renewed it
        assert await guarded(once, works) == "sent"
        assert await state(once) == "half-open"
    assert isinstance(dead.exception(), OSError)
    assert await state(once) == "half-open"  # its failure came too late
    assert await guarded(once, works) == "sent"
    assert await state(once) == "closed"


async def test_a_trial_is_renewed_while_it_runs_and_no_longer(once: Any, clock: ManualClock) -> None:
    book = once._context.keeper if not isinstance(once, InThread) else once.it._context.keeper
    await fail(once, 3)
    clock.advance(30.01)
    for ends in (works, fails):
        async with under_way(once, ends=ends):
            (trial,) = book.holds
            assert trial.renew_at == pytest.approx(trial.sent + 5)
        assert not book.holds


async def test_a_late_failure_of_an_old_call_counts_neither_while_open_nor_after_closing(
    once: Any, other: Any, clock: ManualClock
) -> None:
    async with under_way(other, ends=fails), under_way(other, ends=fails):
        async with under_way(other, ends=fails):
            await fail(once, 3)
            clock.advance(30.01)
        assert await state(once) == "half-open"
        await guarded(once, works)
        await guarded(once, works)
    assert await state(once) == "closed"
    await fail(once, 2)
    assert await state(once) == "closed"


async def test_those_who_trip_it_at_once_trip_it_once(once: Any, other: Any, observer: Observer) -> None:
    async with under_way(once, ends=fails), under_way(other, ends=fails), under_way(once, ends=fails):
        await asyncio.gather(*(fail(client) for client in (once, other)))
    assert await state(once) == "open"
    (entry,) = observer.perform(Read("breaker/smtp"))
    assert entry.value == b"000000000001.0000"


async def test_only_named_errors_are_failures(once: Any) -> None:
    async def odd() -> None:
        raise KeyError("no such mailbox")

    for _ in range(5):
        with pytest.raises(KeyError):
            await guarded(once, odd, on=(OSError, TimeoutError))
    assert await state(once) == "closed"
    await fail(once, 3, on=(OSError, TimeoutError))
    assert await state(once) == "open"


async def test_a_trial_that_was_interrupted_tells_nothing_and_frees_the_next(
    once: Any, other: Any, clock: ManualClock
) -> None:
    class Stopped(BaseException):
        pass

    async def stops() -> None:
        raise Stopped

    await fail(once, 3)
    clock.advance(30.01)
    for _ in range(3):
        with pytest.raises(Stopped):
            await guarded(once, stops)
        assert await state(once) == "half-open"
    assert await guarded(other, works) == "sent"


async def test_reset_closes_it_for_all(once: Any, other: Any) -> None:
    await fail(once, 3)
    breaker = (once.it if isinstance(once, InThread) else once).breaker("smtp")
    reset = (lambda: in_thread(breaker.reset)) if isinstance(once, InThread) else breaker.reset
    assert await reset() is True
    assert await reset() is False
    assert await guarded(other, works) == "sent"


async def test_turning_is_told(
    open_client: Callable[..., Any], store_url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[events.Event] = []
    once = open_client(store_url, clock=clock, hooks=[told.append])
    with caplog.at_level(logging.INFO, "solely"):
        await fail(once, 3)
        clock.advance(30.01)
        await guarded(once, works)
        await guarded(once, works)
    turns = [event for event in told if isinstance(event, events.BreakerTurned)]
    assert turns == [events.BreakerTurned("breaker/smtp", "open"), events.BreakerTurned("breaker/smtp", "closed")]
    assert [record.levelname for record in caplog.records if record.message.startswith("breaker_turned: ")] == [
        "WARNING",
        "INFO",
    ]


# -- one object, many callers


async def test_one_breaker_object_guards_many_tasks_at_once() -> None:
    async with solely.AsyncClient("memory://") as once:
        breaker = once.breaker("smtp", threshold=100)

        async def call(n: int) -> None:
            with pytest.raises(ZeroDivisionError if n % 2 else KeyError):
                async with breaker:
                    async with breaker:  # also within itself
                        await asyncio.sleep(0)
                    await asyncio.sleep(0)
                    raise ZeroDivisionError if n % 2 else KeyError

        await asyncio.gather(*map(call, range(50)))
        assert breaker._passes._entered == []


def test_one_breaker_object_guards_many_threads_at_once() -> None:
    with solely.Client("memory://") as once:
        breaker = once.breaker("smtp", threshold=2, on=ZeroDivisionError)
        together = threading.Barrier(8)

        def call() -> None:
            with breaker:
                together.wait(10)

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert breaker._passes._entered == []
        assert breaker.state() == "closed"


def test_a_breaker_that_is_left_on_another_thread_is_left() -> None:
    """As the generators of a web framework are."""

    def guard(once: solely.Client) -> Generator[None, None, None]:
        with once.breaker("smtp", threshold=1):
            yield

    with solely.Client("memory://") as once:
        steps = guard(once)
        next(steps)
        failures: list[BaseException] = []

        def leave() -> None:
            try:
                steps.throw(OSError("no route"))
            except OSError as error:
                failures.append(error)

        thread = threading.Thread(target=leave)
        thread.start()
        thread.join(10)
        assert len(failures) == 1
        assert once.breaker("smtp").state() == "open"


# -- a store that is away


async def test_without_the_store_nothing_is_let_through(open_client: Callable[..., Any], kind: str) -> None:
    store = switched(kind, "memory://")
    once = open_client("", store=store, timeout=0.05)
    store.away = True
    with pytest.raises(solely.StoreUnavailable):
        await guarded(once, works)


async def test_on_outage_proceed_lets_everything_through(open_client: Callable[..., Any], kind: str) -> None:
    store = switched(kind, "memory://")
    once = open_client("", store=store, timeout=0.05, on_outage="proceed")
    store.away = True
    assert await guarded(once, works) == "sent"
    await fail(once, 4)
    assert once.failed_open == 5
    store.away = False
    assert await state(once) == "closed"


async def test_what_cannot_be_told_does_not_change_the_calls_outcome(
    open_client: Callable[..., Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = switched(kind, "memory://", clock=clock)
    once = open_client("", store=store, timeout=0.05)

    async def works_as_the_store_goes() -> str:
        store.away = True
        return "sent"

    async def fails_as_the_store_goes() -> None:
        store.away = True
        await fails()

    with pytest.raises(OSError, match="no route"):
        await guarded(once, fails_as_the_store_goes)
    store.away = False
    await fail(once, 3)
    clock.advance(30.01)
    assert await guarded(once, works_as_the_store_goes) == "sent"
    assert sum(message.startswith("breaker_not_told: ") for message in caplog.messages) == 2
    store.away = False
    assert await state(once) == "half-open"
    clock.advance(10.01)
    assert await guarded(once, works) == "sent"


# -- bad input


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threshold": 0}, "threshold must be an int from 1 to 1000, not 0"),
        ({"threshold": True}, "threshold must be"),
        ({"successes": 2.5}, "successes must be"),
        ({"per": -1}, "per=-1 is out of bounds"),
        ({"cooldown": float("nan")}, "cooldown is NaN"),
        ({"cooldown": "30"}, "cooldown must be seconds"),
        ({"on": "OSError"}, "on must be an exception class"),
        ({"on": ()}, "on must be an exception class"),
        ({"name": ""}, "a key must not be empty"),
    ],
)
def test_bad_input_reaches_no_store(options: dict[str, Any], text: str) -> None:
    given = {"name": "smtp", **options}
    for client in (solely.Client(store=RefusingStore()), solely.AsyncClient(store=AsyncRefusingStore())):
        with pytest.raises(solely.InvalidInput, match=text):
            client.breaker(**given)


def test_a_closed_breaker_costs_one_read_per_call() -> None:
    asked: list[Any] = []

    class Watched(MemoryStore):
        def perform(self, ops: Any) -> Any:
            asked.extend(ops)
            return super().perform(ops)

    with solely.Client(store=Watched(Memory())) as once:
        once.breaker("smtp").call(lambda: None)
        assert asked == [Read("breaker/smtp")]
