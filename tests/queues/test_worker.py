"""A queue worker: performs, retries, postpones, parks and replays; renews while it works; stops in order."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

import solely
from solely import (
    AsyncClient,
    AsyncItem,
    InvalidInput,
    LetterOutcome,
    PermanentFailure,
    Postpone,
    QueueWorker,
    Retry,
    State,
)
from solely.model import item_key
from solely.ops import Clear
from solely.queues import performing
from solely.queues.flow import queue_of
from solely.rules import MAX_VALUE_BYTES
from solely.stores.memory import AsyncMemoryStore, Memory
from tests.client.away import switched
from tests.conftest import PATIENT, STORES
from tests.corrupt_entries import push_raw
from tests.queues.workers import AT_ONCE, PATIENCE, jobs, running, until

TTL = 2.0  # seconds, for leases that are to be renewed: the second half leaves a busy machine a second for it


@pytest.fixture(params=[name for name in ("memory", "sqlite", "valkey", "postgres") if name in STORES])
def url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
async def once(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, timeout=PATIENT) as client:
        yield client


@pytest.fixture
async def quick() -> AsyncIterator[AsyncClient]:
    """A client of a store in memory, for what is the same on every store."""
    async with AsyncClient("memory://") as client:
        yield client


async def is_empty(once: AsyncClient, queue: str = "jobs") -> bool:
    return await once.queue(queue).list() == []


# -- outcomes


async def test_drain_performs_what_is_due_now_and_returns_how_much(once: AsyncClient) -> None:
    performed: list[str] = []

    async def perform(item: AsyncItem) -> None:
        performed.append(item.id)
        if item.id == "bad":
            raise PermanentFailure("it is bad")

    for name in ("good", "bad"):
        await once.queue("jobs").push(name, {})
    await once.queue("jobs").push("later", {}, delay=3600)
    worker = QueueWorker(once.queue("jobs"), perform, dead_letters=once.dead_letters("jobs"))
    assert await worker.drain() == 2
    assert sorted(performed) == ["bad", "good"]
    assert [each.id for each in await once.queue("jobs").list()] == ["later"]
    assert len(await once.dead_letters("jobs").list()) == 1
    assert await worker.drain() == 0


async def test_each_item_is_performed_once_and_removed(once: AsyncClient) -> None:
    performed = Counter[str]()

    async def perform(item: AsyncItem) -> None:
        performed[item.id] += 1

    queue = once.queue("jobs")
    for number in range(20):
        await queue.push(f"before {number}", number)
    async with running(jobs(once, perform)) as worker:
        for number in range(20):
            await queue.push(f"while it runs {number}", number)
        await until(lambda: worker.health.performed == 40, "40 items")
        assert await is_empty(once)
    assert set(performed.values()) == {1}
    assert worker.health._replace(last_error_at=None) == ("jobs", False, 0, 40, 0, 0, "", None, "")


async def test_what_keeps_failing_becomes_a_dead_letter_and_blocks_nothing(once: AsyncClient) -> None:
    performed = list[tuple[str, int]]()

    async def perform(item: AsyncItem) -> None:
        performed.append((item.id, item.attempts))
        if item.id == "poison":
            raise ValueError("it is bad")

    await once.queue("jobs").push("poison", {"n": 1})
    for number in range(5):
        await once.queue("jobs").push(f"good {number}", number)
    async with running(jobs(once, perform, at_once=1, max_attempts=3)) as worker:
        await until(lambda: worker.health.performed == 5 and worker.health.parked == 1, "all")
    assert [attempts for id, attempts in performed if id == "poison"] == [1, 2, 3]
    assert await is_empty(once)
    (letter,) = await once.dead_letters("jobs").list()
    assert (letter.payload, letter.attempts, letter.last_error) == ({"n": 1}, 3, "ValueError: it is bad")
    assert letter.origin == "item 'poison' of queue 'jobs'"
    assert worker.health.last_error == "ValueError: it is bad"
    assert worker.health.last_error_at is not None


async def test_a_retry_counts_and_a_postponement_does_not(once: AsyncClient) -> None:
    attempts = dict[str, list[int]]()

    async def perform(item: AsyncItem) -> None:
        tried = attempts.setdefault(item.id, [])
        tried.append(item.attempts)
        if item.id == "retry":
            raise Retry("not yet", after=0)
        if len(tried) < 6:
            raise Postpone(after=0.0)

    await once.queue("jobs").push("retry", 1)
    await once.queue("jobs").push("postpone", 1)
    async with running(jobs(once, perform, max_attempts=2)) as worker:
        await until(lambda: worker.health.performed == 1 and worker.health.parked == 1, "both")
    assert attempts == {"retry": [1, 2], "postpone": [1] * 6}
    (letter,) = await once.dead_letters("jobs").list()
    assert letter.last_error == "Retry: not yet"


async def test_a_retry_waits_as_long_as_the_work_asks_for(quick: AsyncClient) -> None:
    async def perform(item: AsyncItem) -> None:
        raise Retry(after=1_000)

    await quick.queue("jobs").push("a", 1)
    async with running(jobs(quick, perform)) as worker:
        await until(lambda: worker.health.retried == 1, "the retry")
    known = await quick.queue("jobs").read("a")
    assert known is not None
    assert (known.state, known.attempts, 900 < known.left <= 1_000) == (State.CLOSED, 1, True)


@pytest.mark.parametrize(
    "error", [PermanentFailure("never"), msgspec.ValidationError("not ours"), solely.Unreadable("not ours")]
)
async def test_what_no_retry_can_heal_becomes_a_dead_letter_at_once(quick: AsyncClient, error: Exception) -> None:
    async def perform(item: AsyncItem) -> None:
        raise error

    await quick.queue("jobs").push("a", [1])
    async with running(jobs(quick, perform)) as worker:
        await until(lambda: worker.health.parked, "the letter")
    (letter,) = await quick.dead_letters("jobs").list()
    assert (letter.payload, letter.attempts) == ([1], 1)
    assert await is_empty(quick)


async def test_items_that_nobody_can_read_become_dead_letters(memory: Memory) -> None:
    async with AsyncClient(store=AsyncMemoryStore(memory)) as once:
        push_raw(memory, queue_of("jobs"), "bad", b"0" * 32 + b"j{")
        await once.queue("jobs").push("good", 1)
        performed = list[str]()

        async def perform(item: AsyncItem) -> None:
            performed.append(item.id)

        async with running(jobs(once, perform)) as worker:
            await until(lambda: worker.health.performed, "the good one")
        assert performed == ["good"]
        assert [letter.payload for letter in await once.dead_letters("jobs").list()] == [b"0" * 32 + b"j{"]


@pytest.fixture
def memory() -> Memory:
    return Memory()


async def test_a_later_item_of_the_same_id_has_a_letter_of_its_own(quick: AsyncClient) -> None:
    async def perform(item: AsyncItem) -> None:
        raise PermanentFailure("never")

    async with running(jobs(quick, perform)) as worker:
        for number in (1, 2):
            await quick.queue("jobs").push("x" * 512, number)
            await until(lambda: worker.health.parked == number, "the letter")  # noqa: B023 - awaited here
    assert sorted(letter.payload for letter in await quick.dead_letters("jobs").list()) == [1, 2]


async def test_what_is_too_large_for_a_letter_stays_in_the_queue(quick: AsyncClient) -> None:
    async def perform(item: AsyncItem) -> None:
        raise PermanentFailure("never")

    await quick.queue("jobs").push("large", b"x" * MAX_VALUE_BYTES)
    async with running(jobs(quick, perform)):
        known = await until(lambda: _delayed(quick, "large"), "the delay")
    assert (known.payload, known.left > 365 * 86_400) == (b"x" * MAX_VALUE_BYTES, True)


async def _delayed(once: AsyncClient, id: str) -> Any:
    known = await once.queue("jobs").read(id)
    return known if known is not None and known.state is State.CLOSED else None


async def test_work_may_settle_its_item_itself(quick: AsyncClient) -> None:
    async def perform(item: AsyncItem) -> None:
        await (item.ack() if item.id == "acked" else item.give_back(delay=1_000))

    await quick.queue("jobs").push("acked", 1)
    await quick.queue("jobs").push("given back", 1)
    async with running(jobs(quick, perform)) as worker:
        await until(lambda: worker.health.performed == 2, "both")
    assert [each.id for each in await quick.queue("jobs").list()] == ["given back"]


async def test_work_that_cancels_itself_is_retried(quick: AsyncClient) -> None:
    tries = 0

    async def perform(item: AsyncItem) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise asyncio.CancelledError

    await quick.queue("jobs").push("a", 1)
    async with running(jobs(quick, perform)) as worker:
        await until(lambda: worker.health.performed, "the second try")
    assert (tries, worker.health.retried) == (2, 1)


# -- replay


async def test_a_replayed_letter_is_performed_again(once: AsyncClient) -> None:
    broken, performed = True, list[Any]()

    async def perform(item: AsyncItem) -> str:
        if broken:
            raise PermanentFailure("never")
        performed.append((item.id, item.payload, item.attempts))
        return "done"

    await once.queue("jobs").push("a", {"n": 1})
    async with running(jobs(once, perform)) as worker:
        await until(lambda: worker.health.parked, "the letter")
        letters = once.dead_letters("jobs")
        (letter,) = await letters.list()
        assert (await letters.replay(letter.id, worker.replay)).outcome is LetterOutcome.FAILED
        broken = False
        replayed = await letters.replay(letter.id, worker.replay)
    assert (replayed.outcome, replayed.value) == (LetterOutcome.REPLAYED, "done")
    ((id, payload, attempts),) = performed
    assert (id.startswith("replay-"), payload, attempts) == (True, {"n": 1}, 1)
    assert await letters.list() == []


async def test_a_replay_that_is_given_back_leaves_its_letter(quick: AsyncClient) -> None:
    async def perform(item: AsyncItem) -> None:
        await item.give_back()

    letters = quick.dead_letters("jobs")
    letter = await letters.push([1], error="boom")
    assert (await letters.replay(letter.id, jobs(quick, perform).replay)).outcome is LetterOutcome.FAILED
    assert (await letters.list())[0].attempts == 2


# -- leases


async def test_a_lease_is_renewed_while_the_work_runs(once: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    renewals = 0
    renew = AsyncItem.renew

    async def counted(item: AsyncItem, *given: Any) -> None:
        nonlocal renewals
        await renew(item, *given)
        renewals += 1

    monkeypatch.setattr(AsyncItem, "renew", counted)

    async def perform(item: AsyncItem) -> None:
        await until(lambda: renewals >= 3, "three renewals, which together are longer than the ttl")
        assert item.attempts == 1

    await once.queue("jobs").push("long", 1)
    async with running(jobs(once, perform, ttl=TTL)) as worker:
        await until(lambda: worker.health.performed, "the work")
    assert worker.health.last_error == ""


async def test_a_lost_lease_cancels_the_work_and_is_logged(
    once: AsyncClient, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = asyncio.Event()

    async def perform(item: AsyncItem) -> None:
        await clear(item)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def clear(item: AsyncItem) -> None:
        store = once._store
        assert await store.perform([Clear(item_key(queue_of("jobs"), "a"), item.fence, "a test")]) == [True]

    await once.queue("jobs").push("a", 1)
    async with running(jobs(once, perform, ttl=TTL)) as worker:
        async with asyncio.timeout(PATIENCE):
            await cancelled.wait()
        await until(lambda: not worker.health.in_flight, "the end of the work")
    assert any(message.startswith("item_left: jobs leaves item 'a' of 'jobs'") for message in caplog.messages)
    assert worker.health.last_error
    assert await is_empty(once)


# -- stopping


async def test_stop_waits_for_the_work_and_takes_nothing_more(quick: AsyncClient) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def perform(item: AsyncItem) -> None:
        began.set()
        await release.wait()

    await quick.queue("jobs").push("a", 1)
    worker = jobs(quick, perform, at_once=1)
    task = asyncio.create_task(worker.run())
    await began.wait()
    stopping = asyncio.create_task(worker.stop(PATIENCE))
    await quick.queue("jobs").push("b", 1)
    release.set()
    await stopping
    await task
    assert [(each.id, each.state) for each in await quick.queue("jobs").list()] == [("b", State.FREE)]
    await worker.run()  # ends at once
    assert worker.health.performed == 1


@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_work_that_is_cancelled_at_the_end_is_given_back_uncounted(once: AsyncClient, how: str) -> None:
    began = asyncio.Event()

    async def perform(item: AsyncItem) -> None:
        began.set()
        await asyncio.Event().wait()

    await once.queue("jobs").push("a", 1)
    worker = jobs(once, perform)
    task = asyncio.create_task(worker.run())
    await began.wait()
    if how == "stop":
        await worker.stop(0)
        await task
    else:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    item = await once.queue("jobs").take(ttl=30)
    assert item is not None
    assert (item.id, item.attempts) == ("a", 1)


async def test_work_that_ignores_its_cancellation_keeps_its_item_and_does_not_hold_up_the_stop(
    quick: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performing, "_CLEAN_UP", 0.05)
    began, release = asyncio.Event(), asyncio.Event()

    async def perform(item: AsyncItem) -> None:
        began.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    await quick.queue("jobs").push("a", 1)
    worker = jobs(quick, perform)
    task = asyncio.create_task(worker.run())
    await began.wait()
    await worker.stop(0)
    await task
    known = await quick.queue("jobs").read("a")
    release.set()
    assert known is not None
    assert known.state is State.HELD
    assert "did not end" in worker.health.last_error


async def test_a_closed_client_ends_its_worker(caplog: pytest.LogCaptureFixture) -> None:
    async def perform(item: AsyncItem) -> None:
        """Never called."""

    once = AsyncClient("memory://")
    worker = jobs(once, perform)
    task = asyncio.create_task(worker.run())
    await until(lambda: worker._takes, "its first take")
    await once.close()
    async with asyncio.timeout(PATIENCE):
        await task
    assert any(message.startswith("worker_ended: ") for message in caplog.messages)


# -- outages


async def test_an_outage_is_survived_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = switched("asyncio", "memory://")
    once = store.opened(lambda url, **options: AsyncClient(**options))
    working, release = asyncio.Event(), asyncio.Event()

    async def perform(item: AsyncItem) -> None:
        working.set()
        await release.wait()

    with caplog.at_level(logging.WARNING, "solely"):
        await once.queue("jobs").push("during", 1)
        async with running(jobs(once, perform)) as worker:
            await working.wait()
            store.away = True
            release.set()
            await until(lambda: worker._failures >= 3, "three tries")
            assert "cannot take" in next(said for said in caplog.messages if said.startswith("worker_waits: "))
            assert worker.health.store_error
            store.away = False
            await once.queue("jobs").push("after", 1)
            await until(lambda: worker.health.performed == 2, "both")
            assert worker.health.store_error == ""
        said = Counter(message.partition(":")[0] for message in caplog.messages)
        assert (said["worker_waits"], said["worker_continues"]) == (1, 1)
    await once.close()


async def test_a_letter_that_was_not_stored_removes_no_item() -> None:
    """A client that proceeds without its store reports a letter as pushed that nobody has."""
    store = switched("asyncio", "memory://")
    once = store.opened(lambda url, **options: AsyncClient(**options, on_outage="proceed"))

    async def perform(item: AsyncItem) -> None:
        store.away = True
        raise PermanentFailure("never")

    await once.queue("jobs").push("a", [1])
    async with running(jobs(once, perform)) as worker:
        await until(lambda: once._context.failed_open, "a letter that was pushed nowhere")
        store.away = False
        await until(lambda: worker.health.parked, "the letter")
        assert await is_empty(once)
        assert [letter.payload for letter in await once.dead_letters("jobs").list()] == [[1]]
    await once.close()


async def test_an_outage_of_something_else_is_no_attempt(quick: AsyncClient) -> None:
    attempts = list[int]()

    async def perform(item: AsyncItem) -> None:
        attempts.append(item.attempts)
        if len(attempts) < 4:
            raise solely.DataUnavailable("the database is away")

    await quick.queue("jobs").push("a", 1)
    async with running(jobs(quick, perform, max_attempts=2)) as worker:
        await until(lambda: worker.health.performed, "the work")
    assert attempts == [1, 1, 1, 1]


# -- several queues


async def test_no_more_work_runs_at_a_time_than_allowed(quick: AsyncClient) -> None:
    queues = [quick.queue(f"jobs {number}") for number in range(5)]
    now = most = 0

    async def perform(item: AsyncItem) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    worker = QueueWorker(queues, perform, dead_letters=quick.dead_letters("jobs"), at_once=3)
    async with running(worker):
        for number in range(30):
            await queues[number % 5].push(str(number), number)
        await until(lambda: worker.health.performed == 30, "all")
    assert most == 3


async def test_items_that_come_to_several_waiting_takes_wait_for_a_slot(quick: AsyncClient) -> None:
    queues, release, now, most = [quick.queue("a"), quick.queue("b")], asyncio.Event(), 0, 0

    async def perform(item: AsyncItem) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await release.wait()
        now -= 1

    worker = QueueWorker(queues, perform, dead_letters=quick.dead_letters("jobs"), at_once=2)
    async with running(worker):
        await queues[0].push("first", 1)
        await until(lambda: [take.waits for take in worker._takes.values()] == [True, True], "both to wait")
        assert worker.health.in_flight == 1
        for queue in queues:
            await queue.push("second", 1)
        await until(lambda: worker.health.in_flight == 3, "three items")
        release.set()
        await until(lambda: worker.health.performed == 3, "all")
    assert most == 2


async def test_a_long_queue_does_not_keep_a_short_one_waiting(once: AsyncClient) -> None:
    order = list[str]()

    async def perform(item: AsyncItem) -> None:
        order.append(item.queue)

    for number in range(30):
        await once.queue("long").push(str(number), number)
    for number in range(3):
        await once.queue("short").push(str(number), number)
    both = [once.queue("long"), once.queue("short")]
    worker = QueueWorker(both, perform, dead_letters=once.dead_letters("jobs"), at_once=1)
    async with running(worker):
        await until(lambda: worker.health.performed == 33, "all")
    assert order[:6].count("short") == 3


async def test_a_function_names_the_queues_that_there_are_now(quick: AsyncClient) -> None:
    named = [quick.queue("first")]

    async def queues() -> list[Any]:
        return named

    async def perform(item: AsyncItem) -> None:
        """Succeeds."""

    worker = QueueWorker(queues, perform, dead_letters=quick.dead_letters("jobs"), name="environments")
    async with running(worker):
        named.append(quick.queue("second"))
        await quick.queue("second").push("a", 1)
        await until(lambda: worker.health.performed, "the queue that came later")
    assert worker.health.name == "environments"


async def test_a_function_that_fails_is_called_again(quick: AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    def queues() -> list[Any]:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise solely.StoreUnavailable("away")
        return [quick.queue("jobs")]

    async def perform(item: AsyncItem) -> None:
        """Succeeds."""

    await quick.queue("jobs").push("a", 1)
    worker = QueueWorker(queues, perform, dead_letters=quick.dead_letters("jobs"))
    async with running(worker):
        await until(lambda: worker.health.performed, "the work")
    assert sum(message.startswith("worker_waits: ") for message in caplog.messages) == 1


# -- events and arguments


async def test_hooks_get_what_happens_to_items() -> None:
    events = list[Any]()

    async def perform(item: AsyncItem) -> None:
        if item.id == "bad":
            raise PermanentFailure("never")

    async with AsyncClient("memory://", hooks=[events.append]) as once:
        await once.queue("jobs").push("good", 1)
        await once.queue("jobs").push("bad", 1)
        async with running(jobs(once, perform)) as worker:
            await until(lambda: worker.health.performed and worker.health.parked, "both")
    kinds = Counter(type(event).__name__ for event in events)
    assert (kinds["Acquired"], kinds["ReleasedLease"], kinds["DeadLettered"]) == (2, 2, 1)
    outcomes = {event.outcome for event in events if type(event).__name__ == "ReleasedLease"}
    assert outcomes == {"acked", "parked"}
    assert {event.key for event in events if type(event).__name__ == "Acquired"} == {
        item_key(queue_of("jobs"), id) for id in ("good", "bad")
    }


@pytest.mark.parametrize(
    "given", [{"ttl": 0}, {"at_once": 0}, {"at_once": True}, {"max_attempts": 0}, {"max_attempts": 1.5}, {"queues": []}]
)
async def test_bad_arguments_are_refused(quick: AsyncClient, given: dict[str, Any]) -> None:
    async def perform(item: AsyncItem) -> None:
        """Never called."""

    arguments = {"queues": quick.queue("jobs"), "dead_letters": quick.dead_letters("jobs"), "backoff": AT_ONCE, **given}
    with pytest.raises(InvalidInput):
        QueueWorker(perform=perform, **arguments)
    with pytest.raises(InvalidInput, match="after"):
        Retry(after=-1)


async def test_a_worker_runs_once_at_a_time(quick: AsyncClient) -> None:
    async def perform(item: AsyncItem) -> None:
        """Never called."""

    async with running(jobs(quick, perform)) as worker:
        await until(lambda: worker.health.running, "its start")
        with pytest.raises(InvalidInput, match="running already"):
            await worker.run()
