"""Leases of runs in each database, on a clock of the test: who may renew and end a run, and what its timeline says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from solely import LeaseLost
from solely.apps.triggers.model import TaskRun, json_text, new_run_id
from solely.apps.triggers.work.figures import ATTEMPTS, FIGURES
from solely.apps.triggers.work.leases import RunLeases
from solely.data import Database, Statements, migrate, open_database
from solely.service.metrics import Metrics
from solely.service.problems import Problem
from tests.conftest import in_schema
from tests.postgres_server import PYPI_POSTGRES

DATABASES = ("sqlite", "postgres") if PYPI_POSTGRES is not None else ("sqlite",)
BEGIN = 1_000_000.0
HERE = "default"
TASKS = ["mail"]


class Work:
    """Runs of a database, and the leases on them, at the time `now`."""

    def __init__(self, data: Database) -> None:
        self.data, self.now = data, BEGIN
        self.queries = Statements.of("solely.apps.triggers", "queries.sql").on(data)
        self.metrics = Metrics()
        self.metrics.add(FIGURES)
        self.leases = RunLeases(data, self.metrics, first=1.0, most=60.0, clock=lambda: self.now)

    async def add(self, **given: Any) -> str:
        """The id of a new run."""
        id = new_run_id(HERE, "mail", None)
        usual: dict[str, Any] = {"created_at": self.now, "updated_at": self.now, "available_at": self.now}
        run = TaskRun(**{"id": id, "environment": HERE, "task": "mail", **usual, **given})
        (row,) = await self.queries.rows("insert", rows=json_text([run.row()]))
        assert row["id"] == run.id
        return run.id

    async def take(self, lease: float = 30.0, **given: Any) -> Any:
        """The row that was leased, or None."""
        found = await self.leases.take(given.pop("environment", HERE), given.pop("tasks", TASKS), lease=lease, **given)
        return None if found is None else found.row

    async def read(self, id: str) -> dict[str, Any]:
        row = await self.queries.row("by_id", id=id, environment=HERE)
        assert row is not None
        return row

    async def timeline(self, id: str) -> list[tuple[str, dict[str, Any]]]:
        rows = await self.queries.rows("events_of", run_id=id, limit=100)
        return [(row["kind"], msgspec.json.decode(row["detail"])) for row in rows]


@pytest.fixture(params=DATABASES)
async def work(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Work]:
    """An empty table; the test runs once per database."""
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'data.db'}" if sqlite else in_schema(request.getfixturevalue("postgres").url)
    data = open_database(url)
    await migrate(data, "triggers", "solely.apps.triggers")
    yield Work(data)
    await data.close()


async def test_a_run_is_leased_to_one_worker_and_completed_by_it(work: Work) -> None:
    id = await work.add()
    taken = await work.take(worker="w1")
    assert (taken["id"], taken["state"], taken["attempts"], taken["left_seconds"]) == (id, "EXECUTING", 1, 30.0)
    assert await work.take() is None
    work.now += 5
    done = await work.leases.complete(HERE, id, taken["lease_owner"], {"sent": True})
    assert (done["state"], done["output"], done["finished_at"]) == ("COMPLETED", '{"sent":true}', BEGIN + 5)
    assert await work.take() is None
    assert await work.timeline(id) == [("taken", {"attempt": 1, "worker": "w1"}), ("completed", {"attempt": 1})]


async def test_the_run_that_was_due_first_is_taken_first_and_a_delayed_one_not_before_its_time(work: Work) -> None:
    late = await work.add(available_at=BEGIN + 60, state="DELAYED")
    second, first = await work.add(available_at=BEGIN - 1), await work.add(available_at=BEGIN - 2)
    assert [(await work.take())["id"] for _ in range(2)] == [first, second]
    assert await work.take() is None
    assert not await work.leases.is_due(HERE, TASKS)
    work.now += 60
    assert await work.leases.is_due(HERE, TASKS)
    assert {(await work.take())["id"] for _ in range(3)} == {first, second, late}  # two leases have expired


async def test_a_worker_takes_only_its_tasks_and_only_in_its_environment(work: Work) -> None:
    id = await work.add()
    assert await work.take(tasks=["other", "no'quote"]) is None
    assert await work.take(environment="staging") is None
    taken = await work.take(tasks=["other", "mail"])
    assert taken["id"] == id
    with pytest.raises(Problem, match="no run"):
        await work.leases.complete("staging", id, taken["lease_owner"], None)
    assert await work.leases.renew("staging", id, taken["lease_owner"], 30.0) is None


async def test_a_run_whose_lease_expired_is_taken_over_and_its_late_worker_is_fenced(work: Work) -> None:
    id = await work.add()
    dead = (await work.take(worker="dead"))["lease_owner"]
    work.now += 29.9
    assert await work.take() is None
    work.now += 0.1
    heir = await work.take(worker="heir")
    assert (heir["id"], heir["attempts"]) == (id, 2)
    for late in (
        work.leases.complete(HERE, id, dead, "late"),
        work.leases.fail(HERE, id, dead, error="late"),
        work.leases.release(HERE, id, dead),
    ):
        with pytest.raises(LeaseLost, match="not leased to this worker any more: it is executing"):
            await late
    assert await work.leases.renew(HERE, id, dead, 30.0) is None
    assert (await work.read(id))["output"] is None
    await work.leases.complete(HERE, id, heir["lease_owner"], "mine")
    assert (await work.read(id))["output"] == '"mine"'
    kinds = Counter(kind for kind, _ in await work.timeline(id))
    assert kinds == {"taken": 2, "lost": 1, "completed": 1}
    assert ("lost", {"attempt": 1}) in await work.timeline(id)


async def test_a_worker_that_is_late_may_end_its_run_as_long_as_no_other_has_taken_it(work: Work) -> None:
    id = await work.add()
    token = (await work.take())["lease_owner"]
    work.now += 1000
    assert await work.leases.renew(HERE, id, token, 30.0) == 30.0
    assert await work.take() is None
    work.now += 1000
    assert (await work.leases.complete(HERE, id, token, None))["state"] == "COMPLETED"


async def test_a_renewal_extends_the_lease_and_never_shortens_it(work: Work) -> None:
    id = await work.add()
    token = (await work.take(30.0))["lease_owner"]
    work.now += 20
    assert await work.leases.renew(HERE, id, token, 30.0) == 30.0
    assert await work.leases.renew(HERE, id, token, 5.0) == 30.0
    work.now += 29
    assert await work.take() is None


async def test_the_response_of_a_take_that_was_lost_comes_again_with_the_same_token(work: Work) -> None:
    id, other = await work.add(available_at=BEGIN - 1), await work.add()
    token = "t" * 32
    assert (await work.take(token=token))["id"] == id
    work.now += 10
    again = await work.take(token=token)
    assert (again["id"], again["attempts"], again["left_seconds"]) == (id, 1, 30.0)
    assert (await work.take(token="u" * 32))["id"] == other


async def test_the_end_of_a_run_can_be_reported_twice(work: Work) -> None:
    id = await work.add()
    token = (await work.take())["lease_owner"]
    first = await work.leases.fail(HERE, id, token, error="broken", delay=5.0)
    assert await work.leases.fail(HERE, id, token, error="broken", delay=5.0) == first
    work.now += 5
    token = (await work.take())["lease_owner"]
    done = await work.leases.complete(HERE, id, token, 1)
    assert await work.leases.complete(HERE, id, token, 2) == done
    with pytest.raises(LeaseLost, match="it is completed"):
        await work.leases.fail(HERE, id, token, error="after all")
    assert Counter(kind for kind, _ in await work.timeline(id)) == {"taken": 2, "retried": 1, "completed": 1}
    assert work.metrics.counts().counters[ATTEMPTS.name] == {("retried",): 1, ("completed",): 1}


async def test_a_failed_run_is_retried_with_growing_pauses_and_failed_for_good_after_its_last_attempt(
    work: Work,
) -> None:
    id, pauses = await work.add(max_attempts=4), []
    for _ in range(3):
        token = (await work.take())["lease_owner"]
        row = await work.leases.fail(HERE, id, token, error="broken")
        assert (row["state"], row["error"], row["finished_at"]) == ("DELAYED", "broken", None)
        pauses.append(row["available_at"] - work.now)
        work.now = row["available_at"] - 0.01
        assert await work.take() is None
        work.now += 0.01
    for pause, expected in zip(pauses, (1.0, 2.0, 4.0), strict=True):
        assert pause == pytest.approx(expected, rel=0.21)
    row = await work.leases.fail(HERE, id, (await work.take())["lease_owner"], error="for good")
    assert (row["state"], row["error"], row["finished_at"]) == ("FAILED", "for good", work.now)
    work.now += 1e6
    assert await work.take() is None
    assert ("failed", {"attempt": 4, "error": "for good"}) in await work.timeline(id)


async def test_the_pause_has_a_bound_however_often_a_run_failed(work: Work) -> None:
    id = await work.add(max_attempts=100, attempts=60)
    row = await work.leases.fail(HERE, id, (await work.take())["lease_owner"], error="again")
    assert row["available_at"] - work.now == pytest.approx(60.0, rel=0.21)


async def test_a_permanent_failure_leaves_no_attempt(work: Work) -> None:
    id = await work.add(max_attempts=10)
    row = await work.leases.fail(HERE, id, (await work.take())["lease_owner"], error="no such user", retry=False)
    assert (row["state"], row["attempts"]) == ("FAILED", 1)


async def test_a_run_whose_workers_all_died_is_failed_and_the_next_one_is_not_held_up(work: Work) -> None:
    id = await work.add(max_attempts=2)
    for _ in range(2):
        assert (await work.take())["id"] == id
        work.now += 30
    work.now += 1
    other = await work.add()
    failed = await work.leases.take(HERE, TASKS, lease=30.0)
    assert failed is not None
    assert (failed.row["id"], failed.leased, failed.lost) == (id, False, True)
    row = await work.read(id)
    assert (row["state"], row["attempts"], row["finished_at"]) == ("FAILED", 2, work.now)
    assert "the lease expired" in row["error"]
    assert (await work.take())["id"] == other
    assert Counter(kind for kind, _ in await work.timeline(id)) == {"taken": 2, "lost": 2, "failed": 1}


async def test_a_run_that_is_given_back_keeps_its_attempt(work: Work) -> None:
    id = await work.add(max_attempts=1)
    back = await work.leases.release(HERE, id, (await work.take())["lease_owner"], delay=7.0)
    assert (back["state"], back["attempts"], back["available_at"]) == ("DELAYED", 0, BEGIN + 7)
    assert await work.take() is None
    work.now += 7
    again = await work.take()
    assert (again["id"], again["attempts"], again["state"]) == (id, 1, "EXECUTING")
    back = await work.leases.release(HERE, id, again["lease_owner"])
    assert back["state"] == "QUEUED"
    assert (await work.take())["attempts"] == 1


async def test_a_run_that_fails_for_good_frees_its_key_only_if_it_was_asked_to(work: Work) -> None:
    for frees, expires in ((0, BEGIN + 1000), (1, BEGIN)):
        key = f"key-{frees}"
        id = await work.add(idempotency_key=key, key_expires_at=BEGIN + 1000, frees_key=frees, max_attempts=2)
        row = await work.leases.fail(HERE, id, (await work.take())["lease_owner"], error="once", delay=0.0)
        assert row["key_expires_at"] == BEGIN + 1000
        row = await work.leases.fail(HERE, id, (await work.take())["lease_owner"], error="twice")
        assert (row["state"], row["key_expires_at"]) == ("FAILED", expires)


async def test_many_takes_at_once_lease_each_run_to_one_of_them(work: Work) -> None:
    ids = {await work.add() for _ in range(20)}
    taken = await asyncio.gather(*(work.take() for _ in range(40)))
    assert Counter(row["id"] for row in taken if row is not None) == dict.fromkeys(ids, 1)
