"""take(wait=…): woken by a push, a return, the end of a delay or of a lease. On every store, on both modes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import solely
from solely import Client
from solely.model import line_key
from solely.ops import Read, Take
from solely.queues.flow import queue_of
from solely.testing.clock import ManualClock
from tests.client.modes import Observer, in_thread
from tests.client.worker import Worker
from tests.client_modes import refusing_client, result_of

AT_MOST = 60.0  # seconds of every wait here: none of them may take that long
TAKERS = 8
LINE = line_key(queue_of("jobs"))
Waiting = Callable[..., "asyncio.Task[Any]"]


@pytest.fixture
def only_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A taker that is in line never looks by itself: nothing but a hint, or the time of an item, can wake it."""
    monkeypatch.setattr("solely.queues.waiting.SECOND_LOOK", 3_600.0)
    monkeypatch.setattr("solely.queues.waiting.LOOK_AGAIN", 3_600.0)


@pytest.fixture
def waiting(mode: str) -> Waiting:
    """Starts a take that waits."""

    def start(queue: Any, **options: Any) -> "asyncio.Task[Any]":
        options = {"ttl": 1_000, "wait": AT_MOST} | options
        take: Awaitable[Any] = in_thread(queue.take, **options) if mode == "blocking" else queue.take(**options)
        return asyncio.ensure_future(take)

    return start


async def in_line(observer: Observer, clients: int = 1, line: str = LINE) -> None:
    """Returns when so many clients are in line."""
    async with asyncio.timeout(AT_MOST):
        while (await in_thread(observer.perform, Read(line)))[0].waiters != clients:
            await asyncio.sleep(0.005)


async def ended(task: "asyncio.Task[Any]") -> Any:
    async with asyncio.timeout(AT_MOST / 2):
        return await task


async def test_an_item_that_is_there_is_taken_at_once(once: Any, observer: Observer) -> None:
    await result_of(once.queue("jobs").push("a", 1))
    item = await result_of(once.queue("jobs").take(ttl=10, wait=AT_MOST))
    assert (item.id, item.payload, item.attempts) == ("a", 1, 1)
    assert observer.perform(Read(LINE))[0].waiters == 0


@pytest.mark.usefixtures("only_hints")
async def test_a_push_wakes_a_waiting_taker(once: Any, other: Any, observer: Observer, waiting: Waiting) -> None:
    task = waiting(once.queue("jobs"))
    await in_line(observer)
    await result_of(other.queue("jobs").push("a", 1))
    item = await ended(task)
    assert (item.id, item.payload, item.attempts) == ("a", 1, 1)
    await in_line(observer, 0)


@pytest.mark.usefixtures("only_hints")
async def test_a_returned_item_wakes_a_waiting_taker(
    once: Any, other: Any, observer: Observer, waiting: Waiting
) -> None:
    item = await result_of(other.queue("jobs").push_held("a", 1, ttl=1_000))
    task = waiting(once.queue("jobs"))
    await in_line(observer)
    await result_of(item.give_back())
    assert (await ended(task)).attempts == 2


@pytest.mark.usefixtures("only_hints")
@pytest.mark.parametrize("lease", [False, True])
async def test_the_end_of_a_delay_or_of_a_lease_wakes_a_waiting_taker(
    once: Any, observer: Observer, waiting: Waiting, clock: ManualClock, lease: bool
) -> None:
    soon, queue = 0.05, queue_of("jobs")
    await result_of(once.queue("jobs").push("a", 1, delay=0 if lease else soon))
    if lease:
        observer.perform(Take(queue, "a process that died", soon))
    task = waiting(once.queue("jobs"))
    await in_line(observer)
    clock.advance(soon)
    item = await ended(task)
    assert (item.id, item.attempts) == ("a", 2 if lease else 1)


async def test_a_wait_that_is_over_returns_none_and_leaves_the_line(once: Any, observer: Observer) -> None:
    for options in ({}, {"id": "absent"}):
        assert await result_of(once.queue("jobs").take(ttl=10, wait=0.05, **options)) is None
    assert observer.perform(Read(LINE))[0].waiters == 0
    assert len(once._driver.waiters) == 0


async def test_an_item_of_a_given_id_can_be_waited_for(once: Any, other: Any, waiting: Waiting) -> None:
    task, queue = waiting(once.queue("jobs"), id="b"), other.queue("jobs")
    await result_of(queue.push("a", 1))
    await asyncio.sleep(0)
    await result_of(queue.push("b", 2))
    assert (await ended(task)).id == "b"
    assert (await result_of(queue.take(ttl=10))).id == "a"


@pytest.mark.usefixtures("only_hints")
async def test_many_takers_of_one_process_are_one_waiter_and_each_gets_an_item(
    once: Any, other: Any, observer: Observer, waiting: Waiting
) -> None:
    tasks = [waiting(once.queue("jobs")) for _ in range(TAKERS)]
    await in_line(observer)
    async with asyncio.timeout(AT_MOST):
        while once._driver.waiters.waiting(LINE) < TAKERS:
            await asyncio.sleep(0.005)
    assert observer.perform(Read(LINE))[0].waiters == 1
    for n in range(TAKERS):
        await result_of(other.queue("jobs").push(f"{n}", n))
    assert sorted([(await ended(task)).payload for task in tasks]) == list(range(TAKERS))


async def test_takers_of_several_clients_get_one_item_each(
    open_client: Callable[..., Any], store_url: str, observer: Observer, waiting: Waiting, clock: ManualClock
) -> None:
    clients = [open_client(store_url, clock=clock, timeout=30) for _ in range(3)]
    tasks = [waiting(client.queue("jobs")) for client in clients]
    await in_line(observer, len(clients))
    for n in range(len(clients)):
        await result_of(clients[0].queue("jobs").push(f"{n}", n))
    assert sorted([(await ended(task)).payload for task in tasks]) == [0, 1, 2]


async def test_no_item_is_lost_or_taken_twice_while_many_wait_and_push(
    once: Any, other: Any, waiting: Waiting, mode: str
) -> None:
    """Every item is taken once, and every taker gets one: whenever an item was pushed while its taker joined."""
    for round in range(3):
        tasks = [waiting(client.queue("jobs")) for client in (once, other) for _ in range(TAKERS // 2)]
        for n in range(TAKERS):
            push = other.queue("jobs").push
            await (in_thread(push, f"{round}-{n}", n) if mode == "blocking" else push(f"{round}-{n}", n))
        items = [await ended(task) for task in tasks]
        assert sorted(item.payload for item in items) == list(range(TAKERS))
        for item in items:
            assert await result_of(item.ack()) is True


@pytest.mark.usefixtures("only_hints")
async def test_a_taker_that_parks_an_item_waits_on(once: Any, other: Any, observer: Observer, waiting: Waiting) -> None:
    queue, letters = other.queue("jobs"), other.dead_letters("jobs")
    poison = await result_of(queue.push_held("poison", 1, ttl=1_000))
    task = waiting(once.queue("jobs"), max_attempts=1)
    await in_line(observer)
    await result_of(poison.give_back())
    async with asyncio.timeout(AT_MOST):
        while not await result_of(letters.list()):
            await asyncio.sleep(0.005)
    await in_line(observer)
    await result_of(queue.push("good", 2))
    assert (await ended(task)).id == "good"


async def test_a_client_that_is_closed_ends_the_wait(
    open_client: Callable[..., Any], store_url: str, observer: Observer, waiting: Waiting, clock: ManualClock
) -> None:
    client = open_client(store_url, clock=clock, timeout=30)
    task = waiting(client.queue("jobs"))
    await in_line(observer)
    closing = in_thread(client.close) if isinstance(client, Client) else client.close()
    async with asyncio.timeout(AT_MOST / 2):
        await closing
        with pytest.raises(solely.ClientClosed):
            await task


@pytest.mark.parametrize("wait", [-1, float("nan"), "5", 86_401])
async def test_an_invalid_wait_never_reaches_the_store(mode: str, wait: Any) -> None:
    with pytest.raises(solely.InvalidInput, match="wait"):
        await result_of(refusing_client(mode).queue("jobs").take(ttl=10, wait=wait))


def test_a_process_that_is_killed_while_it_waits_keeps_no_item_from_others(
    shared_url: str, start_worker: Callable[..., Worker]
) -> None:
    killed = start_worker(shared_url)
    with Client(shared_url, timeout=30) as once:
        queue, observer = once.queue("jobs"), Observer(shared_url)
        killed.tell(f"once.queue('jobs').take(ttl=30, wait={AT_MOST})")
        asyncio.run(in_line(observer))
        killed.kill()
        began = time.monotonic()
        queue.push("a", 1)  # the hint goes to the dead
        item = queue.take(ttl=30, wait=AT_MOST)
        observer.close()
        assert item is not None
        assert item.attempts == 1
        assert time.monotonic() - began < AT_MOST / 2


async def test_a_taker_behind_one_that_was_killed_gets_the_item(
    shared_url: str, start_worker: Callable[..., Worker], open_client: Callable[..., Any], waiting: Waiting
) -> None:
    killed, observer = start_worker(shared_url), Observer(shared_url)
    killed.tell(f"once.queue('jobs').take(ttl=30, wait={AT_MOST})")
    await in_line(observer)
    task = waiting(open_client(shared_url, timeout=30).queue("jobs"))
    await in_line(observer, 2)
    killed.kill()
    await result_of(open_client(shared_url, timeout=30).queue("jobs").push("a", 1))
    assert (await ended(task)).id == "a"
    observer.close()
