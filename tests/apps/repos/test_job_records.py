"""The records of jobs, in a database of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from solely.apps.repos.jobs.records import JobRecords
from solely.apps.repos.model import RepoJob
from solely.data import Database, Journal, Position, Statements, migrate, open_database, position_after
from tests.conftest import in_schema
from tests.postgres_server import PYPI_POSTGRES

DATABASES = ("sqlite", "postgres") if PYPI_POSTGRES is not None else ("sqlite",)
STATEMENTS = Statements.of("solely.apps.repos", "queries.sql")


@pytest.fixture(params=DATABASES)
async def data(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A database with the tables of the application; the test runs once per kind."""
    local = f"sqlite:///{tmp_path / 'data.db'}"
    database = open_database(local if request.param == "sqlite" else in_schema(request.getfixturevalue("postgres").url))
    await migrate(database, "repos", "solely.apps.repos")
    yield database
    await database.close()


def job(number: int) -> RepoJob:
    kind, key = ("review", f"review:1:{number}:abc") if number % 2 else ("command", f"note:1:{number}:9")
    return RepoJob(kind=kind, forge="gitlab", key=key, project_path="group/project", mr_iid=number)  # type: ignore[arg-type]


async def test_the_last_step_of_each_run_is_recorded_and_can_be_listed_and_found(data: Database) -> None:
    journal = Journal(data, STATEMENTS["record_job"], order=("id",))
    records = JobRecords(journal, STATEMENTS.on(data))
    for number in range(4):
        progress = records.begin(job(number), job(number).key, 1)
        progress.enter("running")
        progress.note(log="said\0 it", commit_id="abc")
        if number:
            progress.enter("done")
    again = records.begin(job(3), f"{job(3).key}#2", 1)
    again.enter("postponed", "away")
    await journal.flush()
    records.begin(job(1), job(1).key, 2).enter("retried")  # keeps what an earlier attempt has found out
    await journal.flush()

    everything = await records.newest(10)
    assert [(row.key, row.state) for row in everything[:2]] == [(job(1).key, "retried"), (job(3).key, "postponed")]
    assert {row.id for row in everything} == {*(job(number).key for number in range(4)), f"{job(3).key}#2"}
    first = await records.recent("", "", "group/project", position_after(""), 3)
    rest = await records.recent("", "", "group/project", Position(first[-1].since, first[-1].id), 3)
    assert [row.id for row in (*first, *rest)] == [row.id for row in everything]
    assert {row.id for row in await records.recent("done", "review", "", position_after(""), 9)} == {job(3).key}
    found = await records.find(job(1).key)
    assert found is not None
    assert (found.log, found.commit_id, found.attempts, found.job) == ("said\ufffd it", "abc", 2, job(1))
    latest = await records.latest(job(3).key)
    assert latest is not None
    assert (latest.id, latest.error) == (f"{job(3).key}#2", "away")
    assert await records.find("unknown") is None


async def test_a_run_that_has_not_ended_can_be_failed_as_it_was_seen(data: Database) -> None:
    journal = Journal(data, STATEMENTS["record_job"], order=("id",))
    records = JobRecords(journal, STATEMENTS.on(data))
    going = records.begin(job(1), job(1).key, 1)
    going.enter("running")
    records.begin(job(2), job(2).key, 1).enter("done")
    await journal.flush()
    (seen,) = await records.unfinished(10)
    assert await records.fail(seen, "it died")
    assert not await records.fail(seen, "it died")
    going.enter("done")  # it was alive after all
    await journal.flush()
    assert [row.state for row in await records.newest(10)] == ["done", "done"]


async def test_what_was_not_queued_is_listed_newest_first(data: Database) -> None:
    row = {"origin": "webhook", "forge": "gitlab", "kind": "review", "project": "", "title": "", "first": 1.0}
    queries = STATEMENTS.on(data)
    for number, outcome in enumerate(("queued", "known", "known", "ignored: a push")):
        await queries.run("record_received", key=f"key-{number}", outcome=outcome, last=number, times=1, **row)
    first = await queries.rows("duplicates", last=1e18, key="", limit=2)
    rest = await queries.rows("duplicates", last=first[-1]["last"], key=first[-1]["key"], limit=2)
    assert [each["key"] for each in (*first, *rest)] == ["key-3", "key-2", "key-1"]
