"""What the tests of the prober share: a database of each dialect with its tables."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from solely.data import Database, migrate, open_database
from tests.conftest import STORES


@pytest.fixture(params=[name for name in ("sqlite", "postgres") if name in STORES])
async def data(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database with the tables of the prober."""
    it = open_database(STORES[request.param](request), timeout=20.0)
    await migrate(it, "probes", "solely.apps.probes")
    yield it
    await it.close()
