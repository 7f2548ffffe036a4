"""Senders that speak as Alertmanager, Prometheus and PagerDuty do, to a real service that runs a real program."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from solely.apps.alerts.inputs.alertmanager import MAX_ALERTS
from solely.apps.alerts.inputs.labels import label_fingerprint
from tests.servers import Valkey
from tests.service.serving import LINES, TOKENS, Running, bearer, running, until

WEBHOOK, POSTED, EVENTS = "/api/alerts/alertmanager", "/api/v2/alerts", "/v2/enqueue"
NOTE = 'printf "%s\\n" "$SOLELY_ALERT_STATUS $SOLELY_ALERT_SEVERITY $SOLELY_ALERT_FINGERPRINT" >> "$0"'
REPEATS = 40  # of a request that is answered 503: more than the alerts in it
PAYLOAD = {"summary": "Queue is long", "source": "worker-3", "severity": "critical"}

Serving = Callable[..., AbstractContextManager[Running]]


class SentLog:
    """The file in which the program of the tests logs what it was sent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def publisher(self, before: str = "", **given: Any) -> dict[str, Any]:
        """The settings of a publisher that runs the program; `before` is what the shell does first."""
        return {"type": "command", "argv": ["/bin/sh", "-c", f"{before}{NOTE}", str(self.path)], **given}

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


@pytest.fixture
def sent(tmp_path: Path) -> SentLog:
    return SentLog(tmp_path / "sent")


@pytest.fixture
def serving(sent: SentLog) -> Serving:
    """A service with the alert receiver, whose settings are the defaults but for those given."""

    def start(alerts: dict[str, Any] | None = None, **given: Any) -> AbstractContextManager[Running]:
        return running(apps=("alerts",), alerts={"publishers": [sent.publisher()], **(alerts or {})}, **given)

    return start


@pytest.fixture
def service(serving: Serving) -> Iterator[Running]:
    with serving() as it:
        yield it


def grouped(*alerts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": "4", "receiver": "solely", "externalURL": "http://am.example.org", "alerts": alerts, **more}


def one(fingerprint: str, status: str = "firing", **labels: str) -> dict[str, Any]:
    known = {"alertname": "VolumeFull", "severity": "critical", **labels}
    return {"status": status, "labels": known, "annotations": {}, "fingerprint": fingerprint}


def event(action: str = "trigger", key: str | None = "queue", **more: Any) -> dict[str, Any]:
    payload = {"payload": PAYLOAD} if action == "trigger" else {}
    return {"routing_key": "k", "event_action": action, "dedup_key": key, **payload, **more}


def outcomes(answer: httpx2.Response) -> list[tuple[str, str]]:
    assert answer.status_code == 200, answer.text
    return [(each["outcome"], each.get("reason", "")) for each in answer.json()["alerts"]]


def is_to_be_repeated(answer: httpx2.Response) -> bool:
    return answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1


# -- Alertmanager


def test_each_alert_of_a_group_is_decided_and_a_repeat_sends_nothing(service: Running, sent: SentLog) -> None:
    group = grouped(one("a"), one("b"), one("c", "resolved"), groupKey="{}", unknown={"later": [1]})
    first = service.post(WEBHOOK, group)
    assert outcomes(first) == [("published", ""), ("published", ""), ("suppressed", "not_firing")]
    assert [each["fingerprint"] for each in first.json()["alerts"]] == ["a", "b", "c"]
    again = service.post(WEBHOOK, group)
    assert outcomes(again)[:2] == [("suppressed", "quiet")] * 2
    assert again.json()["alerts"][0]["retryAfter"] > 200
    assert sorted(sent.lines()) == ["firing critical a", "firing critical b"]


def test_a_resolved_alert_closes_its_window(service: Running, sent: SentLog) -> None:
    for alert in (one("a"), one("a", "resolved"), one("a", "resolved"), one("a")):
        service.post(WEBHOOK, grouped(alert))
    assert sent.lines() == ["firing critical a", "resolved critical a", "firing critical a"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"alerts": 7}', 400),
        (json.dumps(grouped(one("a"), {"labels": {"x": 1}})).encode(), 400),
        (json.dumps(grouped(*[one("a")] * (MAX_ALERTS + 1))).encode(), 400),
        (b" " * (1 << 20) + b"{}", 413),
    ],
)
def test_what_is_malformed_is_refused_with_a_problem_and_nothing_is_done(
    service: Running, sent: SentLog, body: bytes, status: int
) -> None:
    answer = service.http.post(WEBHOOK, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["detail"]
    assert sent.lines() == []


def test_an_alert_that_is_too_large_is_refused_alone(service: Running, sent: SentLog) -> None:
    large = one("large", **{f"label{number}": "x" * 8_000 for number in range(40)})
    answer = service.post(WEBHOOK, grouped(one("a"), large, one("b")))
    assert answer.status_code == 400
    assert "1 of 3 alerts were refused, the others not: alerts[1]: " in answer.json()["detail"]
    assert sorted(sent.lines()) == ["firing critical a", "firing critical b"]


def test_too_many_requests_are_answered_503_since_a_429_would_be_lost(serving: Serving, sent: SentLog) -> None:
    with serving({"request_limit": 1, "request_per": 60}) as service:
        assert outcomes(service.post(WEBHOOK, grouped(one("a")))) == [("published", "")]
        for path, body in ((WEBHOOK, grouped(one("b"))), (POSTED, [{"labels": {"alertname": "Down"}}])):
            refused = service.post(path, body)
            assert is_to_be_repeated(refused)
            assert "request_limit" in refused.text
    assert sent.lines() == ["firing critical a"]


def test_what_is_beyond_capacity_is_sent_by_repeats_and_each_once(serving: Serving, sent: SentLog) -> None:
    with serving({"publishers": [sent.publisher("sleep 0.2; ")], "max_active": 2}) as service:

        def send(fingerprint: str) -> int:
            """How often it was sent until it was decided."""
            for number in range(1, REPEATS):
                answer = service.post(WEBHOOK, grouped(one(fingerprint)))
                if answer.status_code == 200:
                    return number
                assert is_to_be_repeated(answer)
                time.sleep(0.1)  # a sender's pause, as short as the test may be
            return REPEATS

        with ThreadPoolExecutor(6) as senders:
            tries = list(senders.map(send, "abcdef"))
    assert max(tries) > 1
    assert max(tries) < REPEATS
    assert sorted(sent.lines()) == [f"firing critical {name}" for name in "abcdef"]


def test_while_the_store_is_away_it_is_503_and_afterwards_a_repeat_loses_none(serving: Serving, sent: SentLog) -> None:
    alerts = {"policies": {"critical": {"hold": 1}}}
    with Valkey() as server, serving(alerts, url=server.url, store_timeout=0.5, data_url="sqlite:///:memory:") as it:
        assert outcomes(it.post(WEBHOOK, grouped(one("a")))) == [("published", "")]
        server.pause()
        undecided = it.post(WEBHOOK, grouped(one("b"), one("c")))
        posted = it.post(POSTED, [{"labels": {"alertname": "Down"}}])
        triggered = it.post(EVENTS, event())
        server.resume()
        assert is_to_be_repeated(undecided)
        assert "2 of 2 alerts could not be decided" in undecided.json()["detail"]
        assert is_to_be_repeated(posted)
        assert is_to_be_repeated(triggered)
        repeat = until(lambda: answered(it, grouped(one("a"), one("b"), one("c"))))
        assert outcomes(repeat)[0] == ("suppressed", "quiet")
        until(lambda: len(sent.lines()) >= 3)
    assert sorted(sent.lines()) == [f"firing critical {name}" for name in "abc"]


def answered(service: Running, group: dict[str, Any]) -> httpx2.Response | None:
    answer = service.post(WEBHOOK, group)
    return answer if answer.status_code == 200 else None


# -- Prometheus


def test_what_prometheus_posts_is_the_same_alert_as_by_way_of_alertmanager(service: Running, sent: SentLog) -> None:
    labels = {"alertname": "Down", "severity": "warning", "instance": "db-1"}
    ends = datetime.now(UTC)
    firing = {"labels": labels, "annotations": {}, "endsAt": (ends + timedelta(minutes=4)).isoformat(), "new": 1}
    fingerprint = label_fingerprint(labels)
    assert outcomes(service.post(POSTED, [firing])) == [("published", "")]
    assert outcomes(service.post(POSTED, [firing])) == [("suppressed", "quiet")]
    by_webhook = {"status": "firing", "labels": labels, "fingerprint": fingerprint}
    assert outcomes(service.post(WEBHOOK, grouped(by_webhook))) == [("suppressed", "quiet")]
    over = firing | {"endsAt": (ends - timedelta(seconds=1)).isoformat()}
    assert outcomes(service.post(POSTED, [over])) == [("published", "")]
    assert sent.lines() == [f"firing warning {fingerprint}", f"resolved warning {fingerprint}"]


def test_what_prometheus_would_not_post_is_refused(service: Running) -> None:
    bodies: list[object] = [{}, [{"labels": {}}], [{"labels": {"a": "b"}, "endsAt": "soon"}]]
    for body in bodies:
        assert service.post(POSTED, body).status_code == 400


def test_who_may_send(serving: Serving, sent: SentLog) -> None:
    with serving(tokens=LINES) as service:
        for path, body in ((WEBHOOK, grouped(one("a"))), (POSTED, [{"labels": {"alertname": "Down"}}])):
            assert service.post(path, body).status_code == 401
            assert service.post(path, body, headers=bearer(TOKENS["read"])).status_code == 403
            assert service.post(path, body, headers=bearer(TOKENS["write"])).status_code == 200
    assert len(sent.lines()) == 2


# -- PagerDuty


def test_events_are_answered_as_pagerduty_does(service: Running, sent: SentLog) -> None:
    accepted = {"status": "success", "message": "Event processed", "dedup_key": "queue"}
    for each in (event(), event(), event("resolve"), event("resolve")):
        answer = service.post(EVENTS, each)
        assert (answer.status_code, answer.json()) == (202, accepted)
    assert sent.lines() == ["firing critical queue", "resolved critical queue"]


def test_a_key_is_made_where_there_is_none_and_the_alert_can_be_resolved_by_it(service: Running, sent: SentLog) -> None:
    first, again = service.post(EVENTS, event(key=None)), service.post(EVENTS, event(key=None))
    made = first.json()["dedup_key"]
    assert made
    assert again.json()["dedup_key"] == made
    service.post(EVENTS, event("resolve", made))
    assert sent.lines() == [f"firing critical {made}", f"resolved critical {made}"]


def test_the_publisher_of_the_firing_alert_sends_its_resolution_without_a_payload(
    serving: Serving, sent: SentLog
) -> None:
    with serving({"publishers": [sent.publisher(match={"severities": ["critical"], "labels": {"group": "w"}})]}) as it:
        it.post(EVENTS, event(payload=PAYLOAD | {"group": "w"}))
        it.post(EVENTS, event("resolve"))
    assert sent.lines() == ["firing critical queue", "resolved critical queue"]


def test_a_resolve_does_without_the_history_if_that_fails(service: Running, sent: SentLog) -> None:
    service.post(EVENTS, event())
    service.run(service.service.data.run("DROP TABLE alerts_history"))
    assert service.post(EVENTS, event("resolve")).status_code == 202
    assert sent.lines() == ["firing critical queue", "resolved none queue"]


def test_acknowledging_an_alert_that_was_not_sent_is_accepted_and_changes_nothing(
    service: Running, sent: SentLog
) -> None:
    answer = service.post(EVENTS, event("acknowledge"))
    assert (answer.status_code, answer.json()["status"], answer.json()["dedup_key"]) == (202, "success", "queue")
    assert "nothing changed" in answer.json()["message"]
    assert sent.lines() == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (event(payload=PAYLOAD | {"severity": "fatal"}), "severity"),
        (event("resolve", None), "dedup_key is missing"),
        (event(key="k" * 256), "dedup_key"),
        ({"routing_key": "k"}, "event_action"),
        (event(payload=PAYLOAD | {"custom_details": {f"d{n}": "x" * 8_000 for n in range(40)}}), "bytes"),
    ],
)
def test_what_is_no_event_is_refused_as_pagerduty_does(
    service: Running, sent: SentLog, wrong: dict[str, Any], said: str
) -> None:
    answer = service.post(EVENTS, wrong)
    assert answer.status_code == 400, answer.text
    assert (answer.json()["status"], answer.json()["message"]) == ("invalid event", "Event object is invalid")
    assert said in answer.json()["errors"][0]
    assert sent.lines() == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"routing_key": ', b"[" * 100_000])
def test_what_is_no_object_is_a_problem(service: Running, body: bytes) -> None:
    answer = service.http.post(EVENTS, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


def test_the_routing_key_is_a_token_with_the_scope_write(serving: Serving, sent: SentLog) -> None:
    with serving(tokens=LINES) as service:
        for key in ("", "guess", TOKENS["read"], "😀"):
            answer = service.post(EVENTS, event(routing_key=key))
            assert (answer.status_code, answer.json()["detail"]) == (
                401,
                "this needs a routing_key in the body that is a token with the scope write",
            )
        for body in (b"", b"[]", b'{"routing_key": 7}', b"\xff", b'{"a":' * 100_000):
            assert service.http.post(EVENTS, content=body, headers=bearer(TOKENS["admin"])).status_code == 401
        assert sent.lines() == []
        assert service.post(EVENTS, event(routing_key=TOKENS["write"])).status_code == 202
        assert service.post(EVENTS, event(key="other", routing_key=TOKENS["admin"])).status_code == 202


def test_too_many_events_of_one_key_are_answered_429(serving: Serving) -> None:
    with serving({"request_limit": 2, "request_per": 60}, tokens=LINES) as service:
        writing, admin = (event(routing_key=TOKENS[scope]) for scope in ("write", "admin"))
        assert [service.post(EVENTS, writing).status_code for _ in range(3)] == [202, 202, 429]
        refused = service.post(EVENTS, writing)
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert service.post(EVENTS, admin).status_code == 202


def test_the_document_describes_an_event(service: Running) -> None:
    operation = service.get("/openapi.json").json()["paths"][EVENTS]["post"]
    shape = operation["requestBody"]["content"]["application/json"]["schema"]
    assert shape["required"] == ["routing_key", "event_action"]
    assert shape["properties"]["event_action"]["enum"] == ["acknowledge", "resolve", "trigger"]
    assert "$ref" not in json.dumps(shape)
    assert {"202", "400", "401", "429", "503"} <= set(operation["responses"])
