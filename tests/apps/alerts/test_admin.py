"""The admin API: windows are listed and ended, notifications are found; READ may not change anything."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.apps.alerts.operator import BECAUSE, Operator, operating

CHANGES: dict[str, dict[str, Any]] = {
    "/api/alerts/reservations/expire": {"fingerprint": "scoped", "severity": "critical"},
    "/api/alerts/reservations/clear": {"fingerprint": "scoped"},
    "/api/alerts/silences": {"matchers": ["severity=nobody"], "lasts": 5.0},
    "/api/alerts/silences/edit": {"id": "nothing", "matchers": ["severity=nobody"], "lasts": 5.0},
    "/api/alerts/silences/expire": {"id": "nothing"},
}
LOOKS = ("reservations", "history", "suppressed", "silences", "silences/preview?matcher=a%3Db", "why?fingerprint=x")


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating() as it:
        yield it


def windows(desk: Operator, fingerprint: str) -> list[tuple[str, str]]:
    found = desk.ask("/api/alerts/reservations", fingerprint=fingerprint)["reservations"]
    return [(each["severity"], each["reason"]) for each in found]


@pytest.mark.parametrize("path", CHANGES)
def test_to_change_something_takes_an_admin_and_a_reason(desk: Operator, path: str) -> None:
    body = CHANGES[path]
    assert desk.post(path, body | {"reason": BECAUSE}, "write").status_code == 403
    assert desk.post(path, body | {"reason": BECAUSE}, "read").status_code == 403
    refused = desk.post(path, body)
    assert refused.status_code == 400
    assert "reason" in refused.json()["detail"]


@pytest.mark.parametrize("path", LOOKS)
def test_to_look_takes_a_token(desk: Operator, path: str) -> None:
    assert desk.service.get(f"/api/alerts/{path}").status_code == 401
    assert desk.get(f"/api/alerts/{path}", "read").status_code == 200


def test_windows_are_listed_by_fingerprint_and_severity(desk: Operator) -> None:
    odd = "a/b%2F:c ~ü"
    desk.send(odd)
    desk.send(odd, "warning")
    assert windows(desk, odd) == [("critical", "quiet"), ("warning", "quiet")]
    listed = desk.ask("/api/alerts/reservations")["reservations"]
    (mine,) = [each for each in listed if (each["fingerprint"], each["severity"]) == (odd, "critical")]
    assert mine["status"] == "firing"
    assert 0 < mine["left"] <= 300
    assert abs(mine["last_sent"] - time.time()) < 30
    assert "pid" in mine["who"]


def test_a_page_leads_to_the_next(desk: Operator) -> None:
    for number in range(5):
        desk.send(f"page-{number}")
    seen, after = list[str](), ""
    for _ in range(50):
        page = desk.ask("/api/alerts/reservations", limit=2, after=after)
        seen += [each["key"] for each in page["reservations"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert len(seen) == len(set(seen))
    assert {f"~alerts/firing/page-{number}/critical" for number in range(5)} <= set(seen)


def test_an_expired_window_lets_the_next_alert_through_and_only_that_severity(desk: Operator) -> None:
    wanted = {"fingerprint": "stuck", "severity": "critical", "reason": BECAUSE}
    assert desk.send("stuck", "warning")["outcome"] == "published"
    assert desk.send("stuck")["outcome"] == "published"
    assert desk.post("/api/alerts/reservations/expire", wanted).json() == {"expired": True}
    assert desk.send("stuck")["outcome"] == "published"  # at once: what the worker remembered is forgotten too
    assert desk.send("stuck", "warning")["outcome"] == "suppressed"
    desk.post("/api/alerts/reservations/expire", wanted)
    assert windows(desk, "stuck") == [("warning", "quiet")]
    assert desk.post("/api/alerts/reservations/expire", wanted | {"severity": "none"}).json() == {"expired": False}


def test_clearing_ends_all_windows_of_one_fingerprint(desk: Operator) -> None:
    for fingerprint in ("host", "host-2"):
        for severity in ("critical", "warning"):
            desk.send(fingerprint, severity)
    wanted = {"fingerprint": "host", "reason": BECAUSE}
    assert desk.post("/api/alerts/reservations/clear", wanted).json() == {"cleared": 2}
    assert windows(desk, "host") == []
    assert len(windows(desk, "host-2")) == 2
    assert desk.send("host")["outcome"] == "published"
    assert desk.send("host", status="resolved")["outcome"] == "published"
    assert windows(desk, "host") == [("", "quiet")]  # the resolved notification is sent once
    assert desk.post("/api/alerts/reservations/clear", wanted).json() == {"cleared": 1}
    assert windows(desk, "host") == []


def test_a_fingerprint_too_long_for_a_key_can_be_ended_as_it_is_listed(desk: Operator) -> None:
    long = "ü" * 255
    assert desk.send(long)["outcome"] == "published"
    (name,) = [
        each["fingerprint"]
        for each in desk.ask("/api/alerts/reservations")["reservations"]
        if each["fingerprint"].startswith("~")
    ]
    assert windows(desk, long) == windows(desk, name) == [("critical", "quiet")]
    wanted = {"fingerprint": name, "severity": "critical", "reason": BECAUSE}
    assert desk.post("/api/alerts/reservations/expire", wanted).json() == {"expired": True}
    assert windows(desk, long) == []


def test_what_was_done_is_in_the_audit_log_with_its_reason(desk: Operator) -> None:
    desk.send("audited")
    reason = "so that the log shows it"
    desk.post("/api/alerts/reservations/clear", {"fingerprint": "audited", "reason": reason})
    desk.post("/api/alerts/silences", {"matchers": ["severity=nobody"], "lasts": 5.0, "reason": reason})
    records = desk.ask("/audit", format="json")["records"]
    mine = [(each["who"], each["action"], each["key"]) for each in records if each["reason"] == reason]
    assert mine == [
        ("adminer", "alerts.silences.add", "severity=nobody"),
        ("adminer", "alerts.windows.clear", "audited"),
    ]


def test_the_history_is_filtered_and_paged(desk: Operator) -> None:
    for severity in ("critical", "warning", "info"):
        desk.send("sent", severity, labels={"env": "prod"})
    rows = desk.history(3, fingerprint="sent")
    assert [each["severity"] for each in rows] == ["info", "warning", "critical"]
    assert rows[0]["results"] == {"log": "ok"}
    assert rows[0]["labels"] == {"env": "prod"}
    (one,) = desk.history(1, fingerprint="sent", severity="warning")
    assert one["id"] == rows[1]["id"]
    page = desk.ask("/api/alerts/history", fingerprint="sent", limit=2)
    rest = desk.ask("/api/alerts/history", fingerprint="sent", limit=2, after=page["next"])
    assert [each["id"] for each in (*page["history"], *rest["history"])] == [each["id"] for each in rows]
    assert rest["next"] is None
    assert desk.ask("/api/alerts/history", since=time.time() + 60)["history"] == []
    assert desk.get("/api/alerts/history", after="nowhere").status_code == 400


def test_what_was_suppressed_is_counted_by_reason(desk: Operator) -> None:
    desk.send("noisy")
    for _ in range(4):
        desk.send("noisy")
    desk.send("never-fired", status="resolved")
    desk.why("noisy")  # has the worker write down what it noted
    counted = desk.ask("/api/alerts/suppressed")
    by_reason = {each["reason"]: each["count"] for each in counted["reasons"]}
    assert by_reason["quiet"] >= 4
    assert by_reason["not_firing"] >= 1
    assert "noisy" in {each["fingerprint"] for each in counted["most"]}
    of_one = desk.ask("/api/alerts/suppressed", fingerprint="noisy")
    assert [(each["reason"], each["count"]) for each in of_one["reasons"]] == [("quiet", 4)]
    assert of_one["most"] == []


def test_a_silence_is_made_listed_and_ended(desk: Operator) -> None:
    wanted = {"matchers": ["name=~Maintenance.*", "team!=dba"], "lasts": 60.0, "reason": BECAUSE}
    made = desk.post("/api/alerts/silences", wanted).json()
    assert made["matchers"] == ['name=~"Maintenance.*"', 'team!="dba"']
    assert 50 < made["ends"] - time.time() <= 60
    held = desk.send("kept-back", name="Maintenance of disks")
    assert (held["outcome"], held["reason"]) == ("suppressed", "silenced")
    assert 0 < held["retryAfter"] <= 60
    assert desk.send("let-through", name="Maintenance of disks", labels={"team": "dba"})["outcome"] == "published"
    assert made["id"] in {each["id"] for each in desk.ask("/api/alerts/silences")["silences"]}
    end = {"id": made["id"], "reason": "it is over"}
    assert desk.post("/api/alerts/silences/expire", end).json() == {"expired": True}
    assert desk.post("/api/alerts/silences/expire", end).status_code == 404
    assert desk.send("kept-back", name="Maintenance of disks")["outcome"] == "published"
    (ended,) = [each for each in desk.ask("/api/alerts/silences", ended="true")["silences"] if each["id"] == made["id"]]
    assert (ended["ended_by"], ended["ended_why"]) == ("adminer", "it is over")


def test_a_dry_run_says_what_a_silence_would_match_now_and_makes_none(desk: Operator) -> None:
    desk.send("matched", name="Raid degraded", labels={"rack": "7"})
    desk.send("other", name="Raid degraded", labels={"rack": "8"})
    desk.history(1, fingerprint="other")
    body = {"matchers": ["name=~Raid.*", "rack=7"], "lasts": 60.0, "reason": BECAUSE}
    before = desk.ask("/api/alerts/silences")
    assert desk.post("/api/alerts/silences?dry_run=true", body).json() == {
        "would": 'silence alerts that match name=~"Raid.*", rack="7"',
        "facts": {"Matches now": "1: Raid degraded (critical)"},
    }
    none = desk.post("/api/alerts/silences?dry_run=true", body | {"matchers": ["rack=9"]}).json()
    assert none["facts"] == {"Matches now": "no alert that fires"}
    assert desk.ask("/api/alerts/silences") == before


@pytest.mark.parametrize("path", CHANGES)
def test_refused_acts_do_not_look_like_done_ones(desk: Operator, path: str) -> None:
    """Four of six records of an afternoon looked the same: two were done."""
    desk.send("scoped")
    body = CHANGES[path] | {"reason": f"of {path}"}
    missing = dict.fromkeys(("/api/alerts/silences/expire", "/api/alerts/silences/edit"), "nothing")
    done = missing.get(path, "done")
    wrong = {"/api/alerts/silences": ({"matchers": ["name=~(?=a)"]}, "refused: the pattern '(?=a)'")}
    change, outcome = wrong.get(path, ({"fingerprint": "never"} if "fingerprint" in body else {}, "nothing"))
    desk.post(path, body)
    desk.post(path, body | change)
    records = [each for each in desk.ask("/v1/audit")["records"] if each["reason"] == f"of {path}"]
    assert [each["outcome"].partition(" is invalid")[0] for each in reversed(records)] == [done, outcome]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"matchers": []}, "matchers"),
        ({"matchers": ["severity"]}, "not a matcher"),
        ({"matchers": ["name=~(?=a)"]}, "invalid perl operator"),
        ({"matchers": ["name=~.*"]}, "every alert"),
        ({"lasts": 0}, "lasts"),
        ({"lasts": 1e10}, "lasts"),
        ({"ends": 1e10}, "not both"),
        ({"lasts": None}, "lasts"),
    ],
)
def test_an_invalid_silence_is_refused_with_a_reason(desk: Operator, wrong: dict[str, Any], says: str) -> None:
    body = {"matchers": ["severity=nobody"], "lasts": 60.0, "reason": BECAUSE, **wrong}
    refused = desk.post("/api/alerts/silences", body)
    assert refused.status_code == 400
    assert says in refused.json()["detail"]


def test_a_silence_needs_an_end_and_may_begin_later(desk: Operator) -> None:
    body = {"matchers": ["severity=later"], "reason": BECAUSE}
    assert "lasts or ends" in desk.post("/api/alerts/silences", body).json()["detail"]
    now = time.time()
    made = desk.post("/api/alerts/silences", body | {"starts": now + 1000, "ends": now + 2000}).json()
    assert (made["starts"], made["ends"]) == (now + 1000, now + 2000)
    assert desk.send("later", "later")["outcome"] == "published"
    lasting = desk.post("/api/alerts/silences", body | {"starts": now + 1000, "lasts": 500.0}).json()
    assert lasting["ends"] == pytest.approx(now + 1500)


def test_a_silence_starts_and_ends_at_dates(desk: Operator) -> None:
    body = {"matchers": ["severity=dated"], "reason": BECAUSE, "starts": "2200-01-31T22:00:00+01:00"}
    refused = desk.post("/api/alerts/silences", body | {"ends": "2200-01-31T23:00:00+01:00"})
    assert "would last from 7260786000 to 7260789600" in refused.json()["detail"]
    assert desk.post("/api/alerts/silences", body | {"ends": "2200-01-31T23:00:00"}).status_code == 400
    now = datetime.now(UTC)
    at = {"starts": (now + timedelta(hours=1)).isoformat(), "ends": (now + timedelta(hours=3)).isoformat()}
    made = desk.post("/api/alerts/silences", body | at).json()
    assert (made["starts"], made["ends"]) == (now.timestamp() + 3600, now.timestamp() + 3 * 3600)


def test_a_silence_is_edited_until_it_ends(desk: Operator) -> None:
    body = {"matchers": ["name=Edit"], "reason": BECAUSE, "lasts": 3600.0}
    made = desk.post("/api/alerts/silences", body).json()
    edit = {"id": made["id"], "matchers": ["name=~Edit.*"], "reason": "all of them", "lasts": "2h"}
    edited = desk.post("/api/alerts/silences/edit", edit).json()
    assert (edited["id"], edited["starts"], edited["reason"]) == (made["id"], made["starts"], "all of them")
    assert (edited["matchers"], edited["ends"] > made["ends"] + 3500) == (['name=~"Edit.*"'], True)
    assert desk.send("edit", name="Editor")["reason"] == "silenced"
    refused = desk.post("/api/alerts/silences/edit", edit | {"matchers": ["name=~.*"]})
    assert (refused.status_code, "every alert" in refused.json()["detail"]) == (400, True)
    desk.post("/api/alerts/silences/expire", {"id": made["id"], "reason": BECAUSE})
    assert desk.post("/api/alerts/silences/edit", edit).status_code == 404
    assert desk.post("/api/alerts/silences/edit", edit | {"id": "unknown"}).status_code == 404


def test_an_edit_without_a_start_leaves_a_later_start_as_it_is(desk: Operator) -> None:
    starts = time.time() + 3600
    body = {"matchers": ["name=Pending"], "reason": BECAUSE, "lasts": 600.0}
    made = desk.post("/api/alerts/silences", body | {"starts": starts}).json()
    edited = desk.post("/api/alerts/silences/edit", body | {"id": made["id"], "lasts": 1200.0}).json()
    assert (edited["starts"], edited["ends"]) == (starts, starts + 1200)
    moved = desk.post("/api/alerts/silences/edit", body | {"id": made["id"], "starts": starts + 60}).json()
    assert (moved["starts"], moved["ends"]) == (starts + 60, starts + 660)


def test_a_preview_lists_the_open_alerts_that_a_silence_would_match(desk: Operator) -> None:
    for number in range(3):
        desk.send(f"preview-{number}", name="Preview", labels={"number": str(number)})
    desk.send("preview-0", name="Preview", labels={"number": "0"}, status="resolved")

    def preview(*matchers: str, **more: Any) -> Any:
        return desk.ask("/api/alerts/silences/preview", matcher=list(matchers), **more)

    found = preview("name=Preview")
    assert found["count"] == 2
    assert {each["alert"]["fingerprint"] for each in found["alerts"]} == {"preview-1", "preview-2"}
    (one,) = preview("name=Preview", "number=2")["alerts"]
    assert (one["alert"]["fingerprint"], one["silenced"]) == ("preview-2", None)
    some = preview("alertname=Preview", limit=1)
    assert (some["count"], len(some["alerts"])) == (2, 1)
    for wrong in (("name=~.*",), ("name",), ()):
        assert desk.get("/api/alerts/silences/preview", matcher=list(wrong)).status_code == 400
