"""What the service runs for an application: its queue workers, callers and journals, from start to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from solely import AsyncItem, InvalidInput, QueueWorker, kit
from solely.apps import APPS
from solely.kit.commands import Act, Field
from solely.service.acts import act_routes
from solely.service.mount import mount
from solely.service.service import Service
from tests.apps.hooks import Answer, hooks
from tests.service.serving import settings

SOON = 30.0  # seconds within which what is waited for has to happen
Work = Callable[[AsyncItem], Awaitable[object]]


class MillSettings(msgspec.Struct, frozen=True):
    """No settings."""


class Mill(kit.Application[MillSettings]):
    """Performs the items of one queue as the test says."""

    name, title = "mill", "Mill"
    perform: ClassVar[Work]
    stopped: ClassVar[list[str]] = []

    def workers(self) -> list[QueueWorker]:
        return [self.worker("grain", type(self).perform, max_attempts=2)]

    async def stop(self) -> None:
        self.stopped.append("stopped")


@asynccontextmanager
async def mill(monkeypatch: pytest.MonkeyPatch, perform: Work, **given: Any) -> AsyncIterator[Mill]:
    """The application in a service without HTTP, closed at the end."""
    monkeypatch.setitem(APPS, "mill", f"{__name__}:Mill")
    monkeypatch.setattr(Mill, "perform", staticmethod(perform), raising=False)
    service = Service(settings(apps=["mill"], **given))
    mount(service)
    await service.open()
    app = service.apps["mill"]
    assert isinstance(app, Mill)
    try:
        yield app
    finally:
        await service.close()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():
            await asyncio.sleep(0.01)


def settled(app: Mill, outcome: str) -> float:
    counts = app.service.metrics.counts().counters["solely_worker_items"]
    return counts.get(("mill", "grain", outcome), 0.0)


def test_the_type_of_the_settings_is_that_of_the_declaration() -> None:
    class Windmill(Mill):
        name = "windmill"

    assert (Mill.Settings, Windmill.Settings) == (MillSettings, MillSettings)


async def test_an_item_in_flight_ends_before_the_application_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = asyncio.Event(), list[str]()
    monkeypatch.setattr(Mill, "stopped", ended)

    async def perform(item: AsyncItem) -> None:
        began.set()
        await app.service.stopping.wait()
        await asyncio.sleep(0.05)
        ended.append(item.id)

    async with mill(monkeypatch, perform, stop_timeout=SOON) as app:
        await app.queue("grain").push("a", 1)
        async with asyncio.timeout(SOON):
            await began.wait()
        assert app.service.metrics.counts().gauges["solely_worker_in_flight"] == {("mill", "grain"): 1.0}
    assert ended == ["a", "stopped"]


async def test_an_item_that_does_not_end_in_time_is_given_back_uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    began = asyncio.Event()

    async def perform(item: AsyncItem) -> None:
        began.set()
        await asyncio.Event().wait()

    async with mill(monkeypatch, perform, stop_timeout=0.05) as app:
        await app.queue("grain").push("a", 1)
        async with asyncio.timeout(SOON):
            await began.wait()
        app.service.stop()
        await app.service.workers.finish()
        seen = await app.queue("grain").read("a")
        assert seen is not None
        assert (seen.state.name, seen.attempts, settled(app, "stopped")) == ("FREE", 0, 1.0)


async def test_work_that_is_no_coroutine_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    performed = list[str]()

    def perform(item: AsyncItem) -> None:
        performed.append(item.id)

    unseen: Any = lambda item: performed.append(item.id)  # noqa: E731 - of a lambda it is not known
    with pytest.raises(InvalidInput, match="is not a coroutine function"):
        async with mill(monkeypatch, perform):  # type: ignore[arg-type]  # the wrong kind is what is tried
            pass
    async with mill(monkeypatch, unseen) as app:
        await app.queue("grain").push("a", 1)
        await until(lambda: settled(app, "parked"))
    assert performed == ["a"]


async def test_a_job_that_is_no_coroutine_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(item: AsyncItem) -> None: ...

    def sweep() -> None: ...

    monkeypatch.setattr(Mill, "jobs", lambda self: [kit.Job("sweep", 1.0, sweep)])  # type: ignore[arg-type]  # what is tried
    with pytest.raises(InvalidInput, match="the job 'sweep' of mill"):
        async with mill(monkeypatch, perform):
            pass


async def test_readiness_says_that_a_worker_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(item: AsyncItem) -> None: ...

    async with mill(monkeypatch, perform) as app:
        check = app.service.readiness.checks["workers"]
        assert await check() == "ok"
        await app.service.workers.of("mill")["grain"].stop(0)
        async with asyncio.timeout(SOON):
            while await check() == "ok":
                await asyncio.sleep(0.01)
        assert await check() == "error"


async def test_a_failed_call_says_what_becomes_of_the_item(monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(item: AsyncItem) -> None:
        await caller.call_ok(kit.Request("POST", receiver.url, body=item.id.encode()))

    async with hooks() as receiver, mill(monkeypatch, perform) as app:
        caller = app.caller("miller", kit.OutgoingSettings(timeout=5.0))
        soon = (("retry-after", "0"),)
        receiver.answers.extend([Answer(503, soon), Answer(200)])
        await app.queue("grain").push("retried", 1)
        await until(lambda: settled(app, "acked") == 1)
        receiver.answers.append(Answer(410))
        await app.queue("grain").push("refused", 1)
        await until(lambda: settled(app, "parked") == 1)
        receiver.answers.extend([Answer(503, soon)] * 2)
        await app.queue("grain").push("exhausted", 1)
        await until(lambda: settled(app, "parked") == 2)
        assert [each.body for each in receiver.received] == [b"retried"] * 2 + [b"refused"] + [b"exhausted"] * 2


async def test_a_call_that_was_not_made_is_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = list[int]()

    async def perform(item: AsyncItem) -> None:
        tries.append(item.attempts)
        if len(tries) <= 3:
            raise kit.NotCalled("the breaker is open", retry_after=0.0)

    async with mill(monkeypatch, perform) as app:
        await app.queue("grain").push("a", 1)
        await until(lambda: settled(app, "acked") == 1)
        assert (tries, settled(app, "postponed")) == ([1, 1, 1, 1], 3.0)


async def test_a_caller_is_closed_after_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(item: AsyncItem) -> None: ...

    async with hooks() as receiver:
        async with mill(monkeypatch, perform) as app:
            caller = app.caller("miller")
            assert (await caller.call(kit.Request("GET", receiver.url))).status == 200
        await until(lambda: not caller._pool.connections)


# -- acts


class Grind(kit.Body):
    """What an act takes."""

    what: str


async def grind(call: kit.Call[Grind, None]) -> bool:
    """Grinds."""
    return bool(call.reason)


def test_an_act_is_named_once() -> None:
    act = Act(name="mill.grind", summary="Grind grain", again="Grinds more.", changed="ground", fields=(Field("what"),))
    assert (act.verb, act.title, act.api, act.page) == ("grind", "Grind grain", "/api/mill/grind", "/mill/grind")
    api, *form = act_routes(act, grind)
    assert (api.path, [each.path for each in form]) == ("/api/mill/grind", ["/mill/grind"] * 2)
    assert set(api.body.__struct_fields__) == {"what", "reason"}, "an admin says why"
    with pytest.raises(msgspec.ValidationError, match="reason"):
        msgspec.convert({"what": "rye"}, api.body)


def test_an_act_that_answers_whether_it_did_something_names_that_field() -> None:
    act = Act(name="mill.grind", summary="Grind grain", again="Grinds more.", fields=(Field("what"),))
    with pytest.raises(
        InvalidInput, match=r"the act mill\.grind answers bool: name the field, as in changed='expired'"
    ):
        act_routes(act, grind)
