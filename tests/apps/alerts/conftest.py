"""The data of the alert receiver in a database of each kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from solely.data import Database, migrate, open_database
from tests.apps.alerts.working import Open, working
from tests.conftest import STORES, in_schema
from tests.postgres_server import PYPI_POSTGRES

DATABASES = ("sqlite", "postgres") if PYPI_POSTGRES is not None else ("sqlite",)


@pytest.fixture(params=DATABASES)
def data_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database; the test runs once per kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'data.db'}"
    return in_schema(request.getfixturevalue("postgres").url)


@pytest.fixture(params=[name for name in ("memory", "valkey", "postgres") if name in STORES])
async def open_anywhere(request: pytest.FixtureRequest) -> AsyncIterator[Open]:
    """Opens workers without their HTTP; the test runs once per kind of store whose steps differ."""
    async with working(STORES[request.param](request)) as open_one:
        yield open_one


@pytest.fixture
async def data(data_url: str) -> AsyncIterator[Database]:
    """A database with the tables of the alert receiver."""
    database = open_database(data_url)
    await migrate(database, "alerts", "solely.apps.alerts")
    yield database
    await database.close()
