"""A pooler that lends connections per transaction is noticed, whether it refuses what we set for a session or drops it:
a client behind it works as with pgbouncer=true, and never takes it for an outage."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from solely import Client, StoreMisconfigured
from solely.data import migrate as migrate_data
from solely.data import open_database
from solely.errors import DataError, DataUnavailable
from solely.stores.postgres import migrate, open_blocking
from solely.stores.postgres.statements import NEWEST
from tests.client_modes import result_of
from tests.conftest import LACKING, PATIENT, in_schema
from tests.postgres_server import PGBOUNCER, Postgres, pooler_of, refusing_options

LACKING["pooler"] = LACKING["postgres"] or PGBOUNCER is None
# What a pooler does with `options` of the startup packet: PgBouncer refuses them, unless it is told to drop them.
POOLERS: dict[str, dict[str, str]] = {"refuses": {}, "drops": {"ignore_startup_parameters": "options"}}


@pytest.fixture(scope="module", params=POOLERS)
def pooler(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[str]:
    with pooler_of(postgres, places=2, **POOLERS[request.param]) as address:
        yield address


async def test_a_pooler_that_refuses_options_is_no_outage(
    postgres: Postgres, mode: str, open_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also on a machine without PgBouncer."""
    with refusing_options(postgres) as address:
        once = open_client(in_schema(address), timeout=PATIENT, on_outage="proceed")
        assert await result_of(once.first("key", ttl=60))
        assert not await result_of(once.first("key", ttl=60))
        assert once.failed_open == 0
        assert "pooler_detected" in caplog.text
        strict = open_client(f"{in_schema(address)}&pgbouncer=false", timeout=PATIENT, on_outage="proceed")
        with pytest.raises(StoreMisconfigured, match="pgbouncer=false"):
            await result_of(strict.first("key", ttl=60))
        assert strict.failed_open == 0
        for client in (once, strict):
            await result_of(client.close())


async def test_a_client_that_was_not_told_of_its_pooler_works(pooler: str, mode: str, open_client: Any) -> None:
    url = in_schema(pooler)
    once, other = (open_client(url, timeout=PATIENT, on_outage="proceed") for _ in range(2))
    for number in range(8):  # more than the pooler has connections: prepared statements would be missing on some
        lease = await result_of(once.lock(f"key-{number}", ttl=60))
        assert await result_of(other.try_lock(f"key-{number}", ttl=60)) is None
        await result_of(lease.release())
    assert await result_of(once.first_many([f"mark-{number}" for number in range(40)], ttl=60)) == [True] * 40
    assert (once.failed_open, other.failed_open) == (0, 0)


def test_a_waiter_that_was_not_told_of_its_pooler_polls(pooler: str) -> None:
    """No hint gets through, so that it would otherwise look only every second."""
    with Client(in_schema(pooler), timeout=PATIENT) as once, ThreadPoolExecutor(1) as threads:
        assert once.first("the pooler is known", ttl=60)
        assert once._store.polls
        lease = once.lock("key", ttl=60)
        begun = threading.Event()

        def wait() -> bool:
            begun.set()
            with once.lock("key", ttl=60, wait=PATIENT):
                return True

        waiting = threads.submit(wait)
        begun.wait(PATIENT)
        lease.release()
        assert waiting.result(PATIENT)
    assert "solely-listener" not in [thread.name for thread in threading.enumerate()]


async def test_a_pooler_that_nobody_told_of_is_reported(
    pooler: str, open_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = in_schema(pooler)
    for option, warned in (("", True), ("&pgbouncer=true", False)):
        caplog.clear()
        once = open_client(url + option, timeout=PATIENT)
        findings = await result_of(once.check())
        assert any("pgbouncer=true" in found.text for found in findings if found.level == "warning") is warned
        assert ("pooler_detected" in caplog.text) is warned


def test_the_schema_is_migrated_through_a_pooler_that_nobody_told_of(pooler: str) -> None:
    urls = [in_schema(pooler) for _ in range(4)]
    assert [migrate(url) for url in urls] == [NEWEST] * 4


async def test_a_pooler_that_is_said_to_pool_sessions_is_a_misconfiguration(
    pooler: str, mode: str, open_client: Any
) -> None:
    url = f"{in_schema(pooler)}&pgbouncer=false"
    clients = [open_client(url, timeout=PATIENT, on_outage="proceed") for _ in range(2)]
    with pytest.raises(StoreMisconfigured, match="pgbouncer=false"):
        for once in clients:  # behind one that drops what we set, the second meets a statement of the first
            await result_of(once.first("key", ttl=60))
    assert [once.failed_open for once in clients] == [0, 0]


if PGBOUNCER is not None:

    def test_options_of_the_url_that_a_pooler_refuses_are_named(postgres: Postgres) -> None:
        with pooler_of(postgres, places=2) as address:
            url = f"{in_schema(address)}&options=-c%20search_path%3Dpublic"
            store = open_blocking(url, clock=None, timeout=PATIENT)
            with closing(store), pytest.raises(StoreMisconfigured, match="options"):
                store.check()


if PGBOUNCER is not None:

    @pytest.mark.parametrize("config", POOLERS.values(), ids=POOLERS)
    async def test_a_pooler_of_statements_is_a_misconfiguration(
        postgres: Postgres, config: dict[str, str], open_client: Any
    ) -> None:
        """It ends a connection on which a transaction begins, which is no outage either."""
        with pooler_of(postgres, places=2, pool_mode="statement", **config) as address:
            once = open_client(in_schema(address), timeout=PATIENT, on_outage="proceed")
            with pytest.raises(StoreMisconfigured, match="pool_mode = transaction"):
                await result_of(once.first("key", ttl=60))
            assert once.failed_open == 0


async def test_the_data_of_applications_behind_a_pooler_is_a_misconfiguration(pooler: str) -> None:
    """Its tables would be made in a schema that nobody asked for."""
    database = open_database(in_schema(pooler), timeout=PATIENT)
    try:
        with pytest.raises(DataError, match="the server's own address") as caught:
            await migrate_data(database, "alerts", "solely.apps.alerts")
        assert not isinstance(caught.value, DataUnavailable)
    finally:
        await database.close()
