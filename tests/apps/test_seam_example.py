"""The application of CONTRIBUTING.md: put into its folder, registered, mounted, and driven over HTTP."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import solely.http
from solely.apps import APPS
from tests.service.serving import LINES, TOKENS, Running, bearer, running

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(
    r"^```(?:python|sql)\n(?:#|--) src/solely/apps/greetings/(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
)


class Visitor(msgspec.Struct):
    """What a client sends."""

    name: str


@pytest.fixture(scope="module")
def greetings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("apps")
    for path, text in BLOCKS:
        file = folder / "greetings" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setitem(APPS, "greetings", "greetings:Greetings")
        given: dict[str, Any] = {
            "greetings": {"again": "1h", "words": "Hi {name}"},
            "data_url": f"sqlite:///{folder}/data.db",
        }
        with running(tokens=LINES, apps=["greetings"], store_timeout="500ms", **given) as it:
            yield it
    sys.modules.pop("greetings", None)


def test_it_is_short() -> None:
    assert [path for path, _ in BLOCKS] == ["__init__.py", "migrations/001_greeted.sql"]
    assert sum(len(text.splitlines()) for _, text in BLOCKS) < 60


def test_it_greets_each_visitor_once(greetings: Running) -> None:
    writer, reader = bearer(TOKENS["write"]), bearer(TOKENS["read"])
    greeted = [
        greetings.post("/api/greetings", {"name": name}, headers=writer).json() for name in ("Ann", "Bob", "Ann")
    ]
    assert greeted == [{"words": "Hi Ann"}, {"words": "Hi Bob"}, {"words": ""}]
    assert greetings.get("/api/greetings", headers=reader).json() == {"greeted": 2}
    assert "solely_greetings_suppressed_total 1.0" in greetings.get("/metrics", headers=reader).text
    assert greetings.post("/api/greetings", {"name": "Eve"}, headers=reader).status_code == 403
    assert greetings.post("/api/greetings", {"nam": "Eve"}, headers=writer).status_code == 400
    document = greetings.get("/openapi.json").json()["paths"]
    assert document["/api/greetings"]["post"]["tags"] == ["greetings"]
    assert (
        "The database of applications is unavailable"
        in (document["/api/greetings"]["post"]["responses"]["503"]["description"])
    )
    assert "database" not in document["/v1/locks/acquire"]["post"]["responses"]["503"]["description"]


def test_it_forgets_what_is_old(greetings: Running) -> None:
    data = greetings.service.data
    greetings.run(data.run("INSERT INTO greetings_greeted (name, at) VALUES ('long ago', 0)"))
    before = greetings.get("/api/greetings", headers=bearer(TOKENS["read"])).json()["greeted"]
    greetings.run(greetings.service.apps["greetings"].forget())  # type: ignore[attr-defined]
    assert greetings.get("/api/greetings", headers=bearer(TOKENS["read"])).json()["greeted"] == before - 1


def test_while_the_database_is_away_nothing_is_lost(greetings: Running) -> None:
    writer = bearer(TOKENS["write"])
    with closing(sqlite3.connect(greetings.service.settings.data_url.removeprefix("sqlite:///"))) as other:
        other.execute("BEGIN IMMEDIATE")  # and nobody else can write
        away = greetings.post("/api/greetings", {"name": "Max"}, headers=writer)
        client = solely.http.Client(greetings.address, token=TOKENS["write"])
        with client, pytest.raises(solely.DataUnavailable):
            client.post("/api/greetings", Visitor(name="Max"), dict[str, str])
    assert (away.status_code, away.headers["retry-after"]) == (503, "1")
    assert away.json()["type"] == "/policy#data-away"
    assert "data.db" not in away.text, "what the database says is for the log"
    assert greetings.post("/api/greetings", {"name": "Max"}, headers=writer).json() == {"words": "Hi Max"}


def test_a_failed_statement_shows_the_caller_nothing(greetings: Running) -> None:
    writer, data = bearer(TOKENS["write"]), greetings.service.data
    greetings.run(data.run("ALTER TABLE greetings_greeted RENAME TO elsewhere"))
    try:
        broken = greetings.post("/api/greetings", {"name": "Zoe"}, headers=writer)
        assert broken.status_code == 500
        assert "greetings_greeted" not in broken.text
    finally:
        greetings.run(data.run("ALTER TABLE elsewhere RENAME TO greetings_greeted"))
    assert greetings.post("/api/greetings", {"name": "Zoe"}, headers=writer).json() == {"words": "Hi Zoe"}
