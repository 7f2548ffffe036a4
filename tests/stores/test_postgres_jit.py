"""A server that compiles costly statements, as Debian's and most managed ones do by default, compiles none of ours: to
compile `exchange` took 10 ms, twenty times as long as to perform it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from solely import AsyncClient
from solely.data import open_database
from tests.client_modes import result_of
from tests.conftest import LACKING, PATIENT, in_schema
from tests.postgres_server import DEBIAN_POSTGRES, PGBOUNCER, Postgres, pooler_of

LACKING["jit_server"] = DEBIAN_POSTGRES is None
COMPILED = "JIT:"  # begins the part of a plan that says how it was compiled
COSTLY = "EXPLAIN SELECT count(*) FROM generate_series(1, 100000000)"
EVERYTHING = "options=-c%20jit_above_cost%3D0"  # compiles the cheapest statement, too
TASKS = 50
MANY = 300  # ops: more than the number after which the store sweeps


@pytest.fixture(scope="module")
def jit_server() -> Iterator[Postgres]:
    """Logs the plan of each statement, also of those inside functions."""
    config: dict[str, Any] = {
        "session_preload_libraries": "auto_explain",
        "auto_explain.log_min_duration": 0,
        "auto_explain.log_nested_statements": "on",
    }
    with Postgres(folder=DEBIAN_POSTGRES, fsync="off", **config) as server:
        assert COMPILED in str(server.ask(COSTLY)), "this server compiles nothing, so that these tests show nothing"
        yield server


async def passing_locks_on(url: str) -> None:
    """Many tasks release and take locks, so that their ops share statements."""
    async with AsyncClient(url, timeout=PATIENT) as once:

        async def take(number: int) -> None:
            for _ in range(4):
                async with once.lock(f"key-{number}", ttl=60):
                    pass

        await asyncio.gather(*map(take, range(TASKS)))


async def test_a_batch_of_locks_is_not_compiled(jit_server: Postgres) -> None:
    start = len(jit_server.log)
    await passing_locks_on(in_schema(jit_server.url))
    plans = jit_server.log[start:]
    assert "_exchange" in plans
    assert COMPILED not in plans


if PGBOUNCER is not None:  # nothing can be set for a session there

    async def test_a_batch_of_locks_is_not_compiled_behind_a_pooler(jit_server: Postgres) -> None:
        start = len(jit_server.log)
        with pooler_of(jit_server, places=4) as address:
            await passing_locks_on(in_schema(f"{address}?pgbouncer=true"))
        plans = jit_server.log[start:]
        assert "_exchange" in plans
        assert COMPILED not in plans


async def test_no_op_of_a_client_is_compiled(jit_server: Postgres, open_client: Any) -> None:
    once = open_client(in_schema(f"{jit_server.url}?{EVERYTHING}"), timeout=PATIENT)
    await result_of(once.first("the schema is there", ttl=60))
    start = len(jit_server.log)
    assert len(await result_of(once.first_many([f"mark-{number}" for number in range(MANY)], ttl=60))) == MANY
    assert len(await result_of(once.marks("mark-", limit=MANY))) == MANY
    queue = once.queue("work")
    await result_of(queue.push("item", "x"))
    assert await result_of(queue.count()) == 1
    assert await result_of(queue.take(ttl=60, wait=1)) is not None
    assert await result_of(once.limit("calls", limit=10, per=60))
    lease = await result_of(once.lock("key", ttl=60))
    await result_of(lease.release())
    plans = jit_server.log[start:]
    assert "_sweep" in plans
    assert COMPILED not in plans


async def test_no_statement_of_applications_is_compiled(jit_server: Postgres) -> None:
    database = open_database(in_schema(jit_server.url), timeout=PATIENT)
    try:
        assert COMPILED not in str(await database.rows(COSTLY))
    finally:
        await database.close()
