"""Charts: what workers counted is added up, survives restarts, is bounded, and every application has one."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from solely.apps import APPS, find
from solely.data import Database, open_database
from solely.events import Acquired
from solely.service.charts import rollup as rollup_module
from solely.service.charts.lines import Chart, Line, total
from solely.service.charts.queues import queue_series
from solely.service.charts.rollup import EVERY, RANGES, STEPS, Rollup
from solely.service.metrics import ACQUIRED, OP_SECONDS, Metrics
from tests.conftest import STORES
from tests.service.serving import Running, running, until

NOON = 1_800_000_000.0 - 1_800_000_000.0 % 86_400  # the beginning of a step of every range
LINES = (Line("granted", "granted", total(ACQUIRED)), Line("op.p50", "p50", OP_SECONDS))
CHART = Chart("rates", "Rates", LINES)


class Hand:
    """The clock of the charts, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        monkeypatch.setattr(rollup_module, "time", SimpleNamespace(time=lambda: self.now, monotonic=time.monotonic))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hand:
    return Hand(monkeypatch)


@pytest.fixture(params=[name for name in ("sqlite", "postgres") if name in STORES])
async def data(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    it = open_database(STORES[request.param](request))
    yield it
    await it.close()


async def worker(data: Database) -> tuple[Metrics, Rollup]:
    metrics = Metrics()
    kept = Rollup(metrics)
    kept.add(LINES)
    await kept.open(data)
    kept.sample()
    return metrics, kept


async def step(clock: Hand, *workers: tuple[Metrics, Rollup], each: int = 0) -> None:
    """Ten seconds pass in which each worker acquires so many locks, and all of them write."""
    clock.now += EVERY
    for metrics, kept in workers:
        for _ in range(each):
            metrics(Acquired("lock/a", 1, 0.0))
            metrics.observe(OP_SECONDS, 0.002, "acquire")
        kept.sample()
        await kept.flush()


async def test_workers_are_added_up_and_restarts_survived(clock: Hand, data: Database) -> None:
    one, other = await worker(data), await worker(data)
    await step(clock, one, other, each=10)
    after = await worker(data)  # one that starts, after both were killed
    await step(clock, after, each=5)
    clock.now += EVERY
    drawn = await after[1].chart(CHART, "1h")
    assert drawn.lines["granted"][-2:] == [2.0, 0.5]  # per second
    assert drawn.lines["op.p50"][-1] == pytest.approx(2.0, abs=1.0)  # ms, as far as the buckets tell
    assert drawn.at[-1] - drawn.at[-2] == EVERY


@pytest.mark.parametrize("over", RANGES)
async def test_every_range_has_the_same_counts_in_its_own_steps(clock: Hand, data: Database, over: str) -> None:
    one = await worker(data)
    for _ in range(2 * 180):  # an hour
        await step(clock, one, each=1)
    clock.now += EVERY
    drawn = await one[1].chart(CHART, over)
    assert len(drawn.at) == len(drawn.lines["granted"]) > 1
    assert drawn.lines["granted"][-2] == pytest.approx(0.1, rel=0.2)


async def test_there_is_a_gap_where_the_service_did_not_run(clock: Hand, data: Database) -> None:
    one = await worker(data)
    await step(clock, one, each=1)
    clock.now += 5 * EVERY
    again = await worker(data)
    await step(clock, again, each=1)
    clock.now += EVERY
    drawn = (await again[1].chart(CHART, "10m")).lines["granted"]
    assert None in drawn
    assert drawn[-1] == 0.1


async def test_what_is_kept_is_bounded(clock: Hand, data: Database) -> None:
    one = await worker(data)
    for _ in range(5):
        await step(clock, one, each=1)
    before = (await data.row("SELECT count(*) AS rows FROM service_series") or {})["rows"]
    assert before > 0
    clock.now += max(STEPS.values()) + 2 * max(STEPS)
    await one[1].sweep()
    assert await data.row("SELECT count(*) AS rows FROM service_series") == {"rows": 0}


async def test_an_outage_of_the_database_loses_nothing_of_the_last_minute(clock: Hand, data: Database) -> None:
    one = await worker(data)
    await step(clock, one, each=1)
    await data.run("ALTER TABLE service_series RENAME TO elsewhere")
    with pytest.raises(Exception, match="service_series"):
        await step(clock, one, each=30)
    await data.run("ALTER TABLE elsewhere RENAME TO service_series")
    await step(clock, one, each=1)
    clock.now += EVERY
    assert (await one[1].chart(CHART, "10m")).lines["granted"][-3:] == [0.1, 3.0, 0.1]


async def test_one_worker_samples_the_queues(clock: Hand, data: Database) -> None:
    workers = [(await worker(data))[1] for _ in range(3)]
    assert [await each.is_first("queues", 30) for each in workers] == [True, False, False]
    clock.now += 30
    assert await workers[2].is_first("queues", 30)


async def test_a_gauge_keeps_its_greatest_value(clock: Hand, data: Database) -> None:
    one, other = await worker(data), await worker(data)
    for (_, kept), length in ((one, 7.0), (other, 3.0)):
        kept.gauge(queue_series("mails"), length)
    await step(clock, one, other)
    clock.now += 2 * EVERY
    values = (await one[1].values([queue_series("mails")], "1h"))["queue/mails"]
    assert max(values) == 7.0
    assert len(values) <= 60


# -- on the pages


def test_every_application_has_a_chart() -> None:
    names = [line.name for app in APPS for chart in find(app).charts for line in chart.lines]
    assert all(find(app).charts for app in APPS)
    assert len(set(names)) == len(names)
    assert all(len(chart.lines) <= 4 for app in APPS for chart in find(app).charts)


@pytest.fixture(scope="module")
def plain() -> Any:
    with running() as it:
        yield it


@pytest.mark.parametrize("path", ["/", *(f"/{app}" for app in APPS)])
def test_its_page_shows_it_over_every_range(plain: Running, path: str) -> None:
    for over in RANGES:
        shown = plain.get(path, params={"range": over}, headers={"accept": "text/html"}).text
        assert '<data class="series" data-for="chart-' in shown
        assert f'id="range-{over}" aria-current="true"' in shown
        assert shown.count('aria-current="true"') == 1
    assert plain.get(path, params={"range": "1y"}).status_code in (400, 422)


def test_what_happens_now_is_drawn_within_seconds(plain: Running) -> None:
    def drawn() -> Any:
        shown = plain.get("/", headers={"accept": "text/html"}).text
        return "Nothing is kept for this range yet" not in shown

    until(drawn)
