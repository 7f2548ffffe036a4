"""After DROP SCHEMA, an open client goes on by itself: it makes anew what is missing, or names what to do."""

from typing import Any

import pytest

from solely import StoreMisconfigured
from solely.stores.postgres import migrate
from tests.client_modes import result_of
from tests.conftest import PATIENT, in_schema
from tests.postgres_server import Postgres


def drop(server: Postgres, url: str) -> None:
    server.ask(f"DROP SCHEMA {url.partition('namespace=')[2].partition('&')[0]} CASCADE")


async def test_an_open_client_makes_a_lost_schema_anew(postgres: Postgres, open_client: Any) -> None:
    url = in_schema(postgres.url)
    once = open_client(url, timeout=PATIENT)
    assert await result_of(once.first("key", ttl=60))
    drop(postgres, url)
    assert await result_of(once.first("key", ttl=60))
    assert not await result_of(once.first("key", ttl=60))
    lease = await result_of(once.lock("key", ttl=60))
    await result_of(lease.release())


async def test_an_open_client_that_may_not_migrate_names_what_to_do(postgres: Postgres, open_client: Any) -> None:
    url = in_schema(postgres.url)
    migrate(url)
    once = open_client(f"{url}&migrate=never", timeout=PATIENT, on_outage="proceed")
    assert await result_of(once.first("key", ttl=60))
    drop(postgres, url)
    with pytest.raises(StoreMisconfigured, match="migrate"):
        await result_of(once.first("key", ttl=60))
    migrate(url)
    assert await result_of(once.first("key", ttl=60))


async def test_a_part_that_is_missing_is_a_misconfiguration(postgres: Postgres, open_client: Any) -> None:
    """Nobody retries for ever, or proceeds without the store."""
    url = in_schema(postgres.url)
    once = open_client(url, timeout=PATIENT, on_outage="proceed")
    assert await result_of(once.first("key", ttl=60))
    postgres.ask(f"DROP TABLE {url.partition('namespace=')[2]}.entries CASCADE")
    with pytest.raises(StoreMisconfigured, match="missing"):
        await result_of(once.first("key", ttl=60))
    assert once.failed_open == 0
