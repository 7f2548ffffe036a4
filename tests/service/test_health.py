"""Health: alive, ready, and why not; without telling strangers more than that."""

from __future__ import annotations

import asyncio

import pytest

import solely
from solely.service import health
from solely.service.health import Readiness
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
    assert answer.json() == {"status": "ok", "checks": {"store": "ok", "data": "ok", "granting": "ok"}}


def test_version_is_for_those_who_may_read(guarded: Running) -> None:
    assert guarded.get("/version").status_code == 401
    told = guarded.get("/version", headers=bearer(TOKENS["read"])).json()
    assert told["version"] == solely.__version__
    assert told["up"] >= 0


def test_unready_while_the_store_is_away_and_ready_when_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "FRESH", 0.0)
    with Valkey() as server, running(url=server.url, store_timeout="500ms") as it:
        assert it.get("/readyz").json()["checks"]["store"] != "error"
        server.kill()
        away = it.get("/readyz")
        assert away.status_code == 503
        assert away.json() == {"status": "unready", "checks": {"store": "error", "data": "ok", "granting": "ok"}}
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
        assert answer.json()["checks"] == {"store": "ok", "data": "ok", "granting": "error"}
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

    monkeypatch.setattr(health, "PATIENCE", 0.05)
    readiness = Readiness()
    readiness.checks.update(fine=fine, broken=broken, hangs=hangs)
    answers = await asyncio.gather(*(readiness.levels() for _ in range(20)))
    assert all(each == {"fine": "ok", "broken": "error", "hangs": "error"} for each in answers)
    assert asked == ["fine"]
