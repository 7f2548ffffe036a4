"""The seam: how the service mounts, configures, starts, runs and stops an application."""

from __future__ import annotations

import asyncio
import re
import secrets
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import solely.http
from solely import InvalidInput, SolelyError
from solely.apps import APPS, find, has
from solely.cli.exits import Exit
from solely.cli.program import perform
from solely.service.mount import mount
from solely.service.service import Service
from solely.service.settings import Settings, as_toml, load, shown
from tests.service.serving import LINES, TOKENS, Process, bearer, running, settings, until

ROOT = Path(__file__).parents[2]
TROUPE = """
import asyncio
from typing import ClassVar

import msgspec

from solely.service.application import Application, AppPage, Figure, Job, Route
from solely.service.routes import READ, WRITE, Call

SEATS = Figure("solely_NAME_seats", "Seats that are free", kind="gauge")


class Actor(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rest: float = 1.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pause: float = 5.0
    seats: int = 7
    password: str = ""
    actors: tuple[Actor, ...] = ()
    rests: dict[str, float | None] = {}
    tags: tuple[str, ...] = ()

    def __post_init__(self):
        if self.seats < len(self.actors):
            raise ValueError("more actors than seats")


class Troupe(Application[Settings]):
    name, title, about = "NAME", "Troupe", "plays"
    Settings = Settings
    figures = (SEATS,)
    pages = (AppPage("Troupe", "/NAME"),)
    secrets = ("password",)
    calls: ClassVar[list[str]] = []

    def routes(self):
        plays = Route("POST", "/NAME/plays", WRITE, self.add, "Add a play")
        return [Route("GET", "/NAME", READ, self.play, "Play"), plays]

    def jobs(self):
        return [Job("stumble", 0.01, self.stumble), Job("walk", 0.01, self.walk)]

    async def start(self):
        assert await self.service.once.first("troupe-started", ttl=60)
        await self.service.data.run("INSERT INTO NAME_plays VALUES ('opening')")
        self.service.metrics.gauge(SEATS, lambda: self.settings.seats)
        self.calls.append("started")

    async def stop(self):
        rows = await self.service.data.rows("SELECT * FROM NAME_plays")
        self.calls.append(f"stopped after {len(rows)}")

    async def play(self, call: Call[None, None]) -> dict[str, int]:
        found = await self.service.data.row("SELECT count(*) AS plays FROM NAME_plays")
        return dict(found)

    async def add(self, call: Call[None, None]) -> dict[str, int]:
        return {"added": await self.service.data.run("INSERT INTO NAME_plays VALUES ('another')")}

    async def stumble(self):
        self.calls.append("stumbled")
        raise RuntimeError("oops")

    async def walk(self):
        self.calls.append("walked")

    async def demo(self):
        self.calls.append("demo")
        await asyncio.sleep(60)
"""


class Made:
    """A package with an application, registered for the test."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("NAME", self.name))


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """An application with a page, jobs and a table."""
    name = f"troupe{secrets.token_hex(3)}"
    it = Made(name, tmp_path / "packages" / name)
    it.write("__init__.py", TROUPE)
    it.write("migrations/001_plays.sql", "CREATE TABLE NAME_plays (title TEXT);")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    monkeypatch.setitem(APPS, name, f"{name}:Troupe")
    yield it
    for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[module]


# -- mounting


def test_an_application_runs_from_start_to_stop(made: Made, tmp_path: Path) -> None:
    with running(apps=[made.name], tokens=LINES, data_url=f"sqlite:///{tmp_path}/data.db") as it:
        calls = it.service.apps[made.name].calls  # type: ignore[attr-defined]
        reader = bearer(TOKENS["read"])
        assert calls[0] == "started"
        assert it.get(f"/{made.name}").status_code == 401
        assert it.get(f"/{made.name}", headers=reader).json() == {"plays": 1}
        assert f"/{made.name}" in it.get("/openapi.json").json()["paths"]
        assert f'<a href="/{made.name}">Troupe</a>' in it.get("/locks", headers=reader).text
        assert it.get("/readyz").json()["checks"] == {"store": "ok", "data": "ok", "granting": "ok"}
        until(lambda: calls.count("stumbled") >= 2 and calls.count("walked") >= 2)
        figures = it.get("/metrics", headers=reader).text
        assert f"solely_{made.name}_seats 7.0" in figures
        failures = rf'solely_job_failures_total{{app="{made.name}",what="stumble"}} (\d+)'
        found = re.search(failures, figures)
        assert found is not None
        assert int(found[1]) >= 1
        assert 'job="walk"' not in figures
    assert calls[-1] == "stopped after 1"
    assert (tmp_path / "data.db").exists()


def test_while_the_database_is_away_callers_are_told_to_come_back(made: Made, tmp_path: Path) -> None:
    writer, plays, file = bearer(TOKENS["write"]), f"/{made.name}/plays", tmp_path / "data.db"
    with (
        running(apps=[made.name], tokens=LINES, data_url=f"sqlite:///{file}", store_timeout="500ms") as it,
        closing(sqlite3.connect(file)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")  # and nobody else can write
        away = it.post(plays, headers=writer)
        assert (away.status_code, away.headers["retry-after"]) == (503, "1")
        assert away.json()["type"] == "/policy#data-away"
        assert "data.db" not in away.text, "what the database says is for the log"
        client = solely.http.Client(it.address, token=TOKENS["write"])
        with client, pytest.raises(solely.DataUnavailable):
            client.post(plays, {}, dict[str, int])
        other.rollback()
        assert it.post(plays, headers=writer).json() == {"added": 1}


def test_none_is_mounted_and_no_database_opened() -> None:
    for names in ("", "none"):
        with running(apps=names, history=0) as it:
            assert it.service.apps == {}
            assert not hasattr(it.service, "data")
            assert it.get("/readyz").json()["checks"] == {"store": "ok", "granting": "ok"}
            assert it.get("/applications?format=json").json() == {"pages": []}
            assert "solely_job_failures" not in it.get("/metrics").text


def test_all_are_mounted_unless_some_are_named(made: Made) -> None:
    assert Settings().mounted == tuple(APPS)
    assert "alerts" in Settings().mounted
    assert made.name in Settings().mounted


async def test_an_application_that_cannot_start_says_why_and_leaves_nothing_open(made: Made) -> None:
    start = "async def start(self):\n"
    made.write("__init__.py", TROUPE.replace(start, start + "        raise OSError('no stage')\n"))
    service = Service(settings(apps=[made.name]))
    mount(service)
    with pytest.raises(SolelyError, match=f"the application {made.name} did not start: no stage"):
        await service.open()
    with pytest.raises(SolelyError, match="closed"):
        await service.data.check()
    with pytest.raises(SolelyError, match="closed"):
        await service.once.first("a", ttl=1)
    assert service.apps[made.name].calls == []  # type: ignore[attr-defined]


async def test_a_database_that_is_away_keeps_the_service_from_starting(made: Made, tmp_path: Path) -> None:
    (tmp_path / "data.db").write_text("certainly no database\n" * 100)
    service = Service(settings(apps=[made.name], data_url=f"sqlite:///{tmp_path}/data.db"))
    mount(service)
    with pytest.raises(SolelyError, match=r"data\.db: file is not a database"):
        await service.open()


def test_a_service_that_cannot_start_ends_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_text("certainly no database\n" * 100)
    with Process(tmp_path, "--url", "memory://", "--data-url", f"sqlite:///{tmp_path}/data.db") as process:
        assert process.wait() == 1
        assert "file is not a database" in process.log.read_text()


def test_workers_that_cannot_start_are_not_replaced_for_ever(tmp_path: Path) -> None:
    (tmp_path / "data.db").write_text("certainly no database\n" * 100)
    urls = ("--url", f"sqlite:///{tmp_path}/store.db", "--data-url", f"sqlite:///{tmp_path}/data.db")
    with Process(tmp_path, "--workers", "2", *urls) as process:
        assert process.wait() == Exit.UNAVAILABLE
        assert re.search(
            r"^solely: the database .*data\.db: file is not a database", process.log.read_text(), re.MULTILINE
        )


def test_an_application_that_is_not_known_or_not_right(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match=r"no application 'alarts'; known are alerts"):
        load(environ={}, flags={"apps": "alarts"})
    with pytest.raises(InvalidInput, match="twice"):
        load(environ={}, flags={"apps": "alerts,alerts"})
    with pytest.raises(InvalidInput, match="known are alerts"):
        find("alarts")
    monkeypatch.setitem(APPS, "empty", "tests.apps:Empty")
    with pytest.raises(InvalidInput, match=r"tests\.apps has no class Empty"):
        find("empty")
    monkeypatch.setitem(APPS, "other", APPS[made.name])
    with pytest.raises(InvalidInput, match=f"other calls itself {made.name}"):
        mount(Service(settings(apps=["other"])))


async def test_two_applications_cannot_have_one_route_or_figure(made: Made) -> None:
    service = Service(settings(apps=[made.name]))
    mount(service)
    with pytest.raises(InvalidInput, match="two figures named"):
        service.metrics.add(find(made.name).figures)


async def test_the_demo_of_an_application_runs_beside_the_own_one(made: Made) -> None:
    from solely.service.demo import demo

    service = Service(settings(apps=[made.name]))
    mount(service)
    service.background.append(demo)
    await service.open()
    calls = service.apps[made.name].calls  # type: ignore[attr-defined]
    async with asyncio.timeout(100):
        while "demo" not in calls:
            await asyncio.sleep(0.01)
    await service.close()


def test_a_command_of_an_application_is_imported_when_asked_for(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert not has(made.name, "cli.py")
    assert perform([made.name]) == 2
    made.write("cli.py", "import click\n\n@click.command()\ndef command():\n    click.echo('curtain')\n")
    assert perform(["--help"]) == 0
    assert f"  {made.name}" in capsys.readouterr().out  # among the applications
    assert f"{made.name}.cli" not in sys.modules
    assert perform([made.name]) == 0
    assert capsys.readouterr().out == "curtain\n"
    sys.modules.pop(f"{made.name}.cli")
    made.write("cli.py", "import nothing_of_that_name\n")
    assert perform([made.name]) == 1
    assert "pip install 'solely[service]'" in capsys.readouterr().err


# -- settings


def test_a_section_is_merged_from_all_sources(made: Made, tmp_path: Path) -> None:
    name, file = made.name, tmp_path / "solely.toml"
    file.write_text(
        f'[{name}]\npause = "1m"\nseats = 3\nactors = [{{name = "Ann", rest = "2m"}}]\nrests = {{Bob = "1h"}}\n'
    )
    environ = {f"SOLELY_{name.upper()}_SEATS": "4", f"SOLELY_{name.upper()}_RESTS": '{"Eve": "250ms", "Joe": null}'}
    loaded = load(file, environ, {f"{name}.tags": "a,b", "apps": name})
    section = loaded.settings.section(name)
    assert (section.pause, section.seats, section.tags) == (60.0, 4, ("a", "b"))
    assert [(each.name, each.rest) for each in section.actors] == [("Ann", 120.0)]
    assert section.rests == {"Eve": 0.25, "Joe": None}
    assert loaded.sources[f"{name}.pause"] == f"file {file}"
    assert loaded.sources[f"{name}.seats"] == "environment"
    assert loaded.sources[f"{name}.tags"] == "flag"
    text = as_toml(loaded)
    assert re.search(rf"^\[{name}\] +# plays\n(.*\n)*seats = 4 +# environment$", text, re.MULTILINE)
    again = tmp_path / "again.toml"
    again.write_text("\n".join(line for line in text.splitlines() if not line.startswith("rests")))
    assert load(again).settings.section(name).actors == section.actors


def test_without_a_section_there_are_the_defaults(made: Made) -> None:
    assert load(environ={}).settings.section(made.name).pause == 5.0


def test_a_secret_is_shown_to_nobody(made: Made) -> None:
    loaded = load(environ={f"SOLELY_{made.name.upper()}_PASSWORD": "swordfish"}, flags={"apps": made.name})
    assert loaded.settings.section(made.name).password == "swordfish"
    assert "swordfish" not in as_toml(loaded)
    assert shown(loaded)[made.name]["password"] == "…"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"paus": 1}, r"unknown key 'troupe\w+\.paus'; did you mean pause\?"),
        ({"pause": "soon"}, r"troupe\w+\.pause 'soon': .*not a duration"),
        ({"seats": "many"}, r"troupe\w+\.seats 'many'"),
        ({"actors": [{"name": "Ann", "rset": 1}]}, r"unknown key 'rset'; did you mean rest\?"),
        ({"actors": [{"name": "Ann", "rest": "soon"}]}, "not a duration"),
        ({"actors": "[{"}, r"troupe\w+\.actors"),
        ({"actors": [{"name": "Ann"}], "seats": 0}, r"\[troupe\w+\]: more actors than seats"),
    ],
)
def test_an_invalid_section_is_refused(made: Made, values: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load(environ={}, flags={made.name: values})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("SOLELY_{NAME}_PAUS", "1", r"environment: unknown key 'SOLELY_TROUPE\w+_PAUS'; did you mean pause\?"),
        ("SOLELY_{NAME}", "1", "is an application: write its settings into a section"),
        ("SOLELY_SECTIONS", "{}", "unknown key 'SOLELY_SECTIONS'"),
        ("SOLELY_ALART", "1", r"unknown key 'SOLELY_ALART'; did you mean alerts\?"),
    ],
)
def test_invalid_variables_are_refused(made: Made, key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load(environ={key.format(NAME=made.name.upper()): value})


def test_a_wrong_secret_is_not_repeated(made: Made) -> None:
    wrong = {made.name: {"password": ["swordfish"]}}
    with pytest.raises(InvalidInput, match="password") as refused:
        load(environ={}, flags=wrong)
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("memory://", "sqlite:///:memory:"),
        ("sqlite:////var/lib/so%20lely/store.db", "sqlite:////var/lib/so%20lely/store-data.db"),
        ("sqlite:////var/lib/other.db", "sqlite:////var/lib/other-data.db"),
        ("sqlite:////var/lib/plain", "sqlite:////var/lib/plain-data.db"),
        ("redis://host", "sqlite:///{home}/solely/data.db"),
    ],
)
def test_where_the_data_are_if_nothing_is_said(
    url: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings(url=url).database_url == data.format(home=tmp_path)
    assert Settings(url=url, data_url="postgresql://host/db").database_url == "postgresql://host/db"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"data_url": "redis://host"}, "data_url must begin with"),
        ({"url": "sqlite:///a.db", "data_url": "sqlite:///a.db"}, "name one file"),
        (
            {"url": "sqlite:///a.db", "data_url": "sqlite:///:memory:", "workers": 2},
            "cannot share a data_url in memory",
        ),
    ],
)
def test_invalid_data_urls_are_refused(flags: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        load(environ={}, flags=flags)
