"""lock and try_lock: one holder at a time, in the order of arrival, with a fence that only grows."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import solely
from solely import AsyncClient, Client, Released, State
from solely.drivers.waiters import Waiters
from solely.holder import since_of
from tests.client.concurrently import concurrently
from tests.client.modes import Observer
from tests.conftest import PATIENT

PROMPT = 15.0  # seconds: far above any hand-over, half the ttl that a missed wake-up would cost


async def test_a_lease_is_held_in_the_store_and_released_once(once: Any, observer: Observer) -> None:
    lease = await once.lock("a", ttl=30)
    assert observer.lock("a").state is State.HELD
    assert observer.lock("a").fence == lease.fence > 0
    assert 0 < lease.remaining() < 30
    assert not lease.lost
    assert await lease.release() is Released.RELEASED
    assert await lease.release() is Released.RELEASED
    assert observer.lock("a").state is State.FREE
    assert lease.lost
    assert lease.remaining() == 0.0


async def test_the_fence_grows_with_every_hold(once: Any, other: Any) -> None:
    fences = []
    for client in (once, other, once, other):
        async with client.lock("a", ttl=30) as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


async def test_try_lock_answers_none_while_another_holds(once: Any, other: Any) -> None:
    lease = await once.try_lock("a", ttl=30)
    assert lease is not None
    assert await other.try_lock("a", ttl=30) is None
    assert await once.try_lock("a", ttl=30) is None
    await lease.release()
    again = await other.try_lock("a", ttl=30)
    assert again is not None
    assert again.fence > lease.fence


async def test_busy_names_holder_purpose_and_time_left(once: Any, other: Any) -> None:
    async with once.lock("a", ttl=30, purpose="nightly report"):
        with pytest.raises(solely.Busy) as refusal:
            await other.lock("a", ttl=30, wait=0.05)
    error = refusal.value
    assert error.key == "a"
    assert error.left is not None
    assert 20 < error.left <= 30
    for fact in (socket.gethostname()[:64], f"pid {os.getpid()}", "nightly report"):
        assert fact in error.holder
        assert fact in str(error)


async def test_a_refused_waiter_leaves_no_trace(once: Any, other: Any, observer: Observer) -> None:
    async with once.lock("a", ttl=30) as lease:
        with pytest.raises(solely.Busy):
            await other.lock("a", ttl=30, wait=0.05)
        assert observer.lock("a").waiters == 0
        assert observer.lock("a").fence == lease.fence


@concurrently()
async def test_a_waiter_of_another_client_gets_the_key_when_it_is_released(
    once: Any, other: Any, observer: Observer
) -> None:
    lease = await once.lock("a", ttl=30)
    waiter = asyncio.ensure_future(_take(other, "a"))
    while not observer.lock("a").waiters:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert not waiter.done()
    await lease.release()
    next_lease = await asyncio.wait_for(waiter, PROMPT)
    assert next_lease.fence > lease.fence
    assert next_lease.waited >= 0.04


@pytest.mark.parametrize("waiter_of", ["other", "once", "other, of all or none"])
async def test_since_is_when_the_holder_got_the_lock_not_when_it_began_to_wait(
    once: Any, other: Any, observer: Observer, waiter_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall, looks = [1_800_000_000.0], list[float]()

    def look() -> float:
        looks.append(wall[0])
        return wall[0]

    monkeypatch.setattr("solely.holder.time", look)
    lease = await once.lock("a", ttl=30)
    client = once if waiter_of == "once" else other
    several = waiter_of.endswith("none")
    waits = client.lock_all(["a", "b"], ttl=30, wait=PATIENT) if several else _take(client, "a")
    waiter = asyncio.ensure_future(_awaited(waits))
    while not (once._driver.waiters.waiting("lock/a") if client is once else observer.lock("a").waiters):
        await asyncio.sleep(0.005)
    wall[0] += 600.0
    async with asyncio.timeout(PATIENT):
        while client is not once and looks[-1] != wall[0]:  # else its last request may still be under way
            await asyncio.sleep(0.005)
    await lease.release()
    next_lease = await asyncio.wait_for(waiter, PATIENT)
    assert since_of(observer.lock("a").info) == datetime.fromtimestamp(wall[0], UTC)
    await next_lease.release()


async def _awaited(pending: Any) -> Any:
    return await pending


@concurrently()
async def test_a_waiter_gets_the_key_when_a_dead_holders_time_is_up(once: Any, other: Any) -> None:
    start = time.monotonic()
    await once.lock("a", ttl=1.0, renew=False)
    await other.lock("a", ttl=30, wait=PROMPT)
    assert 0.9 < time.monotonic() - start < PROMPT


@concurrently()
async def test_waiters_of_one_process_are_served_in_the_order_of_arrival(once: Any) -> None:
    served: list[int] = []

    async def worker(number: int) -> None:
        async with once.lock("a", ttl=30, wait=20):
            served.append(number)

    async with once.lock("a", ttl=30):
        workers = []
        for number in range(8):
            workers.append(asyncio.ensure_future(worker(number)))
            while once._driver.waiters.waiting("lock/a") <= number:
                await asyncio.sleep(0.005)
    await asyncio.wait_for(asyncio.gather(*workers), PROMPT)
    assert served == list(range(8))


@concurrently()
async def test_a_line_that_waits_behind_another_client_times_out_as_busy(once: Any, other: Any) -> None:
    async with other.lock("a", ttl=30, purpose="deploy"):
        refusals = await asyncio.gather(*(_refused(once, "a", wait=1.0) for _ in range(3)))
    assert all("deploy" in refusal.holder for refusal in refusals)


async def test_many_workers_never_hold_together(once: Any, other: Any) -> None:
    inside = 0
    fences: list[int] = []

    async def worker(client: Any) -> None:
        nonlocal inside
        for _ in range(5):
            async with client.lock("a", ttl=30, wait=20) as lease:
                inside += 1
                assert inside == 1
                fences.append(lease.fence)
                await asyncio.sleep(0.001)
                inside -= 1

    await asyncio.wait_for(asyncio.gather(*(worker(c) for c in (once, other) * 4)), 100)
    assert fences == sorted(set(fences))
    assert len(fences) == 40


@concurrently()
async def test_a_key_stays_closed_for_its_delay_after_an_expiry(once: Any, other: Any, observer: Observer) -> None:
    await once.seen("a")  # connects: a grant that is answered too late would close the key as well
    await once.lock("a", ttl=1.0, delay=30, renew=False)
    while observer.lock("a").state is State.HELD:
        await asyncio.sleep(0.01)
    assert observer.lock("a").state is State.CLOSED
    assert await other.try_lock("a") is None
    with pytest.raises(solely.Busy, match="closed for another"):
        await other.lock("a", wait=0.05)


async def test_a_delay_does_not_count_after_a_release(once: Any, other: Any) -> None:
    async with once.lock("a", ttl=30, delay=30):
        pass
    assert await other.try_lock("a") is not None


async def test_locks_and_marks_of_one_name_never_meet(once: Any) -> None:
    async with once.lock("a", ttl=30):
        assert await once.first("a", ttl=30)
        assert await once.seen("a")
    assert await once.try_lock("a") is not None


async def test_closing_lets_go_of_everything(once: Any, observer: Observer) -> None:
    leases = [await once.lock(key, ttl=30) for key in "abc"]
    await once.close()
    assert [observer.lock(key).state for key in "abc"] == [State.FREE] * 3
    assert all(lease.lost for lease in leases)
    await once.close()


async def test_a_closed_client_says_so(open_client: Callable[..., Any], store_url: str) -> None:
    client = open_client(store_url)
    lease = await client.lock("a", ttl=30)
    await client.close()
    calls: tuple[Callable[[], Any], ...] = (
        lambda: client.lock("b"),
        lambda: client.try_lock("b"),
        lambda: client.lock_all(["b", "c"]),
        lambda: client.first("b"),
        lambda: client.first_many(["b"]),
        lambda: client.seen("b"),
        lambda: client.forget("b"),
        lambda: client.resume(lease.token),
    )
    for call in calls:
        with pytest.raises(solely.ClientClosed):
            await call()


async def test_closing_while_others_acquire_leaves_nothing_held(
    open_client: Callable[..., Any], store_url: str, observer: Observer
) -> None:
    async def worker(client: Any, key: str) -> None:
        while True:
            await (await client.lock(key, ttl=30, wait=5)).release()

    for round_ in range(5):
        client = open_client(store_url)
        workers = [asyncio.ensure_future(worker(client, f"{round_}-{n % 3}")) for n in range(9)]
        await asyncio.sleep(0.02 + 0.005 * round_)
        await client.close()
        outcomes = await asyncio.wait_for(asyncio.gather(*workers, return_exceptions=True), 100)
        assert {type(outcome) for outcome in outcomes} <= {solely.ClientClosed, solely.StoreUnavailable}
        assert [observer.lock(f"{round_}-{n}").state for n in range(3)] == [State.FREE] * 3


def test_an_async_client_in_a_second_loop_is_refused() -> None:
    client = AsyncClient("memory://")
    assert asyncio.run(client.first("a"))
    with pytest.raises(solely.ClientClosed, match="one per loop"):
        asyncio.run(client.first("b"))


def test_a_lease_may_be_released_on_another_thread() -> None:
    import threading

    with Client("memory://") as once:
        lease = once.lock("a")
        releaser = threading.Thread(target=lease.release)
        releaser.start()
        releaser.join()
        assert once.try_lock("a") is not None


async def _take(client: Any, key: str) -> Any:
    return await client.lock(key, ttl=30, wait=20)


async def _refused(client: Any, key: str, *, wait: float) -> solely.Busy:
    with pytest.raises(solely.Busy) as refusal:
        await client.lock(key, wait=wait)
    return refusal.value


def test_who_never_came_to_stand_in_a_line_takes_nobodys_place() -> None:
    """A signal may be raised between the wish to join and the joining."""

    class Waiter:
        woken = 0

        def wake(self) -> None:
            self.woken += 1

    waiters, first, second, nobody = Waiters(), Waiter(), Waiter(), Waiter()
    waiters.leave("a", nobody)
    assert waiters.join("a", first)
    waiters.leave("a", nobody)
    assert waiters.is_first("a", first)
    assert not waiters.join("a", second)
    waiters.leave("a", nobody)
    waiters.leave("a", first)
    assert waiters.is_first("a", second)
    assert (first.woken, second.woken) == (0, 1)
    waiters.leave("a", second)
    assert len(waiters) == 0


async def test_a_lock_that_this_process_holds_names_its_thread_or_task_and_no_stranger(once: Any, other: Any) -> None:
    lease = await once.lock("a", ttl=30, wait=0)
    where = "task" if isinstance(once, solely.AsyncClient) else "thread"
    for waits in (0, 0.05):
        for acquire, keys in ((once.lock, "a"), (once.lock_all, ["a"])):
            with pytest.raises(solely.Busy, match=f"is held by this process, {where} ") as refusal:
                await acquire(keys, wait=waits)
            assert refusal.value.holder.startswith(f"this process, {where} ")
            assert f"pid {os.getpid()}" not in str(refusal.value)
    with pytest.raises(solely.Busy, match=f"pid {os.getpid()}"):  # another client does not know the thread
        await other.lock("a", wait=0)
    await lease.release()


def test_the_thread_that_holds_a_lock_is_named() -> None:
    with solely.Client("memory://") as once, once.lock("a"), pytest.raises(solely.Busy) as refusal:
        once.lock("a", wait=0)
    named = f"this process, thread {threading.current_thread().name} since "
    assert refusal.value.holder.startswith(named)


async def test_the_task_that_holds_a_lock_is_named() -> None:
    held, ends = asyncio.Event(), asyncio.Event()
    async with solely.AsyncClient("memory://") as once:

        async def hold() -> None:
            async with once.lock("a"):
                held.set()
                await ends.wait()

        task = asyncio.create_task(hold(), name="nightly report")
        await held.wait()
        with pytest.raises(solely.Busy) as refusal:
            await once.lock("a", wait=0)
        ends.set()
        await task
    assert refusal.value.holder.startswith("this process, task nightly report since ")
