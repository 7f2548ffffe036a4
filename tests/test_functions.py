"""Functions of the wrong kind are refused where they are declared; what slips through never counts as work done."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest

from solely import (
    AsyncClient,
    Backoff,
    Breaker,
    Cache,
    Client,
    InvalidInput,
    LetterOutcome,
    PermanentFailure,
    QueueWorker,
)
from solely.apps.signals import AsyncIdempotentSignalGenerator, IdempotentSignalGenerator, SignalOptions
from solely.apps.triggers.work.tasks import Tasks
from solely.copying import copy_stores
from solely.fencing.http import FenceMiddleware, MemoryFenceBook
from solely.functions import coroutine_function, finished, items_function, plain_function, work_function
from solely.integrations import asgi, wsgi
from solely.integrations.celery import unique
from solely.integrations.cron import one_host
from solely.integrations.idempotency import Rules
from solely.resilience import retry
from solely.stores import open_store

RULES = Rules(scope=lambda request: "ann")


async def awaited(*_: Any, **__: Any) -> None: ...


def plain(*_: Any, **__: Any) -> None: ...


def items(*_: Any) -> list[Any]:
    return []


def generator(*_: Any) -> Iterator[int]:
    yield 1


async def async_generator(*_: Any) -> AsyncIterator[int]:
    yield 1


class Awaited:
    """An object whose call is a coroutine, and a method that is one."""

    async def __call__(self, *_: Any) -> None: ...

    async def method(self, *_: Any) -> None: ...


class Plain:
    def __call__(self, *_: Any) -> None: ...

    def method(self, *_: Any) -> None: ...


@wraps(awaited)
def decorated(*args: Any) -> Any:
    return awaited(*args)


ASYNC = [awaited, partial(awaited, 1), partial(partial(awaited), 1), Awaited(), Awaited().method]
PLAIN = [plain, partial(plain, 1), Plain(), Plain().method, partial(Plain().method, 1)]
GENERATORS = [generator, async_generator, partial(generator)]
UNKNOWN = [lambda *_: awaited(), decorated, print]


@pytest.mark.parametrize("function", [*ASYNC, *GENERATORS, None, 7])
def test_a_plain_function_is_none_that_must_be_awaited(function: Any) -> None:
    with pytest.raises(InvalidInput, match="job"):
        plain_function("job", function)


@pytest.mark.parametrize("function", [*PLAIN, *GENERATORS, None, 7])
def test_a_coroutine_function_is_none_that_returns_a_value(function: Any) -> None:
    with pytest.raises(InvalidInput, match="job"):
        coroutine_function("job", function)


def test_functions_of_the_right_or_an_unknown_kind_are_accepted() -> None:
    for function in (*PLAIN, *UNKNOWN):
        assert plain_function("job", function) is function
    for function in (*ASYNC, *UNKNOWN):
        assert coroutine_function("job", function) is function
    for function in (*PLAIN, *ASYNC, *UNKNOWN):
        assert work_function("job", function) is function


def test_what_was_not_begun_is_no_result_of_a_plain_function() -> None:
    assert finished("job", 7) == 7
    with pytest.raises(InvalidInput, match="job returned an awaitable"):
        _ = finished("job", awaited())
    for made in (generator(), async_generator()):
        with pytest.raises(InvalidInput, match="job returned a generator"):
            _ = finished("job", made)


def test_what_returns_items_may_be_a_generator_that_is_not_asynchronous() -> None:
    for function in (*PLAIN, *UNKNOWN, generator, partial(generator)):
        assert items_function("generate", function) is function
    for function in (*ASYNC, async_generator, partial(async_generator), None):
        with pytest.raises(InvalidInput, match="generate"):
            items_function("generate", function)


# -- at each front door

BLOCKING: list[Callable[[Client, Any], Any]] = [
    lambda once, f: once.every("report", 60)(f),
    lambda once, f: once.every("report", 60).run(f),
    lambda once, f: once.every("report", 60).run_due(f),
    lambda once, f: once.dead_letters("mails").replay("1", f),
    lambda once, f: once.dead_letters("mails").replay_all(f),
    lambda once, f: once.dead_letters("mails").list(where=f),
    lambda once, f: once.dead_letters("mails").count(where=f),
    lambda once, f: once.dead_letters("mails").purge(where=f),
    lambda once, f: once.lock("a", on_lost=f),
    lambda once, f: once.try_lock("a", on_lost=f),
    lambda once, f: once.lock_all(["a"], on_lost=f),
    lambda once, f: once.idempotent(key="a")(f),
    lambda once, f: once.idempotent(key=f)(plain),
    lambda once, f: once.idempotent(key="a", fingerprint=f)(plain),
    lambda once, f: one_host(once, "a", at_most_for=1)(f),
    lambda once, f: Client("memory://", hooks=[f]),
    lambda once, f: once.breaker("b").call(f),
    lambda once, f: Breaker().call(f),
    lambda once, f: unique(once, key=f),
    lambda once, f: type("Mail", (unique(once),), {"run": staticmethod(f)}),
    lambda once, f: once.dead_letters("mails").replay_all(plain, progress=f),
    lambda once, f: IdempotentSignalGenerator(f, plain, once),
    lambda once, f: IdempotentSignalGenerator(items, f, once),
    lambda once, f: IdempotentSignalGenerator(items, plain, once, unprotected=f),
    lambda once, f: IdempotentSignalGenerator(items, plain, once, transaction=f),
    lambda once, f: IdempotentSignalGenerator(items, plain, once, on_alert=f),
    lambda once, f: IdempotentSignalGenerator(items, plain, once, clock=f),
    lambda once, f: SignalOptions(username=f),
    lambda once, f: SignalOptions(dump=f),
    lambda once, f: SignalOptions(load=f),
    lambda once, f: SignalOptions(own=f),
    lambda once, f: Backoff((1.0,), chance=f),
    lambda once, f: Breaker(clock=f),
    lambda once, f: Cache(clock=f),
    lambda once, f: copy_stores(open_store("memory://"), open_store("memory://"), progress=f),
]


@pytest.mark.parametrize("declare", BLOCKING)
@pytest.mark.parametrize("function", ASYNC)
def test_a_client_refuses_coroutine_functions(declare: Callable[[Client, Any], Any], function: Any) -> None:
    with Client("memory://") as once, pytest.raises(InvalidInput):
        once.dead_letters("mails").push({"to": "ann"}, error="bounced", id="1")
        declare(once, function)


AWAITED: list[Callable[[AsyncClient, Any], Any]] = [
    lambda once, f: once.every("report", 60)(f),
    lambda once, f: once.every("report", 60).run(f),
    lambda once, f: once.every("report", 60).run_due(f),
    lambda once, f: once.idempotent(key="a")(f),
    lambda once, f: one_host(once, "a", at_most_for=1)(f),
    lambda once, f: QueueWorker(once.queue("mails"), f, dead_letters=once.dead_letters("mails")),
    lambda once, f: retry(awaited, on=OSError, sleep=f),
]
HOOKS: list[Callable[[AsyncClient, Any], Any]] = [
    lambda once, f: once.dead_letters("mails").purge(where=f),
    lambda once, f: once.dead_letters("mails").replay_all(awaited, progress=f),
    lambda once, f: once.lock("a", on_lost=f),
    lambda once, f: once.idempotent(key=f)(awaited),
    lambda once, f: AsyncIdempotentSignalGenerator(items, awaited, once, transaction=f),
    lambda once, f: AsyncIdempotentSignalGenerator(items, awaited, once, on_alert=f),
    lambda once, f: once.idempotent(key="a", fingerprint=f)(awaited),
    lambda once, f: AsyncClient("memory://", hooks=[f]),
    lambda once, f: QueueWorker(once.queue("q"), awaited, dead_letters=once.dead_letters("q")).on_settled(f),
]


async def _declared(declare: Callable[[AsyncClient, Any], Any], function: Any) -> None:
    async with AsyncClient("memory://") as once:
        await once.dead_letters("mails").push({"to": "ann"}, error="bounced", id="1")
        with pytest.raises(InvalidInput):
            made = declare(once, function)
            if asyncio.iscoroutine(made):
                await made
        assert await once.dead_letters("mails").count() == 1


@pytest.mark.parametrize("declare", AWAITED)
@pytest.mark.parametrize("function", PLAIN)
async def test_an_async_client_refuses_plain_functions(declare: Any, function: Any) -> None:
    await _declared(declare, function)


@pytest.mark.parametrize("declare", HOOKS)
@pytest.mark.parametrize("function", ASYNC)
async def test_an_async_client_refuses_callbacks_that_nobody_awaits(declare: Any, function: Any) -> None:
    await _declared(declare, function)


async def asgi_app(scope: Any, receive: Any, send: Any) -> None: ...


def wsgi_app(environ: Any, start_response: Any) -> list[bytes]:
    return []


def plain_asgi_app(scope: Any, receive: Any, send: Any) -> None: ...


async def coroutine_wsgi_app(environ: Any, start_response: Any) -> list[bytes]:
    return []


def generator_wsgi_app(environ: Any, start_response: Any) -> Iterator[bytes]:
    yield b""


MISMATCHED: list[Callable[[Client, AsyncClient], Any]] = [
    lambda once, other: asgi.IdempotencyMiddleware(wsgi_app, once=other, rules=RULES),  # type: ignore[arg-type]
    lambda once, other: asgi.IdempotencyMiddleware(asgi_app, once=once, rules=RULES),  # type: ignore[arg-type]
    lambda once, other: wsgi.IdempotencyMiddleware(asgi_app, once=once, rules=RULES),  # type: ignore[arg-type]
    lambda once, other: wsgi.IdempotencyMiddleware(wsgi_app, once=other, rules=RULES),  # type: ignore[arg-type]
    lambda once, other: FenceMiddleware(wsgi_app, book=MemoryFenceBook()),  # type: ignore[arg-type]
    lambda once, other: asgi.IdempotencyMiddleware(plain_asgi_app, once=other, rules=RULES),  # type: ignore[arg-type]
    lambda once, other: FenceMiddleware(plain_asgi_app, book=MemoryFenceBook()),  # type: ignore[arg-type]
    lambda once, other: wsgi.IdempotencyMiddleware(coroutine_wsgi_app, once=once, rules=RULES),  # type: ignore[arg-type]
    lambda once, other: QueueWorker(once.queue("q"), awaited, dead_letters=other.dead_letters("q")),  # type: ignore[arg-type]
    lambda once, other: QueueWorker([once.queue("q")], awaited, dead_letters=other.dead_letters("q")),  # type: ignore[list-item]
    lambda once, other: QueueWorker(other.queue("q"), awaited, dead_letters=once.dead_letters("q")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("declare", MISMATCHED)
async def test_an_application_or_a_client_of_the_other_kind_is_refused(declare: Callable[..., Any]) -> None:
    with Client("memory://") as once:
        async with AsyncClient("memory://") as other:
            with pytest.raises(InvalidInput):
                declare(once, other)


def test_an_application_of_wsgi_may_be_a_generator() -> None:
    with Client("memory://") as once:
        wsgi.IdempotencyMiddleware(generator_wsgi_app, once=once, rules=RULES)


@pytest.mark.parametrize("function", GENERATORS)
async def test_a_generator_writes_no_signal(function: Any) -> None:
    with Client("memory://") as once, pytest.raises(InvalidInput, match="write"):
        IdempotentSignalGenerator(items, function, once)
    async with AsyncClient("memory://") as other:
        with pytest.raises(InvalidInput, match="write"):
            AsyncIdempotentSignalGenerator(items, function, other)


@pytest.mark.parametrize("function", [*GENERATORS, None])
def test_a_task_of_triggers_runs_something(function: Any) -> None:
    with pytest.raises(InvalidInput, match="the task 'mail'"):
        Tasks()("mail")(function)


# -- what a declaration cannot tell


def test_a_signal_whose_write_returns_an_awaitable_is_no_signal_that_was_written() -> None:
    with Client("memory://") as once:
        made = IdempotentSignalGenerator(
            lambda group, context: [{"username": "ann"}],
            lambda signal, id: awaited(),
            once,
            options=SignalOptions(backoff=()),
        )
        result = made.generate_group(("north", "slots"))
        assert (result.generated, result.dead_lettered) == (0, 1)
        assert not once.seen("signal:north:slots:ann")
        (letter,) = once.dead_letters("signals").list()
        assert "awaitable" in letter.last_error


async def test_a_signal_whose_write_returns_a_generator_is_no_signal_that_was_written() -> None:
    async with AsyncClient("memory://") as once:
        made = AsyncIdempotentSignalGenerator(
            lambda group, context: [{"username": "ann"}],
            lambda signal, id: generator(),
            once,
            options=SignalOptions(backoff=()),
        )
        result = await made.generate_group(("north", "slots"))
        assert (result.generated, result.dead_lettered) == (0, 1)


async def test_a_replay_whose_handler_returns_a_generator_leaves_the_letter() -> None:
    with Client("memory://") as once:
        letters = once.dead_letters("mails")
        letters.push({"to": "ann"}, error="bounced", id="1")
        with pytest.raises(InvalidInput, match="generator"):
            letters.replay("1", lambda payload: generator(payload))
        assert letters.replay("1", plain).outcome is LetterOutcome.REPLAYED
    async with AsyncClient("memory://") as other:
        awaiting = other.dead_letters("mails")
        await awaiting.push({"to": "ann"}, error="bounced", id="1")
        with pytest.raises(InvalidInput, match="generator"):
            await awaiting.replay("1", lambda payload: generator(payload))
        assert (await awaiting.replay("1", awaited)).outcome is LetterOutcome.REPLAYED


def test_a_pause_that_nobody_awaits_is_no_pause() -> None:
    calls = list[int]()

    def fails() -> None:
        calls.append(1)
        raise OSError("away")

    with pytest.raises(InvalidInput, match="awaitable"):
        retry(fails, on=OSError, sleep=awaited)
    assert calls == [1]


async def test_a_worker_replays_no_work_that_nobody_awaits() -> None:
    performed = list[str]()
    async with AsyncClient("memory://") as once:
        work: Any = lambda item: performed.append(item.id)  # noqa: E731 - a lambda is what is tried
        worker = QueueWorker(once.queue("mails"), work, dead_letters=once.dead_letters("mails"))
        with pytest.raises(PermanentFailure, match="coroutine function"):
            await worker.replay({"to": "ann"})
    assert len(performed) == 1


@pytest.mark.parametrize("call", [lambda once, f: once.breaker("b").call(f), lambda once, f: Breaker().call(f)])
def test_a_breaker_admits_no_call_that_nobody_awaits(call: Callable[..., Any]) -> None:
    with Client("memory://") as once, pytest.raises(InvalidInput, match="awaitable"):
        call(once, lambda: awaited())


@pytest.mark.parametrize("call", [lambda once, f: once.breaker("b").call(f), lambda once, f: Breaker().call_async(f)])
async def test_a_breaker_for_tasks_names_a_function_that_is_not_awaited(call: Callable[..., Any]) -> None:
    async with AsyncClient("memory://") as once:
        with pytest.raises(InvalidInput, match="coroutine function"):
            await call(once, plain)


async def test_a_worker_reports_queues_of_the_other_kind() -> None:
    with Client("memory://") as once:
        async with AsyncClient("memory://") as other:
            work: Any = lambda: [once.queue("q")]  # noqa: E731 - a lambda is what is tried
            worker = QueueWorker(work, awaited, dead_letters=other.dead_letters("q"))
            run = asyncio.ensure_future(worker.run())
            async with asyncio.timeout(60):
                while "AsyncClient" not in worker.health.store_error:
                    await asyncio.sleep(0.01)
            await worker.stop()
            await run


def test_a_replay_whose_handler_returns_an_awaitable_leaves_the_letter() -> None:
    with Client("memory://") as once:
        letters = once.dead_letters("mails")
        letters.push({"to": "ann"}, error="bounced", id="1")
        with pytest.raises(InvalidInput, match="awaitable"):
            letters.replay("1", lambda payload: awaited(payload))
        with pytest.raises(InvalidInput, match="awaitable"):
            letters.replay_all(lambda payload: awaited(payload))
        assert letters.count() == 1
        assert letters.replay("1", plain).outcome is LetterOutcome.REPLAYED


def test_a_purge_whose_condition_returns_an_awaitable_removes_nothing() -> None:
    with Client("memory://") as once:
        letters = once.dead_letters("mails")
        letters.push({"to": "ann"}, error="bounced", id="1")
        with pytest.raises(InvalidInput, match="awaitable"):
            letters.purge(where=lambda letter: awaited(letter))  # type: ignore[arg-type,return-value]
        assert letters.count() == 1


def test_a_tick_whose_job_returns_an_awaitable_has_failed() -> None:
    with Client("memory://") as once:
        schedule = once.every("report", 0.1)
        ends, status = time.monotonic() + 60, None
        while (status is None or not status.outcome) and time.monotonic() < ends:
            time.sleep(min(1.0, schedule.run_due(lambda tick: awaited(tick))))
            status = schedule.status()
        assert status is not None
        assert "awaitable" in status.outcome


def test_work_that_returns_an_awaitable_runs_again() -> None:
    with Client("memory://") as once:
        with pytest.raises(InvalidInput, match="awaitable"):
            _ = once.idempotent(key="a")(lambda: awaited())()
        assert once.idempotent(key="a")(lambda: 7)() == 7


async def test_an_item_whose_work_returned_no_awaitable_is_parked_and_not_repeated() -> None:
    performed = list[str]()
    async with AsyncClient("memory://") as once:
        await once.queue("mails").push("1", {"to": "ann"})
        work: Any = lambda item: performed.append(item.id)  # noqa: E731 - a lambda is what is tried
        worker = QueueWorker(once.queue("mails"), work, dead_letters=once.dead_letters("mails"))
        run = asyncio.ensure_future(worker.run())
        async with asyncio.timeout(60):
            while not await once.dead_letters("mails").count():
                await asyncio.sleep(0.01)
        await worker.stop()
        await run
        assert performed == ["1"]
