"""The pages of the task-trigger API without a browser: what they show to whom, and what may be done on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from urllib.parse import quote

import httpx2
import pytest

from tests.apps.alerts.test_pages import Elements, csrf_of
from tests.apps.operator import BECAUSE, operating
from tests.apps.triggers.test_work_http import Desk
from tests.service.serving import TOKENS, until

NASTY = "<script>alert('x')<script>&\"ü"


@pytest.fixture(scope="module")
def desk(data_url: str) -> Iterator[Desk]:
    with operating("triggers", {"gate": "off"}, data_url=data_url) as it:
        yield Desk(it.service)


@pytest.fixture(scope="module")
def nasty(desk: Desk) -> str:
    """A run of somebody who means no good, with something of every kind to show."""
    options = {"tags": [NASTY], "metadata": {NASTY: NASTY}, "idempotencyKey": NASTY, "maxAttempts": 2}
    id = desk.trigger(quote(NASTY, safe=""), {NASTY: NASTY}, **options)
    desk.settle(desk.take(NASTY, worker=NASTY), "fail", error=NASTY, delay=0)
    desk.settle(desk.take(NASTY, worker=NASTY), "fail", error=NASTY)
    return id


@contextmanager
def logged_in(desk: Desk, scope: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=desk.service.address, timeout=20.0) as client:
        fields = {"csrf": csrf_of(client.get("/login").text), "token": TOKENS[scope], "next": "/triggers"}
        assert client.post("/login", data=fields).status_code == 303
        yield client


def test_a_page_shows_what_callers_wrote_as_text(desk: Desk, nasty: str) -> None:
    for path in ("/triggers", f"/triggers?tag={quote(NASTY)}&state=FAILED", f"/triggers/run?id={nasty}"):
        page = desk.get(path)
        assert page.status_code == 200, page.text
        assert "<script>alert" not in page.text
        found = Elements(page.text).found
        assert all(attrs.get("src") for tag, attrs in found if tag == "script")
        assert not [attrs for _, attrs in found if any(name == "style" or name.startswith("on") for name in attrs)]
        assert ("a", {"href": "/triggers", "aria-current": "page"}) in found
        assert NASTY in unescape(page.text)
        assert desk.service.get(path).status_code == 303  # to the login


def test_the_overview_lists_runs_by_filters_page_by_page(desk: Desk, nasty: str) -> None:
    ids = [desk.trigger("paged", tags=["odd" if number % 2 else "even"]) for number in range(5)]
    first = desk.ask("/triggers", format="json", task="paged", limit=3)
    rest = desk.ask("/triggers", format="json", task="paged", limit=3, after=first["next"])
    assert [row["id"] for row in (*first["runs"], *rest["runs"])] == ids[::-1]
    assert rest["next"] is None
    odd = desk.ask("/api/triggers/runs", task="paged", tag="odd")
    assert [row["id"] for row in odd["runs"]] == [ids[3], ids[1]]
    assert [row["id"] for row in desk.ask("/api/triggers/runs", key=NASTY)["runs"]] == [nasty]
    assert [row["id"] for row in desk.ask("/api/triggers/runs", state="FAILED")["runs"]] == [nasty]
    assert desk.ask("/api/triggers/runs", since=4e9)["runs"] == []
    assert desk.get("/api/triggers/runs", state="BROKEN").status_code == 400
    assert desk.get("/triggers", after="nowhere").status_code == 400


def test_the_overview_shows_the_gate_the_buffer_and_counts(desk: Desk, nasty: str) -> None:
    desk.trigger("shown")
    desk.take("shown")
    view = desk.ask("/triggers", format="json")["gates"][0]
    assert (view["environment"], view["gate"], view["tripped"], view["buffered"]) == ("default", "off", False, 0)
    (state,) = desk.ask("/api/triggers/gate")["gates"]
    assert state["executing"] >= 1
    assert state["failed"] >= 1
    assert "more than 100 triggers" in desk.get("/triggers").text


def test_the_page_of_a_run_shows_its_state_timeline_payload_and_attempts(desk: Desk, nasty: str) -> None:
    view = desk.ask("/triggers/run", format="json", id=nasty)
    assert (view["run"]["state"], view["payload"], view["metadata"]) == ("FAILED", {NASTY: NASTY}, {NASTY: NASTY})
    assert [each["outcome"] for each in view["attempts"]] == ["retried", "failed"]
    page = unescape(desk.get("/triggers/run", id=nasty).text)
    for word in ("Timeline", "Attempts", "Payload", "failed for good", "taken by a worker", "2 <span"):
        assert word in page
    assert desk.get("/triggers/run", id="run_" + "a" * 39).status_code == 404


def test_a_person_cancels_a_run_on_its_page(desk: Desk) -> None:
    id = desk.trigger("to-cancel")
    with logged_in(desk, "write") as writer:
        assert f"/triggers/cancel?id={id}" in writer.get(f"/triggers/run?id={id}").text
        asked = writer.get(f"/triggers/cancel?id={id}")
        assert f"Cancel the run {id}?" in asked.text
        fields = {"csrf": csrf_of(asked.text), "id": id}
        done = writer.post("/triggers/cancel", data=fields)
        assert done.headers["location"] == f"/triggers/run?id={id}&note=ended"
        assert "moved-on" in writer.post("/triggers/cancel", data=fields).headers["location"]
        assert "/triggers/cancel?" not in writer.get(f"/triggers/run?id={id}").text
        assert writer.get(f"/triggers/cancel?id={id}").status_code == 404
    assert desk.run(id)["run"]["state"] == "CANCELED"


def test_a_person_replays_a_run_once_however_often_the_form_is_sent(desk: Desk, nasty: str) -> None:
    with logged_in(desk, "write") as writer:
        asked = writer.get(f"/triggers/replay?id={nasty}")
        key = re.search(r'name="new_key"[^>]*value="([^"]+)"', asked.text)
        assert key is not None
        assert key[1].startswith(f"replay:{nasty}:")
        fields = {"csrf": csrf_of(asked.text), "id": nasty, "new_key": key[1]}
        for _ in range(2):
            assert writer.post("/triggers/replay", data=fields).status_code == 303
    (new,) = desk.ask("/api/triggers/runs", key=key[1])["runs"]
    assert desk.run(new["id"])["replay_of"] == nasty


def test_an_admin_resets_a_key_and_the_next_trigger_makes_a_new_run(desk: Desk) -> None:
    id = desk.trigger("keyed", idempotencyKey="k")
    assert desk.trigger("keyed", idempotencyKey="k") == id
    body = {"task": "keyed", "user_key": "k", "reason": BECAUSE}
    assert desk.post("/api/triggers/reset", body, "write").status_code == 403
    assert desk.post("/api/triggers/reset", body).json() == {"reset": True}
    assert desk.post("/api/triggers/reset", body).json() == {"reset": False}
    assert desk.trigger("keyed", idempotencyKey="k") != id


def test_buttons_are_only_for_those_who_may(desk: Desk) -> None:
    id = desk.trigger("buttons")
    with logged_in(desk, "read") as reader:
        page = reader.get(f"/triggers/run?id={id}").text
        assert "/triggers/cancel" not in page
        assert "/triggers/replay" not in page
        assert "/triggers/reset" not in reader.get("/triggers").text
    with logged_in(desk, "write") as writer:
        assert "/triggers/reset" not in writer.get("/triggers").text
    with logged_in(desk, "admin") as admin:
        assert "/triggers/reset" in admin.get("/triggers").text


def test_a_run_whose_worker_died_is_not_shown_as_executing_under_a_lease(desk: Desk) -> None:
    id = desk.trigger("abandoned")
    taken = desk.take("abandoned", lease=1, worker="gone")
    assert taken["id"] == id
    until(lambda: "stopped renewing the lease" in desk.get(f"/triggers/run?id={id}").text)
    assert "leased for" not in desk.get(f"/triggers/run?id={id}").text
    page = desk.get("/triggers").text
    assert "1 run whose worker has stopped" in " ".join(page.split())
    assert [gate["abandoned"] for gate in desk.ask("/api/triggers/gate")["gates"]] == [1]
    desk.settle(desk.take("abandoned"), "complete")
    assert [gate["abandoned"] for gate in desk.ask("/api/triggers/gate")["gates"]] == [0]
