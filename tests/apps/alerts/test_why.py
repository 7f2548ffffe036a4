"""Why was I not notified: each cause is found and named, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.alerts.operator import BECAUSE, BROKEN, LOG, Operator, operating
from tests.service.serving import until


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    limits = {"policies": {"info": {"limit": 1, "quiet": 0}}, "severity_limits": {"notice": {"limit": 2}}}
    with operating([LOG, BROKEN], **limits) as it:
        yield it


def said(known: dict[str, Any], text: str) -> bool:
    return any(text in sentence for sentence in known["verdict"])


def test_one_that_never_came_is_not_explained_away(desk: Operator) -> None:
    known = desk.why("never-seen")
    assert said(known, "Nothing suppresses it")
    assert said(known, "The history has no alert of this fingerprint")
    kept = ("silences", "windows", "limits", "waiting", "dead_letters", "suppressed", "recent")
    assert [known[name] for name in kept] == [[]] * len(kept)
    assert known["last_notified"] is None


def test_a_quiet_window_is_shown_with_what_it_suppressed(desk: Operator) -> None:
    assert desk.send("quiet/ä:1")["outcome"] == "published"
    assert [desk.send("quiet/ä:1")["reason"] for _ in range(3)] == ["quiet"] * 3
    known = desk.why("quiet/ä:1")
    (window,) = known["windows"]
    assert (window["fingerprint"], window["severity"], window["reason"]) == ("quiet/ä:1", "critical", "quiet")
    assert 290 < window["left"] <= 300
    assert window["suppressed_day"] == 3
    assert [(each["reason"], each["count"]) for each in known["suppressed"]] == [("quiet", 3)]
    assert said(known, "Severity critical was sent and is quiet for 5 min more")
    assert said(known, "the history has 3 suppressed alerts")
    assert not said(known, "Nothing suppresses it")
    assert known["last_notified"] == known["recent"][0]["notified"]


def test_a_resolved_alert_is_not_said_to_be_suppressed_for_a_month(desk: Operator) -> None:
    desk.send("was-resolved")
    assert desk.send("was-resolved", status="resolved")["outcome"] == "published"
    known = desk.why("was-resolved")
    assert [each["status"] for each in known["windows"]] == ["resolved"]
    assert said(known, "Nothing suppresses it now: the next firing alert sends a notification.")
    assert said(known, "The resolved notification was sent.")
    assert not said(known, "quiet for")
    assert desk.send("was-resolved")["outcome"] == "published"


def test_a_silence_is_named_also_to_whom_it_hid_all(desk: Operator) -> None:
    wanted = {"matchers": ["env=staging"], "lasts": 600.0, "reason": "the move of staging"}
    made = desk.post("/api/alerts/silences", wanted).json()
    assert desk.send("silent", labels={"env": "staging"})["reason"] == "silenced"
    known = desk.why("silent")
    assert [each["id"] for each in known["silences"]] == [made["id"]]
    assert said(known, "by adminer: the move of staging")
    assert said(known, "no notification was sent so far")
    assert desk.why("quiet/other")["silences"] == []


def test_a_limit_that_is_reached_is_shown(desk: Operator) -> None:
    assert desk.send("limited", "info")["outcome"] == "published"
    assert desk.send("limited", "info")["reason"] == "limited"
    known = desk.why("limited")
    (limit,) = known["limits"]
    assert (limit["severity"], limit["limit"], limit["notified"], limit["reached"]) == ("info", 1, 1, True)
    assert said(known, "Severity info is at its limit: 1 of 1 were sent in the last 60 min.")


def test_a_limit_over_all_alerts_is_shown(desk: Operator) -> None:
    for name in ("shared-1", "shared-2"):
        assert desk.send(name, "Notice")["outcome"] == "published"
    assert desk.send("shared-3", "Notice")["reason"] == "limited"
    (own, shared) = desk.why("shared-3")["limits"]
    assert (own["shared"], own["notified"], own["reached"]) == (False, 0, False)
    assert (shared["shared"], shared["notified"], shared["reached"]) == (True, 2, True)


def test_what_one_publisher_still_has_to_hear_waits_and_then_is_a_dead_letter() -> None:
    with operating([LOG, BROKEN], max_attempts=1, backoff=[0.5]) as desk:
        assert desk.send("half", labels={"to": "broken"})["outcome"] == "published"
        (waiting,) = until(lambda: desk.why("half")["waiting"])
        assert (waiting["publisher"], waiting["severity"]) == ("broken", "critical")
        (dead,) = until(lambda: desk.why("half")["dead_letters"])
        known = until(
            lambda: "dead letter" in _result(found := desk.why("half"), "broken") and found
        )  # the last one is sent
        assert not known["waiting"]
        assert (dead["publisher"], dead["severity"]) == ("broken", "critical")
        assert "/bin/false" in dead["error"]
        assert said(known, "could not be published to broken and is a dead letter")
        (record,) = known["recent"]
        assert (record["outcome"], record["results"]["log"]) == ("published", "ok")


def _result(known: dict[str, Any], publisher: str) -> str:
    (record,) = known["recent"]
    return str(record["results"].get(publisher, ""))


def test_what_no_publisher_could_send_waits_in_the_outbox() -> None:
    with operating([BROKEN | {"match": {}}], backoff=[60]) as desk:
        for fingerprint in ("whole", "wholly"):
            assert desk.send(fingerprint)["outcome"] == "queued"
        known = until(lambda: (found := desk.why("whole"))["waiting"] and found)
        (waiting,) = known["waiting"]
        assert (waiting["publisher"], waiting["severity"], waiting["state"]) == ("", "critical", "closed")
        assert 30 < waiting["left"] <= 90  # a minute, more or less by chance
        assert said(known, "is published to all publishers in")
        assert known["last_notified"] is None
        assert [each["outcome"] for each in known["recent"]] == ["queued"]


def test_what_is_being_sent_right_now_says_so() -> None:
    slow = {"type": "command", "name": "slow", "argv": ["/bin/sleep", "1.5"]}
    with operating([slow], answer_within=0.05) as desk:
        assert desk.send("under-way")["outcome"] == "queued"
        known = desk.why("under-way")
        assert [(each["severity"], each["reason"]) for each in known["windows"]] == [("critical", "reserved")]
        assert [(each["state"], each["attempts"]) for each in known["waiting"]] == [("held", 1)]
        assert said(known, "A notification is being published to all publishers right now (attempt 1).")
        assert said(known, "Severity critical is being sent right now, by ")
        assert until(lambda: desk.why("under-way")["last_notified"])


def test_one_that_was_sent_and_cleared_is_free_again(desk: Operator) -> None:
    desk.send("cleared")
    desk.post("/api/alerts/reservations/clear", {"fingerprint": "cleared", "reason": BECAUSE})
    known = desk.why("cleared")
    assert known["windows"] == []
    assert said(known, "Nothing suppresses it now")
    assert said(known, "Last sent")
