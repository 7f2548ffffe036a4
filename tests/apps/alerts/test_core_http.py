"""POST /api/alerts on a real service: who may, what is taken, and what is answered."""

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from solely.apps.alerts.inputs import own_json
from solely.apps.alerts.inputs.own_json import Intake, alert_of
from solely.apps.alerts.model import fingerprint_of
from solely.apps.alerts.settings import AlertsSettings, LimitSettings, PolicySettings, table
from solely.errors import InvalidInput
from tests.service.serving import LINES, TOKENS, Running, bearer, running

ALERT = {"name": "CPU high", "severity": "critical", "source": "test", "fingerprint": "cpu"}


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(tokens=LINES, alerts={"request_limit": 20, "request_per": 30}) as service:
        yield service


def send(service: Running, token: str = "write", **given: Any) -> Any:
    return service.post("/api/alerts", {**ALERT, **given}, headers=bearer(TOKENS[token]))


def test_an_alert_is_published_once_and_then_suppressed(service: Running) -> None:
    first, second = send(service), send(service)
    assert (first.status_code, first.json()) == (200, {"outcome": "published", "fingerprint": "cpu"})
    body = second.json()
    assert (second.status_code, body["outcome"], body["reason"], body["fingerprint"]) == (
        200, "suppressed", "quiet", "cpu",
    )  # fmt: skip
    assert 290 < body["retryAfter"] <= 300


def test_resolved_is_sent_and_the_alert_may_fire_again(service: Running) -> None:
    for status in ("firing", "resolved", "firing"):
        assert send(service, fingerprint="disk", status=status).json()["outcome"] == "published"
    assert send(service, fingerprint="never", status="resolved").json()["reason"] == "not_firing"


def test_a_fingerprint_is_kept_verbatim(service: Running) -> None:
    odd = " A/b:c%2F~\u00e4 "
    assert send(service, fingerprint=odd).json() == {"outcome": "published", "fingerprint": odd}


def test_without_a_fingerprint_it_is_made_of_the_fields(service: Running) -> None:
    answers = [
        service.post("/api/alerts", {**without("fingerprint"), **given}, headers=bearer(TOKENS["write"])).json()
        for given in ({}, {"labels": {"host": "a"}}, {"labels": {"host": "a"}, "annotations": {"text": "x"}})
    ]
    assert [each["outcome"] for each in answers] == ["published", "published", "suppressed"]
    assert answers[0]["fingerprint"] == fingerprint_of([("name", "CPU high"), ("source", "test")])


def without(field: str) -> dict[str, str]:
    return {name: value for name, value in ALERT.items() if name != field}


@pytest.mark.parametrize(
    "wrong",
    [
        {"severity": ""},
        {"name": "n" * 256},
        {"fingerprint": ""},
        {"fingerprint": "f" * 256},
        {"status": "acknowledged"},
        {"labels": {"a": 1}},
        {"labels": {f"l{number}": "" for number in range(65)}},
        {"annotations": {"": "x"}},
        {"sevrity": "critical"},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_and_changes_nothing(service: Running, wrong: dict[str, Any]) -> None:
    refused = send(service, **wrong)
    assert refused.status_code == 400
    assert refused.json()["detail"]


def test_who_may_only_read_may_not_send(service: Running) -> None:
    assert send(service, "read").status_code == 403
    assert service.post("/api/alerts", ALERT).status_code == 401


def test_metrics_count_alerts(service: Running) -> None:
    send(service, fingerprint="counted")
    text = service.get("/metrics", headers=bearer(TOKENS["read"])).text
    assert "solely_alerts_active_reservations 0.0" in text
    assert 'solely_alerts_publish_seconds_count{publisher="log"}' in text


def test_the_route_is_documented(service: Running) -> None:
    document = service.get("/openapi.json", headers=bearer(TOKENS["read"])).json()
    assert "429" in document["paths"]["/api/alerts"]["post"]["responses"]


def test_schemas_are_named_by_what_they_are_and_not_by_where_they_are(service: Running) -> None:
    schemas = service.get("/openapi.json", headers=bearer(TOKENS["read"])).json()["components"]["schemas"]
    assert [name for name in schemas if "." in name] == []  # two of the same name, distinguished by their modules


def test_a_token_that_sends_too_often_is_told_to_retry(service: Running) -> None:
    statuses = [send(service, "admin").status_code for _ in range(21)]
    assert statuses == [200] * 20 + [429]
    refused = send(service, "admin")
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert refused.json()["type"].endswith("#limited")


def test_with_telemetry_it_works_the_same() -> None:
    with running(telemetry=True) as service:
        assert [service.post("/api/alerts", ALERT).json()["outcome"] for _ in "12"] == ["published", "suppressed"]


def test_alerts_can_be_left_out() -> None:
    with running(apps=("none",)) as service:
        assert service.post("/api/alerts", ALERT).status_code == 404


# -- fingerprints and settings


def test_a_configured_field_that_is_missing_counts_as_empty_and_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = LogCapture()
    monkeypatch.setattr(
        own_json, "log", structlog.wrap_logger(None, processors=[lines], wrapper_class=structlog.BoundLogger)
    )
    settings = AlertsSettings(fingerprint_fields=("name", "labels.host", "annotations.team"))
    intake = Intake(name="CPU", severity="critical", source="test", labels={"host": "a"})
    made = alert_of(intake, settings)
    (line,) = lines.entries
    assert (line["log_level"], line["field"], line["name"]) == ("warning", "annotations.team", "CPU")
    assert made.fingerprint == fingerprint_of([("name", "CPU"), ("labels.host", "a"), ("annotations.team", "")])


def test_policies_change_only_what_they_say() -> None:
    settings = AlertsSettings(
        policies={
            "Critical": PolicySettings(quiet=60),
            "info": PolicySettings(limit=0),
            "default": PolicySettings(hold=5),
        }
    )
    policies = table(settings)
    assert policies["critical"].terms == {"hold": 10.0, "quiet": 60, "limit": 20, "per": 3600.0}
    assert policies["info"].terms == {"hold": 5, "quiet": 1800.0, "limit": None, "per": None}
    assert policies["anything"].terms == {"hold": 5, "quiet": 1800.0, "limit": 5, "per": 3600.0}
    assert policies["warning"].terms["hold"] == 60.0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"fingerprint_fields": ("host",)}, "fingerprint_fields: 'host' is none of"),
        ({"fingerprint_fields": ("labels.",)}, "is none of"),
        ({"fingerprint_fields": ()}, "all alerts are the same"),
        ({"publishers": ()}, "no one is notified"),
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        AlertsSettings(**wrong)


def test_limits_have_an_hour_by_default() -> None:
    assert LimitSettings(limit=3).per == 3600.0
