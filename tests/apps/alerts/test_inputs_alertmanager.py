"""What Alertmanager and Prometheus send, read as alerts."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from solely.apps.alerts.inputs.alertmanager import (
    MAX_ALERTS,
    AlertmanagerGroup,
    PostedAlerts,
    parse_group,
    parse_posted,
)
from solely.apps.alerts.inputs.labels import label_fingerprint
from solely.apps.alerts.model import Alert

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

GROUP = b"""{
  "receiver": "solely", "status": "firing", "version": "4", "truncatedAlerts": 0,
  "groupKey": "{}/{team=\\"storage\\"}:{alertname=\\"VolumeFull\\"}",
  "groupLabels": {"alertname": "VolumeFull"}, "commonLabels": {"alertname": "VolumeFull"}, "commonAnnotations": null,
  "externalURL": "http://alertmanager.example.org:9093",
  "alerts": [
    {"status": "firing", "labels": {"alertname": "VolumeFull", "severity": "critical", "volume": "/srv"},
     "annotations": {"summary": "/srv is full"}, "startsAt": "2026-03-01T11:58:02.123456789Z",
     "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://prometheus.example.org:9090/graph?g0.expr=x",
     "fingerprint": "1d2f4e6a8b0c9e7f"},
    {"status": "resolved", "labels": {"alertname": "VolumeFull", "volume": "/var"}, "annotations": null,
     "startsAt": "2026-03-01T11:00:00Z", "endsAt": "2026-03-01T11:59:00Z", "generatorURL": "",
     "fingerprint": "0a1b2c3d4e5f6071"}
  ]
}"""


def grouped(body: bytes) -> list[Alert]:
    return parse_group(msgspec.json.decode(body, type=AlertmanagerGroup))


def posted(**fields: object) -> Alert:
    body = msgspec.json.encode([{"labels": {"alertname": "Down", "severity": "warning"}} | fields])
    return parse_posted(msgspec.json.decode(body, type=PostedAlerts), NOW)[0]


# -- the webhook


def test_a_group_of_the_webhook() -> None:
    firing, resolved = grouped(GROUP)
    assert (firing.name, firing.severity, firing.status) == ("VolumeFull", "critical", "firing")
    assert firing.source == "http://alertmanager.example.org:9093"
    assert firing.fingerprint == "1d2f4e6a8b0c9e7f"
    assert firing.labels == {"alertname": "VolumeFull", "severity": "critical", "volume": "/srv"}
    assert firing.annotations == {
        "summary": "/srv is full",
        "startsAt": "2026-03-01T11:58:02.123456789Z",
        "generatorURL": "http://prometheus.example.org:9090/graph?g0.expr=x",
    }
    assert (resolved.status, resolved.severity, resolved.fingerprint) == ("resolved", "none", "0a1b2c3d4e5f6071")


def test_each_alert_has_its_own_status_whatever_that_of_the_group_is() -> None:
    over = GROUP.replace(b'"receiver": "solely", "status": "firing"', b'"receiver": "solely", "status": "resolved"')
    assert over != GROUP
    assert [alert.status for alert in grouped(over)] == ["firing", "resolved"]


def test_what_grafana_adds_is_ignored() -> None:
    (alert,) = grouped(
        b"""{"receiver": "ops", "version": "1", "orgId": 1, "title": "[FIRING:1]", "state": "alerting", "alerts": [
        {"status": "firing", "labels": {"alertname": "Hot"}, "annotations": {}, "values": {"B": 44.2},
         "silenceURL": "x", "dashboardURL": "", "fingerprint": "c1"}]}"""
    )
    assert (alert.name, alert.fingerprint, alert.source) == ("Hot", "c1", "alertmanager")


def test_an_alert_without_a_name_or_fingerprint_is_accepted_all_the_same() -> None:
    (alert,) = grouped(b'{"alerts": [{"labels": {"instance": "db-1"}}]}')
    assert (alert.name, alert.severity) == ("unnamed", "none")
    assert alert.fingerprint == label_fingerprint({"instance": "db-1"})


def test_what_is_too_long_is_cut_and_still_the_same_alert() -> None:
    labels = {"alertname": "n" * 300, "severity": "s" * 300} | {f"label{n}": "v" * 9_000 for n in range(70)}
    body = msgspec.json.encode({"alerts": [{"labels": labels}], "externalURL": "http://" + "h" * 300})
    (alert,) = grouped(body)
    assert (len(alert.name), len(alert.severity), len(alert.source), len(alert.labels)) == (255, 255, 255, 64)
    assert len(alert.labels["label0"]) == 8192
    assert alert.fingerprint == label_fingerprint(labels)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"alerts": {}}',
        b'{"alerts": [{"labels": {"a": 1}}]}',
        b'{"alerts": [{"labels": {}, "status": "pending"}]}',
        b'{"alerts": [{"fingerprint": "' + b"f" * 256 + b'"}]}',
        b'{"alerts": [' + b",".join([b"{}"] * (MAX_ALERTS + 1)) + b"]}",
    ],
)
def test_what_is_no_group_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        grouped(body)


# -- fingerprints


@pytest.mark.parametrize(
    ("labels", "expected"),
    [  # the figures of Prometheus' own tests of the same
        ({}, 14695981039346656037),
        ({"name": "garland, briggs", "fear": "love is not enough"}, 5799056148416392346),
        ({"second-label": "second-label-value", "first-label": "first-label-value"}, 3195800080984914717),
    ],
)
def test_the_fingerprint_of_labels_is_that_of_alertmanager(labels: dict[str, str], expected: int) -> None:
    assert label_fingerprint(labels) == f"{expected:016x}"


def test_separators_in_labels_do_not_make_two_alerts_one() -> None:
    assert label_fingerprint({"a": "b", "c": "d"}) != label_fingerprint({"a": "bc", "": "d"})
    assert label_fingerprint({"ab": "c"}) != label_fingerprint({"a": "bc"})


# -- what Prometheus posts


def test_a_posted_alert() -> None:
    alert = posted(
        annotations={"summary": "it is down"},
        startsAt="2026-03-01T11:58:00Z",
        endsAt="2026-03-01T12:04:00Z",
        generatorURL="http://prometheus.example.org:9090/graph?g0.expr=up",
    )
    assert (alert.name, alert.severity, alert.status) == ("Down", "warning", "firing")
    assert alert.source == "http://prometheus.example.org:9090"
    assert alert.fingerprint == label_fingerprint({"alertname": "Down", "severity": "warning"})
    assert alert.annotations["startsAt"] == "2026-03-01T11:58:00Z"


def test_a_label_without_a_value_is_no_label() -> None:
    alert = posted(labels={"alertname": "Down", "severity": "", "zone": ""})
    assert (alert.labels, alert.severity) == ({"alertname": "Down"}, "none")
    assert alert.fingerprint == label_fingerprint({"alertname": "Down"})


@pytest.mark.parametrize(
    ("ends_at", "status"),
    [
        (None, "firing"),
        ("0001-01-01T00:00:00Z", "firing"),
        ("0001-01-01T00:00:00+02:00", "firing"),
        ((NOW + timedelta(seconds=1)).isoformat(), "firing"),
        (NOW.isoformat(), "resolved"),
        ((NOW - timedelta(minutes=1)).isoformat(), "resolved"),
        ("2026-03-01T13:59:59.999999999+02:00", "resolved"),
        ("9999-12-31T23:59:59-11:00", "firing"),
    ],
)
def test_an_alert_is_over_when_its_end_is_past(ends_at: str | None, status: str) -> None:
    assert posted(endsAt=ends_at).status == status


@pytest.mark.parametrize("address", ["", "/graph?g0.expr=up", "http://[broken"])
def test_without_a_host_in_its_address_the_source_is_prometheus(address: str) -> None:
    assert posted(generatorURL=address).source == "prometheus"


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'[{"annotations": {}}]',
        b'[{"labels": {}}]',
        b'[{"labels": {"alertname": "Down"}, "endsAt": "yesterday"}]',
        b'[{"labels": {"alertname": "Down"}, "endsAt": "2026-03-01T12:00:00"}]',
        b"[" + b",".join([b'{"labels": {"a": "b"}}'] * (MAX_ALERTS + 1)) + b"]",
    ],
)
def test_what_are_no_alerts_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=PostedAlerts)
