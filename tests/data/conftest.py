"""A fresh, empty database of each dialect, and packages with migrations."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from solely.data import Database, open_database
from tests.conftest import STORES

Package = Callable[..., str]


@pytest.fixture(params=[name for name in ("sqlite", "postgres") if name in STORES])
def database_url(request: pytest.FixtureRequest) -> str:
    return STORES[request.param](request)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """With a table of notes; its statements may take two seconds."""
    it = open_database(database_url, timeout=2.0)
    async with it.migrating() as inside:  # which also makes the schema
        await inside.run("CREATE TABLE notes (id TEXT PRIMARY KEY, size BIGINT, at DOUBLE PRECISION, done INTEGER)")
    yield it
    await it.close()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Makes a package, or changes it, with these migrations: file name → text. Answers its name."""
    name = f"app_{secrets.token_hex(4)}"
    folder = tmp_path / "packages" / name
    (folder / "migrations").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('it is not to be imported')")
    monkeypatch.syspath_prepend(str(folder.parent))

    def write(**files: str) -> str:
        for old in (folder / "migrations").iterdir():
            old.unlink()
        for file, text in files.items():
            (folder / "migrations" / f"{file.removeprefix('m')}.sql").write_text(text)
        return name

    return write
