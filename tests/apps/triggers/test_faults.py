"""Servers and workers that die in the middle of a burst: one run id per key, and no accepted id is ever lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.apps.triggers.fleet import COLD, TRIPS, Burst, Fleet, fleet, keyed
from tests.apps.triggers.working import BURST, Worker, until
from tests.conftest import in_schema, isolated
from tests.postgres_server import PYPI_POSTGRES, Postgres
from tests.servers import Valkey

LONG = 600  # seconds: several bursts and restarts on a machine that others use too
LEASE = 30.0  # seconds until the items of a drainer that died are taken again


@pytest.fixture
def durable() -> Iterator[Valkey]:
    """A server of this test alone, that keeps what it said it has."""
    with Valkey(appendonly="yes", appendfsync="always") as server:
        yield server


def flush(server: Valkey) -> None:
    with redis.Redis(port=server.port) as client:
        client.flushall()


# -- one worker


async def test_after_a_flush_ids_in_sql_keep_answering_and_no_key_gets_a_second_row(
    durable: Valkey, tmp_path: Path
) -> None:
    async with Worker(durable.url, f"sqlite:///{tmp_path / 'data.db'}", timeout=30.0, **BURST) as worker:
        stored = await worker.trigger("stored")
        drained = await worker.buffer_one("drained")
        await worker.drain()
        lost = await worker.buffer_one("lost")
        flush(durable)
        for key, first in (("stored", stored), ("drained", drained)):
            again = await worker.trigger(key)
            assert (again.id, again.cached) == (first.id, True)
        renewed = await worker.trigger("lost")
        assert renewed.id != lost.id, "what a buffer in Redis loses with its server: docs/triggers.md says so"
        await worker.drain()
        assert len(await worker.rows()) == len({row["id"] for row in await worker.rows()})
        for key in ("stored", "drained", "lost"):
            assert len(await worker.rows(idempotency_key=key)) == 1


async def test_a_buffer_in_sql_loses_nothing_in_a_flush(durable: Valkey, tmp_path: Path) -> None:
    data = f"sqlite:///{tmp_path / 'data.db'}"
    async with Worker(durable.url, data, timeout=30.0, buffer="sql", **BURST) as worker:
        first = await worker.buffer_one("key")
        others = [(await worker.trigger()).id for _ in range(10)]
        flush(durable)
        again = await worker.trigger("key")
        assert (again.id, again.cached) == (first.id, True)
        assert [(await worker.find(id)).id for id in others] == others
        await worker.drain()
        assert {row["id"] for row in await worker.rows()} >= {first.id, *others}
        assert len(await worker.rows(idempotency_key="key")) == 1


async def test_a_store_that_is_killed_and_restarted_keeps_one_id_per_key(durable: Valkey, tmp_path: Path) -> None:
    data = f"sqlite:///{tmp_path / 'data.db'}"
    async with Worker(durable.url, data, timeout=20.0, claim_wait=20.0, **BURST) as worker:
        await worker.buffer_one()
        asked = [asyncio.create_task(worker.trigger("key")) for _ in range(50)]
        await asyncio.sleep(0)
        durable.kill()
        durable.start()
        answers = await asyncio.gather(*asked)
        assert len({each.id for each in answers}) == 1
        assert await worker.trigger("key") == answers[0]._replace(cached=True, buffered=answers[0].buffered)

        async def drained() -> bool:
            await worker.drain()
            return await worker.buffered() == 0

        await until(drained)
        assert [row["id"] for row in await worker.rows(idempotency_key="key")] == [answers[0].id]


# -- a fleet


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Runs it on a thread while the body runs, and raises its error in the end."""
    errors = list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]


def restart(server: Valkey | Postgres) -> None:
    """In the middle of the burst."""
    time.sleep(COLD + 0.3)
    server.kill()
    server.start()


def check_settled(it: Fleet, key: str, burst: Burst, *, one_id: bool = True, patience: float = 0.0) -> None:
    """The key has one run, which every answer to it resolves to, and every accepted id is found."""
    assert set(burst.statuses) <= {200, 503, 0}, burst.statuses
    settled = it.send(keyed(key))["id"]
    accepted = {answer.body["id"] for answer in (*burst.keyed, *burst.others) if answer.status == 200}
    found = {id: it.run(id)["id"] for id in accepted}
    time.sleep(patience)
    it.until_drained()
    (row,) = it.rows(key)
    assert row["id"] == settled
    if one_id:
        assert burst.ids <= {settled}
    assert {it.run(id)["id"] for id in burst.ids} <= {settled}
    assert {id for id in found if id not in burst.ids} <= {each["id"] for each in it.rows()}


@pytest.mark.only_with_all
@pytest.mark.timeout(LONG)
@pytest.mark.parametrize("on_outage", ["refuse", "proceed"])
def test_a_fleet_keeps_one_id_per_key_while_redis_is_killed_and_restarted(
    durable: Valkey, postgres: Postgres, tmp_path: Path, on_outage: str
) -> None:
    given = {**TRIPS, "triggers_on_outage": on_outage}
    with fleet(durable.url, tmp_path, in_schema(postgres.url), given) as it:
        for round in range(2):
            with meanwhile(lambda: restart(durable)):
                burst = it.burst(f"key-{round}")
            check_settled(it, f"key-{round}", burst, one_id=on_outage == "refuse")


@pytest.mark.only_with_all
@pytest.mark.timeout(LONG)
def test_a_fleet_keeps_one_id_per_key_while_postgres_is_killed_and_restarted(valkey_url: str, tmp_path: Path) -> None:
    with Postgres(folder=PYPI_POSTGRES) as server, fleet(isolated(valkey_url), tmp_path, server.url, TRIPS) as it:
        for round in range(2):
            with meanwhile(lambda: restart(server)):
                burst = it.burst(f"key-{round}", waiting=100)
            check_settled(it, f"key-{round}", burst)


@pytest.mark.only_with_all
@pytest.mark.timeout(LONG)
def test_a_fleet_strands_nothing_when_its_drainers_are_killed(
    valkey_url: str, postgres: Postgres, tmp_path: Path
) -> None:
    """Each worker drains: two of four are killed in the burst, between take and insert as likely as anywhere else."""

    def kill_two(it: Fleet) -> None:
        time.sleep(COLD)
        for _ in range(2):
            time.sleep(0.3)
            os.kill(random.choice(it.workers), signal.SIGKILL)

    with fleet(isolated(valkey_url), tmp_path, in_schema(postgres.url), TRIPS) as it:
        for round in range(2):
            with meanwhile(lambda: kill_two(it)):
                burst = it.burst(f"key-{round}")
            it.until_serving()
            check_settled(it, f"key-{round}", burst, one_id=False, patience=LEASE)
            assert len(burst.ids) == 1


@pytest.mark.only_with_all
@pytest.mark.timeout(LONG)
def test_a_fleet_with_a_buffer_in_sql_loses_nothing_when_redis_is_flushed(postgres: Postgres, tmp_path: Path) -> None:
    given = {**TRIPS, "triggers_buffer": "sql"}
    with Valkey() as server, fleet(server.url, tmp_path, in_schema(postgres.url), given) as it:
        burst = it.burst("key")
        flush(server)
        assert burst.statuses == {200: len(burst.keyed) + len(burst.others)}
        again = it.send(keyed("key"))
        assert burst.ids == {again["id"]}
        accepted = {answer.body["id"] for answer in burst.others}
        assert {it.run(id)["id"] for id in accepted} == accepted
        assert [row["id"] for row in it.rows("key")] == [again["id"]] or it.run(again["id"])["buffered"]
