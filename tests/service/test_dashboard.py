"""The dashboard without a browser: what it shows, in which form, to whom; and what may be done with it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import pytest

from solely import AsyncClient, AsyncLease, Tick
from solely.errors import StoreUnavailable
from solely.events import Acquired, Event
from solely.model import Entry
from solely.service.charts.lines import Chart, Line, quantile
from solely.service.dashboard.history import GRANTED, MetricsHistory
from solely.service.dashboard.login import local
from solely.service.dashboard.rendering import FILES
from solely.service.dashboard.state import AppPage, HoldDurations
from solely.service.feed import word
from solely.service.figures import Figure
from solely.service.metrics import Metrics
from solely.stores.memory import Memory
from tests.service.serving import LINES, TOKENS, Process, Running, bearer, running, until

VIEWS = (
    "/", "/locks", "/claims", "/reservations", "/dedup", "/dedup?key=some-key", "/dead-letters",
    "/dead-letters?group=parked", "/watermarks", "/limits", "/queues", "/queues?queue=some-queue", "/schedules",
    "/queues/item?queue=some-queue&id=waiting", "/audit", "/applications", "/events", "/health",
)  # fmt: skip
FILTERED = ("/triggers", "/repos/jobs", "/alerts/history")  # pages of applications that have filters
NASTY = "<script>alert('x')</script>&\"/ü"


@pytest.fixture(scope="module")
def filled() -> Iterator[Running]:
    """A service with something of every kind in it, and a token of each scope."""
    with running(tokens=LINES) as it:
        it.run(fill(it.service.once))
        yield it


async def _nothing(tick: Tick[AsyncLease]) -> None: ...


async def fill(once: AsyncClient) -> None:
    await once.lock("some-key", ttl=3_600, purpose="deploy")
    await once.lock(NASTY, ttl=3_600, purpose=NASTY)
    await once.first("some-key", ttl=600)
    claim = await once.claim("some-key", ttl=3_600)
    await claim.publish({"charge": NASTY})
    await once.claim("running", ttl=3_600, wait=0)
    async with await once.reserve("some-key", quiet=600):
        pass
    await once.watermark("some-key").advance(41)
    await once.every("some-key", "0 3 * * *").run_due(_nothing)
    await once.every(NASTY, 60.0).run_due(_nothing)
    for _ in range(2):
        await once.limit(NASTY, limit=1, per=600)
    queue = once.queue("some-queue")
    for id in ("waiting", "taken", NASTY):
        await queue.push(id, {"order": NASTY})
    await queue.push("delayed", b"12345", delay=600)
    assert await queue.take(ttl=600, id="taken")
    await once.dead_letters("parked").push({"order": NASTY}, error=NASTY, key="some-key")


def get(it: Running, path: str, scope: str = "admin", **headers: str) -> httpx2.Response:
    return it.get(path, headers={**bearer(TOKENS[scope]), **headers})


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


# -- every view


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_a_page_that_needs_no_script_of_its_own(filled: Running, path: str) -> None:
    page = get(filled, path)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    found = Elements(page.text).found
    assert [attrs.get("src") is not None for tag, attrs in found if tag == "script"].count(False) == 0
    assert not [attrs for _, attrs in found if any(name == "style" or name.startswith("on") for name in attrs)]
    assert {"header", "nav", "main", "h1"} <= {tag for tag, _ in found}


@pytest.mark.parametrize("path", [*VIEWS, *FILTERED])
def test_each_choice_of_a_filter_is_there_once(filled: Running, path: str) -> None:
    choices: list[list[str]] = [[]]
    for tag, attributes in Elements(get(filled, path).text).found:
        if tag in ("select", "datalist"):
            choices.append([])
        elif tag == "option":
            choices[-1].append(str(attributes["value"]))
    for each in choices:
        assert len(each) == len(set(each))


def test_the_filter_of_events_has_every_event(filled: Running) -> None:
    names = get(filled, "/events?format=json").json()["names"]
    assert names == sorted({word(each) for each in Event.__subclasses__()})
    assert {"acquired", "renewed", "marked", "failed_open"} <= set(names)


@pytest.mark.parametrize("path", VIEWS)
def test_what_people_wrote_is_shown_as_text(filled: Running, path: str) -> None:
    assert "<script>alert" not in get(filled, path).text


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_also_json(filled: Running, path: str) -> None:
    asked = get(filled, f"{path}{'&' if '?' in path else '?'}format=json")
    accepted = get(filled, path, accept="application/json")
    for answer in (asked, accepted):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
    assert asked.json().keys() == accepted.json().keys()


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_without_a_token_leads_to_the_login_and_back(filled: Running, path: str) -> None:
    answer = filled.get(path)
    assert answer.status_code == 303
    assert parse_qs(urlsplit(answer.headers["location"]).query)["next"] == [path]


def test_every_link_and_file_of_a_page_leads_somewhere(filled: Running) -> None:
    targets = {
        attrs.get("href") or attrs.get("src") or ""
        for path in VIEWS
        for tag, attrs in Elements(get(filled, path).text).found
        if tag in ("a", "link", "script")
    }
    for target in targets:
        assert target.startswith("#") or get(filled, target).status_code == 200, target


def test_files_are_served_to_anybody_and_nothing_else_is(filled: Running) -> None:
    assert {"app.css", "app.js", "theme.js", "uPlot.iife.min.js", "uPlot.LICENSE.txt"} <= FILES.keys()
    for name in FILES:
        assert filled.get(f"/static/{name}").status_code == 200
    for name in ("nothing.css", "..%2Fpages.py", "%2e%2e"):
        assert filled.get(f"/static/{name}").status_code == 404


def test_what_is_shown_of_each_kind(filled: Running) -> None:
    lock = get(filled, "/locks?format=json&prefix=some").json()["rows"][0]
    assert (lock["key"], lock["state"], lock["purpose"], lock["waiters"]) == ("some-key", "held", "deploy", 0)
    assert 0 < lock["left"] <= lock["full"] < 3_602
    claims = {row["key"]: row for row in get(filled, "/claims?format=json").json()["rows"]}
    assert json.loads(claims["some-key"]["result"]) == {"charge": NASTY}
    assert claims["running"]["result"] is None
    (reservation,) = get(filled, "/reservations?format=json").json()["rows"]
    assert reservation["state"] == "done"
    (mark,) = get(filled, "/dedup?format=json").json()["marks"]["rows"]
    assert mark["key"] == "some-key"
    (watermark,) = get(filled, "/watermarks?format=json").json()["watermarks"]
    assert (watermark["value"], watermark["lag"]) == (41, None)
    (limit,) = get(filled, "/limits?format=json").json()["limits"]
    assert (limit["key"], limit["limit"], limit["per"], limit["hits"]) == (NASTY, 1, 600, 1)
    assert 0 < limit["left"] <= 600
    (queue,) = get(filled, "/queues?format=json&prefix=some").json()["queues"]
    assert (queue["items"], queue["waiting"], queue["delayed"], queue["taken"]) == (4, 2, 1, 1)
    items = {each["id"]: each for each in get(filled, "/queues?format=json&queue=some-queue").json()["items"]}
    assert {id: each["state"] for id, each in items.items()} == {
        "waiting": "free", NASTY: "free", "taken": "held", "delayed": "closed",
    }  # fmt: skip
    assert json.loads(items["waiting"]["preview"]) == {"order": NASTY}
    assert items["delayed"]["preview"] == "5 bytes"
    assert (items["taken"]["attempts"], 0 < items["taken"]["left"] <= 600) == (1, True)
    (group,) = get(filled, "/dead-letters?format=json").json()["groups"]
    assert (group["group"], group["letters"], group["replayable"]) == ("parked", 1, False)


def test_dedup_says_why_a_key_is_suppressed(filled: Running) -> None:
    told = get(filled, "/dedup?key=some-key&format=json").json()
    why = {side["kind"]: side["why"] for side in told["explained"]["sides"]}
    assert "seen" in why["mark"]
    assert "quiet" in why["reservation"]
    assert "holds it" in why["lock"]
    assert {event["event"] for event in told["events"]} >= {"acquired", "marked", "published", "recorded"}
    assert "reserve() is suppressed (quiet)" in get(filled, "/dedup?key=some-key").text


def test_the_overview_counts_what_happened(filled: Running) -> None:
    told = get(filled, "/?format=json").json()
    assert told["health"]["level"] == "ok"
    assert told["rates"]["granted"] > 0
    assert told["op"]["p99"] >= told["op"]["p50"] > 0
    assert (told["dead_letters"], told["oldest"]["group"]) == (1, "parked")
    assert any("dead letter in parked" in each["text"] for each in told["attention"])
    assert {"acquired", "dead_lettered"} <= {event["event"] for event in told["events"]}


def test_pages_of_applications_have_a_place(filled: Running) -> None:
    filled.service.dashboard.pages.append(AppPage("Probes", "/probes", "one at a time"))
    try:
        assert '<a href="/probes">Probes</a>' in get(filled, "/locks").text
        assert get(filled, "/applications?format=json").json()["pages"][-1] == ["Probes", "/probes", "one at a time"]
    finally:
        filled.service.dashboard.pages.pop()


def test_unknown_fields_of_a_link_are_refused(filled: Running) -> None:
    assert get(filled, "/locks?prefx=a").status_code == 400


# -- who may do what


def controls(page: str) -> list[str]:
    """What on this page can change something: forms that post, and links to where one is asked for a reason."""
    found = Elements(page).found
    posts = [str(attrs["action"]) for tag, attrs in found if tag == "form" and attrs.get("method") == "post"]
    return [action for action in posts if action != "/logout"] + [
        str(attrs["href"]) for tag, attrs in found if tag == "a" and "data-dialog" in attrs
    ]


@pytest.fixture
def replayable(filled: Running) -> Iterator[None]:
    filled.service.dashboard.replays["parked"] = lambda payload: None
    filled.on_loop(filled.service.dashboard.views.clear)
    yield
    filled.service.dashboard.replays.clear()


@pytest.mark.usefixtures("replayable")
@pytest.mark.parametrize("path", VIEWS)
def test_a_reader_sees_nothing_that_changes_anything(filled: Running, path: str) -> None:
    assert controls(get(filled, path, "read").text) == []


@pytest.mark.usefixtures("replayable")
def test_a_writer_may_replay_and_an_admin_may_intervene(filled: Running) -> None:
    letters = "/dead-letters?group=parked"
    offered = {each.partition("?")[0] for each in controls(get(filled, letters, "write").text)}
    assert offered == {"/dead-letters/replay"}
    assert controls(get(filled, "/locks", "write").text) == []
    assert any(each.startswith("/dead-letters/purge") for each in controls(get(filled, letters).text))
    assert any(each.startswith("/locks/release") for each in controls(get(filled, "/locks").text))


ACTS: dict[str, dict[str, Any]] = {
    "/locks/release": {"key": "some-key", "fence": 1, "reason": "a test"},
    "/claims/expire": {"key": "some-key", "fence": 1, "reason": "a test"},
    "/reservations/expire": {"key": "some-key", "fence": 1, "reason": "a test"},
    "/dedup/forget": {"key": "some-key", "fence": 1, "reason": "a test"},
    "/watermarks/rewind": {"key": "some-key", "to": "1", "reason": "a test"},
    "/schedules/forget": {"key": "some-key", "reason": "a test"},
    "/dead-letters/purge": {"group": "parked", "all": "true", "reason": "a test"},
    "/dead-letters/replay": {"group": "parked", "all": "true"},
}


def send(it: Running, path: str, fields: dict[str, Any], **options: Any) -> httpx2.Response:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    headers = {**kind, **options.pop("headers", {})}
    return it.http.post(path, content=urlencode(fields), headers=headers, **options)


@pytest.mark.parametrize("path", ACTS)
def test_an_act_needs_its_scope_and_the_token_of_the_form(filled: Running, path: str) -> None:
    fields = ACTS[path]
    assert send(filled, path, fields).status_code == 401
    assert send(filled, path, fields, headers=bearer(TOKENS["read"])).status_code == 403
    assert send(filled, path, fields, headers=bearer(TOKENS["admin"])).status_code == 403  # without csrf
    assert send(filled, path, fields | {"csrf": "0" * 64}, headers=bearer(TOKENS["admin"])).status_code == 403


# -- login


@contextmanager
def logged_in(it: Running, scope: str) -> Iterator[tuple[httpx2.Client, str]]:
    """A client that has logged in, and the token that its forms must have."""
    with httpx2.Client(base_url=it.address, timeout=20.0) as client:
        form = client.get("/login")
        answer = client.post("/login", data={"csrf": csrf_of(form.text), "token": TOKENS[scope], "next": "/locks"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/locks")
        yield client, csrf_of(client.get("/locks").text)


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def test_login_opens_a_session_that_scripts_cannot_read(filled: Running) -> None:
    form = filled.get("/login?next=/locks")
    fields = {"csrf": csrf_of(form.text), "token": TOKENS["admin"], "next": "/locks"}
    plain = filled.http.post("/login", data=fields)
    proxied = filled.http.post("/login", data=fields, headers={"origin": filled.address.replace("http:", "https:")})
    for answer, secure in ((plain, False), (proxied, True)):
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert ("secure" in cookie) is secure
        assert TOKENS["admin"] not in cookie
    filled.http.cookies.clear()


def test_a_wrong_token_is_told_so_and_opens_nothing(filled: Running) -> None:
    form = filled.get("/login?next=/audit")
    answer = filled.http.post("/login", data={"csrf": csrf_of(form.text), "token": "nobody's", "next": "/audit"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert 'name="next" value="/audit"' in answer.text


def test_logout_ends_the_session_in_this_browser(filled: Running) -> None:
    with logged_in(filled, "read") as (client, csrf):
        assert client.get("/locks").status_code == 200
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        assert client.get("/locks").status_code == 303


@pytest.mark.parametrize(
    "elsewhere",
    ["//evil.example", "/\\evil.example", "///evil.example", "https://evil.example", "evil", "/\t/evil.example", ""],
)
def test_login_leads_to_pages_of_ours_only(elsewhere: str) -> None:
    assert local(elsewhere) == "/"
    assert local("/locks?prefix=a//b") == "/locks?prefix=a//b"


def test_without_tokens_there_is_nothing_to_log_in_to(open_service: Running) -> None:
    assert open_service.get("/login").headers["location"] == "/"
    assert open_service.get("/locks").status_code == 200


# -- acting


@pytest.fixture
def admin(filled: Running) -> Iterator[tuple[httpx2.Client, str]]:
    with logged_in(filled, "admin") as session:
        yield session


Admin = tuple[httpx2.Client, str]


def test_force_release_needs_a_reason_is_audited_and_tells_the_holder(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    held = filled.post("/v1/locks/acquire", {"key": "stuck", "ttl": 60}, headers=bearer(TOKENS["write"])).json()
    asking = client.get(f"/locks/release?key=stuck&fence={held['fence']}")
    assert "notices at its next renewal" in asking.text
    fields = {"csrf": csrf_of(asking.text), "key": "stuck", "fence": held["fence"]}
    assert client.post("/locks/release", data=fields | {"reason": " "}).status_code == 400
    answer = client.post("/locks/release", data=fields | {"reason": "its host burned down"})
    assert answer.headers["location"] == "/locks?note=ended"
    assert "Done. This is recorded in the audit log." in client.get("/locks?note=ended").text
    assert "stuck" not in [row["key"] for row in client.get("/locks?format=json").json()["rows"]]
    told = filled.post("/v1/locks/renew", {"token": held["token"]}, headers=bearer(TOKENS["write"]))
    assert told.status_code == 410
    record = client.get("/audit?format=json").json()["records"][0]
    assert (record["who"], record["action"], record["key"], record["reason"]) == (
        "adminer", "locks.release", "stuck", "its host burned down",
    )  # fmt: skip
    assert csrf == fields["csrf"]


def test_what_moved_on_is_left_alone(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    held = filled.post("/v1/locks/acquire", {"key": "moved", "ttl": 60}, headers=bearer(TOKENS["write"])).json()
    fields = {"csrf": csrf, "key": "moved", "fence": held["fence"] - 1, "reason": "an old page"}
    assert client.post("/locks/release", data=fields).headers["location"] == "/locks?note=moved-on"
    assert "moved" in [row["key"] for row in client.get("/locks?format=json").json()["rows"]]
    assert client.get(f"/locks/release?key=moved&fence={held['fence'] - 1}").status_code == 404


@pytest.mark.parametrize(
    ("path", "place"),
    [("/claims/expire", "/claims"), ("/reservations/expire", "/reservations"), ("/dedup/forget", "/dedup")],
)
def test_claims_reservations_and_marks_are_ended_alike(filled: Running, admin: Admin, path: str, place: str) -> None:
    client, csrf = admin
    filled.run(fill_more(filled.service.once, "ended"))

    def listed() -> dict[str, Any]:
        told = client.get(f"{place}?format=json&prefix=ended").json()
        return {row["key"]: row for row in (told.get("marks") or told)["rows"]}

    fields = {"csrf": csrf, "key": "ended", "fence": until(listed)["ended"]["fence"], "reason": "a test"}
    assert client.post(path, data=fields).headers["location"] == f"{place}?note=ended"
    assert listed() == {}


async def fill_more(once: AsyncClient, key: str) -> None:
    await once.first(key, ttl=600)
    claim = await once.claim(key, ttl=60, wait=0)
    if claim.won:
        await claim.publish(1)
    reservation = await once.reserve(key, quiet=600)
    if reservation:
        await reservation.record()


def test_a_watermark_is_rewound(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    filled.run(filled.service.once.watermark("feed").advance(100))
    fields = {"csrf": csrf, "key": "feed", "reason": "lost a day"}
    wrong = client.post("/watermarks/rewind", data=fields | {"to": "yesterday"})
    assert wrong.status_code == 400
    assert "give an integer, or a time" in wrong.text
    assert client.post("/watermarks/rewind", data=fields | {"to": "40"}).status_code == 303
    marks = client.get("/watermarks?format=json&prefix=feed").json()["watermarks"]
    assert [mark["value"] for mark in marks] == [40]


# -- dead letters


async def park(once: AsyncClient, group: str, count: int) -> None:
    for number in range(count):
        error = "Timeout: slow" if number % 2 else "Declined: no"
        await once.dead_letters(group).push({"number": number}, error=error, key=f"{group}-{number}")


def letters(client: httpx2.Client, group: str, **query: str) -> list[str]:
    told = client.get(f"/dead-letters?{urlencode({'group': group, 'format': 'json', **query})}").json()
    return [letter["id"] for letter in told["letters"]]


def test_one_letter_is_looked_at_and_replayed(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    ran: list[Any] = []
    filled.service.dashboard.replays["one"] = ran.append
    filled.run(park(filled.service.once, "one", 2))
    page = client.get("/dead-letters/letter?group=one&id=one-0")
    assert "&#34;number&#34;: 0" in page.text
    assert "Declined: no" in page.text
    answer = client.post("/dead-letters/replay", data={"csrf": csrf, "group": "one", "id": "one-0"})
    assert answer.headers["location"] == "/dead-letters?group=one&note=replayed"
    assert ran == [{"number": 0}]
    assert letters(client, "one") == ["one-1"]
    assert client.get("/dead-letters/letter?group=one&id=one-0").status_code == 404
    again = client.post("/dead-letters/replay", data={"csrf": csrf, "group": "one", "id": "one-0"})
    assert again.headers["location"].endswith("note=gone")


def test_a_letter_that_fails_again_stays(filled: Running, admin: Admin) -> None:
    client, csrf = admin

    async def fail(payload: Any) -> None:
        raise RuntimeError("still broken")

    filled.service.dashboard.replays["failing"] = fail
    filled.run(park(filled.service.once, "failing", 1))
    answer = client.post("/dead-letters/replay", data={"csrf": csrf, "group": "failing", "id": "failing-0"})
    assert answer.headers["location"].endswith("note=failed")
    (letter,) = client.get("/dead-letters?group=failing&format=json").json()["letters"]
    assert (letter["attempts"], letter["last_error"]) == (2, "RuntimeError: still broken")


def test_filtered_letters_and_then_all_are_replayed_with_progress(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    filled.service.dashboard.replays["many"] = lambda payload: payload["number"]
    filled.run(park(filled.service.once, "many", 10))
    assert letters(client, "many", error="Timeout") == [f"many-{number}" for number in range(1, 10, 2)]

    def last_run() -> dict[str, Any] | None:
        runs = client.get("/dead-letters?group=many&format=json").json()["reruns"]
        return runs[0] if runs and runs[0]["over"] else None

    for error, done, left in (("Timeout", 5, 5), ("", 5, 0)):
        chosen = {"error": error} if error else {"all": "true"}
        asking = client.get("/dead-letters/replay", params={"group": "many", **chosen})
        assert f"Replay {done} dead letters of" in asking.text
        answer = client.post("/dead-letters/replay", data={"csrf": csrf, "group": "many", **chosen})
        assert answer.headers["location"].endswith("note=replaying")
        run = until(last_run)
        assert (run["error"], run["done"], run["total"], run["failure"]) == (error, done, done, "")
        assert run["outcomes"] == {"replayed": done}
        assert len(letters(client, "many")) == left
    assert "5 of 5" in client.get("/dead-letters?group=many").text
    records = client.get("/audit?format=json").json()["records"][:2]
    assert [(each["action"], each["reason"], each["outcome"]) for each in records] == [
        ("dead-letters.replay", "replay of all", "done"),
        ("dead-letters.replay", "replay of those with 'Timeout'", "done"),
    ]


def test_letters_whose_code_is_elsewhere_say_so_and_are_not_run(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    filled.run(park(filled.service.once, "elsewhere", 1))
    assert "solely dlq replay elsewhere" in client.get("/dead-letters?group=elsewhere").text
    answer = client.post("/dead-letters/replay", data={"csrf": csrf, "group": "elsewhere", "all": "true"})
    assert answer.status_code == 404
    assert "This service cannot run the letters" in unescape(answer.text)
    assert letters(client, "elsewhere") == ["elsewhere-0"]


def test_letters_are_purged_one_filtered_and_all(filled: Running, admin: Admin) -> None:
    client, csrf = admin
    filled.run(park(filled.service.once, "purged", 6))
    fields = {"csrf": csrf, "group": "purged", "reason": "test data"}
    refused = client.post("/dead-letters/purge", data=fields)  # which of them is not said
    assert (refused.status_code, "Give one of id, error and all" in refused.text) == (400, True)
    for chosen, count, left in (({"id": "purged-0"}, 1, 5), ({"error": "Timeout"}, 3, 2), ({"all": "true"}, 2, 0)):
        asking = client.get(f"/dead-letters/purge?{urlencode({'group': 'purged', **chosen})}")
        assert f"Purge {count} dead letter" in asking.text
        assert client.post("/dead-letters/purge", data=fields | chosen).status_code == 303
        assert len(letters(client, "purged")) == left


# -- live, large, away


def regions(lines: Iterator[str]) -> Iterator[str]:
    event = ""
    for line in lines:
        if line.startswith("event: "):
            event = line[7:]
        elif line.startswith("data: ") and event == "region":
            yield line


async def hold(once: AsyncClient, key: str) -> None:
    await once.lock(key, ttl=60)


def test_a_live_view_tells_of_a_new_lock_by_itself(open_service: Running) -> None:
    with open_service.http.stream("GET", "/locks?format=live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        told = regions(stream.iter_lines())
        assert "No lock" in next(told)
        open_service.run(hold(open_service.service.once, "seen-live"))
        assert "seen-live" in next(told)


def test_a_view_that_does_not_change_is_not_sent_again(open_service: Running) -> None:
    with open_service.http.stream("GET", "/audit?format=live") as stream:
        told = regions(stream.iter_lines())
        assert "No admin action has been recorded" in next(told)
        time.sleep(2.0)  # four views
        open_service.run(open_service.service.audit.record("me", "test", "key", "the reason"))
        assert "the reason" in next(told)


def test_viewers_share_what_is_looked_at(open_service: Running) -> None:
    views = open_service.service.dashboard.views
    count: list[int] = []

    async def look() -> int:
        count.append(1)
        return len(count)

    async def twice() -> list[int]:
        return [await views.share("it", 60, look) for _ in range(2)]

    assert open_service.run(twice()) == [1, 1]
    views.clear()
    assert open_service.run(twice()) == [2, 2]


def test_a_store_that_is_away_is_told_as_a_page(open_service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> Any:
        raise StoreUnavailable("no answer from redis://secret-host")

    monkeypatch.setattr(open_service.service.store._store, "scan", away)  # type: ignore[attr-defined]
    monkeypatch.setattr(open_service.service.store._store, "check", away)  # type: ignore[attr-defined]
    open_service.service.dashboard.views.clear()
    page = open_service.get("/claims")
    assert page.status_code == 503
    assert page.headers["retry-after"] == "1"
    assert "The store is unavailable" in page.text
    assert "secret-host" not in page.text
    overview = open_service.get("/")
    assert overview.status_code == 200
    assert "The store is unavailable" in overview.text
    with open_service.http.stream("GET", "/claims?format=live") as stream:
        assert next(stream.iter_lines()) == "event: away"
    open_service.service.dashboard.views.clear()


def test_a_hundred_thousand_entries_are_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page reads about as many entries as it shows."""
    read, scan = list[int](), Memory.scan

    def counted(memory: Memory, prefix: str, after: str, limit: int) -> list[Entry]:
        found = scan(memory, prefix, after, limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(Memory, "scan", counted)
    with running(url="memory://?max_size=200000") as it:

        async def mark() -> None:
            for start in range(0, 100_000, 10_000):
                await it.service.once.first_many([f"m{number:06}" for number in range(start, start + 10_000)], ttl=3600)

        it.run(mark())
        read.clear()
        first = it.get("/dedup?format=json").json()["marks"]
        assert 25 <= sum(read) <= 250
        assert [row["key"] for row in first["rows"]] == [f"m{number:06}" for number in range(25)]
        second = it.get(f"/dedup?format=json&after={first['next']}").json()["marks"]
        assert second["rows"][0]["key"] == "m000025"
        last = it.get("/dedup?format=json&after=m099989").json()["marks"]
        assert (len(last["rows"]), last["next"]) == (10, None)
        assert 'rel="next"' in it.get("/dedup").text
        assert 'rel="next"' not in it.get("/dedup?after=m099989").text


def test_the_demo_brings_every_page_to_life(tmp_path: Path) -> None:
    with Process(tmp_path, "--demo") as demo, httpx2.Client(base_url=demo.address(), timeout=20.0) as http:
        for path, what in (
            ("/locks", "rows"), ("/claims", "rows"), ("/reservations", "rows"), ("/watermarks", "watermarks"),
            ("/queues", "queues"), ("/limits", "limits"), ("/", "events"),
        ):  # fmt: skip
            assert until(lambda path=path, what=what: http.get(f"{path}?format=json").json()[what], 20.0)  # type: ignore[misc]
        assert until(lambda: http.get("/?format=json").json()["rates"]["spared"], 20.0) > 0


# -- figures


def test_a_quantile_is_estimated_as_prometheus_does() -> None:
    figure = Figure("test_seconds", "", (), (1.0, 2.0, 4.0))
    assert quantile(figure, [0, 0, 0, 0], 0.5) is None
    assert quantile(figure, [10, 0, 0, 0], 0.5) == 0.5
    assert quantile(figure, [0, 10, 10, 0], 0.75) == 3.0
    assert quantile(figure, [0, 0, 0, 5], 0.5) == 4.0


def test_rates_count_what_came_in_between_and_not_what_was_before() -> None:
    figures = Metrics()
    figures(Acquired("lock/a", 1, 0.0))
    line = Line("granted", "granted", GRANTED)
    history = MetricsHistory(figures, lambda: [line])
    history.sample()
    for _ in range(3):
        figures(Acquired("lock/a", 1, 0.0))
    assert history.count(GRANTED) == 3
    assert history.rate(GRANTED) > 0
    history.sample()
    drawn = history.chart(Chart("rates", "Rates", (line,)))
    assert [value and value > 0 for value in drawn.lines["granted"]] == [True]


def test_the_bar_of_a_hold_is_full_at_the_most_that_was_seen() -> None:
    durations = HoldDurations()
    assert durations.full("lock/young", 1, 20.0, 10.5) == 30.0  # never renewed, it seems: what is left and its age
    assert durations.full("lock/old", 1, 20.0, 3600.0) == 20.0
    assert durations.full("lock/old", 1, 15.0, 3605.0) == 20.0  # runs down
    assert durations.full("lock/old", 1, 29.0, 3606.0) == 29.0  # renewed
    assert durations.full("lock/old", 1, 25.0, 3610.0) == 29.0
    assert durations.full("lock/old", 2, 10.0, None) == 10.0  # another holder


def test_a_list_that_is_looked_at_again_and_again_is_watched() -> None:
    durations = HoldDurations()
    assert [durations.watched("locks"), durations.watched("locks"), durations.watched("claims")] == [False, True, False]
