"""Lists for people: their order, filters and pages; events as sentences; problems as pages."""

from __future__ import annotations

from dataclasses import fields
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from solely import events
from solely.ops import Acquire
from solely.owner import fresh_owner
from solely.service.dashboard.addresses import MOST_PAGES, MOST_TRAIL, Address
from solely.service.dashboard.lists import ListQuery
from solely.service.dashboard.sentences import MANY, event_lines
from solely.service.event_words import WORDS
from solely.service.feed import EventRecord, Feed, word
from tests.service.serving import Running, running

PAGE = {"accept": "text/html"}


def _held(it: Running, host: str, *keys: str) -> None:
    info = f'{{"host":"{host}","pid":7,"since":1700000000,"purpose":"a test"}}'
    for start in range(0, len(keys), 100):
        ops = [Acquire(f"lock/{key}", fresh_owner(), 600.0, info) for key in keys[start : start + 100]]
        it.run(it.service.perform(*ops))


def _keys(it: Running, path: str) -> list[str]:
    return [row["key"] for row in it.get(path, headers={"accept": "application/json"}).json()["rows"]]


def test_what_runs_comes_first_and_keys_of_applications_only_if_asked_for() -> None:
    with running() as it:
        _held(it, "web-1", "z", "~alerts/x")

        async def done() -> None:
            claim = await it.service.once.claim("a", ttl=60)
            await claim.publish(1)
            await it.service.once.claim("b", ttl=60)

        it.run(done())
        assert _keys(it, "/claims") == ["b", "a"]  # running, then done
        assert _keys(it, "/claims?sort=key") == ["a", "b"]
        assert _keys(it, "/claims?state=done") == ["a"]
        assert _keys(it, "/locks") == ["z"]
        assert it.get("/locks?format=json").json()["hidden"] == 1
        assert "1 key of applications is not shown" in it.get("/locks").text
        assert _keys(it, "/locks?internal=true") == ["z", "~alerts/x"]
        assert _keys(it, "/locks?prefix=~") == ["~alerts/x"]
        assert _keys(it, "/locks?holder=WEB-1&internal=true&sort=-key") == ["~alerts/x", "z"]
        assert _keys(it, "/locks?holder=web-2") == []
        refused = it.get("/locks?sort=weight", headers=PAGE)
        assert (refused.status_code, "is not one of key, state" in refused.text) == (400, True)


def test_a_sorted_list_that_is_cut_says_so_and_nothing_is_out_of_reach() -> None:
    with running() as it:
        _held(it, "web-1", *(f"k{number:04}" for number in range(1100)))
        page = it.get("/locks?sort=-fence").text
        assert "only the first thousand locks in the order of keys were read" in page
        assert _keys(it, "/locks?sort=-fence")[0] == "k0999"
        found, path = list[str](), "/locks?sort=key&limit=300"
        while path:
            found += _keys(it, path)
            following = it.get(path).text.partition('rel="next"')[0].rpartition('href="')
            path = unescape(following[2].partition('"')[0]) if 'rel="next"' in it.get(path).text else ""
        assert found == [f"k{number:04}" for number in range(1100)]


def test_links_repeat_neither_the_form_nor_the_note_of_one_answer() -> None:
    here = Address("/locks", ListQuery(format="live", note="ended", prefix="a b", after="k", trail=["", "j"]))
    links = here.pages("l")
    assert parse_qs(urlsplit(links.next).query, keep_blank_values=True) == {
        "prefix": ["a b"], "after": ["l"], "limit": ["25"], "trail": ["", "j", "k"],
    }  # fmt: skip
    assert parse_qs(urlsplit(links.previous).query, keep_blank_values=True)["trail"] == [""]
    assert "after" not in links.first
    assert "format=live" in here(format="live")


def test_the_trail_of_an_address_is_bounded() -> None:
    trail = [f"{number:0300}" for number in range(MOST_PAGES)]
    kept = parse_qs(urlsplit(Address("/", ListQuery(after="z", trail=trail)).pages("zz").next).query)["trail"]
    assert kept[-1] == "z"
    assert sum(map(len, kept)) <= MOST_TRAIL
    assert len(kept) <= MOST_PAGES


def _every_event() -> list[type[events.Event]]:
    return events.Event.__subclasses__()


@pytest.mark.parametrize("kind", _every_event(), ids=word)
def test_every_event_has_a_sentence(kind: type[events.Event]) -> None:
    given: dict[str, Any] = {"str": "x", "int": 2, "float": 1.5, "bool": True}
    feed = Feed()
    feed(kind(**{each.name: given[str(each.type)] for each in fields(kind)}))
    (line,) = event_lines(feed.last())
    assert word(kind) in WORDS
    assert len(line.sentence.split()) >= 1
    assert not {"no", "yes", "None", "True", "False"} & set(line.sentence.split())


def test_many_events_of_one_sort_are_one_line() -> None:
    def record(number: int, key: str, first: bool, at: float) -> EventRecord:
        return EventRecord(number, at, "marked", "mark", key, {"first": first, "cached": False})

    some = [record(n, f"demo:charge:order-{n}", True, 100.0 + n / 100) for n in range(20, 10, -1)]
    few = [record(n, "demo:charge:order-9", False, 100.0) for n in range(MANY - 1)]
    lines = event_lines([*some, *few])
    assert [(line.count, line.key, line.sentence) for line in lines[:1]] == [
        (10, "demo:charge:*", "marked for the first time")
    ]
    assert [(line.count, line.sentence) for line in lines[1:]] == [(1, "seen again and skipped")] * (MANY - 1)


def test_a_browser_gets_problems_as_pages_and_a_program_as_documents(open_service: Running) -> None:
    for path in ("/no-such-page", "/v1/no-such-path"):
        page = open_service.get(path, headers=PAGE)
        assert page.status_code == 404
        assert page.headers["content-type"].startswith("text/html")
        assert "<h1>Not found</h1>" in page.text
        assert "default-src 'none'" in page.headers["content-security-policy"]
        document = open_service.get(path)
        assert document.headers["content-type"] == "application/problem+json"
        assert document.json()["status"] == 404
    assert "/static/app.css" in open_service.get("/policy").text


def test_the_search_finds_parts_of_keys_by_kind(open_service: Running) -> None:
    _held(open_service, "web-1", "deploy:web", "deploy:api", "re-deploy")
    found = open_service.get("/search?q=deploy&format=json").json()
    (locks,) = found["kinds"]
    assert [row["key"] for row in locks["begin"]] == ["deploy:api", "deploy:web"]
    assert [row["key"] for row in locks["contain"]] == ["re-deploy"]
    exact = open_service.get("/search?q=deploy:web", headers=PAGE, follow_redirects=False)
    assert (exact.status_code, exact.headers["location"]) == (303, "/keys/lock/deploy:web")
    assert "none contains it" in open_service.get("/search?q=%00odd", headers=PAGE).text
