"""Unique tasks: queued or running once at a time, with a real worker and an in-memory broker."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery, signals, states
from celery.contrib.testing.worker import start_worker

import solely
from solely.integrations.celery import TOKEN, unique
from solely.testing.clock import ManualClock
from tests.client.away import switched
from tests.client.refusing import AsyncRefusingStore, RefusingStore

SOON = 10.0  # seconds: a task takes milliseconds, but a test machine can be very busy


@pytest.fixture
def once(store_url: str, clock: ManualClock) -> Iterator[solely.Client]:
    with solely.Client(store_url, clock=clock) as client:
        yield client


@pytest.fixture
def memory(clock: ManualClock) -> Iterator[solely.Client]:
    with solely.Client("memory://", clock=clock) as client:
        yield client


def celery(**conf: Any) -> Celery:
    app = Celery("tests", broker="memory://", backend="cache+memory://", set_as_current=False)
    queue = secrets.token_hex(8)  # the broker is the process's
    app.conf.update(
        worker_hijack_root_logger=False,
        task_default_queue=queue,
        broker_transport_options={"polling_interval": 0.01},
        **conf,
    )
    return app


@contextmanager
def worker(app: Celery, concurrency: int = 2) -> Iterator[None]:
    """A worker on threads of this process. When it is to stop it is kept awake: it looks up only between messages."""

    @app.task(shared=False, name="wake", ignore_result=True)
    def wake() -> None: ...

    def keep_awake() -> None:
        while not stopped.wait(0.02):
            wake.delay()

    stopped = threading.Event()
    waker = threading.Thread(target=keep_awake)
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]  # which a worker sets as it likes
    try:
        with start_worker(
            app, pool="threads", concurrency=concurrency, perform_ping_check=False, shutdown_timeout=SOON
        ):
            yield
            waker.start()
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
    stopped.set()
    waker.join(SOON)


def eventually(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.005)


# -- from sending to the end


def test_a_task_is_queued_once_until_it_was_executed(once: solely.Client) -> None:
    app, ran = celery(), list[str]()

    @app.task(shared=False, base=unique(once))
    def sync(account: str, deep: bool = False) -> str:
        ran.append(account)
        return f"synced {account}"

    first = sync.delay("a")
    for again in (sync.delay("a"), sync.apply_async(kwargs={"account": "a"}), sync.delay("a", deep=False)):
        assert again.state == states.IGNORED
        assert "held by" in again.result
        assert f"queued task {first.id}" in again.result
    other, deep = sync.delay("b"), sync.delay("a", deep=True)
    with worker(app):
        assert first.get(timeout=SOON, interval=0.01) == "synced a"
        assert other.get(timeout=SOON, interval=0.01) == "synced b"
        assert deep.get(timeout=SOON, interval=0.01) == "synced a"
        assert sync.delay("a").get(timeout=SOON, interval=0.01) == "synced a"
    assert sorted(ran) == ["a", "a", "a", "b"]


def test_while_it_runs_no_other_is_queued_and_its_lease_is_held(once: solely.Client) -> None:
    app, entered, leave = celery(), threading.Event(), threading.Event()
    fences: list[int] = []

    @app.task(shared=False, bind=True, base=unique(once, key=lambda account: f"sync:{account}"))
    def sync(self: Any, account: str) -> str:
        fences.append(self.lease.fence)
        assert not self.lease.lost
        entered.set()
        assert leave.wait(SOON)
        return "synced"

    with worker(app):
        first = sync.delay("a")
        assert entered.wait(SOON)
        refused = sync.delay("a")
        assert refused.state == states.IGNORED
        assert f"running task {first.id}" in refused.result
        assert once.try_lock("sync:a") is None
        leave.set()
        assert first.get(timeout=SOON, interval=0.01) == "synced"
        assert not _held(once, "sync:a")
    assert fences[0] > 0
    assert sync.lease is None


def test_a_message_that_is_delivered_twice_is_executed_once_at_a_time(once: solely.Client) -> None:
    app, ran, leave, refused = celery(), list[str](), threading.Event(), list[str]()

    @app.task(shared=False, bind=True, base=unique(once))
    def sync(self: Any) -> None:
        ran.append(self.request.id)
        assert leave.wait(SOON)

    def ended(task_id: str, task: Any, **_: Any) -> None:
        if task.name == sync.name and not leave.is_set():
            refused.append(task_id)

    signals.task_postrun.connect(ended)
    sent = sync.delay()
    with app.connection_for_write() as connection:
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        message = queue.get(timeout=SOON)
        for _ in range(2):
            queue.put(message.payload, headers=message.headers, **_address(message))
        message.ack()
        queue.close()
    with worker(app):
        eventually(lambda: refused == ran == [sent.id])
        leave.set()
        sent.get(timeout=SOON, interval=0.01)
    assert ran == [sent.id]


def _address(message: Any) -> dict[str, Any]:
    return {key: message.properties[key] for key in ("correlation_id", "reply_to")}


def test_a_message_that_nobody_took_keeps_nobody_out_for_long(once: solely.Client, clock: ManualClock) -> None:
    app, ran = celery(), list[str]()

    @app.task(shared=False, bind=True, base=unique(once, queued_for=600))
    def sync(self: Any) -> str:
        ran.append(self.request.id)
        return "synced"

    sync.delay()
    clock.advance(599)
    assert sync.delay().state == states.IGNORED
    clock.advance(1.01)
    again = sync.delay()
    with worker(app, concurrency=1):
        assert again.get(timeout=SOON, interval=0.01) == "synced"
    assert ran == [again.id]  # the old message was delivered first, and left it to the new one


def test_a_worker_that_was_killed_blocks_for_no_longer_than_the_ttl(
    once: solely.Client, clock: ManualClock, store_url: str
) -> None:
    app, entered, leave = celery(), threading.Event(), threading.Event()

    @app.task(shared=False, base=unique(once, key=lambda: "sync", ttl=60))
    def sync() -> None:
        entered.set()
        assert leave.wait(SOON)

    with worker(app):
        running = sync.delay()
        assert entered.wait(SOON)
        clock.advance(60.01)  # nobody renewed it
        taken = once.lock("sync", ttl=60, wait=0)
        leave.set()
        with pytest.raises(solely.LeaseLost):
            running.get(timeout=SOON, interval=0.01)
        assert str(taken.release()) == "released"


def test_an_eta_is_not_counted_as_waiting_for_a_worker(memory: solely.Client, clock: ManualClock) -> None:
    app = celery()

    @app.task(shared=False, base=unique(memory, queued_for=600))
    def sync(n: int) -> None: ...

    sync.apply_async((1,), countdown=1000)
    sync.apply_async((2,), eta=datetime.now(UTC) + timedelta(seconds=1000))
    clock.advance(1500)
    assert [sync.delay(n).state for n in (1, 2)] == [states.IGNORED] * 2
    clock.advance(101)
    assert [sync.delay(n).state for n in (1, 2)] == [states.PENDING] * 2


# -- what goes wrong


def test_a_failed_task_can_be_sent_again(memory: solely.Client) -> None:
    app = celery()

    @app.task(shared=False, base=unique(memory, key=lambda: "sync"))
    def sync() -> None:
        raise ZeroDivisionError

    with worker(app):
        with pytest.raises(ZeroDivisionError):
            sync.delay().get(timeout=SOON, interval=0.01)
        assert not _held(memory, "sync")


def _held(once: solely.Client, key: str) -> bool:
    lease = once.try_lock(key)
    return lease is None or str(lease.release()) != "released"


def test_a_retry_is_still_the_one(memory: solely.Client) -> None:
    app, tries, seen = celery(), list[int](), list[str]()

    @app.task(shared=False, bind=True, base=unique(memory), max_retries=5)
    def sync(self: Any) -> str:
        tries.append(self.request.retries)
        if len(tries) < 3:
            try:
                self.retry(countdown=0, exc=ConnectionError())
            finally:
                seen.append(sync.delay().state)  # the retry is queued
        return "synced"

    with worker(app, concurrency=1):
        assert sync.delay().get(timeout=SOON, interval=0.01) == "synced"
    assert tries == [0, 1, 2]
    assert seen == [states.IGNORED] * 2


def test_what_could_not_be_sent_holds_nothing(memory: solely.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    app = celery()

    @app.task(shared=False, base=unique(memory, key=lambda: "sync"))
    def sync() -> None: ...

    def no_broker(*args: Any, **options: Any) -> None:
        raise ConnectionError("no broker")

    monkeypatch.setattr(app, "send_task", no_broker)
    with pytest.raises(ConnectionError, match="no broker"):
        sync.delay()
    assert not _held(memory, "sync")


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A store that is away; what is undone at it takes all the time it is given: here, little."""
    monkeypatch.setattr("solely.drivers.blocking.COMPENSATE", 0.05)
    store = switched("blocking", "memory://")
    store.away = True
    return store


def test_without_the_store_nothing_is_sent(away: Any) -> None:
    app = celery()
    with solely.Client(store=away, timeout=0.05) as once:

        @app.task(shared=False, base=unique(once))
        def sync() -> None: ...

        with pytest.raises(solely.StoreUnavailable):
            sync.delay()


def test_where_the_client_proceeds_the_task_is_sent_and_run_without_the_store(away: Any) -> None:
    app, unguarded = celery(), list[bool]()
    with solely.Client(store=away, timeout=0.05, on_outage="proceed") as once:

        @app.task(shared=False, bind=True, base=unique(once))
        def sync(self: Any) -> str:
            unguarded.append(self.lease.unguarded)
            return "synced"

        with worker(app):
            assert sync.delay().get(timeout=SOON, interval=0.01) == "synced"
    assert unguarded == [True]


def test_a_task_that_was_sent_by_name_is_guarded_by_the_worker(memory: solely.Client) -> None:
    app, entered, leave = celery(), list[int](), threading.Event()

    @app.task(shared=False, name="sync", base=unique(memory))
    def sync() -> None:
        entered.append(1)
        assert leave.wait(SOON)

    with worker(app):
        app.send_task("sync")
        eventually(lambda: len(entered) == 1)
        app.send_task("sync")
        time.sleep(0.1)
        assert len(entered) == 1
        leave.set()


# -- without a worker


def test_eager_tasks_and_direct_calls_run(memory: solely.Client) -> None:
    app, runs = celery(task_always_eager=True), list[Any]()

    @app.task(shared=False, bind=True, base=unique(memory, key=lambda n: f"sync:{n}"), max_retries=2)
    def sync(self: Any, n: int) -> int:
        runs.append(self.lease)
        if len(runs) == 1:
            self.retry(countdown=0)
        return n * 2

    assert sync.delay(1).get() == 2
    assert sync.delay(1).get() == 2
    assert len(runs) == 3
    assert all(runs)
    assert not _held(memory, "sync:1")
    held = memory.lock("sync:1")
    assert sync.delay(1).state == states.IGNORED
    assert sync.apply((1,)).state == states.IGNORED
    assert sync(1) == 2  # a plain call is a plain call
    assert runs[-1] is None
    held.release()


def test_the_token_travels_in_a_header_of_its_own(memory: solely.Client) -> None:
    app, headers = celery(), list[Any]()

    @app.task(shared=False, bind=True, base=unique(memory))
    def sync(self: Any) -> None:
        headers.append(dict(self.request.headers))

    with worker(app):
        sync.apply_async(headers={"tenant": "7"}).get(timeout=SOON, interval=0.01)
    assert headers[0]["tenant"] == "7"
    assert headers[0][TOKEN]


@pytest.mark.parametrize("options", [{"queued_for": 0}, {"ttl": "60"}, {"ttl": -1}])
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with solely.Client(store=RefusingStore()) as once, pytest.raises(solely.InvalidInput):
        unique(once, **options)
    with pytest.raises(solely.InvalidInput, match=r"need a solely\.Client"):
        unique(solely.AsyncClient(store=AsyncRefusingStore()))  # type: ignore[arg-type]
