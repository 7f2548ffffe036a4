"""Health: alive, ready, and why not; without telling strangers more than that."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import solely
from solely.service import readiness as readiness_checks
from solely.service.readiness import Readiness
from tests.conftest import in_schema
from tests.mongo_server import Mongod
from tests.postgres_server import Postgres
from tests.servers import Valkey
from tests.service.serving import TOKENS, Running, bearer, running, until


@pytest.mark.parametrize("path", ["/healthz", "/-/healthy"])
def test_alive_reveals_nothing(path: str, guarded: Running) -> None:
    answer = guarded.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("path", ["/readyz", "/-/ready"])
def test_ready(path: str, guarded: Running) -> None:
    answer = guarded.get(path)
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "checks": {"store": "ok", "data": "ok", "workers": "ok", "granting": "ok"}}


def test_version_is_for_those_who_may_read(guarded: Running) -> None:
    assert guarded.get("/version").status_code == 401
    told = guarded.get("/version", headers=bearer(TOKENS["read"])).json()
    assert told["version"] == solely.__version__
    assert told["up"] >= 0


def test_unready_while_the_store_is_away_and_ready_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_checks, "FRESH", 0.0)
    with Valkey() as server, running(url=server.url, store_timeout="500ms") as it:
        assert it.get("/readyz").json()["checks"]["store"] != "error"
        server.kill()
        away = it.get("/readyz")
        assert away.status_code == 503
        assert away.json() == {
            "status": "unready",
            "checks": {"store": "error", "data": "ok", "workers": "ok", "granting": "ok"},
        }
        assert away.headers["retry-after"] == "1"
        assert str(server.port) not in away.text
        assert it.get("/healthz").status_code == 200, "alive all the same"
        server.start()
        until(lambda: it.get("/readyz").status_code == 200)


def test_unready_while_it_stops() -> None:
    with running() as it:
        it.on_loop(it.service.stop)
        answer = it.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"] == {"store": "ok", "data": "ok", "workers": "ok", "granting": "error"}
        assert it.get("/healthz").status_code == 200


async def test_checks_are_asked_once_for_many_and_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def fine() -> str:
        asked.append("fine")
        return "ok"

    async def broken() -> str:
        raise solely.StoreUnavailable("it is away")

    async def hangs() -> str:
        await asyncio.Event().wait()
        return "ok"

    monkeypatch.setattr(readiness_checks, "PATIENCE", 0.05)
    readiness = Readiness()
    readiness.checks.update(fine=fine, broken=broken, hangs=hangs)
    answers = await asyncio.gather(*(readiness.levels() for _ in range(20)))
    assert all(each == {"fine": "ok", "broken": "error", "hangs": "error"} for each in answers)
    assert asked == ["fine"]


# -- a store that answers, and can take nothing new


@contextmanager
def _full_file(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[Running], Any]]]:
    def fill(it: Running) -> None:
        session: Any = it.service.store._store._ops.session  # type: ignore[attr-defined]
        with session.lock:
            (pages,) = session._connection.execute("PRAGMA page_count").fetchone()
            session._connection.execute(f"PRAGMA max_page_count = {pages}")

    folder: Path = request.getfixturevalue("tmp_path")
    yield f"sqlite:///{folder / 'full.sqlite3'}", fill


@contextmanager
def _full_memory(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[Running], Any]]]:
    with Valkey() as server:
        yield server.url, lambda it: server.ask("CONFIG", "SET", "maxmemory", "1")


@contextmanager
def _full_server(request: pytest.FixtureRequest) -> Iterator[tuple[str, Callable[[Running], Any]]]:
    server: Postgres = request.getfixturevalue("postgres")
    url = in_schema(server.url)
    schema = url.rpartition("=")[2]
    text = f"""
        CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER "full" BEFORE INSERT ON {schema}.entries EXECUTE FUNCTION {schema}.full()
        """
    yield url, lambda it: server.ask(text)


FULL: dict[str, Callable[[pytest.FixtureRequest], AbstractContextManager[tuple[str, Callable[[Running], Any]]]]] = {
    "sqlite": _full_file,
    "valkey": _full_memory,
    "postgres": _full_server,
}


@pytest.mark.parametrize("store", FULL)
def test_unready_while_the_store_is_full_and_507_says_when_to_come_again(
    store: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness_checks, "FRESH", 0.0)
    with FULL[store](request) as (url, fill), running(url=url) as it:
        assert it.post("/v1/locks/acquire", {"key": "before", "ttl": 60}).status_code == 200
        assert it.get("/readyz").status_code == 200
        fill(it)

        def refused() -> Any:
            answer = it.post("/v1/locks/acquire", {"key": secrets.token_hex(100), "ttl": 60, "purpose": "x" * 200})
            return answer if answer.status_code != 200 else None

        answer = until(refused)
        assert answer.status_code == 507
        assert int(answer.headers["retry-after"]) == answer.json()["retry_after"] >= 1
        unready = it.get("/readyz")
        assert unready.status_code == 503
        assert unready.json()["checks"]["store"] == "error"
        assert unready.headers["retry-after"]
        shown = it.get("/", headers={"accept": "application/json"}).json()["health"]
        assert shown["level"] == "error"
        assert any("full" in text or "maxmemory" in text for _, _, text in shown["findings"])
        assert it.get("/healthz").status_code == 200


@pytest.mark.parametrize("code", [10107, 14031])  # not the primary; out of disk space
def test_unready_while_mongo_refuses_writes(replica_set: Mongod, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_checks, "FRESH", 0.0)
    url = f"{replica_set.url_of('solely')}&namespace=t{secrets.token_hex(6)}"
    names = {"failCommands": ["findAndModify", "update", "insert", "bulkWrite"], "failInternalCommands": False}
    with running(url=url) as it:
        until(lambda: it.get("/readyz").status_code == 200)
        replica_set.ask({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": {**names, "errorCode": code}})
        try:
            assert it.get("/readyz").status_code == 503
        finally:
            replica_set.ask({"configureFailPoint": "failCommand", "mode": "off"})
        until(lambda: it.get("/readyz").status_code == 200)


def test_a_check_leaves_nothing_behind_and_counts_as_nobodys_hold(guarded: Running) -> None:
    assert guarded.get("/readyz").status_code == 200
    listed = guarded.get("/v1/entries", headers=bearer(TOKENS["read"])).json()["entries"]
    assert [entry["key"] for entry in listed if "solely" in entry["key"]] == []
    assert guarded.service.holds.count() == 0
