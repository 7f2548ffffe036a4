"""one_host: of all hosts that have the same schedule, one runs the job."""

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

import solely
from solely import events
from solely.integrations.cron import one_host
from solely.testing.clock import ManualClock
from tests.client_modes import refusing_client, result_of
from tests.conftest import PATIENT


@pytest.fixture
def hosts(open_client: Callable[..., Any], store_url: str, clock: ManualClock) -> list[Any]:
    """The clients of two hosts."""
    return [open_client(store_url, clock=clock) for _ in range(2)]


class Jobs:
    """The same job on each host; `ran` says where it did. `during` is done while it runs."""

    def __init__(self, hosts: list[Any], mode: str, **terms: Any) -> None:
        self.ran: list[int] = []
        self.during: Callable[[], Any] = lambda: None
        self.on = [self._job(once, n, mode, {"at_most_for": 600, **terms}) for n, once in enumerate(hosts)]

    def _job(self, once: Any, n: int, mode: str, terms: dict[str, Any]) -> Any:
        if mode == "blocking":

            @one_host(once, "report", **terms)
            def job(day: str = "today") -> str:
                self.ran.append(n)
                self.during()
                return f"{day} by {n}"

            return job

        @one_host(once, "report", **terms)
        async def awaited(day: str = "today") -> str:
            self.ran.append(n)
            if inspect.isawaitable(doing := self.during()):
                await doing
            return f"{day} by {n}"

        return awaited


async def test_a_second_host_skips_while_the_first_runs(
    hosts: list[Any], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = Jobs(hosts, mode)
    skipped: list[Any] = []

    def second() -> None:
        skipped.append(jobs.on[1]())

    async def second_awaited() -> None:
        skipped.append(await jobs.on[1]())

    jobs.during = second if mode == "blocking" else second_awaited
    with caplog.at_level(logging.INFO, "solely"):
        assert await result_of(jobs.on[0]("monday")) == "monday by 0"
    assert (jobs.ran, skipped) == ([0], [None])
    assert [record.key for record in caplog.records if record.message.startswith("job_skipped: ")] == ["report"]  # type: ignore[attr-defined]
    jobs.during = lambda: None
    assert await result_of(jobs.on[1]()) == "today by 1"


async def test_a_short_job_keeps_the_key_for_at_least_so_long(hosts: list[Any], mode: str, clock: ManualClock) -> None:
    jobs = Jobs(hosts, mode, at_least_for=600)
    assert await result_of(jobs.on[0]()) == "today by 0"
    clock.advance(500)  # the other's clock is late; the job, which is over at once, may have taken a while here
    assert await result_of(jobs.on[1]()) is None
    clock.advance(100.01)
    assert await result_of(jobs.on[1]()) == "today by 1"
    assert jobs.ran == [0, 1]


async def test_a_job_that_fails_keeps_it_too_and_its_own_error_is_raised(
    hosts: list[Any], mode: str, clock: ManualClock
) -> None:
    jobs = Jobs(hosts, mode, at_least_for=60)

    def fails() -> None:
        raise ZeroDivisionError

    jobs.during = fails
    with pytest.raises(ZeroDivisionError):
        await result_of(jobs.on[0]())
    assert await result_of(jobs.on[1]()) is None
    clock.advance(60.01)
    jobs.during = lambda: None
    assert await result_of(jobs.on[1]()) == "today by 1"


async def test_a_host_that_died_keeps_it_for_at_most_so_long(hosts: list[Any], mode: str, clock: ManualClock) -> None:
    jobs = Jobs(hosts, mode)
    await result_of(hosts[0].lock("report", ttl=600, renew=False))  # and is never heard of again
    clock.advance(599)
    assert await result_of(jobs.on[1]()) is None
    clock.advance(1.01)
    assert await result_of(jobs.on[1]()) == "today by 1"


async def test_a_job_that_outlives_its_time_is_told(hosts: list[Any], mode: str, clock: ManualClock) -> None:
    jobs = Jobs(hosts, mode)
    jobs.during = lambda: clock.advance(601)
    with pytest.raises(solely.LeaseLost):
        await result_of(jobs.on[0]())


async def test_an_asyncio_job_that_outlives_its_max_hold_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async with solely.AsyncClient("memory://") as once:

        @one_host(once, "report", at_most_for=0.05, max_hold=0.1)
        async def job() -> None:
            await asyncio.sleep(30)

        with pytest.raises(solely.LeaseLost):
            await asyncio.wait_for(job(), 100)
    assert any(record.message.startswith("lease_lost: ") for record in caplog.records)


async def test_a_job_may_run_longer_than_at_most_for(
    open_client: Callable[..., Any], store_url: str, mode: str
) -> None:
    renewals: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def hook(event: Any) -> None:
        if isinstance(event, events.Renewed):
            loop.call_soon_threadsafe(renewals.put_nowait, event)

    once, other = open_client(store_url, hooks=[hook], timeout=PATIENT), open_client(store_url, timeout=PATIENT)
    done = threading.Event()
    async with asyncio.timeout(PATIENT):
        if mode == "blocking":
            running = asyncio.to_thread(one_host(once, "report", at_most_for=2)(lambda: done.wait(PATIENT)))
        else:
            running = one_host(once, "report", at_most_for=2)(asyncio.Event().wait)()
        task = asyncio.ensure_future(running)
        for _ in range(3):  # each at half the time: the job has run for longer than at_most_for
            assert (await renewals.get()).key == "lock/report"
        assert await result_of(other.try_lock("report")) is None
        done.set()
        if mode == "asyncio":
            task.cancel()
        await asyncio.wait([task])


async def test_the_loss_of_the_lease_is_reported_while_the_job_runs(
    open_client: Callable[..., Any], store_url: str, mode: str
) -> None:
    once, admin = open_client(store_url, timeout=PATIENT), open_client(store_url, timeout=PATIENT)
    begun, lost = threading.Event(), threading.Event()
    guard = one_host(once, "report", at_most_for=2, on_lost=lost.set)

    def job() -> bool:
        begun.set()
        return lost.wait(PATIENT)

    async def awaited() -> bool:
        return await asyncio.to_thread(job)

    running = asyncio.to_thread(guard(job)) if mode == "blocking" else guard(awaited)()
    task = asyncio.ensure_future(running)
    assert await asyncio.to_thread(begun.wait, PATIENT)
    assert await result_of(admin.clear_lock("report", reason="test"))
    with pytest.raises(solely.LeaseLost, match="cleared"):
        await asyncio.wait_for(task, PATIENT)
    assert lost.is_set()


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ({"at_most_for": 0}, "at_most_for=0 is out of bounds"),
        ({"at_most_for": 10, "at_least_for": 11}, "at_least_for=11 is out of bounds"),
        ({"at_most_for": 10, "at_least_for": -1}, "at_least_for=-1 is out of bounds"),
        ({"at_most_for": "10"}, "at_most_for must be seconds"),
        ({"at_most_for": 10, "max_hold": 0}, "max_hold=0 is out of bounds"),
        ({"key": "", "at_most_for": 10}, "a key must not be empty"),
    ],
)
def test_terms_that_cannot_be(mode: str, terms: dict[str, Any], text: str) -> None:
    given = {"key": "report", **terms}
    with pytest.raises(solely.InvalidInput, match=text):
        one_host(refusing_client(mode), **given)


def test_a_coroutine_needs_an_async_client_and_a_function_a_blocking_one() -> None:
    async def awaited() -> None: ...

    def blocking() -> None: ...

    for mode, job in (("blocking", awaited), ("asyncio", blocking)):
        with pytest.raises(solely.InvalidInput, match="do not fit"):
            one_host(refusing_client(mode), "report", at_most_for=10)(job)


def test_a_generator_is_refused_since_its_body_would_run_after_the_key_was_let_go(mode: str) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for job in (generator, async_generator, partial(generator)):
        with pytest.raises(solely.InvalidInput, match="is a generator"):
            one_host(refusing_client(mode), "report", at_most_for=10)(job)
