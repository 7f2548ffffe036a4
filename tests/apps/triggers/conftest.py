"""Workers of the task-trigger API on databases of each kind, and stores that fail."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.apps.triggers.working import BURST, Faults, Worker
from tests.conftest import STORES, in_schema, isolated
from tests.postgres_server import PYPI_POSTGRES

PLACES = ("embedded", "redis_postgres") if PYPI_POSTGRES is not None else ("embedded",)


def _file(request: pytest.FixtureRequest) -> str:
    folder: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    return f"sqlite:///{folder.mktemp('pair') / 'data.db'}"


# Name → the URLs of a store and a database, fresh and empty. They can be asked for by a fixture of a module.
PAIRS: dict[str, Callable[[pytest.FixtureRequest], tuple[str, str]]] = {
    "sqlite-sqlite": lambda request: (_file(request), _file(request)),
    "valkey-postgres": lambda request: (STORES["valkey"](request), STORES["postgres"](request)),
    "postgres-postgres": lambda request: (STORES["postgres"](request), STORES["postgres"](request)),
    "mongo-sqlite": lambda request: (STORES["mongo"](request), _file(request)),
}
PAIRS = {name: pair for name, pair in PAIRS.items() if {*name.split("-")} <= {*STORES}}


@pytest.fixture(params=PLACES)
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The URLs of a store and a database; the test runs once per kind."""
    if request.param == "embedded":
        return f"memory://{secrets.token_hex(8)}", f"sqlite:///{tmp_path / 'data.db'}"
    return isolated(request.getfixturevalue("valkey_url")), in_schema(request.getfixturevalue("postgres").url)


@pytest.fixture
async def anywhere(urls: tuple[str, str]) -> AsyncIterator[Worker]:
    """A worker on either kind of store and database, whose gate diverts all triggers but the first."""
    async with Worker(*urls, timeout=30.0, **BURST) as it:
        yield it


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


@pytest.fixture
async def worker(faults: Faults) -> AsyncIterator[Worker]:
    """A worker on a memory store that fails as the test says; its gate lets everything pass."""
    async with Worker(timeout=0.3, gate="off") as it:
        yield it


@pytest.fixture
async def diverting(faults: Faults) -> AsyncIterator[Worker]:
    """The same, whose gate diverts all triggers but the first."""
    async with Worker(timeout=0.3, **BURST) as it:
        yield it
