"""Alertmanager's API (version 2): the fields, states and statuses of its description, for clients other than amtool."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.apps.alerts.operator import BECAUSE, LOG, Operator, operating
from tests.service.serving import TOKENS, bearer

SILENCES, ALERTS = "/api/v2/silences", "/api/v2/alerts"
HOUR = 3_600.0


@pytest.fixture(scope="module")
def desk() -> Iterator[Operator]:
    with operating([LOG, {"type": "log", "name": "dba", "match": {"labels": {"team": "db"}}}]) as it:
        yield it


def text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def postable(*matchers: dict[str, Any], lasts: float = HOUR, **more: Any) -> dict[str, Any]:
    now = time.time()
    known = {"startsAt": text(now), "endsAt": text(now + lasts), "createdBy": "alice", "comment": BECAUSE}
    return {"matchers": list(matchers), **known, **more}


def equal(name: str, value: str, **more: bool) -> dict[str, Any]:
    return {"name": name, "value": value, "isRegex": False, **more}


def posted(desk: Operator, body: dict[str, Any]) -> str:
    answer = desk.post(SILENCES, body)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["silenceID"]
    return str(answer.json()["silenceID"])


def silence(desk: Operator, id: str) -> dict[str, Any]:
    found: dict[str, Any] = desk.ask(f"/api/v2/silence/{id}")
    return found


def delete(desk: Operator, id: str, scope: str = "admin") -> httpx2.Response:
    return desk.service.http.delete(f"/api/v2/silence/{id}", headers=bearer(TOKENS[scope]))


def is_time(given: str) -> bool:
    return given.endswith("Z") and len(given) == len("2027-01-31T22:00:00.000Z") and bool(datetime.fromisoformat(given))


def test_the_status_has_all_that_its_clients_require(desk: Operator) -> None:
    status = desk.ask("/api/v2/status")
    assert sorted(status) == ["cluster", "config", "uptime", "versionInfo"]
    assert status["cluster"] == {"status": "disabled", "peers": []}
    wanted = {"version", "revision", "branch", "buildUser", "buildDate", "goVersion"}
    assert {name for name, value in status["versionInfo"].items() if isinstance(value, str)} == wanted
    assert list(status["config"]) == ["original"]
    assert is_time(status["uptime"])


def test_an_alert_has_all_that_its_clients_require(desk: Operator) -> None:
    started = datetime.now(UTC) - timedelta(hours=1)
    labels = {"alertname": "Shape", "severity": "warning", "source": "sensor-7", "team": "db"}
    more = {"annotations": {"summary": "a"}, "startsAt": started.isoformat(), "generatorURL": "http://p.example.org/g"}
    assert desk.service.post(ALERTS, [{"labels": labels, **more}], headers=bearer(TOKENS["write"])).status_code == 200
    (alert,) = desk.ask(ALERTS, filter="alertname=Shape")
    times = {name: alert.pop(name) for name in ("startsAt", "updatedAt", "endsAt")}
    assert all(map(is_time, times.values()))
    assert times["startsAt"] == f"{started.isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
    assert times["endsAt"] > times["updatedAt"]
    assert len(alert.pop("fingerprint")) == 16
    assert alert == {
        "labels": labels,  # the sender's own label wins over the source that we know
        "annotations": {"summary": "a"},
        "generatorURL": "http://p.example.org/g",
        "receivers": [{"name": "log"}, {"name": "dba"}],
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": [], "mutedBy": []},
    }


def test_an_alert_of_ours_has_its_name_severity_and_source_as_labels(desk: Operator) -> None:
    desk.send("ours", name="Ours", labels={"severity": "what the sender meant"})
    (alert,) = desk.ask(ALERTS, filter="alertname=Ours")
    assert alert["fingerprint"] == "ours"
    assert alert["labels"] == {"alertname": "Ours", "severity": "critical", "source": "db-1"}
    for each in ("severity=critical", "source=db-1", "fingerprint=ours"):
        assert "ours" in {found["fingerprint"] for found in desk.ask(ALERTS, filter=each)}, each


def test_a_filter_may_be_repeated_and_unknown_fields_are_ignored(desk: Operator) -> None:
    desk.send("repeated", name="Repeated", labels={"env": "prod"})
    both = ["alertname=Repeated", 'env="prod"']
    for filters, found in ((both, 1), ([*both, "env=test"], 0)):
        assert len(desk.ask(ALERTS, filter=filters, muted="false", unprocessed="true")) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, ["state-a", "state-b"]),
        ({"silenced": "false"}, ["state-a"]),
        ({"active": "false"}, ["state-b"]),
        ({"active": "false", "silenced": "false"}, []),
        ({"inhibited": "false", "unprocessed": "false"}, ["state-a", "state-b"]),
        ({"receiver": "dba"}, ["state-b"]),
        ({"receiver": ""}, ["state-a", "state-b"]),
    ],
)
def test_alerts_are_chosen_by_state_and_receiver(desk: Operator, query: dict[str, str], found: list[str]) -> None:
    desk.send("state-a", name="State")
    desk.send("state-b", name="State", labels={"team": "db", "part": "b"})
    id = posted(desk, postable(equal("part", "b")))
    assert [each["fingerprint"] for each in desk.ask(ALERTS, filter="alertname=State", **query)] == found
    assert delete(desk, id).status_code == 200


def test_a_silence_has_all_that_its_clients_require(desk: Operator) -> None:
    matchers = [
        equal("alertname", "Disk", isEqual=True),
        {"name": "env", "value": "a|b", "isRegex": True, "isEqual": False},
        equal("name", "inner", isEqual=False),
    ]
    id = posted(desk, postable(*matchers, id=None))
    assert str(UUID(id)) == id
    found = silence(desk, id)
    assert all(is_time(found.pop(name)) for name in ("startsAt", "endsAt", "updatedAt"))
    known = {"comment": BECAUSE, "createdBy": "alice", "annotations": {}}
    assert found == {"id": id, "status": {"state": "active"}, "matchers": matchers, **known}
    (ours,) = [each for each in desk.ask("/api/alerts/silences", limit=1000)["silences"] if each["id"] == id]
    assert ours["matchers"] == ['alertname="Disk"', 'env!~"a|b"', 'labels.name!="inner"']


def test_a_silence_made_here_is_seen_and_edited_there(desk: Operator) -> None:
    wanted = {"matchers": ["name=There", "source=db-1"], "lasts": "1h", "reason": BECAUSE}
    id = desk.post("/api/alerts/silences", wanted).json()["id"]
    found = silence(desk, id)
    assert found["matchers"] == [equal("alertname", "There", isEqual=True), equal("source", "db-1", isEqual=True)]
    later = text(time.time() + 3 * HOUR)
    assert posted(desk, {**found, "endsAt": later, "matchers": found["matchers"][::-1]}) == id
    assert silence(desk, id)["endsAt"][:19] == later[:19]
    assert desk.send("there", name="There")["reason"] == "silenced"


def test_other_matchers_replace_a_silence_by_another(desk: Operator) -> None:
    id = posted(desk, postable(equal("alertname", "Before")))
    found = silence(desk, id)
    other = posted(desk, {**found, "matchers": [equal("alertname", "After")]})
    assert other != id
    assert (silence(desk, id)["status"], silence(desk, other)["status"]) == ({"state": "expired"}, {"state": "active"})


def test_a_replacement_that_is_invalid_leaves_the_silence_as_it_is(desk: Operator) -> None:
    id = posted(desk, postable(equal("alertname", "Left")))
    found = silence(desk, id)
    assert desk.post(SILENCES, {**found, "matchers": [equal("alertname", "")]}).status_code == 400
    assert desk.post(SILENCES, {**found, "endsAt": text(time.time() - HOUR)}).status_code == 400
    assert silence(desk, id) == found


def test_an_ended_silence_is_followed_by_a_new_one(desk: Operator) -> None:
    id = posted(desk, postable(equal("alertname", "Over")))
    found = silence(desk, id)
    deleted = delete(desk, id)
    assert (deleted.status_code, deleted.content) == (200, b"")
    again = posted(desk, found)
    assert again != id
    assert silence(desk, id)["status"] == {"state": "expired"}
    assert silence(desk, again)["startsAt"] > found["startsAt"]  # not before it was made


def test_silences_are_listed_by_state(desk: Operator) -> None:
    now, mark = time.time(), equal("alertname", "Listed")
    late = posted(desk, postable(mark, startsAt=text(now + 2 * HOUR), endsAt=text(now + 3 * HOUR)))
    soon = posted(desk, postable(mark, startsAt=text(now + HOUR), endsAt=text(now + 9 * HOUR)))
    long, short, over = (posted(desk, postable(mark, lasts=lasts)) for lasts in (2 * HOUR, HOUR, HOUR))
    delete(desk, over)

    def listed(**query: str) -> list[str]:
        return [each["id"] for each in desk.ask(SILENCES, filter='alertname="Listed"', **query)]

    assert listed() == [short, long, soon, late, over]
    assert listed(active="false") == [soon, late, over]
    assert listed(pending="false", expired="false") == [short, long]
    assert desk.ask(SILENCES, filter='alertname!="Listed"') == []


def test_a_silence_that_had_not_started_ends_where_it_would_have_started(desk: Operator) -> None:
    now = time.time()
    id = posted(desk, postable(equal("a", "b"), startsAt=text(now + HOUR), endsAt=text(now + 2 * HOUR)))
    delete(desk, id)
    found = silence(desk, id)
    assert (found["status"], found["startsAt"]) == ({"state": "expired"}, found["endsAt"])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"matchers": []}, "length >= 1"),
        ({"matchers": [equal("a=b", "c")]}, "matching regex"),
        ({"matchers": [{"name": "a", "value": "b"}]}, "isRegex"),
        ({"matchers": [{"name": "a", "value": "(?=b)", "isRegex": True}]}, "invalid perl operator"),
        ({"matchers": [equal("a", "b")] * 21}, "length <= 20"),
        ({"matchers": [equal("a", "b" * 601)]}, "length <= 600 - at `$.matchers[0].value`"),
        ({"id": "x" * 65}, "$.id"),
        ({"comment": ""}, "length >= 3 - at `$.comment`"),
        ({"endsAt": "tomorrow"}, "$.endsAt"),
        ({"endsAt": "2027-01-31T22:00:00"}, "$.endsAt"),
        ({"startsAt": "9999-12-31T00:00:00Z"}, "must end after now and after it starts"),
    ],
)
def test_an_invalid_silence_is_answered_with_a_string(desk: Operator, wrong: dict[str, Any], says: str) -> None:
    answer = desk.post(SILENCES, postable(equal("a", "b")) | wrong)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert isinstance(answer.json(), str)
    assert says in answer.json()


def test_what_is_unknown_is_answered_404_with_a_string(desk: Operator) -> None:
    unknown = desk.post(SILENCES, postable(equal("a", "b"), id="unknown"))
    for answer in (desk.get("/api/v2/silence/unknown"), delete(desk, "unknown"), unknown):
        assert (answer.status_code, answer.json()) == (404, "silence 'unknown' not found")
    assert "is not a matcher" in desk.get(SILENCES, filter="[").json()
    assert desk.get(ALERTS, filter="x=~[").status_code == 400


def test_every_change_is_in_the_audit_log_with_the_comment(desk: Operator) -> None:
    id = posted(desk, postable(equal("alertname", "Audited"), comment="the first comment"))
    posted(desk, {**silence(desk, id), "comment": "the second comment"})
    assert [delete(desk, id).status_code for _ in range(2)] == [200, 200]  # the second changes nothing
    records = desk.ask("/audit", format="json")["records"][:3]
    assert [(each["who"], each["action"], each["key"], each["reason"]) for each in records] == [
        ("adminer", "api.v2.silence.id", id, "the second comment"),
        ("adminer", "api.v2.silences", id, "the second comment"),
        ("adminer", "api.v2.silences", 'alertname="Audited"', "the first comment"),
    ]
    (ended,) = [each for each in desk.ask("/api/alerts/silences", ended="true")["silences"] if each["id"] == id]
    assert (ended["made_by"], ended["ended_by"]) == ("alice", "adminer")


def test_silences_are_changed_by_admins_alone(desk: Operator) -> None:
    id = posted(desk, postable(equal("alertname", "Guarded")))
    for scope in ("read", "write"):
        for answer in (desk.post(SILENCES, postable(equal("a", "b")), scope), delete(desk, id, scope)):
            assert (answer.status_code, answer.headers["content-type"]) == (403, "application/json")
    for path in ("/api/v2/status", SILENCES, ALERTS, f"/api/v2/silence/{id}"):
        assert desk.service.get(path).status_code == 401
        assert desk.get(path, "read").status_code == 200
    assert silence(desk, id)["status"] == {"state": "active"}


def test_the_document_says_that_errors_are_strings_and_filters_lists(desk: Operator) -> None:
    paths = desk.service.get("/openapi.json").json()["paths"]
    assert paths[SILENCES]["post"]["responses"]["400"]["content"] == {
        "application/json": {"schema": {"type": "string"}}
    }
    (filters,) = [each for each in paths[ALERTS]["get"]["parameters"] if each["name"] == "filter"]
    assert filters["schema"]["type"] == "array"
    assert "delete" in paths["/api/v2/silence/{id}"]


def test_large_patterns_in_filters_leave_others_their_turn() -> None:
    """One request with `filter` for 150 alerts took four seconds, in which the service answered nobody."""
    values = ["".join("ab"[number >> place & 1] for place in range(20)) * 12 + "a" * 10 for number in range(60)]
    alerts = [{"labels": {"alertname": "x", **{f"l{n}": f"{n}{value}" for n in range(19)}}} for value in values]
    matchers = [f"l{n}=~{n}(a?b?.?){{80}}(.*a){{20}}.*" for n in range(19)]
    with operating(service={"apps": ("alerts",)}) as desk, ThreadPoolExecutor(1) as elsewhere:
        assert desk.post(ALERTS, alerts, "write").status_code == 200  # type: ignore[arg-type]
        listing = elsewhere.submit(lambda: desk.get(ALERTS, "read", filter=matchers))
        answered = 0
        while not listing.done():
            assert desk.service.get("/healthz").status_code == 200
            answered += 1
        assert len(listing.result().json()) == len(alerts)
        assert answered > 5
