"""`once.every(…)`: a job runs once per tick over all replicas, in threads and in asyncio, on every store."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from solely import AsyncClient, InvalidInput, StoreUnavailable, Unreadable, events
from solely.formats import write_run
from solely.ops import Advance, Finish, Read
from solely.stores.memory import AsyncMemoryStore, Memory, MemoryStore
from tests.client_modes import refusing_client, result_of

Open = Callable[..., Any]
PATIENCE = 60.0  # seconds until a test gives up: a busy machine is slow


async def until(holds: Callable[[], object]) -> None:
    """Waits until this holds."""
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, "it never happened"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*schedules: Any, job: Any = None) -> AsyncIterator[None]:
    """Runs each of these in a task or a thread of its own until the block ends."""
    tasks = []
    for each in schedules:
        if asyncio.iscoroutinefunction(each.run):
            tasks.append(asyncio.create_task(each.run(job)))
        else:
            tasks.append(asyncio.create_task(asyncio.to_thread(each.run, job)))
    try:
        yield
    finally:
        for each in schedules:
            each.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)


def job_of(mode: str, work: Callable[[Any], object]) -> Any:
    """The work as a function, or as a coroutine function."""
    if mode == "blocking":
        return work

    async def job(tick: Any) -> None:
        await result_of(work(tick))

    return job


def url() -> str:
    return f"memory://{secrets.token_hex(8)}"


async def test_each_tick_runs_once_over_three_replicas(mode: str, open_client: Open, store_url: str) -> None:
    clients = [open_client(store_url) for _ in range(3)]
    ran: Counter[datetime] = Counter()
    job = job_of(mode, lambda tick: ran.update([tick.at]))
    async with running(*(once.every("report", 0.1) for once in clients), job=job):
        await until(lambda: len(ran) >= 5)
    assert set(ran.values()) == {1}
    info = await result_of(clients[0].schedule_info("report"))
    assert (info.when, info.outcome) == ("@every 0.1s", "done")
    if info.state == "waiting":
        assert info.last == max(ran)
    else:  # the next tick is due already, so the last run is known only from the note, which is up to a minute old
        assert (info.state, info.last in ran) == ("overdue", True)
    assert info.next > info.last
    assert [each.key for each in await result_of(clients[1].schedules("rep"))] == ["report"]
    assert await result_of(clients[1].schedules("other")) == []


async def test_a_tick_has_its_time_its_fence_and_a_lease(mode: str, open_client: Open) -> None:
    ticks: list[Any] = []
    once = open_client(url())
    schedule = once.every("job", 0.1)
    async with running(schedule, job=job_of(mode, ticks.append)):
        await until(lambda: len(ticks) >= 3)
    first = ticks[0]
    assert (first.name, first.at.tzinfo, first.attempt, first.lease.key) == ("job", UTC, 1, "job")
    assert schedule.next_at(first.at - timedelta(microseconds=1)) == first.at
    assert all(later.fence > earlier.fence and later.at > earlier.at for earlier, later in pairwise(ticks))


async def test_the_schedule_is_a_decorator(mode: str, open_client: Open) -> None:
    ran: list[datetime] = []
    once = open_client(url())
    clean_up = once.every("clean-up", 0.1)(job_of(mode, lambda tick: ran.append(tick.at)))
    async with running(clean_up):
        await until(lambda: len(ran) >= 2)
    with pytest.raises(InvalidInput, match="schedule 'bare' has no job"):
        await result_of(once.every("bare", 1).run_due())


async def test_a_job_that_fails_ends_its_tick_and_the_next_one_follows(
    mode: str, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ticks: list[Any] = []

    def fail(tick: Any) -> None:
        ticks.append(tick)
        raise ValueError("the disk is full")

    once = open_client(url())
    async with running(once.every("job", 0.1), job=job_of(mode, fail)):
        await until(lambda: len(ticks) >= 2)
    info = await result_of(once.schedule_info("job"))
    assert info.outcome == "failed: ValueError: the disk is full"
    assert len({tick.at for tick in ticks}) == len(ticks)
    assert any(line.message.startswith("tick_failed: the job of job failed") for line in caplog.records)


async def test_run_due_says_when_to_call_again(mode: str, open_client: Open) -> None:
    schedule = open_client(url()).every("daily", "0 3 * * *")
    ran: list[Any] = []
    wait = await result_of(schedule.run_due(job_of(mode, ran.append)))
    until_next = (schedule.next_at() - datetime.now(UTC)).total_seconds()
    assert until_next * 0.9 <= wait <= until_next + 5
    assert ran == []


async def test_a_lease_that_is_lost_is_seen_by_the_job(
    mode: str, open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    once, seen = open_client(url()), list[str]()

    def lose(tick: Any) -> Any:
        if mode == "blocking":
            ends = time.monotonic() + PATIENCE
            while not tick.lease.lost and time.monotonic() < ends:
                time.sleep(0.01)
            seen.append(tick.lease.lost_how)
            return None
        return _cancelled(tick)

    async def _cancelled(tick: Any) -> None:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            seen.append(tick.lease.lost_how)
            raise

    async with running(once.every("job", 0.2, ttl=0.5, max_hold=0.3), job=job_of(mode, lose)):
        await until(lambda: seen)
    assert seen[0] == "max_hold"


async def test_stop_lets_the_tick_in_progress_end(mode: str, open_client: Open) -> None:
    once, began, ended = open_client(url()), list[Any](), list[Any]()

    def slow(tick: Any) -> Any:
        began.append(tick)
        if mode == "blocking":
            time.sleep(0.3)
            return ended.append(tick)
        return _slow(tick)

    async def _slow(tick: Any) -> None:
        await asyncio.sleep(0.3)
        ended.append(tick)

    async with running(once.every("job", 0.1), job=job_of(mode, slow)):
        await until(lambda: began)
    assert len(began) == len(ended)
    assert (await result_of(once.schedule_info("job"))).state in ("waiting", "overdue")


async def test_a_cancelled_run_gives_its_tick_to_another_replica_at_once() -> None:
    async with AsyncClient(where := url()) as here, AsyncClient(where) as there:
        began, ran = asyncio.Event(), asyncio.Event()
        ticks: list[Any] = []

        async def hang(tick: Any) -> None:
            ticks.append(tick)
            began.set()
            await asyncio.sleep(PATIENCE)

        async def work(tick: Any) -> None:
            ticks.append(tick)
            ran.set()

        dying = asyncio.create_task(here.every("job", 1.0, ttl=PATIENCE).run(hang))
        await asyncio.wait_for(began.wait(), PATIENCE)
        other = there.every("job", 1.0, ttl=PATIENCE)
        await other.run_due(work)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        async with running(other, job=work):
            await asyncio.wait_for(ran.wait(), PATIENCE)
        assert ticks[1].at >= ticks[0].at
        assert ticks[1].fence > ticks[0].fence


class AwayStore(MemoryStore):
    """A store that can be made unreachable."""

    away = False

    def perform(self, ops: Any) -> Any:
        if self.away:
            raise StoreUnavailable("the store is away")
        return super().perform(ops)


class AsyncAwayStore(AsyncMemoryStore):
    """The same for asyncio."""

    away = False

    def perform(self, ops: Any) -> Any:
        if not self.away:
            return super().perform(ops)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        reply.set_exception(StoreUnavailable("the store is away"))
        return reply


async def test_an_outage_is_waited_for(open_client: Open, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    store: Any = AwayStore(Memory()) if mode == "blocking" else AsyncAwayStore(Memory())
    once, ran = open_client(store=store, timeout=0.1), list[Any]()
    async with running(once.every("job", 0.1), job=job_of(mode, ran.append)):
        await until(lambda: ran)
        store.away = True
        await until(lambda: any("schedule_waits" in line.message for line in caplog.records))
        before = len(ran)
        store.away = False
        await until(lambda: len(ran) > before)
    assert len({tick.at for tick in ran}) == len(ran)


async def test_an_outage_at_the_end_of_a_tick_is_logged_at_once_and_repeats_nothing(
    open_client: Open, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    store: Any = AwayStore(Memory()) if mode == "blocking" else AsyncAwayStore(Memory())
    once, ran = open_client(store=store, timeout=0.1), list[Any]()

    def work(tick: Any) -> None:
        store.away = not ran
        ran.append(tick)

    async with running(once.every("job", 0.1), job=job_of(mode, work)):
        await until(lambda: any("schedule_waits" in line.message for line in caplog.records))
        assert len(ran) == 1
        store.away = False
        await until(lambda: len(ran) > 1)
    assert [tick.attempt for tick in ran[:2]] == [1, 1]
    assert len({tick.at for tick in ran}) == len(ran)


async def test_hooks_are_told_of_each_tick(mode: str, open_client: Open) -> None:
    seen: list[events.TickEnded] = []
    once = open_client(url(), hooks=[lambda event: seen.append(event) if isinstance(event, events.TickEnded) else None])
    async with running(once.every("job", 0.1), job=job_of(mode, lambda tick: None)):
        await until(lambda: len(seen) >= 2)
    assert {(event.key, event.outcome) for event in seen} == {("tick/job", "done")}
    assert all(0 <= event.late < PATIENCE and event.took >= 0 for event in seen)


async def test_what_is_kept_of_a_schedule_can_be_forgotten(mode: str, open_client: Open) -> None:
    once = open_client(url())
    assert await result_of(once.schedule_info("old")) is None
    assert not await result_of(once.forget_schedule("old", reason="test"))
    await result_of(once.every("old", 60).run_due(job_of(mode, lambda tick: None)))
    assert (await result_of(once.schedule_info("old"))).last is None
    assert await result_of(once.forget_schedule("old", reason="test"))
    assert await result_of(once.schedule_info("old")) is None


async def test_a_state_that_another_program_wrote_is_reported(mode: str, open_client: Open) -> None:
    once = open_client(url())
    await result_of(once.every("job", 60).run_due(job_of(mode, lambda tick: None)))
    memory = once._store.memory
    memory._records["schedule/job"].value = b"nonsense"
    memory._records["tick/job"].value = b"nonsense"
    (info,) = await result_of(once.schedules())
    assert "is unreadable" in info.unreadable
    with pytest.raises(Unreadable, match="the state of schedule 'job' is unreadable"):
        await result_of(once.every("job", 60).run_due(job_of(mode, lambda tick: None)))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("", 60), "a key must not be empty"),
        (("a", 0), "the interval=0 is out of bounds"),
        (("a", None), "the interval must be seconds"),
        (("a", "soon"), "'soon' is not a cron expression"),
        (("a", 60, {"misfire": "later"}), "misfire must be one of 'skip', 'once', 'all', not 'later'"),
        (("a", 60, {"jitter": -1}), "jitter=-1 is out of bounds"),
        (("a", 60, {"ttl": 0}), "ttl=0 is out of bounds"),
        (("a", 60, {"max_hold": 0}), "max_hold=0 is out of bounds"),
        (("a", "@daily", {"tz": "Mars"}), "there is no time zone 'Mars'"),
    ],
)
async def test_invalid_arguments_are_refused_before_anything_is_sent(
    arguments: tuple[Any, ...], why: str, mode: str
) -> None:
    once = refusing_client(mode)
    name, when, *options = arguments
    with pytest.raises(InvalidInput) as refused:
        once.every(name, when, **(options[0] if options else {}))
    assert why in str(refused.value)
    with pytest.raises(InvalidInput, match="after must have a time zone"):
        once.every("a", 60).next_at(datetime(2026, 1, 1))  # noqa: DTZ001
    await result_of(once.close())


def test_a_forged_state_is_refused_by_the_store() -> None:
    store = MemoryStore(Memory())
    facts = {
        "tick": 1,
        "next": 2,
        "opens": 2,
        "began": 1,
        "took": 0.1,
        "outcome": "",
        "by": "",
        "plan": "",
        "missed": 0,
    }
    (kept,) = store.perform([Advance("schedule/a", write_run(7, facts))])
    assert kept == store.perform([Read("schedule/a")])[0]
    for wrong in (b"7", write_run(7, facts | {"took": "long"}), write_run(7, facts | {"extra": 1})):
        with pytest.raises(InvalidInput, match="schedule"):
            store.perform([Finish("tick/a", "o", wrong, 1.0)])
    store.close()
