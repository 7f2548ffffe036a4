"""The pages of the alert receiver without a browser: what they show to whom, and what may be done on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from urllib.parse import quote

import httpx2
import pytest

from tests.apps.alerts.operator import BECAUSE, BROKEN, LOG, Operator, operating
from tests.service.serving import TOKENS, until

NASTY = "<script>alert('x')</script>&\"/ü"
VIEWS = (
    "/alerts", "/alerts/history", "/alerts/history?severity=critical", "/alerts/why", "/alerts/why?fingerprint=never",
    f"/alerts/why?fingerprint={quote(NASTY)}",
)  # fmt: skip


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    """A service that has something of every kind to show, written by somebody who means no good."""
    with operating([LOG, BROKEN]) as it:
        labels = {"to": "broken", NASTY: NASTY}
        it.send(NASTY, name=NASTY, source=NASTY, labels=labels, annotations={NASTY: NASTY})
        it.send(NASTY, name=NASTY)
        it.send(NASTY, "warning", name=NASTY)
        it.send("other")
        it.post("/api/alerts/silences", {"matchers": [f"name={NASTY}"], "lasts": 600.0, "reason": NASTY})
        it.send(NASTY, name=NASTY)
        it.history(3)
        yield it


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@contextmanager
def logged_in(desk: Operator, scope: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=desk.service.address, timeout=20.0) as client:
        fields = {"csrf": csrf_of(client.get("/login").text), "token": TOKENS[scope], "next": "/alerts"}
        assert client.post("/login", data=fields).status_code == 303
        yield client


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_a_page_that_shows_what_people_wrote_as_text(desk: Operator, path: str) -> None:
    page = desk.service.get(path, headers={"authorization": f"Bearer {TOKENS['admin']}"})
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "<script>alert" not in page.text
    found = Elements(page.text).found
    assert all(attrs.get("src") for tag, attrs in found if tag == "script")
    assert not [attrs for _, attrs in found if any(name == "style" or name.startswith("on") for name in attrs)]
    assert ("a", {"href": "/alerts", "aria-current": "page"}) in found


@pytest.mark.parametrize("path", VIEWS)
def test_a_view_is_also_json_and_needs_a_token(desk: Operator, path: str) -> None:
    joined = f"{path}{'&' if '?' in path else '?'}format=json"
    answer = desk.service.get(joined, headers={"authorization": f"Bearer {TOKENS['read']}"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert desk.service.get(path).status_code == 303  # to the login


def test_the_overview_shows_what_is_going_on(desk: Operator) -> None:
    view = desk.ask("/alerts", format="json")
    assert {(each["fingerprint"], each["severity"]) for each in view["windows"]} == {
        (NASTY, "critical"), (NASTY, "warning"), ("other", "critical"),
    }  # fmt: skip
    assert all(each["left"] <= each["full"] for each in view["windows"])
    assert [each["reason"] for each in view["silences"]] == [NASTY]
    assert {each["name"] for each in view["publishers"]} == {"log", "broken"}
    (broken,) = [each for each in view["publishers"] if each["name"] == "broken"]
    assert broken["failures"] >= 1
    assert len(view["recent"]) == 3
    assert view["figures"]["notified"] >= 3


def test_what_fires_is_the_first_thing_on_the_page(desk: Operator) -> None:
    view = desk.ask("/alerts", format="json")
    rows = {each["alert"]["fingerprint"]: each for each in view["firing"]}
    assert set(rows) == {NASTY, "other"}
    assert rows[NASTY]["silenced"]["made_by"] == "adminer"
    assert rows["other"]["silenced"] is None
    with logged_in(desk, "admin") as admin:
        page = admin.get("/alerts").text
    assert page.index("Firing now") < page.index("Silences") < page.index("in which repeats of an alert are suppressed")
    firing = page[page.index('id="firing"') : page.index("</section>")]
    assert "badge bad" in firing  # a critical alert
    assert "badge ok" not in firing
    assert "badge done" not in firing
    assert "silenced" in firing
    assert "by adminer until" in firing


def test_what_does_not_fire_cannot_be_acknowledged(desk: Operator) -> None:
    with logged_in(desk, "write") as writer:
        assert "/alerts/acknowledge" in writer.get("/alerts/why", params={"fingerprint": "other"}).text
        assert "/alerts/acknowledge" not in writer.get("/alerts/why", params={"fingerprint": "never"}).text
        assert writer.get("/alerts/acknowledge", params={"fingerprint": "never"}).status_code == 404


def test_a_silence_begins_with_the_matchers_of_the_alert_and_what_they_match(desk: Operator) -> None:
    labels = {"host": "web-1", "name": "a label", "severity": "critical", "a b": "no matcher", "long": "x" * 300}
    desk.send("like-this", name='CPU "high"\u2028', labels=labels)
    desk.send("like-that", name="CPU low", labels=labels)
    with logged_in(desk, "admin") as admin:
        address = until(lambda: re.search('id="silence:like-this" href="([^"]+)"', admin.get("/alerts").text))
        form = unescape(admin.get(unescape(address[1])).text)
    lines = ['severity="critical"', 'source="db-1"', 'host="web-1"', 'labels.name="a label"']
    assert "\n".join(lines) + "</textarea>" in form
    assert re.search(r"<dt>Matches now\s*<dd>2: CPU", form)
    for fingerprint in ("like-this", "like-that"):
        desk.send(fingerprint, status="resolved")


def test_buttons_are_only_for_those_who_may(desk: Operator) -> None:
    for path in ("/alerts", f"/alerts/why?fingerprint={quote(NASTY)}"):
        with logged_in(desk, "admin") as admin:
            assert "/alerts/expire?" in admin.get(path).text
        with logged_in(desk, "write") as writer:
            page = writer.get(path).text
            assert "/alerts/expire" not in page
            assert "/alerts/silences" not in page
    with logged_in(desk, "write") as writer:
        csrf = csrf_of(writer.get("/alerts").text)
        fields = {"csrf": csrf, "matchers": "severity=x", "lasts": "1h", "reason": BECAUSE}
        assert writer.post("/alerts/silences", data=fields).status_code == 403


def test_an_admin_ends_a_window_on_the_page(desk: Operator) -> None:
    desk.send("to-end")
    desk.send("to-end", "warning")
    with logged_in(desk, "admin") as admin:
        asked = admin.get("/alerts/expire", params={"fingerprint": "to-end", "severity": "critical"})
        assert "End the window of" in asked.text
        fields = {"csrf": csrf_of(asked.text), "fingerprint": "to-end", "severity": "critical", "reason": BECAUSE}
        assert admin.post("/alerts/expire", data=fields | {"csrf": "0" * 64}).status_code == 403
        done = admin.post("/alerts/expire", data=fields)
        assert done.headers["location"] == "/alerts/why?fingerprint=to-end&note=ended"
        assert [each["severity"] for each in desk.why("to-end")["windows"]] == ["warning"]
        assert "moved-on" in admin.post("/alerts/expire", data=fields).headers["location"]
        desk.send("to-end")
        asked = admin.get("/alerts/clear", params={"fingerprint": "to-end"})
        assert "End 2 windows of" in asked.text
        fields.pop("severity")
        assert admin.post("/alerts/clear", data=fields).status_code == 303
        assert desk.why("to-end")["windows"] == []
        assert admin.get("/alerts/clear", params={"fingerprint": "to-end"}).status_code == 404


def test_an_admin_makes_and_ends_a_silence_on_the_page(desk: Operator) -> None:
    with logged_in(desk, "admin") as admin:
        csrf = csrf_of(admin.get("/alerts").text)
        fields = {"csrf": csrf, "matchers": "\r\nseverity=quiet\r\nname=~On.*\r\n", "lasts": "1h30m", "reason": BECAUSE}
        done = admin.post("/alerts/silences", data=fields)
        assert (done.status_code, done.headers["location"]) == (303, "/alerts?note=ended#silences")
        (made,) = [each for each in desk.ask("/api/alerts/silences")["silences"] if each["reason"] == BECAUSE]
        assert made["matchers"] == ['severity="quiet"', 'name=~"On.*"']
        assert made["ends"] - made["starts"] == pytest.approx(5400, abs=1)
        asked = admin.get("/alerts/silences/end", params={"id": made["id"]})
        assert "End the silence of severity=" in asked.text
        end = {"csrf": csrf, "id": made["id"], "reason": BECAUSE}
        assert admin.post("/alerts/silences/end", data=end).headers["location"] == "/alerts?note=ended#silences"
        assert "moved-on" in admin.post("/alerts/silences/end", data=end).headers["location"]
        assert admin.get("/alerts/silences/end", params={"id": made["id"]}).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lasts": "soon"}, "not a duration"),
        ({"matchers": "name=~["}, "the pattern"),
        ({"lasts": "999d"}, "within 366 days"),
    ],
)
def test_an_invalid_form_is_answered_with_a_page(desk: Operator, wrong: dict[str, str], says: str) -> None:
    with logged_in(desk, "admin") as admin:
        fields = {
            "matchers": "severity=x",
            "lasts": "1h",
            "reason": BECAUSE,
            "csrf": csrf_of(admin.get("/alerts").text),
        }
        refused = admin.post("/alerts/silences", data=fields | wrong)
        assert refused.status_code == 400
        assert says in refused.text
        assert 'id="asked"' in refused.text
        entered = unescape(refused.text)
        for text in (fields | wrong)["matchers"], (fields | wrong)["lasts"], BECAUSE:
            assert text in entered  # nothing that was written is lost


def told(page: str) -> dict[str, str]:
    """By fingerprint, the cell that says which alert fires."""
    section = page.partition('id="firing"')[2].partition("</section>")[0]
    rows = re.findall(r'<tr data-key="(.*?)">\s*<th[^>]*>(.*?)<td', section, re.DOTALL)
    return {unescape(key): " ".join(unescape(re.sub(r"<.*?>", "", cell)).split()) for key, cell in rows}


def test_alerts_of_the_same_name_that_fire_are_told_apart() -> None:
    both = {"team": "platform", "severity": "critical"}
    with operating([LOG]) as it:
        it.send("a", name="CPU high", source="demo", labels={**both, "zone": "b", "host": "web-1"})
        it.send("b", name="CPU high", source="demo", labels={**both, "zone": "b", "host": "web-2"})
        it.send("c", name="CPU high", source="demo", labels={**both, "zone": "c", "host": "web-2"})
        it.send("d", name="Alone", source="demo", labels={**both, "instance": "db-1:9100", "host": "Alone"})
        it.send("e", name="Same", source="repos", labels=both)
        it.send("f", name="Same", source="repos", labels=both)
        it.send("g", name="Same", source="other", labels=both)
        it.send("h", name="Plain", source="demo")
        until(lambda: len(told(it.get("/alerts").text)) == 8)
        assert told(it.get("/alerts").text) == {
            "a": "CPU high host=web-1, zone=b demo",
            "b": "CPU high host=web-2, zone=b demo",
            "c": "CPU high host=web-2, zone=c demo",
            "d": "Alone instance=db-1:9100, team=platform demo",
            "e": "Same repos e",
            "f": "Same repos f",
            "g": "Same other",
            "h": "Plain demo",
        }


def test_alerts_with_many_labels_are_told_apart_all_the_same() -> None:
    with operating([LOG]) as it:
        for number in range(3):
            labels = {f"label_{each}": f"{number if each == 9 else number % 2}" for each in range(10)}
            it.send(f"many-{number}", name="Many", source="demo", labels=labels)
        until(lambda: len(told(it.get("/alerts").text)) == 3)
        cells = told(it.get("/alerts").text)
        assert len(set(cells.values())) == 3
        assert all(len(re.findall("label_", cell)) == 4 for cell in cells.values())
