"""Lists: one declaration gives the route, the page and the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from solely.kit import Body, Page, PageSize, Rows, list_page, list_route
from solely.kit.commands import Field, Listing, after, limit, list_command
from solely.service import health
from tests.service.serving import LINES, TOKENS, Running, bearer, running

NAMES = ["ann", "ben", "cem"]
PAGED = Listing(
    "/api/people",
    "people",
    "List people",
    ("name", "city"),
    fields=(Field("named", option="--named"), after("NAME"), limit(2)),
    inner=(("city", "home.city"),),
    none="Nobody is here.",
)
ALL = Listing("/api/all-people", "people", "List all people", ("name",))
NAMED = Listing("/api/named-people", "people", "List people by name", ("name",))


class Home(msgspec.Struct):
    city: str


class Person(msgspec.Struct):
    name: str
    home: Home | None = None


class PeopleQuery(Body):
    """People after this one."""

    named: str = ""
    after: str = ""
    limit: PageSize = 2


async def people(query: PeopleQuery) -> Rows[Person]:
    found = [name for name in NAMES if name > query.after and query.named in ("", name)][: query.limit]
    rows = [Person(name, Home("Bern") if name == "ann" else None) for name in found]
    return Rows(rows, found[-1] if len(found) == query.limit else None)


async def everybody(query: PeopleQuery) -> list[Person]:
    return [Person(name) for name in NAMES]


async def beginning(with_: str, limit: PageSize = 2) -> list[Person]:
    """People whose names begin so."""
    return [Person(name) for name in NAMES if name.startswith(with_)][:limit]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    page = list_page(PAGED, people, "/people", Page("People", "solely:live.html", "/"))
    lists = [list_route(PAGED, people), list_route(ALL, everybody), list_route(NAMED, beginning)]
    with running([*lists, page, *health.ROUTES], tokens=LINES) as it:
        yield it


def ask(service: Running, path: str, **query: Any) -> Any:
    answer = service.get(path, params=query, headers=bearer(TOKENS["read"]))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_list_is_answered_page_by_page(service: Running) -> None:
    first = ask(service, "/api/people")
    assert first == {
        "people": [{"name": "ann", "home": {"city": "Bern"}}, {"name": "ben", "home": None}],
        "next": "ben",
    }
    assert ask(service, "/api/people", after="ben") == {"people": [{"name": "cem", "home": None}], "next": None}
    assert service.get("/api/people").status_code == 401
    assert service.get("/api/people", params={"no": "1"}, headers=bearer(TOKENS["read"])).status_code == 400


def test_a_list_without_pages_says_nothing_of_a_next_one(service: Running) -> None:
    assert set(ask(service, "/api/all-people")) == {"people"}


def test_the_query_may_be_the_parameters_of_a_function(service: Running) -> None:
    assert ask(service, "/api/named-people", with_="a") == {"people": [{"name": "ann", "home": None}]}
    for wrong in ({}, {"with_": "a", "limit": "0"}, {"with_": "a", "no": "1"}):
        answer = service.get("/api/named-people", params=wrong, headers=bearer(TOKENS["read"]))
        assert answer.status_code == 400, wrong


def test_the_command_finds_columns_inside_of_rows_and_says_if_there_are_none(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOLELY_TOKEN", TOKENS["read"])
    command, at = list_command(PAGED, "people"), ["--at", service.address]
    printed = CliRunner().invoke(command, at)
    assert printed.stdout.splitlines() == ["NAME  CITY", "ann   Bern", "ben   -"]
    assert "there are more: --after 'ben'" in printed.stderr
    none = CliRunner().invoke(command, ["--named", "nobody", *at])
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "Nobody is here.\n")
    assert CliRunner().invoke(command, ["--named", "nobody", "-o", "json", *at]).stdout == "[]\n"


def test_the_page_has_the_rows_of_the_api(service: Running) -> None:
    shown = ask(service, "/people", format="json", after="ann")
    assert [each["name"] for each in shown["people"]] == ["ben", "cem"]
    assert service.get("/people", headers={"accept": "text/html"}).status_code == 303  # to the login
