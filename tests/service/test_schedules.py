"""Schedules of applications, and all schedules over HTTP and on the dashboard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec
import pytest

from solely import AsyncLease, SolelyError, Tick, kit
from solely.apps import APPS
from solely.http import Client
from solely.service.mount import mount
from solely.service.service import Service
from tests.service.serving import LINES, TOKENS, Running, bearer, running, settings

SOON = 60.0  # seconds within which what is waited for has to happen


class ClockworkSettings(msgspec.Struct, frozen=True):
    """No settings."""


class Clockwork(kit.Application[ClockworkSettings]):
    """Runs one schedule as the test says."""

    name, title = "clockwork", "Clockwork"
    job: ClassVar[Callable[[Tick[AsyncLease]], Any]]

    async def start(self) -> None:
        self.schedule = self.every("wheel", 0.2, type(self).job)


@asynccontextmanager
async def clockwork(monkeypatch: pytest.MonkeyPatch, job: Any, **given: Any) -> AsyncIterator[Clockwork]:
    """The application in a service without HTTP, closed at the end."""
    monkeypatch.setitem(APPS, "clockwork", f"{__name__}:Clockwork")
    monkeypatch.setattr(Clockwork, "job", staticmethod(job), raising=False)
    service = Service(settings(apps=["clockwork"], **given))
    mount(service)
    await service.open()
    app = service.apps["clockwork"]
    assert isinstance(app, Clockwork)
    try:
        yield app
    finally:
        await service.close()


async def test_a_job_that_is_no_coroutine_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def job(tick: Tick[AsyncLease]) -> None: ...

    with pytest.raises(SolelyError, match="is not a coroutine function"):
        async with clockwork(monkeypatch, job):
            pass


async def test_an_application_declares_schedules_in_its_own_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[Tick[AsyncLease]] = []
    enough = asyncio.Event()

    async def job(tick: Tick[AsyncLease]) -> None:
        ticks.append(tick)
        if len(ticks) == 3:
            enough.set()

    async with clockwork(monkeypatch, job) as app:
        await asyncio.wait_for(enough.wait(), SOON)
        (info,) = await app.once.schedules()
        counted = app.service.metrics.counts().counters["solely_ticks"]
        assert counted[("done",)] >= 2
    assert info.key == "~clockwork/wheel"
    assert len({tick.at for tick in ticks}) == len(ticks)


async def test_a_tick_in_progress_ends_before_the_application_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    began, ended = asyncio.Event(), list[str]()

    async def job(tick: Tick[AsyncLease]) -> None:
        began.set()
        await app.service.stopping.wait()
        await asyncio.sleep(0.05)
        ended.append("ended")

    async with clockwork(monkeypatch, job, stop_timeout=SOON) as app:
        await asyncio.wait_for(began.wait(), SOON)
    assert ended == ["ended"]


async def test_a_tick_that_does_not_end_in_time_is_cancelled_and_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, cancelled = asyncio.Event(), asyncio.Event()

    async def job(tick: Tick[AsyncLease]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with clockwork(monkeypatch, job, stop_timeout=0.05) as app:
        await asyncio.wait_for(began.wait(), SOON)
        await app.service.schedules.finish()
        info = await app.once.schedule_info("~clockwork/wheel")
        assert info is not None
        assert (info.state, info.last) == ("overdue", None)
    assert cancelled.is_set()


# -- over HTTP


@pytest.fixture(scope="module")
def serving() -> Iterator[Running]:
    """A service whose store has a schedule that failed and one that never ran."""
    with running(tokens=LINES) as it:
        it.run(_fill(it))
        yield it


async def _fill(it: Running) -> None:
    async def fail(tick: Tick[AsyncLease]) -> None:
        failing.stop()
        raise ValueError("the disk is full")

    failing = it.service.once.every("nightly:backup", 0.1)
    await asyncio.wait_for(failing.run(fail), SOON)
    await it.service.once.every("nightly:report", "0 3 * * *", tz="Europe/Berlin").run_due(fail)


def test_schedules_are_listed_with_their_last_and_next_runs(serving: Running) -> None:
    with Client(serving.address, token=TOKENS["read"]) as client:
        backup, report = client.schedules.list("nightly:")
    assert backup.outcome == "failed: ValueError: the disk is full"
    assert backup.last is not None
    assert backup.next is not None
    assert (report.when, report.state, report.last) == ("0 3 * * * Europe/Berlin", "waiting", None)


def test_the_page_shows_them(serving: Running) -> None:
    page = serving.get("/schedules", headers=bearer(TOKENS["read"])).text
    for text in ("nightly:backup", "the disk is full", "0 3 * * * Europe/Berlin", "never"):
        assert text in page
    assert "/schedules/forget" not in page
    assert "/schedules/forget" in serving.get("/schedules", headers=bearer(TOKENS["admin"])).text
    rows = serving.get("/schedules?format=json&prefix=nightly:r", headers=bearer(TOKENS["read"])).json()["schedules"]
    assert [row["key"] for row in rows] == ["nightly:report"]


def test_an_admin_forgets_one_and_that_is_audited(serving: Running) -> None:
    serving.run(_ran_once(serving))
    with Client(serving.address, token=TOKENS["admin"]) as client:
        assert client.schedules.forget("old", reason="it was removed")
        assert not client.schedules.forget("old", reason="it was removed")
        assert list(client.schedules.list("old")) == []
    assert "schedules.forget" in serving.get("/audit?format=json", headers=bearer(TOKENS["admin"])).text
    refused = serving.post("/v1/schedules/forget", {"key": "old", "reason": "no"}, headers=bearer(TOKENS["write"]))
    assert refused.status_code == 403


async def _ran_once(it: Running) -> None:
    async def nothing(tick: Tick[AsyncLease]) -> None: ...

    await it.service.once.every("old", 60.0).run_due(nothing)
